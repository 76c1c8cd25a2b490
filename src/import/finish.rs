//! What all importers do at the end: tables that would be errors together are brought in line.

use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::SocketAddr;

use toml::Value;

use super::common::weights;
use super::note::{Notes, Place};
use super::order;
use super::settings::{Entries, EntryMut, Imported, Settings};
use crate::config::listener;

/// What a route matches by.
const MATCH: [&str; 8] =
    ["host", "path", "path_regex", "trailing_slash", "methods", "headers", "query", "cookies"];

/// Removes what cannot be in one file, and notes it.
pub(super) fn finish(imported: &mut Imported) {
    let Imported { routes, rules, upstreams, order, notes, .. } = imported;
    remove_upstreams_without_servers(upstreams, notes);
    remove_routes_without_target(routes, upstreams, notes);
    remove_repeated_routes(routes, notes);
    order::note(order, routes, notes);
    restrict_rules(rules, routes, notes);
    let used: BTreeSet<String> = routes.iter().flat_map(|route| targets(&route.settings)).collect();
    upstreams.retain(|upstream| {
        let is_used = used.contains(&upstream.name);
        if !is_used {
            notes.omitted(
                upstream.place,
                format!("upstream {}", upstream.name),
                "no route forwards to it",
            );
        }
        is_used
    });
    if routes.is_empty() {
        notes.omitted(
            Place::default(),
            "routes",
            "the file has none that can be taken over: write `[upstreams.<name>]` and `[routes.<name>]`",
        );
    }
    bound_weights(imported);
    remove_covered_addresses(imported);
    join_listeners(imported);
    note_listeners(imported);
    separate_admin(imported);
}

/// Brings weights above 1000 into the range of the gateway, in the same proportions.
fn bound_weights(imported: &mut Imported) {
    let bounded = |values: &mut [&mut Value]| {
        let all: Vec<u64> = values
            .iter()
            .map(|it| it.as_integer().and_then(|it| u64::try_from(it).ok()).unwrap_or(1))
            .collect();
        if all.iter().all(|weight| *weight <= 1000) {
            return;
        }
        for (value, weight) in values.iter_mut().zip(weights(&all)) {
            **value = i64::try_from(weight).unwrap_or(1000).into();
        }
    };
    for route in imported.routes.iter_mut() {
        if route.settings.get("split").is_some() {
            route.settings.change("split", |split| {
                bounded(&mut split.iter_mut().map(|(_, value)| value).collect::<Vec<_>>());
            });
        }
    }
    for upstream in imported.upstreams.iter_mut() {
        let Some(Value::Array(mut servers)) = upstream.settings.get("servers").cloned() else {
            continue;
        };
        if servers.iter().any(|server| server.get("weight").is_some()) {
            for server in &mut servers {
                if let Value::String(address) = server {
                    let mut table = toml::Table::new();
                    table.insert("address".into(), address.as_str().into());
                    table.insert("weight".into(), 1.into());
                    *server = table.into();
                }
            }
            let own = servers.clone();
            let mut found: Vec<&mut Value> =
                servers.iter_mut().filter_map(|server| server.get_mut("weight")).collect();
            let is_high = found.iter().any(|it| it.as_integer().is_some_and(|it| it > 1000));
            bounded(&mut found);
            if is_high && own != servers {
                upstream.settings.set("servers", servers);
            }
        }
    }
}

/// Takes addresses out of `listen` that another one includes: one socket accepts the connections of
/// both.
fn remove_covered_addresses(imported: &mut Imported) {
    let Some(Value::Array(listen)) = imported.server.get("listen").cloned() else { return };
    let parsed = |value: &Value| value.as_str().and_then(|text| text.parse::<SocketAddr>().ok());
    let all: Vec<SocketAddr> = listen.iter().filter_map(parsed).collect();
    let notes = &mut imported.notes;
    let mut is_kept = |value: &Value| {
        let Some(address) = parsed(value) else { return true };
        let Some(other) = all.iter().find(|other| listener::includes(**other, address)) else {
            return true;
        };
        let why = format!("{other} includes it: a listener is for all connections to its address");
        notes.approximate(Place::default(), format!("listen {address}"), why);
        false
    };
    let kept: Vec<Value> = listen.into_iter().filter(|it| is_kept(it)).collect();
    imported.server.set("listen", kept);
}

