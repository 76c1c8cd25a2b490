"""A gRPC client of bytes. Prints the result of a scenario as JSON.

    grpc_client.py SCENARIO HOST:PORT [--ca FILE] [--name NAME] [--key KEY] [--count N] [--retry]

With `--ca` the connection uses TLS; `--name` is the name that the certificate must have.
"""

import argparse
import json
import queue
import time
from pathlib import Path

import grpc

parser = argparse.ArgumentParser()
parser.add_argument("scenario")
parser.add_argument("target")
parser.add_argument("--ca")
parser.add_argument("--certificate")
parser.add_argument("--private-key")
parser.add_argument("--name", default="api.test")
parser.add_argument("--key")
parser.add_argument("--count", type=int, default=1)
parser.add_argument("--retry", action="store_true", help="retry refused calls as a service config allows")
arguments = parser.parse_args()

RETRY = {
    "methodConfig": [
        {
            "name": [{}],
            "retryPolicy": {
                "maxAttempts": 3,
                "initialBackoff": "30s",
                "maxBackoff": "30s",
                "backoffMultiplier": 1,
                "retryableStatusCodes": ["RESOURCE_EXHAUSTED"],
            },
        }
    ]
}
options = [("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1), ("grpc.enable_http_proxy", 0)]
options += [("grpc.service_config", json.dumps(RETRY))] if arguments.retry else [("grpc.enable_retries", 0)]
if arguments.ca:
    pair = [Path(file).read_bytes() for file in (arguments.private_key, arguments.certificate) if file]
    credentials = grpc.ssl_channel_credentials(Path(arguments.ca).read_bytes(), *pair)
    options.append(("grpc.ssl_target_name_override", arguments.name))
    channel = grpc.secure_channel(arguments.target, credentials, options)
else:
    channel = grpc.insecure_channel(arguments.target, options)
METADATA = [("x-api-key", arguments.key)] if arguments.key else []


def texts(metadata):
    return {key: value if isinstance(value, str) else value.hex() for key, value in metadata or ()}


def outcome(call):
    """Code, message and metadata of a finished call."""
    return {"code": call.code().name, "details": call.details(), "initial": texts(call.initial_metadata()), "trailing": texts(call.trailing_metadata())}


def unary(method, request=b"hello", timeout=20):
    started = time.monotonic()
    try:
        response, call = channel.unary_unary(f"/test.Echo/{method}").with_call(request, timeout=timeout, metadata=METADATA)
    except grpc.RpcError as error:
        response, call = b"", error
    took_ms = (time.monotonic() - started) * 1000
    return {"response": response.decode("latin-1")[:64], "length": len(response), "took_ms": took_ms, **outcome(call)}


def chat():
    """Sends each message only when the previous one was answered, and ends its side last."""
    outbox = queue.Queue()
    call = channel.stream_stream("/test.Echo/Chat")(iter(outbox.get, None), timeout=20, metadata=METADATA)
    answers = []
    for number in range(arguments.count):
        outbox.put(b"message %d" % number)
        try:
            answers.append(next(call).decode())
        except grpc.RpcError:
            return {"answers": answers, **outcome(call)}
    outbox.put(None)
    rest = [answer.decode() for answer in call]
    return {"answers": answers, "rest": rest, **outcome(call)}


def split():
    call = channel.unary_stream("/test.Echo/Split")(b"streamed", timeout=20, metadata=METADATA)
    return {"answers": [answer.decode() for answer in call], **outcome(call)}


def join():
    messages = (b"%d," % number for number in range(arguments.count))
    try:
        response, call = channel.stream_unary("/test.Echo/Join").with_call(messages, timeout=20, metadata=METADATA)
    except grpc.RpcError as error:
        response, call = b"", error
    return {"response": response.decode()[:64], "length": len(response), **outcome(call)}


def cancel():
    """Ends a call that the server has not answered."""
    call = channel.unary_unary("/test.Echo/Wait").future(b"", timeout=60, metadata=METADATA)
    time.sleep(0.5)
    call.cancel()
    return {"code": call.code().name}


SCENARIOS = {
    "unary": lambda: [unary("Unary") for _ in range(arguments.count)],
    "large": lambda: unary("Unary", bytes(3_000_000)),
    "deadline": lambda: unary("Deadline", timeout=7),
    "fail": lambda: unary("Fail"),
    "late": lambda: unary("Wait", timeout=0.7),
    "unknown": lambda: unary("Missing"),
    "split": split,
    "join": join,
    "chat": chat,
    "cancel": cancel,
}
print(json.dumps(SCENARIOS[arguments.scenario]()))
