"""Runs the programs that send requests, and parses their output."""

import re
import subprocess
import tempfile
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from .processes import BUILT, Failure, which

SCRIPT = Path(__file__).with_name("load.lua")

# Streams at the same time on each connection of h2load.
STREAMS = 10


class Tool(Enum):
    """The program that sends the requests."""

    WRK = "wrk"
    WRK_TLS = "wrk, over TLS"
    H2LOAD = "h2load, over TLS"
    # benches/handshake_load: a connection for each request, without resumption.
    HANDSHAKES = "handshake_load"


@dataclass(frozen=True)
class Load:
    """The load."""

    tool: Tool = Tool.WRK
    connections: int = 64
    # The clients; see load.lua.
    keys: str = "hot"
    path: str = "/"
    # Average pause of a connection between two requests, in milliseconds.
    pause_ms: float = 0


@dataclass(frozen=True)
class Outcome:
    """The result."""

    seconds: float
    requests: int
    refused: int
    p50_ms: float
    p99_ms: float

    @property
    def passed(self) -> int:
        return self.requests - self.refused


def run(load: Load, port: int, seconds: float, core: int) -> Outcome:
    """Sends `load` to a port of this machine."""
    seconds = max(1, round(seconds))
    pinned = ["taskset", "-c", str(core)]
    match load.tool:
        case Tool.WRK:
            return summary([*pinned, *wrk(load, seconds, f"http://127.0.0.1:{port}")])
        case Tool.WRK_TLS:
            return summary([*pinned, *wrk(load, seconds, f"https://127.0.0.1:{port}")])
        case Tool.HANDSHAKES:
            program = f"{BUILT}/handshake_load"
            return summary([*pinned, program, str(port), str(load.connections), str(seconds)])
        case Tool.H2LOAD:
            return h2load(load, port, seconds, pinned)


def wrk(load: Load, seconds: int, url: str) -> list[str]:
    """Connections are kept and requests never pipelined."""
    return [
        *[which("wrk"), "-t1", f"-c{load.connections}"],
        *[f"-d{seconds}s", "-s", str(SCRIPT), f"{url}{load.path}"],
        *["--", load.keys, str(load.pause_ms)],
    ]


def summary(command: list[str]) -> Outcome:
    """Runs a program that prints what load.lua prints."""
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    lines = [line for line in done.stdout.splitlines() if line.startswith("summary ")]
    if not lines:
        raise Failure(f"{' '.join(command)}\n{done.stdout}{done.stderr}")
    took, requests, refused, errors, p50, p99 = map(float, lines[0].split()[1:])
    if errors > 0 or requests == 0:
        raise Failure(f"{errors:.0f} of {requests:.0f} requests failed\n{done.stdout}")
    return Outcome(took / 1e6, int(requests), int(refused), p50 / 1e3, p99 / 1e3)


def h2load(load: Load, port: int, seconds: int, pinned: list[str]) -> Outcome:
    """HTTP/2 with `STREAMS` requests at the same time on each connection."""
    with tempfile.NamedTemporaryFile(prefix="tollgate-h2load-") as log:
        command = [
            *[*pinned, which("h2load"), f"-c{load.connections}", f"-m{STREAMS}", f"-D{seconds}"],
            *["--header", f"x-api-key: {load.keys}", f"--log-file={log.name}"],
            f"https://127.0.0.1:{port}{load.path}",
        ]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        # Of each request: start, status, microseconds.
        rows = [line.split(b"\t") for line in log.read().splitlines()]
    codes = re.search(r"status codes: (\d+) 2xx, (\d+) 3xx, (\d+) 4xx, (\d+) 5xx", done.stdout)
    is_h2 = "Application protocol: h2" in done.stdout
    if not codes or not is_h2 or not rows:
        raise Failure(f"{' '.join(command)}\n{done.stdout}{done.stderr}")
    passed, _, refused, _ = map(int, codes.groups())
    if passed + refused != len(rows):
        raise Failure(f"some of {len(rows)} requests failed\n{done.stdout}")
    times = sorted(int(row[2]) for row in rows)
    p50, p99 = (times[len(times) * part // 100] / 1e3 for part in (50, 99))
    return Outcome(float(seconds), len(rows), refused, p50, p99)
