//! Spans in the form of OpenTelemetry. Attributes follow its semantic conventions for HTTP; those
//! of the gateway begin with `tollgate.`.

use http::{Method, Version};
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::common::v1::{AnyValue, InstrumentationScope, KeyValue};
use opentelemetry_proto::tonic::resource::v1::Resource;
use opentelemetry_proto::tonic::trace::v1::span::{Event, SpanKind};
use opentelemetry_proto::tonic::trace::v1::status::StatusCode;
use opentelemetry_proto::tonic::trace::v1::{ResourceSpans, ScopeSpans, Span, SpanFlags, Status};

use super::context::SpanId;
use super::{Call, FailedAttempt, TraceRecord};
use crate::decide::label::source_label;
use crate::net::address::{self, Authority};
use crate::observe::address::ShownAddress;
use crate::policy::Route;
use crate::policy::matcher::PathPattern;

/// Nanoseconds in a microsecond.
const NANOS_PER_MICRO: u64 = 1_000;

/// The methods of the conventions. Others are `_OTHER`: a client can invent any number of them.
const METHODS: [Method; 9] = [
    Method::CONNECT,
    Method::DELETE,
    Method::GET,
    Method::HEAD,
    Method::OPTIONS,
    Method::PATCH,
    Method::POST,
    Method::PUT,
    Method::TRACE,
];

/// `error.type` if the client disconnected before the response.
const CANCELED: &str = "canceled";

/// Maximum length of an unknown method in a span.
const MAX_METHOD_BYTES: usize = 64;

