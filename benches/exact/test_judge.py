"""Tests of the judge: `PYTHONPATH=benches python3 -m unittest exact.test_judge`."""

import unittest

from .judge import Bucket, Judgement, Request, Take, excess, granted, judge, least, wrong_refusals

BUCKET = Bucket(rate=10, burst=5)


def allowed(at: float, took: float = 0.0, tokens: float = 1, bucket: str = "key") -> Request:
    return Request(at, at + took, at + took, 200, {bucket: tokens})


def refused(at: float, took: float = 0.0, tokens: float = 1, bucket: str = "key") -> Request:
    return Request(at, at + took, None, 429, {bucket: tokens})


def failed(at: float) -> Request:
    return Request(at, at, None, 500, {"key": 1})


def exact_gateway(planned: list[tuple[float, float]]) -> list[Request]:
    """What a token bucket with a clock of milliseconds makes of requests of these times and tokens."""
    level, filled_at, requests = BUCKET.burst, 0.0, []
    for at, tokens in planned:
        # It decides two milliseconds after a request was sent.
        now = int((at + 0.002) * 1000) / 1000
        level, filled_at = min(BUCKET.burst, level + BUCKET.rate * (now - filled_at)), now
        passes = level >= tokens
        level -= tokens if passes else 0
        requests.append((allowed if passes else refused)(at, 0.004, tokens))
    return requests


class Excess(unittest.TestCase):
    def test_burst_and_refill_are_no_excess(self) -> None:
        takes = [Take(0, 0, 1)] * 5 + [Take(second / 10, second / 10, 1) for second in range(1, 20)]
        self.assertAlmostEqual(excess(takes, BUCKET), 0)

    def test_each_token_beyond_is_counted(self) -> None:
        self.assertAlmostEqual(excess([Take(1, 1, 1)] * 8, BUCKET), 3)

    def test_largest_span_counts_however_long_the_rest_is(self) -> None:
        takes = [Take(0, 0, 1), *[Take(50, 50, 1)] * 9, *[Take(100, 100, 1)] * 7]
        self.assertAlmostEqual(excess(takes, BUCKET), 4)

    def test_second_burst_after_too_short_a_time_is_counted(self) -> None:
        takes = [*[Take(0, 0, 1)] * 5, *[Take(0.2, 0.2, 1)] * 5]
        self.assertAlmostEqual(excess(takes, BUCKET), 3)

    def test_delay_between_sending_and_arrival_is_in_favour(self) -> None:
        # Sent at once, but they may have been decided on over 0.3 s.
        self.assertAlmostEqual(excess([Take(0, 0.3, 1)] * 8, BUCKET), 0)
        # All arrive together, but were sent over a long time.
        takes = [Take(second, 9, 1) for second in range(9)]
        self.assertLess(excess(takes, BUCKET), 0)

    def test_costs_are_added(self) -> None:
        self.assertAlmostEqual(excess([Take(0, 0, 2.5), Take(0, 0, 5)], BUCKET), 2.5)

    def test_nothing_granted_is_no_excess(self) -> None:
        self.assertLess(excess([], BUCKET), 0)


class Least(unittest.TestCase):
    def test_unused_bucket_is_full(self) -> None:
        self.assertEqual(least([], BUCKET, 3, 3), 5)

    def test_refills_no_further_than_full(self) -> None:
        takes = [Take(0, 0, 5)]
        self.assertAlmostEqual(least(takes, BUCKET, 0.2, 0.2), 2)
        self.assertAlmostEqual(least(takes, BUCKET, 9, 9), 5)

    def test_take_of_unknown_moment_counts_as_late(self) -> None:
        # Taken at 0.4 at the latest: it may not have been refilled yet.
        self.assertAlmostEqual(least([Take(0, 0.4, 5)], BUCKET, 0.4, 0.4), 0)

    def test_take_before_the_answer_counts(self) -> None:
        # The refusal was decided between 1.0 and 1.5, perhaps after the take.
        self.assertAlmostEqual(least([Take(1.2, 1.3, 4)], BUCKET, 1.0, 1.5), 1)
        self.assertAlmostEqual(least([Take(1.6, 1.7, 4)], BUCKET, 1.0, 1.5), 5)


