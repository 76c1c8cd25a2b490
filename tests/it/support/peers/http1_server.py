"""HTTP/1.1 servers of Python: `http1_server.py gunicorn|h11`. Chooses a port and prints it.

Prints `seen METHOD TARGET` for each request, and `fault …` for bytes that are not a request.
"""

import logging
import socketserver
import sys

import h11

HEADERS = [("Content-Length", "0"), ("X-Upstream", "yes")]


class H11(socketserver.BaseRequestHandler):
    def handle(self):
        connection = h11.Connection(h11.SERVER, max_incomplete_event_size=1 << 20)
        try:
            while self.serve(connection):
                connection.start_next_cycle()
        except h11.RemoteProtocolError as error:
            # The gateway resets a request that its client does not complete.
            if "closed connection" not in str(error):
                print(f"fault {error}", flush=True)
        except (ConnectionError, BrokenPipeError):
            pass

    def serve(self, connection):
        """Serves one request. False at the end of the connection."""
        while True:
            event = connection.next_event()
            if event is h11.NEED_DATA:
                if connection.they_are_waiting_for_100_continue:
                    self.send(connection, h11.InformationalResponse(status_code=100, headers=[]))
                connection.receive_data(self.request.recv(65_536))
            elif isinstance(event, h11.Request):
                print(f"seen {event.method.decode()} {event.target.decode()}", flush=True)
            elif isinstance(event, h11.EndOfMessage):
                break
            elif isinstance(event, h11.ConnectionClosed):
                return False
        self.send(connection, h11.Response(status_code=200, headers=HEADERS))
        self.send(connection, h11.EndOfMessage())
        return connection.our_state is h11.DONE and connection.their_state is h11.DONE

    def send(self, connection, event):
        self.request.sendall(connection.send(event))


def run_h11():
    socketserver.ThreadingTCPServer.daemon_threads = True
    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), H11) as server:
        print(f"listening on {server.server_address[1]}", flush=True)
        server.serve_forever()


def application(environ, start_response):
    print(f"seen {environ['REQUEST_METHOD']} {environ['RAW_URI']}", flush=True)
    try:
        while environ["wsgi.input"].read(65_536):
            pass
    except OSError as error:
        # The same for a body that breaks off; anything else is a fault of the framing.
        if type(error).__name__ != "NoMoreData":
            print(f"fault {error!r}", flush=True)
    start_response("200 OK", HEADERS)
    return []


def run_gunicorn():
    from gunicorn.app.base import BaseApplication

    class Faults(logging.Handler):
        def emit(self, record):
            # gunicorn warns of requests that it cannot parse.
            if "Invalid request" in record.getMessage():
                print(f"fault {record.getMessage()}", flush=True)

    class Application(BaseApplication):
        def load_config(self):
            options = {
                "bind": "127.0.0.1:0",
                "worker_class": "gthread",
                "threads": 8,
                "keepalive": 75,
                "limit_request_line": 0,
                "limit_request_field_size": 0,
                "limit_request_fields": 1000,
                "when_ready": self.ready,
                "post_worker_init": lambda _: logging.getLogger("gunicorn.error").addHandler(Faults()),
            }
            for name, value in options.items():
                self.cfg.set(name, value)

        def load(self):
            return application

        def ready(self, server):
            print(f"listening on {server.LISTENERS[0].sock.getsockname()[1]}", flush=True)

    Application().run()


{"h11": run_h11, "gunicorn": run_gunicorn}[sys.argv[1]]()
