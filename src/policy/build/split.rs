//! `split` and `split_by` of routes: several upstreams with weights.

use std::sync::Arc;

use super::names::Names;
use super::words::meaning;
use crate::config::diagnostic::{Diagnostic, Diagnostics};
use crate::config::in_order;
use crate::config::spanned::Spanned;
use crate::config::suggest::cut;
use crate::config::tables;
use crate::policy::split::{Destination, Share, Split};

/// Maximum number of upstreams of a route.
const MAX_UPSTREAMS: usize = 32;

/// Maximum of a weight.
const MAX_WEIGHT: u64 = 1000;

/// The split of a route that has one; none with an error. `number` is its position among all splits.
pub(super) fn split(
    name: &Spanned<String>,
    route: &tables::Route,
    number: u32,
    names: &Names,
    diagnostics: &mut Diagnostics,
) -> Option<Destination> {
    if let Some(upstream) = &route.upstream {
        let message = "a route has `upstream` or `split`, not both";
        let first =
            in_order(&route.split).first().map_or_else(|| name.span(), |(one, _)| one.span());
        let diagnostic = Diagnostic::new(upstream.span(), message).and(first, "`split` is here");
        diagnostics.push(diagnostic.help("take `upstream` out: `split` names the upstreams"));
    }
    if route.split.len() > MAX_UPSTREAMS {
        let count = route.split.len();
        let message = format!("`split` has {count} upstreams; {MAX_UPSTREAMS} are allowed");
        diagnostics.push(Diagnostic::new(name.span(), message));
    }
    let entries = in_order(&route.split);
    let shares: Vec<Option<Share>> = entries
        .iter()
        .map(|(upstream, weight)| share(upstream, weight, names, diagnostics))
        .collect();
    let shares = shares.into_iter().collect::<Option<Vec<Share>>>()?;
    let split = Split::new(number, meaning(route.split_by.as_ref()), shares);
    if split.is_none() {
        let span = entries.first().map_or_else(|| name.span(), |(_, weight)| weight.span());
        let message = "every weight of `split` is 0: no upstream would get a request";
        let help = "give one upstream a weight above 0, such as 100";
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
    if number > MAX_WEIGHT {
        let name = cut(upstream.get_ref(), 64);
        let message = format!("the weight of `{name}` is at most {MAX_WEIGHT}");
        let help = "weights are relative to their sum: 95 and 5 are 95 % and 5 %";
        diagnostics.push(Diagnostic::new(weight.span(), message).help(help));
        return None;
    }
    Some(Share::new(index?, upstream.get_ref(), u32::try_from(number).ok()?))
}

/// Reports `split_by` without `split`.
pub(super) fn check_without(route: &tables::Route, diagnostics: &mut Diagnostics) {
    if let Some(by) = &route.split_by {
        let message = "`split_by` has no effect without `split`";
        let help = "write `split = { api = 95, canary = 5 }`, with the names of upstreams";
        diagnostics.push(Diagnostic::new(by.span(), message).help(help));
    }
}
