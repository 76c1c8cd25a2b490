"""Sends requests with client libraries of Python, each with its retries as its documentation shows them:
`clients.py URL CALLS`. Prints a JSON object: the library, and the statuses that its caller saw."""

import asyncio
import json
import sys
from concurrent.futures import ThreadPoolExecutor

import aiohttp
import httpx
import httpx_retries
import requests
import requests.adapters
import urllib3
from aiohttp_retry import RetryClient

URL, CALLS = sys.argv[1], int(sys.argv[2])


def with_urllib3(name):
    pool = urllib3.PoolManager(retries=urllib3.Retry(3))
    return lambda: pool.request("GET", URL, headers={"x-client": name}).status


def with_requests(name):
    return lambda: requests.get(URL, headers={"x-client": name}, timeout=30).status_code


def with_requests_and_retry(name):
    session = requests.Session()
    session.mount("http://", requests.adapters.HTTPAdapter(max_retries=urllib3.Retry(3)))
    return lambda: session.get(URL, headers={"x-client": name}, timeout=30).status_code


def with_httpx(name):
    return lambda: httpx.get(URL, headers={"x-client": name}, timeout=30).status_code


def with_httpx_retries(name):
    client = httpx.Client(transport=httpx_retries.RetryTransport(retry=httpx_retries.Retry(total=3)), timeout=30)
    return lambda: client.get(URL, headers={"x-client": name}).status_code


def with_aiohttp_retry(name):
    async def get():
        async with RetryClient(aiohttp.ClientSession()) as client:
            async with client.get(URL, headers={"x-client": name}) as response:
                return response.status

    return lambda: asyncio.run(get())


CLIENTS = {
    "urllib3": with_urllib3,
    "requests": with_requests,
    "requests with urllib3's Retry": with_requests_and_retry,
    "httpx": with_httpx,
    "httpx-retries": with_httpx_retries,
    "aiohttp-retry": with_aiohttp_retry,
}


def statuses(client):
    name, prepare = client
    send, seen = prepare(name), []
    for _ in range(CALLS):
        try:
            seen.append(send())
        except Exception as error:  # Whatever a caller would see.
            seen.append(type(error).__name__)
    return name, seen


with ThreadPoolExecutor(len(CLIENTS)) as pool:
    print(json.dumps(dict(pool.map(statuses, CLIENTS.items()))))
