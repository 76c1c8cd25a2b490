"""Measures a gateway and a baseline under the same load."""

import time
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from . import load
from .gateways import OPEN, Gateway, Quota, Site, Store
from .jobs import Job
from .load import Load, Outcome
from .processes import Program, cores, free_port
from .servers import Certificate, Redis, Upstream


@dataclass(frozen=True)
class Figures:
    """The cost of a load. All values but the first and the last are per request."""

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
    """A gateway, and the baseline at the same time."""

    own: Figures
    baseline: Figures


class Bench:
    """The two cores, the upstream, Redis, and the baselines, which keep running."""

    def __init__(self, folder: Path, seconds: float):
        self.folder = folder
        self.seconds = seconds
        self.load_core, self.proxy_core = cores()
        self.certificate = Certificate.make(folder)
        self.baselines: dict[str, tuple[Program, int]] = {}
        with ExitStack() as started:
            self.upstream = Upstream(folder, self.load_core)
            started.enter_context(self.upstream.program)
            self.redis = Redis(folder)
            started.enter_context(self.redis.program)
            self.started = started.pop_all()

    def stop(self) -> None:
        self.started.close()

    def site(self, port: int, quota: Quota) -> Site:
        return Site(self.folder, port, self.upstream.port, self.redis, quota, self.certificate)

    def start(self, gateway: Gateway, quota: Quota) -> tuple[Program, int]:
        self.redis.forget()
        port = free_port()
        site = self.site(port, quota)
        program = Program(gateway.command(site), self.folder / f"{port}.log", self.proxy_core)
        program.wait_until_serving(port, gateway.has_tls)
        return program, port

    @contextmanager
    def running(self, gateway: Gateway, quota: Quota):
        """Runs the gateway on its core, where only baselines also run, which are idle."""
        program, port = self.start(gateway, quota)
        with program:
            yield program, port

    def send(self, what: Load, port: int, seconds: float) -> Outcome:
        return load.run(what, port, seconds, self.load_core)

    def pair(self, job: Job, gateway: Gateway, baseline_first: bool) -> Pair:
        """Measures both in turn, in alternating order."""
        with self.running(gateway, job.quota) as (program, port):
            self.send(job.load, port, 1)
            if baseline_first:
                baseline = self.measure_baseline(job)
            site = self.site(port, job.quota)
            # At its start, before it has a connection to Redis, it may have decided without.
            local = self.decided_locally(gateway, site)
            own = self.figures(program, port, job.load, gateway.store)
            self.check(job, gateway, *own, program)
            # That costs less: a check timed out, or the breaker was open.
            if (local := self.decided_locally(gateway, site) - local) > 0:
                program.fail(f"decided {local} times without Redis, which answered too late")
            if not baseline_first:
                baseline = self.measure_baseline(job)
        return Pair(own[0], baseline)

    def measure_baseline(self, job: Job) -> Figures:
        name = job.baseline.name
        if name not in self.baselines:
            self.baselines[name] = self.start(job.baseline, OPEN)
            self.started.enter_context(self.baselines[name][0])
        return self.figures(*self.baselines[name], job.load, job.baseline.store)[0]

    def figures(
        self, program: Program, port: int, what: Load, store: Store
    ) -> tuple[Figures, Outcome]:
        def spent() -> tuple[float, float, int]:
            # Redis uses some CPU even when idle.
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
        """Fails if a gateway did not do the job, because its figures would be meaningless."""
        wrong = outcome.passed if job.is_refused else outcome.refused
        # One request may be allowed even if all should be refused: buckets refill slowly.
        if wrong > (1 if job.is_refused else 0):
            what = "let pass" if job.is_refused else "refused"
            program.fail(f"{what} {wrong} of {outcome.requests} requests in “{job.title}”")
        asks_redis = gateway.store is Store.REDIS and not job.is_refused
        if asks_redis and own.redis_calls == 0:
            program.fail("did not ask Redis")

    @staticmethod
    def decided_locally(gateway: Gateway, site: Site) -> int:
        return gateway.decided_locally(site) if gateway.decided_locally else 0

    def half_load(self, job: Job) -> Job:
        """The job with pauses, so that the load is half of what the baseline can serve."""
        most = self.measure_baseline(job).requests_per_second
        pause = job.load.connections * 1000 / (most / 2)
        return replace(job, load=replace(job.load, pause_ms=round(pause, 3)))


def wait_until_settled() -> None:
    """Waits until a gateway has opened its connections."""
    time.sleep(1)
