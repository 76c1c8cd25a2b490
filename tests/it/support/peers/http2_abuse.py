"""An HTTP/2 client that abuses the protocol: `http2_abuse.py SCENARIO PORT`.

Prints as JSON how many frames it sent, whether the server ended the connection before the last of them, and the
error code of its GOAWAY.
"""

import json
import select
import socket
import sys

from hpack import Encoder
from hyperframe.frame import (
    ContinuationFrame, DataFrame, Frame, GoAwayFrame, HeadersFrame, PingFrame, RstStreamFrame, SettingsFrame,
)

LIMIT = 20_000
PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
HEAD = [(":method", "GET"), (":path", "/"), (":scheme", "http"), (":authority", "api.test")]


def headers(stream, head=HEAD, flags=("END_HEADERS", "END_STREAM"), encoder=None):
    return HeadersFrame(stream, data=(encoder or Encoder()).encode(head), flags=flags).serialize()


def rapid_reset():
    """Each request is reset at once."""
    for number in range(LIMIT):
        stream = 2 * number + 1
        yield headers(stream) + RstStreamFrame(stream, error_code=8).serialize()


def continuation():
    """The head of a request never ends."""
    yield headers(1, flags=())
    for _ in range(LIMIT):
        yield ContinuationFrame(1, data=Encoder().encode([("x-filler", "x" * 1_000)])).serialize()


def settings():
    """Settings that are never used; the client does not read their acknowledgements."""
    for number in range(LIMIT):
        yield SettingsFrame(0, settings={3: number}).serialize()


def pings():
    for number in range(LIMIT):
        yield PingFrame(0, opaque_data=number.to_bytes(8, "big")).serialize()


def empty_data():
    """A request body of empty frames."""
    yield headers(1, [(":method", "POST"), *HEAD[1:]], flags=("END_HEADERS",))
    for _ in range(LIMIT):
        yield DataFrame(1).serialize()


def malformed():
    """Requests without a path."""
    for number in range(LIMIT):
        yield headers(2 * number + 1, [HEAD[0], *HEAD[2:]])


def large_head():
    """A head that is larger than the limit."""
    yield headers(1, [*HEAD, *((f"x-{number}", "y" * 4_000) for number in range(3))], flags=())
    for number in range(100):
        yield ContinuationFrame(1, data=Encoder().encode([(f"x-{number}", "y" * 4_000)])).serialize()
    yield ContinuationFrame(1, flags=["END_HEADERS"]).serialize()


def received(data, seen):
    """Notes the frames of the server."""
    seen["rest"] += data
    while len(seen["rest"]) >= 9:
        frame, length = Frame.parse_frame_header(memoryview(seen["rest"][:9]))
        if len(seen["rest"]) < 9 + length:
            return
        frame.parse_body(memoryview(seen["rest"][9 : 9 + length]))
        seen["rest"] = seen["rest"][9 + length :]
        if isinstance(frame, GoAwayFrame):
            seen["code"] = frame.error_code


def main():
    scenario, port = sys.argv[1], int(sys.argv[2])
    connection = socket.create_connection(("127.0.0.1", port))
    connection.settimeout(10)
    seen = {"rest": b"", "code": None}
    sent, is_complete = 0, False
    try:
        connection.sendall(PREFACE + SettingsFrame(0).serialize())
        for frame in globals()[scenario]():
            connection.sendall(frame)
            sent += 1
            # Reads only what is there, so that the server's answers do not slow the abuse.
            while select.select([connection], [], [], 0)[0]:
                data = connection.recv(65_536)
                if not data:
                    raise ConnectionResetError
                received(data, seen)
            if seen["code"] is not None:
                break
        else:
            is_complete = True
            connection.shutdown(socket.SHUT_WR)
        while data := connection.recv(65_536):
            received(data, seen)
    except (ConnectionResetError, BrokenPipeError):
        pass
    print(json.dumps({"sent": sent, "complete": is_complete, "code": seen["code"]}))


main()
