//! How an attempt went: a connection, a response or a failure, over either version of HTTP. Each is
//! counted, and the upstream's pool and limits learn from it.

use http::{Method, StatusCode};
use pingora::prelude::{Error, ErrorSource, Result};

use super::retry::{self, Failed, Request};
use super::{Answer, Attempts};
use crate::base::clock;
use crate::decide::reason::Failure;
use crate::gateway::Gateway;
use crate::gateway::exchange::Exchange;
use crate::gateway::request::grpc_deadline;
use crate::gateway::respond::{self, failure};
use crate::limit::in_flight::adaptive::Outcome;
use crate::observe::metrics::UpstreamResult;
use crate::policy::settings::{MaxInFlight, Upstream};
use crate::upstream::connection::{Attempt, TimedOut};

impl Gateway {
    /// Notes that the endpoint that was selected last has been connected to.
    pub(in crate::gateway) fn connected(&self, exchange: &mut Exchange, is_reused: bool) {
        if let Some(attempt) = exchange.attempts.last_mut() {
            attempt.is_reused = Some(is_reused);
            attempt.marks.connected = Some(clock::now());
        }
        if let Some(series) = exchange.upstream_series(&self.metrics) {
            series.connected(is_reused);
        }
        let endpoint = exchange.attempts.last().and_then(|attempt| attempt.endpoint.as_ref());
        if let (false, Some(pool), Some(endpoint)) = (is_reused, exchange.pool(), endpoint) {
            pool.readmit(endpoint, clock::now());
        }
    }

    /// Ejects the endpoint that was selected last, which could not be connected to, unless the
    /// deadline of a gRPC call has passed. The error that is returned says whether another endpoint
    /// is tried.
    #[allow(clippy::unnecessary_box_returns, reason = "the type that Pingora's phases return")]
    pub(in crate::gateway) fn failed_to_connect(
        &self,
        method: &Method,
        exchange: &mut Exchange,
        mut error: Box<Error>,
    ) -> Box<Error> {
        let timed_out = exchange.attempts.connection().and_then(Attempt::timed_out);
        if timed_out == Some(TimedOut::Deadline) {
            error = grpc_deadline::passed();
        }
        if grpc_deadline::has_passed(&error) {
            // Not a failure of the server: a client can set any deadline.
            self.count_upstream(exchange, UpstreamResult::Timeout);
            return error;
        }
        if let Some(attempt) = exchange.attempts.last_mut() {
            attempt.is_refused = true;
        }
        sample(exchange, None, clock::now());
        self.count_upstream(exchange, UpstreamResult::Connect);
        let endpoint = exchange.attempts.last().and_then(|attempt| attempt.endpoint.as_ref());
        if let (Some(pool), Some(endpoint)) = (exchange.pool(), endpoint) {
            pool.eject(endpoint, clock::now());
        }
        // Of the body, nothing was sent.
        error.set_retry(exchange.attempts.is_retried(Failed::NotConnected, method, true));
        error
    }

    /// Notes the head of a response, before any of it is written to the client.
    ///
    /// # Errors
    /// There are too many interim responses.
    pub(in crate::gateway) fn responded(
        &self,
        exchange: &mut Exchange,
        status: StatusCode,
    ) -> Result<()> {
        if !respond::is_final(status) {
            return exchange.attempts.count_interim();
        }
        let now = clock::now();
        if let Some(attempt) = exchange.attempts.last_mut() {
            attempt.marks.head = Some(now);
        }
        let took_us = exchange.attempts.first_began().map_or(0, |at| now.saturating_sub(at));
        exchange.attempts.answer = Some(Answer { status, took_us });
        if let Some(series) = exchange.upstream_series(&self.metrics) {
            series.observe(took_us);
        }
        sample(exchange, Some(status), now);
        let digit = u8::try_from(status.as_u16() / 100).unwrap_or_default();
        self.count_upstream(exchange, UpstreamResult::Answer(digit));
        Ok(())
    }

    /// Counts a failure of the upstream that ends the request, after it was connected to. A failure
    /// to connect has been counted already.
    pub(in crate::gateway) fn count_failure(&self, exchange: &mut Exchange, error: &Error) {
        let attempts = &exchange.attempts;
        let is_connected = attempts.last().is_some_and(|attempt| attempt.is_reused.is_some());
        if *error.esource() != ErrorSource::Upstream || !is_connected {
            return;
        }
        if attempts.answer.is_none() && !failure::is_at_will(error) {
            sample(exchange, None, clock::now());
        }
        let result = match failure::failure(error) {
            Failure::UpstreamTimeout => UpstreamResult::Timeout,
            _ => UpstreamResult::Broken,
        };
        self.count_upstream(exchange, result);
    }

    /// Counts the result of an attempt at the upstream.
    pub(super) fn count_upstream(&self, exchange: &mut Exchange, result: UpstreamResult) {
        exchange.attempts.failure = match result {
            UpstreamResult::Answer(_) => None,
            failure => Some(failure.label()),
        };
        if let Some(series) = exchange.upstream_series(&self.metrics) {
            series.count(result, exchange.attempts.answer.is_some());
        }
    }
}

impl Attempts {
    /// Whether a request of this method is retried, after its last attempt failed. With
    /// `has_whole_body`, its body can be sent from its beginning.
    pub(super) fn is_retried(&self, failed: Failed, method: &Method, has_whole_body: bool) -> bool {
        let is_idempotent = method.is_idempotent();
        retry::is_retried(failed, Request { tries: self.count(), is_idempotent, has_whole_body })
    }
}

/// Adapts the limit on requests in flight of an upstream with `max_in_flight = "auto"` to the last
/// attempt, which ended at `now`: with a response of this status, or with none.
fn sample(exchange: &Exchange, status: Option<StatusCode>, now: u64) {
    let upstream = exchange.upstream_index();
    let is_adaptive = |upstream: &Upstream| upstream.max_in_flight == Some(MaxInFlight::Auto);
    if !exchange.upstream().is_some_and(is_adaptive) {
        return;
    }
    let Some(load) = upstream.and_then(|index| exchange.snapshot.loads.get(index)) else { return };
    let Some(attempt) = exchange.attempts.last() else { return };
    let outcome = match status {
        None | Some(StatusCode::SERVICE_UNAVAILABLE | StatusCode::GATEWAY_TIMEOUT) => {
            Outcome::Failed
        }
        // The time that the client takes for the body is not the upstream's.
        Some(_) => {
            let sent = attempt.marks.request.unwrap_or(attempt.began).max(attempt.began);
            Outcome::Answered(now.saturating_sub(sent))
        }
    };
    load.sample(attempt.began, outcome, now);
}
