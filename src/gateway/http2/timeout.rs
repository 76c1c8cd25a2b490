//! Time limits of a request over HTTP/2.

use std::time::Duration;

use http::HeaderMap;
use pingora::prelude::{Error, ErrorType};
use pingora::proxy::Session;
use tokio::time::Instant;

use crate::clock;
use crate::gateway::respond::{failure, grpc};
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
pub(super) enum Limits {
    /// Those of the upstream and the server, for each wait.
    Each {
        /// For [`Waiting::Client`]; `None`: Pingora bounds it, which it does for HTTP/1.
        client: Option<Duration>,
        /// For [`Waiting::Response`].
        read: Duration,
        /// For [`Waiting::Window`].
        write: Duration,
    },
    /// The deadline of a gRPC call, if its client has set one. A stream of gRPC can be idle by design, so
    /// nothing else limits it.
    Rpc(Option<Instant>),
}

impl Limits {
    /// The limits of a request whose head was received at `started` (microseconds).
    pub(super) fn of(
        server: &Server,
        upstream: &Upstream,
        session: &Session,
        started: u64,
    ) -> Self {
        if grpc::Form::of(session).is_none() {
            return Self::Each {
                client: session.as_http2().map(|_| server.read_timeout),
                read: upstream.read_timeout,
                write: upstream.write_timeout,
            };
        }
        let timeout = grpc_timeout(&session.req_header().headers);
        let elapsed = Duration::from_micros(clock::now().saturating_sub(started));
        let left = timeout.map(|timeout| timeout.saturating_sub(elapsed));
        Self::Rpc(left.and_then(|left| Instant::now().checked_add(left)))
    }

    /// When a wait that began at `since` has taken too long; `None`: never.
    pub(super) fn end(self, waiting: Waiting, since: Instant) -> Option<Instant> {
        match self {
            Self::Rpc(deadline) => deadline,
            Self::Each { client, read, write } => match waiting {
                Waiting::Client => since.checked_add(client?),
                Waiting::Window => since.checked_add(write),
                Waiting::Response => since.checked_add(read),
            },
        }
    }

    /// How the request fails if a wait has taken too long.
    #[allow(clippy::unnecessary_box_returns, reason = "the type of Pingora's errors")]
    pub(super) fn error(self, waiting: Waiting) -> Box<Error> {
        match (self, waiting) {
            (Self::Rpc(_), _) => Error::new(ErrorType::Custom(failure::DEADLINE_PASSED)).into_up(),
            (Self::Each { .. }, Waiting::Client) => Error::new(ErrorType::ReadTimedout).into_down(),
            (Self::Each { .. }, Waiting::Window) => Error::new(ErrorType::WriteTimedout).into_up(),
            (Self::Each { .. }, Waiting::Response) => Error::new(ErrorType::ReadTimedout).into_up(),
        }
    }

    /// Whether the time that the client takes for the body is limited.
    pub(super) fn bounds_client(self) -> bool {
        matches!(self, Self::Each { .. })
    }

    /// When the request must have ended; `None`: at any time.
    pub(super) fn deadline(self) -> Option<Instant> {
        match self {
            Self::Rpc(deadline) => deadline,
            Self::Each { .. } => None,
        }
    }
}

/// The timeout of a gRPC call ("Requests" in gRPC's description of its protocol over HTTP/2); `None` if
/// there is none or it is malformed.
fn grpc_timeout(headers: &HeaderMap) -> Option<Duration> {
    parse(headers.get("grpc-timeout")?.as_bytes())
}

/// Parses up to 8 digits and a unit.
fn parse(value: &[u8]) -> Option<Duration> {
    let (unit, digits) = value.split_last()?;
    if digits.is_empty() || digits.len() > 8 || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let number = std::str::from_utf8(digits).ok()?.parse::<u64>().ok()?;
    match unit {
        b'H' => Some(Duration::from_secs(number * 3_600)),
        b'M' => Some(Duration::from_secs(number * 60)),
        b'S' => Some(Duration::from_secs(number)),
        b'm' => Some(Duration::from_millis(number)),
        b'u' => Some(Duration::from_micros(number)),
        b'n' => Some(Duration::from_nanos(number)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn grpc_timeouts() {
        let table: [(&str, Option<Duration>); 14] = [
            ("1H", Some(Duration::from_secs(3_600))),
            ("2M", Some(Duration::from_secs(120))),
            ("3S", Some(Duration::from_secs(3))),
            ("100m", Some(Duration::from_millis(100))),
            ("5u", Some(Duration::from_micros(5))),
            ("7n", Some(Duration::from_nanos(7))),
            ("0S", Some(Duration::ZERO)),
            ("99999999H", Some(Duration::from_secs(99_999_999 * 3_600))),
            ("123456789S", None),
            ("S", None),
            ("", None),
            ("1", None),
            ("+1S", None),
            ("1s", None),
        ];
        for (text, expected) in table {
            assert_eq!(parse(text.as_bytes()), expected, "{text}");
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_a_timeout_or_none(value in any::<Vec<u8>>()) {
            if parse(&value).is_some() {
                prop_assert!((2..=9).contains(&value.len()));
            }
        }
    }

    #[test]
    fn each_wait_has_its_end() {
        let (now, second) = (Instant::now(), Duration::from_secs(1));
        let limits = |client| Limits::Each { client, read: second, write: second * 2 };
        assert_eq!(limits(None).end(Waiting::Client, now), None);
        let limits = limits(Some(second * 3));
        assert_eq!(limits.end(Waiting::Client, now), Some(now + second * 3));
        assert_eq!(limits.end(Waiting::Response, now), Some(now + second));
        assert_eq!(limits.end(Waiting::Window, now), Some(now + second * 2));
        assert_eq!(Limits::Rpc(None).end(Waiting::Response, now), None);
        assert_eq!(Limits::Rpc(Some(now)).end(Waiting::Client, now + second), Some(now));
    }
}
