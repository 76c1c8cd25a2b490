"""What the conformance tests start: programs until the end, and a gateway with TLS."""

import atexit
import socket
import subprocess
import time
from pathlib import Path


def certificate(folder: Path) -> tuple[Path, Path]:
    """A self-signed certificate for localhost and 127.0.0.1, and its key."""
    cert, key = folder / "cert.pem", folder / "key.pem"
    command = [
        *["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"],
        *["-nodes", "-days", "90", "-subj", "/CN=localhost", "-keyout", key, "-out", cert],
        *["-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"],
    ]
    subprocess.run(command, check=True, capture_output=True)
    return cert, key


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def start(command: list, port: int, log: Path) -> None:
    """Starts a program and waits until it accepts connections. It ends with this process."""
    with log.open("wb") as out:
        process = subprocess.Popen(command, stdout=out, stderr=out, stdin=subprocess.DEVNULL)

    def stop() -> None:
        process.terminate()
        process.wait(10)

    atexit.register(stop)
    end = time.monotonic() + 30
    while process.poll() is None and time.monotonic() < end:
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
            return
        except OSError:
            time.sleep(0.05)
    raise SystemExit(f"error: {command[0]} did not start\n{log.read_text()}")


def gateway(program: str, folder: Path, upstream: str) -> tuple[int, int, Path]:
    """A gateway in front of `upstream`: its ports with TLS and in clear, both with HTTP/1.1 and HTTP/2,
    and its certificate."""
    cert, key = certificate(folder)
    tls, clear = free_port(), free_port()
    file = folder / "gateway.toml"
    file.write_text(
        f"""[server]
admin = "127.0.0.1:{free_port()}"
[[listeners]]
address = "127.0.0.1:{tls}"
certificates = [{{ cert = "{cert}", key = "{key}" }}]
[[listeners]]
address = "127.0.0.1:{clear}"
http2 = true
[plans.free]
[upstreams.api]
servers = ["{upstream}"]
[routes.all]
path = "/*"
"""
    )
    start([program, "run", "-c", file], tls, folder / "gateway.log")
    return tls, clear, cert
