//! The words for what became of a request: the same in metrics and in logs.

use crate::limit::charge::{Charge, Mode};
use crate::store::limiter::Source;

/// Who decided where no bucket was asked: the file alone.
pub const POLICY: &str = "policy";

/// What became of a request that no limit decided on: it was refused for another reason.
pub const REJECT: &str = "reject";

/// What became of one rule's charge; of a request, by the rules together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision {
    /// The tokens were there.
    Allow,
    /// They were not, and the request was refused.
    Deny,
    /// They were not, and a shadow rule let the request pass all the same.
    ShadowDeny,
}

impl Decision {
    /// How many there are.
    pub const COUNT: usize = 3;

    /// What it is called.
    pub fn label(self) -> &'static str {
        match self {
            Self::Allow => "allow",
            Self::Deny => "deny",
            Self::ShadowDeny => "shadow_deny",
        }
    }

    /// What a rule that refuses without asking a bucket decides.
    pub fn of_demand(mode: Mode) -> Self {
        match mode {
            Mode::Enforce => Self::Deny,
            Mode::Shadow => Self::ShadowDeny,
        }
    }

    /// A request that is refused takes from nobody: only the rules that refused are counted then.
    pub fn of(charge: &Charge, enough: bool, allowed: bool) -> Option<Self> {
        match (charge.mode, enough, allowed) {
            (_, true, true) => Some(Self::Allow),
            (Mode::Enforce, false, _) => Some(Self::Deny),
            (Mode::Shadow, false, true) => Some(Self::ShadowDeny),
            (_, true, false) | (Mode::Shadow, false, false) => None,
        }
    }
}

/// What a source is called.
pub fn source_label(source: Source) -> &'static str {
    match source {
        Source::Redis => "redis",
        Source::Cache => "cache",
        Source::Local => "local",
        Source::Policy => POLICY,
    }
}
