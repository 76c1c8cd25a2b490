//! Decides whether a request whose attempt got no response is sent again. Pure.

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
    /// Otherwise: the server may have processed the request, or its time is over.
    Processed,
}

/// What the decision depends on beside the failure.
#[derive(Clone, Copy, Debug)]
pub(in crate::gateway) struct Sent {
    /// Number of attempts so far, with the one that failed.
    pub tries: usize,
    /// Whether the method is idempotent (RFC 9110, section 9.2.2).
    pub is_idempotent: bool,
    /// Whether the body can be sent from its beginning, as far as the client has sent it.
    pub has_whole_body: bool,
}

/// Whether to send the request again.
pub(in crate::gateway) fn is_sent_again(failed: Failed, sent: Sent) -> bool {
    let is_harmless = match failed {
        Failed::NotConnected | Failed::NotProcessed => true,
        Failed::ClosedIdle => sent.is_idempotent,
        Failed::Processed => false,
    };
    is_harmless && sent.has_whole_body && sent.tries < MAX_TRIES
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn request_is_sent_again_if_that_cannot_have_an_effect_twice() {
        let table = [
            (Failed::NotConnected, false, true),
            (Failed::NotProcessed, false, true),
            (Failed::ClosedIdle, false, false),
            (Failed::ClosedIdle, true, true),
            (Failed::Processed, true, false),
        ];
        for (failed, is_idempotent, expected) in table {
            let sent = Sent { tries: 1, is_idempotent, has_whole_body: true };
            assert_eq!(is_sent_again(failed, sent), expected, "{failed:?}");
            for sent in [Sent { tries: MAX_TRIES, ..sent }, Sent { has_whole_body: false, ..sent }]
            {
                assert!(!is_sent_again(failed, sent), "{failed:?} {sent:?}");
            }
        }
    }
}
