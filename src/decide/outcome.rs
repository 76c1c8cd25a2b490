//! The outcome of a complete request. Every request has exactly one, so that the counts of all
//! outcomes add up to the number of requests.

use super::decision::Decision;

/// How the checks of a request ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RequestOutcome {
    /// It passed all checks: it was forwarded, or the gateway answered it itself.
    Allowed,
    /// A rate limit refused it: 429.
    Refused {
        /// Index of the rule that the response names: that with the longest retry after.
        rule: u32,
    },
    /// A rule with `on_failure = "deny"` could not check it, or the key store its key: 503.
    Unavailable,
    /// It needed a valid API key and had none: 401.
    Unauthorized,
    /// It was refused for another reason, before any rate limit was checked: 400, 404, 405, ….
    Rejected,
}

impl RequestOutcome {
    /// The outcome of a request; `decision` is `None` if it ended before one was made.
    pub fn of(decision: Option<&Decision>) -> Self {
        match decision {
            Some(
                Decision::Allowed { .. }
                | Decision::OwnLimits { .. }
                | Decision::NewKey(_)
                | Decision::Preflight,
            ) => Self::Allowed,
            Some(Decision::Limited { check, .. }) => {
                let denied = check.reported.and_then(|index| check.taken.charges.get(index));
                denied.map_or(Self::Rejected, |charge| Self::Refused { rule: charge.rule })
            }
            Some(Decision::Unavailable { .. }) => Self::Unavailable,
            Some(Decision::Unauthenticated { reason, .. }) if reason.is_unverified() => {
                Self::Unavailable
            }
            Some(Decision::Unauthenticated { .. }) => Self::Unauthorized,
            Some(Decision::Rejected(_)) | None => Self::Rejected,
        }
    }
}
