"""The load for profile-guided optimisation: the most frequent kinds of requests of a
gateway. `make pgo`."""

import os
import sys
import tempfile
from pathlib import Path

from .gateways import OPEN, SHUT, Quota, Site
from .gateways.gateway import Gateway
from .jobs import FOUR_IN_MEMORY, FOUR_IN_REDIS, ONE_IN_MEMORY, ONE_IN_REDIS, OVER_TLS
from .load import Load, Tool, run
from .processes import Failure, Program, free_port
from .servers import Certificate, Redis, Upstream, path_of

SECONDS = 5

LESSONS: list[tuple[Gateway, Quota, Load]] = [
    (FOUR_IN_REDIS, OPEN, Load()),
    (FOUR_IN_REDIS, OPEN, Load(keys="zipf")),
    (FOUR_IN_MEMORY, OPEN, Load()),
    (FOUR_IN_MEMORY, OPEN, Load(path=path_of("64 KB"))),
    (ONE_IN_REDIS, SHUT, Load()),
    (ONE_IN_MEMORY, OPEN, Load(keys="uniform")),
    (OVER_TLS, OPEN, Load(Tool.WRK_TLS)),
    (OVER_TLS, OPEN, Load(Tool.H2LOAD, connections=8)),
]


def main() -> None:
    usable = sorted(os.sched_getaffinity(0))
    load_core, proxy_core = usable[0], usable[-1]
    with tempfile.TemporaryDirectory(prefix="tollgate-train-") as name:
        folder = Path(name)
        upstream, redis = Upstream(folder, load_core), Redis(folder)
        certificate = Certificate.make(folder)
        with upstream.program, redis.program:
            for gateway, quota, load in LESSONS:
                redis.forget()
                site = Site(folder, free_port(), upstream.port, redis, quota, certificate)
                program = Program(gateway.command(site), folder / f"{site.port}.log", proxy_core)
                with program:
                    program.wait_until_serving(site.port, gateway.has_tls)
                    outcome = run(load, site.port, SECONDS, load_core)
                print(f"{gateway.name}: {outcome.requests:,} requests", flush=True)


if __name__ == "__main__":
    try:
        main()
    except Failure as failure:
        sys.exit(f"error: {failure}")
