//! Decides whether a request whose attempt got no response is retried. Pure.

/// Maximum number of attempts to send a request to an upstream: one retry.
pub const MAX_TRIES: usize = 2;

/// How an attempt that got no response failed.
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
    /// In another way, such as by a time limit.
    MaybeProcessed,
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

pub(super) fn is_retried(failed: Failed, request: Request) -> bool {
    let is_harmless = match failed {
        Failed::NotConnected | Failed::NotProcessed => true,
        Failed::ClosedIdle => request.is_idempotent,
        Failed::MaybeProcessed => false,
    };
    is_harmless && request.has_whole_body && request.tries < MAX_TRIES
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn request_is_retried_if_that_cannot_have_an_effect_twice() {
        let table = [
            (Failed::NotConnected, false, true),
            (Failed::NotProcessed, false, true),
            (Failed::ClosedIdle, false, false),
            (Failed::ClosedIdle, true, true),
            (Failed::MaybeProcessed, true, false),
        ];
        for (failed, is_idempotent, expected) in table {
            let request = Request { tries: 1, is_idempotent, has_whole_body: true };
            assert_eq!(is_retried(failed, request), expected, "{failed:?}");
            let last = Request { tries: MAX_TRIES, ..request };
            for request in [last, Request { has_whole_body: false, ..request }] {
                assert!(!is_retried(failed, request), "{failed:?} {request:?}");
            }
        }
    }
}
