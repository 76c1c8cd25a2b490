//! `split` and `split_by` of routes: several upstreams with weights.

use std::sync::Arc;

use super::names::Names;
use super::words::meaning;
use crate::base::text::cut;
use crate::config::diagnostic::{Diagnostic, Diagnostics};
use crate::config::row::Range;
use crate::config::spanned::Spanned;
use crate::config::{Named, in_order, tables};
use crate::policy::split::{Destination, Share, Split};

/// Maximum number of upstreams of a route.
const MAX_UPSTREAMS: usize = 32;

/// The help for a split without upstreams.
const HELP: &str = "write `split = { api = 95, canary = 5 }`, with the names of upstreams";

/// The split of a route, as written in `field`; none with an error. `number` is its position among
/// all splits.
pub(super) fn split(
    name: &Spanned<String>,
    route: &tables::Route,
    field: &Spanned<Named<u64>>,
    number: u32,
    names: &Names,
    diagnostics: &mut Diagnostics,
) -> Option<Destination> {
    if let Some(upstream) = &route.upstream {
        let message = "a route has `upstream` or `split`, not both";
        let diagnostic =
            Diagnostic::new(upstream.span(), message).and(field.span(), "`split` is here");
        diagnostics.push(diagnostic.help("take `upstream` out: `split` names the upstreams"));
    }
    let entries = in_order(field.get_ref());
    if entries.len() > MAX_UPSTREAMS {
        let message =
            format!("`split` has {} upstreams; {MAX_UPSTREAMS} are allowed", entries.len());
        diagnostics.push(Diagnostic::new(field.span(), message));
    }
    let shares: Vec<Option<Share>> = entries
        .iter()
        .map(|(upstream, weight)| share(upstream, weight, names, diagnostics))
        .collect();
    let shares = shares.into_iter().collect::<Option<Vec<Share>>>()?;
    if diagnostics.explain_absence(&["routes", name.get_ref(), "split"]) {
        // A weight was left out because of an error.
        return None;
    }
    let split = Split::new(number, meaning(route.split_by.as_ref()), shares);
    if split.is_none() {
        let (span, message, help) = match entries.first() {
            None => (field.span(), "`split` names no upstream", HELP),
            Some((_, weight)) => (
                weight.span(),
                "every weight of `split` is 0: no upstream would get a request",
                "give one upstream a weight above 0, such as 100",
            ),
        };
        diagnostics.push(Diagnostic::new(span, message).help(help));
    }
    split.map(|split| Destination::Split(Arc::new(split)))
}

fn share(
    upstream: &Spanned<String>,
    weight: &Spanned<u64>,
    names: &Names,
    diagnostics: &mut Diagnostics,
) -> Option<Share> {
    let index = names.upstreams.find(upstream, diagnostics);
    let number = *weight.get_ref();
    if let Range::Between(_, most) = tables::Route::split.range()
        && i128::from(number) > i128::from(most)
    {
        let name = cut(upstream.get_ref(), 64);
        let message = format!("the weight of `{name}` is at most {most}");
        let help = "weights are relative to their sum: 95 and 5 are 95 % and 5 %";
        diagnostics.push(Diagnostic::new(weight.span(), message).help(help));
        return None;
    }
    Some(Share::new(index?, upstream.get_ref(), u32::try_from(number).ok()?))
}

/// Reports `split_by` of a route without `split`.
pub(super) fn check_without(
    name: &Spanned<String>,
    route: &tables::Route,
    diagnostics: &mut Diagnostics,
) {
    let Some(by) = &route.split_by else { return };
    if !diagnostics.explain_absence(&["routes", name.get_ref(), "split"]) {
        let message = "`split_by` has no effect without `split`";
        diagnostics.push(Diagnostic::new(by.span(), message).help(HELP));
    }
}
