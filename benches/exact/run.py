"""Runs a case with one gateway, and judges it."""

import asyncio
import tempfile
import time
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from .cases import Case, Scene
from .clock import WallClock
from .fleet import Fleet
from .gateways import Contender
from .judge import Judgement, Request, judge
from .traffic import Client, Sent
from .upstream import Upstream

# Latency counts as that of a disturbance until so many seconds after it.
AFTERMATH = 1.0


@dataclass(frozen=True)
class Found:
    """What a case found of one gateway."""

    judgement: Judgement
    # Of the requests of the picture that passed: seconds since the start, tokens.
    shown: list[tuple[float, float]]
    span: tuple[float, float] | None
    # 99th percentile of the time until the answer, in milliseconds: before the disturbance, and from its begin to its end.
    p99_before_ms: float
    p99_during_ms: float | None


def run(case: Case, contender: Contender) -> Found:
    with tempfile.TemporaryDirectory(prefix="tollgate-exact-") as name, ExitStack() as started:
        folder = Path(name)
        folder.chmod(0o755)
        upstream = Upstream()
        started.callback(upstream.stop)
        clocks = WallClock(folder, "gateways"), WallClock(folder, "redis")
        store = case.store(folder, clocks[1])
        started.callback(store.stop)
        fleet = Fleet(folder, contender, case.gateways, case.limits, upstream.port, store, clocks[0])
        started.callback(fleet.stop)
        # Gateways connect to Redis and to each other, and count each other.
        time.sleep(2.5)
        return asyncio.run(play(case, Scene(fleet, store, *clocks, start=time.monotonic() + 0.1), upstream))


async def play(case: Case, scene: Scene, upstream: Upstream) -> Found:
    if case.starts_on_first:
        scene.fleet.in_service[:] = scene.fleet.in_service[:1]
    client = Client(scene.fleet.in_service)
    planned = case.traffic(case.seconds)
    sent, _ = await asyncio.gather(client.send_all(planned, scene.start), case.disturb(scene))
    requests = [request(case, one, upstream.arrived) for one in sent]
    judgement = judge(requests, case.limits.buckets(planned))
    shown = [
        (at - scene.start, case.limits.cost(one.planned))
        for one in sent
        if case.shown(one.planned) and (at := upstream.arrived.get(one.number)) is not None
    ]
    during = in_span(sent, scene)
    before = [one for one in sent if scene.span is None or one.sent < scene.start + scene.span[0]]
    return Found(judgement, sorted(shown), scene.span, p99_ms(before), p99_ms(during) if during else None)


def request(case: Case, sent: Sent, arrived: dict[int, float]) -> Request:
    charges = case.limits.charges(sent.planned)
    return Request(sent.sent, sent.answered, arrived.get(sent.number), sent.status, charges)


def in_span(sent: list[Sent], scene: Scene) -> list[Sent]:
    if scene.span is None:
        return []
    begin, end = (scene.start + at for at in scene.span)
    return [one for one in sent if begin <= one.sent <= end + AFTERMATH]


def p99_ms(sent: list[Sent]) -> float:
    times = sorted(one.answered - one.sent for one in sent)
    return times[len(times) * 99 // 100] * 1000
