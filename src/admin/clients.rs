//! `/api/clients`: the clients with the most requests, the buckets of one client, and their
//! adjustment.
//!
//! Reading order: `requested` (the client of a call), `buckets` (its tokens), `adjust` (reset and
//! grant), `top_ups` (grants with an expiry); `top` (the clients with the most requests or
//! refusals); and `bans` (clients that are refused for longer).

pub(super) mod adjust;
pub(super) mod bans;
pub(super) mod buckets;
mod requested;
pub(super) mod top;
pub(super) mod top_ups;

use std::borrow::Cow;

use crate::decide::applicability::Applicability;
use crate::store::limiter::Source;

/// Store of the levels: `redis` or `local`.
fn levels(source: Source) -> Cow<'static, str> {
    Cow::Borrowed(match source {
        Source::Redis | Source::Cache | Source::Lease => "redis",
        Source::Local | Source::Policy | Source::Ban => "local",
    })
}

/// The values of `per` that identify the rule's bucket and were not given, as the file writes them.
fn unknown(applicability: &Applicability<'_>) -> Vec<String> {
    applicability.unknown.iter().map(ToString::to_string).collect()
}
