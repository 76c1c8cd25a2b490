//! How an attempt went: a connection, a response or a failure, over either version of HTTP. Each is
//! counted, and the upstream's pool and limits learn from it.

use http::{Method, StatusCode};
use pingora::prelude::{Error, ErrorSource, ErrorType, Result};
use tokio::time::Instant;

use super::retry::{self, Failed, Request, Verdict};
use super::{Answer, deadline};
use crate::base::clock;
use crate::decide::reason::Failure;
use crate::gateway::Gateway;
use crate::gateway::exchange::Exchange;
use crate::gateway::respond::{self, failure};
use crate::limit::adapt::Answer as RateAnswer;
use crate::limit::in_flight::adaptive::Outcome;
use crate::observe::metrics::UpstreamResult;
use crate::policy::failures::ServerFailure;
use crate::policy::settings::{MaxInFlight, Upstream};
use crate::upstream::connection::{Attempt, OVERFLOW, QUEUED, TimedOut};
use crate::upstream::dial::{Raced, failed_in_place};
use crate::upstream::health::EjectReason;

/// Type of the error of an attempt after whose response the request is retried.
pub(super) const RETRIED_STATUS: ErrorType =
    ErrorType::Custom("the request is retried because of the status of the response");

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
            pool.reachable(endpoint, clock::now());
        }
    }

    /// Makes the endpoint that was connected to that of the last attempt, in place of the selected
    /// one, which connected later or failed: it gets no requests for a time.
    #[cold]
    pub(in crate::gateway) fn raced(&self, exchange: &mut Exchange, raced: &Raced) {
        let ejected = exchange.pool().map(|pool| pool.lost_to(raced, clock::now()));
        for reason in ejected.into_iter().flatten() {
            self.count_ejection(exchange, reason);
        }
        replace_endpoint(exchange, raced);
    }

    /// Notes that the endpoint that was selected last could not be connected to, unless the request
    /// ended that before or only waited for others. The error that is returned says whether another
    /// endpoint is tried.
    #[allow(clippy::unnecessary_box_returns, reason = "the type that Pingora's phases return")]
    pub(in crate::gateway) fn failed_to_connect(
        &self,
        method: &Method,
        exchange: &mut Exchange,
        mut error: Box<Error>,
    ) -> Box<Error> {
        let timed_out = exchange.attempts.connection().and_then(Attempt::timed_out);
        if let Some(TimedOut::Deadline(set_by)) = timed_out {
            error = deadline::passed(set_by, true);
        }
        if timed_out == Some(TimedOut::Overflow) || *error.etype() == OVERFLOW {
            self.count_upstream(exchange, UpstreamResult::Overflow);
            return Error::new(OVERFLOW).into_up();
        }
        if deadline::has_passed(&error) {
            // Not a failure of the server: a client can set any deadline, and an earlier attempt
            // may have taken the time.
            self.count_upstream(exchange, UpstreamResult::Timeout);
            return error;
        }
        sample(exchange, None, clock::now());
        self.count_upstream(exchange, UpstreamResult::Connect);
        if *error.etype() != QUEUED {
            self.blame(exchange, &error);
        }
        // Of the body, nothing was sent: it can be sent from its beginning.
        error.set_retry(self.is_retried(exchange, Failed::NotConnected, method, true));
        error
    }

    /// Notes that the endpoint of the last attempt could not be connected to, or another one of its
    /// server that connected in its place and then failed.
    fn blame(&self, exchange: &mut Exchange, error: &Error) {
        if let Some(raced) = failed_in_place(error) {
            replace_endpoint(exchange, raced);
        }
        let endpoint = exchange.attempts.last().and_then(|attempt| attempt.endpoint.as_ref());
        if let (Some(pool), Some(endpoint)) = (exchange.pool(), endpoint)
            && let Some(reason) = pool.unreachable(endpoint, clock::now())
        {
            self.count_ejection(exchange, reason);
        }
    }

    /// Notes the head of a response, before any of it is written to the client. `failed`: the
    /// status that decides on a retry, which is another one for a gRPC call that is unavailable.
    /// `has_whole_body`: as for [`is_retried`](Self::is_retried).
    ///
    /// # Errors
    /// There are too many interim responses, or the request is sent again because of the status:
    /// the error says so.
    pub(in crate::gateway) fn responded(
        &self,
        exchange: &mut Exchange,
        status: StatusCode,
        failed: StatusCode,
        method: &Method,
        has_whole_body: bool,
    ) -> Result<()> {
        if !respond::is_final(status) {
            return exchange.attempts.count_interim();
        }
        let now = clock::now();
        if let Some(attempt) = exchange.attempts.last_mut() {
            attempt.marks.head = Some(now);
        }
        sample(exchange, Some(status), now);
        let is_failure = status.is_client_error() || status.is_server_error();
        let failure = is_failure.then_some(ServerFailure::Status(status));
        self.observe_head(exchange, failure, now);
        if status == StatusCode::SWITCHING_PROTOCOLS {
            exchange.note_success();
        }
        let digit = u8::try_from(status.as_u16() / 100).unwrap_or_default();
        // The first status that can be one of `on`.
        if failed >= StatusCode::REQUEST_TIMEOUT
            && self.is_retried(exchange, Failed::Status(failed), method, has_whole_body)
        {
            self.count_upstream(exchange, UpstreamResult::Answer(digit));
            let mut error = Error::new(RETRIED_STATUS).into_up();
            error.set_retry(true);
            return Err(error);
        }
        let took_us = exchange.attempts.first_began().map_or(0, |at| now.saturating_sub(at));
        exchange.attempts.answer = Some(Answer { status, took_us });
        exchange.note_answered();
        if let Some(series) = exchange.upstream_series(&self.metrics) {
            series.observe(took_us);
        }
        self.count_upstream(exchange, UpstreamResult::Answer(digit));
        Ok(())
    }

    /// Decides whether a request of this method is sent again, after its last attempt failed. If
    /// so, it is counted, and the endpoint gets it again only if there is no other. With
    /// `has_whole_body`, its body can be sent from its beginning.
    pub(super) fn is_retried(
        &self,
        exchange: &mut Exchange,
        failed: Failed,
        method: &Method,
        has_whole_body: bool,
    ) -> bool {
        let Some(retries) = exchange.retries() else { return false };
        let request = Request {
            tries: exchange.attempts.count(),
            is_idempotent: method.is_idempotent(),
            has_whole_body,
        };
        if exchange.attempts.deadline.is_some_and(|end| end.at <= Instant::now()) {
            return false;
        }
        let series = exchange.upstream_series(&self.metrics);
        match retry::verdict(failed, request, retries) {
            Verdict::No => return false,
            Verdict::Yes => {}
            Verdict::WithinBudget => {
                let load = exchange.load();
                if !load.is_some_and(|load| load.retries.take(retries.budget_percent, clock::now()))
                {
                    series.inspect(|series| series.over_retry_budget());
                    return false;
                }
            }
        }
        series.inspect(|series| series.retried(failed.reason()));
        match failed {
            Failed::Reset => {
                self.count_broken(exchange, UpstreamResult::Broken, ServerFailure::Reset);
            }
            Failed::TimedOut => {
                self.count_broken(exchange, UpstreamResult::Timeout, ServerFailure::Timeout);
            }
            _ => {}
        }
        exchange.note_success();
        if let Some(attempt) = exchange.attempts.last_mut() {
            attempt.retried = Some((failed, clock::now()));
            attempt.endpoint = None;
        }
        true
    }

    /// Counts an attempt that failed after it was connected to, before the head of a response.
    fn count_broken(
        &self,
        exchange: &mut Exchange,
        result: UpstreamResult,
        of_server: ServerFailure,
    ) {
        let now = clock::now();
        sample(exchange, None, now);
        self.observe_failure(exchange, of_server, now);
        self.count_upstream(exchange, result);
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
        let failure = failure::failure(error);
        let (result, of_server) = match failure {
            Failure::UpstreamTimeout | Failure::RequestTimeout => {
                (UpstreamResult::Timeout, ServerFailure::Timeout)
            }
            _ => (UpstreamResult::Broken, ServerFailure::Reset),
        };
        // Earlier attempts may have taken the time of the whole request.
        let is_of_others = failure == Failure::RequestTimeout && attempts.count() > 1;
        if !failure::is_at_will(error) && !is_of_others {
            self.observe_failure(exchange, of_server, clock::now());
        }
        self.count_upstream(exchange, result);
    }

    /// Notes the head of a response, for the health of its endpoint. One that is no failure counts
    /// once the response [has not broken off](Exchange::note_success).
    fn observe_head(&self, exchange: &mut Exchange, failure: Option<ServerFailure>, now: u64) {
        let Some(eject) = exchange.upstream().and_then(|upstream| upstream.eject) else { return };
        if let Some(failure) = failure.filter(|failure| eject.on.has(*failure)) {
            self.observe_failure(exchange, failure, now);
        } else if let Some(attempt) = exchange.attempts.last_mut() {
            attempt.is_unproven = true;
        }
    }

    /// Notes a failure of the last attempt, for the health of its endpoint.
    fn observe_failure(&self, exchange: &mut Exchange, failure: ServerFailure, now: u64) {
        if exchange.upstream().is_none_or(|upstream| upstream.eject.is_none()) {
            return;
        }
        if let Some(attempt) = exchange.attempts.last_mut() {
            attempt.is_unproven = false;
        }
        let endpoint = exchange.attempts.last().and_then(|attempt| attempt.endpoint.as_ref());
        if let (Some(pool), Some(endpoint)) = (exchange.pool(), endpoint)
            && let Some(reason) = pool.observe(endpoint, Some(failure), now)
        {
            self.count_ejection(exchange, reason);
        }
    }

    fn count_ejection(&self, exchange: &Exchange, reason: EjectReason) {
        if let Some(series) = exchange.upstream_series(&self.metrics) {
            series.ejected(reason);
        }
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

/// Makes the endpoint that was connected to that of the last attempt.
fn replace_endpoint(exchange: &mut Exchange, raced: &Raced) {
    let address = raced.server.address;
    let endpoint = exchange.pool().and_then(|pool| pool.begin_at(address));
    if let (Some(attempt), Some(endpoint)) = (exchange.attempts.last_mut(), endpoint) {
        attempt.endpoint = Some(endpoint);
        attempt.server = address;
        // Of the other endpoint.
        attempt.set_cookie = None;
    }
}

/// Notes how the last attempt went, for the rules whose rates adapt to the upstream.
#[cold]
fn note_rate(exchange: &Exchange, status: Option<StatusCode>, now: u64) {
    let (Some(upstream), Some(attempt)) = (exchange.upstream_index(), exchange.attempts.last())
    else {
        return;
    };
    let sent = attempt.marks.request.unwrap_or(attempt.began).max(attempt.began);
    let us = now.saturating_sub(sent);
    let answer = match status {
        Some(status) if !status.is_server_error() => RateAnswer::After(us),
        Some(_) | None => RateAnswer::Failed(us),
    };
    let index = u32::try_from(upstream).unwrap_or(u32::MAX);
    exchange.snapshot.rates.note(index, attempt.began, answer);
}

/// Adapts the limit on requests in flight of an upstream with `max_in_flight = "auto"` to the last
/// attempt, which ended at `now`: with a response of this status, or with none.
fn sample(exchange: &Exchange, status: Option<StatusCode>, now: u64) {
    if !exchange.snapshot.rates.is_empty() {
        note_rate(exchange, status, now);
    }
    let is_adaptive = |upstream: &Upstream| upstream.max_in_flight == Some(MaxInFlight::Auto);
    if !exchange.upstream().is_some_and(is_adaptive) {
        return;
    }
    let Some(load) = exchange.load() else { return };
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
