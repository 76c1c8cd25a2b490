//! Meaning of the result of a call: whether it counts as a failure of Redis, and whether the
//! connection is replaced. Pure.

use crate::limit::breaker::Event;
use crate::store::redis::class::ErrorClass;

/// Result of a call to Redis.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CallResult {
    /// Answered without an error, within the caller's time.
    Answered,
    /// Not answered within the caller's time.
    TimedOut,
    /// Answered with an error, or not at all.
    Failed(ErrorClass),
}

/// Why a connection is replaced.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Reason {
    /// A call ended in an error of this class.
    Class(ErrorClass),
    /// Too many calls were not answered in time.
    Timeouts,
    /// The connection was idle, and a `PING` was not answered in time.
    PingTimeout,
    /// The other side closed the connection.
    Closed,
    /// It sent more bytes than any call requests.
    ReplyTooLarge,
}

impl CallResult {
    /// Event for the circuit breaker.
    pub(super) fn event(self) -> Event {
        match self {
            // Concerns one key only, or is no failure.
            Self::Answered | Self::Failed(ErrorClass::WrongType | ErrorClass::NoScript) => {
                Event::Answered
            }
            Self::TimedOut | Self::Failed(ErrorClass::Expired) => Event::TimedOut,
            Self::Failed(_) => Event::Failed,
        }
    }

    /// Reason to replace the connection, if this result alone is one.
    pub(super) fn replaces(self) -> Option<Reason> {
        match self {
            Self::Failed(class) if class.asks_for_another_connection() => {
                Some(Reason::Class(class))
            }
            Self::Answered | Self::TimedOut | Self::Failed(_) => None,
        }
    }
}

impl Reason {
    /// Returns the reason as logs show it.
    pub(super) fn text(self) -> &'static str {
        match self {
            Self::Class(ErrorClass::ReadOnly) => "it is a replica",
            Self::Class(ErrorClass::Loading) => "it is loading its data",
            Self::Class(ErrorClass::Auth) => "it refuses the credentials",
            Self::Class(ErrorClass::MasterDown) => "it is a replica without its master",
            Self::Class(ErrorClass::Parse) => "a reply did not parse",
            Self::Class(_) => "the connection broke",
            Self::Timeouts => "too many calls timed out",
            Self::PingTimeout => "it does not answer a PING",
            Self::Closed => "the connection was closed",
            Self::ReplyTooLarge => "its replies are too large",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failures_open_the_breaker_and_some_replace_the_connection() {
        // (class, opens, replaces)
        let table = [
            (ErrorClass::Connection, true, true),
            (ErrorClass::ReadOnly, true, true),
            (ErrorClass::Loading, true, true),
            (ErrorClass::Auth, true, true),
            (ErrorClass::MasterDown, true, true),
            (ErrorClass::Parse, true, true),
            (ErrorClass::NoPermission, true, false),
            (ErrorClass::OutOfMemory, true, false),
            (ErrorClass::Busy, true, false),
            (ErrorClass::Misconfigured, true, false),
            (ErrorClass::Cluster, true, false),
            (ErrorClass::Script, true, false),
            (ErrorClass::WrongType, false, false),
            (ErrorClass::NoScript, false, false),
            (ErrorClass::Expired, false, false),
        ];
        for (class, opens, replaces) in table {
            let outcome = CallResult::Failed(class);
            assert_eq!(outcome.event() == Event::Failed, opens, "{class:?}");
            assert_eq!(outcome.replaces(), replaces.then_some(Reason::Class(class)), "{class:?}");
        }
    }
}
