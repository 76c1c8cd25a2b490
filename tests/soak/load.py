"""The traffic: HTTP/1.1, HTTP/2 and WebSockets, in clear and over TLS, and clients that break off."""

import asyncio
import random
import socket
import ssl
import subprocess
import threading
from pathlib import Path

from peers.processes import which
from websockets.asyncio.client import connect

# Seconds of one run of h2load; then it connects anew.
ROUND_SECONDS = 10

# Name, options of h2load, whether over TLS. Each has two connections of 10 requests a second.
KINDS = [
    ("http1 clear", ["--h1"], False),
    ("http1 tls", ["--h1"], True),
    ("http2 clear", ["-m4"], False),
    ("http2 tls", ["-m4"], True),
]


class Load:
    """All clients, from `start` to `stop`."""

    def __init__(self, folder: Path, clear: int, tls: int):
        self.folder, self.clear, self.tls = folder, clear, tls
        self.stopping = threading.Event()
        self.threads: list[threading.Thread] = []
        (folder / "upload").write_bytes(random.randbytes(50_000))

    def start(self) -> None:
        self.stopping.clear()
        jobs = [lambda kind=kind: self.h2load(kind) for kind in KINDS]
        jobs += [lambda: asyncio.run(self.websockets()), self.aborting]
        self.threads = [threading.Thread(target=job, daemon=True) for job in jobs]
        for thread in self.threads:
            thread.start()

    def stop(self) -> None:
        self.stopping.set()
        for thread in self.threads:
            thread.join(ROUND_SECONDS + 20)
            if thread.is_alive():
                raise SystemExit("error: a client does not end")

    def h2load(self, kind: tuple) -> None:
        """Alternates requests that are limited, that are not, and uploads."""
        _, options, over_tls = kind
        origin = f"https://127.0.0.1:{self.tls}" if over_tls else f"http://127.0.0.1:{self.clear}"
        variants = [
            [f"{origin}/limited/a"],
            [f"{origin}/free/a", f"{origin}/free/b"],
            ["-d", str(self.folder / "upload"), f"{origin}/free/upload"],
        ]
        number = 0
        while not self.stopping.is_set():
            command = [which("h2load"), *options, "-c2", "--rps=10", f"-D{ROUND_SECONDS}"]
            command += variants[number % len(variants)]
            # A client that stalls on a fault is ended.
            process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            try:
                process.wait(ROUND_SECONDS + 10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            number += 1

    async def websockets(self) -> None:
        """Four WebSockets at a time, over TLS, each with ten messages."""
        context = ssl.create_default_context()
        # The certificate is self-signed.
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE

        async def talk() -> None:
            while not self.stopping.is_set():
                try:
                    url = f"wss://127.0.0.1:{self.tls}/socket"
                    async with connect(url, ssl=context, proxy=None, open_timeout=5) as client:
                        for number in range(10):
                            await client.send(f"message {number}")
                            await asyncio.wait_for(client.recv(), 5)
                            await asyncio.sleep(0.3)
                except Exception:  # noqa: BLE001 - any failure of a client is an expected effect of a fault
                    await asyncio.sleep(0.5)

        await asyncio.gather(*(talk() for _ in range(4)))

    def aborting(self) -> None:
        """Half requests, half handshakes, responses that are not read, one each fifth of a second."""
        begun = [
            (self.clear, b"GET /free/a HTTP/1.1\r\nHost: a\r\nX-Part"),
            (self.clear, b"POST /free/upload HTTP/1.1\r\nHost: a\r\nContent-Length: 100\r\n\r\nhalf"),
            (self.clear, b"GET /free/large HTTP/1.1\r\nHost: a\r\n\r\n"),
            (self.tls, b"\x16\x03\x01\x02\x00\x01"),
            (self.clear, b"PRI * HTTP/2.0\r\n\r\nSM\r\n"),
            (self.clear, b"\x00garbage\r\n\r\n"),
        ]
        number = 0
        while not self.stopping.wait(0.2):
            port, sent = begun[number % len(begun)]
            try:
                with socket.create_connection(("127.0.0.1", port), 2) as client:
                    client.sendall(sent)
                    self.stopping.wait(0.05)
            except OSError:
                pass
            number += 1
