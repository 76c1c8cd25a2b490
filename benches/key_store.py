#!/usr/bin/env python3
"""Shows that the key store does not slow down with the number of clients: what docs/keys.md says of a million.

    make bench-keys             # or: benches/key_store.py target/release/tollgate [CLIENTS [GUESSES]] [--only PART]

A Redis server of its own gets the clients by `tollgate keys import`, from CSV. Then: times of start and reload beside
those with an empty store, memory of Redis and of the gateway with full caches, calls of Redis for keys that are looked
up, latencies of a stored key and of one of the file, and a flood of unknown keys. It needs redis-server and wrk.
`--only latency` and `--only flood` measure that alone.
"""

import argparse
import hashlib
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request

import provenance
from kinds import free_port, wait_for

ROUNDS = 5
SECONDS = 4
# Many short ones beside each other: other programs of the machine differ more than the keys.
LATENCY_ROUNDS = 15
LATENCY_SECONDS = 2
# Seconds after which a flood ends that has not sent all.
MOST_FLOOD = 900
CONNECTIONS = 64
# While one call of Redis has the keys of 64 requests, as many wait for the next one.
FLOOD_CONNECTIONS = 128
# Seconds between two measurements of a known client, which takes processor time from the guesses.
FLOOD_PAUSE = 12
CACHE = 100_000

CONFIG = """
[server]
listen = ["127.0.0.1:0"]
admin = "127.0.0.1:0"
threads = 1
limits.max_requests_per_connection = 0
limits.max_connections_per_ip = 100000
[redis]
url = "redis://127.0.0.1:{port}"
[key_store]
url = "redis"
cache = {cache}
[plans.free]
[keys.of-the-file]
sha256 = "{digest}"
plan = "free"
[upstreams.demo]
servers = ["demo"]
[routes.all]
path = "/*"
upstream = "demo"
"""

# Threads of wrk have numbers, so that no two send the same key.
EACH = """
local number = 0
local thread = 0
function setup(it) it:set("first", thread) thread = thread + 1 end
function request()
  local key = "{prefix}" .. (first + number * {threads})
  number = number + 1
  return wrk.format("GET", "/", {{ ["X-Api-Key"] = key }})
end
"""
ONE = """function request() return wrk.format("GET", "/", {{ ["X-Api-Key"] = "{key}" }}) end"""


def digest(text):
    return hashlib.sha256(text.encode()).hexdigest()


class Redis:
    def __init__(self, folder):
        self.port = free_port()
        command = ["redis-server", "--port", str(self.port), "--save", "", "--dir", folder]
        self.process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        wait_for(self.port)

    def info(self, section, name):
        command = ["redis-cli", "-p", str(self.port), "INFO", section]
        text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        found = re.search(rf"^{name}:(\S+)", text, re.M)
        return found.group(1) if found else ""

    def memory(self):
        return int(self.info("memory", "used_memory"))

    def evals(self):
        found = re.search(r"calls=(\d+)", self.info("commandstats", "cmdstat_eval"))
        return int(found.group(1)) if found else 0


class Gateway:
    def __init__(self, program, folder, redis, cache=CACHE):
        self.file = os.path.join(folder, "gateway.toml")
        with open(self.file, "w", encoding="utf-8") as file:
            file.write(CONFIG.format(port=redis.port, cache=cache, digest=digest("of-the-file")))
        began = time.monotonic()
        self.log = open(os.path.join(folder, "log"), "w+", encoding="utf-8")
        self.process = subprocess.Popen([program, "run", "-c", self.file], stderr=self.log)
        self.admin = self.address("admin port on")
        self.url = self.address("listening on")
        self.wait(lambda: self.get("/ready").startswith("ready"))
        self.start_s = time.monotonic() - began

    def wait(self, check):
        for _ in range(2_000):
            try:
                found = check()
                if found:
                    return found
            except OSError:
                pass
            time.sleep(0.005)
        raise TimeoutError(self.process.args)

    def address(self, words):
        def find():
            with open(self.log.name, encoding="utf-8") as log:
                return re.search(rf"{words} (http:\S+)", log.read())

        return self.wait(find).group(1)

    def get(self, path):
        with urllib.request.urlopen(self.admin + path, timeout=10) as response:
            return response.read().decode()

    def reload_s(self):
        with open(self.file, "a", encoding="utf-8") as file:
            file.write("# changed\n")
        began = time.monotonic()
        urllib.request.urlopen(self.admin + "/api/reload", data=b"", timeout=10).close()
        return time.monotonic() - began

    def rss(self):
        with open(f"/proc/{self.process.pid}/status", encoding="utf-8") as status:
            return int(re.search(r"VmRSS:\s+(\d+)", status.read()).group(1)) * 1024

    def lookups(self):
        found = re.findall(r'tollgate_key_lookups_total\{result="(\w+)"\} (\d+)', self.get("/metrics"))
        return {name: int(count) for name, count in found}

    def cached(self):
        return json.loads(self.get("/api/status"))["key_store"]

    def stop(self):
        self.process.kill()
        self.process.wait()


