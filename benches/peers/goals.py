"""The goals, and whether they are met. A value is the median over rounds, with the least and the most."""

from collections.abc import Callable
from dataclasses import dataclass

from .gateways import Gateway, envoy, nginx, pingap, traefik
from .jobs import (
    FOUR_IN_MEMORY,
    FOUR_IN_MEMORY_PGO,
    FOUR_IN_REDIS,
    FOUR_IN_REDIS_PGO,
    FOUR_LOGGED,
    H2_TLS,
    HANDSHAKES,
    KEPT_TLS,
    ONE_IN_REDIS,
    ONE_IN_REDIS_PGO,
    OVER_TLS,
    OVER_TLS_PGO,
)
from .results import Results, Row
from .spread import Spread, Verdict

PROXY, MEMORY, REDIS = "Proxy only", "One limit in memory", "One limit in Redis"
FOUR, REFUSED = "Four limits: address, key, route, all", "Everything refused"
MANY = "One limit, 100,000 clients, all as busy"
HALF = "Latency at half the load that bare Pingora carries"


@dataclass(frozen=True)
class Goal:
    """A measured value and its bound."""

    text: str
    bound: float
    is_most: bool
    digits: int
    of: Callable[[Results], Spread]

    def verdict(self, results: Results) -> Verdict | None:
        value = self.value(results)
        return value and value.verdict(self.bound, self.is_most)

    def value(self, results: Results) -> Spread | None:
        """None if the run has not measured it."""
        try:
            return self.of(results)
        except KeyError:
            return None

    def line(self, results: Results) -> str | None:
        """A line of the table; none if the run has not measured the value."""
        value = self.value(results)
        if value is None:
            return None
        verdict = value.verdict(self.bound, self.is_most).value
        wanted = f"at {'most' if self.is_most else 'least'} {self.bound:,.10g}"
        median, low, high = (f"{one:,.{self.digits}f}" for one in (value.median, value.low, value.high))
        measured = median if low == high else f"{median} ({low} to {high})"
        return f"| {self.text} | {wanted} | {measured} | {verdict} |"


def row(results: Results, job: str, gateway: Gateway) -> Row:
    return results.rows[job][gateway.name]


def at_most(text: str, bound: float, of, digits: int = 2) -> Goal:
    return Goal(text, bound, True, digits, of)


def at_least(text: str, bound: float, of, digits: int = 2) -> Goal:
    return Goal(text, bound, False, digits, of)


def figure(job: str, gateway: Gateway, column: str):
    return lambda results: row(results, job, gateway).spreads[column]


def ratio(job: str, gateway: Gateway, column: str):
    """The ratio to the baseline of the job."""
    return lambda results: row(results, job, gateway).ratios[column]


def ours_to(ours: Gateway, job: str, theirs: Gateway, column: str):
    """Ratio of tollgate with four limits to a peer with one. Both are ratios to bare Pingora,
    measured at the same time, so that delays of the machine cancel out."""
    mine, other = ratio(FOUR, ours, column), ratio(job, theirs, column)
    return lambda results: mine(results) / other(results)


def crowd(results: Results) -> Spread:
    if results.crowd_mb is None:
        raise KeyError
    return Spread.of([results.crowd_mb])


CPU, BOTH, RATE = "cpu_us", "both_cpu_us", "requests_per_second"
LUA, ENVOY = nginx.EVALSHA, envoy.LOCAL_RATELIMIT


def of_four_in_redis(build: str, ours: Gateway) -> list[Goal]:
    return [
        at_most(f"four limits in Redis{build}: CPU to bare Pingora", 1.10, ratio(FOUR, ours, CPU)),
        at_most(
            f"the same{build} with Redis' CPU, to nginx with Lua and one limit",
            0.65,
            ours_to(ours, REDIS, LUA, BOTH),
        ),
        at_most(
            f"the same{build} with Redis' CPU, to Traefik and one limit in Redis",
            0.27,
            ours_to(ours, REDIS, traefik.REDIS, BOTH),
        ),
        at_least(
            f"the same{build}, requests/s to nginx with Lua and one limit",
            1.35,
            ours_to(ours, REDIS, LUA, RATE),
        ),
        at_least(
            f"the same{build}, requests/s to Traefik and one limit in Redis",
            3.4,
            ours_to(ours, REDIS, traefik.REDIS, RATE),
        ),
    ]


