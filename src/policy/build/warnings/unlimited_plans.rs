//! Warns of a plan whose keys no rule limits.
//!
//! A key is limited if an enabled rule with `mode = "enforce"` has a rate for it: an override of
//! the key, a table of its plan, or a rate for all plans. A key that such a rule exempts by its id
//! is unlimited on purpose. A plan is reported if it has a key that is neither.

use std::ops::Range;

use crate::base::text::cut;
use crate::client::principal::{Keys, Principal};
use crate::config::diagnostic::{Diagnostic, Diagnostics};
use crate::config::spanned::Spanned;
use crate::config::suggest::key;
use crate::config::{Config, in_order};
use crate::limit::charge::Mode;
use crate::policy::{Dimension, Rule};

/// Adds one warning for each plan with unlimited keys.
pub(super) fn add(config: &Config, keys: &Keys, rules: &[Rule], diagnostics: &mut Diagnostics) {
    let ids = in_order(&config.keys);
    let plans = in_order(&config.plans);
    let mut unlimited: Vec<Vec<&Spanned<String>>> = vec![Vec::new(); plans.len().max(1)];
    for (key, (id, _)) in keys.all().iter().zip(&ids) {
        let has_limit = rules.iter().any(|rule| settles(rule, key));
        let plan = usize::try_from(key.plan).ok().and_then(|plan| unlimited.get_mut(plan));
        if let (false, Some(plan)) = (has_limit, plan) {
            plan.push(id);
        }
    }
    for (plan, keys) in (0..).zip(&unlimited) {
        let Some(first) = keys.first() else { continue };
        // A file without plans has one, `default`, which has no place.
        let named = usize::try_from(plan).ok().and_then(|plan: usize| plans.get(plan));
        let (name, span) = named
            .map_or(("default", first.span()), |(name, _)| (name.get_ref().as_str(), name.span()));
        let warning = warning(name, span, keys);
        diagnostics.push(match not_enforced(config, rules, plan) {
            Some((rule, place)) => without_effect(warning, rule, place),
            None => warning.help(help(config, rules, name)),
        });
    }
}

/// Whether a rule limits a key, or exempts it on purpose.
fn settles(rule: &Rule, key: &Principal) -> bool {
    let is_in_force = rule.enabled && rule.mode == Mode::Enforce;
    let is_exempt = rule.exempt.keys.contains(&key.id);
    is_in_force
        && (is_exempt || rule.grant_by_key.contains_key(&key.id) || has_rate(rule, key.plan))
}

fn has_rate(rule: &Rule, plan: u32) -> bool {
    let plan = usize::try_from(plan).ok();
    plan.and_then(|plan| rule.grant_by_plan.get(plan)).is_some_and(Option::is_some)
}

/// The first rule that has a rate for the plan, which is not in force, and its place.
fn not_enforced<'a>(
    config: &Config,
    rules: &'a [Rule],
    plan: u32,
) -> Option<(&'a Rule, Range<usize>)> {
    let mut found = rules.iter().zip(in_order(&config.rules));
    found.find(|(rule, _)| has_rate(rule, plan)).map(|(rule, (name, _))| (rule, name.span()))
}

/// The warning with a rule that has a rate for the plan, but is not in force.
fn without_effect(warning: Diagnostic, rule: &Rule, place: Range<usize>) -> Diagnostic {
    let (why, instead) = if rule.enabled {
        ("`mode = \"shadow\"`", "`mode = \"enforce\"`")
    } else {
        ("`enabled = false`", "`enabled = true`")
    };
    warning
        .and(place, format!("this rule has a rate for it, but {why}"))
        .help(format!("under `[rules.{}]`, write {instead}", key(&rule.name)))
}

fn warning(plan: &str, span: Range<usize>, keys: &[&Spanned<String>]) -> Diagnostic {
    let plan = cut(plan, 64);
    let first = keys.first().map_or("", |id| id.get_ref());
    let message = match keys.len() {
        1 => format!("no rule limits the key `{}` of the plan `{plan}`", cut(first, 64)),
        count => format!("no rule limits {count} keys of the plan `{plan}`"),
    };
    let diagnostic = Diagnostic::warning(span.clone(), message);
    match keys.first().filter(|id| id.span() != span) {
        Some(id) => diagnostic.and(id.span(), "unlimited"),
        None => diagnostic,
    }
}

/// The line to add: to a rule that limits keys, or else a whole rule.
fn help(config: &Config, rules: &[Rule], plan: &str) -> String {
    let plan = key(plan);
    let enforced = |rule: &&Rule| rule.enabled && rule.mode == Mode::Enforce;
    let candidates = || rules.iter().filter(enforced);
    let per_key = candidates().find(|rule| rule.per.contains(&Dimension::Key));
    match per_key.or_else(|| candidates().next()) {
        Some(rule) if !config.plans.is_empty() => format!(
            "under `[rules.{}]`, add `plans.{plan} = {{ rate = \"100/s\" }}`; to leave a key unlimited \
             on purpose, list it under `exempt.keys` of the rule",
            key(&rule.name)
        ),
        _ => {
            "add a rule, such as\n\n[rules.all-keys]\nper = [\"key\"]\nrate = \"100/s\"".to_owned()
        }
    }
}
