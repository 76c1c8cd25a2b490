//! Services, upstreams with targets, and routes.

use regex_automata::util::syntax;
use toml::Table;

use super::limits::{self, Made};
use super::plugins;
use super::{Owner, Plugin, is_named, items, name_of, reference};
use crate::import::common::{
    Server, add_server, escaped, is_below, is_literal_path, list, replace, set_prefix,
};
use crate::import::finish::set_hosts;
use crate::import::note::Notes;
use crate::import::order::Order;
use crate::import::settings::{Imported, Settings};
use crate::import::values;
use crate::import::yaml::Node;

/// Sets of conditions on headers, each of which is a route, that are multiplied by a further
/// header.
const MAX_CONDITIONS: usize = 20;

/// A service as other parts need it.
struct Service<'a> {
    node: &'a Node,
    /// Name of the upstream.
    upstream: String,
    /// What is put before the path.
    path: String,
    retries: Option<u64>,
    /// `host_header` of the upstream.
    host: Option<String>,
    /// Whether a path is an expression if it has other characters than a plain one, as in versions
    /// before 3.
    finds_expressions: bool,
}

/// Takes over services with their routes. Returns the rules of their limits.
pub(super) fn import<'a>(
    documents: &'a [Node],
    plugins: &[Plugin<'a>],
    imported: &mut Imported,
) -> Vec<Made<'a>> {
    let mut services = Vec::new();
    let mut made = Vec::new();
    for node in documents.iter().flat_map(|document| items(document, "services")) {
        let Some(service) = service(documents, node, imported) else { continue };
        for node in items(node, "routes") {
            route(node, &service, plugins, &mut made, imported);
        }
        services.push(service);
    }
    for node in documents.iter().flat_map(|document| items(document, "routes")) {
        let name = reference(node, "service");
        let is_own = |it: &&Service<'_>| name.is_some_and(|name| is_named(it.node, name));
        match services.iter().find(is_own) {
            Some(service) => route(node, service, plugins, &mut made, imported),
            None => imported.notes.omitted(
                node.place,
                format!("route {}", name_of(node)),
                "it has no service that can be taken over",
            ),
        }
    }
    made
}

fn service<'a>(documents: &[Node], node: &'a Node, imported: &mut Imported) -> Option<Service<'a>> {
    let name = name_of(node);
    let what = format!("service {name}");
    let number = |key: &str| node.get(key).and_then(Node::number);
    let url = node.text_at(&["url"]);
    let (protocol, rest) = match url.and_then(|url| url.split_once("://")) {
        Some((protocol, rest)) => (protocol, rest),
        None => (node.text_at(&["protocol"]).unwrap_or("http"), ""),
    };
    let has_tls = matches!(protocol, "https" | "grpcs");
    if !has_tls && !matches!(protocol, "http" | "grpc") {
        imported.notes.omitted(node.place, what, "the gateway forwards HTTP only");
        return None;
    }
    let (authority, path) = match rest.find('/') {
        Some(at) => rest.split_at(at),
        None => (rest, node.text_at(&["path"]).unwrap_or_default()),
    };
    let port =
        u16::try_from(number("port").unwrap_or(if has_tls { 443 } else { 80 })).unwrap_or(80);
    let host =
        if authority.is_empty() { node.text_at(&["host"]).unwrap_or_default() } else { authority };
    let mut settings = Settings::default();
    let tls = if has_tls { "https://" } else { "" };
    let upstream = documents
        .iter()
        .flat_map(|document| items(document, "upstreams"))
        .find(|upstream| name_of(upstream) == host);
    let host_header = upstream.and_then(|upstream| upstream.text_at(&["host_header"]));
    if let Some(upstream) = upstream {
        targets(upstream, tls, &mut settings, &mut imported.notes);
    } else if let Some(address) = values::with_port(host, port) {
        add_server(
            &mut settings,
            Server::new(&format!("{tls}{address}"), None),
            node.place,
            &mut imported.notes,
        );
    } else {
        imported.notes.omitted(node.place, format!("{what}: {host}"), "it is no host of a server");
        return None;
    }
    match protocol {
        "grpc" => settings.set("protocol", "h2c"),
        "grpcs" => settings.set("protocol", "h2"),
        _ => {}
    }
    for (theirs, own) in [
        ("connect_timeout", "connect_timeout"),
        ("read_timeout", "read_timeout"),
        ("write_timeout", "write_timeout"),
    ] {
        if let Some(ms) = number(theirs) {
            settings.set(own, values::time(ms));
        }
    }
    if node.get("tls_verify").and_then(Node::flag) != Some(true) && has_tls {
        let why = "the certificate of the server is always verified: for an authority of your own, set `tls = { ca = \"ca.pem\" }`";
        imported.notes.approximate(node.place, &what, why);
    }
    note_certificates(node, &what, &mut imported.notes);
    if node.get("enabled").and_then(Node::flag) == Some(false) {
        imported.notes.omitted(node.place, what, "it is not enabled");
        return None;
    }
    let upstream = imported.upstreams.add(name, node.place, settings);
    let path = path.trim_end_matches('/').to_owned();
    let host = host_header.map(str::to_owned);
    let retries = number("retries");
    Some(Service { node, upstream, path, retries, host, finds_expressions: is_before_3(documents) })
}