/// Returns one message with all spans of at least one record.
pub(super) fn request(records: &[Box<TraceRecord>], instance: &str) -> ExportTraceServiceRequest {
    let service = records.first().and_then(|record| record.request.policy.tracing.as_ref());
    let mut resource = Attributes::default();
    resource.text("service.name", service.map_or("tollgate", |tracing| &tracing.service_name));
    resource.text("service.version", env!("CARGO_PKG_VERSION"));
    resource.text("service.instance.id", instance);
    let scope = InstrumentationScope {
        name: "tollgate".to_owned(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        ..InstrumentationScope::default()
    };
    let spans = records.iter().flat_map(|record| spans(record)).collect();
    let scope_spans = vec![ScopeSpans { scope: Some(scope), spans, schema_url: String::new() }];
    let resource = Resource { attributes: resource.0, ..Resource::default() };
    let resource_spans =
        vec![ResourceSpans { resource: Some(resource), scope_spans, schema_url: String::new() }];
    ExportTraceServiceRequest { resource_spans }
}

fn spans(record: &TraceRecord) -> impl Iterator<Item = Span> {
    let call = record.call.as_ref().map(|call| upstream(record, call));
    [Some(server(record)), check(record), call].into_iter().flatten()
}

/// Returns the server span, of the request itself.
fn server(record: &TraceRecord) -> Span {
    let (request, policy) = (&record.request, &*record.request.policy);
    let route = route(record);
    let mut attributes = Attributes::default();
    let method = attributes.method(&request.method);
    let name = match route {
        Some(route) => format!("{method} {}", path_of(route)),
        None => method.to_owned(),
    };
    attributes.text("url.path", &request.path);
    attributes.text("url.scheme", if record.is_https { "https" } else { "http" });
    attributes.text("network.protocol.version", version(record.version));
    if let Some(host) = &record.host {
        attributes.host(host);
    }
    if let Some(shown) =
        request.client.as_ref().and_then(|client| ShownAddress::of(client.ip?, policy))
    {
        attributes.text("client.address", &shown.to_string());
    }
    if let Some(route) = route {
        attributes.text("http.route", &path_of(route));
        attributes.text("tollgate.route", &route.name);
    }
    if let Some(client) = &request.client {
        attributes.text("tollgate.plan", policy.plan_name(client.plan));
        if let Some(key) = client.principal() {
            attributes.text("tollgate.key", &key.id);
        }
    }
    attributes.decision(record);
    if let Some(reason) = request.reason {
        attributes.text("tollgate.reason", reason.label());
    }
    attributes.text("tollgate.request_id", &request.request_id);
    let failure = match request.status {
        Some(status) => (status >= 500).then(|| status.to_string()),
        None => Some(CANCELED.to_owned()),
    };
    attributes.status(request.status, failure.as_deref());
    let span = span(record, record.trace.span, record.trace.parent, 0, request.timings.total);
    let (kind, status) = (SpanKind::Server as i32, status(failure.is_some()));
    let is_remote = record.trace.parent.is_some();
    Span { name, kind, status, attributes: attributes.0, flags: flags(is_remote), ..span }
}

/// Returns the span of the check of the limits; `None` if no bucket was read.
fn check(record: &TraceRecord) -> Option<Span> {
    let (id, offset_us) = (record.check_span?, record.check_offset_us?);
    let duration_us = record.request.timings.check?;
    let mut attributes = Attributes::default();
    attributes.decision(record);
    let span = span(record, id, Some(record.trace.span), offset_us, duration_us);
    let (name, kind) = ("check limits".to_owned(), SpanKind::Internal as i32);
    Some(Span { name, kind, attributes: attributes.0, ..span })
}

/// Returns the client span, of the request to the upstream.
fn upstream(record: &TraceRecord, call: &Call) -> Span {
    let request = &record.request;
    let mut attributes = Attributes::default();
    let name = attributes.method(&request.method).to_owned();
    if let Some(server) = request.server {
        attributes.text("server.address", &server.ip().to_string());
        attributes.number("server.port", u64::from(server.port()));
        attributes.text("url.full", &format!("http://{server}{}", request.path));
    }
    let policy = &request.policy;
    let upstream = request.upstream.and_then(|upstream| policy.upstreams.get(upstream as usize));
    if let Some(upstream) = upstream {
        attributes.text("tollgate.upstream", &upstream.name);
    }
    if call.tries > 1 {
        attributes.number("http.request.resend_count", call.tries as u64 - 1);
    }
    let failure = match (call.failure, call.status) {
        (Some(failure), _) => Some(failure.to_owned()),
        (None, Some(status)) => (status >= 400).then(|| status.to_string()),
        (None, None) => Some(CANCELED.to_owned()),
    };
    attributes.status(call.status, failure.as_deref());
    let (id, parent) = (record.trace.upstream, Some(record.trace.span));
    let span = span(record, id, parent, call.offset_us, call.duration_us);
    let (kind, status) = (SpanKind::Client as i32, status(failure.is_some()));
    let events = record.retried.iter().map(|attempt| retry(record, attempt)).collect();
    Span { name, kind, status, attributes: attributes.0, events, ..span }
}

/// Returns the event of a failed attempt.
fn retry(record: &TraceRecord, attempt: &FailedAttempt) -> Event {
    let mut attributes = Attributes::default();
    attributes.text("server.address", &attempt.server.ip().to_string());
    attributes.number("server.port", u64::from(attempt.server.port()));
    attributes.status(attempt.status, Some(attempt.reason.name()));
    let at = record.request.time.saturating_add(attempt.offset_us);
    Event {
        time_unix_nano: at.saturating_mul(NANOS_PER_MICRO),
        name: "retry".to_owned(),
        attributes: attributes.0,
        dropped_attributes_count: 0,
    }
}

/// Returns the common fields of spans. The span starts `offset_us` after the head of the request.
fn span(
    record: &TraceRecord,
    id: SpanId,
    parent: Option<SpanId>,
    offset_us: u64,
    duration_us: u64,
) -> Span {
    let start = record.request.time.saturating_add(offset_us);
    Span {
        trace_id: record.trace.id.bytes().to_vec(),
        span_id: id.bytes().to_vec(),
        parent_span_id: parent.map_or_else(Vec::new, |parent| parent.bytes().to_vec()),
        trace_state: record.state.to_string(),
        start_time_unix_nano: start.saturating_mul(NANOS_PER_MICRO),
        end_time_unix_nano: start.saturating_add(duration_us).saturating_mul(NANOS_PER_MICRO),
        flags: flags(false),
        ..Span::default()
    }
}

/// Returns the flags: sampled, and whether the parent is in another process.
fn flags(is_remote: bool) -> u32 {
    let remote = if is_remote { SpanFlags::ContextIsRemoteMask as u32 } else { 0 };
    1 | SpanFlags::ContextHasIsRemoteMask as u32 | remote
}

/// Returns the status of a span; unset without a failure, as the conventions demand.
fn status(has_failed: bool) -> Option<Status> {
    has_failed.then(|| Status { code: StatusCode::Error as i32, message: String::new() })
}

fn route(record: &TraceRecord) -> Option<&Route> {
    record.request.policy.routes.get(record.request.route? as usize)
}

/// Returns the path of a route as configured.
fn path_of(route: &Route) -> String {
    match &route.matcher.path {
        PathPattern::Exact(path) => path.clone(),
        PathPattern::Prefix(prefix) => format!("{prefix}*"),
        PathPattern::Expression(expression) => expression.text().to_owned(),
    }
}

fn version(version: Version) -> &'static str {
    match version {
        Version::HTTP_09 => "0.9",
        Version::HTTP_10 => "1.0",
        Version::HTTP_2 => "2",
        Version::HTTP_3 => "3",
        _ => "1.1",
    }
}

