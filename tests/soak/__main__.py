"""Runs the soak: `PYTHONPATH=benches:tests python -m soak PROGRAM [--seconds N]`.

The gateway stands between clients (`load`) and nginx with Redis, while faults (`faults`) come by turns. At a
rest after the warm-up and at the end, it is compared with itself and with the upstream's log (`judge`).
"""

import argparse
import json
import os
import re
import sys
import tempfile
import time
import urllib.request
from collections import Counter
from pathlib import Path

from peers.processes import Program

from conformance.servers import certificate, free_port

from . import judge
from .faults import Faults, Server
from .load import Load

BURST, PER_SECOND = 50, 20

# Longer than idle connections stay open, those with the upstream included.
REST_SECONDS = 30

# Share of the run before the first rest.
WARM_UP = 0.2

# Of /proc/net/tcp.
TCP_STATES = {"01": "established", "08": "half-closed", "0A": "listening"}

CONFIGURATION = """[server]
admin = "127.0.0.1:{admin}"
keepalive_timeout = "3s"
read_timeout = "3s"
instances = 1
[server.limits]
head_timeout = "2s"
handshake_timeout = "2s"
[[listeners]]
address = "127.0.0.1:{clear}"
http2 = true
[[listeners]]
address = "127.0.0.1:{tls}"
certificates = [{{ cert = "{cert}", key = "{key}" }}]
[redis]
url = "redis://127.0.0.1:{redis}"
[access_log]
output = "{folder}/access.log"
fields = ["id", "status", "server", "decision", "route"]
[plans.free]
[rules.limited]
per = ["ip"]
routes = ["limited"]
rate = "{rate}/s"
burst = {burst}
[rules.other]
per = ["route"]
routes = ["free"]
rate = "{other}/s"
[upstreams.api]
servers = ["127.0.0.1:{api}"]
read_timeout = "3s"
idle_timeout = "3s"
[upstreams.echo]
servers = ["127.0.0.1:{echo}"]
idle_timeout = "3s"
[routes.limited]
path = "/limited/*"
upstream = "api"
[routes.free]
path = "/free/*"
upstream = "api"
[routes.socket]
path = "/socket"
upstream = "echo"
"""

# An upload is proxied to a second server, because nginx reads a body only for that.
NGINX = """daemon off; worker_processes 1; pid {folder}/nginx.pid; error_log stderr;
events {{ worker_connections 1024; }}
http {{
  log_format ids "$http_x_request_id";
  access_log {folder}/nginx.ids ids;
  client_body_temp_path {folder}/body; proxy_temp_path {folder}/proxy;
  fastcgi_temp_path {folder}/fastcgi; uwsgi_temp_path {folder}/uwsgi; scgi_temp_path {folder}/scgi;
  server {{
    listen 127.0.0.1:{api};
    location = /free/large {{ alias {folder}/large; }}
    location = /free/upload {{ proxy_pass http://127.0.0.1:{reader}; }}
    location / {{ return 200 "hello\\n"; }}
  }}
  server {{
    listen 127.0.0.1:{reader};
    access_log off;
    location / {{ return 200 "read\\n"; }}
  }}
}}
"""


