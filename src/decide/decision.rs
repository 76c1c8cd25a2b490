//! The decision on one request. The gateway makes it once and stores it in the exchange; response,
//! rate limit headers, access log, metrics, audit and traces read it.

use std::cmp::Reverse;
use std::fmt;

use bytes::Bytes;

use super::label::DecisionLabel;
use super::{Refusal, Rejection, Unauthenticated};
use crate::limit::charge::Charge;
use crate::limit::charge::Mode;
use crate::limit::cost::Cost;
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
        /// Indexes of the shadow rules that would deny the request for its missing API key.
        shadow_key_rules: Vec<u32>,
    },
    /// The client asked for its own limits (`clients.limits_path`); the gateway responds itself.
    OwnLimits {
        /// Result of the rate limits by address, if the request may be an attempt to guess a key.
        check: Option<LimitCheck>,
        /// Body of the response; `None` for `OPTIONS`, which only lists the methods.
        view: Option<Bytes>,
    },
    /// The client has replaced its own key; the gateway responds itself.
    NewKey(NewKeyBody),
    /// The request is a CORS preflight request; the gateway responds itself.
    Preflight,
    /// At least one enforced bucket did not hold the cost: 429.
    Limited {
        /// The rate limits that were checked.
        check: LimitCheck,
        /// Why the request would have been refused otherwise: then these are the limits that bound
        /// attempts to guess a key.
        unauthenticated: Option<Unauthenticated>,
    },
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

/// Body of the response that has the new key of a client. Not shown.
pub struct NewKeyBody(pub Bytes);

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
    /// Index of the rule that gave the decision: the one that denied the request, the shadow rule
    /// that would have denied it, else the one with the fewest tokens left.
    pub rule: Option<u32>,
    /// Whole tokens that the client has left with that rule.
    pub remaining: Option<u64>,
    /// Tokens that the request took from each bucket, or would have taken; `None` if no bucket was
    /// read.
    pub cost: Option<Cost>,
    /// Where the decision was made; `None` if no rule took part.
    pub source: Option<Source>,
}

impl Decision {
    /// The decision on a request that the gateway answers without reading a bucket.
    pub const UNCHECKED: Self = Self::Allowed { check: None, shadow_key_rules: Vec::new() };

    /// Derives the decision on a request. `refusal` applies unless a rate limit denies the request
    /// first.
    ///
    /// `taken` is the store's answer; `None` if there was nothing to charge. `retry_after_us`
    /// returns the microseconds until the next probe of Redis.
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
            (Some(check), refusal) if !check.allowed() => {
                let unauthenticated = match refusal {
                    Some(Refusal::Unauthenticated(reason)) => Some(reason),
                    None | Some(Refusal::Rejected(_)) => None,
                };
                Self::Limited { check, unauthenticated }
            }
            (check, None) => Self::Allowed { check, shadow_key_rules: Vec::new() },
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
            Self::Limited { check, .. } => Some(check),
            Self::NewKey(_) | Self::Preflight | Self::Unavailable { .. } | Self::Rejected(_) => {
                None
            }
        }
    }

    /// Indexes of the shadow rules that would have denied the request, which was allowed: all whose
    /// bucket was short, and all that require an API key.
    pub fn shadow_denials(&self) -> Vec<u32> {
        let (check, key_rules) = match self {
            Self::Allowed { check, shadow_key_rules } => (check, &shadow_key_rules[..]),
            Self::OwnLimits { check, .. } => (check, &[][..]),
            Self::NewKey(_)
            | Self::Preflight
            | Self::Limited { .. }
            | Self::Unavailable { .. }
            | Self::Unauthenticated { .. }
            | Self::Rejected(_) => return Vec::new(),
        };
        let short = check.iter().flat_map(|check| {
            let charges = &check.taken.charges;
            check.shadow_short().filter_map(|(index, _)| Some(charges.get(index)?.rule))
        });
        let mut rules: Vec<u32> = key_rules.iter().copied().chain(short).collect();
        rules.sort_unstable();
        rules
    }

    /// What is recorded of the decision.
    pub fn summary(&self) -> Summary {
        match self {
            Self::Allowed { check, shadow_key_rules } => match (shadow_key_rules.first(), check) {
                (Some(rule), _) => Summary {
                    label: DecisionLabel::ShadowDeny,
                    ..Summary::denied_without_bucket(*rule)
                },
                (None, Some(check)) => check.summary(),
                (None, None) => Summary::UNLIMITED,
            },
            Self::OwnLimits { check: Some(check), .. } | Self::Limited { check, .. } => {
                check.summary()
            }
            Self::OwnLimits { check: None, .. } | Self::NewKey(_) | Self::Preflight => {
                Summary::UNLIMITED
            }
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

impl fmt::Debug for NewKeyBody {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("[secret]")
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
        self.taken.standing(index)
    }

    /// Name of the rule of the charge at `index`.
    pub fn rule_name<'a>(&self, policy: &'a Policy, index: usize) -> &'a str {
        self.taken
            .charges
            .get(index)
            .and_then(|charge| policy.rules.get(charge.rule as usize))
            .map_or("", |rule| &rule.name)
    }

    fn summary(&self) -> Summary {
        let shadow =
            self.shadow_short().min_by_key(|(_, standing)| Reverse(standing.retry_after_us));
        let (label, index) = match shadow {
            _ if !self.allowed() => (DecisionLabel::Deny, self.reported),
            Some((index, _)) => (DecisionLabel::ShadowDeny, Some(index)),
            None => (DecisionLabel::Allow, self.reported),
        };
        let charge = index.and_then(|index| self.taken.charges.get(index));
        let source = index.map_or(self.taken.source, |index| self.taken.source_of(index));
        Summary {
            label,
            rule: charge.map(|charge| charge.rule),
            remaining: index.and_then(|index| Some(self.standing(index)?.remaining)),
            cost: charge.or(self.taken.charges.first()).map(Charge::cost_in_tokens),
            source: Some(source),
        }
    }

    /// The charges of shadow rules whose bucket was short, with their state.
    pub fn shadow_short(&self) -> impl Iterator<Item = (usize, Standing)> {
        let each = self.taken.charges.iter().zip(&self.taken.answer.outcomes).enumerate();
        each.filter(|(_, (charge, outcome))| charge.mode == Mode::Shadow && !outcome.enough)
            .map(|(index, (charge, outcome))| (index, Standing::of(charge, outcome)))
    }
}

impl Summary {
    /// Summary of an allowed request to which no rule applies.
    pub const UNLIMITED: Self =
        Self { label: DecisionLabel::Allow, rule: None, remaining: None, cost: None, source: None };

    const fn denied_without_bucket(rule: u32) -> Self {
        Self {
            label: DecisionLabel::Deny,
            rule: Some(rule),
            remaining: None,
            cost: None,
            source: Some(Source::Policy),
        }
    }
}
