#!/usr/bin/env python3
"""Draws what `max_in_flight = "auto"` does in an overload, beside the same overload without it.

    make bench-shedding         # or: benches/shedding.py target/release/tollgate

A server works on 8 requests at a time, for 40 ms each; others wait in its queue. Clients of the plan free wait for each
response and then 250 ms: 4 of them at first, 150 from second 5 on, 4 again from second 20. Without a limit, the queue
then has some 140 requests, and each response takes some 700 ms. Beside them, 40 requests a second are of the plan
enterprise, which has a higher priority. A response counts as useful if it is a 200 within 150 ms. The picture is
docs/load-shedding.svg.
"""

import asyncio
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import provenance
import svg
from kinds import Processes, free_port, wait_for

WORKERS, SERVICE = 8, 0.04
FREE, OVERLOAD, PAUSE = 4, 150, 0.25
ENTERPRISE = 40
FROM, UNTIL, END = 5, 20, 25
PATIENCE = 0.15
PICTURE = Path("docs/load-shedding.svg")
OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"

SETTINGS = """
[plans.enterprise]
priority = 10
[keys.acme]
sha256 = "2bb80d537b1da3e38bd30361aa855686bde0eacd7162fef6a25fe97bf527a25b"
plan = "enterprise"
[upstreams.api]
servers = ["{server}"]
{limit}
[routes.all]
"""


@dataclass
class Answer:
    """A response: when it came and how long it took, in seconds; its status, and who asked."""

    at: float
    took: float
    status: int
    plan: str


async def serve(port):
    """The server with a queue."""
    free = asyncio.Semaphore(WORKERS)

    async def connection(reader, writer):
        try:
            while await reader.readuntil(b"\r\n\r\n"):
                async with free:
                    await asyncio.sleep(SERVICE)
                writer.write(OK)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(connection, "127.0.0.1", port, backlog=1000)
    await server.serve_forever()


class Client:
    """A kept connection."""

    def __init__(self, port, plan):
        key = "X-Api-Key: secret\r\n" if plan == "enterprise" else ""
        self.request = f"GET / HTTP/1.1\r\nHost: a\r\n{key}\r\n".encode()
        self.port, self.plan, self.reader, self.writer = port, plan, None, None

    async def send(self, answers, start):
        if self.writer is None:
            self.reader, self.writer = await asyncio.open_connection("127.0.0.1", self.port)
        began = time.monotonic()
        self.writer.write(self.request)
        head = (await self.reader.readuntil(b"\r\n\r\n")).decode().lower()
        length = head.split("content-length:")[1].split("\r\n")[0]
        await self.reader.readexactly(int(length))
        now = time.monotonic()
        answers.append(Answer(now - start, now - began, int(head.split(" ")[1]), self.plan))


async def free_client(port, number, answers, start):
    client = Client(port, "free")
    while (at := time.monotonic() - start) < END:
        if number < FREE or FROM <= at < UNTIL:
            await client.send(answers, start)
        await asyncio.sleep(PAUSE)


async def enterprise_clients(port, answers, start):
    idle, sent = [], []

    async def one():
        client = idle.pop() if idle else Client(port, "enterprise")
        await client.send(answers, start)
        idle.append(client)

    for number in range(ENTERPRISE * END):
        await asyncio.sleep(max(0, start + number / ENTERPRISE - time.monotonic()))
        sent.append(asyncio.create_task(one()))
    await asyncio.gather(*sent)


async def capacity(port):
    """Responses a second of the server itself, with as many clients as keep it busy."""
    answers, start = [], time.monotonic()

    async def client():
        client = Client(port, "free")
        while time.monotonic() - start < 3:
            await client.send(answers, start)

    await asyncio.gather(*(client() for _ in range(3 * WORKERS)))
    return len(answers) / 3


async def run(port, gateway):
    """The capacity of the server, and all responses through the gateway."""
    most = await capacity(port)
    answers, start = [], time.monotonic()
    free = (free_client(gateway, number, answers, start) for number in range(OVERLOAD))
    await asyncio.gather(enterprise_clients(gateway, answers, start), *free)
    return most, answers


def measure(program, limit):
    port, http, admin = free_port(), free_port(), free_port()
    with Processes() as processes:
        processes.run([sys.executable, __file__, "--serve", str(port)])
        wait_for(port)
        settings = SETTINGS.format(server=f"127.0.0.1:{port}", limit=limit)
        processes.gateway(program, (http, admin), settings)
        return asyncio.run(run(port, http))


def quantile(answers, part):
    took = sorted(answer.took for answer in answers)
    return took[min(len(took) - 1, int(part * len(took)))] if took else 0


def useful(answers):
    return [one for one in answers if one.status == 200 and one.took <= PATIENCE]


def within(answers, start, end):
    return [one for one in answers if start <= one.at < end]


def summary(name, most, answers):
    """Prints what the page says of one run."""
    own = [one for one in answers if one.plan == "enterprise" and one.status == 200]
    # The first two seconds of the overload show how fast the limit is found; they are in the picture.
    busy, calm = within(answers, FROM + 2, UNTIL), within(own, 1, FROM)
    rate = len(useful(busy)) / (UNTIL - FROM - 2)
    loaded, unloaded = quantile(within(own, FROM + 2, UNTIL), 0.99), quantile(calm, 0.99)
    asked = [one for one in busy if one.plan == "enterprise"]
    print(
        f"| {name} | {rate:.0f} of {most:.0f} ({rate / most:.0%}) | {unloaded * 1000:.1f} ms | "
        f"{loaded * 1000:.1f} ms | {len(useful(asked)) / len(asked):.0%} |"
    )


def draw(runs):
    figure, (rates, times) = svg.pyplot().subplots(
        2, 1, sharex=True, figsize=(9, 5), layout="constrained"
    )
    seconds = range(END)
    for (name, (most, answers)), colour in zip(runs.items(), ("#c2410c", "#64748b")):
        each = [within(answers, second, second + 1) for second in seconds]
        rates.plot(seconds, [len(useful(one)) for one in each], color=colour, label=name)
        own = [[one for one in some if one.plan == "enterprise" and one.status == 200] for some in each]
        late = [quantile(some, 0.99) * 1000 or float("nan") for some in own]
        times.plot(seconds, late, color=colour, label=name)
    most = [most for most, _ in runs.values()]
    rates.axhline(sum(most) / len(most), color="#94a3b8", linestyle=":", label="capacity of the server")
    rates.set_ylabel(f"200 within {PATIENCE * 1000:.0f} ms, a second")
    times.set_ylabel("99th percentile of enterprise, ms")
    times.set_yscale("log")
    times.set_xlabel(f"seconds; the overload is from {FROM} to {UNTIL}")
    for axes in (rates, times):
        axes.axvspan(FROM, UNTIL, color="#fee2e2", alpha=0.4, linewidth=0)
    rates.set_ylim(bottom=0)
    rates.legend(frameon=False)
    svg.save(figure, PICTURE)


def main():
    if sys.argv[1:2] == ["--serve"]:
        asyncio.run(serve(int(sys.argv[2])))
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    runs = {}
    for name, limit in [('max_in_flight = "auto"', 'max_in_flight = "auto"'), ("without it", "")]:
        runs[name] = measure(sys.argv[1], limit)
    print(f"{provenance.line()}\n")
    print("| | useful responses a second | p99 of enterprise before | in the overload | useful of enterprise |")
    print("| --- | --- | --- | --- | --- |")
    for name, (most, answers) in runs.items():
        summary(name, most, answers)
    draw(runs)


if __name__ == "__main__":
    main()
