//! The attempts to send a request to a server of its upstream, one after the other.
//!
//! Reading order: this file (what is known of them), `select` (which server gets the request),
//! `affinity` (what makes it the same server for the same client), `forward` (the request that it
//! gets), `deadline` (when the request must have ended), `http1` and `http2` (sending it, and its
//! time limits), `outcome` (how it went), `retry` (whether it is sent again), `refund` (tokens of
//! requests that reached no server), `mirror` (copies of requests for another upstream).
//!
//! Connections are opened by `upstream::dial`. Over HTTP/2, [`Gateway::forward_http2`] makes the
//! attempts. Over HTTP/1.1 Pingora does, and asks `http1` for the next one.
//!
//! [`Gateway::forward_http2`]: super::Gateway::forward_http2

pub(super) mod forward;
pub(super) mod http1;
pub(super) mod http2;
pub(super) mod mirror;
pub(super) mod retry;

mod affinity;
mod deadline;
mod outcome;
mod refund;
mod select;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use http::{HeaderValue, StatusCode};
use pingora::prelude::Result;
use smallvec::SmallVec;
use tokio::time::Instant;

use self::retry::Failed;
use super::respond;
use crate::base::clock;
use crate::observe::access_log::UpstreamMarks;
use crate::observe::traces::FailedAttempt;
use crate::upstream::connection::{self, Opened};
use crate::upstream::deadline::Deadline;
use crate::upstream::dial::Dial;
use crate::upstream::endpoint::InFlight;
use crate::upstream::http2::Usable;

/// Number of attempts that need no allocation.
const INLINE: usize = 2;

/// Maximum number of interim responses (102, 103) to one request.
const MAX_INTERIM: usize = 32;

/// The attempts of one request. Times are microseconds of the monotonic clock.
#[derive(Default)]
pub struct Attempts {
    list: SmallVec<[Attempt; INLINE]>,
    /// The final response, once its head has been received.
    pub answer: Option<Answer>,
    /// How the last attempt failed, as a label of the metrics; `None` if it did not.
    pub failure: Option<&'static str>,
    /// The endpoint of the last attempt, if it speaks HTTP/1.1 and Pingora has not asked for it
    /// yet.
    pub(super) handed: Option<Handed>,
    /// When the request must have ended; `None`: at any time. Set by the first attempt.
    pub(super) deadline: Option<Deadline>,
    /// Bytes of the request's body that the current attempt has received from the client.
    pub(super) body_bytes: u64,
    /// Number of interim responses (102, 103) received so far.
    interim: usize,
}

pub struct Attempt {
    /// Address of the endpoint that was selected.
    pub server: SocketAddr,
    /// Counts the request as in flight at that endpoint, until its work is done.
    pub(super) endpoint: Option<InFlight>,
    /// When the endpoint was selected.
    pub began: u64,
    /// Whether the connection to the endpoint had served a request before; `None`: there is no
    /// connection.
    pub is_reused: Option<bool>,
    /// When the parts of its time ended.
    pub marks: UpstreamMarks,
    /// The header `Set-Cookie` of the response, if the client gets another endpoint than its cookie
    /// selects.
    pub(super) set_cookie: Option<HeaderValue>,
    /// The attempt over HTTP/1.1, as its connection sees it.
    pub(super) connection: Option<Arc<connection::Attempt>>,
    /// How it failed, and when, if the request is sent again.
    pub(super) retried: Option<(Failed, u64)>,
    /// Whether its response has begun well, and does not count yet for the health of the endpoint:
    /// it may still break off.
    pub(super) is_unproven: bool,
}

/// The final response of the upstream.
#[derive(Clone, Copy, Debug)]
pub struct Answer {
    pub status: StatusCode,
    /// Microseconds from the first attempt to its head.
    pub took_us: u64,
}

/// An endpoint that speaks HTTP/1.1.
pub(super) struct Handed {
    pub(super) dial: Dial,
    /// A connection to it, if one was needed to know its version of HTTP.
    pub(super) opened: Option<Opened>,
}

impl Attempts {
    /// Begins an attempt at an endpoint that was selected at `now`.
    pub(super) fn begin(&mut self, endpoint: InFlight, set_cookie: Option<HeaderValue>, now: u64) {
        let selected = Some(self.first_began().unwrap_or(now));
        if let Some(last) = self.list.last_mut() {
            (last.endpoint, last.connection) = (None, None);
        }
        self.list.push(Attempt {
            server: endpoint.address(),
            endpoint: Some(endpoint),
            began: now,
            is_reused: None,
            marks: UpstreamMarks { selected, ..UpstreamMarks::default() },
            set_cookie,
            connection: None,
            retried: None,
            is_unproven: false,
        });
    }

