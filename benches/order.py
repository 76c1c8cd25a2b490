"""Which functions of the release build serve requests: writes order.ld, by which build.rs places
them side by side. `make order`.

Counts calls under valgrind, with the load that also trains profile-guided optimisation, and leaves
out what the start of the program calls.
"""

import re
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from callgrind import VALGRIND
from peers.gateways import Site
from peers.load import run
from peers.processes import BUILT, Failure, Program, cores, free_port
from peers.servers import Certificate, Redis, Upstream
from peers.train import LESSONS

WRITTEN = Path("order.ld")
SECONDS = 5
# A function is placed if it is called at least so often per request, by one kind of request.
LEAST_CALLS = 0.05
# Functions are placed together up to this size, in bytes, if the one calls more than a tenth of the
# calls of the other, and as long as the calls for the size do not fall below an eighth.
MOST_TOGETHER, UNLIKELY, MOST_DILUTED = 1024 * 1024, 10, 8
# Bytes of all functions with one name, but for the hash, if the name is to be listed.
MOST_MATCHED = 60_000
# The last part of a mangled name, which depends on the versions of the compiler and of crates.
HASH = re.compile(r"17h[0-9a-f]{16}E(\.llvm\.\d+|\.\d+)?$")

Calls = Counter[tuple[str, str]]


def main() -> None:
    sizes = functions()
    calls: Calls = Counter()
    hot: set[str] = set()
    with tempfile.TemporaryDirectory(prefix="tollgate-order-") as name:
        for found, requests in counted(Path(name)):
            total: Counter[str] = Counter()
            for (_, callee), count in found.items():
                total[callee] += count
            hot |= {name for name, count in total.items() if count >= LEAST_CALLS * requests}
            for edge, count in found.items():
                calls[edge] += count / requests
    ordered = clustered(calls, {name: sizes[name] for name in hot if name in sizes})
    patterns = list(dict.fromkeys(pattern(name) for name in ordered))
    patterns = [each for each in patterns if is_specific(each, sizes)]
    lines = "".join(f"    *(.text.{each})\n" for each in patterns)
    WRITTEN.write_text(
        "/* The functions that serve requests: benches/order.py writes this file. */\n"
        f"SECTIONS {{\n  .text.hot : {{\n{lines}  }}\n}}\nINSERT BEFORE .text;\n"
    )
    print(f"{WRITTEN}: {len(patterns)} functions")


def functions() -> dict[str, int]:
    """The functions of the program and their sizes in bytes."""
    listed = subprocess.run(
        ["nm", "-S", "--defined-only", f"{BUILT}/tollgate"], capture_output=True, text=True, check=True
    )
    rows = [line.split() for line in listed.stdout.splitlines()]
    return {row[3]: int(row[1], 16) for row in rows if len(row) == 4 and row[2] in "tT"}


def counted(folder: Path) -> Iterator[tuple[Calls, int]]:
    """For each kind of load: the calls of one function by another, and the requests."""
    load_core, proxy_core = cores()
    upstream, redis = Upstream(folder, load_core), Redis(folder)
    certificate = Certificate.make(folder)
    with upstream.program, redis.program:
        for number, (gateway, quota, load) in enumerate(LESSONS):
            each = []
            for seconds in (0, SECONDS):
                redis.forget()
                out = folder / f"{number}.{seconds}.out"
                site = Site(folder, free_port(), upstream.port, redis, quota, certificate)
                valgrind = [*VALGRIND, "--demangle=no", f"--callgrind-out-file={out}"]
                command = [*valgrind, *gateway.command(site)]
                program = Program(command, folder / f"{site.port}.log", proxy_core)
                with program:
                    program.wait_until_serving(site.port, gateway.has_tls)
                    requests = run(load, site.port, seconds, load_core).requests if seconds else 0
                each.append(parsed(out))
            print(f"{gateway.name}: {requests:,} requests", flush=True)
            yield each[1] - each[0], requests


def parsed(path: Path) -> Calls:
    """Calls by caller and callee, from callgrind's file, which writes a name only once."""
    names: dict[str, str] = {}
    calls: Calls = Counter()
    caller = callee = ""
    for line in path.read_text().splitlines():
        key, _, value = line.partition("=")
        if key in ("fn", "cfn"):
            number, _, name = value.partition(" ")
            # A recursive call has a number after its name.
            name = names.setdefault(number, re.sub(r"'\d+$", "", name))
            caller, callee = (name, callee) if key == "fn" else (caller, name)
        elif key == "calls":
            calls[caller, callee] += int(value.split()[0])
    return calls


@dataclass
class Cluster:
    """Functions that are placed together."""

    names: list[str]
    size: int
    calls: float

    @property
    def density(self) -> float:
        return self.calls / max(1, self.size)


def clustered(calls: Calls, sizes: dict[str, int]) -> list[str]:
    """Functions by call-chain clustering, as lld does it for a profile: those with the most calls
    for their size first, each after the one that calls it most often."""
    total: Counter[str] = Counter()
    callers: dict[str, Counter[str]] = {}
    for (caller, callee), count in calls.items():
        total[callee] += count
        if caller in sizes and caller != callee:
            callers.setdefault(callee, Counter())[caller] += count
    clusters = {name: Cluster([name], size, total[name]) for name, size in sizes.items()}
    densest = sorted(sizes, key=lambda name: (-clusters[name].density, name))
    for name in densest:
        [(caller, count)] = callers.get(name, Counter()).most_common(1) or [("", 0)]
        if count * UNLIKELY <= total[name]:
            continue
        before, after = clusters[caller], clusters[name]
        both = Cluster(
            before.names + after.names, before.size + after.size, before.calls + after.calls
        )
        is_too_large = both.size > MOST_TOGETHER or both.density < before.density / MOST_DILUTED
        if before is after or is_too_large:
            continue
        clusters.update(dict.fromkeys(both.names, both))
    distinct = {id(cluster): cluster for cluster in clusters.values()}.values()
    ordered = sorted(distinct, key=lambda cluster: cluster.density, reverse=True)
    return [name for cluster in ordered for name in cluster.names]


def pattern(name: str) -> str:
    """Matches the function whatever the versions of the compiler and of crates."""
    return HASH.sub("17h*", name)


def is_specific(pattern: str, sizes: dict[str, int]) -> bool:
    """Whether the pattern matches little code: generic functions have one name for all types."""
    matched = (size for name, size in sizes.items() if name.startswith(pattern.rstrip("*")))
    return sum(matched) <= MOST_MATCHED


if __name__ == "__main__":
    try:
        main()
    except Failure as failure:
        sys.exit(f"error: {failure}")
