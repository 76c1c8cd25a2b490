"""A gRPC server of bytes: unary, streaming both ways, deadlines, errors. `grpc_server.py [CERTIFICATE KEY]`.

Also has the standard health service: SIGUSR1 makes the server and the service `test.Echo` not serve, SIGUSR2 serve again.

Prints `listening on PORT`, then one line per call: `call METHOD`, and `cancelled METHOD` if the client ended it.
"""

import json
import signal
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import grpc
from grpc_health.v1 import health, health_pb2, health_pb2_grpc


def say(text):
    print(text, flush=True)


def unary(request, context):
    """The request, with what the server saw in the trailers."""
    context.send_initial_metadata((("x-initial", "first"),))
    seen = {key: value for key, value in context.invocation_metadata() if isinstance(value, str)}
    context.set_trailing_metadata((("x-seen", json.dumps(seen)), ("x-binary-bin", b"\0\1\xff")))
    return request


def deadline(request, context):
    """Milliseconds that are left for the call; `none` without a deadline."""
    left = context.time_remaining()
    return b"none" if left is None or left > 1e9 else str(int(left * 1000)).encode()


def fail(request, context):
    context.set_trailing_metadata((("x-cause", "tested"),))
    context.abort(grpc.StatusCode.INVALID_ARGUMENT, "no: 100 % w\u00fcrong")


def wait(request, context):
    """Answers only when the call has ended."""
    ended = threading.Event()
    context.add_callback(ended.set)
    ended.wait(60)
    say("cancelled /test.Echo/Wait")
    return b""


def split(request, context):
    """One message per byte of the request."""
    for byte in request:
        yield bytes([byte])
    context.set_trailing_metadata((("x-count", str(len(request))),))


def join(requests, context):
    """All messages of the client in one."""
    return b"".join(requests)


def chat(requests, context):
    """Answers each message when it arrives."""
    count = 0
    for request in requests:
        count += 1
        yield request.upper()
    context.set_trailing_metadata((("x-count", str(count)),))


HANDLERS = {
    "Unary": grpc.unary_unary_rpc_method_handler(unary),
    "Deadline": grpc.unary_unary_rpc_method_handler(deadline),
    "Fail": grpc.unary_unary_rpc_method_handler(fail),
    "Wait": grpc.unary_unary_rpc_method_handler(wait),
    "Split": grpc.unary_stream_rpc_method_handler(split),
    "Join": grpc.stream_unary_rpc_method_handler(join),
    "Chat": grpc.stream_stream_rpc_method_handler(chat),
}


class Echo(grpc.GenericRpcHandler):
    def service(self, details):
        say(f"call {details.method}")
        return HANDLERS.get(details.method.removeprefix("/test.Echo/"))


server = grpc.server(ThreadPoolExecutor(32), options=[("grpc.max_receive_message_length", -1), ("grpc.so_reuseport", 0)])
server.add_generic_rpc_handlers([Echo()])
servicer = health.HealthServicer()
health_pb2_grpc.add_HealthServicer_to_server(servicer, server)


def set_health(status):
    for service in ("", "test.Echo"):
        servicer.set(service, status)


set_health(health_pb2.HealthCheckResponse.SERVING)
signal.signal(signal.SIGUSR1, lambda *_: set_health(health_pb2.HealthCheckResponse.NOT_SERVING))
signal.signal(signal.SIGUSR2, lambda *_: set_health(health_pb2.HealthCheckResponse.SERVING))
if len(sys.argv) > 1:
    certificate, key = (Path(file).read_bytes() for file in sys.argv[1:3])
    port = server.add_secure_port("127.0.0.1:0", grpc.ssl_server_credentials([(key, certificate)]))
else:
    port = server.add_insecure_port("127.0.0.1:0")
server.start()
say(f"listening on {port}")
server.wait_for_termination()
