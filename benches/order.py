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
from pathlib import Path

from peers.load import run
from peers.processes import BUILT, Failure, Program, cores, free_port
from peers.servers import Certificate, Redis, Upstream
from peers.gateways import Site
from peers.train import LESSONS

WRITTEN = Path("order.ld")
SECONDS = 5
# A function is placed if it is called at least so often per request, by one kind of request.
LEAST_CALLS = 0.05
# Most code, in bytes, that is placed together because one function calls another.
MOST_TOGETHER = 64 * 1024
# The last part of a mangled name, which depends on the versions of the compiler and of crates.
HASH = re.compile(r"17h[0-9a-f]{16}E(\.llvm\.\d+|\.\d+)?$")

Calls = Counter[tuple[str, str]]


def main() -> None:
    sizes = functions()
    calls: Counter[tuple[str, str]] = Counter()
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
    patterns = [each for each in patterns if is_specific(each, ordered, sizes)]
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


def counted(folder: Path):
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
                valgrind = ["valgrind", "--tool=callgrind", "--fair-sched=try", "--vgdb=no"]
                valgrind += ["--demangle=no", f"--callgrind-out-file={out}"]
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


def clustered(calls: Calls, sizes: dict[str, int]) -> list[str]:
    """Functions by call-chain clustering: each follows the one that calls it most often."""
    total: Counter[str] = Counter()
    callers: dict[str, Counter[str]] = {}
    for (caller, callee), count in calls.items():
        total[callee] += count
        if caller in sizes and caller != callee:
            callers.setdefault(callee, Counter())[caller] += count
    clusters = {name: [name] for name in sizes}
    for name in sorted(sizes, key=lambda name: (-total[name], name)):
        if name not in callers:
            continue
        before, after = clusters[callers[name].most_common(1)[0][0]], clusters[name]
        if before is after or sum(sizes[each] for each in before + after) > MOST_TOGETHER:
            continue
        before += after
        clusters.update(dict.fromkeys(after, before))
    distinct = {id(cluster): cluster for cluster in clusters.values()}.values()

    def density(cluster: list[str]) -> float:
        return sum(total[name] for name in cluster) / max(1, sum(sizes[name] for name in cluster))

    return [name for cluster in sorted(distinct, key=density, reverse=True) for name in cluster]


def pattern(name: str) -> str:
    """Matches the function whatever the versions of the compiler and of crates."""
    return HASH.sub("17h*", name)


def is_specific(pattern: str, ordered: list[str], sizes: dict[str, int]) -> bool:
    """Whether the pattern matches little else: generic functions have one name for all types."""
    if not pattern.endswith("*"):
        return True
    matched = [name for name in sizes if name.startswith(pattern[:-1])]
    placed = set(ordered)
    wanted = sum(sizes[name] for name in matched if name in placed)
    return sum(sizes[name] for name in matched) <= 3 * wanted + 1024


if __name__ == "__main__":
    try:
        main()
    except Failure as failure:
        sys.exit(f"error: {failure}")
