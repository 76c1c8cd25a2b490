//! Tables of answers of the store, and the decisions and summaries that follow from them.

use bytes::Bytes;

use crate::base::duration::MICROS_PER_SECOND;
use crate::decide::decision::{Decision, LimitCheck, NewKeyBody, Summary};
use crate::decide::label::DecisionLabel;
use crate::decide::{Refusal, Rejection, Unauthenticated};
use crate::limit::Limit;
use crate::limit::charge::{Answer, BucketId, Charge, Mode, Outcome};
use crate::limit::reading::Times;

use crate::limit::share::Share;
use crate::policy::charges::KeyRequired;
use crate::store::limiter::{Source, Taken};

const RETRY_AFTER_US: u64 = 7;

const NO_ROUTE: Refusal = Refusal::Rejected(Rejection::NoRoute);
const KEY_MISSING: Refusal = Refusal::Unauthenticated(Unauthenticated::KeyMissing);
const KEY_UNKNOWN: Refusal = Refusal::Unauthenticated(Unauthenticated::KeyUnknown { source: 0 });
const KEY_REQUIRED: Refusal =
    Refusal::Unauthenticated(Unauthenticated::KeyRequired(KeyRequired { rule: 9 }));

/// Mode of a charge, tokens in its bucket afterwards, and whether the bucket held the cost.
type Tokens = (Mode, u64, bool);

/// The answer of `source` to charges of the rules 0, 1 and so on.
fn taken(source: Source, charges: &[Tokens]) -> Taken {
    let limit = Limit::token_bucket(1, MICROS_PER_SECOND, 10).unwrap();
    let charge = |(rule, (mode, ..)): (u32, &Tokens)| Charge {
        bucket: BucketId(rule.into()),
        rule,
        limit_index: 0,
        limit,
        cost: 1,
        mode: *mode,
    };
    let outcome = |(_, tokens, enough): &Tokens| Outcome {
        level: limit.units(*tokens),
        enough: *enough,
        share: Share::WHOLE,
        times: Times::NONE,
    };
    let outcomes = charges.iter().map(outcome).collect();
    let charges: Vec<Charge> = (0..).zip(charges).map(charge).collect();
    let answer = Answer::of(&charges, outcomes);
    Taken::all(charges, answer, source)
}

fn decision(refusal: Option<Refusal>, taken: Option<Taken>) -> Decision {
    Decision::of(refusal, taken, || RETRY_AFTER_US)
}

fn enough() -> Taken {
    taken(Source::Redis, &[(Mode::Enforce, 5, true)])
}

fn short() -> Taken {
    taken(Source::Redis, &[(Mode::Enforce, 0, false)])
}

/// Name of the variant, and whether it has rate limits to report in headers.
fn variant(decision: &Decision) -> (&'static str, bool) {
    let name = match decision {
        Decision::Allowed { .. } => "allowed",
        Decision::OwnLimits { .. } => "own limits",
        Decision::NewKey(_) => "new key",
        Decision::Preflight => "preflight",
        Decision::Limited { .. } => "limited",
        Decision::Unavailable { .. } => "unavailable",
        Decision::Unauthenticated { .. } => "unauthenticated",
        Decision::Rejected(_) => "rejected",
    };
    (name, decision.check().is_some())
}

#[test]
fn limit_that_is_exhausted_denies_before_any_refusal() {
    let unavailable = || taken(Source::Policy, &[(Mode::Enforce, 0, false)]);
    let table = [
        (None, None, ("allowed", false)),
        (None, Some(enough()), ("allowed", true)),
        (None, Some(short()), ("limited", true)),
        (None, Some(unavailable()), ("unavailable", false)),
        (Some(NO_ROUTE), None, ("rejected", false)),
        (Some(KEY_MISSING), None, ("unauthenticated", false)),
        (Some(KEY_UNKNOWN), Some(enough()), ("unauthenticated", true)),
        (Some(KEY_UNKNOWN), Some(short()), ("limited", true)),
        (Some(KEY_REQUIRED), Some(unavailable()), ("unavailable", false)),
    ];
    for (refusal, taken, expected) in table {
        let row = format!("{refusal:?} {taken:?}");
        assert_eq!(variant(&decision(refusal, taken)), expected, "{row}");
    }
}

#[test]
fn unavailable_limit_reports_its_rule_and_the_next_probe() {
    let charges = [(Mode::Enforce, 0, false), (Mode::Enforce, 0, false)];
    let decision = decision(None, Some(taken(Source::Policy, &charges)));
    let Decision::Unavailable { rule: 0, retry_after_us: RETRY_AFTER_US } = decision else {
        panic!("{decision:?}");
    };
}

