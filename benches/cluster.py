#!/usr/bin/env python3
"""Prints what a check costs in a Redis Cluster, beside one Redis: calls and CPU time of Redis for a request.

    make bench-cluster            # or: benches/cluster.py target/release/tollgate

A gateway gets requests for some seconds, from 3,600 clients at random. Each request has the limits of one of these rows:
of its client alone, or also of its route and of everybody, which lie in other slots. CPU time is that of all Redis
processes, less what they take while idle.
"""

import os
import subprocess
import sys
import time

import provenance
from kinds import DEMO, LUA, Processes, checks, cpu_seconds, free_port, redis_cli, wait_for

SECONDS = 4
CLIENTS = 3_600
CONNECTIONS = 256

RULES = {
    "its client": '[rules.r]\nper = ["header:x-id"]\nrate = "1000000/s"\n',
    "client, route, everybody": '[rules.r]\nper = ["header:x-id"]\nrate = "1000000/s"\n'
    '[rules.route]\nper = ["route"]\nrate = "1000000/s"\n[rules.all]\nper = []\nrate = "1000000/s"\n',
}

# Number of masters, and hash tags of all buckets: 0 for one of each client. No masters: one Redis without a cluster.
SETUPS = [(0, None), (1, 0), (1, 6), (3, 0), (3, 3), (3, 6), (3, 12), (3, 64), (6, 0), (6, 6), (6, 24), (6, 64)]


class Setup(Processes):
    """A gateway, and Redis."""

    def __init__(self, program, masters, lanes, rules):
        super().__init__()
        self.http, self.admin = free_port(), free_port()
        self.redis = []
        for number in range(max(masters, 1)):
            port = free_port()
            folder = os.path.join(self.folder.name, str(number))
            os.mkdir(folder)
            command = ["redis-server", "--port", str(port), "--save", "", "--dir", folder]
            if masters:
                command += ["--cluster-enabled", "yes", "--cluster-port", str(free_port())]
            self.run(command)
            self.redis.append(port)
        for port in self.redis:
            wait_for(port)
        addresses = [f"127.0.0.1:{port}" for port in self.redis]
        if masters:
            self.create(addresses)
        url = f"redis+cluster://{','.join(addresses)}" if masters else f"redis://{addresses[0]}"
        lines = "" if lanes is None else f"lanes = {lanes}\n"
        settings = f'[redis]\nurl = "{url}"\ntimeout = "1s"\n{lines}{DEMO}{rules}'
        self.gateway(program, (self.http, self.admin), settings)
        time.sleep(1)

    def create(self, addresses):
        """Creates the cluster."""
        if len(addresses) >= 3:
            command = ["redis-cli", "--cluster", "create", *addresses, "--cluster-yes"]
            subprocess.run(command, check=True, capture_output=True)
        else:
            redis_cli(self.redis[0], "CLUSTER", "ADDSLOTSRANGE", "0", "16383")
        while any("cluster_state:ok" not in redis_cli(port, "CLUSTER", "INFO") for port in self.redis):
            time.sleep(0.1)

    def load(self):
        script = os.path.join(self.folder.name, "load.lua")
        with open(script, "w", encoding="utf-8") as lua:
            lua.write(LUA.replace("{distinct}", "true").replace("{clients}", str(CLIENTS)))
        url = f"http://127.0.0.1:{self.http}/"
        command = ["wrk", "-t1", f"-c{CONNECTIONS}", f"-d{SECONDS}s", "-s", script, url]
        subprocess.run(command, check=True, capture_output=True)

    def cpu(self):
        return sum(cpu_seconds(port) for port in self.redis)

    def calls(self):
        """Calls of the script that clients have made."""
        stats = "".join(redis_cli(port, "INFO", "commandstats") for port in self.redis).splitlines()
        ours = [line for line in stats if line.startswith(("cmdstat_evalsha:", "cmdstat_eval:"))]
        return sum(int(line.split("calls=")[1].split(",")[0]) for line in ours)

    def measure(self, rules):
        """Calls and microseconds of Redis' CPU for a request, and requests a second."""
        self.load()
        cpu, calls, requests, begun = self.cpu(), self.calls(), checks(self.admin), time.monotonic()
        self.load()
        requests = (checks(self.admin) - requests) / rules
        cpu, calls, took = self.cpu() - cpu, self.calls() - calls, time.monotonic() - begun
        idle = self.cpu()
        time.sleep(2)
        idle = (self.cpu() - idle) / 2
        requests = max(requests, 1)
        return calls / requests, 1e6 * max(cpu - idle * took, 0) / requests, requests / took


def main():
    program = sys.argv[1] if len(sys.argv) > 1 else "target/release/tollgate"
    print(f"{provenance.line()}\n")
    print("| limits of a request | masters | `lanes` | calls a request | Redis CPU a request | beside one Redis | requests/s |")
    print("| --- | --- | --- | ---: | ---: | ---: | ---: |")
    for name, rules in RULES.items():
        one = None
        for masters, lanes in SETUPS:
            with Setup(program, masters, lanes, rules) as setup:
                calls, cpu, rate = setup.measure(rules.count("[rules."))
            one = one or cpu
            where = str(masters) if masters else "one Redis"
            shown = "" if lanes is None else str(lanes)
            print(f"| {name} | {where} | {shown} | {calls:.3f} | {cpu:.1f} µs | {cpu / one:.2f} | {rate:,.0f} |", flush=True)


if __name__ == "__main__":
    main()