def wrk(gateway, script, seconds, connections=CONNECTIONS, threads=1):
    """Requests a second, and latencies in milliseconds by percentile."""
    with tempfile.NamedTemporaryFile("w", suffix=".lua") as file:
        file.write(script)
        file.flush()
        command = ["wrk", f"-t{threads}", f"-c{connections}", f"-d{seconds}s", "--latency", "-s", file.name]
        text = subprocess.run([*command, gateway.url], capture_output=True, text=True, check=True).stdout
    units = {"us": 0.001, "ms": 1, "s": 1_000}
    latency = {
        int(float(percent)): float(value) * units[unit]
        for percent, value, unit in re.findall(r"^\s+([\d.]+)%\s+([\d.]+)(us|ms|s)$", text, re.M)
    }
    return float(re.search(r"Requests/sec:\s+([\d.]+)", text).group(1)), latency


def write_csv(path, count):
    with open(path, "w", encoding="utf-8") as file:
        file.write("id,plan,sha256\n")
        for number in range(count):
            file.write(f"client-{number},free,{digest(f'secret-{number}')}\n")


def imported(program, gateway, path):
    """Seconds that `tollgate keys import` takes."""
    began = time.monotonic()
    command = [program, "keys", "import", path, "--admin", gateway.admin]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    print(f"  {done.stdout.strip() or done.stderr.strip()}")
    return time.monotonic() - began


def until_cached(gateway, prefix, what, count):
    """Sends requests with one key after the other until the cache is full. wrk begins with the first key each time."""
    for seconds in (5, 10, 20, 40):
        wrk(gateway, EACH.format(prefix=prefix, threads=1), seconds)
        if gateway.cached()[what] >= count:
            return


def starts_and_reloads(program, folder, redis, what):
    starts, reloads = [], []
    for _ in range(ROUNDS):
        gateway = Gateway(program, folder, redis)
        starts.append(gateway.start_s)
        reloads.extend(gateway.reload_s() for _ in range(3))
        gateway.stop()
    start_ms, reload_ms = statistics.median(starts) * 1_000, statistics.median(reloads) * 1_000
    print(f"{what}: ready after {start_ms:.0f} ms, reload in {reload_ms:.0f} ms")


def misses(gateway, redis):
    before, evals = gateway.lookups(), redis.evals()
    began = time.monotonic()
    wrk(gateway, EACH.format(prefix="secret-", threads=1), SECONDS)
    took = time.monotonic() - began
    found = gateway.lookups()["found"] - before["found"]
    calls = redis.evals() - evals
    print(f"misses: {found} keys found in {took:.1f} s by {calls} calls, {calls / max(found, 1):.3f} for each")


