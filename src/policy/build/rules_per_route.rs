//! Checks how many rules count the requests of one route, because a check has a bucket for each.

use std::collections::HashSet;

use crate::config::diagnostic::{Diagnostic, Diagnostics};
use crate::config::spanned::Spanned;
use crate::config::{Config, in_order};
use crate::policy::{MAX_RULES_PER_ROUTE, Rule};

/// Reports every rule that is beyond the limit of a route, each once, for the first such route.
pub(super) fn check(config: &Config, rules: &[Rule], diagnostics: &mut Diagnostics) {
    if rules.len() <= MAX_RULES_PER_ROUTE || diagnostics.explain_absence(&["rules"]) {
        return;
    }
    let names = in_order(&config.rules);
    let mut reported = HashSet::new();
    for ((route, _), index) in in_order(&config.routes).into_iter().zip(0..) {
        let counting =
            rules.iter().zip(&names).filter(|(rule, _)| rule.applies_to_route(index).is_ok());
        for (_, (rule, _)) in counting.skip(MAX_RULES_PER_ROUTE) {
            if diagnostics.is_full() {
                return;
            }
            if reported.insert(rule.get_ref()) {
                diagnostics.push(too_many(route, rule));
            }
        }
    }
}

fn too_many(route: &Spanned<String>, rule: &Spanned<String>) -> Diagnostic {
    let message = format!(
        "the rule `{}` is one too many for the route `{}`: at most {MAX_RULES_PER_ROUTE} rules may \
         count the requests of a route",
        rule.get_ref(),
        route.get_ref(),
    );
    Diagnostic::new(rule.span(), message).and(route.span(), "the route").help(
        "list under `routes` of each rule only the routes that it is for, or make rules that \
         differ by plan one rule with `plans.<plan>`",
    )
}
