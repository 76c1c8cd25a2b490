//! Checks that no cost is above a burst that applies to it. Such a request could never pass: that
//! is an error in the file, not a refusal of a client.

use super::count;
use super::grant::PlacedGrant;
use super::rules::Rules;
use crate::config::diagnostic::{Diagnostic, Diagnostics};
use crate::config::spanned::Spanned;
use crate::config::{Config, in_order};
use crate::limit::cost::Cost;
use crate::policy::Rule;

/// Checks the cost of every rule and every route against every grant that may apply to it.
pub(super) fn check(config: &Config, rules: &Rules, diagnostics: &mut Diagnostics) {
    let tables = in_order(&config.rules);
    for (index, (rule, grants)) in (0..).zip(rules.with_grants()) {
        let table = rule.candidate_of.map_or(index, |of| of as usize);
        let Some(table) = tables.get(table).map(|(_, table)| table.get_ref()) else { continue };
        if let Some(cost) = count::written_cost(table).filter(|_| rule.enabled) {
            let request =
                if rule.count.is_some() { "a request reserves" } else { "a request costs" };
            for grant in grants {
                compare(cost, request, rule, grant, diagnostics);
            }
        }
    }
    for ((name, table), index) in in_order(&config.routes).into_iter().zip(0..) {
        let Some(cost) = &table.get_ref().cost else { continue };
        let request = format!("a request to `{}` costs", name.get_ref());
        for (rule, grants) in rules.with_grants() {
            if rule.cost.is_some()
                || diagnostics.is_rejected(&["rules", &rule.name, "cost"])
                || rule.applies_to_route(index).is_err()
            {
                continue;
            }
            for grant in grants {
                compare(cost, &request, rule, grant, diagnostics);
            }
        }
    }
}

/// Reports a cost above what a grant of the rule allows.
fn compare(
    cost: &Spanned<Cost>,
    request: &str,
    rule: &Rule,
    grant: &PlacedGrant,
    diagnostics: &mut Diagnostics,
) {
    let burst = grant.grant.limit.capacity();
    let (cost_span, cost) = (cost.span(), cost.get_ref());
    if diagnostics.is_full() || !cost.exceeds(burst) {
        return;
    }
    let has_burst = grant.grant.written.has_burst();
    let message = format!(
        "{request} {cost}, more than the {} of {burst} that the rule `{}` allows{}: it could \
         never pass",
        if has_burst { "burst" } else { "limit" },
        rule.name,
        grant.owner,
    );
    let help = if has_burst {
        format!("lower the cost, or write `burst = {}` or more", cost.tokens_up())
    } else {
        "lower the cost, allow more, or count requests: with `cost = 1` in the rule".to_owned()
    };
    let diagnostic = Diagnostic::new(cost_span, message).here("the cost");
    diagnostics.push(diagnostic.and(grant.span.clone(), format!("at most {burst}")).help(help));
}
