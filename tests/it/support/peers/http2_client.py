"""httpx as an HTTP/2 client over TLS: `http2_client.py URL CA COUNT`.

Sends COUNT concurrent requests on one connection and prints versions and statuses as JSON.
"""

import asyncio
import json
import ssl
import sys

import httpx


async def main():
    url, ca, count = sys.argv[1], sys.argv[2], int(sys.argv[3])
    tls = ssl.create_default_context(cafile=ca)
    limits = httpx.Limits(max_connections=1)
    async with httpx.AsyncClient(http2=True, verify=tls, limits=limits, trust_env=False, timeout=20) as client:
        answers = await asyncio.gather(*(client.get(url) for _ in range(count)))
    print(json.dumps([{"version": answer.http_version, "status": answer.status_code, "length": len(answer.content)} for answer in answers]))


asyncio.run(main())