class Soak:
    """The programs of one run."""

    def __init__(self, program: str, folder: Path):
        self.program, self.folder = program, folder
        ports = ["admin", "clear", "tls", "redis", "api", "reader", "echo"]
        self.ports = {name: free_port() for name in ports}
        self.cert, self.key = certificate(folder)
        self.other = 5_000
        # Workers of nginx have another user if the run's is root.
        folder.chmod(0o755)
        (folder / "large").write_bytes(b"x" * 2_000_000)
        (folder / "nginx.conf").write_text(NGINX.format(folder=folder, **self.ports))
        self.file = folder / "gateway.toml"
        self.write()

    def start(self) -> None:
        ports, folder = self.ports, self.folder
        redis = ["redis-server", "--port", str(ports["redis"]), "--save", "", "--dir", str(folder)]
        self.redis = Server([*redis, "--bind", "127.0.0.1"], folder, "redis", ports["redis"])
        self.nginx = Server(["nginx", "-c", f"{folder}/nginx.conf", "-p", str(folder), "-e", "stderr"], folder, "nginx", ports["api"])
        echo = [sys.executable, str(Path(__file__).parent / "echo.py"), str(ports["echo"]), str(folder / "echo.ids")]
        self.echo = Server(echo, folder, "echo", ports["echo"])
        self.gateway = Program([self.program, "run", "-c", str(self.file)], folder / "gateway.log")
        self.gateway.wait_for(ports["clear"])

    def stop(self) -> None:
        for program in (self.gateway, self.redis.program, self.nginx.program, self.echo.program):
            program.stop()

    def write(self) -> None:
        """Writes the file, each time with another rate of a rule that never refuses."""
        self.other += 1
        rate = {"rate": PER_SECOND, "burst": BURST, "other": self.other}
        new = self.folder / "gateway.toml.new"
        paths = {"cert": self.cert, "key": self.key, "folder": self.folder}
        new.write_text(CONFIGURATION.format(**self.ports, **rate, **paths))
        new.rename(self.file)

    def metrics(self) -> list[tuple[str, str, float]]:
        """Name, labels and value of each series."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self.ports['admin']}/metrics", timeout=10) as page:
            text = page.read().decode()
        series = re.findall(r"^(\w+)(?:\{(.*)\})? (\S+)$", text, re.MULTILINE)
        return [(name, labels, float(value)) for name, labels, value in series]

    def total(self, name: str, label: str = "") -> float:
        return sum(value for series, labels, value in self.metrics() if series == name and label in labels)

    def sample(self, at_s: float) -> judge.Sample:
        process = Path(f"/proc/{self.gateway.process.pid}")
        if self.gateway.process.poll() is not None:
            self.gateway.fail("has ended")
        pages = int((process / "statm").read_text().split()[1])
        resident_kb = pages * os.sysconf("SC_PAGE_SIZE") // 1024
        return judge.Sample(at_s, resident_kb, len(os.listdir(process / "fd")))

    def descriptors(self) -> Counter[str]:
        """What the process has open: files by kind or name, connections by the server or listener."""
        process = Path(f"/proc/{self.gateway.process.pid}")
        names = {port: name for name, port in self.ports.items()}
        sockets = {}
        for line in (process / "net/tcp").read_text().splitlines()[1:]:
            fields = line.split()
            local, remote = (int(fields[index].split(":")[1], 16) for index in (1, 2))
            state = TCP_STATES.get(fields[3], fields[3])
            sockets[fields[9]] = f"{state} connection with {names.get(remote) or names.get(local, 'others')}"
        found = Counter()
        for link in (process / "fd").iterdir():
            target = os.readlink(link)
            inode = re.fullmatch(r"socket:\[(\d+)\]", target)
            found[sockets.get(inode[1], "socket") if inode else target.partition(":")[0]] += 1
        return found

    def upstream_ids(self) -> list[str]:
        """The ids of requests that nginx and the WebSocket server have logged."""
        ids = []
        for file in self.folder.glob("*.ids"):
            ids += file.read_text().split()
        return ids


def run(soak: Soak, seconds: float) -> list[judge.Finding]:
    """Runs the load and the faults, and compares."""
    load = Load(soak.folder, soak.ports["clear"], soak.ports["tls"])
    warm_up = max(seconds * WARM_UP, 30)
    progress("warming up", warm_up)
    begun = time.monotonic()
    load.start()
    faults = Faults(soak.redis, soak.nginx, soak.write)
    time.sleep(warm_up)
    load.stop()
    time.sleep(REST_SECONDS)
    before = soak.descriptors()
    progress("load and faults", seconds)
    load.start()
    faults.start()
    samples, start = [], time.monotonic()
    while (at_s := time.monotonic() - start) < seconds:
        samples.append(soak.sample(at_s))
        if len(samples) % 60 == 0:
            last = samples[-1]
            text = f"{at_s:.0f} s: {last.resident_kb:,} KB, {last.descriptors} descriptors, {faults.count} faults"
            print(text, flush=True)
        time.sleep(1)
    faults.stop()
    load.stop()
    took = time.monotonic() - begun
    time.sleep(REST_SECONDS)
    after = soak.descriptors()
    gauges = ["tollgate_requests_in_flight", "tollgate_client_connections_open"]
    gauges = {name: soak.total(name) for name in gauges}
    counted = soak.total("tollgate_requests_total")
    dropped = soak.total("tollgate_access_log_dropped_total")
    rejected_reloads = soak.total("tollgate_config_reloads_total", "rejected")
    soak.stop()
    with (soak.folder / "access.log").open() as lines:
        log = [json.loads(line) for line in lines]
    allowed = sum(line["route"] == "limited" and line["decision"] == "allow" for line in log)
    print(f"{len(log):,} requests, {faults.count} faults, {faults.losses} losses of data", flush=True)
    return [
        judge.memory(samples),
        *judge.at_rest(before, after, gauges),
        *judge.requests(log, soak.upstream_ids(), counted, dropped, soak.nginx.starts - 1),
        judge.limit(allowed, BURST, PER_SECOND, took, faults.losses),
        judge.Finding("each reload is applied", f"{rejected_reloads:g} rejected", rejected_reloads == 0),
    ]


def progress(what: str, seconds: float) -> None:
    print(f"{what}: {seconds:.0f} s", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(prog="soak", description=__doc__)
    parser.add_argument("program")
    parser.add_argument("--seconds", type=float, default=3_600, help="of the run, after the warm-up")
    parser.add_argument("--keep", type=Path, help="a folder for logs, which is kept")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = arguments.keep or Path(temporary)
        folder.mkdir(exist_ok=True)
        soak = Soak(os.path.abspath(arguments.program), folder)
        soak.start()
        findings = run(soak, arguments.seconds)
    for finding in findings:
        print(f"{'holds' if finding.holds else 'FAILS'}: {finding.what}: {finding.measured}")
    if not all(finding.holds for finding in findings):
        sys.exit(1)


main()
