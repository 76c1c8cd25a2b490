//! Checks that no cost is above a burst that applies to it. Such a request could never pass: that
//! is an error in the file, not a refusal of a client.

use super::routes::cost;
use super::rules::Rules;
use crate::config::diagnostic::{Diagnostic, Diagnostics};
use crate::config::spanned::Spanned;
use crate::config::{Config, in_order};

/// Checks the cost of every route against every grant that may apply to it.
pub(super) fn check(config: &Config, rules: &Rules, diagnostics: &mut Diagnostics) {
    for ((name, table), index) in in_order(&config.routes).into_iter().zip(0..) {
        let Some(cost_span) = table.get_ref().cost.as_ref().map(Spanned::span) else { continue };
        let cost = cost(table.get_ref());
        let counting = rules.with_grants().filter(|(rule, _)| rule.applies_to_route(index).is_ok());
        for (rule, grant) in
            counting.flat_map(|(rule, grants)| grants.iter().map(move |g| (rule, g)))
        {
            let burst = grant.grant.limit.capacity();
            if diagnostics.is_full() || !cost.exceeds(burst) {
                continue;
            }
            let has_burst = grant.grant.written.has_burst();
            let message = format!(
                "a request to `{}` costs {cost}, more than the {} of {burst} that the rule `{}` \
                 allows{}: it could never pass",
                name.get_ref(),
                if has_burst { "burst" } else { "limit" },
                rule.name,
                grant.owner,
            );
            diagnostics.push(
                Diagnostic::new(cost_span.clone(), message)
                    .here("the cost")
                    .and(grant.span.clone(), format!("at most {burst}"))
                    .help(if has_burst {
                        format!("lower the cost, or write `burst = {}` or more", cost.tokens_up())
                    } else {
                        "lower the cost, or allow more".to_owned()
                    }),
            );
        }
    }
}
