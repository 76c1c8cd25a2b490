"""A WebSocket server that echoes messages: `websocket_server.py [CERTIFICATE KEY]`.

Prints `listening on PORT`, then `open PATH` and `close CODE` per connection.
"""

import asyncio
import ssl
import sys

from websockets.asyncio.server import serve


async def echo(connection):
    print(f"open {connection.request.path}", flush=True)
    async for message in connection:
        await connection.send(message)
    print(f"close {connection.close_code}", flush=True)


async def main():
    tls = None
    if len(sys.argv) > 1:
        tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        tls.load_cert_chain(*sys.argv[1:3])
    async with serve(echo, "127.0.0.1", 0, ssl=tls, subprotocols=["echo"], max_size=None) as server:
        print(f"listening on {server.sockets[0].getsockname()[1]}", flush=True)
        await server.serve_forever()


asyncio.run(main())
