"""A collector of traces by OTLP over HTTP, with the definition that OpenTelemetry publishes for Python. Chooses a port and
prints it.

Prints `span JSON` for each span, and `fault …` for a request that is not as OTLP defines it.
"""

import json
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from google.protobuf.unknown_fields import UnknownFieldSet
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)
from opentelemetry.proto.trace.v1.trace_pb2 import Span


def attributes(listed):
    return {one.key: getattr(one.value, one.value.WhichOneof("value")) for one in listed}


def messages(message):
    """The message, and all messages in it."""
    yield message
    for field, value in message.ListFields():
        if field.message_type:
            for one in value if field.is_repeated else [value]:
                yield from messages(one)


class Collector(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        if self.path != "/v1/traces" or self.headers["Content-Type"] != "application/x-protobuf":
            print(f"fault {self.path} {self.headers['Content-Type']}", flush=True)
        request = ExportTraceServiceRequest.FromString(body)
        for message in messages(request):
            if len(UnknownFieldSet(message)):
                print(f"fault {type(message).__name__} has a field that is not defined", flush=True)
        for of_resource in request.resource_spans:
            for scope in of_resource.scope_spans:
                for span in scope.spans:
                    self.show(attributes(of_resource.resource.attributes), span)
        answer = ExportTraceServiceResponse().SerializeToString()
        self.send_response(200)
        self.send_header("Content-Type", "application/x-protobuf")
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def show(self, resource, span):
        shown = {
            "name": span.name,
            "kind": Span.SpanKind.Name(span.kind),
            "trace": span.trace_id.hex(),
            "id": span.span_id.hex(),
            "parent": span.parent_span_id.hex(),
            "ns": span.end_time_unix_nano - span.start_time_unix_nano,
            "start": span.start_time_unix_nano,
            "attributes": attributes(span.attributes),
            "resource": resource,
        }
        print("span " + json.dumps(shown), flush=True)

    def log_message(self, *_):
        pass


server = ThreadingHTTPServer(("127.0.0.1", 0), Collector)
print(f"listening on {server.server_address[1]}", flush=True)
server.serve_forever()
