"""One gateway under one load, beside bare Pingora under the same."""

import time
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from . import load
from .gateways import OPEN, Gateway, Quota, Site, Store
from .gateways.pingora import BARE
from .jobs import Job
from .load import Load, Outcome
from .processes import Program, cores, free_port
from .servers import Redis, Upstream


@dataclass(frozen=True)
class Figures:
    """What a load cost. All but the first and the last are per request."""

    requests_per_second: float
    cpu_us: float
    redis_cpu_us: float
    redis_calls: float
    p50_ms: float
    p99_ms: float
    memory_mb: float

    @property
    def both_cpu_us(self) -> float:
        return self.cpu_us + self.redis_cpu_us


@dataclass(frozen=True)
class Pair:
    """A gateway, and bare Pingora in the same moment."""

    own: Figures
    bare: Figures


class Bench:
    """The two cores, the servers behind the gateways, and bare Pingora, which stays up."""

    def __init__(self, folder: Path, seconds: float):
        self.folder = folder
        self.seconds = seconds
        self.load_core, self.proxy_core = cores()
        with ExitStack() as started:
            self.upstream = Upstream(folder, self.load_core)
            started.enter_context(self.upstream.program)
            self.redis = Redis(folder)
            started.enter_context(self.redis.program)
            self.bare, self.bare_port = self.start(BARE, OPEN)
            started.enter_context(self.bare)
            self.stop = started.pop_all().close

    def start(self, gateway: Gateway, quota: Quota) -> tuple[Program, int]:
        self.redis.forget()
        port = free_port()
        site = Site(self.folder, port, self.upstream.port, self.redis, quota)
        program = Program(gateway.command(site), self.folder / f"{port}.log", self.proxy_core)
        program.wait_until_serving(port)
        return program, port

    @contextmanager
    def running(self, gateway: Gateway, quota: Quota):
        """The gateway alone on its core but for bare Pingora, which sleeps meanwhile."""
        program, port = self.start(gateway, quota)
        with program:
            yield program, port

    def send(self, what: Load, port: int, seconds: float) -> Outcome:
        return load.run(what, port, seconds, self.load_core)

    def pair(self, job: Job, gateway: Gateway, bare_first: bool) -> Pair:
        """Both in turn; who is first changes, so that neither has the better moments."""
        with self.running(gateway, job.quota) as (program, port):
            self.send(job.load, port, 1)
            if bare_first:
                bare = self.measure_bare(job)
            own = self.figures(program, port, job.load, gateway.store)
            self.check(job, gateway, *own, program)
            if not bare_first:
                bare = self.measure_bare(job)
        return Pair(own[0], bare)

    def measure_bare(self, job: Job) -> Figures:
        return self.figures(self.bare, self.bare_port, job.load, BARE.store)[0]

    def figures(
        self, program: Program, port: int, what: Load, store: Store
    ) -> tuple[Figures, Outcome]:
        def spent() -> tuple[float, float, int]:
            # Redis works a little even where nobody asks it.
            redis = (self.redis.cpu_us(), self.redis.calls()) if store is Store.REDIS else (0, 0)
            return (program.cpu_us(), *redis)

        before = spent()
        outcome = self.send(what, port, self.seconds)
        after = spent()
        costs = [(new - old) / outcome.requests for old, new in zip(before, after, strict=True)]
        rate = outcome.requests / outcome.seconds
        memory = program.memory_mb()
        return Figures(rate, *costs, outcome.p50_ms, outcome.p99_ms, memory), outcome

    def check(self, job: Job, gateway: Gateway, own: Figures, outcome: Outcome, program: Program):
        """Stops where a gateway did not do the job: then its figures mean nothing."""
        wrong = outcome.passed if job.is_refused else outcome.refused
        # One request may pass even of those that are refused: buckets fill, if slowly.
        if wrong > (1 if job.is_refused else 0):
            what = "let pass" if job.is_refused else "refused"
            program.fail(f"{what} {wrong} of {outcome.requests} requests in “{job.title}”")
        asks_redis = gateway.store is Store.REDIS and not job.is_refused
        if asks_redis and own.redis_calls == 0:
            program.fail("did not ask Redis")
        # tollgate then decides by itself, which costs less.
        if "breaker open" in program.log.read_text(errors="replace"):
            program.fail("gave Redis up, which answered too late")

    def half_load(self, job: Job) -> Job:
        """The job with pauses by which all connections together ask half of what bare answers."""
        most = self.measure_bare(job).requests_per_second
        pause = job.load.connections * 1000 / (most / 2)
        return replace(job, load=replace(job.load, pause_ms=round(pause, 3)))


def wait_until_settled() -> None:
    """Gives a gateway time to connect to what it needs."""
    time.sleep(1)
