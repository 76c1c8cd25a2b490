//! Decides whether a request whose attempt failed is sent again, and when. Pure.

use std::time::Duration;

use http::StatusCode;

use crate::observe::metrics::RetryReason;
use crate::policy::failures::ServerFailure;
use crate::policy::retries::Retries;

/// Maximum number of attempts to send a request to an upstream, with any `retries`.
pub const MAX_TRIES: usize = 11;

/// Longest pause before the first retry at the server that failed. It doubles with each retry.
const FIRST_PAUSE: Duration = Duration::from_millis(25);

/// Longest pause before any retry.
const LONGEST_PAUSE: Duration = Duration::from_millis(250);

/// How an attempt failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::gateway) enum Failed {
    /// The server could not be connected to: nothing was sent.
    NotConnected,
    /// The server has not processed the request: it said so over HTTP/2, or the connection closed
    /// before the request was sent.
    NotProcessed,
    /// The server closed a connection that had served other requests. It may have closed it because
    /// it was idle, while this request was on its way.
    ClosedIdle,
    /// The connection or the stream was closed before the head of the response.
    Reset,
    /// The head of the response did not come in time.
    TimedOut,
    /// The server has responded with this status.
    Status(StatusCode),
    /// In another way: after the head of the response, by a response that is not valid, or by the
    /// client.
    Otherwise,
}

/// The request, as far as a retry depends on it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Request {
    /// Number of attempts so far, with the one that failed.
    pub tries: usize,
    /// Whether the method is idempotent (RFC 9110, section 9.2.2).
    pub is_idempotent: bool,
    /// Whether the body can be sent from its beginning, as far as the client has sent it.
    pub has_whole_body: bool,
}

/// Whether a request is sent again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    No,
    Yes,
    /// If the budget of the upstream allows it.
    WithinBudget,
}

pub(super) fn verdict(failed: Failed, request: Request, retries: &Retries) -> Verdict {
    let repeatable = request.is_idempotent || retries.non_idempotent;
    let has = |cause| retries.on.has(cause);
    let verdict = match failed {
        Failed::NotConnected | Failed::NotProcessed if has(ServerFailure::Connect) => Verdict::Yes,
        // No attempt after it uses a connection that was idle.
        Failed::ClosedIdle if has(ServerFailure::Connect) && repeatable => Verdict::Yes,
        Failed::ClosedIdle | Failed::Reset if has(ServerFailure::Reset) && repeatable => {
            Verdict::WithinBudget
        }
        Failed::TimedOut if has(ServerFailure::Timeout) && repeatable => Verdict::WithinBudget,
        Failed::Status(status) if has(ServerFailure::Status(status)) && repeatable => {
            Verdict::WithinBudget
        }
        _ => Verdict::No,
    };
    let is_possible = request.has_whole_body && request.tries <= usize::from(retries.count);
    if is_possible { verdict } else { Verdict::No }
}

/// How long a request waits before it is sent to a server again at which it failed, after this
/// number of attempts. `random` spreads requests that failed together.
pub(super) fn pause(tries: usize, random: u64) -> Duration {
    let doublings = u32::try_from(tries.saturating_sub(1)).unwrap_or(u32::MAX).min(8);
    let longest = (FIRST_PAUSE * (1 << doublings)).min(LONGEST_PAUSE);
    let longest_us = u64::try_from(longest.as_micros()).unwrap_or(u64::MAX);
    Duration::from_micros(random % longest_us + 1)
}

impl Failed {
    /// The status of the response, if that is why.
    pub(super) fn status(self) -> Option<StatusCode> {
        match self {
            Self::Status(status) => Some(status),
            _ => None,
        }
    }

    /// The reason of a retry after it.
    pub(super) fn reason(self) -> RetryReason {
        match self {
            Self::NotConnected => RetryReason::Connect,
            Self::NotProcessed => RetryReason::Unprocessed,
            Self::ClosedIdle | Self::Reset | Self::Otherwise => RetryReason::Reset,
            Self::TimedOut => RetryReason::Timeout,
            Self::Status(_) => RetryReason::Status,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::failures::FailureSet;

    const UNAVAILABLE: Failed = Failed::Status(StatusCode::SERVICE_UNAVAILABLE);

    const FIRST: Request = Request { tries: 1, is_idempotent: true, has_whole_body: true };

    fn on(words: &[&str]) -> Retries {
        let on = FailureSet::of_words(words.iter().copied()).unwrap();
        Retries { on, ..Retries::default() }
    }

    #[test]
    fn by_default_request_is_retried_if_that_cannot_have_an_effect_twice() {
        let table = [
            (Failed::NotConnected, false, Verdict::Yes),
            (Failed::NotProcessed, false, Verdict::Yes),
            (Failed::ClosedIdle, false, Verdict::No),
            (Failed::ClosedIdle, true, Verdict::Yes),
            (Failed::Reset, true, Verdict::No),
            (Failed::TimedOut, true, Verdict::No),
            (UNAVAILABLE, true, Verdict::No),
            (Failed::Otherwise, true, Verdict::No),
        ];
        let retries = Retries::default();
        for (failed, is_idempotent, expected) in table {
            let request = Request { is_idempotent, ..FIRST };
            assert_eq!(verdict(failed, request, &retries), expected, "{failed:?}");
            let last = Request { tries: 2, ..request };
            for request in [last, Request { has_whole_body: false, ..request }] {
                assert_eq!(verdict(failed, request, &retries), Verdict::No, "{failed:?}");
            }
        }
    }

    #[test]
    fn requests_that_were_sent_are_retried_within_the_budget_as_configured() {
        let failures = [Failed::Reset, Failed::TimedOut, UNAVAILABLE];
        let lists = [["reset"], ["timeout"], ["503"]];
        for (at, failed) in failures.into_iter().enumerate() {
            for (own, words) in lists.iter().enumerate() {
                let expected = if at == own { Verdict::WithinBudget } else { Verdict::No };
                let retries = on(words);
                assert_eq!(verdict(failed, FIRST, &retries), expected, "{failed:?} {words:?}");
                let post = Request { is_idempotent: false, ..FIRST };
                assert_eq!(verdict(failed, post, &retries), Verdict::No);
                let retries = Retries { non_idempotent: true, ..retries };
                assert_eq!(verdict(failed, post, &retries), expected);
            }
            assert_eq!(verdict(Failed::NotConnected, FIRST, &on(&["5xx"])), Verdict::No);
        }
        assert_eq!(verdict(Failed::ClosedIdle, FIRST, &on(&["reset"])), Verdict::WithinBudget);
        assert_eq!(verdict(Failed::Otherwise, FIRST, &on(&["reset", "5xx"])), Verdict::No);
    }

    #[test]
    fn count_is_the_maximum_number_of_retries() {
        for count in [0, 1, 3, 10] {
            let retries = Retries { count, ..Retries::default() };
            let tried = |tries: &usize| {
                let request = Request { tries: *tries, ..FIRST };
                verdict(Failed::NotConnected, request, &retries) == Verdict::Yes
            };
            assert_eq!((1..100).take_while(tried).count(), usize::from(count));
            assert!(usize::from(count) < MAX_TRIES);
        }
    }

    #[test]
    fn pause_doubles_up_to_the_longest() {
        let longest =
            |tries| pause(tries, u64::MAX - u64::MAX % 250_000 - 1).max(pause(tries, 24_999));
        assert_eq!(longest(1), Duration::from_millis(25));
        for tries in [5, 11, usize::MAX] {
            assert_eq!(longest(tries), Duration::from_millis(250), "{tries}");
        }
        assert_eq!(pause(3, 0), Duration::from_micros(1));
    }
}
