"""Instructions per request, which do not depend on the load of the machine: `make callgrind`.

One connection, four limits in memory, one thread, under `valgrind --tool=callgrind`, once with few
requests and once with many: the difference, divided by the requests, excludes the start.
Instructions of the kernel are not counted.

Beside them the cache lines that a simulated first level (32 KiB for instructions, as much for data)
does not have, and those that a second level of 1 MiB does not have either. A program of as many
instructions becomes slower if its code is spread over more lines.

Then heads of 8 KiB with the most expensive known decisions, each answered by the gateway
itself: none may take more than 3 million instructions, about a millisecond.

Fails if a request takes 5 % more of anything than benches/callgrind.txt says, unless the Unreleased
part of CHANGELOG.md has a line with the words "instructions per request" or "cache lines per
request". `--write` writes the file; `--heads` counts only the expensive heads. `--stored` compares requests with a
key of the key store that is in memory with those of a key of the file: at most 1 % more instructions.
"""

import argparse
import dataclasses
import hashlib
import json
import os
import re
import socket
import sys
import tempfile
import time
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from peers.gateways import OPEN, Site, Store
from peers.gateways.tollgate import tollgate
from peers.processes import Failure, Program, cores, free_port
from peers.servers import Upstream

FEW, MANY = 500, 2_500
TOLERATED = 1.05
# What runs of one build differed by: how often the event loop finds nothing depends on the machine.
FIRST_LEVEL_NOISE, MEMORY_NOISE = 300, 200
# Fair scheduling: otherwise a spinning thread could use all the time. Without the pipes for a debugger, which need space
# in the temporary folder.
VALGRIND = ["valgrind", "--tool=callgrind", "--fair-sched=try", "--vgdb=no"]
CACHES = ["--cache-sim=yes", "--I1=32768,8,64", "--D1=32768,8,64", "--LL=1048576,16,64"]
COMMITTED = Path("benches/callgrind.txt")
BUILT = Path(os.environ.get("CARGO_TARGET_DIR", "target")) / "callgrind" / "debug"
FEW_HEADS, MANY_HEADS = 20, 120
AT_ONCE = min(2, os.cpu_count() or 1)
MOST_FOR_A_HEAD = 3_000_000
MOST_FOR_A_STORED_KEY = 1.01
KEYS = ("of-file", "of-store")
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


@dataclasses.dataclass
class Counts:
    """What one request takes."""

    instructions: int
    # Lines that are not in the first level, and those that are in no cache.
    first_level_lines: int
    memory_lines: int

    def row(self) -> str:
        return f"{self.instructions} {self.first_level_lines} {self.memory_lines}"


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
    parser.add_argument("--stored", action="store_true", help="compare keys of the store and of the file")
    wanted = parser.parse_args()
    if wanted.stored:
        compare_stored()
        return
    with tempfile.TemporaryDirectory(prefix="tollgate-callgrind-") as folder:
        if not wanted.heads:
            compare(per_request(Path(folder), wanted.keep), wanted.write)
        heads = all_heads(Path(folder), wanted.keep, 1 if wanted.write else AT_ONCE)
    for name, found in heads.items():
        print(f"{found:,} instructions for the head “{name}”")
    if wanted.write:
        first = COMMITTED.read_text().splitlines()[0]
        rows = [f"{name} {found}" for name, found in heads.items()]
        COMMITTED.write_text("\n".join([first, *rows]) + "\n")
    name, most = max(heads.items(), key=lambda head: head[1])
    if most > MOST_FOR_A_HEAD:
        raise Failure(f"the head “{name}” takes more than {MOST_FOR_A_HEAD:,} instructions")


