//! Time limits of a request over HTTP/2.

use std::time::Duration;

use pingora::prelude::{Error, ErrorType};
use pingora::proxy::Session;
use tokio::time::Instant;

use crate::gateway::attempts::deadline;
use crate::gateway::exchange::Exchange;
use crate::gateway::respond::grpc;
use crate::policy::settings::Upstream;
use crate::policy::time_limits::TimeLimits;
use crate::upstream::deadline::{Deadline, TryLimit};

/// What a request waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Waiting {
    /// The next part of the client's body.
    Client,
    /// The server's permission to send more of the body.
    Window,
    /// The head of the response, after the whole request was sent.
    Head,
    /// The next part of the response.
    Body,
}

/// The time limits of one request.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    /// Those of each wait; `None`: a call of gRPC over HTTP/2, whose stream can be idle by design.
    each: Option<Each>,
    /// Those of the route or the upstream. `first_byte` is for [`Waiting::Head`].
    configured: TimeLimits,
    /// When the request must have ended.
    deadline: Option<Deadline>,
}

/// The limits of the upstream and the server, for each wait.
#[derive(Clone, Copy, Debug)]
struct Each {
    /// For [`Waiting::Client`]; `None`: Pingora bounds it, which it does for HTTP/1.
    client: Option<Duration>,
    /// For [`Waiting::Head`] and [`Waiting::Body`].
    read: Duration,
    /// For [`Waiting::Window`].
    write: Duration,
}

/// A wait.
#[derive(Clone, Copy, Debug)]
pub(super) struct Wait {
    pub(super) of: Waiting,
    /// When it began.
    pub(super) since: Instant,
    /// When the attempt began, or its client had sent the body; `None`: the client still sends it,
    /// or the head of the response has come.
    pub(super) try_since: Option<Instant>,
}

impl Limits {
    /// The limits of a request whose server has been selected.
    pub(super) fn of(upstream: &Upstream, session: &Session, exchange: &Exchange) -> Self {
        let server = &exchange.snapshot.policy.server;
        let each = (!grpc::is_call(session)).then(|| Each {
            client: session.as_http2().map(|_| server.read_timeout),
            read: upstream.read_timeout,
            write: upstream.write_timeout,
        });
        Self { each, configured: exchange.time_limits(), deadline: exchange.attempts.deadline }
    }

    /// When a wait has taken too long; `None`: never.
    pub(super) fn end(self, wait: Wait) -> Option<Instant> {
        let TimeLimits { first_byte, attempt, .. } = self.configured;
        let each = match wait.of {
            Waiting::Client => self.each.and_then(|each| each.client),
            Waiting::Window => self.each.map(|each| each.write),
            Waiting::Head => first_byte.or(self.each.map(|each| each.read)),
            Waiting::Body => self.each.map(|each| each.read),
        };
        let of_wait = each.and_then(|each| wait.since.checked_add(each));
        let of_attempt = wait.try_since.zip(attempt).and_then(|(at, limit)| at.checked_add(limit));
        let of_request = self.deadline.map(|deadline| deadline.at);
        of_wait.into_iter().chain(of_attempt).chain(of_request).min()
    }

    /// How the request fails at `now`, if a wait has taken too long.
    #[allow(clippy::unnecessary_box_returns, reason = "the type of Pingora's errors")]
    pub(super) fn error(self, wait: Wait, now: Instant) -> Box<Error> {
        if let Some(deadline) = self.deadline.filter(|deadline| deadline.at <= now) {
            return deadline::passed(deadline.set_by, wait.try_since.is_some());
        }
        match wait.of {
            Waiting::Client => Error::new(ErrorType::ReadTimedout).into_down(),
            Waiting::Window => Error::new(ErrorType::WriteTimedout).into_up(),
            Waiting::Head | Waiting::Body => Error::new(ErrorType::ReadTimedout).into_up(),
        }
    }

    /// Whether the time that the client takes for the body is limited.
    pub(super) fn bounds_client(self) -> bool {
        self.each.is_some()
    }

    /// Whether the time from the beginning of an attempt is limited.
    pub(super) fn bounds_attempt(self) -> bool {
        self.configured.attempt.is_some()
    }