/// Builds the attributes of a span.
#[derive(Default)]
struct Attributes(Vec<KeyValue>);

impl Attributes {
    fn add(&mut self, key: &str, value: Value) {
        let value = Some(AnyValue { value: Some(value) });
        self.0.push(KeyValue { key: key.to_owned(), value, ..KeyValue::default() });
    }

    fn text(&mut self, key: &str, value: &str) {
        self.add(key, Value::StringValue(value.to_owned()));
    }

    fn number(&mut self, key: &str, value: u64) {
        self.add(key, Value::IntValue(i64::try_from(value).unwrap_or(i64::MAX)));
    }

    /// Adds the method. Returns the method as it is in the name of the span.
    fn method<'a>(&mut self, method: &'a Method) -> &'a str {
        if METHODS.contains(method) {
            self.text("http.request.method", method.as_str());
            return method.as_str();
        }
        let text = method.as_str();
        self.text("http.request.method", "_OTHER");
        let shown = text.get(..MAX_METHOD_BYTES).unwrap_or(text);
        self.text("http.request.method_original", shown);
        "HTTP"
    }

    /// Adds host and port of a `Host` header.
    fn host(&mut self, host: &str) {
        let authority = Authority::split(host).unwrap_or(Authority { host, port: None });
        self.text("server.address", authority.in_brackets().unwrap_or(authority.host));
        if let Some(port) = authority.port.and_then(address::port) {
            self.number("server.port", u64::from(port));
        }
    }

    /// Adds the decision, its rule and source, and the tokens left.
    fn decision(&mut self, record: &TraceRecord) {
        let decision = &record.request.decision;
        self.text("tollgate.decision", decision.label.as_str());
        let rules = &record.request.policy.rules;
        if let Some(rule) = decision.rule.and_then(|rule| rules.get(rule as usize)) {
            self.text("tollgate.rule", &rule.name);
        }
        if let Some(remaining) = decision.remaining {
            self.number("tollgate.remaining", remaining);
        }
        if let Some(source) = decision.source {
            self.text("tollgate.source", source_label(source));
        }
    }

    /// Adds the status and the failure.
    fn status(&mut self, status: Option<u16>, failure: Option<&str>) {
        if let Some(status) = status {
            self.number("http.response.status_code", u64::from(status));
        }
        if let Some(failure) = failure {
            self.text("error.type", failure);
        }
    }
}
