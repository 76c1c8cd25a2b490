"""A WebSocket server that echoes messages: `echo.py PORT FILE`. Appends the id of each request to the file."""

import asyncio
import sys
from pathlib import Path

from websockets.asyncio.server import serve

PORT, FILE = int(sys.argv[1]), Path(sys.argv[2])


async def echo(connection):
    with FILE.open("a") as ids:
        ids.write(connection.request.headers["X-Request-Id"] + "\n")
    async for message in connection:
        await connection.send(message)


async def main():
    async with serve(echo, "127.0.0.1", PORT):
        await asyncio.get_running_loop().create_future()


asyncio.run(main())
