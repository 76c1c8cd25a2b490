//! `key-auth` and `key-auth-enc`: where keys are, and which routes require one.

use std::collections::{BTreeMap, BTreeSet};

use super::services::routes_of;
use super::{Owner, Plugin};
use crate::import::common::list;
use crate::import::note::Notes;
use crate::import::settings::{Imported, Settings};
use crate::import::yaml::Node;

/// Takes over the plugins, when all routes are known.
pub(super) fn import(documents: &[Node], plugins: &[Plugin<'_>], imported: &mut Imported) {
    let requires: Vec<&Plugin<'_>> = plugins.iter().filter(|plugin| is_own(plugin)).collect();
    let Some(first) = requires.first() else { return };
    let places = places(&requires, &mut imported.notes);
    if !places.is_empty() {
        imported.clients.set("api_key", list(places.iter().map(String::as_str)));
    }
    hide(&requires, imported);
    let routes = with_key(&requires, documents, imported);
    if routes.len() == imported.routes.len() {
        imported.clients.set("on_missing_key", "deny");
        return;
    }
    // `on_missing_key` is for all routes; a rule requires a key for some.
    let mut rule = Settings::default()
        .with("description", "Requires a key; the rate limits nothing.")
        .with("per", list(["key"]))
        .with("rate", "1000000/s")
        .with("on_missing", "deny");
    rule.extend("routes", routes);
    if matches!(rule.get("routes"), Some(toml::Value::Array(list)) if !list.is_empty()) {
        imported.rules.add("key-required", first.node.place, rule);
    }
}

fn is_own(plugin: &Plugin<'_>) -> bool {
    matches!(plugin.name, "key-auth" | "key-auth-enc")
        && !matches!(plugin.owner, Owner::Consumer(_) | Owner::Group(_))
}

/// Whether the plugins look for a key on all routes, also where it is not required.
pub(super) fn is_on_all_routes(
    documents: &[Node],
    plugins: &[Plugin<'_>],
    imported: &Imported,
) -> bool {
    let routes: BTreeSet<String> = plugins
        .iter()
        .filter(|plugin| is_own(plugin))
        .flat_map(|plugin| routes_of(plugin.owner, documents, imported))
        .collect();
    routes.len() == imported.routes.len()
}

/// Where keys are, of all plugins: the gateway reads them in the same places for all routes.
fn places(requires: &[&Plugin<'_>], notes: &mut Notes) -> Vec<String> {
    let mut all: Vec<String> = Vec::new();
    for plugin in requires {
        let flag = |key: &str| plugin.node.at(&["config", key]).and_then(Node::flag);
        let names = plugin.node.at(&["config", "key_names"]).map(Node::texts).unwrap_or_default();
        let names = if names.is_empty() { vec!["apikey"] } else { names };
        let kinds = [("header", "key_in_header"), ("query", "key_in_query")];
        let kinds: Vec<&str> = kinds
            .into_iter()
            .filter(|(_, key)| flag(key) != Some(false))
            .map(|(kind, _)| kind)
            .collect();
        let own: Vec<String> = names
            .iter()
            .flat_map(|name| kinds.iter().map(move |kind| format!("{kind}:{name}")))
            .collect();
        if flag("key_in_body") == Some(true) {
            let why = "a key is in a header or the query, not in a body";
            notes.omitted(plugin.node.place, "key-auth: key_in_body", why);
        }
        if !all.is_empty() && own != all {
            let why = "a key is accepted in the places of all `key-auth` plugins, on all routes";
            notes.approximate(plugin.node.place, "key-auth: key_names", why);
        }
        all.extend(own.into_iter().filter(|place| !all.contains(place)).collect::<Vec<_>>());
    }
    all
}

/// `hide_credentials`: of all routes, or of none.
fn hide(requires: &[&Plugin<'_>], imported: &mut Imported) {
    let hides = |plugin: &Plugin<'_>| {
        plugin.node.at(&["config", "hide_credentials"]).and_then(Node::flag) == Some(true)
    };
    if !requires.iter().any(|plugin| hides(plugin)) {
        return;
    }
    imported.clients.set("hide_key", true);
    for plugin in requires.iter().filter(|plugin| !hides(plugin)) {
        let why = "another plugin hides keys, and `hide_key` is for all routes: these upstreams get no key";
        imported.notes.approximate(plugin.node.place, "key-auth: hide_credentials", why);
    }
}

/// The routes whose most specific `key-auth` requires a key.
fn with_key(requires: &[&Plugin<'_>], documents: &[Node], imported: &mut Imported) -> Vec<String> {
    let mut decided: BTreeMap<String, (u8, bool)> = BTreeMap::new();
    for plugin in requires {
        let anonymous = plugin.node.at(&["config", "anonymous"]);
        let is_required = anonymous.is_none_or(|it| it.text() == Some(""));
        if !is_required {
            imported.notes.approximate(
                plugin.node.place,
                "key-auth: anonymous",
                "a request without a key is anonymous on the routes of this plugin",
            );
        }
        let own = (plugin.owner.rank(), is_required);
        for name in routes_of(plugin.owner, documents, imported) {
            let known = decided.entry(name).or_insert(own);
            // The most specific one; of two that are equal, the strict one.
            *known = own.max(*known);
        }
    }
    decided.into_iter().filter(|(_, (_, is_required))| *is_required).map(|(name, _)| name).collect()
}