/// Whether the files are written for a version before 3.
fn is_before_3(documents: &[Node]) -> bool {
    let version = documents.iter().find_map(|document| document.text_at(&["_format_version"]));
    version.is_some_and(|version| version.starts_with(['0', '1', '2']))
}

/// The expression that a path is, if it is one.
fn expression<'a>(path: &'a str, service: &Service<'_>) -> Option<&'a str> {
    let is_plain =
        |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_' | '~' | '/' | '%');
    let found = if service.finds_expressions {
        (!path.chars().all(is_plain)).then_some(path)
    } else {
        None
    };
    found.or_else(|| path.strip_prefix('~'))
}

/// Sets the path of a route. Returns false if it cannot be taken over, which is noted.
fn set_path(
    node: &Node,
    path: &str,
    service: &Service<'_>,
    what: &str,
    settings: &mut Settings,
    notes: &mut Notes,
) -> bool {
    let Some(expression) = expression(path, service) else {
        if !is_literal_path(path) {
            settings.set("path_regex", format!("^{}", escaped(path)));
            return true;
        }
        set_prefix(settings, path, node.place, what, notes);
        return true;
    };
    // It matches at the beginning of a path.
    let inner = expression.trim_start_matches('^');
    let anchored = if inner.contains('|') { format!("^(?:{inner})") } else { format!("^{inner}") };
    if syntax::parse(&anchored).is_err() {
        let why = "the expression is none of RE2: it has no look-around and no back references";
        notes.omitted(node.place, format!("{what}: {path}"), why);
        return false;
    }
    settings.set("path_regex", anchored);
    true
}

/// Notes certificates of a service that are tables of Kong.
fn note_certificates(node: &Node, what: &str, notes: &mut Notes) {
    for (key, own) in [("client_certificate", "cert"), ("ca_certificates", "ca")] {
        if let Some(unknown) = node.get(key) {
            let why = format!("it is no file: write `{own}` of `tls` of the upstream");
            notes.omitted(unknown.place, format!("{what}: {key}"), why);
        }
    }
}

