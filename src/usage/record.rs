//! [`Record`]: what one client used of one quota in one period.

use std::sync::Arc;

use crate::client::Client;
use crate::limit::Limit;
use crate::limit::charge::BucketId;
use crate::policy::{Dimension, Policy, Rule};

/// What one client used of one quota in one period. Times are microseconds of Unix time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    /// The bucket and the period.
    pub place: Place,
    /// First instant of the period.
    pub start_us: u64,
    /// Name of the rule.
    pub rule: Arc<str>,
    /// Whose quota it is.
    pub owner: Owner,
    /// Name of the client's plan.
    pub plan: Arc<str>,
    /// The limit that it was counted under.
    pub limit: Limit,
    /// Units of the limit that requests took.
    pub used: i64,
    /// Time of the last request; 0 if it is not known, as after a grant before the first one.
    pub counted_at_us: u64,
}

/// A bucket in one period. Ordered by the end of the period.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Place {
    /// First instant after the period, in microseconds of Unix time.
    pub end_us: u64,
    pub bucket: BucketId,
}

/// Whose quota it is.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Owner {
    /// What identifies the client: `key`, `token`, `tenant`, `ip` or `unknown_key`; `shared` if the
    /// rule counts several clients together.
    pub kind: &'static str,
    /// The client; empty if several are counted together.
    pub id: String,
}

pub const OWNER_KINDS: [&str; 6] = ["key", "tenant", "ip", "unknown_key", SHARED, "token"];

const SHARED: &str = "shared";

impl Record {
    pub const fn limit_in_tokens(&self) -> u64 {
        self.limit.capacity()
    }
}

impl Owner {
    /// The owner of the bucket that `rule` counts `client` in.
    pub fn of(policy: &Policy, rule: &Rule, client: &Client) -> Self {
        let by_client =
            |one: &Dimension| matches!(one, Dimension::Ip | Dimension::Key | Dimension::Tenant);
        let found = rule.client_of(&policy.clients, client);
        let found = found.filter(|_| rule.per.iter().any(by_client));
        let (kind, id) = found.map_or_else(
            || (SHARED, String::new()),
            |found| found.shown(policy.clients.ipv6_prefix),
        );
        Self { kind, id }
    }
}
