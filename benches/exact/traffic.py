"""The requests of a case, and a client that sends them on time, whatever was answered before."""

import asyncio
import time
from dataclasses import dataclass

# Seconds until a request counts as failed.
PATIENCE = 8.0


@dataclass(frozen=True)
class Planned:
    """A request that is to be sent at a time since the start, in seconds."""

    at: float
    client: str
    tenant: str = "t"
    cost: int = 1

    @property
    def path(self) -> str:
        return "/" if self.cost == 1 else "/costly"


@dataclass(frozen=True)
class Sent:
    """What became of a request. Times are of the monotonic clock; a status of 0 is no answer."""

    number: int
    planned: Planned
    sent: float
    answered: float
    status: int


def steady(client: str, rate: float, seconds: float, tenant: str = "t", cost: int = 1) -> list[Planned]:
    """Requests at the same distance."""
    return [Planned(number / rate, client, tenant, cost) for number in range(round(rate * seconds))]


def pulses(client: str, size: int, every: float, seconds: float) -> list[Planned]:
    """Many requests at the same moment, again and again."""
    times = [number * every for number in range(round(seconds / every))]
    return [Planned(at, client) for at in times for _ in range(size)]


class Client:
    """Sends to the gateways that are in service in turn, as a load balancer does. Connections are kept."""

    def __init__(self, ports: list[int]) -> None:
        self.ports = ports
        self.idle: dict[int, list[Connection]] = {}

    async def send_all(self, planned: list[Planned], start: float) -> list[Sent]:
        tasks = []
        for number, one in enumerate(sorted(planned, key=lambda one: one.at)):
            await asyncio.sleep(max(0.0, start + one.at - time.monotonic()))
            port = self.ports[number % len(self.ports)]
            tasks.append(asyncio.create_task(self.send(number, one, port)))
        sent = await asyncio.gather(*tasks)
        for connections in self.idle.values():
            for connection in connections:
                connection.writer.close()
        return sent

    async def send(self, number: int, planned: Planned, port: int) -> Sent:
        sent = time.monotonic()
        try:
            status = await asyncio.wait_for(self.status(number, planned, port), PATIENCE)
        except (OSError, asyncio.TimeoutError, asyncio.IncompleteReadError):
            status = 0
        return Sent(number, planned, sent, time.monotonic(), status)

    async def status(self, number: int, planned: Planned, port: int) -> int:
        request = (
            f"GET {planned.path} HTTP/1.1\r\nHost: api\r\nX-Api-Key: {planned.client}\r\n"
            f"X-Tenant: {planned.tenant}\r\nX-Region: r\r\nX-Cost: {planned.cost}\r\nX-Number: {number}\r\n\r\n"
        ).encode()
        idle = self.idle.setdefault(port, [])
        while idle:
            connection = idle.pop()
            try:
                return await connection.exchange(request, idle)
            except (ConnectionError, asyncio.IncompleteReadError) as error:
                # A gateway may close an idle connection: a client then takes another one.
                if getattr(error, "partial", b""):
                    raise
        connection = Connection(*await asyncio.open_connection("127.0.0.1", port))
        return await connection.exchange(request, idle)


@dataclass
class Connection:
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    async def exchange(self, request: bytes, idle: list["Connection"]) -> int:
        """The status of the answer. The connection is idle afterwards, unless it was closed."""
        try:
            self.writer.write(request)
            head = (await self.reader.readuntil(b"\r\n\r\n")).decode("latin-1").lower()
            await self.body(head)
        except BaseException:
            self.writer.close()
            raise
        if "connection: close" in head:
            self.writer.close()
        else:
            idle.append(self)
        return int(head.split(" ", 2)[1])

    async def body(self, head: str) -> None:
        if "content-length:" in head:
            await self.reader.readexactly(int(head.split("content-length:")[1].split("\r\n")[0]))
        elif "transfer-encoding: chunked" in head:
            while size := int((await self.reader.readuntil(b"\r\n")).split(b";")[0], 16):
                await self.reader.readexactly(size + 2)
            await self.reader.readuntil(b"\r\n")
