//! Routers as routes.

use std::collections::BTreeSet;

use toml::Table;

use super::entry_points::EntryPoint;
use super::rule::{self, Alternative, Path};
use super::{Files, middlewares, services};
use crate::import::common::{allow, set_prefix};
use crate::import::finish::set_hosts;
use crate::import::order::Order;
use crate::import::settings::{Imported, Settings};
use crate::import::yaml::{Node, Pair};

/// How routers use the entry points.
#[derive(Debug, Default)]
pub(super) struct Uses {
    /// Names of entry points with routers that have TLS.
    pub(super) with_tls: BTreeSet<String>,
    /// Names of entry points with a router that redirects to HTTPS.
    pub(super) redirecting: BTreeSet<String>,
    /// Names of entry points with other routers.
    pub(super) serving: BTreeSet<String>,
    /// Domains whose certificates a resolver obtains.
    pub(super) domains: BTreeSet<String>,
}

/// Takes over all routers.
pub(super) fn import(
    files: &Files<'_>,
    entry_points: &[EntryPoint<'_>],
    imported: &mut Imported,
) -> Uses {
    let mut uses = Uses::default();
    let mut excluded = Vec::new();
    for router in files.pairs(&["http", "routers"]) {
        let names = names_of_entry_points(router, entry_points);
        let is_known = |name: &String| entry_points.iter().any(|it| it.name == *name);
        if !entry_points.is_empty() && !names.iter().any(is_known) {
            let why = "none of its entry points is in the files";
            imported.notes.omitted(router.place, format!("router {}", router.key), why);
            continue;
        }
        let tls = router.value.get("tls");
        if let Some(options) = tls.and_then(|tls| tls.get("options")) {
            let why = "client certificates and versions are those of a listener: write `client_ca` and `min_tls` there";
            imported.notes.omitted(
                options.place,
                format!("router {}: tls.options", router.key),
                why,
            );
        }
        let has_tls = router.value.has("tls")
            || names
                .iter()
                .any(|name| entry_points.iter().any(|it| it.name == *name && it.has_tls));
        let set = if has_tls { &mut uses.with_tls } else { &mut uses.serving };
        let middlewares = middlewares_of(files, router, &names, entry_points, imported);
        if middlewares.iter().any(|it| middlewares::redirects_to_https(it)) && !has_tls {
            uses.redirecting.extend(names);
            continue;
        }
        let addressed = names.clone();
        set.extend(names);
        let text = router.value.text_at(&["rule"]).unwrap_or_default();
        let alternatives = match rule::parse(text) {
            Ok(alternatives) => alternatives,
            Err(why) => {
                imported.notes.omitted(router.place, format!("router {}: {text}", router.key), why);
                continue;
            }
        };
        if tls.is_some_and(|tls| tls.get("certResolver").is_some()) {
            uses.domains.extend(domains(tls, &alternatives));
        }
        let first_route = imported.routes.len();
        for alternative in alternatives {
            exclude(router, &alternative, &mut excluded, imported);
            route(files, router, alternative, &middlewares, imported);
        }
        let own = entry_points.iter().filter(|it| addressed.iter().any(|name| *name == it.name));
        let addresses: Vec<String> = own.map(|it| it.address.clone()).collect();
        if !addresses.is_empty() {
            imported.serve(first_route, &addresses);
        }
    }
    add_excluded(excluded, imported);
    middlewares::separate(imported);
    uses
}

/// The entry points of a router: those that it names, or all.
fn names_of_entry_points(router: &Pair, entry_points: &[EntryPoint<'_>]) -> Vec<String> {
    let named = ["entryPoints", "entrypoints"].into_iter().find_map(|key| router.value.get(key));
    match named {
        Some(named) => named.texts().into_iter().map(str::to_owned).collect(),
        None => {
            let has_default = entry_points.iter().any(|it| it.is_default);
            let used = entry_points.iter().filter(|it| it.is_default || !has_default);
            used.map(|it| it.name.to_owned()).collect()
        }
    }
}

/// The middlewares of a router, after those of its entry points.
fn middlewares_of<'a>(
    files: &Files<'a>,
    router: &Pair,
    entry_points: &[String],
    all: &[EntryPoint<'_>],
    imported: &mut Imported,
) -> Vec<&'a Pair> {
    let of_entry_points = all
        .iter()
        .filter(|it| entry_points.iter().any(|name| *name == it.name))
        .flat_map(|it| it.middlewares.clone());
    let own = router.value.get("middlewares").map(Node::texts).unwrap_or_default();
    let names: Vec<&str> = of_entry_points.chain(own).collect();
    middlewares::named(files, &names, router.place, &mut imported.notes)
}

/// The names of the certificates of a router.
fn domains(tls: Option<&Node>, alternatives: &[Alternative]) -> Vec<String> {
    let named = tls.and_then(|tls| tls.get("domains")).map(Node::items).unwrap_or_default();
    if named.is_empty() {
        return alternatives.iter().flat_map(|it| it.hosts.clone()).collect();
    }
    let of = |domain: &Node| {
        let main = domain.text_at(&["main"]).map(str::to_owned);
        let sans = domain.get("sans").map(Node::texts).unwrap_or_default();
        main.into_iter().chain(sans.into_iter().map(str::to_owned)).collect::<Vec<_>>()
    };
    named.iter().flat_map(of).collect()
}

/// Adds the routes that answer 404, unless a router has the same paths.
fn add_excluded(excluded: Vec<(&Pair, Settings)>, imported: &mut Imported) {
    for (router, settings) in excluded {
        let is_taken = imported.routes.iter().any(|it| {
            // One with conditions leaves the other requests to the router.
            ["host", "path", "path_regex", "methods", "headers", "query"]
                .into_iter()
                .all(|name| it.settings.get(name) == settings.get(name))
        });
        if !is_taken {
            imported.routes.add(&format!("not-{}", router.key), router.place, settings);
        }
    }
}

/// Collects routes that answer 404 for the paths that an alternative leaves out.
fn exclude<'a>(
    router: &'a Pair,
    alternative: &Alternative,
    excluded: &mut Vec<(&'a Pair, Settings)>,
    imported: &mut Imported,
) {
    let what = format!("router {}", router.key);
    for path in &alternative.excluded {
        let mut route = Settings::default();
        set_hosts(&mut route, &alternative.hosts);
        match path {
            Path::Exact(path) => {
                route.set("path", path.as_str());
                route.set("trailing_slash", "distinct");
            }
            Path::Prefix(prefix) => {
                set_prefix(&mut route, prefix, router.place, &what, &mut imported.notes);
            }
            Path::Expression(expression) => route.set("path_regex", expression.as_str()),
        }
        let mut respond = Table::new();
        respond.insert("status".into(), 404.into());
        route.set("respond", respond);
        excluded.push((router, route));
    }
}

/// The route of one alternative of the rule.
fn route(
    files: &Files<'_>,
    router: &Pair,
    alternative: Alternative,
    middlewares: &[&Pair],
    imported: &mut Imported,
) {
    let what = format!("router {}", router.key);
    let mut route = Settings::default();
    set_hosts(&mut route, &alternative.hosts);
    for left_out in &alternative.left_out {
        let why = "these paths get 404 from a route of their own, unless another router has them";
        imported.notes.approximate(router.place, format!("{what}: {left_out}"), why);
    }
    for host in &alternative.widened {
        let why = "`*.example.com` is for all names below one, also for longer ones and those with other characters";
        imported.notes.approximate(router.place, format!("{what}: {host}"), why);
    }
    let has_expression = alternative.excluded.iter().any(|it| matches!(it, Path::Expression(_)));
    if has_expression && alternative.path.is_some() {
        let why =
            "it excludes an expression, which comes after other paths here: the route is left out";
        imported.notes.omitted(router.place, what, why);
        return;
    }
    match alternative.path {
        None => route.set("path", "/*"),
        Some(Path::Exact(path)) => {
            route.set("path", path);
            route.set("trailing_slash", "distinct");
        }
        Some(Path::Prefix(prefix)) => {
            set_prefix(&mut route, &prefix, router.place, &what, &mut imported.notes);
        }
        Some(Path::Expression(expression)) => route.set("path_regex", expression),
    }
    route.extend("methods", alternative.methods);
    for (name, conditions) in [("headers", alternative.headers), ("query", alternative.query)] {
        if !conditions.is_empty() {
            route.set(name, conditions.into_iter().collect::<Table>());
        }
    }
    if !alternative.allow_ips.is_empty() {
        let networks: Vec<&str> = alternative.allow_ips.iter().map(String::as_str).collect();
        let what = format!("{what}: ClientIP");
        allow(&networks, router.place, &what, &mut route, &mut imported.notes);
    }
    if let Some(priority) = router.value.get("priority") {
        let why = "the most specific route is used, whatever its priority";
        imported.notes.approximate(priority.place, format!("{what}: priority"), why);
    }
    let service = router.value.text_at(&["service"]).unwrap_or_default();
    if !services::target(files, service, router.place, &mut route, imported) {
        return;
    }
    for middleware in middlewares {
        middlewares::apply(middleware, &mut route, &mut imported.notes);
    }
    if route.get("replace_path").is_some() {
        for name in ["strip_prefix", "replace_prefix", "add_prefix"] {
            route.remove(name);
        }
    }
    let name = imported.routes.add(&router.key, router.place, route);
    let priority = router.value.get("priority").and_then(Node::number).filter(|it| *it > 0);
    let length = router.value.text_at(&["rule"]).map_or(0, str::len);
    let rank = priority.and_then(|it| i64::try_from(it).ok()).or(i64::try_from(length).ok());
    let rank = rank.into_iter().collect();
    imported.order.push(Order { route: name.clone(), group: 0, rank, is_exact: false });
    for middleware in middlewares {
        middlewares::limit(middleware, &name, imported);
    }
}