#[test]
fn summary_of_a_decision_without_a_check() {
    use DecisionLabel::{Allow, Deny, Reject, ShadowDeny};

    let allowed =
        |rules: &[u32]| Decision::Allowed { check: None, shadow_key_rules: rules.to_vec() };
    let policy = Some(Source::Policy);
    let table = [
        (allowed(&[]), Summary::UNLIMITED),
        (allowed(&[]), summary(Allow, None, None, None)),
        (allowed(&[3, 5]), summary(ShadowDeny, Some(3), None, policy)),
        (Decision::OwnLimits { check: None, view: None }, Summary::UNLIMITED),
        (Decision::NewKey(NewKeyBody(Bytes::new())), Summary::UNLIMITED),
        (
            Decision::Unavailable { rule: 3, retry_after_us: 1 },
            summary(Deny, Some(3), None, policy),
        ),
        (decision(Some(NO_ROUTE), None), summary(Reject, None, None, None)),
        (decision(Some(KEY_MISSING), None), summary(Reject, None, None, None)),
        // The rules by address that were charged first did not decide.
        (decision(Some(KEY_UNKNOWN), Some(enough())), summary(Reject, None, None, None)),
        (decision(Some(KEY_REQUIRED), Some(enough())), summary(Deny, Some(9), None, policy)),
    ];
    for (decision, expected) in table {
        assert_eq!(decision.summary(), expected, "{decision:?}");
    }
}

#[test]
fn summary_of_a_check_has_the_rule_that_gave_the_decision() {
    use DecisionLabel::{Allow, Deny, ShadowDeny};
    use Mode::{Enforce, Shadow};

    let table: [(&[Tokens], bool, Summary); 7] = [
        (&[(Enforce, 5, true)], false, summary(Allow, Some(0), Some(5), Some(Source::Redis))),
        (&[(Enforce, 5, true)], true, summary(ShadowDeny, Some(3), None, Some(Source::Policy))),
        (
            &[(Enforce, 5, true), (Enforce, 2, true)],
            false,
            summary(Allow, Some(1), Some(2), Some(Source::Redis)),
        ),
        (
            &[(Enforce, 5, true), (Enforce, 0, false)],
            true,
            summary(Deny, Some(1), Some(0), Some(Source::Redis)),
        ),
        (
            &[(Shadow, 0, false), (Enforce, 5, true)],
            false,
            summary(ShadowDeny, Some(0), Some(0), Some(Source::Redis)),
        ),
        (&[(Shadow, 0, false)], false, summary(ShadowDeny, Some(0), Some(0), Some(Source::Redis))),
        (&[(Shadow, 5, true)], false, summary(Allow, None, None, Some(Source::Redis))),
    ];
    for (charges, has_shadow_demand, expected) in table {
        let mut decision = decision(None, Some(taken(Source::Redis, charges)));
        if let Decision::Allowed { shadow_key_rules, .. } = &mut decision {
            shadow_key_rules.extend(has_shadow_demand.then_some(3));
        }
        assert_eq!(decision.summary(), expected, "{charges:?} {has_shadow_demand}");
    }
}

#[test]
fn every_shadow_rule_that_would_have_denied_an_allowed_request_is_listed() {
    use Mode::{Enforce, Shadow};

    let charges = [(Shadow, 0, false), (Enforce, 5, true), (Shadow, 4, true), (Shadow, 0, false)];
    let check = || Some(LimitCheck::of(taken(Source::Redis, &charges)));
    let allowed =
        |rules: &[u32]| Decision::Allowed { check: check(), shadow_key_rules: rules.to_vec() };
    assert_eq!(allowed(&[]).shadow_denials(), [0, 3]);
    assert_eq!(allowed(&[2, 9]).shadow_denials(), [0, 2, 3, 9]);
    assert_eq!(Decision::OwnLimits { check: check(), view: None }.shadow_denials(), [0, 3]);
    let refused = [(Shadow, 0, false), (Enforce, 0, false)];
    assert_eq!(decision(None, Some(taken(Source::Redis, &refused))).shadow_denials(), [0; 0]);
}

#[test]
fn summary_has_the_source_of_the_reported_charge() {
    let charges = [(Mode::Enforce, 5, true), (Mode::Enforce, 2, true)];
    let source = |local: Vec<usize>| {
        let taken = Taken { local, ..taken(Source::Redis, &charges) };
        LimitCheck::of(taken)
    };
    let table = [(vec![], Source::Redis), (vec![0], Source::Redis), (vec![1], Source::Local)];
    for (local, expected) in table {
        let row = format!("{local:?}");
        let decision = Decision::OwnLimits { check: Some(source(local)), view: None };
        assert_eq!(decision.summary().source, Some(expected), "{row}");
    }
}

fn summary(
    label: DecisionLabel,
    rule: Option<u32>,
    remaining: Option<u64>,
    source: Option<Source>,
) -> Summary {
    let cost =
        source.filter(|source| *source != Source::Policy).map(|_| crate::limit::cost::Cost::ONE);
    Summary { label, rule, remaining, cost, source }
}
