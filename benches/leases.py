#!/usr/bin/env python3
"""Measures leases of a bucket that every request of three gateways asks, and counts what reaches the upstream.

    make bench-leases           # or: benches/leases.py target/release/tollgate

Three gateways share a Redis; each gets requests over 64 connections for some seconds. First, with a limit that they do
not reach: calls to Redis and its CPU time for a request. Then with a limit that they exceed: the upstream counts the
requests that it gets, at most burst + rate * time.
"""

import os
import re
import subprocess
import sys
import time
import urllib.request

import provenance
from kinds import Processes, free_port, wait_for

SECONDS = 8
GATEWAYS = 3
CONNECTIONS = 64

NGINX = """
daemon off; master_process off; pid {folder}/nginx.pid; error_log {folder}/error.log;
events {{ worker_connections 4096; }}
http {{
  access_log off; keepalive_requests 1000000000;
  client_body_temp_path {folder}; proxy_temp_path {folder}; fastcgi_temp_path {folder};
  uwsgi_temp_path {folder}; scgi_temp_path {folder};
  server {{
    listen 127.0.0.1:{port}; keepalive_timeout 600s;
    location = /status {{ stub_status; }}
    location / {{ return 200 "ok"; }}
  }}
}}
"""


def fetch(url):
    with urllib.request.urlopen(url) as answer:
        return answer.read().decode()


class Setup(Processes):
    """Three gateways with one rule, their upstream, and Redis."""

    def __init__(self, program, settings, servers=None):
        super().__init__()
        self.redis, self.upstream = free_port(), free_port()
        redis = ["redis-server", "--port", str(self.redis), "--save", "", "--dir", self.folder.name]
        self.run(redis)
        with open(os.path.join(self.folder.name, "nginx.conf"), "w", encoding="utf-8") as config:
            config.write(NGINX.format(folder=self.folder.name, port=self.upstream))
        self.run(["nginx", "-c", config.name])
        wait_for(self.redis)
        wait_for(self.upstream)
        self.servers = servers or f"127.0.0.1:{self.upstream}"
        self.gateways = [self.start(program, settings) for _ in range(GATEWAYS)]

    def start(self, program, settings):
        """Starts one of the gateways."""
        http, admin = free_port(), free_port()
        settings = (
            f'[redis]\nurl = "redis://127.0.0.1:{self.redis}"\ntimeout = "1s"\n'
            f'[upstreams.counted]\nservers = ["{self.servers}"]\n'
            f'[routes.all]\npath = "/*"\nupstream = "counted"\n[rules.r]\nper = []\n{settings}\n'
        )
        child = self.gateway(program, (http, admin), settings, f"instances = {GATEWAYS}\n")
        return child, http, admin

    def info(self, section):
        command = ["redis-cli", "-p", str(self.redis), "INFO", section]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout

    def cpu_seconds(self):
        return sum(map(float, re.findall(r"used_cpu_(?:user|sys):([0-9.]+)", self.info("cpu"))))

    def calls(self):
        """Calls of all gateways for checks and leases."""
        name = r"^tollgate_redis_calls_total{.*} (\d+)"
        pages = [fetch(f"http://127.0.0.1:{admin}/metrics") for _, _, admin in self.gateways]
        return sum(int(number) for page in pages for number in re.findall(name, page, re.M))

    def upstream_requests(self):
        """Requests that the upstream got, without those of this function."""
        numbers = re.search(r"^ (\d+) (\d+) (\d+)", fetch(f"http://127.0.0.1:{self.upstream}/status"), re.M)
        self.looks = getattr(self, "looks", 0) + 1
        return int(numbers[3]) - self.looks

    def allowed(self):
        """Requests that the gateways allowed, by where they were decided."""
        sums = {}
        for _, _, admin in self.gateways:
            for line in fetch(f"http://127.0.0.1:{admin}/metrics").splitlines():
                found = re.match(r'tollgate_decisions_total{decision="allow".*source="(\w+)"} (\d+)', line)
                if found:
                    sums[found[1]] = sums.get(found[1], 0) + int(found[2])
        return sums

    def load(self, seconds, at_half=lambda: None):
        """Sends requests to all gateways at once. Returns their number."""
        commands = [
            ["wrk", "-t1", f"-c{CONNECTIONS}", f"-d{seconds}s", f"http://127.0.0.1:{http}/"]
            for _, http, _ in self.gateways
        ]
        running = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for command in commands]
        time.sleep(seconds / 2)
        at_half()
        texts = [child.communicate()[0] for child in running]
        return sum(int(found[1]) for text in texts if (found := re.search(r"(\d+) requests in", text)))


def below_the_limit(program, lease):
    settings = f'rate = "1000000/s"\nburst = 1000000\nlease = {lease}'
    # The upstream that is built in: it takes less of the machine.
    with Setup(program, settings, "demo") as setup:
        setup.load(2)
        cpu, calls = setup.cpu_seconds(), setup.calls()
        begun = time.monotonic()
        requests = setup.load(SECONDS)
        took = time.monotonic() - begun
        cpu, calls = setup.cpu_seconds() - cpu, setup.calls() - calls
        idle = setup.cpu_seconds()
        time.sleep(1)
        cpu -= (setup.cpu_seconds() - idle) * took
        print(
            f"| {lease} | {requests / took:,.0f}/s | {calls / requests:.5f} | {1e6 * max(cpu, 0) / requests:.2f} µs |",
            flush=True,
        )


def beyond_the_limit(program, rate, burst, lease, kill=False):
    settings = f'rate = "{rate}/s"\nburst = {burst}\nlease = {lease}'
    with Setup(program, settings) as setup:
        before = setup.upstream_requests()
        begun = time.monotonic()

        def at_half():
            if kill:
                setup.gateways[0][0].kill()

        setup.load(SECONDS, at_half)
        took = time.monotonic() - begun
        reached = setup.upstream_requests() - before
        bound = burst + rate * took
        if not kill:
            sources = setup.allowed()
        else:
            sources = {}
        print(
            f"| {rate}/s, burst {burst} | {lease}{', one gateway killed' if kill else ''} | {reached:,} | {bound:,.0f} | "
            f"{max(reached - bound, 0):,.0f} | {100 * (1 - reached / bound):.2f} % | {sources} |",
            flush=True,
        )
        return reached <= bound


def main():
    program = sys.argv[1] if len(sys.argv) > 1 else "target/release/tollgate"
    print(f"{provenance.line()}\n")
    print("| lease | requests | calls to Redis a request | CPU of Redis a request |\n| --- | ---: | ---: | ---: |")
    for lease in ['"off"', '"auto"']:
        below_the_limit(program, lease)
    print("\n| limit | lease | reached the upstream | burst + rate * time | above | below | allowed by |")
    print("| --- | --- | ---: | ---: | ---: | ---: | --- |")
    runs = [(500, 2_000), (500, 500), (50, 50)]
    exact = [beyond_the_limit(program, rate, burst, lease) for rate, burst in runs for lease in ['"off"', '"auto"']]
    exact.append(beyond_the_limit(program, 500, 2_000, '"auto"', kill=True))
    if not all(exact):
        sys.exit("more requests reached the upstream than the limit allows")


if __name__ == "__main__":
    main()
