"""Tests of verdicts and of what spoils a measurement: `PYTHONPATH=benches python3 -m unittest peers.test_goals`."""

import unittest

from .gateways.tollgate import local_decisions
from .goals import at_least, at_most
from .results import Results
from .spread import Spread, Verdict


class Verdicts(unittest.TestCase):
    def test_bound_outside_the_spread_decides(self) -> None:
        spread = Spread(1.0, 0.9, 1.1)
        for bound, most, least in [(1.2, Verdict.HOLDS, Verdict.FAILS), (0.8, Verdict.FAILS, Verdict.HOLDS)]:
            self.assertEqual(spread.verdict(bound, is_most=True), most, bound)
            self.assertEqual(spread.verdict(bound, is_most=False), least, bound)

    def test_bound_between_least_and_most_is_within_the_noise(self) -> None:
        for bound in (0.91, 1.0, 1.09):
            for is_most in (True, False):
                self.assertEqual(Spread(1.0, 0.9, 1.1).verdict(bound, is_most), Verdict.NOISE, bound)

    def test_extreme_that_equals_the_bound_is_within_it(self) -> None:
        spread = Spread(1.0, 0.9, 1.1)
        self.assertEqual(spread.verdict(1.1, is_most=True), Verdict.HOLDS)
        self.assertEqual(spread.verdict(0.9, is_most=False), Verdict.HOLDS)
        self.assertEqual(spread.verdict(0.9, is_most=True), Verdict.NOISE)
        self.assertEqual(spread.verdict(1.1, is_most=False), Verdict.NOISE)

    def test_single_value_is_never_within_the_noise(self) -> None:
        self.assertEqual(Spread.of([77.0]).verdict(77.0, is_most=True), Verdict.HOLDS)
        self.assertEqual(Spread.of([78.0]).verdict(77.0, is_most=True), Verdict.FAILS)

    def test_ratio_has_the_extremes_of_both(self) -> None:
        self.assertEqual(Spread(2.0, 1.0, 3.0) / Spread(1.0, 0.5, 2.0), Spread(2.0, 0.5, 6.0))

    def test_line_has_the_median_and_the_verdict(self) -> None:
        spread = Spread(1.06, 0.97, 1.31)
        most = at_most("CPU", 1.1, lambda _: spread).line(Results())
        least = at_least("rate", 0.9, lambda _: spread, 1).line(Results())
        self.assertEqual(most, "| CPU | at most 1.1 | 1.06 (0.97 to 1.31) | within the noise |")
        self.assertEqual(least, "| rate | at least 0.9 | 1.1 (1.0 to 1.3) | holds |")

    def test_goal_that_was_not_measured_has_no_line(self) -> None:
        self.assertIsNone(at_most("CPU", 1.1, lambda results: results.rows["no such job"]).line(Results()))


class LocalDecisions(unittest.TestCase):
    def test_only_decisions_without_redis_are_counted(self) -> None:
        metrics = (
            "# TYPE tollgate_decisions_total counter\n"
            'tollgate_decisions_total{decision="allow",plan="free",rule="key",source="local"} 3\n'
            'tollgate_decisions_total{decision="deny",plan="free",rule="key",source="local"} 2\n'
            'tollgate_decisions_total{decision="allow",plan="free",rule="key",source="redis"} 1000\n'
            'tollgate_decisions_total{decision="deny",plan="free",rule="key",source="cache"} 50\n'
        )
        self.assertEqual(local_decisions(metrics), 5)
        self.assertEqual(local_decisions("tollgate_gateways 1\n"), 0)


if __name__ == "__main__":
    unittest.main()
