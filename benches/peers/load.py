"""Runs wrk and parses its output."""

import subprocess
from dataclasses import dataclass
from pathlib import Path

from .processes import Failure, which

SCRIPT = Path(__file__).with_name("load.lua")


@dataclass(frozen=True)
class Load:
    """The load."""

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
    """Sends `load` to a port of this machine; connections are kept and requests never pipelined."""
    command = [
        *["taskset", "-c", str(core), which("wrk"), "-t1", f"-c{load.connections}"],
        *[f"-d{max(1, round(seconds))}s", "-s", str(SCRIPT)],
        *[f"http://127.0.0.1:{port}{load.path}", "--", load.keys, str(load.pause_ms)],
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    lines = [line for line in done.stdout.splitlines() if line.startswith("summary ")]
    if not lines:
        raise Failure(f"{' '.join(command)}\n{done.stdout}{done.stderr}")
    took, requests, refused, errors, p50, p99 = map(float, lines[0].split()[1:])
    if errors > 0 or requests == 0:
        raise Failure(f"{errors:.0f} of {requests:.0f} requests failed\n{done.stdout}")
    return Outcome(took / 1e6, int(requests), int(refused), p50 / 1e3, p99 / 1e3)