def latencies(gateway):
    differences = []
    for number in range(LATENCY_ROUNDS):
        order = ["of-the-file", "secret-7"] if number % 2 == 0 else ["secret-7", "of-the-file"]
        p99 = {}
        for key in order:
            wrk(gateway, ONE.format(key=key), 1)
            rate, latency = wrk(gateway, ONE.format(key=key), LATENCY_SECONDS)
            p99[key] = latency[99]
            print(f"  {key}: {rate:.0f} requests/s, p50 {latency[50]:.2f} ms, p99 {latency[99]:.2f} ms")
        differences.append(p99["secret-7"] - p99["of-the-file"])
    low, middle, high = statistics.quantiles(differences)
    print(
        f"p99 of a stored key beyond that of a key of the file: median {middle:+.2f} ms, half of the rounds from "
        f"{low:+.2f} to {high:+.2f} ms"
    )


def flood(gateway, redis, guesses):
    before, evals, rss = gateway.lookups(), redis.evals(), gateway.rss()
    _, quiet = wrk(gateway, ONE.format(key="secret-7"), SECONDS, 4)
    began, sent, refused, seconds, p99 = time.monotonic(), 0, 0, 0, []
    with tempfile.NamedTemporaryFile("w", suffix=".lua") as file:
        file.write(EACH.format(prefix=f"guess-{os.getpid()}-", threads=1))
        file.flush()
        command = ["wrk", "-t1", f"-c{FLOOD_CONNECTIONS}", "-d1200s", "-s", file.name, gateway.url]
        guessing = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        while sent < guesses and time.monotonic() - began < MOST_FLOOD:
            _, latency = wrk(gateway, ONE.format(key="secret-7"), SECONDS, 4)
            p99.append(latency[99])
            time.sleep(FLOOD_PAUSE)
            after = gateway.lookups()
            sent = sum(after[name] - before[name] for name in ("unknown", "failed", "cached_unknown"))
        guessing.kill()
        guessing.wait()
    seconds = time.monotonic() - began
    after = gateway.lookups()
    refused = after["failed"] - before["failed"]
    calls = redis.evals() - evals
    print(
        f"flood: {sent} guesses in {seconds:.0f} s ({refused} got 503), {calls / seconds:.0f} calls of Redis a second; "
        f"{gateway.cached()['cached_unknown']} unknown keys in memory; memory {rss / 1e6:.0f} MB before, "
        f"{gateway.rss() / 1e6:.0f} MB after; p99 of a known client {quiet[99]:.2f} ms before, "
        f"{statistics.median(p99):.2f} ms meanwhile (4 connections)"
    )


def main():
    arguments = argparse.ArgumentParser()
    arguments.add_argument("program", type=os.path.abspath)
    arguments.add_argument("clients", nargs="?", type=int, default=1_000_000)
    arguments.add_argument("guesses", nargs="?", type=int, default=500_000)
    arguments.add_argument("--only", choices=["latency", "flood"])
    arguments = arguments.parse_args()
    program, clients, only = arguments.program, arguments.clients, arguments.only
    print(provenance.line())
    with tempfile.TemporaryDirectory() as folder:
        redis = Redis(folder)
        try:
            if only is None:
                starts_and_reloads(program, folder, redis, "empty store")
            gateway = Gateway(program, folder, redis)
            for count in sorted({min(100_000, clients), clients}):
                path = os.path.join(folder, f"{count}.csv")
                write_csv(path, count)
                took = imported(program, gateway, path)
                print(f"import of {count} clients: {took:.0f} s, {count / took:.0f} a second")
            print(f"Redis: {redis.memory() / 1e6:.0f} MB, {redis.memory() / clients:.0f} bytes a client")
            gateway.stop()
            if only is None:
                starts_and_reloads(program, folder, redis, f"{clients} clients")
            gateway = Gateway(program, folder, redis)
            empty = gateway.rss()
            if only is None:
                misses(gateway, redis)
            until_cached(gateway, "secret-", "cached", min(CACHE, clients) * 0.98)
            full = gateway.rss()
            cached = gateway.cached()["cached"]
            print(f"memory: {empty / 1e6:.0f} MB, {full / 1e6:.0f} MB with {cached} known keys in memory")
            if only != "flood":
                latencies(gateway)
            if only != "latency":
                flood(gateway, redis, arguments.guesses)
            gateway.stop()
        finally:
            redis.process.kill()
            redis.process.wait()


if __name__ == "__main__":
    main()
