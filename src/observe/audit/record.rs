//! What is shown of a burst, and how to ask for it.

use std::cmp::Reverse;

use serde::Serialize;

use super::Burst;
use crate::observe::address::Shown;
use crate::observe::time::Moment;

/// A burst as it is shown. It has no secret: a key's id, and of an address what the file lets be
/// shown.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Record {
    /// When the first refusal was, in UTC.
    #[cfg_attr(test, schemars(with = "String"))]
    pub first: Moment,
    /// When the last was.
    #[cfg_attr(test, schemars(with = "String"))]
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
    #[serde(rename = "open")]
    pub is_open: bool,
}

impl Record {
    /// As a stream has it: names and values, without what there is none of.
    pub(super) fn fields(&self) -> Vec<(&'static str, String)> {
        let Self { first, last, count, key, ip, rule, plan, tokens, is_open: _ } = self;
        let mut fields = vec![
            ("first", first.to_string()),
            ("last", last.to_string()),
            ("count", count.to_string()),
            ("rule", rule.clone()),
            ("plan", plan.clone()),
        ];
        let tokens = tokens.map(|tokens| tokens.to_string());
        let optional = [("key", key.clone()), ("ip", ip.clone()), ("tokens", tokens)];
        fields.extend(optional.into_iter().filter_map(|(name, value)| Some((name, value?))));
        fields
    }
}

/// Which records are wanted; what is none is not asked for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Query {
    /// Those of this key, by its id.
    pub key: Option<String>,
    /// Those of this address, as it is shown.
    pub ip: Option<Shown>,
    /// Those of this rule.
    pub rule: Option<String>,
    /// Those that went on at this moment or later, in ticks since 1970.
    pub since: Option<u64>,
    /// Those that had begun by this moment.
    pub until: Option<u64>,
    /// At most so many, the latest first.
    pub limit: usize,
}

/// What is known of refusals that were asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// The bursts, the latest first.
    pub records: Vec<Record>,
    /// How many more there are, all of them earlier.
    pub more: usize,
    /// Refusals, of whomever, whose bursts there was no more room to remember.
    pub forgotten: u64,
}

/// The same before it is written out: what is done while the book is held.
pub(super) struct Chosen {
    pub(super) bursts: Vec<(Burst, bool)>,
    pub(super) more: usize,
    pub(super) forgotten: u64,
}

impl Chosen {
    pub(super) fn found(mut self) -> Found {
        self.bursts.sort_by_key(|(burst, _)| Reverse(burst.last.unix));
        let records = self.bursts.iter().map(|(burst, is_open)| burst.record(*is_open)).collect();
        Found { records, more: self.more, forgotten: self.forgotten }
    }
}
