//! Requests of clients that replace their own keys: POST to `clients.limits_path`, if
//! `key_store.self_rotation` is on.

use http::Method;

use super::Head;
use crate::net::cross_site::is_cross_site;
use crate::policy::Policy;

/// Why the key of a client is not replaced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RotationRefusal {
    /// A page of another site sends the request. A browser must not hand it a new key.
    CrossSite,
    /// The key is not one of the key store that is valid now.
    NotStored,
    /// The request does not say what to do; a sentence for the client.
    Invalid(&'static str),
    /// The client's other keys do not allow it; a sentence for the client.
    Conflict(&'static str),
    /// The client has replaced a key a short time ago.
    TooSoon {
        /// When it may do so again, in seconds.
        retry_after_s: u64,
    },
    /// The key store cannot be read, or other changes of the client were faster: nothing has
    /// changed.
    Unavailable,
    /// The key store has not confirmed the change: the key may have been replaced.
    NotConfirmed,
}

impl RotationRefusal {
    /// When the client may try again, in seconds; `None`: that does not help.
    pub const fn retry_after_s(self) -> Option<u64> {
        match self {
            Self::TooSoon { retry_after_s } => Some(retry_after_s),
            Self::Unavailable | Self::NotConfirmed => Some(1),
            Self::CrossSite | Self::NotStored | Self::Invalid(_) | Self::Conflict(_) => None,
        }
    }
}

/// Whether clients can replace their own keys.
pub fn is_on(policy: &Policy) -> bool {
    policy.key_store.as_ref().is_some_and(|store| store.self_rotation)
}

/// Whether a request for `clients.limits_path` is one for a new key.
pub fn is_asked(policy: &Policy, method: &Method) -> bool {
    *method == Method::POST && is_on(policy)
}

/// Why the head of such a request is refused.
pub(super) fn refusal(head: &Head<'_>) -> Option<RotationRefusal> {
    is_cross_site(head.headers).then_some(RotationRefusal::CrossSite)
}
