//! `[rules.<name>]`: who shares a bucket, and what it allows.

use serde::Deserialize;

use super::Named;
use super::spanned::Spanned;
use super::tables::{Field, List};
use super::words::{Mode, OnFailure, OnMissing};

/// One rule.
#[derive(Debug, Default, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Rule {
    /// What tells clients apart.
    pub per: List,
    /// The rate of plans that have none of their own.
    pub rate: Field<String>,
    /// The capacity that goes with it, in tokens.
    pub burst: Field<u64>,
    /// Rates of single plans.
    #[serde(default)]
    pub plans: Named<Grant>,
    /// Routes that it counts; left out: all.
    pub routes: List,
    /// Whether it refuses or only counts.
    pub mode: Field<Mode>,
    /// Whether it is there at all.
    pub enabled: Field<bool>,
    /// What it does with a client without a key.
    pub on_missing: Field<OnMissing>,
    /// What it does when the shared store fails.
    pub on_failure: Field<OnFailure>,
    /// Who is not limited by it.
    pub exempt: Option<Spanned<Exempt>>,
    /// Free text, shown where the rule is.
    pub description: Field<String>,
}

/// `{ rate, burst }` for one plan or one key.
#[derive(Debug, Default, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Grant {
    /// Such as `10/s`.
    pub rate: Field<String>,
    /// The bucket's capacity in tokens; left out, the number in the rate.
    pub burst: Field<u64>,
}

/// `{ ips, keys }`: who a rule does not limit.
#[derive(Debug, Default, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Exempt {
    /// Addresses or networks.
    pub ips: List,
    /// Ids of keys.
    pub keys: List,
}
