//! Attempts over HTTP/1.1, which Pingora makes: the server and the time limits of the next one, and
//! what its errors mean.

use std::sync::Arc;
use std::time::Duration;

use http::header;
use parking_lot::Mutex;
use pingora::prelude::{Error, ErrorSource, ErrorType, HttpPeer, Result};
use pingora::proxy::Session;

use super::outcome::RETRIED_STATUS;
use super::retry::Failed;
use super::{Handed, deadline, select};
use crate::downstream::connection::ClientProtocol;
use crate::gateway::exchange::Exchange;
use crate::gateway::respond::failure;
use crate::gateway::{Gateway, respond};
use crate::policy::settings::Upstream;
use crate::policy::time_limits::TimeLimits;
use crate::upstream::connection::{Attempt, Connector, Connects, Progress, TimedOut};
use crate::upstream::deadline::TryLimit;
use crate::upstream::dial::Dial;

impl Gateway {
    /// The endpoint of the next attempt over HTTP/1.1.
    ///
    /// # Errors
    /// If no endpoint has an address.
    pub(in crate::gateway) async fn peer(
        &self,
        session: &mut Session,
        exchange: &mut Exchange,
    ) -> Result<Box<HttpPeer>> {
        // A retry sends the body from its beginning.
        exchange.attempts.body_bytes = 0;
        let handed = exchange.attempts.handed.take();
        let Handed { dial, opened } = if let Some(handed) = handed {
            handed
        } else {
            let dial = self.select(session, exchange)?;
            select::pause(exchange).await;
            Handed { dial, opened: None }
        };
        let Some(upstream) = exchange.upstream() else { return Err(respond::no_server()) };
        let mut peer = HttpPeer::new(dial.server.address, false, String::new());
        let options = &mut peer.options;
        let limits = exchange.time_limits();
        // `upstream::connection` limits the time of connecting.
        options.connection_timeout = None;
        options.total_connection_timeout = None;
        options.read_timeout = Some(upstream.read_timeout);
        // A head without a body fits into the socket's send buffer, so a write does not wait, and a
        // timer would cost more than the write.
        let has_body = !session.is_body_empty();
        options.write_timeout = has_body.then_some(upstream.write_timeout);
        let connects = if session.is_upgrade_req() {
            Connects::ForUpgrade
        } else if exchange.attempts.needs_new_connection() {
            Connects::Anew
        } else {
            Connects::IdleFirst
        };
        let attempt = Arc::new(attempt(exchange, upstream, limits, dial, connects, has_body));
        if has_body {
            let limits = &exchange.snapshot.policy.server.limits;
            let awaits_continue = session.req_header().headers.contains_key(header::EXPECT);
            let transfer = &exchange.connection.transfer;
            *attempt.progress.lock() =
                Progress::measured(limits.body_min_rate, transfer, awaits_continue);
        }
        *attempt.opened.lock() = opened;
        if attempt.bounds_every_read() {
            options.read_timeout = None;
        }
        // Pingora must not keep connections: `upstream::connection` does.
        options.idle_timeout = Some(Duration::ZERO);
        options.custom_l4 = Some(Arc::new(Connector(Arc::clone(&attempt))));
        if let Some(last) = exchange.attempts.last_mut() {
            last.connection = Some(attempt);
        }
        Ok(Box::new(peer))
    }

    /// The error of a request whose attempt failed after it was connected to: it says whether the
    /// request is sent again, and which side was too slow, if that is why it failed.
    #[allow(clippy::unnecessary_box_returns, reason = "the type that Pingora's phases return")]
    pub(in crate::gateway) fn failed_over_http1(
        &self,
        session: &Session,
        exchange: &mut Exchange,
        mut error: Box<Error>,
    ) -> Box<Error> {
        if *error.etype() == RETRIED_STATUS {
            return error;
        }
        let attempt = exchange.attempts.connection();
        let late = attempt.and_then(Attempt::timed_out);
        let failed = failed(session, exchange, &mut error, late);
        let has_whole_body = !session.as_ref().retry_buffer_truncated();
        let method = &session.req_header().method;
        let is_retried = self.is_retried(exchange, failed, method, has_whole_body);
        error.set_retry(is_retried);
        match late {
            None | Some(TimedOut::Overflow) => {}
            Some(TimedOut::Server) => error.etype = ErrorType::ReadTimedout,
            Some(TimedOut::Deadline(set_by)) => {
                let attempts = &exchange.attempts;
                let is_sent = attempts.last().is_some_and(|last| last.marks.request.is_some());
                let is_sent = is_sent || attempts.connection().is_some_and(|one| !one.has_body);
                let passed = deadline::passed(set_by, is_sent && attempts.answer.is_none());
                (error.esource, error.etype) = (passed.esource, passed.etype);
            }
            Some(TimedOut::ClientSilent) => {
                error.esource = ErrorSource::Downstream;
                error.etype = ErrorType::ReadTimedout;
            }
            Some(TimedOut::ClientSlow) => {
                error.esource = ErrorSource::Downstream;
                error.etype = failure::SLOW_BODY;
            }
        }
        error
    }
}

/// How an attempt failed with this error after it was connected to. `late`: which side was too
/// slow.
fn failed(
    session: &Session,
    exchange: &Exchange,
    error: &mut Error,
    late: Option<TimedOut>,
) -> Failed {
    let is_reused = exchange.attempts.connection().is_some_and(Attempt::is_reused);
    // Pingora expects a retry only if reading the head failed. On a closed connection, a write can
    // fail first.
    error.retry.decide_reuse(is_reused);
    let is_of_upstream = *error.esource() == ErrorSource::Upstream;
    let is_write = is_of_upstream && *error.etype() == ErrorType::WriteError;
    let is_closed = error.retry() || is_write && is_reused && session.response_written().is_none();
    if exchange.attempts.answer.is_some() {
        return Failed::Otherwise;
    }
    match (late, error.etype()) {
        (Some(TimedOut::Server), _) => Failed::TimedOut,
        (None, _) if is_closed => Failed::ClosedIdle,
        (None, ErrorType::ReadTimedout | ErrorType::WriteTimedout) if is_of_upstream => {
            Failed::TimedOut
        }
        (None, ErrorType::ConnectionClosed | ErrorType::ReadError | ErrorType::WriteError)
            if is_of_upstream =>
        {
            Failed::Reset
        }
        _ => Failed::Otherwise,
    }
}

fn attempt(
    exchange: &Exchange,
    upstream: &Upstream,
    limits: TimeLimits,
    dial: Dial,
    connects: Connects,
    has_body: bool,
) -> Attempt {
    let route = exchange.route();
    let try_limit = limits
        .attempt
        .and_then(|timeout| Some(TryLimit { began: exchange.attempts.last_began()?, timeout }));
    Attempt {
        dial,
        request_id: exchange.request_id.clone(),
        connects,
        has_body,
        read_timeout: upstream.read_timeout,
        first_byte_timeout: limits.first_byte,
        try_limit,
        connect_timeout: upstream.connect_timeout,
        upgraded_idle_timeout: route.map_or(Duration::MAX, |route| route.websocket_idle_timeout),
        idle_timeout: upstream.idle_timeout,
        deadline: exchange.attempts.deadline,
        max_connections: upstream.max_connections,
        opened: Mutex::default(),
        progress: Mutex::default(),
        client_timeout: match exchange.connection.protocol {
            ClientProtocol::Http1 => None,
            ClientProtocol::Http2 => Some(exchange.snapshot.policy.server.read_timeout),
        },
    }
}
