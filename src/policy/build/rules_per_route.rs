//! How many rules may count the requests of one route: a check carries a bucket for each of them.

use std::collections::HashSet;

use super::routes::BuiltRoute;
use super::rules::BuiltRule;
use crate::config::diagnostic::{Diagnostic, Diagnostics};
use crate::policy::MAX_RULES_PER_ROUTE;

/// Reports every rule that is beyond the limit of a route, each once, for the first such route.
pub(super) fn check(routes: &[BuiltRoute], rules: &[BuiltRule], diagnostics: &mut Diagnostics) {
    if rules.len() <= MAX_RULES_PER_ROUTE || diagnostics.explain_absence(&["rules"]) {
        return;
    }
    let mut reported = HashSet::new();
    for (route, index) in routes.iter().zip(0..) {
        let counting = rules.iter().filter(|rule| rule.rule.applies_to_route(index).is_ok());
        for rule in counting.skip(MAX_RULES_PER_ROUTE) {
            if diagnostics.is_full() {
                return;
            }
            if reported.insert(&rule.rule.name) {
                diagnostics.push(too_many(route, rule));
            }
        }
    }
}

fn too_many(route: &BuiltRoute, rule: &BuiltRule) -> Diagnostic {
    let message = format!(
        "the rule `{}` is one too many for the route `{}`: at most {MAX_RULES_PER_ROUTE} rules may \
         count the requests of a route",
        rule.rule.name, route.name,
    );
    Diagnostic::new(rule.name_span.clone(), message).and(route.name_span.clone(), "the route").help(
        "list under `routes` of each rule only the routes that it is for, or make rules that \
               differ by plan one rule with `plans.<plan>`",
    )
}
