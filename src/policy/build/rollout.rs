//! `enforce` and `candidate` of a rule: limits that are introduced step by step.

use std::sync::Arc;

use super::percentage::thousandths;
use super::rules::salt;
use super::words::meaning;
use crate::base::text::cut;
use crate::config::diagnostic::{Diagnostic, Diagnostics};
use crate::config::rules as written;
use crate::limit::charge::Mode;
use crate::policy::{Exempt, Grant, Lease, OnMissing, Rule};

/// The share of clients for which the rule is enforced, in thousandths; all with an error.
pub(super) fn enforced_thousandths(table: &written::Rule, diagnostics: &mut Diagnostics) -> u16 {
    let share = thousandths(&written::Rule::enforce, &table.enforce, diagnostics);
    if let (Some(enforce), Mode::Shadow) = (&table.enforce, meaning(table.mode.as_ref())) {
        let message = "`enforce` is for rules that are enforced";
        let mut diagnostic = Diagnostic::new(enforce.span(), message);
        if let Some(mode) = &table.mode {
            let label = "this rule is only counted and reported".to_owned();
            diagnostic = diagnostic.and(mode.span(), label);
        }
        diagnostics.push(diagnostic.help("take `mode` or `enforce` out"));
    }
    share.unwrap_or(Rule::ALL_CLIENTS)
}

/// The name of the candidate of a rule, in metrics and reports.
pub(super) fn candidate_name(rule: &str) -> String {
    format!("{rule}.candidate")
}

/// The rule that counts as `rule`, the one with this index, would with another limit. It refuses
/// nothing.
pub(super) fn candidate(rule: &Rule, index: u32, grant: Grant) -> Rule {
    let name: Arc<str> = candidate_name(&rule.name).into();
    let plans = rule.grant_by_plan.iter().zip(&rule.has_plan_table);
    let of_plans = plans.map(|(own, has_table)| own.filter(|_| !has_table).map(|_| grant));
    Rule {
        grant_by_plan: of_plans.collect(),
        has_plan_table: vec![false; rule.has_plan_table.len()],
        grant_by_key: std::collections::HashMap::new(),
        grant_by_tenant: std::collections::HashMap::new(),
        salt: salt(&name),
        name,
        description: Some(format!("a limit that may replace that of `{}`", cut(&rule.name, 64))),
        kind: rule.kind,
        per: rule.per.clone(),
        enabled: rule.enabled,
        routes: rule.routes.clone(),
        mode: Mode::Shadow,
        enforced_thousandths: Rule::ALL_CLIENTS,
        ban: None,
        // Beside the rule, whose rate adapts: another limit of the same rate would say nothing.
        adapt: rule.adapt,
        candidate_of: Some(index),
        // A request that the rule refuses for its missing key is refused once.
        on_missing: match rule.on_missing {
            OnMissing::Deny => OnMissing::Skip,
            other => other,
        },
        on_failure: rule.on_failure,
        lease: Lease::Off,
        cost: rule.cost,
        count: rule.count.clone(),
        refund_on: rule.refund_on,
        colocated: rule.colocated,
        terms: rule.terms.clone(),
        exempt: Exempt { ips: rule.exempt.ips.clone(), keys: rule.exempt.keys.clone() },
    }
}
