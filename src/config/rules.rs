//! `[rules.<name>]`: who shares a bucket, and what it allows.

use super::Named;
use super::spanned::Spanned;
use super::tables::{Field, List};
use super::walk::table;
use super::words::{Mode, OnFailure, OnMissing};

table! {
    /// One rule.
    pub struct Rule {
        /// Who shares a bucket: `ip`, `key`, `plan`, `route`, `method`, `host`, `header:<name>`, in any
        /// combination; `[]` is one bucket for all.
        pub per: List,
        /// The rate of plans that have none of their own: `10/s`, `300/m`, `100/10s`, `5/250ms`.
        pub rate: Field<String>,
        /// The bucket's capacity in tokens. Default: the number in the rate.
        pub burst: Field<u64>,
        /// Rates of single plans.
        pub plans: Named<Grant>,
        /// Names of the routes that it counts; left out: all.
        pub routes: List,
        /// Whether it refuses or only counts. Default: `"enforce"`.
        pub mode: Field<Mode>,
        /// Whether it is there at all. Default: `true`.
        pub enabled: Field<bool>,
        /// What a rule per key does with a client without one. Default: `"ip"`.
        pub on_missing: Field<OnMissing>,
        /// What becomes of its requests when the shared store fails. Default: that of `[redis]`.
        pub on_failure: Field<OnFailure>,
        /// Who is not limited by it: `{ ips = ["10.0.0.0/8"], keys = ["monitor"] }`.
        pub exempt: Option<Spanned<Exempt>>,
        /// Free text, shown where the rule is.
        pub description: Field<String>,
    }
}

table! {
    /// `{ rate, burst }` for one plan or one key.
    pub struct Grant {
        /// Such as `10/s`.
        pub rate: Field<String>,
        /// The bucket's capacity in tokens; left out, the number in the rate.
        pub burst: Field<u64>,
    }
}

table! {
    /// `{ ips, keys }`: who a rule does not limit.
    pub struct Exempt {
        /// Addresses or networks.
        pub ips: List,
        /// Ids of keys.
        pub keys: List,
    }
}
