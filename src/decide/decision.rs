//! The decision on one request. The gateway makes it once and stores it in the exchange; response,
//! rate limit headers, access log, metrics, audit and traces read it.

use bytes::Bytes;

use super::label::DecisionLabel;
use super::{Refusal, Rejection, Unauthenticated};
use crate::limit::charge::Mode;
use crate::limit::verdict::{Standing, Verdict};
use crate::policy::Policy;
use crate::policy::charges::KeyRequired;
use crate::store::limiter::{Source, Taken};

/// The decision on one request.
#[derive(Debug)]
pub enum Decision {
    /// The request goes to the upstream of its route.
    Allowed {
        /// The rate limits that were checked; `None` if no rule applies.
        check: Option<LimitCheck>,
        /// Index of the first shadow rule that would deny the request for its missing API key.
        shadow_key_rule: Option<u32>,
    },
    /// The client asked for its own limits (`clients.limits_path`); the gateway responds itself.
    OwnLimits {
        /// Result of the rate limits by address, if the request may be an attempt to guess a key.
        check: Option<LimitCheck>,
        /// Body of the response; `None` for `OPTIONS`, which only lists the methods.
        view: Option<Bytes>,
    },
    /// At least one enforced bucket did not hold the cost: 429.
    Limited(LimitCheck),
    /// Redis is unavailable, and a rule denies requests then (`on_failure = "deny"`): 503.
    Unavailable {
        /// Index of that rule.
        rule: u32,
        /// Microseconds until the next probe of Redis.
        retry_after_us: u64,
    },
    /// The request needs a valid API key and has none: 401.
    Unauthenticated {
        /// Which condition the key does not meet.
        reason: Unauthenticated,
        /// The rate limits by address that were checked first; `None` if none applies.
        check: Option<LimitCheck>,
    },
    /// The request was refused before any rate limit was checked.
    Rejected(Rejection),
}

/// The result of checking all rate limits of one request.
#[derive(Debug)]
pub struct LimitCheck {
    /// The charges, and the store's answer.
    pub taken: Taken,
    /// Index of the charge that the response headers report; `None` if no enforced rule applies.
    pub reported: Option<usize>,
}

/// What the access log, the audit, metrics and traces record of a decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Summary {
    /// The decision, as metrics and logs name it.
    pub label: DecisionLabel,
    /// Index of the rule that denied the request, else of the one with the fewest tokens left.
    pub rule: Option<u32>,
    /// Whole tokens that the client has left with that rule.
    pub remaining: Option<u64>,
    /// Where the decision was made; `None` if no rule took part.
    pub source: Option<Source>,
}

impl Decision {
    /// Derives the decision on a request. `refusal` applies unless a rate limit denies the request first.
    ///
    /// `taken` is the store's answer; `None` if there was nothing to charge. `retry_after_us` returns
    /// the microseconds until the next probe of Redis.
    pub fn of(
        refusal: Option<Refusal>,
        taken: Option<Taken>,
        retry_after_us: impl FnOnce() -> u64,
    ) -> Self {
        if let Some(taken) = &taken
            && taken.source == Source::Policy
            && let Some(charge) = taken.charges.first()
        {
            return Self::Unavailable { rule: charge.rule, retry_after_us: retry_after_us() };
        }
        match (taken.map(LimitCheck::of), refusal) {
            (Some(check), _) if !check.allowed() => Self::Limited(check),
            (check, None) => Self::Allowed { check, shadow_key_rule: None },
            (check, Some(Refusal::Unauthenticated(reason))) => {
                Self::Unauthenticated { reason, check }
            }
            (_, Some(Refusal::Rejected(rejection))) => Self::Rejected(rejection),
        }
    }

    /// The rate limits that were checked, if any: those that the response headers report.
    pub const fn check(&self) -> Option<&LimitCheck> {
        match self {
            Self::Allowed { check, .. }
            | Self::OwnLimits { check, .. }
            | Self::Unauthenticated { check, .. } => check.as_ref(),
            Self::Limited(check) => Some(check),
            Self::Unavailable { .. } | Self::Rejected(_) => None,
        }
    }

    /// What is recorded of the decision.
    pub fn summary(&self) -> Summary {
        match self {
            Self::Allowed { check: Some(check), shadow_key_rule } => {
                check.summary(shadow_key_rule.is_some())
            }
            Self::OwnLimits { check: Some(check), .. } | Self::Limited(check) => {
                check.summary(false)
            }
            Self::Allowed { check: None, shadow_key_rule: Some(rule) } => Summary {
                label: DecisionLabel::ShadowDeny,
                ..Summary::denied_without_bucket(*rule)
            },
            Self::Allowed { check: None, shadow_key_rule: None }
            | Self::OwnLimits { check: None, .. } => Summary::UNLIMITED,
            Self::Unavailable { rule, .. }
            | Self::Unauthenticated {
                reason: Unauthenticated::KeyRequired(KeyRequired { rule }),
                ..
            } => Summary::denied_without_bucket(*rule),
            Self::Unauthenticated { .. } | Self::Rejected(_) => {
                Summary { label: DecisionLabel::Reject, ..Summary::UNLIMITED }
            }
        }
    }
}

impl LimitCheck {
    /// Derives the reported charge from the store's answer.
    pub fn of(taken: Taken) -> Self {
        let reported = Verdict::of(&taken.charges, &taken.answer).reported_charge();
        Self { taken, reported }
    }

    /// Whether every enforced bucket held the cost.
    pub const fn allowed(&self) -> bool {
        self.taken.answer.allowed()
    }

    /// State of the limit of the charge at `index`, after the decision.
    pub fn standing(&self, index: usize) -> Option<Standing> {
        let outcome = self.taken.answer.outcomes.get(index)?;
        Some(Standing::of(self.taken.charges.get(index)?, outcome))
    }

    /// Name of the rule of the charge at `index`.
    pub fn rule_name<'a>(&self, policy: &'a Policy, index: usize) -> &'a str {
        self.taken
            .charges
            .get(index)
            .and_then(|charge| policy.rules.get(charge.rule as usize))
            .map_or("", |rule| &rule.name)
    }

    /// `shadow_denied`: a shadow rule would deny the request without reading a bucket.
    fn summary(&self, shadow_denied: bool) -> Summary {
        let Taken { charges, answer, .. } = &self.taken;
        let is_shadow_short = || {
            let mut each = charges.iter().zip(&answer.outcomes);
            each.any(|(charge, outcome)| charge.mode == Mode::Shadow && !outcome.enough)
        };
        let label = if !answer.allowed() {
            DecisionLabel::Deny
        } else if shadow_denied || is_shadow_short() {
            DecisionLabel::ShadowDeny
        } else {
            DecisionLabel::Allow
        };
        let source = self.reported.map_or(self.taken.source, |index| self.taken.source_of(index));
        Summary {
            label,
            rule: self.reported.and_then(|index| charges.get(index)).map(|charge| charge.rule),
            remaining: self.reported.and_then(|index| Some(self.standing(index)?.remaining)),
            source: Some(source),
        }
    }
}

impl Summary {
    /// Summary of an allowed request to which no rule applies.
    pub const UNLIMITED: Self =
        Self { label: DecisionLabel::Allow, rule: None, remaining: None, source: None };

    const fn denied_without_bucket(rule: u32) -> Self {
        Self {
            label: DecisionLabel::Deny,
            rule: Some(rule),
            remaining: None,
            source: Some(Source::Policy),
        }
    }
}
