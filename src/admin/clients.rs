//! `/api/clients`: who asks most, what one client has left, and giving it more.
//!
//! Reading order: `who` (the client, and what is said of a request of its), `buckets` (what is
//! left), `adjust` (reset and grant); and `top` (who asks most).

pub(super) mod adjust;
pub(super) mod buckets;
pub(super) mod top;
mod who;

use serde::Serialize;

use crate::decide::meetings::Meeting;
use crate::store::limiter::Source;

/// The client that is spoken of.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(super) struct Client {
    /// `key` or `ip`.
    kind: &'static str,
    id: String,
    plan: String,
    /// The address or the network that rules count, where one is known.
    counted_as: Option<String>,
}

/// Where levels come from: `redis` or `local`.
fn levels(source: Source) -> &'static str {
    match source {
        Source::Redis | Source::Cache => "redis",
        Source::Local | Source::Policy => "local",
    }
}

/// What names a rule's bucket and was not said, as the file writes it.
fn unknown(meeting: &Meeting<'_>) -> Vec<String> {
    meeting.unknown.iter().map(ToString::to_string).collect()
}
