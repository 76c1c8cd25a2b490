//! Warns of an API that refuses browsers' CORS preflight requests, because they carry no key.
//!
//! The condition: `clients.on_missing_key` or an enforced rule's `on_missing` is `"deny"`, a route
//! of theirs takes OPTIONS and has no `cors`, and `clients.on_preflight` is left out. Whether
//! browsers call the API is not known, so either value of `on_preflight` settles it.

use std::ops::Range;

use crate::config::diagnostic::{Diagnostic, Diagnostics};
use crate::config::handling::SwitchOr;
use crate::config::spanned::Spanned;
use crate::config::tables::Route;
use crate::config::words::OnMissingKey;
use crate::config::{Config, in_order};
use crate::policy::Rule;

/// Adds the warning, at the first setting that requires a key.
pub(super) fn add(config: &Config, rules: &[Rule], diagnostics: &mut Diagnostics) {
    let clients = config.clients.as_ref().map(Spanned::get_ref);
    if clients.is_some_and(|clients| clients.on_preflight.is_some())
        || diagnostics.explain_absence(&["clients", "on_preflight"])
    {
        return;
    }
    let on_missing_key = clients.and_then(|clients| clients.on_missing_key.as_ref());
    let required = match on_missing_key {
        Some(word) if *word.get_ref() == OnMissingKey::Deny => {
            first_route(config, |_| true, diagnostics).map(|route| (word.span(), route))
        }
        _ => required_by_rule(config, rules, diagnostics),
    };
    let Some((setting, route)) = required else { return };
    let help = "if pages of other sites call the API, write `[cors]` with their `origins`, or, if upstreams answer \
                such requests, `on_preflight = \"anonymous\"` under `[clients]`; if not, `on_preflight = \"deny\"`";
    diagnostics.push(
        Diagnostic::warning(setting, "CORS preflight requests carry no key, and get 401")
            .and(route, "this route takes OPTIONS")
            .help(help),
    );
}

/// The `on_missing` of the first rule that refuses preflight requests, and the place of the route.
fn required_by_rule(
    config: &Config,
    rules: &[Rule],
    diagnostics: &Diagnostics,
) -> Option<(Range<usize>, Range<usize>)> {
    rules.iter().zip(in_order(&config.rules)).find_map(|(rule, (_, table))| {
        let setting = table.get_ref().on_missing.as_ref().filter(|_| rule.requires_key())?.span();
        let applies = |index| rule.applies_to_route(index).is_ok();
        Some((setting, first_route(config, applies, diagnostics)?))
    })
}

/// The place of the first route that gets preflight requests, among those that `applies` selects by
/// index.
fn first_route(
    config: &Config,
    applies: impl Fn(u32) -> bool,
    diagnostics: &Diagnostics,
) -> Option<Range<usize>> {
    let mut routes = (0..).zip(in_order(&config.routes));
    let found = routes.find(|(index, (name, table))| {
        let is_unread = diagnostics.explain_absence(&["routes", name.get_ref(), "methods"]);
        !is_unread && passes_preflights(config, table.get_ref()) && applies(*index)
    });
    found.map(|(_, (name, _))| name.span())
}

/// Whether preflight requests are requests like any others to a route.
fn passes_preflights(config: &Config, route: &Route) -> bool {
    let is_answered = match route.cors.as_ref().map(Spanned::get_ref) {
        None => config.cors.is_some(),
        Some(SwitchOr::Switch(is_on)) => *is_on,
        Some(SwitchOr::Table(_)) => true,
    };
    !is_answered && takes_options(route)
}

fn takes_options(route: &Route) -> bool {
    let methods = route.methods.as_ref().map(Spanned::get_ref);
    methods.is_none_or(|methods| {
        methods.iter().any(|method| method.get_ref().eq_ignore_ascii_case("OPTIONS"))
    })
}
