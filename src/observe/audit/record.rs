//! What is shown of a burst, and how to ask for it.

use serde::Serialize;

use crate::observe::time::Moment;

/// A burst as it is shown. It has no secret: a key's id, and of an address what the file lets be
/// shown.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Record {
    /// When the first refusal was, in UTC.
    pub first: Moment,
    /// When the last was.
    pub last: Moment,
    /// How many there were.
    pub count: u64,
    /// The id of the client's key, where it has one.
    pub key: Option<String>,
    /// The address that the first refusal went to.
    pub ip: Option<String>,
    /// The rule.
    pub rule: String,
    /// The client's plan.
    pub plan: String,
    /// What the rule had left at the last refusal, in whole tokens; none where no bucket was asked.
    pub tokens: Option<u64>,
    /// Whether the burst goes on.
    pub is_open: bool,
}

/// Which records are wanted; what is none is not asked for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Query {
    /// Those of this key, by its id.
    pub key: Option<String>,
    /// Those of this address, [as it is shown](super::keeper::Audit::shown).
    pub ip: Option<String>,
    /// Those of this rule.
    pub rule: Option<String>,
    /// Those that went on at this moment or later, in ticks since 1970.
    pub since: Option<u64>,
    /// Those that had begun by this moment.
    pub until: Option<u64>,
    /// At most so many, the latest first.
    pub limit: usize,
}
