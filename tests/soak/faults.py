"""What fails during the run: Redis and the upstream, by turns, and the configuration is replaced."""

import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable
from pathlib import Path

from peers.processes import Program, which

# Seconds between the beginnings of two faults.
EVERY_SECONDS = 12

# How long a program is stopped or away.
FAULT_SECONDS = 2


class Server:
    """A server that can be stopped, killed and started again with the same command."""

    def __init__(self, command: list[str], folder: Path, name: str, port: int):
        self.command, self.folder, self.name, self.port = command, folder, name, port
        self.starts = 0
        self.start()

    def start(self) -> None:
        self.starts += 1
        self.program = Program(self.command, self.folder / f"{self.name}-{self.starts}.log")
        self.program.wait_for(self.port)

    def signal(self, number: int) -> None:
        for pid in self.program.pids():
            os.kill(pid, number)

    def pause(self) -> None:
        """Neither reads nor answers for some time."""
        self.signal(signal.SIGSTOP)
        time.sleep(FAULT_SECONDS)
        self.signal(signal.SIGCONT)

    def kill(self) -> None:
        self.signal(signal.SIGKILL)
        self.program.process.wait()
        time.sleep(FAULT_SECONDS)
        self.start()


class Faults:
    """One fault after the other, until `stop`."""

    def __init__(self, redis: Server, upstream: Server, reload: Callable[[], None]):
        self.stopping = threading.Event()
        self.count = 0
        # How often Redis lost its data.
        self.losses = 0
        self.failure: Exception | None = None
        flush = [which("redis-cli"), "-p", str(redis.port), "SCRIPT", "FLUSH"]
        self.faults = [
            (redis.pause, 0),
            (upstream.pause, 0),
            (lambda: subprocess.run(flush, check=True, capture_output=True), 0),
            (upstream.kill, 0),
            (redis.kill, 1),
        ]
        self.reload = reload
        self.thread = threading.Thread(target=self.run, daemon=True)

    def start(self) -> None:
        self.thread.start()

    def stop(self) -> None:
        self.stopping.set()
        self.thread.join(60)
        if self.failure:
            raise self.failure

    def run(self) -> None:
        try:
            while not self.stopping.wait(EVERY_SECONDS):
                fault, losses = self.faults[self.count % len(self.faults)]
                self.losses += losses
                self.count += 1
                fault()
                self.reload()
        except Exception as failure:  # noqa: BLE001 - `stop` raises it
            self.failure = failure