/// The targets of an upstream, with its balancing and health checks.
fn targets(upstream: &Node, tls: &str, settings: &mut Settings, notes: &mut Notes) {
    let weight_of = |target: &Node| target.get("weight").and_then(Node::number).unwrap_or(100);
    let weights: Vec<u64> = items(upstream, "targets").iter().map(weight_of).collect();
    let are_equal = weights.iter().all(|weight| *weight > 0 && Some(weight) == weights.first());
    for target in items(upstream, "targets") {
        let text = target.text_at(&["target"]).or(target.text()).unwrap_or_default();
        let weight = (!are_equal).then(|| weight_of(target));
        match values::with_port(text, 8000) {
            Some(address) => {
                let server = format!("{tls}{address}");
                add_server(settings, Server::new(&server, weight), target.place, notes);
            }
            None => {
                notes.omitted(target.place, format!("target {text}"), "it is no host of a server");
            }
        }
    }
    let what = format!("upstream {}", name_of(upstream));
    match upstream.text_at(&["algorithm"]) {
        Some("least-connections" | "latency") => settings.set("balance", "least_request"),
        _ => match (upstream.text_at(&["hash_on"]), upstream.text_at(&["hash_on_header"])) {
            (Some("ip"), _) => settings.set("balance", "hash:ip"),
            (Some("consumer"), _) => settings.set("balance", "hash:key"),
            (Some("header"), Some(name)) => settings.set("balance", format!("hash:header:{}", name.to_lowercase())),
            (None | Some("none"), _) => {}
            (Some(other), _) => notes.omitted(
                upstream.place,
                format!("{what}: hash_on {other}"),
                "write `balance = \"hash:ip\"`, `\"hash:key\"` or `\"hash:header:<name>\"`, or `sticky` for a cookie",
            ),
        },
    }
    let active = upstream.at(&["healthchecks", "active"]);
    let interval =
        active.and_then(|it| it.at(&["healthy", "interval"])).and_then(Node::number).unwrap_or(0);
    if let Some(active) = active.filter(|_| interval > 0) {
        health(active, interval, settings);
    }
    let failures = ["tcp_failures", "http_failures"].into_iter().find_map(|name| {
        upstream
            .at(&["healthchecks", "passive", "unhealthy", name])
            .and_then(Node::number)
            .filter(|it| *it > 0)
    });
    if let Some(failures) = failures {
        settings.change("eject", |eject| {
            let failures = i64::try_from(failures.min(10_000)).unwrap_or(5);
            eject.insert("consecutive_failures".into(), failures.into());
        });
        let why = "an endpoint that was ejected gets requests again after a time, `for` of `eject`";
        notes.approximate(upstream.place, format!("{what}: passive health checks"), why);
    }
}

fn health(active: &Node, interval_s: u64, settings: &mut Settings) {
    let mut health = Table::new();
    let count = |path: &[&str]| {
        let number = active.at(path).and_then(Node::number).filter(|number| *number > 0)?;
        i64::try_from(number.min(100)).ok()
    };
    match active.text_at(&["type"]) {
        Some("tcp") => {
            health.insert("kind".into(), "tcp".into());
        }
        Some("grpc" | "grpcs") => {
            health.insert("kind".into(), "grpc".into());
        }
        _ => {
            health.insert("path".into(), active.text_at(&["http_path"]).unwrap_or("/").into());
        }
    }
    let interval_ms = interval_s.saturating_mul(1000).min(3_600_000);
    health.insert("interval".into(), values::time(interval_ms).into());
    let timeout_s = active.get("timeout").and_then(Node::number).unwrap_or(1).max(1);
    let timeout_ms = timeout_s.saturating_mul(1000).min(60_000).min(interval_ms);
    health.insert("timeout".into(), values::time(timeout_ms).into());
    if let Some(rise) = count(&["healthy", "successes"]) {
        health.insert("rise".into(), rise.into());
    }
    if let Some(fall) =
        count(&["unhealthy", "http_failures"]).or(count(&["unhealthy", "tcp_failures"]))
    {
        health.insert("fall".into(), fall.into());
    }
    settings.set("health", health);
}

