#!/usr/bin/env python3
"""Draws how the rate of a rule with `adapt` falls while an upstream is slow, and recovers, on two gateways with one Redis.

    make bench-adapting         # or: benches/adapting.py target/release/tollgate

The server takes 10 ms for a response, and from second 10 to 25 takes 300 ms. 100 requests a second are sent through each
gateway; the rule allows 200 a second for both together. The picture is docs/adaptive-rates.svg.
"""

import asyncio
import json
import sys
import time
import urllib.request
from pathlib import Path

import provenance
import svg
from kinds import Processes, free_port, wait_for

FAST, SLOW = 0.01, 0.3
FROM, UNTIL, END = 10, 25, 75
REQUESTS = 100
PICTURE = Path("docs/adaptive-rates.svg")
OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"

SETTINGS = """
[redis]
url = "redis://127.0.0.1:{redis}"
timeout = "1s"
[upstreams.api]
servers = ["127.0.0.1:{server}"]
[routes.all]
[rules.all]
per = []
rate = "200/s"
adapt = {{ upstream = "api", p99 = "100ms", floor = "20%" }}
"""


async def serve(port):
    """The server, which is slow for a time; its clock begins with its first request."""
    begun = None

    async def connection(reader, writer):
        nonlocal begun
        try:
            while await reader.readuntil(b"\r\n\r\n"):
                begun = begun or time.monotonic()
                await asyncio.sleep(SLOW if FROM <= time.monotonic() - begun < UNTIL else FAST)
                writer.write(OK)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(connection, "127.0.0.1", port, backlog=1000)
    await server.serve_forever()


async def send(port, start, allowed):
    """Requests at a steady rate, each on a connection that is kept."""
    idle, sent = [], []

    async def one():
        reader, writer = idle.pop() if idle else await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
        head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
        await reader.readexactly(int(head.split("content-length:")[1].split("\r\n")[0]))
        if head.split(" ")[1] == "200":
            allowed.append(time.monotonic() - start)
        idle.append((reader, writer))

    for number in range(REQUESTS * END):
        await asyncio.sleep(max(0, start + number / REQUESTS - time.monotonic()))
        sent.append(asyncio.create_task(one()))
    await asyncio.gather(*sent)


def share(admin):
    with urllib.request.urlopen(f"http://127.0.0.1:{admin}/api/policy") as answer:
        return json.load(answer)["rules"][0]["rate_percent"]


async def watch(admins, start, shares):
    while (at := time.monotonic() - start) < END:
        found = await asyncio.gather(*(asyncio.to_thread(share, admin) for admin in admins))
        shares.append((at, *found))
        await asyncio.sleep(0.5)


async def run(ports, admins):
    shares, allowed, start = [], [], time.monotonic()
    await asyncio.gather(watch(admins, start, shares), *(send(port, start, allowed) for port in ports))
    return shares, allowed


def measure(program):
    redis, server = free_port(), free_port()
    ports = [(free_port(), free_port()) for _ in range(2)]
    with Processes() as processes:
        processes.run(["redis-server", "--port", str(redis), "--save", ""])
        processes.run([sys.executable, __file__, "--serve", str(server)])
        wait_for(redis)
        wait_for(server)
        for pair in ports:
            processes.gateway(program, pair, SETTINGS.format(redis=redis, server=server))
        return asyncio.run(run([http for http, _ in ports], [admin for _, admin in ports]))


def draw(shares, allowed):
    figure, (rates, passed) = svg.pyplot().subplots(2, 1, sharex=True, figsize=(9, 5), layout="constrained")
    times = [at for at, *_ in shares]
    for gateway, colour, style in ((1, "#c2410c", "-"), (2, "#64748b", "--")):
        rates.plot(times, [one[gateway] for one in shares], style, color=colour, label=f"gateway {gateway}")
    seconds = range(END)
    counts = [sum(1 for at in allowed if second <= at < second + 1) for second in seconds]
    passed.plot(seconds, counts, color="#c2410c")
    rates.set_ylabel("share of the rate, %")
    passed.set_ylabel("allowed requests a second")
    passed.set_xlabel(f"seconds; the upstream is slow from {FROM} to {UNTIL}")
    for axes in (rates, passed):
        axes.axvspan(FROM, UNTIL, color="#fee2e2", alpha=0.4, linewidth=0)
        axes.set_ylim(bottom=0)
    rates.legend(frameon=False)
    svg.save(figure, PICTURE)


def main():
    if sys.argv[1:2] == ["--serve"]:
        asyncio.run(serve(int(sys.argv[2])))
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    shares, allowed = measure(sys.argv[1])
    print(f"{provenance.line()}\n")
    lowest = min(one[1] for one in shares)
    largest = max(abs(one[1] - one[2]) for one in shares if one[0] >= UNTIL + 5)
    print(f"lowest share {lowest:.0f} %; the gateways differ by at most {largest:.1f} % while the rate recovers")
    draw(shares, allowed)


if __name__ == "__main__":
    main()
