"""An HTTP/2 client that abuses the protocol: `http2_abuse.py SCENARIO PORT`.

Prints as JSON how many frames it sent, whether it could send all of them before the server ended the connection, the
error code of its GOAWAY, how many responses began, and how many streams the server reset, by code.
"""

import json
import select
import socket
import sys
import time

from hpack import Encoder
from hyperframe.frame import (
    ContinuationFrame, DataFrame, Frame, GoAwayFrame, HeadersFrame, PingFrame, PriorityFrame, RstStreamFrame,
    SettingsFrame, WindowUpdateFrame,
)

LIMIT = 20_000
PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
HEAD = [(":method", "GET"), (":path", "/"), (":scheme", "http"), (":authority", "api.test")]
POST = [(":method", "POST"), *HEAD[1:]]


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
    yield headers(1, POST, flags=("END_HEADERS",))
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


def priorities():
    for number in range(LIMIT):
        yield PriorityFrame(2 * number + 1, depends_on=0, stream_weight=1).serialize()


def window_updates():
    for _ in range(LIMIT):
        yield WindowUpdateFrame(0, window_increment=1).serialize()


def window_overflow():
    yield WindowUpdateFrame(0, window_increment=2**31 - 1).serialize()


def empty_heads():
    """Requests without any field."""
    for number in range(LIMIT):
        yield HeadersFrame(2 * number + 1, data=b"", flags=("END_HEADERS", "END_STREAM")).serialize()


def empty_continuations():
    yield headers(1, flags=())
    for _ in range(LIMIT):
        yield ContinuationFrame(1, data=b"").serialize()


def zero_windows():
    """Requests whose responses the client never lets the server send."""
    yield SettingsFrame(0, settings={SettingsFrame.INITIAL_WINDOW_SIZE: 0}).serialize()
    for number in range(50):
        yield headers(2 * number + 1)


def trickled(frame):
    """All but the last byte of a frame, a byte in 300 ms."""
    for index in range(len(frame) - 1):
        yield frame[index : index + 1]
        time.sleep(0.3)


def trickled_head():
    yield from trickled(headers(1, [*HEAD, ("x-filler", "x" * 50)]))


def trickled_settings():
    yield from trickled(SettingsFrame(0, settings={number: 1 for number in range(100, 150)}).serialize())


def trickled_continuations():
    yield headers(1, flags=())
    for number in range(50):
        yield ContinuationFrame(1, data=Encoder().encode([(f"x-{number}", "y")])).serialize()
        time.sleep(0.3)


def hpack_bomb():
    """One large field, and thousands of references to it, of one byte each."""
    encoder = Encoder()
    field = [("x-large", "y" * 3_900)]
    first = encoder.encode([*HEAD, *field])
    again = encoder.encode(field)
    for number in range(50):
        data = first if number == 0 else encoder.encode(HEAD)
        yield HeadersFrame(2 * number + 1, data=data + again * 12_000, flags=("END_HEADERS", "END_STREAM")).serialize()


def crumbs():
    """Requests with 10,000 short fields."""
    encoder = Encoder()
    first = encoder.encode([*HEAD, ("cookie", "a")])
    again = encoder.encode([("cookie", "a")])
    for number in range(50):
        data = first if number == 0 else encoder.encode(HEAD)
        yield HeadersFrame(2 * number + 1, data=data + again * 10_000, flags=("END_HEADERS", "END_STREAM")).serialize()


def too_many_streams():
    """Requests whose bodies never end."""
    for number in range(300):
        yield headers(2 * number + 1, POST, flags=("END_HEADERS",))


def even_stream():
    yield headers(2)


def decreasing_stream():
    yield headers(5)
    yield headers(3)


def data_after_end():
    for number in range(10):
        yield headers(2 * number + 1) + DataFrame(2 * number + 1, data=b"more").serialize()


def data_on_idle_stream():
    yield DataFrame(7, data=b"first").serialize()


def large_frame():
    yield b"\x10\x00\x00\x00\x00\x00\x00\x00\x01"


def pseudo_trailers():
    """A body that ends with fields that only a head has."""
    for number in range(10):
        stream = 2 * number + 1
        yield headers(stream, POST, flags=("END_HEADERS",))
        yield DataFrame(stream, data=b"first").serialize()
        yield headers(stream, [(":path", "/smuggled")])


def length_mismatch():
    """Bodies that are shorter and longer than their Content-Length."""
    for number in range(10):
        stream = 2 * number + 1
        yield headers(stream, [*POST, ("content-length", "5")], flags=("END_HEADERS",))
        yield DataFrame(stream, data=b"x" * (3 if number % 2 else 50), flags=["END_STREAM"]).serialize()


# What ends these scenarios, from what the server has sent. Others end when everything has been sent.
ENDS = {
    "pseudo_trailers": lambda seen: seen["responses"] + resets(seen) >= 10,
    "length_mismatch": lambda seen: seen["responses"] + resets(seen) >= 10,
    "too_many_streams": lambda seen: seen["resets"].get(7, 0) >= 200 and seen["responses"] >= 100,
    "zero_windows": lambda seen: resets(seen) >= 50,
}

# Violations of the protocol, after which the server has to end the connection: the client does not.
VIOLATIONS = {
    "window_overflow", "even_stream", "decreasing_stream", "data_after_end", "data_on_idle_stream", "large_frame",
    "hpack_bomb", "crumbs",
}


def resets(seen):
    return sum(seen["resets"].values())


def slow_resets():
    """Requests that are reset at once, at a rate that the server accepts."""
    for number in range(60):
        stream = 2 * number + 1
        yield headers(stream) + RstStreamFrame(stream, error_code=8).serialize()
        time.sleep(0.03)


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
        elif isinstance(frame, RstStreamFrame):
            seen["resets"][frame.error_code] = seen["resets"].get(frame.error_code, 0) + 1
        elif isinstance(frame, HeadersFrame):
            seen["responses"] += 1


def main():
    scenario, port = sys.argv[1], int(sys.argv[2])
    connection = socket.create_connection(("127.0.0.1", port))
    connection.settimeout(10)
    seen = {"rest": b"", "code": None, "resets": {}, "responses": 0}
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
            if scenario in ENDS:
                while not ENDS[scenario](seen) and (data := connection.recv(65_536)):
                    received(data, seen)
            if scenario not in VIOLATIONS:
                connection.shutdown(socket.SHUT_WR)
        while data := connection.recv(65_536):
            received(data, seen)
    except (ConnectionResetError, BrokenPipeError):
        pass
    del seen["rest"]
    print(json.dumps({"sent": sent, "complete": is_complete, **seen}))


main()
