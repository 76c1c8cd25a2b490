//! `adapt` of a rule: a rate that falls while an upstream is unhealthy.

use std::ops::Range;

use super::grant::{Limits, PlacedGrant};
use super::names::Names;
use super::percentage::{optional_thousandths, thousandths};
use super::values::optional_duration;
use super::words::meaning;
use crate::base::duration::micros;
use crate::config::adapt as written;
use crate::config::diagnostic::{Diagnostic, Diagnostics};
use crate::config::rules::Rule as Table;
use crate::limit::adapt::AdaptRule;
use crate::policy::{Grant, Kind, Lease, Rule};

/// When the rate of the rule falls; `None`: never, or there is an error.
pub(super) fn adapt(
    name: &str,
    table: &Table,
    lease: Lease,
    names: &Names,
    diagnostics: &mut Diagnostics,
) -> Option<AdaptRule> {
    let field = table.adapt.as_ref()?;
    let adapt = field.get_ref();
    let p99 = optional_duration(&written::Adapt::p99, &adapt.p99, diagnostics);
    let errors = optional_thousandths(&written::Adapt::errors, &adapt.errors, diagnostics);
    let floor = thousandths(&written::Adapt::floor, &adapt.floor, diagnostics);
    let Some(upstream) = &adapt.upstream else {
        if !diagnostics.explain_absence(&["rules", name, "adapt", "upstream"]) {
            let message = "`adapt` has no `upstream`";
            let help = "write `adapt = { upstream = \"api\", p99 = \"500ms\", errors = \"5%\" }`";
            diagnostics.push(Diagnostic::new(field.span(), message).help(help));
        }
        return None;
    };
    let upstream = names.upstreams.find(upstream, diagnostics)?;
    let kind: Kind = meaning(table.kind.as_ref());
    if kind != Kind::TokenBucket {
        let message = format!("`adapt` is for token buckets, and this rule is a {}", kind.name());
        diagnostics.push(Diagnostic::new(field.span(), message).help("take `adapt` out"));
        return None;
    }
    if lease != Lease::Off {
        let message = "a rule with `adapt` has no `lease`: what is lent has the rate of earlier";
        diagnostics.push(Diagnostic::new(field.span(), message).help("take one of them out"));
        return None;
    }
    let (p99, errors) = (p99?, errors?);
    if p99.is_none() && errors.is_none() {
        let message = "`adapt` has neither `p99` nor `errors`, so the rate would never fall";
        let help = "add `p99 = \"500ms\"` or `errors = \"5%\"`";
        diagnostics.push(Diagnostic::new(field.span(), message).help(help));
        return None;
    }
    Some(AdaptRule { upstream, p99_us: p99.map(micros), errors, floor: floor? })
}

/// Makes the limits of a rule with `adapt` ones whose rate can be a whole number of hundredths.
pub(super) fn make_adaptable(
    rule: &mut Rule,
    grants: &mut [PlacedGrant],
    span: Range<usize>,
    limits: &mut Limits,
    diagnostics: &mut Diagnostics,
) {
    let mut is_too_large = false;
    let mut change = |grant: &mut Grant| match grant.limit.adaptable() {
        Some(limit) => (grant.limit, grant.index) = (limit, limits.index_of(limit)),
        None => is_too_large = true,
    };
    rule.grant_by_plan.iter_mut().flatten().for_each(&mut change);
    rule.grant_by_key.values_mut().for_each(&mut change);
    rule.grant_by_tenant.values_mut().for_each(&mut change);
    for placed in grants {
        change(&mut placed.grant);
    }
    if is_too_large {
        let message =
            "a burst of this rule is too large for `adapt`, which counts in hundredths of the rate";
        let help = "lower the burst by a hundred, or choose a rate with a shorter period";
        diagnostics.push(Diagnostic::new(span, message).help(help));
    }
}