def compare(found: Counts, writes: bool) -> None:
    """Compares what a plain request takes with the first row of the committed file."""
    rows = COMMITTED.read_text().splitlines()
    if writes:
        rows[0] = found.row()
        COMMITTED.write_text("\n".join(rows) + "\n")
    before = Counts(*(int(number) for number in rows[0].split()))
    grown = []
    for words, slack, now, then in [
        ("instructions per request", 0, found.instructions, before.instructions),
        (
            "cache lines per request from beyond the first level",
            FIRST_LEVEL_NOISE,
            found.first_level_lines,
            before.first_level_lines,
        ),
        (
            "cache lines per request from memory",
            MEMORY_NOISE,
            found.memory_lines,
            before.memory_lines,
        ),
    ]:
        share = f" ({now / then - 1:+.1%})" if then else ""
        print(f"{now:,} {words}; {then:,} committed{share}")
        if now > then * TOLERATED + slack and not is_in_changelog(words):
            grown.append(words)
    if grown:
        raise Failure(
            f"{' and '.join(grown)}: more than 5 % beyond benches/callgrind.txt. Find out why; if"
            " it is worth it, say so in the Unreleased part of CHANGELOG.md, with the words"
            " “instructions per request” or “cache lines per request”, and write the file anew:"
            " PYTHONPATH=benches python3 -m callgrind --write"
        )


def compare_stored() -> None:
    """Compares a key of the key store with one of the file. The smallest of three, since the task that reads changes
    of the store runs beside the requests."""
    with tempfile.TemporaryDirectory(prefix="tollgate-callgrind-") as folder:
        core, _ = cores()
        upstream = Upstream(Path(folder), core)
        with upstream.program:
            counts = {key: [] for key in KEYS}
            for _ in range(3):
                for key in KEYS:
                    few, many = (stored(Path(folder), upstream.port, n, key) for n in (FEW, MANY))
                    counts[key].append(round((many - few) / (MANY - FEW)))
    of_file, of_store = (min(counts[key]) for key in KEYS)
    print(f"{of_store:,} instructions with a key of the store, {of_file:,} with one of the file ({of_store / of_file - 1:+.2%})")
    if of_store > of_file * MOST_FOR_A_STORED_KEY:
        raise Failure("a key of the store in memory costs more than 1 % beyond one of the file")


def stored(folder: Path, upstream: int, requests: int, key: str) -> int:
    """Instructions of the program from start to exit, for this number of requests with a key."""
    site = Site(folder, free_port(), upstream, None, OPEN, None)
    command = tollgate(4, Store.MEMORY).command(site)[1:]
    file, store = Path(command[-1]), folder / "keys.redb"
    sha256 = {own: hashlib.sha256(own.encode()).hexdigest() for own in KEYS}
    text = f'[keys.file]\nsha256 = "{sha256[KEYS[0]]}"\nplan = "free"\n[key_store]\nurl = "file:{store}"\n'
    text = file.read_text() + text
    file.write_text(text)
    if not store.exists():
        program = Program([str(BUILT / "tollgate"), *command], folder / "log")
        with program:
            program.wait_for(site.port)
            admin = re.search(r'^admin = "(.+)"$', text, re.MULTILINE)[1]
            client = {"id": "store", "plan": "free", "secrets": [{"sha256": sha256[KEYS[1]]}]}
            urllib.request.urlopen(f"http://{admin}/api/keys", json.dumps(client).encode(), 10)
    request = REQUEST.replace(b"hot", key.encode())
    return counted(folder, command, site.port, f"{key}.{requests}", None, [request] * requests, [])["Ir"]


def per_request(folder: Path, keep: Path | None) -> Counts:
    core, _ = cores()
    upstream = Upstream(folder, core)
    with upstream.program:
        # Apart: with the slower simulation, the event loop finds nothing more often, in 5 % more
        # instructions.
        each = []
        for options in ([], CACHES):
            few, many = (
                plain(folder, upstream.port, count, keep, options) for count in (FEW, MANY)
            )
            each.append({name: round((many[name] - few[name]) / (MANY - FEW)) for name in many})
    instructions, lines = each
    first_level = lines["I1mr"] + lines["D1mr"] + lines["D1mw"]
    memory = lines["ILmr"] + lines["DLmr"] + lines["DLmw"]
    return Counts(instructions["Ir"], first_level, memory)


