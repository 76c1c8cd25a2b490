//! Time limits of a request over HTTP/2.

use std::time::Duration;

use pingora::prelude::{Error, ErrorType};
use pingora::proxy::Session;
use tokio::time::Instant;

use crate::gateway::request::grpc_deadline;
use crate::gateway::respond::grpc;
use crate::policy::settings::{Server, Upstream};

/// What a request waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Waiting {
    /// The next part of the client's body.
    Client,
    /// The server's permission to send more of the body.
    Window,
    /// The head or the next part of the response.
    Response,
}

/// The time limits of one request.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    /// Those of each wait; `None`: a call of gRPC over HTTP/2, whose stream can be idle by design.
    each: Option<Each>,
    /// The deadline of a gRPC call in any form, if its client has set one.
    deadline: Option<Instant>,
}

/// The limits of the upstream and the server, for each wait.
#[derive(Clone, Copy, Debug)]
struct Each {
    /// For [`Waiting::Client`]; `None`: Pingora bounds it, which it does for HTTP/1.
    client: Option<Duration>,
    /// For [`Waiting::Response`].
    read: Duration,
    /// For [`Waiting::Window`].
    write: Duration,
}

impl Limits {
    /// The limits of a request whose head was received at `started` (microseconds).
    pub(super) fn of(
        server: &Server,
        upstream: &Upstream,
        session: &Session,
        started: u64,
    ) -> Self {
        let each = (!grpc::is_call(session)).then(|| Each {
            client: session.as_http2().map(|_| server.read_timeout),
            read: upstream.read_timeout,
            write: upstream.write_timeout,
        });
        Self { each, deadline: grpc_deadline::of(session, started) }
    }

    /// When a wait that began at `since` has taken too long; `None`: never.
    pub(super) fn end(self, waiting: Waiting, since: Instant) -> Option<Instant> {
        let end = self.each.and_then(|Each { client, read, write }| match waiting {
            Waiting::Client => since.checked_add(client?),
            Waiting::Window => since.checked_add(write),
            Waiting::Response => since.checked_add(read),
        });
        end.into_iter().chain(self.deadline).min()
    }

    /// How the request fails at `now`, if a wait has taken too long.
    #[allow(clippy::unnecessary_box_returns, reason = "the type of Pingora's errors")]
    pub(super) fn error(self, waiting: Waiting, now: Instant) -> Box<Error> {
        if self.deadline.is_some_and(|deadline| deadline <= now) {
            return grpc_deadline::passed();
        }
        match waiting {
            Waiting::Client => Error::new(ErrorType::ReadTimedout).into_down(),
            Waiting::Window => Error::new(ErrorType::WriteTimedout).into_up(),
            Waiting::Response => Error::new(ErrorType::ReadTimedout).into_up(),
        }
    }

    /// Whether the time that the client takes for the body is limited.
    pub(super) fn bounds_client(self) -> bool {
        self.each.is_some()
    }

    /// When the request must have ended; `None`: at any time.
    pub(super) fn deadline(self) -> Option<Instant> {
        self.deadline
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gateway::respond::failure;

    #[test]
    fn each_wait_has_its_end() {
        let (now, second) = (Instant::now(), Duration::from_secs(1));
        let limits = |client, deadline| Limits {
            each: Some(Each { client, read: second, write: second * 2 }),
            deadline,
        };
        assert_eq!(limits(None, None).end(Waiting::Client, now), None);
        let three = limits(Some(second * 3), None);
        assert_eq!(three.end(Waiting::Client, now), Some(now + second * 3));
        assert_eq!(three.end(Waiting::Response, now), Some(now + second));
        assert_eq!(three.end(Waiting::Window, now), Some(now + second * 2));
        let early = limits(Some(second * 3), Some(now + second / 2));
        assert_eq!(early.end(Waiting::Response, now), Some(now + second / 2));
        assert_eq!(early.end(Waiting::Client, now), Some(now + second / 2));
        assert_eq!(*early.error(Waiting::Response, now).etype(), ErrorType::ReadTimedout);
        let passed = ErrorType::Custom(failure::DEADLINE_PASSED);
        assert_eq!(*early.error(Waiting::Response, now + second).etype(), passed);
        let call = |deadline| Limits { each: None, deadline };
        assert_eq!(call(None).end(Waiting::Response, now), None);
        assert_eq!(call(Some(now)).end(Waiting::Client, now + second), Some(now));
    }
}
