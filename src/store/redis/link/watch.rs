//! When a connection is to be replaced. Pure: what is remembered, what happened, what to do.

use crate::store::redis::class::ErrorClass;

/// After so many calls in a row without an answer in time, the connection is taken for dead.
pub(super) const MAX_TIMEOUTS: u32 = 5;

/// What became of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// Answered in time.
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
    /// Calls in a row were not answered in time.
    Timeouts,
    /// The connection was idle, and a `PING` was not answered in time.
    Silence,
    /// The other side closed the connection.
    Closed,
    /// More came in than any call asks for.
    Flood,
}

/// How many calls in a row timed out after this one, and whether that is one too many.
pub(super) fn after(timeouts: u32, outcome: Outcome) -> (u32, Option<Reason>) {
    match outcome {
        Outcome::Answered => (0, None),
        Outcome::TimedOut => {
            let timeouts = timeouts.saturating_add(1);
            (timeouts, (timeouts >= MAX_TIMEOUTS).then_some(Reason::Timeouts))
        }
        Outcome::Failed(class) => {
            (0, class.asks_for_another_connection().then_some(Reason::Class(class)))
        }
    }
}

impl Reason {
    /// For logs.
    pub(super) fn text(self) -> &'static str {
        match self {
            Self::Class(ErrorClass::ReadOnly) => "it is a replica",
            Self::Class(ErrorClass::Loading) => "it is loading its data",
            Self::Class(ErrorClass::Auth) => "it wants another login",
            Self::Class(ErrorClass::MasterDown) => "it is a replica without its master",
            Self::Class(ErrorClass::Parse) => "a reply did not parse",
            Self::Class(_) => "the connection broke",
            Self::Timeouts => "five calls in a row timed out",
            Self::Silence => "it does not answer a PING",
            Self::Closed => "the connection was closed",
            Self::Flood => "it sends more than was asked for",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timeouts_count_in_a_row_only() {
        let mut timeouts = 0;
        for outcome in [Outcome::TimedOut; 4] {
            assert_eq!(after(timeouts, outcome), (timeouts + 1, None));
            timeouts += 1;
        }
        assert_eq!(after(timeouts, Outcome::TimedOut), (5, Some(Reason::Timeouts)));
        assert_eq!(after(timeouts, Outcome::Answered), (0, None));
        assert_eq!(after(timeouts, Outcome::Failed(ErrorClass::Busy)), (0, None));
    }

    #[test]
    fn some_failures_replace_at_once() {
        let table = [
            (ErrorClass::Connection, true),
            (ErrorClass::ReadOnly, true),
            (ErrorClass::Loading, true),
            (ErrorClass::Auth, true),
            (ErrorClass::MasterDown, true),
            (ErrorClass::Parse, true),
            (ErrorClass::NoPermission, false),
            (ErrorClass::OutOfMemory, false),
            (ErrorClass::Busy, false),
            (ErrorClass::Misconfigured, false),
            (ErrorClass::WrongType, false),
            (ErrorClass::NoScript, false),
            (ErrorClass::Cluster, false),
            (ErrorClass::Script, false),
        ];
        for (class, replaced) in table {
            let (_, reason) = after(0, Outcome::Failed(class));
            assert_eq!(reason, replaced.then_some(Reason::Class(class)), "{class:?}");
        }
    }
}
