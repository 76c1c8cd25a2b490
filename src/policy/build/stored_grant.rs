//! The grant of a client that the file does not have, under a rule: see `overrides` of the key
//! store. It is read as one of the file is.

use super::grant::{self, Limits, Written};
use crate::config::diagnostic::Diagnostics;
use crate::config::rules::{Burst, LimitText};
use crate::config::spanned::Spanned;
use crate::limit::fixed_window::Overage;
use crate::limit::grant::Grant;
use crate::policy::{Policy, Rule};

/// What a grant has, as it is written.
#[derive(Debug, Clone, Copy, Default)]
pub struct GrantText<'a> {
    pub rate: Option<&'a str>,
    pub limit: Option<TextOrNumber<'a>>,
    pub burst: Option<TextOrNumber<'a>>,
    pub max_delay: Option<&'a str>,
    pub soft: Option<&'a str>,
    pub overage: Option<Overage>,
}

/// A value in one of two forms.
#[derive(Debug, Clone, Copy)]
pub enum TextOrNumber<'a> {
    Text(&'a str),
    Number(u64),
}

/// Reads the grant of a client with this plan (an index) under a rule. What the text does not have
/// of `soft` and `overage` is that of the plan. Its index is not known.
///
/// # Errors
/// What is wrong, and what to write instead.
pub fn stored_grant(
    policy: &Policy,
    rule: &Rule,
    plan: u32,
    text: GrantText<'_>,
) -> Result<Grant, String> {
    let field = |text: Option<&str>| text.map(|text| at_no_place(text.to_owned()));
    let rate = field(text.rate);
    let limit = text.limit.map(|limit| match limit {
        TextOrNumber::Text(text) => at_no_place(LimitText::new(text.to_owned(), false)),
        TextOrNumber::Number(number) => at_no_place(LimitText::new(number.to_string(), true)),
    });
    let burst = text.burst.map(|burst| match burst {
        TextOrNumber::Text(text) => at_no_place(Burst::Duration(text.to_owned())),
        TextOrNumber::Number(number) => at_no_place(Burst::Tokens(number)),
    });
    let max_delay = field(text.max_delay.or(rule.terms.max_delay.as_deref()));
    let (zone, anchor) = (field(rule.terms.zone.as_deref()), rule.terms.anchor.map(at_no_place));
    let of_plan = rule.grant_by_plan.get(plan as usize).copied().flatten();
    // A plan without a limit under the rule has no settings of its own.
    let of_rule = of_plan.is_none().then_some(&rule.terms);
    let soft = field(text.soft.or(of_rule.and_then(|terms| terms.soft.as_deref())));
    let overage = text.overage.or(of_rule.and_then(|terms| terms.overage)).map(at_no_place);
    let written = Written {
        kind: rule.kind,
        parts: rule.terms.parts,
        rate: &rate,
        limit: &limit,
        burst: &burst,
        max_delay: &max_delay,
        zone: &zone,
        anchor: &anchor,
        soft: &soft,
        overage: &overage,
    };
    let mut diagnostics = Diagnostics::default();
    let path = ["overrides", &rule.name];
    let placed = grant::required(written, &path, 0..0, &mut Limits::default(), &mut diagnostics);
    let Some(mut placed) = placed else { return Err(diagnostics.first_error()) };
    if let Some(of_plan) = of_plan {
        let is_own = (text.soft.is_some(), text.overage.is_some());
        placed.grant = placed.grant.with_quota_terms_of(&of_plan, is_own);
    }
    if rule.adapt.is_some() {
        // A limit that is too large for it falls by whole units of its rate.
        placed.grant.limit = placed.grant.limit.adaptable().unwrap_or(placed.grant.limit);
    }
    match too_expensive(policy, rule, &placed.grant) {
        Some(why) => Err(why),
        None => Ok(placed.grant),
    }
}

/// Why a request could never pass: its cost is above what the grant allows.
fn too_expensive(policy: &Policy, rule: &Rule, grant: &Grant) -> Option<String> {
    let most = grant.limit.capacity();
    let routes = (0..).zip(&policy.routes);
    let mut counted = routes.filter(|(index, _)| rule.applies_to_route(*index).is_ok());
    let (_, route) = counted.find(|(_, route)| rule.cost_on(route).exceeds(most))?;
    Some(format!(
        "a request to `{}` costs {}, more than the {most} of the rule `{}`: it could never pass",
        route.name,
        rule.cost_on(route),
        rule.name
    ))
}

fn at_no_place<T>(value: T) -> Spanned<T> {
    Spanned::new(value, 0..0)
}