def of_four_in_memory(build: str, ours: Gateway) -> list[Goal]:
    return [
        at_most(f"four limits in memory{build}: CPU to bare Pingora", 1.06, ratio(FOUR, ours, CPU)),
        at_least(
            f"the same{build}, requests/s to Envoy's `local_ratelimit`",
            1.9,
            ours_to(ours, MEMORY, ENVOY, RATE),
        ),
        at_least(
            f"the same{build}, requests/s to Traefik and one limit in memory",
            2.4,
            ours_to(ours, MEMORY, traefik.MEMORY, RATE),
        ),
        at_least(
            f"the same{build}, requests/s to Pingap and one limit in memory",
            1,
            ours_to(ours, MEMORY, pingap.LIMIT, RATE),
        ),
        at_least(
            f"answers of 64 KB, four limits{build}: requests/s to bare Pingora",
            0.97,
            ratio("Answers of 64 KB", ours, RATE),
        ),
    ]


def added_p99(build: str, ours: Gateway) -> Goal:
    return at_most(
        f"four limits in Redis{build} at half load: p99 beyond bare Pingora's, ms",
        0.3,
        lambda results: row(results, HALF, ours).added_p99_ms,
    )


def refused(build: str, ours: Gateway) -> Goal:
    return at_most(f"refused, in Redis{build}: CPU, µs", 12, figure(REFUSED, ours, CPU), 1)


def over_tls(build: str, ours: Gateway) -> list[Goal]:
    def to_envoy(job: str):
        mine, other = ratio(job, ours, RATE), ratio(job, envoy.TLS, RATE)
        return lambda results: mine(results) / other(results)

    return [
        at_least(f"kept TLS{build}: requests/s to Envoy", 1.5, to_envoy(KEPT_TLS)),
        at_least(f"HTTP/2 over TLS{build}: requests/s to Envoy", 1.5, to_envoy(H2_TLS)),
        at_least(f"full handshakes{build}: requests/s to nginx", 1, ratio(HANDSHAKES, ours, RATE)),
    ]


PGO = " (PGO)"

GOALS = [
    *of_four_in_redis("", FOUR_IN_REDIS),
    *of_four_in_redis(PGO, FOUR_IN_REDIS_PGO),
    *of_four_in_memory("", FOUR_IN_MEMORY),
    *of_four_in_memory(PGO, FOUR_IN_MEMORY_PGO),
    at_most(
        "four limits in memory: CPU with an access log to that without",
        1.05,
        lambda results: ratio(FOUR, FOUR_LOGGED, CPU)(results)
        / ratio(FOUR, FOUR_IN_MEMORY, CPU)(results),
    ),
    refused("", ONE_IN_REDIS),
    refused(PGO, ONE_IN_REDIS_PGO),
    at_most(
        "refused, in Redis: calls a request", 0.001, figure(REFUSED, ONE_IN_REDIS, "redis_calls"), 5
    ),
    at_most(
        "allowed, one client, 64 connections: Redis calls a request",
        0.05,
        figure(REDIS, ONE_IN_REDIS, "redis_calls"),
        3,
    ),
    at_most(
        "allowed, 100,000 clients, 64 connections: Redis calls a request",
        0.10,
        figure(MANY, ONE_IN_REDIS, "redis_calls"),
        3,
    ),
    at_most(
        "allowed, one client, 256 connections: Redis calls a request",
        0.02,
        figure(f"{REDIS}, 256 connections", ONE_IN_REDIS, "redis_calls"),
        3,
    ),
    added_p99("", FOUR_IN_REDIS),
    added_p99(PGO, FOUR_IN_REDIS_PGO),
    at_most("a million clients in memory: MB", 120, crowd, 0),
    *over_tls("", OVER_TLS),
    *over_tls(PGO, OVER_TLS_PGO),
]
