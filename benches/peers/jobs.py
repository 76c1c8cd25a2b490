"""The jobs: one load on several gateways."""

from dataclasses import dataclass, field

from .gateways import OPEN, SHUT, Gateway, Quota, Store, envoy, haproxy, nginx, pingap, traefik
from .gateways.pingora import BARE
from .gateways.tollgate import Build, tollgate, with_tls
from .load import Load, Tool
from .servers import SIZES, path_of


@dataclass(frozen=True)
class Job:
    """One load on several gateways."""

    # The value of `make bench JOB=…`; several jobs can share it.
    number: str
    title: str
    gateways: list[Gateway]
    load: Load = field(default_factory=Load)
    quota: Quota = OPEN
    # At half the requests per second of the baseline.
    at_half_load: bool = False
    # Measured with each gateway, at the same time.
    baseline: Gateway = BARE
    # The section of docs/benchmarks.md.
    section: str = "peers"

    @property
    def is_refused(self) -> bool:
        return self.quota == SHUT


PROXIES = [
    *[nginx.ALONE, haproxy.ALONE, envoy.ALONE, traefik.ALONE],
    *pingap.where_built(pingap.ALONE),
]
IN_MEMORY = [
    *[nginx.LIMIT_REQ, haproxy.STICK_TABLE, envoy.LOCAL_RATELIMIT, traefik.MEMORY],
    *pingap.where_built(pingap.LIMIT),
]
IN_REDIS = [nginx.EVALSHA, traefik.REDIS]

NO_RULE = tollgate(0, Store.NONE)
ONE_IN_MEMORY = tollgate(1, Store.MEMORY)
ONE_IN_REDIS = tollgate(1, Store.REDIS)
FOUR_IN_MEMORY = tollgate(4, Store.MEMORY)
FOUR_IN_REDIS = tollgate(4, Store.REDIS)
FOUR_LOGGED = tollgate(4, Store.MEMORY, has_access_log=True)
ONE_IN_REDIS_PGO = tollgate(1, Store.REDIS, Build.PGO)
FOUR_IN_MEMORY_PGO = tollgate(4, Store.MEMORY, Build.PGO)
FOUR_IN_REDIS_PGO = tollgate(4, Store.REDIS, Build.PGO)
FOUR = [FOUR_IN_MEMORY, FOUR_LOGGED, FOUR_IN_REDIS, FOUR_IN_MEMORY_PGO, FOUR_IN_REDIS_PGO]

KEPT_TLS = "TLS, HTTP/1.1, kept connections"
H2_TLS = "TLS, HTTP/2, 10 streams a connection"
HANDSHAKES = "TLS, a full handshake for each request"
OVER_TLS, OVER_TLS_PGO = with_tls(), with_tls(Build.PGO)


def many_clients(keys: str, title: str) -> Job:
    gateways = [ONE_IN_MEMORY, nginx.LIMIT_REQ, ONE_IN_REDIS, *IN_REDIS]
    return Job("6", f"One limit, 100,000 clients, {title}", gateways, Load(keys=keys))


def bodies(size: str) -> Job:
    ours = [NO_RULE, FOUR_IN_MEMORY, FOUR_IN_MEMORY_PGO]
    gateways = [*ours, nginx.ALONE, haproxy.ALONE, envoy.ALONE]
    return Job("8", f"Answers of {size}", gateways, Load(path=path_of(size)))


def tls(title: str, load: Load) -> Job:
    pgo = [OVER_TLS_PGO] if Build.PGO.is_built else []
    gateways = [OVER_TLS, *pgo, haproxy.TLS, envoy.TLS]
    return Job("9", title, gateways, load, baseline=nginx.TLS, section="tls")


JOBS = [
    Job("1", "Proxy only", [NO_RULE, *PROXIES]),
    Job("2", "One limit in memory", [ONE_IN_MEMORY, *IN_MEMORY]),
    Job("3", "One limit in Redis", [ONE_IN_REDIS, *IN_REDIS]),
    Job("3", "One limit in Redis, 256 connections", [ONE_IN_REDIS], Load(connections=256)),
    Job("4", "Four limits: address, key, route, all", FOUR),
    Job(
        "5",
        "Everything refused",
        [ONE_IN_MEMORY, *IN_MEMORY, ONE_IN_REDIS, ONE_IN_REDIS_PGO, *IN_REDIS],
        quota=SHUT,
    ),
    many_clients("uniform", "all as busy"),
    many_clients("zipf", "by Zipf's law"),
    Job(
        "7",
        "Latency at half the load that bare Pingora carries",
        [
            *[NO_RULE, FOUR_IN_MEMORY, FOUR_IN_REDIS, FOUR_IN_REDIS_PGO],
            *[nginx.ALONE, haproxy.ALONE, nginx.EVALSHA],
        ],
        at_half_load=True,
    ),
    *(bodies(size) for size in SIZES),
    tls(KEPT_TLS, Load(Tool.WRK_TLS)),
    tls(H2_TLS, Load(Tool.H2LOAD, connections=8)),
    tls(HANDSHAKES, Load(Tool.HANDSHAKES, connections=32)),
]

# Titles of the jobs in each section of docs/benchmarks.md.
SECTIONS = {
    section: {job.title for job in JOBS if job.section == section} for section in ("peers", "tls")
}