class Refusals(unittest.TestCase):
    def wrong(self, *requests: Request) -> int:
        return len(wrong_refusals(list(requests), {"key": BUCKET, "route": Bucket(1, 1)}))

    def test_refusal_by_an_empty_bucket_is_right(self) -> None:
        self.assertEqual(self.wrong(*[allowed(0)] * 5, refused(0), refused(0.05)), 0)

    def test_refusal_by_a_full_bucket_is_wrong(self) -> None:
        self.assertEqual(self.wrong(refused(0)), 1)

    def test_missing_token_is_one_wrong_refusal_however_often_it_is_asked_for(self) -> None:
        # Five tokens, of which the gateway grants four.
        requests = [*[allowed(0)] * 4, *[refused(at / 1000) for at in range(30)]]
        self.assertEqual(self.wrong(*requests), 1)

    def test_refusal_just_before_the_token_is_there_is_right(self) -> None:
        self.assertEqual(self.wrong(*[allowed(0)] * 5, refused(0.11)), 0)
        self.assertEqual(self.wrong(*[allowed(0)] * 5, refused(0.13)), 1)

    def test_one_empty_bucket_is_enough(self) -> None:
        both = {"key": 1.0, "route": 1.0}
        first = Request(0, 0, 0, 200, both)
        self.assertEqual(self.wrong(first, Request(0.1, 0.1, None, 429, both)), 0)
        self.assertEqual(self.wrong(first, refused(0.1)), 1)

    def test_tokens_of_a_refused_request_must_not_be_gone(self) -> None:
        both = {"key": 1.0, "route": 1.0}
        refusals = [Request(0.1, 0.1, None, 429, both)] * 10
        self.assertEqual(self.wrong(Request(0, 0, 0, 200, both), *refusals, refused(0.2)), 1)

    def test_failed_request_may_have_taken_its_tokens(self) -> None:
        self.assertEqual(self.wrong(*[failed(0)] * 5, refused(0)), 0)

    def test_costly_request_needs_all_its_tokens(self) -> None:
        self.assertEqual(self.wrong(allowed(0), refused(0, tokens=5)), 0)
        self.assertEqual(self.wrong(allowed(0), refused(0, tokens=3)), 1)

    def test_gateway_that_refuses_every_request_of_the_whole_burst_is_wrong(self) -> None:
        # The bucket is full again after half a second.
        requests = [refused(second, tokens=BUCKET.burst) for second in range(4)]
        self.assertEqual(self.wrong(*requests), 4)
        self.assertEqual(self.wrong(refused(0, tokens=BUCKET.burst + 0.1)), 0)

    def test_refusal_of_the_whole_burst_is_right_until_the_bucket_is_full(self) -> None:
        first = allowed(0, tokens=1)
        self.assertEqual(self.wrong(first, refused(0.05, tokens=BUCKET.burst)), 0)
        # Within the tolerance: the bucket is full after 0.1 s.
        self.assertEqual(self.wrong(first, refused(0.11, tokens=BUCKET.burst)), 0)
        self.assertEqual(self.wrong(first, refused(0.13, tokens=BUCKET.burst)), 1)

    def test_take_within_the_tolerance_is_not_added_twice(self) -> None:
        self.assertEqual(self.wrong(*[allowed(0)] * 4, refused(0.01)), 1)
        self.assertEqual(self.wrong(*[allowed(0)] * 5, refused(0.01)), 0)

    def test_exact_bucket_has_no_wrong_refusals(self) -> None:
        for tokens in (1, 2, 4.5, BUCKET.burst):
            requests = exact_gateway([(number * 0.037, tokens if number % 3 else 1) for number in range(400)])
            self.assertEqual(self.wrong(*requests), 0, tokens)
            self.assertTrue(any(one.is_refused for one in requests), tokens)
            self.assertLess(excess(granted(requests, "key"), BUCKET), 1e-6, tokens)


class Outcomes(unittest.TestCase):
    def test_answer_without_the_upstream_is_an_error(self) -> None:
        self.assertTrue(Request(0, 1, None, 200, {}).is_error)
        self.assertFalse(Request(0, 1, 0.5, 200, {}).is_error)

    def test_refusal_is_no_error_unless_the_request_passed(self) -> None:
        self.assertFalse(Request(0, 1, None, 429, {}).is_error)
        self.assertTrue(Request(0, 1, 0.5, 429, {}).is_error)
        self.assertFalse(Request(0, 1, 0.5, 429, {}).is_refused)

    def test_other_statuses_and_no_answer_are_errors(self) -> None:
        for status in (0, 404, 500):
            self.assertTrue(Request(0, 1, None, status, {}).is_error)
            self.assertTrue(Request(0, 1, 0.5, status, {}).is_error)


class Judgements(unittest.TestCase):
    def test_gateway_that_answers_everything_itself_has_only_errors(self) -> None:
        requests = [Request(second, second, None, 200, {"key": 1}) for second in range(3)]
        self.assertEqual(judge(requests, {"key": BUCKET}), Judgement(0.0, 0, 3, 0))

    def test_all_figures(self) -> None:
        lost = Request(0, 5, 0.0, 0, {"key": 1})
        requests = [*[allowed(0)] * 6, refused(0), refused(9), failed(20), lost]
        self.assertEqual(judge(requests, {"key": BUCKET}), Judgement(2.0, 1, 2, 7))

    def test_bucket_that_is_exceeded_most_counts(self) -> None:
        requests = [*[allowed(0)] * 7, *[allowed(0, bucket="route")] * 5]
        found = judge(requests, {"key": BUCKET, "route": Bucket(1, 1)})
        self.assertEqual(found.over_grant, 4)


if __name__ == "__main__":
    unittest.main()
