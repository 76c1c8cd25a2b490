"""Instructions per request, which do not depend on the load of the machine: `make callgrind`.

One connection, four limits in memory, one thread, under `valgrind --tool=callgrind`, once with few
requests and once with many: the difference, divided by the requests, excludes the start.
Instructions of the kernel are not counted.

Then heads of 8 KiB with the most expensive known decisions, each answered by the gateway
itself: none may take more than 3 million instructions, about a millisecond.

Fails if a request takes 5 % more than the first line of benches/callgrind.txt, unless the
Unreleased part of CHANGELOG.md has a line with the words "instructions per request". `--write` writes
the file; `--heads` counts only the expensive heads.
"""

import argparse
import os
import re
import socket
import sys
import tempfile
from pathlib import Path

from peers.gateways import OPEN, Site, Store
from peers.gateways.tollgate import tollgate
from peers.processes import Failure, Program, cores, free_port
from peers.servers import Upstream

FEW, MANY = 500, 2_500
TOLERATED = 1.05
COMMITTED = Path("benches/callgrind.txt")
BUILT = Path(os.environ.get("CARGO_TARGET_DIR", "target")) / "callgrind"
FEW_HEADS, MANY_HEADS = 20, 120
MOST_FOR_A_HEAD = 3_000_000
REQUEST = b"GET /?page=2 HTTP/1.1\r\nHost: api.example.com\r\nx-api-key: hot\r\n\r\n"

HEAD_BYTES = 8_000
# A configuration with which a decision reads the whole head.
FILE = """[server]
listen = ["127.0.0.1:{port}"]
admin = "127.0.0.1:{admin}"
threads = 1
trusted_proxies = ["127.0.0.0/8"]
max_uri_bytes = 8192
[server.limits]
max_headers = 256
[clients]
api_key = ["header:x-api-key", "bearer", "query:k"]
on_unknown_key = "accept"
[upstreams.api]
servers = ["demo"]
[routes.all]
[routes.search]
path = "/api/search"
[routes.below]
path = "/api/*"
[routes.of-host]
host = "api.test"
path = "/api/*"
[rules.tenant]
per = ["header:x-tenant", "host"]
rate = "1/d"
[rules.everyone]
per = []
rate = "1/d"
"""