/// Joins listeners with certificates of which one includes the address of another: one
/// socket accepts the connections of both. Client certificates are as strict as in the strictest
/// one.
fn join_listeners(imported: &mut Imported) {
    let address = |listener: &Settings| -> Option<SocketAddr> {
        listener.get("certificates")?;
        listener.get("address")?.as_str()?.parse().ok()
    };
    let ca = |listener: &Settings| listener.get("client_ca").cloned();
    let mut at = 0;
    while let Some((place, listener)) = imported.listeners.get(at).cloned() {
        let own = address(&listener);
        let holder = imported.listeners.iter_mut().find(|(_, other)| {
            // Two authorities cannot be joined.
            let can_join =
                ca(other).is_none() || ca(&listener).is_none() || ca(other) == ca(&listener);
            own.zip(address(other)).is_some_and(|(own, other)| listener::includes(other, own))
                && can_join
        });
        let Some((holder_place, holder)) = holder else {
            at += 1;
            continue;
        };
        let before = holder.clone();
        join(holder, &listener);
        let is_other = *holder_place != place;
        let why = format!(
            "{} includes it: a listener is for all connections to its address",
            holder.get("address").and_then(Value::as_str).unwrap_or_default()
        );
        let what = listener.get("address").and_then(Value::as_str).unwrap_or_default();
        let is_changed = before.get("client_ca") != holder.get("client_ca")
            || before.get("client_auth") != holder.get("client_auth");
        if is_other || is_changed {
            imported.notes.approximate(place, format!("listen {what}"), why);
        }
        imported.listeners.remove(at);
    }
}

/// Adds the certificates of another listener, and what it asks of clients.
fn join(listener: &mut Settings, other: &Settings) {
    let list = |listener: &Settings| match listener.get("certificates") {
        Some(Value::Array(list)) => list.clone(),
        _ => Vec::new(),
    };
    let mut certificates = list(listener);
    for certificate in list(other) {
        if !certificates.contains(&certificate) {
            certificates.push(certificate);
        }
    }
    listener.set("certificates", certificates);
    let is_required =
        |it: &Settings| it.get("client_ca").is_some() && it.get("client_auth").is_none();
    let is_strict = is_required(listener) || is_required(other);
    for (name, value) in other.iter() {
        if listener.get(name).is_none() {
            listener.set(name, value.clone());
        }
    }
    if is_strict {
        listener.remove("client_auth");
    }
}

/// Notes the routes of some listeners only: they are served on all.
fn note_listeners(imported: &mut Imported) {
    let same = |address: &str| match address.strip_prefix("0.0.0.0:") {
        Some(port) => format!("[::]:{port}"),
        None => address.to_owned(),
    };
    let mut all: BTreeSet<String> = BTreeSet::new();
    for (_, listener) in imported.listeners.iter().filter(|(_, it)| it.get("redirect").is_none()) {
        all.extend(listener.get("address").and_then(Value::as_str).map(same));
    }
    if let Some(Value::Array(listen)) = imported.server.get("listen") {
        all.extend(listen.iter().filter_map(Value::as_str).map(same));
    }
    let mut concerned: BTreeMap<usize, (Vec<&str>, BTreeSet<&String>)> = BTreeMap::new();
    for (name, addresses) in &imported.served {
        let Some(route) = imported.routes.get(name) else { continue };
        let own: Vec<String> = addresses.iter().map(|address| same(address)).collect();
        let others: Vec<&String> = all.iter().filter(|address| !own.contains(address)).collect();
        if !others.is_empty() {
            let (names, addresses) = concerned.entry(route.place.file).or_default();
            names.push(name);
            addresses.extend(others);
        }
    }
    for (file, (names, addresses)) in concerned {
        let addresses: Vec<&str> = addresses.into_iter().map(String::as_str).collect();
        let why = format!(
            "all routes are served on all listeners. As a matter of security: these are reachable also on listeners that the file \
             keeps them from ({}): {}. Write `allow_ips` or `host` in them, or run a gateway of its own",
            addresses.join(", "),
            names.join(", ")
        );
        imported.notes.approximate(Place { file, ..Place::default() }, "listeners", why);
    }
}

/// The upstreams that a route forwards to.
fn targets(route: &Settings) -> Vec<String> {
    let mut targets: Vec<String> =
        route.get("upstream").and_then(Value::as_str).map(str::to_owned).into_iter().collect();
    if let Some(Value::Table(split)) = route.get("split") {
        targets.extend(split.keys().cloned());
    }
    if let Some(Value::Table(mirror)) = route.get("mirror") {
        targets.extend(mirror.get("to").and_then(Value::as_str).map(str::to_owned));
    }
    targets
}

fn remove_upstreams_without_servers(upstreams: &mut Entries, notes: &mut Notes) {
    upstreams.retain(|upstream| {
        let has_servers = matches!(upstream.settings.get("servers"), Some(Value::Array(list)) if !list.is_empty());
        if !has_servers {
            notes.omitted(
                upstream.place,
                format!("upstream {}", upstream.name),
                "it has no server that can be taken over",
            );
        }
        has_servers
    });
}

