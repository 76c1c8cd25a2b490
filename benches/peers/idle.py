"""Memory of idle connections: of each kind, and what remains once they are closed."""

import subprocess
import sys
import time
from dataclasses import dataclass

from .gateways import OPEN, Gateway, envoy, haproxy, nginx, traefik
from .gateways.tollgate import with_http2, with_tls
from .idle_client import HTTP1, HTTP1_TLS, HTTP2, HTTP2_TLS, KINDS, SILENT
from .measure import Bench
from .processes import Failure, Program

TITLES = {
    SILENT: "no request yet",
    HTTP1: "HTTP/1.1",
    HTTP1_TLS: "HTTP/1.1, TLS",
    HTTP2: "HTTP/2",
    HTTP2_TLS: "HTTP/2, TLS",
}

# With and without TLS.
GATEWAYS = {
    "tollgate": (with_http2(), with_tls()),
    "nginx": (nginx.ALONE, nginx.TLS),
    "HAProxy": (haproxy.ALONE, haproxy.TLS),
    "Envoy": (envoy.ALONE, envoy.TLS),
    "Traefik": (traefik.ALONE, traefik.TLS),
}

# nginx and HAProxy have at most 4,096 connections here.
COUNT = 3_000
# Before the first measurement, so that what a gateway allocates once does not count.
WARM_UP = 200
SETTLE_SECONDS = 2
CLOSED_SECONDS = 5


@dataclass(frozen=True)
class Idle:
    """Idle connections of one kind, after one request each."""

    gateway: str
    kind: str
    # Resident and proportional set size for each connection.
    rss_kib: float
    pss_kib: float
    # Resident memory before the connections, with them, and after they were closed.
    before_kib: int
    open_kib: int
    closed_kib: int


class Clients:
    """A process with open connections, until `close`."""

    def __init__(self, kind: str, port: int, count: int):
        command = [sys.executable, "-m", f"{__package__}.idle_client", kind, str(port), str(count)]
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
        self.process = subprocess.Popen(command, text=True, **pipes)
        if self.process.stdout.readline().strip() != "open":
            self.process.wait()
            raise Failure(f"{count} connections ({kind}) could not be opened")

    def close(self) -> None:
        self.process.terminate()
        self.process.wait()


def idle(bench: Bench, say) -> list[Idle]:
    """Measures each kind of connection with each gateway that serves it."""
    found = []
    for name, (clear, tls) in GATEWAYS.items():
        for kind in KINDS:
            gateway = tls if kind in (HTTP1_TLS, HTTP2_TLS) else clear
            try:
                one = idle_of(bench, name, gateway, kind)
            except Failure:
                say(f"{name}: {TITLES[kind]}: not served")
                continue
            say(
                f"{name}: {TITLES[kind]}: {one.rss_kib:.1f} KiB ({one.pss_kib:.1f} proportional);"
                f" {one.before_kib} KiB before, {one.open_kib} open, {one.closed_kib} closed"
            )
            found.append(one)
    return found


def idle_of(bench: Bench, name: str, gateway: Gateway, kind: str) -> Idle:
    with bench.running(gateway, OPEN) as (program, port):
        first = Clients(kind, port, WARM_UP)
        before = settled(program, SETTLE_SECONDS)
        try:
            rest = Clients(kind, port, COUNT)
            opened = settled(program, SETTLE_SECONDS)
            rest.close()
        finally:
            first.close()
        closed = settled(program, CLOSED_SECONDS)
    rss, pss = ((after - earlier) / COUNT for after, earlier in zip(opened, before, strict=True))
    return Idle(name, kind, rss, pss, before[0], opened[0], closed[0])


def settled(program: Program, seconds: float) -> tuple[int, int]:
    """Resident and proportional set size, in KiB, after a pause in which allocators return memory."""
    time.sleep(seconds)
    return program.memory_kib("Rss"), program.memory_kib("Pss")


def table(found: list[Idle]) -> str:
    """The tables of the page."""
    kinds = "".join(f" {TITLES[kind]} |" for kind in KINDS)
    lines = [f"| gateway |{kinds}", f"| --- |{' ---: |' * len(KINDS)}"]
    cells = {(one.gateway, one.kind): one for one in found}
    for name in GATEWAYS:
        values = [cells.get((name, kind)) for kind in KINDS]
        texts = "".join(f" {one.rss_kib:.1f} |" if one else " – |" for one in values)
        lines.append(f"| {name} |{texts}")
    about = "Resident memory of the process, MB, without traffic (HTTP/1.1, TLS):"
    titles = f"{WARM_UP} connections | {COUNT + WARM_UP:,} | {CLOSED_SECONDS} s after they closed"
    lines += ["", about, "", f"| gateway | {titles} |", "| --- | ---: | ---: | ---: |"]
    for name in GATEWAYS:
        one = cells.get((name, HTTP1_TLS))
        if one:
            # The first connections are open before.
            values = (one.before_kib, one.open_kib, one.closed_kib)
            lines.append(f"| {name} |" + "".join(f" {value / 1000:.0f} |" for value in values))
    return "\n".join(lines) + "\n"