/// The routes of one route of Kong: one for each path.
fn route<'a>(
    node: &Node,
    service: &Service<'a>,
    plugins: &[Plugin<'a>],
    made: &mut Vec<Made<'a>>,
    imported: &mut Imported,
) {
    let name = name_of(node);
    let what = format!("route {name}");
    let texts = |key: &str| node.get(key).map(Node::texts).unwrap_or_default();
    let Some((base, conditions)) = matching(node, &what, &mut imported.notes) else { return };
    let conditions = &conditions;
    let paths = texts("paths");
    let paths = if paths.is_empty() { vec!["/"] } else { paths };
    let protocols = texts("protocols");
    if protocols == ["https"] {
        let why = "it is served on all listeners: a listener with `redirect = \"https\"` refuses requests without TLS";
        imported.notes.approximate(node.place, format!("{what}: protocols"), why);
    }
    for (path, conditions) in paths
        .into_iter()
        .flat_map(|path| conditions.iter().map(move |conditions| (path, conditions)))
    {
        let mut settings = base.clone();
        if !set_path(node, path, service, &what, &mut settings, &mut imported.notes) {
            continue;
        }
        settings.extend("methods", texts("methods").into_iter().map(str::to_uppercase));
        if !conditions.is_empty() {
            settings.set("headers", conditions.clone());
        }
        settings.set("upstream", service.upstream.as_str());
        if node.get("preserve_host").and_then(Node::flag) != Some(true) {
            settings.set("upstream_host", service.host.as_deref().unwrap_or("{upstream}"));
        }
        let strips = node.get("strip_path").and_then(Node::flag) != Some(false);
        rewriting(path, strips, service, &mut settings, node, &what, &mut imported.notes);
        if let Some(retries) = service.retries {
            let mut table = Table::new();
            table.insert("count".into(), i64::try_from(retries.min(10)).unwrap_or(5).into());
            table.insert("on".into(), list(["connect", "reset", "timeout"]));
            settings.set("retries", table);
        }
        let applies = |plugin: &&Plugin<'_>| match plugin.owner {
            Owner::All => true,
            Owner::Service(owner) => std::ptr::eq(owner, service.node),
            Owner::Route(owner) => std::ptr::eq(owner, node),
            Owner::Consumer(_) | Owner::Group(_) => false,
        };
        let plugins = most_specific(plugins.iter().filter(applies), &mut imported.notes);
        for plugin in &plugins {
            plugins::apply(plugin, &mut settings, &mut imported.notes);
        }
        let rank = rank(node, &settings, path);
        let own = imported.routes.add(name, node.place, settings);
        imported.order.push(Order { route: own.clone(), group: 0, rank, is_exact: false });
        for plugin in plugins {
            limits::add(plugin, service.node, &own, made, imported);
        }
    }
}

/// The precedence of a route: how many kinds of conditions it has, hosts without `*`, its headers,
/// whether its path is an expression, the priority of that, and the length of the path.
fn rank(node: &Node, settings: &Settings, path: &str) -> Vec<i64> {
    let has = |key: &&str| node.get(key).is_some_and(|it| !it.is_empty_list());
    let number = |count: usize| i64::try_from(count).unwrap_or(i64::MAX);
    let kinds =
        ["methods", "hosts", "headers", "paths", "snis"].iter().filter(|key| has(key)).count();
    let hosts = node.get("hosts").map(Node::texts).unwrap_or_default();
    let is_plain = !hosts.iter().any(|host| host.contains('*'));
    let headers = node.get("headers").map_or(0, |headers| headers.pairs().len());
    let is_expression = settings.get("path_regex").is_some();
    let priority = node.get("regex_priority").and_then(Node::number).unwrap_or(0);
    let priority = if is_expression { i64::try_from(priority).unwrap_or(i64::MAX) } else { 0 };
    let length = if is_expression { 0 } else { number(path.len()) };
    vec![number(kinds), is_plain.into(), number(headers), is_expression.into(), priority, length]
}

