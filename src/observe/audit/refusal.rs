//! The refusals that one decision consists of. Pure.

use super::Kind;
use crate::decide::Unauthenticated;
use crate::decide::decision::{Decision, LimitCheck};
use crate::decide::reason::Reason;
use crate::limit::charge::Charge;
use crate::limit::cost::Cost;
use crate::policy::charges::KeyRequired;

/// One refusal of one request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Refusal {
    pub(super) kind: Kind,
    /// Why the request was refused; `None` if it was allowed.
    pub(super) reason: Option<Reason>,
    /// Index of the rule; `None` if no rule refused the request.
    pub(super) rule: Option<u32>,
    /// Tokens that the request would have taken, if that is known without its route.
    pub(super) cost: Option<Cost>,
    /// Whole tokens left under the rule; `None` if no bucket was read.
    pub(super) tokens: Option<u64>,
}

impl Refusal {
    /// Calls `record` with each refusal: one if the request was refused, else one for each rule in
    /// shadow mode that would have refused it.
    pub(super) fn each(decision: &Decision, mut record: impl FnMut(Self)) {
        let reason = Reason::of(Some(decision), None);
        let mut record = |refusal| record(Self { reason, ..refusal });
        match decision {
            Decision::Limited { check, .. } => {
                if let Some(index) = check.reported {
                    record(Self::of_charge(Kind::Limit, check, index));
                }
            }
            Decision::Unavailable { rule, .. } => {
                record(Self::without_bucket(Kind::Unavailable, Some(*rule)));
            }
            Decision::Unauthenticated { reason, .. } => {
                let rule = match reason {
                    Unauthenticated::KeyRequired(KeyRequired { rule }) => Some(*rule),
                    Unauthenticated::KeyMissing
                    | Unauthenticated::KeyUnknown { .. }
                    | Unauthenticated::KeyRefused { .. } => None,
                };
                let kind = match reason {
                    _ if reason.is_unverified() => Kind::Unavailable,
                    _ => Kind::Unauthorized,
                };
                record(Self::without_bucket(kind, rule));
            }
            Decision::Allowed { check, shadow_key_rules } => {
                if let Some(check) = check {
                    Self::each_shadow(check, &mut record);
                }
                for rule in shadow_key_rules {
                    record(Self::without_bucket(Kind::Shadow, Some(*rule)));
                }
            }
            Decision::OwnLimits { check: Some(check), .. } => Self::each_shadow(check, record),
            Decision::OwnLimits { check: None, .. }
            | Decision::NewKey(_)
            | Decision::Preflight
            | Decision::Rejected(_) => {}
        }
    }

    /// Calls `record` with the refusal of each shadow rule whose bucket was short.
    fn each_shadow(check: &LimitCheck, mut record: impl FnMut(Self)) {
        for (index, _) in check.shadow_short() {
            record(Self::of_charge(Kind::Shadow, check, index));
        }
    }

    /// A refusal by the charge at `index`.
    fn of_charge(kind: Kind, check: &LimitCheck, index: usize) -> Self {
        let charge = check.taken.charges.get(index);
        Self {
            kind,
            reason: None,
            rule: charge.map(|charge| charge.rule),
            cost: charge.map(Charge::cost_in_tokens),
            tokens: check.standing(index).map(|standing| standing.remaining),
        }
    }

    const fn without_bucket(kind: Kind, rule: Option<u32>) -> Self {
        Self { kind, reason: None, rule, cost: None, tokens: None }
    }
}
