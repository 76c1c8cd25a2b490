//! What is told of a request: to the metrics while it is judged and when it is over, to the audit
//! and the access log at its very end.

use std::sync::Arc;

use http::StatusCode;
use pingora::prelude::{Error, ErrorSource, ErrorType};
use pingora::proxy::Session;

use super::exchange::Exchange;
use super::{Gateway, respond};
use crate::clock;
use crate::decide::decision::{Decision, Summary};
use crate::decide::label::DecisionLabel;
use crate::observe::access_log::{Record, Timings};
use crate::observe::metrics::{UpstreamResult, seconds};
use crate::policy::access_log::Output;
use crate::store::limiter::Source;

impl Gateway {
    /// Notes how long a decision took.
    pub(super) fn observe_check(&self, source: Source, ticks: u64) {
        if let Some(checks) = self.checks.get(source as usize) {
            checks.observe(seconds(ticks));
        }
    }

    /// Counts a request that is over, and has it written.
    pub(super) fn record(&self, session: &Session, exchange: &mut Exchange) {
        let policy = &exchange.snapshot.policy;
        let status = session.response_written().map_or("", |response| response.status.as_str());
        let plan = exchange.client.map_or("", |client| policy.plan_name(client.plan));
        let route = exchange.route().map_or("", |route| &route.name);
        self.metrics.requests.with_label_values(&[route, plan, status]).inc();
        let ticks = clock::now().saturating_sub(exchange.started);
        if let Some(route) = exchange.route {
            exchange.snapshot.series.observe_duration(&self.metrics, policy, route, ticks);
        }
        let decision = exchange.decision.as_ref().map_or(Summary::UNLIMITED, Decision::summary);
        if let (Some(rule), Some(client), DecisionLabel::Deny) =
            (decision.rule, exchange.client, decision.label)
        {
            exchange.snapshot.series.refused(&self.metrics, policy, rule, client.plan);
            self.audit.record(policy, &client, rule, decision.remaining);
        }
        let writes = policy.access_log.output != Output::Off;
        let is_written = writes && is_chosen(session, exchange, decision);
        let recorded = exchange.trace.filter(|trace| trace.is_sampled);
        if !is_written && recorded.is_none() {
            return;
        }
        let record = record(session, exchange, decision, ticks);
        if is_written {
            self.access_log.write(&record);
        }
        if let Some(trace) = recorded {
            self.tell(session, exchange, trace, record);
        }
    }

    /// Counts an answer whose head has come. What comes before the answer itself (103) is none.
    pub(super) fn count_answer(&self, exchange: &mut Exchange, status: StatusCode) {
        if !respond::is_final(status) {
            return;
        }
        let ticks = exchange.sent_on.map(|at| clock::now().saturating_sub(at));
        exchange.upstream_us = ticks;
        exchange.upstream_status = Some(status);
        if let (Some(series), Some(ticks)) = (exchange.upstream_series(&self.metrics), ticks) {
            series.observe(ticks);
        }
        let digit = u8::try_from(status.as_u16() / 100).unwrap_or_default();
        self.count_upstream(exchange, UpstreamResult::Answer(digit));
    }

    /// Counts a failure that is an upstream's own. That of a connection has been counted.
    pub(super) fn count_failure(&self, exchange: &mut Exchange, error: &Error) {
        if *error.esource() != ErrorSource::Upstream || !exchange.is_connected {
            return;
        }
        let result = match error.etype() {
            ErrorType::ReadTimedout | ErrorType::WriteTimedout => UpstreamResult::Timeout,
            _ => UpstreamResult::Broken,
        };
        self.count_upstream(exchange, result);
    }

    pub(super) fn count_upstream(&self, exchange: &mut Exchange, result: UpstreamResult) {
        exchange.upstream_failure = match result {
            UpstreamResult::Answer(_) => None,
            failure => Some(failure.label()),
        };
        if let Some(series) = exchange.upstream_series(&self.metrics) {
            series.count(result);
        }
    }
}

/// Whether a request has a line in the access log: an ordinary one only where the sample has it.
fn is_chosen(session: &Session, exchange: &Exchange, decision: Summary) -> bool {
    let status = session.response_written().map(|response| response.status);
    let is_ordinary = decision.label == DecisionLabel::Allow
        && status.is_some_and(|status| !status.is_server_error());
    let sample = exchange.snapshot.policy.access_log.sample;
    !is_ordinary || sample.includes(exchange.request_id.as_str())
}

/// What is written of a request that took so many `ticks`.
fn record(session: &Session, exchange: &Exchange, decision: Summary, ticks: u64) -> Record {
    let request = session.req_header();
    let status = session.response_written().map(|response| response.status);
    let recorded = exchange.trace.filter(|trace| trace.is_sampled);
    Record {
        policy: Arc::clone(&exchange.snapshot.policy),
        time: clock::unix_us().saturating_sub(ticks),
        client: exchange.client,
        method: request.method.clone(),
        path: Record::path(request.uri.path()),
        route: exchange.route,
        decision,
        status: status.map(|status| status.as_u16()),
        bytes_in: session.body_bytes_read() as u64,
        bytes_out: session.body_bytes_sent() as u64,
        server: exchange.server,
        timings: Timings {
            total: ticks,
            check: exchange.check.map(|check| check.took),
            upstream: exchange.upstream_us,
        },
        request_id: exchange.request_id.as_str().to_owned(),
        trace_id: recorded.map(|trace| trace.id),
    }
}
