//! A cost above a burst could never be paid: "never" is an error in the file, not an answer to a
//! client.

use super::routes::BuiltRoute;
use super::rules::BuiltRule;
use crate::config::diagnostic::{Diagnostic, Diagnostics};

/// Holds every route's cost against every grant that it may meet.
pub(super) fn check(routes: &[BuiltRoute], rules: &[BuiltRule], diagnostics: &mut Diagnostics) {
    for (route, index) in routes.iter().zip(0..) {
        let Some(cost_span) = &route.cost_span else { continue };
        let applying = rules.iter().filter(|rule| rule.rule.applies_to_route(index).is_ok());
        for (rule, grant) in applying.flat_map(|rule| rule.grants.iter().map(move |g| (rule, g))) {
            let burst = grant.placed.grant.limit.capacity();
            if diagnostics.is_full() || route.cost <= burst {
                continue;
            }
            let message = format!(
                "a request to `{}` costs {}, more than the burst of {burst} that the rule `{}` \
                 allows{}: it could never pass",
                route.name, route.cost, rule.rule.name, grant.of,
            );
            diagnostics.push(
                Diagnostic::new(cost_span.clone(), message)
                    .here("the cost")
                    .and(grant.placed.span.clone(), format!("at most {burst}"))
                    .help(format!("lower the cost, or write `burst = {}` or more", route.cost)),
            );
        }
    }
}