/// The hosts of a route, and its conditions on headers, of which one has to be met. None if it has
/// a condition that cannot be taken over, which is noted: without it, the route would match more.
fn matching(node: &Node, what: &str, notes: &mut Notes) -> Option<(Settings, Vec<Table>)> {
    let mut is_complete = true;
    for (key, why) in [
        ("snis", "the route is left out: write it with `host`"),
        ("sources", "the route is left out: write it with `allow_ips`"),
        ("destinations", "the route is left out: routes are for all listeners"),
        (
            "expression",
            "the route is left out: write it with `path`, `host`, `methods` and `headers`",
        ),
    ] {
        if let Some(unknown) = node.get(key).filter(|it| !it.is_empty_list()) {
            notes.omitted(unknown.place, format!("{what}: {key}"), why);
            is_complete = false;
        }
    }
    let mut base = Settings::default();
    let hosts: Vec<String> = node
        .get("hosts")
        .map(Node::texts)
        .unwrap_or_default()
        .into_iter()
        .map(str::to_lowercase)
        .collect();
    set_hosts(&mut base, &hosts);
    let mut conditions = vec![Table::new()];
    for header in node.get("headers").map(Node::pairs).unwrap_or_default() {
        let values = header.value.texts();
        let is_plain = |value: &&str| !value.is_empty() && !value.contains('*');
        if values.is_empty() || !values.iter().all(is_plain) || conditions.len() > MAX_CONDITIONS {
            is_complete = false;
            notes.omitted(
                header.place,
                format!("{what}: header {}", header.key),
                "the route is left out: a condition is one value, write a route for each",
            );
            continue;
        }
        if values.iter().any(|value| value.contains(|c: char| c.is_ascii_alphabetic())) {
            let why = "upper and lower case of the value differ";
            notes.approximate(header.place, format!("{what}: header {}", header.key), why);
        }
        let with = |known: &Table, value: &str| {
            let mut one = known.clone();
            one.insert(header.key.to_lowercase(), value.into());
            one
        };
        conditions = conditions
            .iter()
            .flat_map(|known| values.iter().map(|value| with(known, value)))
            .collect();
    }
    is_complete.then_some((base, conditions))
}

/// Of the plugins of one name, that of the route, else that of the service, else the global one. A
/// second one of the same owner is noted.
fn most_specific<'p, 'a>(
    plugins: impl Iterator<Item = &'p Plugin<'a>>,
    notes: &mut Notes,
) -> Vec<&'p Plugin<'a>>
where
    'a: 'p,
{
    let mut found: Vec<&Plugin<'_>> = Vec::new();
    for plugin in plugins {
        match found.iter_mut().find(|known| known.name == plugin.name) {
            Some(known) if plugin.owner.rank() > known.owner.rank() => *known = plugin,
            Some(known) if plugin.owner.rank() == known.owner.rank() => {
                let why = "an earlier plugin of this name is for the same routes, and is used";
                notes.omitted(plugin.node.place, format!("plugin {}", plugin.name), why);
            }
            Some(_) => {}
            None => found.push(plugin),
        }
    }
    found
}

/// `strip_path`, and the path of the service.
fn rewriting(
    path: &str,
    strips: bool,
    service: &Service<'_>,
    settings: &mut Settings,
    node: &Node,
    what: &str,
    notes: &mut Notes,
) {
    if settings.get("path_regex").is_some() {
        if strips {
            let why =
                "the part that the expression matches is not taken away: write `replace_path`";
            notes.omitted(node.place, format!("{what}: strip_path"), why);
        }
        return;
    }
    let prefix = if strips { path.trim_end_matches('/') } else { "" };
    if is_below(settings, prefix) {
        replace(prefix, &service.path, settings);
    }
}

/// The names of the routes that a route or a service of Kong has become.
pub(super) fn routes_of(owner: Owner<'_>, documents: &[Node], imported: &Imported) -> Vec<String> {
    let all: Vec<&Node> =
        documents.iter().flat_map(|document| items(document, "services")).collect();
    let nested = all.iter().flat_map(|service| {
        items(service, "routes").iter().map(move |route| (Some(*service), route))
    });
    let of_top = |route: &Node| {
        let name = reference(route, "service")?;
        all.iter().copied().find(|service| is_named(service, name))
    };
    let top = documents
        .iter()
        .flat_map(|document| items(document, "routes"))
        .map(|route| (of_top(route), route));
    let places: Vec<_> = nested
        .chain(top)
        .filter(|(service, route)| match owner {
            Owner::Service(owner) => service.is_some_and(|service| std::ptr::eq(service, owner)),
            Owner::Route(owner) => std::ptr::eq(*route, owner),
            Owner::All => true,
            Owner::Consumer(_) | Owner::Group(_) => false,
        })
        .map(|(_, route)| route.place)
        .collect();
    let routes = imported.routes.iter().filter(|route| places.contains(&route.place));
    routes.map(|route| route.name.clone()).collect()
}
