"""Judges a gateway by what reached its upstream, and when: pure functions over the requests of a run.

When a gateway decided on a request is not known, only that it was after the request was sent, and before it reached the
upstream or was answered. Every count here is what holds for all moments in between: no delay makes a gateway look worse.
"""

from dataclasses import dataclass

# Seconds. A refusal is wrong only if the bucket had its tokens this long before, too: gateways read clocks of a few
# milliseconds.
TOLERANCE = 0.02
ANSWERED, REFUSED = 200, 429


@dataclass(frozen=True)
class Bucket:
    """A token bucket: tokens a second, and tokens of a full one. It begins full."""

    rate: float
    burst: float


@dataclass(frozen=True)
class Request:
    """A request. Times are in seconds of one clock."""

    sent: float
    answered: float
    # None if it did not reach the upstream.
    arrived: float | None
    # 0 if the connection ended, or if there was no answer in time.
    status: int
    # Names of the buckets that count it, and the tokens that it takes from each.
    charges: dict[str, float]

    @property
    def is_refused(self) -> bool:
        return self.status == REFUSED and self.arrived is None

    @property
    def is_error(self) -> bool:
        """Neither refused nor answered by the upstream, also a 200 to a request that did not reach the upstream."""
        return not self.is_refused and (self.status != ANSWERED or self.arrived is None)


@dataclass(frozen=True)
class Judgement:
    """What a gateway did to its limits."""

    # Tokens beyond the limit, in the span and the bucket in which they were the most; 0 if it held everywhere.
    over_grant: float
    # Refusals of requests that an exact gateway would have allowed. Each is counted as allowed from then on, so that one
    # token that is missing for a long time is one wrong refusal.
    wrongly_refused: int
    # Answers that are neither the upstream's nor a refusal, and requests without an answer.
    errors: int
    # Requests that reached the upstream, whatever was answered then.
    allowed: int


def judge(requests: list[Request], buckets: dict[str, Bucket]) -> Judgement:
    return Judgement(
        max(0.0, *(excess(granted(requests, name), bucket) for name, bucket in buckets.items())),
        len(wrong_refusals(requests, buckets)),
        sum(one.is_error for one in requests),
        sum(one.arrived is not None for one in requests),
    )


@dataclass(frozen=True)
class Take:
    """Tokens that were taken from a bucket at some moment between `begin` and `end`."""

    begin: float
    end: float
    tokens: float


def granted(requests: list[Request], bucket: str) -> list[Take]:
    """What reached the upstream, whatever was answered then."""
    return [
        Take(one.sent, one.arrived, one.charges[bucket])
        for one in requests
        if one.arrived is not None and bucket in one.charges
    ]


def excess(takes: list[Take], bucket: Bucket) -> float:
    """The most tokens beyond burst + rate × time, over all spans from the beginning of a take to the end of another."""
    takes = sorted(takes, key=lambda take: take.end)
    most = -bucket.burst
    for begin in {take.begin for take in takes}:
        tokens = 0.0
        for take in takes:
            if take.begin >= begin:
                tokens += take.tokens
                most = max(most, tokens - bucket.burst - bucket.rate * (take.end - begin))
    return most


def wrong_refusals(requests: list[Request], buckets: dict[str, Bucket]) -> list[Request]:
    """The refusals of requests for which each bucket certainly had the tokens, in the order of their answers."""
    takes = {name: possibly_taken(requests, name) for name in buckets}
    wrong = []
    refused = [one for one in requests if one.is_refused]
    for one in sorted(refused, key=lambda one: one.answered):
        lacks = [
            least(takes[name], buckets[name], one.sent - TOLERANCE, one.answered) < tokens
            for name, tokens in one.charges.items()
        ]
        if not any(lacks):
            wrong.append(one)
            for name, tokens in one.charges.items():
                takes[name].append(Take(one.sent, one.answered, tokens))
    return wrong


def possibly_taken(requests: list[Request], bucket: str) -> list[Take]:
    """What was granted, and what requests may have taken that failed before they reached the upstream."""
    return [
        Take(one.sent, one.answered if one.arrived is None else one.arrived, one.charges[bucket])
        for one in requests
        if bucket in one.charges and not one.is_refused
    ]


def least(takes: list[Take], bucket: Bucket, begin: float, end: float) -> float:
    """The fewest tokens that the bucket can have had at a moment between `begin` and `end`."""
    lowest = bucket.burst
    tokens = 0.0
    for take in sorted(takes, key=lambda take: -take.end):
        if take.begin <= end:
            tokens += take.tokens
            # The bucket may have been full just before the take, which may have been at its end.
            refilled = bucket.rate * max(0.0, begin - take.end)
            lowest = min(lowest, bucket.burst + refilled - tokens)
    return lowest
