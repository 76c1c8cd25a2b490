"""Exactness (requests allowed, and maximum allowed), and memory of a million clients."""

from dataclasses import dataclass

from .gateways import EXACT, Quota, Store, envoy, haproxy, nginx, pingap, traefik
from .gateways.tollgate import tollgate
from .load import Load
from .measure import Bench, wait_until_settled

SECONDS = 3
GATEWAYS = [
    tollgate(1, Store.MEMORY),
    tollgate(1, Store.REDIS),
    nginx.LIMIT_REQ,
    nginx.EVALSHA,
    haproxy.STICK_TABLE,
    envoy.LOCAL_RATELIMIT,
    traefik.MEMORY,
    traefik.REDIS,
    *pingap.where_built(pingap.LIMIT),
]

CLIENTS = 1_000_000
# Refills so slowly that no bucket can be dropped.
CROWD = Quota(1, 3600, 1_000_000)


@dataclass(frozen=True)
class Exactness:
    """One gateway: allowed and maximum number of requests of each round, as text."""

    gateway: str
    passed: list[str]


def exactness(bench: Bench, rounds: int, say) -> list[Exactness]:
    """64 connections, one client, burst 10 and 10/s, for 3 s."""
    found = []
    for gateway in GATEWAYS:
        passed = []
        for _ in range(rounds):
            with bench.running(gateway, EXACT) as (_, port):
                wait_until_settled()
                outcome = bench.send(Load(), port, SECONDS)
            # On a busy machine, the load ends late.
            may = EXACT.burst + int(EXACT.tokens * outcome.seconds)
            passed.append(f"{outcome.passed} of {may}")
        say(f"{gateway.name}: {', '.join(passed)}")
        found.append(Exactness(gateway.name, passed))
    return found


def crowd_mb(bench: Bench, say) -> float:
    """Resident memory of tollgate after one request of each of a million clients."""
    with bench.running(tollgate(1, Store.MEMORY), CROWD) as (program, port):
        sent = 0
        while sent < CLIENTS:
            outcome = bench.send(Load(keys=f"new:{sent}"), port, 5)
            # At the end, some requests were sent but not answered.
            sent += outcome.passed
            say(f"{sent} clients: {program.memory_mb():.0f} MB")
        return program.memory_mb()
