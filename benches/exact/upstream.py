"""The upstream, which records when each request arrives."""

import asyncio
import re
import threading
import time

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
NUMBER = re.compile(rb"\r\nx-number: (\d+)\r\n", re.IGNORECASE)


class Upstream:
    """A server of HTTP/1.1 on a thread of its own, until `stop`."""

    def __init__(self) -> None:
        # When the request of each number arrived first: gateways may repeat one.
        self.arrived: dict[int, float] = {}
        self.loop = asyncio.new_event_loop()
        self.thread = threading.Thread(target=self.loop.run_forever, daemon=True)
        self.thread.start()
        start = asyncio.start_server(self.serve, "127.0.0.1", 0, backlog=1000)
        self.server = asyncio.run_coroutine_threadsafe(start, self.loop).result(10)
        self.port: int = self.server.sockets[0].getsockname()[1]

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                at = time.monotonic()
                if number := NUMBER.search(head):
                    self.arrived.setdefault(int(number[1]), at)
                writer.write(OK)
        except (asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
            pass
        finally:
            writer.close()

    def stop(self) -> None:
        asyncio.run_coroutine_threadsafe(self.end(), self.loop).result(10)
        self.loop.call_soon_threadsafe(self.loop.stop)
        self.thread.join(10)
        self.loop.close()

    async def end(self) -> None:
        self.server.close()
        connections = asyncio.all_tasks() - {asyncio.current_task()}
        for task in connections:
            task.cancel()
        await asyncio.gather(*connections, return_exceptions=True)
