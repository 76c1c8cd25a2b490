//! A collector of traces that receives OTLP over HTTP and stores every span.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;

use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::KeyValue;
use opentelemetry_proto::tonic::common::v1::any_value::Value as AnyValue;
use opentelemetry_proto::tonic::trace::v1::span::SpanKind;
use parking_lot::Mutex;
use prost::Message as _;
use serde_json::{Value, json};

use super::upstream::{ReceivedRequest, Upstream};
use super::wait::eventually;

/// A running collector; stops when dropped.
pub(crate) struct Collector {
    pub(crate) address: SocketAddr,
    server: Upstream,
    spans: Arc<Mutex<Vec<Span>>>,
}

/// A received span.
#[derive(Clone, Debug)]
pub(crate) struct Span {
    pub(crate) name: String,
    /// `Server`, `Client` or `Internal`.
    pub(crate) kind: &'static str,
    pub(crate) trace: String,
    pub(crate) id: String,
    /// Id of the parent span; empty for a root span.
    pub(crate) parent: String,
    /// Whether the parent is in another process.
    pub(crate) is_parent_remote: bool,
    pub(crate) state: String,
    pub(crate) has_failed: bool,
    /// Start and end, in nanoseconds since the Unix epoch.
    pub(crate) times: (u64, u64),
    pub(crate) attributes: BTreeMap<String, Value>,
    /// Names and attributes.
    pub(crate) events: Vec<(String, BTreeMap<String, Value>)>,
    /// Resource attributes of the process.
    pub(crate) resource: BTreeMap<String, Value>,
}

const ACCEPTED: &[u8] =
    b"HTTP/1.1 200 OK\r\nContent-Type: application/x-protobuf\r\nContent-Length: 0\r\n\r\n";

impl Collector {
    /// Starts a collector that accepts everything.
    pub(crate) fn start() -> Self {
        Self::answering(|_, stream| stream.write_all(ACCEPTED).is_ok())
    }

    /// Starts a collector that responds by `script`, as an [`Upstream`] does. Stores spans in any
    /// case.
    pub(crate) fn answering(
        script: impl Fn(&ReceivedRequest, &mut TcpStream) -> bool + Send + Sync + 'static,
    ) -> Self {
        let spans: Arc<Mutex<Vec<Span>>> = Arc::default();
        let kept = Arc::clone(&spans);
        let server = Upstream::start(move |seen, stream| {
            kept.lock().extend(read(seen));
            script(seen, stream)
        });
        Self { address: server.address, server, spans }
    }

    /// The `[tracing]` table that exports the spans of all requests to this collector.
    pub(crate) fn table(&self, more: &str) -> String {
        format!("\n[tracing]\nendpoint = \"http://{}\"\nsample = 1\n{more}\n", self.address)
    }

    /// Spans received so far.
    pub(crate) fn spans(&self) -> Vec<Span> {
        self.spans.lock().clone()
    }

    /// Waits for `count` spans and returns them.
    #[track_caller]
    pub(crate) fn wait_for(&self, count: usize) -> Vec<Span> {
        let enough = || Some(self.spans()).filter(|spans| spans.len() >= count);
        let spans = eventually(&format!("{count} spans"), enough);
        assert_eq!(spans.len(), count, "{spans:#?}");
        spans
    }

    /// The requests received so far.
    pub(crate) fn messages(&self) -> Vec<ReceivedRequest> {
        self.server.requests()
    }
}

impl Span {
    /// An attribute; null if missing.
    pub(crate) fn get(&self, name: &str) -> Value {
        self.attributes.get(name).cloned().unwrap_or_default()
    }
}

/// The spans of an export request.
fn read(seen: &ReceivedRequest) -> Vec<Span> {
    assert!(seen.line().starts_with("POST /v1/traces "), "{}", seen.head);
    assert_eq!(seen.header("content-type"), Some("application/x-protobuf"));
    let message = ExportTraceServiceRequest::decode(&*seen.body).unwrap();
    let mut spans = Vec::new();
    for of_resource in message.resource_spans {
        let resource = attributes(of_resource.resource.unwrap().attributes);
        let all = of_resource.scope_spans.into_iter().flat_map(|scope| scope.spans);
        spans.extend(all.map(|span| {
            Span {
                kind: match span.kind() {
                    SpanKind::Server => "Server",
                    SpanKind::Client => "Client",
                    SpanKind::Internal => "Internal",
                    other => panic!("{other:?}"),
                },
                trace: hex(&span.trace_id),
                id: hex(&span.span_id),
                parent: hex(&span.parent_span_id),
                is_parent_remote: span.flags & 0x200 != 0,
                state: span.trace_state,
                has_failed: span.status.is_some_and(|status| status.code == 2),
                times: (span.start_time_unix_nano, span.end_time_unix_nano),
                attributes: attributes(span.attributes),
                events: span
                    .events
                    .into_iter()
                    .map(|event| (event.name, attributes(event.attributes)))
                    .collect(),
                resource: resource.clone(),
                name: span.name,
            }
        }));
    }
    spans
}

fn attributes(list: Vec<KeyValue>) -> BTreeMap<String, Value> {
    let value = |value| match value {
        AnyValue::StringValue(text) => json!(text),
        AnyValue::IntValue(number) => json!(number),
        other => panic!("{other:?}"),
    };
    let count = list.len();
    let all: BTreeMap<_, _> =
        list.into_iter().map(|one| (one.key, value(one.value.unwrap().value.unwrap()))).collect();
    assert_eq!(all.len(), count, "duplicate attribute: {all:?}");
    all
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |text, byte| format!("{text}{byte:02x}"))
}