    /// Counts an interim response.
    ///
    /// # Errors
    /// There are too many.
    pub(super) fn count_interim(&mut self) -> Result<()> {
        self.interim += 1;
        if self.interim > MAX_INTERIM { Err(respond::too_many_interim()) } else { Ok(()) }
    }

    pub fn count(&self) -> usize {
        self.list.len()
    }

    /// When the first attempt began.
    pub fn first_began(&self) -> Option<u64> {
        self.list.first().map(|first| first.began)
    }

    pub fn last(&self) -> Option<&Attempt> {
        self.list.last()
    }

    pub(super) fn last_mut(&mut self) -> Option<&mut Attempt> {
        self.list.last_mut()
    }

    /// When the last attempt began, by the clock of timers.
    pub(super) fn last_began(&self) -> Option<Instant> {
        let elapsed = Duration::from_micros(clock::now().saturating_sub(self.last()?.began));
        Instant::now().checked_sub(elapsed)
    }

    /// The connection of the last attempt, over HTTP/1.1.
    pub(super) fn connection(&self) -> Option<&connection::Attempt> {
        self.last()?.connection.as_deref()
    }

    /// The endpoints where the request failed, in the order of the attempts. It is sent to another
    /// one if there is one.
    pub(super) fn avoided(&self) -> SmallVec<[SocketAddr; INLINE]> {
        let failed = |attempt: &Attempt| match attempt.retried? {
            (Failed::ClosedIdle, _) => None,
            _ => Some(attempt.server),
        };
        self.list.iter().filter_map(failed).collect()
    }

    /// The servers whose connections were closed, and when.
    fn closed(&self) -> impl Iterator<Item = (SocketAddr, u64)> {
        self.list.iter().filter_map(|attempt| match attempt.retried? {
            (Failed::ClosedIdle | Failed::NotProcessed | Failed::Reset, at) => {
                Some((attempt.server, at))
            }
            _ => None,
        })
    }

    /// Whether the next attempt over HTTP/1.1 needs a new connection: after one connection was
    /// closed, for example by a restart of the server, others are likely to be closed, too.
    pub(super) fn needs_new_connection(&self) -> bool {
        self.closed().next().is_some()
    }

    /// Which connections over HTTP/2 to this server the next attempt can use.
    pub(super) fn usable(&self, server: SocketAddr) -> Usable {
        let own = self.closed().filter(|(closed, _)| *closed == server);
        match (own.last(), self.closed().last()) {
            (Some((_, at)), _) => Usable::OpenedSince(at),
            (None, Some((_, at))) => Usable::Answered(at),
            (None, None) => Usable::Any,
        }
    }

    /// The attempts after which the request was sent again, of a request that began at `started`.
    pub fn retried(&self, started: u64) -> Vec<FailedAttempt> {
        let failed = |attempt: &Attempt| {
            let (failed, at) = attempt.retried?;
            Some(FailedAttempt {
                server: attempt.server,
                offset_us: at.saturating_sub(started),
                reason: failed.reason(),
                status: failed.status().map(|status| status.as_u16()),
            })
        };
        self.list.iter().filter_map(failed).collect()
    }

    /// Whether any endpoint has been connected to.
    pub(super) fn any_connected(&self) -> bool {
        self.list.iter().any(|attempt| attempt.is_reused.is_some())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn retry_uses_connections_that_its_server_has_not_closed() {
        let servers = [1, 2, 3].map(|port| SocketAddr::from(([127, 0, 0, 1], port)));
        let of = |failures: &[(usize, Failed, u64)]| {
            let attempt = |(server, failed, at): &(usize, Failed, u64)| Attempt {
                server: servers[*server],
                endpoint: None,
                began: 0,
                is_reused: None,
                marks: UpstreamMarks::default(),
                set_cookie: None,
                connection: None,
                retried: Some((*failed, *at)),
                is_unproven: false,
            };
            let list = failures.iter().map(attempt).collect();
            let attempts = Attempts { list, ..Attempts::default() };
            servers.map(|server| attempts.usable(server))
        };
        assert_eq!(of(&[]), [Usable::Any; 3]);
        assert_eq!(of(&[(0, Failed::NotConnected, 5), (1, Failed::TimedOut, 7)]), [Usable::Any; 3]);
        for failed in [Failed::ClosedIdle, Failed::Reset, Failed::NotProcessed] {
            let answered = Usable::Answered(5);
            assert_eq!(of(&[(0, failed, 5)]), [Usable::OpenedSince(5), answered, answered]);
        }
        assert_eq!(
            of(&[(0, Failed::Reset, 5), (1, Failed::ClosedIdle, 7)]),
            [Usable::OpenedSince(5), Usable::OpenedSince(7), Usable::Answered(7)]
        );
    }
}
