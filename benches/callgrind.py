"""Instructions per request, which do not depend on the machine's mood: `make callgrind`.

One connection, four limits in memory, one thread, under `valgrind --tool=callgrind`, once with few
requests and once with many: the difference, by the requests that it is for, has no start-up in it.
The kernel's part of a request is not counted.

Fails when a request takes 5 % more than benches/callgrind.txt says, unless the Unreleased part of
CHANGELOG.md has a line with the words "instructions per request". `--write` writes the file anew.
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
REQUEST = b"GET /?page=2 HTTP/1.1\r\nHost: api.example.com\r\nx-api-key: hot\r\n\r\n"


def main() -> None:
    parser = argparse.ArgumentParser(prog="callgrind", description=__doc__)
    parser.add_argument("--write", action="store_true", help=f"write {COMMITTED}")
    parser.add_argument("--keep", type=Path, help="keep callgrind's own files in this folder")
    wanted = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="tollgate-callgrind-") as folder:
        found = per_request(Path(folder), wanted.keep)
    if wanted.write:
        COMMITTED.write_text(f"{found}\n")
    before = int(COMMITTED.read_text())
    grown = found / before
    print(f"{found:,} instructions per request; {before:,} committed ({grown - 1:+.1%})")
    if grown > TOLERATED and not is_told():
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


def instructions(folder: Path, upstream: int, requests: int, keep: Path | None) -> int:
    """All that the program executes, from its start to its end, for so many requests."""
    site = Site(folder, free_port(), upstream, None, OPEN)
    counts = (keep or folder).absolute() / f"callgrind.{requests}.out"
    # Its threads take turns, or one that waits for another may take them all.
    valgrind = [
        "valgrind",
        "--tool=callgrind",
        "--fair-sched=try",
        f"--callgrind-out-file={counts}",
    ]
    arguments = tollgate(4, Store.MEMORY).command(site)[1:]
    program = Program([*valgrind, str(BUILT / "tollgate"), *arguments], folder / "log")
    with program:
        program.wait_for(site.port)
        ask(site.port, requests)
    totals = re.search(r"^(?:totals|summary): (\d+)", counts.read_text(), re.MULTILINE)
    if not totals:
        program.fail("was not counted to its end")
    return int(totals[1])


def ask(port: int, requests: int) -> None:
    """One after the other, on one connection; all must pass."""
    with socket.create_connection(("127.0.0.1", port), 60) as connection:
        for _ in range(requests):
            connection.sendall(REQUEST)
            answer = connection.recv(65536)
            if not answer.startswith(b"HTTP/1.1 200 "):
                raise Failure(f"the gateway answers {answer[:100]!r}")
            while not answer.endswith(b"}"):
                answer += connection.recv(65536)


def is_told() -> bool:
    """Whether the changelog speaks of it since the last release."""
    parts = Path("CHANGELOG.md").read_text().split("\n## ")
    unreleased = next((part for part in parts if part.startswith("Unreleased")), "")
    return "instructions per request" in " ".join(unreleased.split())


if __name__ == "__main__":
    try:
        main()
    except Failure as failure:
        sys.exit(f"error: {failure}")
