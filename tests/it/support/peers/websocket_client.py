"""A WebSocket client. Prints what the server echoed as JSON.

    websocket_client.py URL [CA]

Connects to 127.0.0.1 for any name of the URL. Sends a text, bytes, a message of a megabyte and a ping.
"""

import asyncio
import json
import socket
import ssl
import sys
from urllib.parse import urlsplit

from websockets.asyncio.client import connect
from websockets.exceptions import InvalidStatus


async def main():
    url = sys.argv[1]
    parts = urlsplit(url)
    tls = {}
    if parts.scheme == "wss":
        tls = {"ssl": ssl.create_default_context(cafile=sys.argv[2]), "server_hostname": parts.hostname}
    connection = socket.create_connection(("127.0.0.1", parts.port))
    try:
        async with connect(url, sock=connection, subprotocols=["echo"], max_size=None, proxy=None, **tls) as client:
            echoes = []
            for message in ("text", b"\0bytes", "x" * 1_000_000):
                await client.send(message)
                echoes.append(await client.recv() == message)
            await (await client.ping())
            result = {"status": 101, "echoes": echoes, "subprotocol": client.subprotocol, "tls": None}
            if tls:
                result["tls"] = client.transport.get_extra_info("ssl_object").version()
    except InvalidStatus as refused:
        result = {"status": refused.response.status_code, "body": refused.response.body.decode()}
    print(json.dumps(result))


asyncio.run(main())
