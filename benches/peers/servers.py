"""The upstream, Redis, and the certificate of the listeners."""

import socket
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from .processes import Failure, Program, free_port, which

SMALL = '{"message":"a small answer of about eighty bytes, as APIs give one","ok":true}'
SIZES = {"1 KB": 1_000, "64 KB": 64_000, "1 MB": 1_000_000}


class Upstream:
    """nginx with one worker, which serves 78 bytes of JSON and files of several sizes."""

    def __init__(self, folder: Path, core: int):
        self.port = free_port()
        # If started by root, the worker runs as an unprivileged user.
        folder.chmod(0o755)
        bodies = folder / "bodies"
        bodies.mkdir()
        for name, size in SIZES.items():
            (bodies / path_of(name).lstrip("/")).write_bytes(b"x" * size)
        configuration = folder / "upstream.conf"
        configuration.write_text(
            f"""daemon off; worker_processes 1; pid {folder}/upstream.pid; error_log stderr crit;
events {{ worker_connections 4096; }}
http {{
    access_log off; keepalive_requests 1000000000; sendfile on; tcp_nopush on;
    open_file_cache max=10; default_type application/json;
    server {{
        listen 127.0.0.1:{self.port} backlog=1024; root {bodies};
        location = / {{ return 200 '{SMALL}'; }}
    }}
}}
"""
        )
        command = ["nginx", "-p", str(folder), "-c", str(configuration), "-e", "stderr"]
        self.program = Program(command, folder / "upstream.log", core)
        self.program.wait_for(self.port)


class Redis:
    """A Redis server, not bound to a core."""

    def __init__(
        self,
        folder: Path,
        port: int | None = None,
        options: Sequence[str] = (),
        environment: dict[str, str] | None = None,
    ):
        self.port = port or free_port()
        command = ["redis-server", "--port", str(self.port), "--bind", "127.0.0.1"]
        command += ["--save", "", "--appendonly", "no", "--dir", str(folder), *options]
        log = folder / f"redis-{self.port}.log"
        self.program = Program(command, log, environment=environment)
        self.program.wait_for(self.port)
        self.connect()

    def connect(self) -> None:
        self.connection = socket.create_connection(("127.0.0.1", self.port))
        self.answers = self.connection.makefile("rb")

    def ask(self, *words: str) -> bytes:
        """The reply to one command: a line or a bulk string."""
        request = f"*{len(words)}\r\n" + "".join(f"${len(word)}\r\n{word}\r\n" for word in words)
        self.connection.sendall(request.encode())
        line = self.answers.readline().rstrip()
        if line.startswith(b"-"):
            raise Failure(f"Redis answers {line.decode()} to {words[0]}")
        return self.answers.read(int(line[1:]) + 2) if line.startswith(b"$") else line[1:]

    def info(self, section: str) -> dict[str, str]:
        lines = self.ask("INFO", section).decode().splitlines()
        return dict(line.split(":", 1) for line in lines if ":" in line)

    def cpu_us(self) -> float:
        """User and system time so far."""
        cpu = self.info("cpu")
        return 1e6 * (float(cpu["used_cpu_user"]) + float(cpu["used_cpu_sys"]))

    def calls(self) -> int:
        """Number of script calls so far. Commands within scripts do not count."""
        stats = self.info("commandstats").items()
        scripts = [text for name, text in stats if name.startswith("cmdstat_eval")]
        return sum(int(text.split(",")[0].removeprefix("calls=")) for text in scripts)

    def forget(self) -> None:
        """Deletes all data and statistics; connections and scripts stay."""
        self.ask("FLUSHALL")


@dataclass(frozen=True)
class Certificate:
    """A self-signed ECDSA P-256 certificate, the same for all gateways."""

    cert: Path
    key: Path
    # Certificate and key in one file, for HAProxy.
    both: Path

    @classmethod
    def make(cls, folder: Path) -> "Certificate":
        certificate = cls(folder / "cert.pem", folder / "key.pem", folder / "both.pem")
        command = [
            *[which("openssl"), "req", "-x509", "-newkey", "ec", "-pkeyopt"],
            *["ec_paramgen_curve:P-256", "-nodes", "-days", "30", "-subj", "/CN=localhost"],
            *["-addext", "subjectAltName=DNS:localhost"],
            *["-keyout", str(certificate.key), "-out", str(certificate.cert)],
        ]
        subprocess.run(command, check=True, capture_output=True)
        texts = certificate.cert.read_text(), certificate.key.read_text()
        certificate.both.write_text("".join(texts))
        return certificate


def path_of(size: str) -> str:
    """The path of a body of that size."""
    return "/" + size.replace(" ", "")
