//! Metrics and audit of a request while it is served; metrics, access log and trace when it is
//! complete.
//!
//! Reading order: this file (metrics, audit and access log), `trace` (the spans of the request),
//! `bearer_hint` (a hint for the operator of an API that has bearer tokens of its own).

pub(super) mod bearer_hint;
pub(super) mod trace;

use std::sync::Arc;

use http::StatusCode;
use pingora::proxy::Session;

use super::exchange::Exchange;
use super::judge::Judged;
use super::{Gateway, respond};
use crate::base::{clock, unix_time};
use crate::client::identity::Identity;
use crate::client::settings::KeySource;
use crate::decide::decision::{Decision, Summary};
use crate::decide::label::DecisionLabel;
use crate::decide::outcome::RequestOutcome;
use crate::decide::reason::{Failure, Reason};
use crate::downstream::connection::{ClientProtocol, Slow};
use crate::limit::cost::Cost;
use crate::observe::access_log::{Record, RequestParts, Timings, UpstreamMarks};
use crate::observe::audit::AuditedRequest;
use crate::observe::metrics::{CompleteRequest, seconds};
use crate::policy::access_log::Output;
use crate::store::limiter::Source;

/// What the client gets of a response.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sent {
    /// `None`: nothing.
    pub(super) status: Option<StatusCode>,
    /// Bytes of the body.
    pub(super) bytes: u64,
}

impl Sent {
    /// What has been written.
    pub(super) fn of(session: &Session) -> Self {
        let status = session.response_written().map(|response| response.status);
        Self { status, bytes: session.body_bytes_sent() as u64 }
    }
}

impl Gateway {
    /// Counts a request that failed because its client is too slow. Returns the failure: if the
    /// connection was closed for that, it seems to have been closed by the client.
    pub(super) fn count_slowness(&self, exchange: &Exchange, failure: Failure) -> Failure {
        let connection = &exchange.connection;
        let is_closed = connection.slow() == Some(Slow::Reader);
        let slow = match failure {
            Failure::ClientClosed if is_closed => return Failure::SlowReader,
            Failure::SlowBody => Slow::Body,
            Failure::SlowReader => Slow::Reader,
            _ => return failure,
        };
        match connection.protocol {
            // Counted at the end of the connection.
            ClientProtocol::Http1 => connection.note_slow(slow),
            // Only the request ends.
            ClientProtocol::Http2 => {
                let peer = connection.peer.map(|peer| peer.ip());
                self.rejections.note(slow.label(), peer, &exchange.snapshot.policy);
            }
        }
        failure
    }

    /// Observes the duration of a check of rate limits, in microseconds.
    pub(super) fn observe_check(&self, source: Source, took_us: u64) {
        if let Some(checks) = self.checks.get(source as usize) {
            checks.observe(seconds(took_us));
        }
    }

    /// Records the refusals that a decision consists of, at the time of the decision: a request
    /// that a rule in shadow mode would have refused can go on for hours.
    pub(super) fn record_refusals(&self, exchange: &Exchange, judged: &Judged) {
        let Some(Identity { client, key_from, key_refusal, key_name, .. }) = &judged.identity
        else {
            return;
        };
        let (policy, generation) = (&exchange.snapshot.policy, exchange.snapshot.generation);
        let request = AuditedRequest {
            policy,
            generation,
            client,
            route: judged.route,
            key_from: *key_from,
            key_refusal: *key_refusal,
            key_name: key_name.as_ref(),
        };
        self.audit.record(&request, &judged.decision);
    }