def all_heads(folder: Path, keep: Path | None, at_once: int) -> dict[str, int]:
    """Instructions of each head. Beside another one, the event loop finds nothing more often: what is above the limit is
    counted again, alone."""
    with ThreadPoolExecutor(at_once) as pool:
        counts = pool.map(lambda name: per_head(folder, name, keep), HEADS)
        heads = dict(zip(HEADS, counts, strict=True))
    for name, found in heads.items():
        if at_once > 1 and found > MOST_FOR_A_HEAD:
            heads[name] = per_head(folder, name, keep)
    return heads


def per_head(folder: Path, name: str, keep: Path | None) -> int:
    target, host, more = HEADS[name]
    head = f"GET {target} HTTP/1.1\r\nHost: {host}\r\n{more}\r\n".encode()
    counts = []
    for count in (FEW_HEADS, MANY_HEADS):
        port = free_port()
        file = folder / f"{port}.toml"
        file.write_text(FILE.format(port=port, admin=free_port()))
        command = ["run", "-c", str(file)]
        events = counted(folder, command, port, f"{name}.{count}", keep, [head] * count, [])
        counts.append(events["Ir"])
    few, many = counts
    return round((many - few) / (MANY_HEADS - FEW_HEADS))


def plain(
    folder: Path, upstream: int, requests: int, keep: Path | None, options: list[str]
) -> dict[str, int]:
    """Events of the program from start to exit, for this number of requests."""
    site = Site(folder, free_port(), upstream, None, OPEN, None)
    command = tollgate(4, Store.MEMORY).command(site)[1:]
    name = f"{requests}.caches" if options else str(requests)
    return counted(folder, command, site.port, name, keep, [REQUEST] * requests, options)


def counted(
    folder: Path,
    command: list[str],
    port: int,
    name: str,
    keep: Path | None,
    requests: list[bytes],
    options: list[str],
) -> dict[str, int]:
    """Callgrind's events by name, from start to exit."""
    counts = (keep or folder).absolute() / f"callgrind.{name}.out"
    valgrind = [*VALGRIND, f"--callgrind-out-file={counts}", *options]
    program = Program([*valgrind, str(BUILT / "tollgate"), *command], folder / f"{name}.log")
    with program:
        program.wait_for(port)
        ask(port, requests)
    text = counts.read_text()
    names = re.search(r"^events: (.+)", text, re.MULTILINE)
    totals = re.search(r"^(?:totals|summary): ([\d ]+)", text, re.MULTILINE)
    if not names or not totals:
        program.fail("was not counted to its end")
    return dict(zip(names[1].split(), map(int, totals[1].split()), strict=False))


def ask(port: int, requests: list[bytes]) -> None:
    """Sends requests in sequence on one connection. A plain request must be allowed."""
    with socket.create_connection(("127.0.0.1", port), 60) as connection:
        for request in requests:
            connection.sendall(request)
            answer = connection.recv(65536)
            # The key store is opened after the start.
            while answer.startswith(b"HTTP/1.1 503 "):
                time.sleep(0.5)
                connection.sendall(request)
                answer = connection.recv(65536)
            passed = answer.startswith(b"HTTP/1.1 200 ")
            refused = re.match(rb"HTTP/1.1 (?:400|404|429) ", answer)
            if not passed and (b"x-api-key" in request or not refused):
                raise Failure(f"the gateway answers {answer[:100]!r}")
            while not answer.rstrip().endswith(b"}"):
                answer += connection.recv(65536)


def is_in_changelog(words: str) -> bool:
    """Whether the Unreleased part of the changelog mentions it."""
    parts = Path("CHANGELOG.md").read_text().split("\n## ")
    unreleased = next((part for part in parts if part.startswith("Unreleased")), "")
    mentioned = " ".join(unreleased.split())
    known = ("instructions per request", "cache lines per request")
    return any(words.startswith(word) and word in mentioned for word in known)


if __name__ == "__main__":
    try:
        main()
    except Failure as failure:
        sys.exit(f"error: {failure}")