def filled(part: str) -> str:
    return part * (HEAD_BYTES // len(part))


def lines(line: str) -> str:
    return f"{line}\r\n" * min(HEAD_BYTES // (len(line) + 2), 250)


# Target, host and header lines of each expensive head.
HEADS = {
    "slashes": (f"//x/b%2fc\\d;e//{filled('/')}", "api.test", ""),
    "segments": (f"//x/b%2fc\\d;e//{filled('/a')}", "api.test", ""),
    "encoded": (f"//x{filled('/%2f;e')}", "api.test", ""),
    "parameter": (f"//x/%2f\\/a;{filled('e')}", "api.test", ""),
    "query": (f"/?{filled('k=a&')}", "api.test", ""),
    "encoded-query": (f"/?{filled('%6b=%61&')}", "api.test", ""),
    "hops": ("/", "api.test", lines("X-Forwarded-For: 127.0.0.1, 127.0.0.1")),
    "empty-hops": ("/", "api.test", f"X-Forwarded-For: {filled(',')}\r\n"),
    "tenants": ("/", "api.test", lines("X-Tenant: a")),
    "tenant": ("/", "api.test", f"X-Tenant: {filled('a')}\r\n"),
    "names": ("/", "api.test", "".join(f"x_{n}: 1\r\n" for n in range(250))),
    "host": ("/", filled("A."), ""),
}


def main() -> None:
    parser = argparse.ArgumentParser(prog="callgrind", description=__doc__)
    parser.add_argument("--write", action="store_true", help=f"write {COMMITTED}")
    parser.add_argument("--keep", type=Path, help="keep callgrind's own files in this folder")
    parser.add_argument("--heads", action="store_true", help="count only the expensive heads")
    wanted = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="tollgate-callgrind-") as folder:
        if not wanted.heads:
            compare(per_request(Path(folder), wanted.keep), wanted.write)
        heads = {name: per_head(Path(folder), name, wanted.keep) for name in HEADS}
    for name, found in heads.items():
        print(f"{found:,} instructions for the head “{name}”")
    if wanted.write:
        first = COMMITTED.read_text().splitlines()[0]
        rows = [f"{name} {found}" for name, found in heads.items()]
        COMMITTED.write_text("\n".join([first, *rows]) + "\n")
    name, most = max(heads.items(), key=lambda head: head[1])
    if most > MOST_FOR_A_HEAD:
        raise Failure(f"the head “{name}” takes more than {MOST_FOR_A_HEAD:,} instructions")


def compare(found: int, writes: bool) -> None:
    """Compares the instructions of a plain request with the committed number."""
    rows = COMMITTED.read_text().splitlines()
    if writes:
        rows[0] = str(found)
        COMMITTED.write_text("\n".join(rows) + "\n")
    before = int(rows[0])
    grown = found / before
    print(f"{found:,} instructions per request; {before:,} committed ({grown - 1:+.1%})")
    if grown > TOLERATED and not is_in_changelog():
        raise Failure(
            "that is more than 5 % beyond benches/callgrind.txt. Find out why; if it is worth"
            " it, say so in the Unreleased part of CHANGELOG.md, with the words “instructions per"
            " request”, and write the file anew: PYTHONPATH=benches python3 -m callgrind --write"
        )


def per_request(folder: Path, keep: Path | None) -> int:
    core, _ = cores()
    upstream = Upstream(folder, core)
    with upstream.program:
        few, many = (instructions(folder, upstream.port, count, keep) for count in (FEW, MANY))
    return round((many - few) / (MANY - FEW))


def per_head(folder: Path, name: str, keep: Path | None) -> int:
    target, host, more = HEADS[name]
    head = f"GET {target} HTTP/1.1\r\nHost: {host}\r\n{more}\r\n".encode()
    counts = []
    for count in (FEW_HEADS, MANY_HEADS):
        port = free_port()
        file = folder / f"{port}.toml"
        file.write_text(FILE.format(port=port, admin=free_port()))
        command = ["run", "-c", str(file)]
        counts.append(counted(folder, command, port, f"{name}.{count}", keep, [head] * count))
    few, many = counts
    return round((many - few) / (MANY_HEADS - FEW_HEADS))


def instructions(folder: Path, upstream: int, requests: int, keep: Path | None) -> int:
    """Instructions of the program from start to exit, for this number of requests."""
    site = Site(folder, free_port(), upstream, None, OPEN, None)
    command = tollgate(4, Store.MEMORY).command(site)[1:]
    return counted(folder, command, site.port, str(requests), keep, [REQUEST] * requests)


def counted(
    folder: Path, command: list[str], port: int, name: str, keep: Path | None, requests: list[bytes]
) -> int:
    counts = (keep or folder).absolute() / f"callgrind.{name}.out"
    # Fair scheduling; otherwise a spinning thread could use all the time.
    valgrind = [
        "valgrind",
        "--tool=callgrind",
        "--fair-sched=try",
        # Without the pipes for a debugger, which need space in the temporary folder.
        "--vgdb=no",
        f"--callgrind-out-file={counts}",
    ]
    program = Program([*valgrind, str(BUILT / "tollgate"), *command], folder / "log")
    with program:
        program.wait_for(port)
        ask(port, requests)
    totals = re.search(r"^(?:totals|summary): (\d+)", counts.read_text(), re.MULTILINE)
    if not totals:
        program.fail("was not counted to its end")
    return int(totals[1])


def ask(port: int, requests: list[bytes]) -> None:
    """Sends requests in sequence on one connection. A plain request must be allowed."""
    with socket.create_connection(("127.0.0.1", port), 60) as connection:
        for request in requests:
            connection.sendall(request)
            answer = connection.recv(65536)
            passed = answer.startswith(b"HTTP/1.1 200 ")
            refused = re.match(rb"HTTP/1.1 (?:400|404|429) ", answer)
            if not passed and (request == REQUEST or not refused):
                raise Failure(f"the gateway answers {answer[:100]!r}")
            while not answer.rstrip().endswith(b"}"):
                answer += connection.recv(65536)


def is_in_changelog() -> bool:
    """Whether the Unreleased part of the changelog mentions it."""
    parts = Path("CHANGELOG.md").read_text().split("\n## ")
    unreleased = next((part for part in parts if part.startswith("Unreleased")), "")
    return "instructions per request" in " ".join(unreleased.split())


if __name__ == "__main__":
    try:
        main()
    except Failure as failure:
        sys.exit(f"error: {failure}")
