"""Starts programs, bound to a core, and stops them with their handles."""

import http.client
import os
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")

# Debian installs servers in /usr/sbin, which is not always in PATH.
SEARCH = os.pathsep.join([os.environ["PATH"], "/usr/sbin", "/sbin"])

# Where cargo puts release builds.
BUILT = os.path.abspath(os.path.join(os.environ.get("CARGO_TARGET_DIR", "target"), "release"))


class Failure(Exception):
    """A program failed."""


def stop_on_sigterm() -> None:
    """Handles SIGTERM like an interrupt, so that all started programs are stopped."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("error: ended"))


def progress() -> Callable[[str], None]:
    """Prints lines with the time since now."""
    started = time.monotonic()

    def say(text: str) -> None:
        seconds = round(time.monotonic() - started)
        print(f"[{seconds // 60:3}:{seconds % 60:02}] {text}", flush=True)

    return say


class Program:
    """A process and its children, until `stop`."""

    def __init__(
        self,
        command: list[str],
        log: Path,
        core: int | None = None,
        environment: dict[str, str] | None = None,
    ):
        self.command = command
        self.log = log
        pin = [] if core is None else ["taskset", "-c", str(core)]
        with log.open("wb") as out:
            # A separate process group, so that an interrupt reaches it only through `stop`.
            self.process = subprocess.Popen(
                [*pin, which(command[0]), *command[1:]],
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                start_new_session=True,
                env={**os.environ, **(environment or {})},
            )

    def __enter__(self) -> "Program":
        return self

    def __exit__(self, *_) -> None:
        self.stop()

    def stop(self) -> None:
        """Stops the process by SIGTERM, then by SIGKILL."""
        self.process.terminate()
        try:
            self.process.wait(5)
        except subprocess.TimeoutExpired:
            for pid in self.pids():
                os.kill(pid, 9)
            self.process.wait()

    def pids(self) -> list[int]:
        """Ids of the process and all its descendants."""
        parents = {}
        for folder in Path("/proc").glob("[0-9]*"):
            fields = stat(int(folder.name))
            if fields:
                parents[int(folder.name)] = int(fields[1])
        family = [self.process.pid]
        for pid in family:
            family += [child for child, parent in parents.items() if parent == pid]
        return family

    def cpu_us(self) -> float:
        """User and system time of all processes so far, in microseconds."""
        clock_ticks = 0
        for pid in self.pids():
            fields = stat(pid)
            if fields:
                clock_ticks += int(fields[11]) + int(fields[12])
        return clock_ticks * 1e6 / TICKS_PER_SECOND

    def memory_mb(self) -> float:
        """Resident memory; shared pages count once."""
        return self.memory_kib("Pss") / 1000

    def memory_kib(self, field: str) -> int:
        """Memory of all processes: `Rss`, or `Pss`, which counts shared pages once."""
        kibibytes = 0
        for pid in self.pids():
            text = Path(f"/proc/{pid}/smaps_rollup").read_text()
            line = next(line for line in text.splitlines() if line.startswith(f"{field}:"))
            kibibytes += int(line.split()[1])
        return kibibytes

    def wait_for(self, port: int) -> None:
        """Waits until the program accepts connections on `port`."""
        self.wait_until(lambda: socket.create_connection(("127.0.0.1", port), 1).close() is None)

    def wait_until_serving(self, port: int, has_tls: bool = False) -> None:
        """Waits until a request is served: some gateways listen before they have their routes."""
        self.wait_until(lambda: status(port, has_tls) in (200, 429))

    def wait_until(self, is_so, seconds: float = 20) -> None:
        """Waits until `is_so` returns true without an error."""
        end = time.monotonic() + seconds
        while time.monotonic() < end and self.process.poll() is None:
            try:
                if is_so():
                    return
            except (OSError, http.client.HTTPException):
                pass
            time.sleep(0.02)
        self.stop()
        self.fail("did not start")

    def fail(self, what: str) -> None:
        """Raises a failure with the end of the program's log."""
        log = self.log.read_text(errors="replace")[-2000:]
        raise Failure(f"{' '.join(self.command)} {what}\n{log}")


def stat(pid: int) -> list[str] | None:
    """The fields of /proc/PID/stat after the name; none if the process has exited."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None


def status(port: int, has_tls: bool) -> int:
    """Status of a request by a client that sends no others."""
    if has_tls:
        # The certificate is self-signed.
        context = ssl.create_default_context()
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        connection = http.client.HTTPSConnection("127.0.0.1", port, timeout=1, context=context)
    else:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=1)
    try:
        connection.request("GET", "/", headers={"x-api-key": "first"})
        return connection.getresponse().status
    finally:
        connection.close()


def which(name: str) -> str:
    """The path of a required program."""
    path = shutil.which(name, path=SEARCH)
    if path is None:
        raise Failure(f"{name} is missing; `make bench` installs it")
    return path


def free_port() -> int:
    """A free port."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def cores() -> tuple[int, int]:
    """The core of the load and the upstream, and the core of the proxy."""
    usable = sorted(os.sched_getaffinity(0))
    if len(usable) < 2:
        raise Failure("two cores are needed, one of them for the proxy only")
    return usable[0], usable[-1]
