//! Files of the program whose mutants `make mutants` tests, and what they use of the others.

#![allow(dead_code, reason = "the rest of the program uses it")]

#[path = "../../../src/limit/mod.rs"]
pub mod limit;

#[path = "../../../src/store"]
pub mod store {
    pub mod debts;
    pub mod deny_cache;
    pub mod fallback;
    pub mod held;
    pub mod lapsed;
    pub mod leases;
    pub mod memory;
    pub mod rule;
}

#[path = "../../../src/base"]
pub mod base {
    #[cfg(test)]
    pub(crate) mod cases;
    pub mod clock;
    pub mod duration;
    pub mod now;
    pub(crate) mod random;
    pub(crate) mod sync;
    pub mod unix_time;
}

/// Replaces `src/policy`: what the stores use of a rule.
pub mod policy {
    use std::sync::Arc;

    use crate::limit::ban::BanRule;

    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub enum OnFailure {
        Local,
        Allow,
        Deny,
    }

    #[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
    pub enum Lease {
        #[default]
        Off,
        Auto,
        UpTo(u64),
    }

    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub enum Kind {
        TokenBucket,
        LeakyBucket,
    }

    pub struct Rule {
        pub name: Arc<str>,
        pub salt: u128,
        pub on_failure: OnFailure,
        pub lease: Lease,
        pub kind: Kind,
        pub ban: Option<BanRule>,
        pub enabled: bool,
    }
}
