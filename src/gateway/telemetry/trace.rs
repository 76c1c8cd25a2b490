//! The trace of a request: begun when the request is decided, propagated to the upstream, and
//! exported when the request is complete. Without `[tracing]`, each step is one test of an
//! `Option`.

use http::HeaderValue;
use http::header::HOST;
use pingora::prelude::{RequestHeader, Result};
use pingora::proxy::Session;

use crate::gateway::Gateway;
use crate::gateway::attempts::forward::FORWARDED_PROTO;
use crate::gateway::exchange::Exchange;
use crate::observe::access_log::Record;
use crate::observe::traces::context::{Parent, SpanId, TRACEPARENT, TRACESTATE, is_tracestate};
use crate::observe::traces::{self, Call, Trace, TraceRecord};

/// Longest `tracestate` that is exported: the length that every implementation must propagate (W3C
/// Trace Context, section 3.3.1.5).
const MAX_STATE_BYTES: usize = 512;

/// Longest host that is exported. A DNS name with a port is not longer.
const MAX_HOST_BYTES: usize = 260;

/// Begins the trace of a request, if tracing is enabled.
pub(in crate::gateway) fn begin(session: &Session, exchange: &mut Exchange) {
    let Some(tracing) = &exchange.snapshot.policy.tracing else { return };
    let headers = &session.req_header().headers;
    let mut lines = headers.get_all(TRACEPARENT).iter();
    let parent = match (lines.next(), lines.next()) {
        (Some(line), None) => Parent::parse(line.as_bytes()),
        _ => None,
    };
    // Without a source of randomness there is no trace.
    let Some(random) = traces::random() else { return };
    exchange.trace = Trace::of(tracing, parent, exchange.via_trusted_proxy(), random);
}

/// Sets the trace headers of the request to the upstream. Removes those of a client whose trace is
/// not continued.
pub(in crate::gateway) fn propagate(
    request: &mut RequestHeader,
    exchange: &Exchange,
) -> Result<()> {
    if exchange.snapshot.policy.tracing.is_none() {
        return Ok(());
    }
    request.remove_header(TRACEPARENT);
    let lines = request.headers.get_all(TRACESTATE).iter().map(HeaderValue::as_bytes);
    if exchange.trace.is_none_or(|trace| trace.parent.is_none()) || !is_tracestate(lines) {
        request.remove_header(TRACESTATE);
    }
    match exchange.trace {
        Some(trace) => request.insert_header(TRACEPARENT, trace.for_upstream().header()),
        None => Ok(()),
    }
}

impl Gateway {
    /// Exports the spans of a request that is complete.
    pub(super) fn record_trace(
        &self,
        session: &Session,
        exchange: &Exchange,
        trace: Trace,
        record: Record,
    ) {
        let request = session.req_header();
        let after = |at: u64| at.saturating_sub(exchange.started);
        let total = record.timings.total;
        let attempts = &exchange.attempts;
        let call = attempts.first_began().map(|at| Call {
            offset_us: after(at),
            duration_us: attempts
                .answer
                .map_or(total.saturating_sub(after(at)), |answer| answer.took_us),
            status: attempts.answer.map(|answer| answer.status.as_u16()),
            failure: attempts.failure,
            tries: attempts.count(),
        });
        let check = exchange.judged.as_ref().and_then(|judged| judged.check);
        let check_offset_us = check.map(|check| after(check.started));
        let check_span = check_offset_us.and_then(|_| SpanId::of(traces::random().map(|[id]| id)?));
        let proto = request.headers.get(FORWARDED_PROTO).map(HeaderValue::as_bytes);
        self.traces.emit(TraceRecord {
            request: record,
            trace,
            check_span,
            state: state(session, trace),
            host: host(session),
            is_https: exchange.via_trusted_proxy() && proto == Some(b"https"),
            version: request.version,
            check_offset_us,
            call,
            retried: attempts.retried(exchange.started),
        });
    }
}

/// The `tracestate` of a trace that is continued; empty if it is too long or not valid.
fn state(session: &Session, trace: Trace) -> Box<str> {
    let lines = session.req_header().headers.get_all(TRACESTATE);
    let is_kept = trace.parent.is_some() && is_tracestate(lines.iter().map(HeaderValue::as_bytes));
    if !is_kept {
        return Box::default();
    }
    let lines: Vec<&str> = lines.iter().filter_map(|line| line.to_str().ok()).collect();
    let state = lines.join(",");
    if state.len() > MAX_STATE_BYTES { Box::default() } else { state.into() }
}

/// Host of the request; `None` if the header does not have a valid one.
fn host(session: &Session) -> Option<Box<str>> {
    let is_part = |byte: u8| byte.is_ascii_alphanumeric() || b"-._:[]".contains(&byte);
    let host = session.req_header().headers.get(HOST)?.to_str().ok()?;
    let fits = (1..=MAX_HOST_BYTES).contains(&host.len()) && host.bytes().all(is_part);
    fits.then(|| host.into())
}
