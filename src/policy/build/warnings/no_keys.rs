//! Warns of a file that requires an API key, and has none that could be right.

use crate::config::diagnostic::{Diagnostic, Diagnostics};
use crate::config::handling::SwitchOr;
use crate::config::spanned::Spanned;
use crate::config::tables::Clients;
use crate::config::words::{OnMissingKey, OnUnknownKey};
use crate::config::{Config, in_order};
use crate::policy::Rule;

const HELP: &str = "`tollgate hash-key` makes a key and its lines for the file";

/// Adds the warning, at `on_missing_key`, or at the `on_missing` of each rule.
pub(super) fn add(config: &Config, rules: &[Rule], diagnostics: &mut Diagnostics) {
    if has_keys(config, diagnostics) {
        return;
    }
    let clients = config.clients.as_ref().map(Spanned::get_ref);
    let setting = clients.and_then(|clients| clients.on_missing_key.as_ref());
    if let Some(setting) = setting.filter(|setting| *setting.get_ref() == OnMissingKey::Deny) {
        let message = "every request gets 401: it needs an API key, and the file has none";
        diagnostics.push(Diagnostic::warning(setting.span(), message).help(HELP));
        return;
    }
    for (rule, (_, table)) in rules.iter().zip(in_order(&config.rules)) {
        let refuses = rule.enabled && rule.requires_key();
        let Some(setting) = table.get_ref().on_missing.as_ref().filter(|_| refuses) else {
            continue;
        };
        let message = format!(
            "every request that `{}` applies to gets 401: it needs an API key, and the file has none",
            rule.name
        );
        diagnostics.push(Diagnostic::warning(setting.span(), message).help(HELP));
    }
}

/// Whether a request could have a right key, or be that of a client by other means.
fn has_keys(config: &Config, diagnostics: &Diagnostics) -> bool {
    let accepts = |clients: &Clients| {
        clients.on_unknown_key.as_ref().is_some_and(|word| *word.get_ref() == OnUnknownKey::Accept)
            || clients.jwt.is_some()
            || clients.basic.is_some()
            || clients.introspection.is_some()
    };
    !config.keys.is_empty()
        || config.key_store.is_some()
        || config.clients.as_ref().is_some_and(|clients| accepts(clients.get_ref()))
        || is_named_by_server(config)
        || diagnostics.explain_absence(&["keys"])
}

/// Whether the server of a `forward_auth` names the clients of some requests.
fn is_named_by_server(config: &Config) -> bool {
    let of_routes = config.routes.values().filter_map(|route| {
        match route.get_ref().forward_auth.as_ref()?.get_ref() {
            SwitchOr::Table(table) => Some(table),
            SwitchOr::Switch(_) => None,
        }
    });
    let of_all = config.forward_auth.as_ref().map(Spanned::get_ref);
    of_routes.chain(of_all).any(|table| table.id_header.is_some())
}