fn remove_routes_without_target(routes: &mut Entries, upstreams: &Entries, notes: &mut Notes) {
    routes.retain(|route| {
        let missing =
            targets(&route.settings).into_iter().find(|name| upstreams.get(name).is_none());
        if let Some(name) = missing {
            let why = format!("there is no upstream `{name}` with servers");
            notes.omitted(route.place, format!("route {}", route.name), why);
            return false;
        }
        true
    });
}

/// Keeps the first of several routes that match the same requests.
fn remove_repeated_routes(routes: &mut Entries, notes: &mut Notes) {
    // The place of the first route by what it matches by, and its host.
    let mut seen: HashMap<(String, String), Place> = HashMap::new();
    for EntryMut { name, place, settings } in routes.iter_mut() {
        let key = matching(settings);
        let mut hosts = hosts(settings);
        let mut first = None;
        hosts.retain(|host| match seen.entry((key.clone(), host.clone())) {
            Entry::Occupied(known) => {
                first = first.or(Some(*known.get()));
                false
            }
            Entry::Vacant(free) => {
                free.insert(place);
                true
            }
        });
        if let Some(first) = first {
            let why = if first.file == place.file {
                let at = first.shown("line");
                format!(
                    "{} has a route for the same requests, which is used",
                    at.replacen(':', " ", 1)
                )
            } else {
                "another file has a route for the same requests, which is used".to_owned()
            };
            notes.omitted(place, format!("route {name}"), why);
            if hosts.is_empty() {
                // Marks it for the removal below.
                *settings = Settings::default();
                continue;
            }
            set_hosts(settings, &hosts);
        }
    }
    routes.retain(|route| !route.settings.is_empty());
}

/// What a route matches by, without its hosts.
fn matching(route: &Settings) -> String {
    let mut key = String::new();
    let path = route.get("path").and_then(Value::as_str);
    let is_prefix = path.is_some_and(|path| path.ends_with("/*"));
    for name in MATCH.into_iter().skip(1) {
        match route.get(name) {
            Some(Value::String(path)) if name == "path" => {
                key += path.trim_end_matches("/*").trim_end_matches('/');
                key += if path.ends_with("/*") { "/*" } else { "" };
            }
            // One with a slash at its end is the same but for one path.
            Some(_) if name == "trailing_slash" && is_prefix => {}
            Some(value) => key += &value.to_string(),
            None => {}
        }
        key.push('\n');
    }
    key
}

/// The hosts of a route; an empty text stands for all.
pub(super) fn hosts(route: &Settings) -> Vec<String> {
    match route.get("host") {
        Some(Value::String(host)) => vec![host.clone()],
        Some(Value::Array(hosts)) => {
            hosts.iter().filter_map(Value::as_str).map(str::to_owned).collect()
        }
        _ => vec![String::new()],
    }
}

/// Sets the hosts of a route: one as a text, several as a list.
pub(super) fn set_hosts(route: &mut Settings, hosts: &[String]) {
    match hosts {
        [] => {}
        [host] if host.is_empty() => {}
        [host] => route.set("host", host.as_str()),
        hosts => route
            .set("host", hosts.iter().map(|host| Value::from(host.as_str())).collect::<Vec<_>>()),
    }
}

/// Takes routes that are gone out of the rules, rules without routes out of the file, and the list
/// out of rules for all routes.
fn restrict_rules(rules: &mut Entries, routes: &Entries, notes: &mut Notes) {
    for rule in rules.iter_mut() {
        if let Some(Value::Array(list)) = rule.settings.get("routes") {
            let list: Vec<Value> = list
                .iter()
                .filter(|name| name.as_str().is_some_and(|name| routes.get(name).is_some()))
                .cloned()
                .collect();
            if list.len() == routes.len() && !list.is_empty() {
                rule.settings.remove("routes");
            } else {
                rule.settings.set("routes", list);
            }
        }
    }
    rules.retain(|rule| {
        let is_unused =
            matches!(rule.settings.get("routes"), Some(Value::Array(list)) if list.is_empty());
        if is_unused {
            notes.omitted(
                rule.place,
                format!("limit {}", rule.name),
                "none of its routes was taken over",
            );
        }
        !is_unused
    });
}

/// Moves the admin port if a listener has it.
fn separate_admin(imported: &mut Imported) {
    let mut addresses: Vec<String> = imported
        .listeners
        .iter()
        .filter_map(|(_, listener)| listener.get("address")?.as_str().map(str::to_owned))
        .collect();
    if let Some(Value::Array(listen)) = imported.server.get("listen") {
        addresses.extend(listen.iter().filter_map(Value::as_str).map(str::to_owned));
    }
    let is_taken =
        |port: u16| addresses.iter().any(|address| address.ends_with(&format!(":{port}")));
    if let Some(port) = (9090..9100).find(|port| !is_taken(*port))
        && port != 9090
    {
        imported.server.set("admin", format!("127.0.0.1:{port}"));
    }
}