    /// When an attempt that began at `began` must be connected, and the deadline if that ends
    /// connecting; `None`: only `connect_timeout` does.
    pub(super) fn end_of_connecting(
        self,
        connect_timeout: Duration,
        began: impl FnOnce() -> Option<Instant>,
    ) -> Option<(Instant, Option<Deadline>)> {
        let limit = self.configured.attempt;
        let limit = limit.and_then(|timeout| Some(TryLimit { began: began()?, timeout }));
        let attempt = limit.and_then(|limit| limit.of_connecting(connect_timeout));
        let request = self.deadline.map(|deadline| (deadline.at, Some(deadline)));
        request.into_iter().chain(attempt.map(|end| (end, None))).min_by_key(|(end, _)| *end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gateway::respond::failure;
    use crate::upstream::deadline::SetBy;

    const SECOND: Duration = Duration::from_secs(1);

    /// Without a limit but those of each wait.
    fn limits(client: Option<Duration>) -> Limits {
        let each = Some(Each { client, read: SECOND, write: SECOND * 2 });
        Limits { each, configured: TimeLimits::default(), deadline: None }
    }

    fn first_byte(limit: Duration) -> TimeLimits {
        TimeLimits { first_byte: Some(limit), ..TimeLimits::default() }
    }

    fn wait(of: Waiting, since: Instant) -> Wait {
        Wait { of, since, try_since: None }
    }

    #[test]
    fn each_wait_has_its_end() {
        let now = Instant::now();
        let three = limits(Some(SECOND * 3));
        assert_eq!(limits(None).end(wait(Waiting::Client, now)), None);
        assert_eq!(three.end(wait(Waiting::Client, now)), Some(now + SECOND * 3));
        assert_eq!(three.end(wait(Waiting::Head, now)), Some(now + SECOND));
        assert_eq!(three.end(wait(Waiting::Body, now)), Some(now + SECOND));
        assert_eq!(three.end(wait(Waiting::Window, now)), Some(now + SECOND * 2));
        let slow = Limits { configured: first_byte(SECOND * 9), ..three };
        assert_eq!(slow.end(wait(Waiting::Head, now)), Some(now + SECOND * 9));
        assert_eq!(slow.end(wait(Waiting::Body, now)), Some(now + SECOND));
        let call = Limits { each: None, ..three };
        assert_eq!(call.end(wait(Waiting::Head, now)), None);
        let call = Limits { configured: first_byte(SECOND), ..call };
        assert_eq!(call.end(wait(Waiting::Head, now)), Some(now + SECOND));
    }

    #[test]
    fn attempt_ends_before_its_waits_do() {
        let now = Instant::now();
        let configured = TimeLimits { attempt: Some(SECOND / 2), ..TimeLimits::default() };
        let limits = Limits { configured, ..limits(Some(SECOND * 3)) };
        for of in [Waiting::Head, Waiting::Window] {
            assert!(limits.end(wait(of, now)) >= Some(now + SECOND), "{of:?}");
            let waiting = Wait { try_since: Some(now - SECOND / 4), ..wait(of, now) };
            assert_eq!(limits.end(waiting), Some(now + SECOND / 4), "{of:?}");
        }
        assert_eq!(
            *limits.error(wait(Waiting::Head, now), now + SECOND).etype(),
            ErrorType::ReadTimedout
        );
    }

    #[test]
    fn connecting_ends_with_the_attempt_or_the_deadline() {
        let began = Instant::now();
        let end = |attempt, deadline: Option<Deadline>| {
            let configured = TimeLimits { attempt, ..TimeLimits::default() };
            let limits = Limits { configured, deadline, ..limits(None) };
            limits.end_of_connecting(SECOND, || Some(began))
        };
        let deadline = Deadline { at: began + SECOND / 4, set_by: SetBy::Gateway };
        let (half, fifth) = (Some(SECOND / 2), Some(SECOND / 5));
        assert_eq!((end(None, None), end(Some(SECOND), None)), (None, None));
        assert_eq!(end(half, None), Some((began + SECOND / 2, None)));
        assert_eq!(end(half, Some(deadline)), Some((deadline.at, Some(deadline))));
        assert_eq!(end(fifth, Some(deadline)), Some((began + SECOND / 5, None)));
    }

    #[test]
    fn deadline_ends_every_wait() {
        let now = Instant::now();
        let with = |set_by| {
            let deadline = Some(Deadline { at: now + SECOND / 2, set_by });
            Limits { deadline, ..limits(Some(SECOND * 3)) }
        };
        let early = with(SetBy::Client);
        for of in [Waiting::Head, Waiting::Body, Waiting::Client, Waiting::Window] {
            assert_eq!(early.end(wait(of, now)), Some(now + SECOND / 2));
        }
        let head = wait(Waiting::Head, now);
        assert_eq!(*early.error(head, now).etype(), ErrorType::ReadTimedout);
        let later = |limits: Limits, wait| limits.error(wait, now + SECOND).etype().clone();
        assert_eq!(later(early, head), ErrorType::Custom(failure::DEADLINE_PASSED));
        let own = with(SetBy::Gateway);
        let waits = Wait { try_since: Some(now), ..head };
        assert_eq!(later(own, waits), ErrorType::Custom(failure::REQUEST_TIMED_OUT));
        let client = wait(Waiting::Client, now);
        assert_eq!(later(own, client), ErrorType::Custom(failure::CLIENT_TOOK_ALL_TIME));
        let call = Limits { each: None, ..early };
        assert_eq!(call.end(wait(Waiting::Client, now + SECOND)), Some(now + SECOND / 2));
    }
}
