"""Opens idle connections and keeps them: `python -m peers.idle_client KIND PORT COUNT`.

A process apart, so that its file descriptors are not those of the bench. Writes a line once all connections
are open, and keeps them until it is ended by SIGTERM.
"""

import signal
import socket
import ssl
import struct
import sys

# What a connection has done before it is idle.
SILENT, HTTP1, HTTP1_TLS, HTTP2, HTTP2_TLS = "silent", "h1", "h1-tls", "h2", "h2-tls"
KINDS = [SILENT, HTTP1, HTTP1_TLS, HTTP2, HTTP2_TLS]

PER_ADDRESS = 500

HOST = b"localhost"
REQUEST = b"GET / HTTP/1.1\r\nHost: localhost\r\nAccept: */*\r\nUser-Agent: idle/1.0\r\n\r\n"

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, SETTINGS = 0, 1, 4
END_STREAM, ACK, END_HEADERS = 0x1, 0x1, 0x4


class Closed(Exception):
    """The gateway closed a connection."""


def main() -> None:
    kind, port, count = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    context = tls_context(kind)
    # Kept by the name; the end of the process closes them.
    _connections = [connection(kind, port, context, number) for number in range(count)]
    print("open", flush=True)
    signal.pause()


def tls_context(kind: str) -> ssl.SSLContext:
    # The certificate is self-signed.
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.set_alpn_protocols(["h2"] if kind == HTTP2_TLS else ["http/1.1"])
    return context


def connection(kind: str, port: int, context: ssl.SSLContext, number: int) -> socket.socket:
    """One connection, after its request."""
    # Gateways can limit the connections of an address.
    source = f"127.0.0.{2 + number // PER_ADDRESS}"
    one = socket.create_connection(("127.0.0.1", port), 10, (source, 0))
    one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    if kind in (HTTP1_TLS, HTTP2_TLS):
        one = context.wrap_socket(one, server_hostname="localhost")
    if kind in (HTTP1, HTTP1_TLS):
        request_http1(one)
    if kind in (HTTP2, HTTP2_TLS):
        request_http2(one, is_tls=kind == HTTP2_TLS)
    return one


def request_http1(one: socket.socket) -> None:
    one.sendall(REQUEST)
    answer = b""
    while b"\r\n\r\n" not in answer:
        answer += some(one)
    head, _, body = answer.partition(b"\r\n\r\n")
    if b" 200 " not in head.split(b"\r\n")[0]:
        raise Closed(head)
    lengths = [line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")]
    length = int(lengths[0].split(b":")[1])
    while len(body) < length:
        body += some(one)


def request_http2(one: socket.socket, is_tls: bool) -> None:
    scheme = b"\x87" if is_tls else b"\x86"
    # GET, the path /, the scheme, and :authority as a literal (RFC 7541, section 6.2.1).
    fields = b"\x82\x84" + scheme + b"\x41" + bytes([len(HOST)]) + HOST
    flags = END_STREAM | END_HEADERS
    one.sendall(PREFACE + frame(SETTINGS, 0, 0) + frame(HEADERS, flags, 1, fields))
    while True:
        kind, flags, stream = read_frame(one)
        if kind == SETTINGS and not flags & ACK:
            one.sendall(frame(SETTINGS, ACK, 0))
        if stream == 1 and kind in (DATA, HEADERS) and flags & END_STREAM:
            return


def frame(kind: int, flags: int, stream: int, payload: bytes = b"") -> bytes:
    length = struct.pack(">I", len(payload))[1:]
    return length + bytes([kind, flags]) + struct.pack(">I", stream) + payload


def read_frame(one: socket.socket) -> tuple[int, int, int]:
    """Kind, flags and stream of a frame."""
    head = exactly(one, 9)
    exactly(one, int.from_bytes(head[:3]))
    return head[3], head[4], int.from_bytes(head[5:])


def exactly(one: socket.socket, length: int) -> bytes:
    read = b""
    while len(read) < length:
        read += some(one, length - len(read))
    return read


def some(one: socket.socket, most: int = 65_536) -> bytes:
    read = one.recv(most)
    if not read:
        raise Closed
    return read


if __name__ == "__main__":
    main()
