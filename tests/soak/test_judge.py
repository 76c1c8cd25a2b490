"""Tests of `judge`: `PYTHONPATH=tests python3 -m unittest soak.test_judge`."""

import unittest
from collections import Counter

from . import judge


def samples(*resident_kb: float) -> list[judge.Sample]:
    return [judge.Sample(at_s, int(size), 20) for at_s, size in enumerate(resident_kb)]


def line(id: str, status: int | None = 200, server: str | None = "127.0.0.1:1") -> dict:
    return {"id": id, "status": status, "server": server}


def failures(findings: list[judge.Finding]) -> list[str]:
    return [finding.what for finding in findings if not finding.holds]


class Memory(unittest.TestCase):
    def test_growth_of_two_percent_holds_and_more_does_not(self):
        for last, holds in [(100_000, True), (102_000, True), (102_100, False), (50_000, True)]:
            sizes = [100_000] * 40 + [101_000] * 20 + [last] * 40
            self.assertEqual(judge.memory(samples(*sizes)).holds, holds, last)

    def test_peak_does_not_count_and_a_plateau_at_the_end_does(self):
        peak = [100_000] * 95 + [900_000] * 5
        self.assertTrue(judge.memory(samples(*peak)).holds)
        plateau = [100_000] * 85 + [900_000] * 15
        self.assertFalse(judge.memory(samples(*plateau)).holds)

    def test_steady_growth_is_found(self):
        steady = [100_000 * (1 + 0.03 * second / 3_600) for second in range(3_600)]
        self.assertFalse(judge.memory(samples(*steady)).holds)

    def test_few_samples_are_compared(self):
        self.assertTrue(judge.memory(samples(100_000)).holds)
        self.assertFalse(judge.memory(samples(100_000, 110_000)).holds)


class Rest(unittest.TestCase):
    def test_added_descriptor_is_named(self):
        before = Counter({"listening connection with clear": 1, "pipe": 4})
        self.assertEqual(failures(judge.at_rest(before, before, {"open": 0})), [])
        after = before + Counter({"established connection with api": 1})
        (found, _) = judge.at_rest(before, after, {"open": 0})
        self.assertFalse(found.holds)
        self.assertIn("added: 1 established connection with api", found.measured)

    def test_closed_descriptor_does_not_hide_an_added_one(self):
        before, after = Counter({"pipe": 4}), Counter({"pipe": 3, "socket": 1})
        self.assertEqual(failures(judge.at_rest(before, after, {})), ["no descriptor is left open"])
        self.assertEqual(failures(judge.at_rest(before, Counter({"pipe": 3}), {})), [])

    def test_gauge_must_be_0(self):
        found = judge.at_rest(Counter(), Counter(), {"in_flight": 1, "open": 0})
        self.assertEqual(failures(found), ["in_flight is 0 at rest"])


class Requests(unittest.TestCase):
    LOG = [line("a"), line("b", 101), line("c", 429, None), line("d", 502), line("e", None)]
    SEEN = ["a", "b", "d"]

    def failures(self, log=LOG, seen=SEEN, counted=5, dropped=0, kills=0) -> list[str]:
        return failures(judge.requests(log, seen, counted, dropped, kills))

    def test_logs_that_agree_hold(self):
        self.assertEqual(self.failures(), [])
        # A failed request may have reached the upstream or not.
        self.assertEqual(self.failures(seen=["a", "b"]), [])

    def test_lost_lines_are_found(self):
        self.assertEqual(self.failures(dropped=1), ["the log of the gateway is complete"])
        self.assertEqual(self.failures(counted=6), ["the metrics count what the log lists"])

    def test_each_kill_explains_one_missing_line_of_the_upstream(self):
        missing = ["each complete request reached the upstream"]
        self.assertEqual(self.failures(seen=["a", "d"]), missing)
        self.assertEqual(self.failures(seen=["a", "d"], kills=1), [])
        self.assertEqual(self.failures(seen=["d"], kills=1), missing)

    def test_request_that_the_log_does_not_have_is_found(self):
        unknown = ["the upstream saw only requests of the log"]
        self.assertEqual(self.failures(seen=[*self.SEEN, "x"]), unknown)
        # The gateway refused it, and it reached the upstream nevertheless.
        self.assertEqual(self.failures(seen=[*self.SEEN, "c"]), unknown)

    def test_request_that_reached_the_upstream_twice_is_found(self):
        self.assertEqual(self.failures(seen=[*self.SEEN, "a"]), ["no request reached it twice"])

    def test_other_status_is_found(self):
        log = [*self.LOG, line("f", 500)]
        self.assertEqual(self.failures(log=log, counted=6), ["no other status"])


class Limit(unittest.TestCase):
    def test_bound_is_three_bursts_and_one_for_each_loss_of_data(self):
        # 50 * 3 + 20 * 10 = 350
        for allowed, losses, holds in [(350, 0, True), (351, 0, False), (400, 1, True), (401, 1, False)]:
            found = judge.limit(allowed, burst=50, per_second=20, seconds=10, losses=losses)
            self.assertEqual(found.holds, holds, (allowed, losses))

    def test_client_that_is_refused_more_than_the_limit_asks_for_is_found(self):
        # 50 + 20 * 10 / 4 = 100
        for allowed, holds in [(0, False), (99, False), (100, True)]:
            found = judge.limit(allowed, burst=50, per_second=20, seconds=10, losses=0)
            self.assertEqual(found.holds, holds, allowed)


if __name__ == "__main__":
    unittest.main()
