#!/usr/bin/env python3
"""Prints what each kind of limit costs in Redis: CPU time of the server for a check, and bytes of a key.

    make bench-kinds            # or: benches/kinds.py target/release/tollgate

For each kind, a gateway with one rule and a Redis server of its own get requests for some seconds: "hot", all of one
client, and "distinct", each of one of 3,600 clients at random. CPU time is that of the Redis process, less what it takes while idle.
"""

import os
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request

import provenance

SECONDS = 4
LARGE = 1_000_000_000
CLIENTS = 3_600

# A limit that no request reaches, of each kind, except that one client reaches 4,096 a second of the sliding window; and
# a limit that 100 requests use up.
KINDS = {
    "token_bucket": (f'rate = "{LARGE}/s"', 'rate = "100/d"'),
    "token_bucket by limit": (f'limit = "{LARGE}/h"\nburst = {LARGE // 2}', 'limit = "200/d"\nburst = 100'),
    "fixed_window": (f'kind = "fixed_window"\nlimit = "{LARGE}/d"', 'kind = "fixed_window"\nlimit = "100/d"'),
    "sliding_window": ('kind = "sliding_window"\nlimit = "4096/s"', 'kind = "sliding_window"\nlimit = "100/d"'),
    "leaky_bucket": (
        f'kind = "leaky_bucket"\nrate = "{LARGE // 100}/s"\nmax_delay = "1s"',
        'kind = "leaky_bucket"\nrate = "1/m"\nmax_delay = "1m"',
    ),
    "concurrency": ('kind = "concurrency"\nlimit = 100000', 'kind = "concurrency"\nlimit = 100'),
}

# One route for all paths, to the built-in responder.
DEMO = '[upstreams.demo]\nservers = ["demo"]\n[routes.all]\npath = "/*"\nupstream = "demo"\n'

LUA = """
function request()
  return wrk.format("GET", "/", { ["X-Id"] = {distinct} and tostring(math.random({clients})) or "1" })
end
"""


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def wait_for(port):
    for _ in range(500):
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
            return
        except OSError:
            time.sleep(0.02)
    sys.exit(f"nothing listens on port {port}")


def redis_cli(port, *words):
    command = ["redis-cli", "-p", str(port), *words]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def cpu_seconds(port):
    lines = redis_cli(port, "INFO", "cpu").splitlines()
    values = dict(line.split(":") for line in lines if ":" in line)
    return float(values["used_cpu_user"]) + float(values["used_cpu_sys"])


def checks(admin):
    with urllib.request.urlopen(f"http://127.0.0.1:{admin}/metrics") as answer:
        lines = answer.read().decode().splitlines()
    of_redis = (line for line in lines if line.startswith("tollgate_decisions_total") and 'source="redis"' in line)
    return sum(float(line.rsplit(" ", 1)[1]) for line in of_redis)


class Processes:
    """Processes with a temporary folder, which end with it."""

    def __init__(self):
        self.folder = tempfile.TemporaryDirectory()
        self.children = []

    def run(self, command):
        child = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self.children.append(child)
        return child

    def gateway(self, program, ports, settings, server=""):
        """Starts a gateway on these two ports, with one thread. `server` continues the table `[server]`."""
        http, admin = ports
        file = os.path.join(self.folder.name, f"gateway-{http}.toml")
        with open(file, "w", encoding="utf-8") as config:
            config.write(
                f'[server]\nlisten = ["127.0.0.1:{http}"]\nadmin = "127.0.0.1:{admin}"\nthreads = 1\n'
                f"limits.max_requests_per_connection = 0\n{server}[plans.free]\n{settings}"
            )
        child = self.run([program, "run", "-c", file])
        wait_for(http)
        return child

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for child in self.children:
            child.kill()
            child.wait()
        self.folder.cleanup()


class Setup(Processes):
    """A gateway with one rule, and Redis."""

    def __init__(self, program, settings):
        super().__init__()
        self.redis, self.http, self.admin = free_port(), free_port(), free_port()
        self.run(["redis-server", "--port", str(self.redis), "--save", "", "--dir", self.folder.name])
        wait_for(self.redis)
        settings = (
            f'[redis]\nurl = "redis://127.0.0.1:{self.redis}"\ntimeout = "1s"\n{DEMO}'
            f'[rules.r]\nper = ["header:x-id"]\n{settings}\n'
        )
        self.gateway(program, (self.http, self.admin), settings)

    def load(self, distinct):
        script = os.path.join(self.folder.name, "load.lua")
        with open(script, "w", encoding="utf-8") as lua:
            lua.write(LUA.replace("{distinct}", str(distinct).lower()).replace("{clients}", str(CLIENTS)))
        url = f"http://127.0.0.1:{self.http}/"
        command = ["wrk", "-t1", "-c32", f"-d{SECONDS}s", "-s", script, url]
        subprocess.run(command, check=True, capture_output=True)

    def cpu_us(self, distinct):
        """CPU time of Redis for a check, in microseconds."""
        self.load(distinct)
        before, begun, from_check = cpu_seconds(self.redis), time.monotonic(), checks(self.admin)
        self.load(distinct)
        used, count = cpu_seconds(self.redis) - before, checks(self.admin) - from_check
        took = time.monotonic() - begun
        idle = cpu_seconds(self.redis)
        time.sleep(1)
        idle = cpu_seconds(self.redis) - idle
        return 1e6 * max(used - idle * took, 0) / max(count, 1), count / took

    def bytes(self, requests):
        """Bytes of the value and of the whole key after some requests."""
        for _ in range(requests):
            request = urllib.request.Request(f"http://127.0.0.1:{self.http}/", headers={"X-Id": "1"})
            try:
                urllib.request.urlopen(request, timeout=0.05).close()
            except OSError:
                # A leaky bucket delays it, or it is refused.
                pass
        keys = [key for key in redis_cli(self.redis, "KEYS", "tollgate:*:r").split() if key]
        if not keys:
            return None
        return int(redis_cli(self.redis, "STRLEN", keys[0])), int(redis_cli(self.redis, "MEMORY", "USAGE", keys[0]))


def main():
    program = sys.argv[1] if len(sys.argv) > 1 else "target/release/tollgate"
    print(f"{provenance.line()}\n")
    print("| kind | Redis CPU, one client | Redis CPU, 3,600 clients | value after 100 requests | key with its value |")
    print("| --- | ---: | ---: | ---: | ---: |")
    for kind, (large, small) in KINDS.items():
        with Setup(program, large) as setup:
            hot, _ = setup.cpu_us(False)
        with Setup(program, large) as setup:
            distinct, _ = setup.cpu_us(True)
        with Setup(program, small) as setup:
            size = setup.bytes(100)
        size = f"{size[0]} B | {size[1]} B" if size else "none | none"
        print(f"| {kind} | {hot:.2f} µs | {distinct:.2f} µs | {size} |", flush=True)


if __name__ == "__main__":
    main()
