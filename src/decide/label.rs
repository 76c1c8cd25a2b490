//! Labels of decisions and of their sources: the same in metrics, in the access log and in traces.

use crate::limit::charge::{Charge, Mode};
use crate::store::limiter::Source;

/// A decision, on one charge or on a whole request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DecisionLabel {
    /// The bucket held the cost.
    Allow,
    /// The bucket did not hold the cost, and the request was denied.
    Deny,
    /// The bucket did not hold the cost, but its rule is in shadow mode: the request was not denied
    /// by it.
    ShadowDeny,
    /// The request was refused for another reason than a rule. Never the decision on a charge.
    Reject,
}

impl DecisionLabel {
    /// Number of decisions on a charge: all but [`Reject`](Self::Reject).
    pub const OF_CHARGE: usize = 3;

    /// Value of the label.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Allow => "allow",
            Self::Deny => "deny",
            Self::ShadowDeny => "shadow_deny",
            Self::Reject => "reject",
        }
    }

    /// Decision of a rule that denies a request for a missing API key (`on_missing = "deny"`).
    pub const fn of_missing_key(mode: Mode) -> Self {
        match mode {
            Mode::Enforce => Self::Deny,
            Mode::Shadow => Self::ShadowDeny,
        }
    }

    /// Decision on a charge. A denied request takes no tokens, so only the rules that denied it are
    /// counted then; `None` for the others.
    pub fn of(charge: &Charge, enough: bool, allowed: bool) -> Option<Self> {
        match (charge.mode, enough, allowed) {
            (_, true, true) => Some(Self::Allow),
            (Mode::Enforce, false, _) => Some(Self::Deny),
            (Mode::Shadow, false, true) => Some(Self::ShadowDeny),
            (_, true, false) | (Mode::Shadow, false, false) => None,
        }
    }
}

/// Value of the label for the source of a decision.
pub const fn source_label(source: Source) -> &'static str {
    match source {
        Source::Redis => "redis",
        Source::Cache => "cache",
        Source::Local => "local",
        Source::Policy => "policy",
        Source::Lease => "lease",
        Source::Ban => "ban",
    }
}
