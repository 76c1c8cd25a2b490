//! A rule as the stores see it.

use std::sync::Arc;

use crate::limit::ban::BanRule;
use crate::policy::{Kind, Lease, OnFailure, Rule};

/// The parts of a rule that stores use.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredRule {
    /// Name, which is part of the bucket's key.
    pub name: Arc<str>,
    /// Salt of its bucket IDs.
    pub salt: u128,
    /// What happens to its requests while Redis is unavailable.
    pub on_failure: OnFailure,
    /// Whether gateways borrow tokens of its buckets.
    pub lease: Lease,
    /// Whether it delays requests.
    pub is_leaky: bool,
    /// When clients that go on after refusals are banned; `None`: never.
    pub ban: Option<BanRule>,
}

impl StoredRule {
    /// From a rule of the policy.
    pub fn of(rule: &Rule) -> Self {
        Self {
            name: Arc::clone(&rule.name),
            salt: rule.salt,
            on_failure: rule.on_failure,
            lease: rule.lease,
            is_leaky: rule.kind == Kind::LeakyBucket,
            ban: rule.ban.filter(|_| rule.enabled),
        }
    }
}

/// For tests: a rule without salt.
#[cfg(test)]
pub(crate) fn rule() -> StoredRule {
    StoredRule {
        name: Arc::from("r"),
        salt: 0,
        on_failure: OnFailure::Local,
        lease: Lease::Off,
        is_leaky: false,
        ban: None,
    }
}