    /// Records a request that is complete, with what the client gets.
    pub(super) fn record(&self, session: &Session, sent: Sent, exchange: &mut Exchange) {
        let policy = &exchange.snapshot.policy;
        let total_us = clock::now().saturating_sub(exchange.started);
        let complete = CompleteRequest {
            route: exchange.route_index(),
            plan: exchange.client().map(|client| client.plan),
            status: sent.status.map(|status| status.as_u16()),
            outcome: RequestOutcome::of(exchange.decision()),
            reason: exchange.reason(),
            took_us: total_us,
        };
        let is_unknown =
            matches!(complete.reason, Some(Reason::UnknownKey | Reason::LimitedUnknownKey));
        if is_unknown && exchange.key_source() == Some(&KeySource::Bearer) {
            self.bearer_hint.add(clock::now());
        }
        exchange.snapshot.series.complete(&self.metrics, policy, &complete);
        let writes = policy.access_log.output != Output::Off;
        let trace = exchange.trace.filter(|trace| trace.is_sampled);
        if !writes && trace.is_none() {
            return;
        }
        let decision = exchange.decision().map_or(Summary::UNLIMITED, Decision::summary);
        let is_written = writes && is_sampled(sent, exchange, decision);
        if !is_written && trace.is_none() {
            return;
        }
        let record = record(session, sent, exchange, decision, total_us);
        if is_written {
            self.access_log.write(&record, &request_parts(session, exchange));
        }
        if let Some(trace) = trace {
            self.record_trace(session, exchange, trace, record);
        }
    }
}

/// Whether the request is in the access log: if it is in the sample, was denied, or failed.
fn is_sampled(sent: Sent, exchange: &Exchange, decision: Summary) -> bool {
    let is_ordinary = decision.label == DecisionLabel::Allow
        && sent.status.is_some_and(|status| !status.is_server_error());
    let sample = exchange.snapshot.policy.access_log.sample;
    !is_ordinary || sample.includes(exchange.request_id.as_str())
}

fn request_parts<'a>(session: &'a Session, exchange: &'a Exchange) -> RequestParts<'a> {
    let request = session.req_header();
    let in_head = || session.response_written()?.headers.get(respond::grpc::STATUS);
    RequestParts {
        headers: &request.headers,
        version: request.version,
        tls: exchange.connection.tls.as_ref(),
        grpc_status: exchange.grpc_status.as_ref().or_else(in_head),
        attempts: exchange.attempts.count(),
        costs: &exchange.costs,
    }
}

/// What the request has cost for the rule of its decision: as its response says, or what it took.
fn cost(exchange: &Exchange, decision: Summary) -> Option<Cost> {
    let read = exchange.costs.iter().find(|(rule, _)| Some(*rule) == decision.rule);
    match read {
        Some((_, cost)) => Cost::from_thousandths(cost.thousandths()),
        None => decision.cost,
    }
}

/// The record of a request that took `total_us` microseconds.
fn record(
    session: &Session,
    sent: Sent,
    exchange: &Exchange,
    decision: Summary,
    total_us: u64,
) -> Record {
    let request = session.req_header();
    let recorded = exchange.trace.filter(|trace| trace.is_sampled);
    let (judged, attempts) = (exchange.judged.as_ref(), &exchange.attempts);
    let marks = attempts.last().map_or_else(UpstreamMarks::default, |attempt| attempt.marks);
    Record {
        policy: Arc::clone(&exchange.snapshot.policy),
        time: unix_time::of(exchange.started),
        client: exchange.client().cloned(),
        method: request.method.clone(),
        path: Record::path(request.uri.path()),
        route: exchange.route_index(),
        upstream: judged.and_then(|judged| judged.upstream),
        decision: Summary { cost: cost(exchange, decision), ..decision },
        shadow_rules: exchange.decision().map_or_else(Vec::new, Decision::shadow_denials),
        reason: exchange.reason(),
        status: sent.status.map(|status| status.as_u16()),
        bytes_in: session.body_bytes_read() as u64,
        bytes_out: sent.bytes,
        server: attempts.last().map(|attempt| attempt.server),
        generation: exchange.snapshot.generation,
        key_from: exchange.identity().and_then(|identity| identity.key_from),
        key_name: exchange.identity().and_then(|identity| identity.key_name.clone()),
        is_reused: attempts.last().and_then(|attempt| attempt.is_reused),
        timings: Timings {
            total: total_us,
            check: judged.and_then(|judged| judged.check).map(|check| check.took),
            wait: exchange.waited_us,
            upstream: attempts.answer.map(|answer| answer.took_us),
            parts: marks.times(exchange.started.saturating_add(total_us)),
        },
        request_id: exchange.request_id.as_str().to_owned(),
        trace_id: recorded.map(|trace| trace.id),
    }
}
