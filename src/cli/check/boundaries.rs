//! Notes on fixed windows: twice the limit can pass around the start of a period, unless another
//! rule bounds that.

use crate::client::principal::Principal;
use crate::limit::charge::Mode;
use crate::policy::{Dimension, Grant, OnMissing, Policy, Rule};

/// Maximum number of notes.
const MAX_NOTES: usize = 20;

/// One line for each enabled rule with a fixed window that no other rule bounds: what passes around
/// a boundary, and what to write instead.
pub(super) fn notes(policy: &Policy) -> Vec<String> {
    let enabled = || policy.rules.iter().filter(|rule| rule.enabled);
    let is_bounded = |rule: &Rule| enabled().any(|other| bounds(policy, other, rule));
    let windows: Vec<_> = enabled()
        .filter(|rule| !is_bounded(rule))
        .filter_map(|rule| Some((rule, largest(rule)?)))
        .collect();
    let line = |(rule, grant): &(&Rule, Grant)| {
        let (limit, written) = (grant.limit.capacity(), grant.written);
        format!(
            "note: the rule `{}` ({written}) lets up to {} pass in a short time around the start of a period; for at most \
             {limit} in any span as long as a period, take a token bucket with `limit`; to bound only what passes at \
             once, add a rule with a `rate` and the same `per`",
            rule.name,
            limit.saturating_mul(2),
        )
    };
    let mut lines: Vec<String> = windows.iter().take(MAX_NOTES).map(line).collect();
    let more = windows.len().saturating_sub(MAX_NOTES);
    if more > 0 {
        lines.push(format!("note: {more} more rules with fixed windows"));
    }
    lines
}

/// The fixed window of a rule that lets most pass.
fn largest(rule: &Rule) -> Option<Grant> {
    let grants = rule.grants();
    let windows = grants.filter(|grant| grant.written.calendar().is_some());
    windows.max_by_key(|grant| grant.limit.capacity()).copied()
}

/// Whether `other` lets at most one limit of `rule` pass in a short time: it has a rate, counts
/// every request of each of its windows in one bucket, and grants no client more at once than one
/// window.
fn bounds(policy: &Policy, other: &Rule, rule: &Rule) -> bool {
    let has_rate = other.kind.bounds_any_span();
    let is_enforced = other.mode == Mode::Enforce;
    let is_coarser = other.per.iter().all(|dimension| rule.per.contains(dimension));
    let skips = other.per.contains(&Dimension::Key)
        && other.on_missing == OnMissing::Skip
        && rule.on_missing != OnMissing::Skip;
    let has_routes = match (&other.routes, &rule.routes) {
        (None, _) => true,
        (Some(_), None) => false,
        (Some(own), Some(needed)) => needed.iter().all(|route| own.contains(route)),
    };
    let exempts = !other.exempt.ips.iter().all(|ip| rule.exempt.ips.contains(ip))
        || !other.exempt.keys.iter().all(|key| rule.exempt.keys.contains(key));
    has_rate
        && is_enforced
        && is_coarser
        && !skips
        && has_routes
        && !exempts
        && grants_less(policy, other, rule)
}

/// Whether `other` grants each client that has a window of `rule` at most as much at once.
fn grants_less(policy: &Policy, other: &Rule, rule: &Rule) -> bool {
    let is_less = |grant: Option<&Grant>, window: Option<&Grant>| match (grant, window) {
        (_, None) => true,
        (None, Some(_)) => false,
        (Some(grant), Some(window)) => grant.limit.capacity() <= window.limit.capacity(),
    };
    let of_plan = |rule: &Rule, plan: u32| rule.grant_by_plan.get(plan as usize).copied().flatten();
    let mut plans = (0..).zip(&policy.plans).map(|(plan, _)| plan);
    let by_plan =
        plans.all(|plan| is_less(of_plan(other, plan).as_ref(), of_plan(rule, plan).as_ref()));
    let own = |rule: &Rule, key: &Principal| rule.grant_by_key.get(&key.id).copied();
    let of_key = |rule: &Rule, key| own(rule, key).or_else(|| of_plan(rule, key.plan));
    let mut keys = policy.keys.all().iter();
    by_plan && keys.all(|key| is_less(of_key(other, key).as_ref(), of_key(rule, key).as_ref()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::load::from_text;

    const FILE: &str = "[upstreams.api]\nservers = ['127.0.0.1:3000']\n[routes.a]\npath = '/a'\nupstream = 'api'\n\
        [routes.b]\npath = '/b'\nupstream = 'api'\n[plans.free]\n[plans.pro]\n\
        [keys.acme]\nplan = 'pro'\n\
        sha256 = '9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08'\n\
        [clients]\nanonymous_plan = 'free'\n";

    /// The number of notes on a month of 1,000 with these lines, beside a rule with these.
    fn notes_of(month: &str, other: &str) -> usize {
        let month = format!("[rules.month]\nkind = 'fixed_window'\nper = ['key']\n{month}\n");
        let file = format!("{FILE}{month}[rules.other]\n{other}\n");
        notes(&from_text("file", &file).unwrap_or_else(|report| panic!("{report}"))).len()
    }

    #[test]
    fn window_that_a_rate_bounds_has_no_note() {
        let month = "limit = '1000/month'";
        for other in [
            "per = ['key']\nrate = '10/s'\nburst = 50",
            "per = []\nrate = '10/s'\nburst = 1000",
            "per = ['key']\nkind = 'leaky_bucket'\nrate = '10/s'\nmax_delay = '1s'",
            "per = ['key']\nkind = 'sliding_window'\nlimit = '100/m'",
        ] {
            assert_eq!(notes_of(month, other), 0, "{other}");
        }
        assert_eq!(notes_of("limit = '1000/month'\nroutes = ['a']", "per = []\nrate = '1/s'"), 0);
    }

    #[test]
    fn window_that_other_rules_do_not_bound_has_one() {
        let month = "limit = '1000/month'";
        for other in [
            "per = ['key']\nrate = '10/s'\nburst = 1001",
            "per = ['key', 'route']\nrate = '10/s'",
            "per = ['ip']\nrate = '10/s'",
            "per = ['key']\nrate = '10/s'\nmode = 'shadow'",
            "per = ['key']\nrate = '10/s'\nenabled = false",
            "per = ['key']\nrate = '10/s'\nroutes = ['a']",
            "per = ['key']\nrate = '10/s'\non_missing = 'skip'",
            "per = ['key']\nrate = '10/s'\nexempt = { keys = ['acme'] }",
            "per = ['key']\nkind = 'concurrency'\nlimit = 5",
            "per = ['key']\nplans.free = { rate = '10/s' }",
            "per = ['key']\nrate = '10/s'\nplans.pro = { rate = '2000/s' }",
        ] {
            assert_eq!(notes_of(month, other), 1, "{other}");
        }
        let of_key = "[keys.acme.rules.other]\nrate = '2000/s'\n";
        assert_eq!(notes_of(month, &format!("per = ['key']\nrate = '10/s'\n{of_key}")), 1);
    }
}
