//! Virtual hosts and their routes.

use toml::{Table, Value};

use super::chains::Chain;
use super::{clusters, config, duration, get, items, limits, matching, text};
use crate::import::common::{allow, is_below, list, literal, prefix_of, redirect, replace, table};
use crate::import::finish::set_hosts;
use crate::import::note::Notes;
use crate::import::order::Order;
use crate::import::settings::{Imported, Settings};
use crate::import::values;
use crate::import::yaml::Node;

/// What the connection manager of the routes has.
pub(super) struct Manager<'a> {
    pub(super) resources: &'a Node,
    /// The filters of `http_filters`.
    pub(super) filters: &'a [Node],
    pub(super) table: &'a Node,
    pub(super) chain: &'a Chain,
}

/// Takes over the virtual hosts of a `route_config`.
pub(super) fn import(manager: &Manager<'_>, imported: &mut Imported) {
    for host in items(manager.table, "virtual_hosts") {
        let name = text(host, "name").unwrap_or("host");
        let Some(domains) = domains(host, &mut imported.notes) else {
            let why = "none of its domains can be taken over: its routes are left out, write them with `host`";
            imported.notes.omitted(host.place, format!("virtual host {name}"), why);
            host.leave_out();
            continue;
        };
        let domains = if domains.is_empty() { manager.chain.server_names.clone() } else { domains };
        limits::note_service(host, imported);
        if text(host, "require_tls").is_some_and(|it| it != "NONE") {
            imported.notes.omitted(
                host.place,
                format!("{name}: require_tls"),
                "write a listener with `redirect = \"https\"`",
            );
        }
        if let Some(matcher) = get(host, "matcher") {
            let why = "its routes are left out: write them as `[routes.<name>]`";
            imported.notes.omitted(matcher.place, format!("virtual host {name}: matcher"), why);
        }
        // Routes of other hosts are for other requests.
        let group = imported.order.len();
        for node in items(host, "routes") {
            route(manager, (host, name), &domains, node, group, imported);
        }
    }
}

/// The hosts of a virtual host; an empty list for all. None if none can be taken over.
fn domains(host: &Node, notes: &mut Notes) -> Option<Vec<String>> {
    let mut hosts = Vec::new();
    for domain in get(host, "domains").map(Node::texts).unwrap_or_default() {
        if domain == "*" {
            return Some(Vec::new());
        }
        let name = domain.split(':').next().unwrap_or_default().to_lowercase();
        let plain = name.strip_prefix("*.").unwrap_or(&name);
        if plain.is_empty()
            || !plain.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '.' | '-'))
        {
            notes.omitted(
                host.place,
                format!("domain {domain}"),
                "a host is a name, or `*.example.com` for all names below one",
            );
        } else if !hosts.contains(&name) {
            hosts.push(name);
        }
    }
    Some(hosts).filter(|hosts| !hosts.is_empty())
}

fn route(
    manager: &Manager<'_>,
    (host, host_name): (&Node, &str),
    domains: &[String],
    node: &Node,
    group: usize,
    imported: &mut Imported,
) {
    let name = text(node, "name").map(str::to_owned);
    let Some(matched) = get(node, "match") else { return };
    let mut settings = Settings::default();
    set_hosts(&mut settings, domains);
    let path =
        ["prefix", "path", "path_separated_prefix"].into_iter().find_map(|key| text(matched, key));
    let name = name.unwrap_or_else(|| format!("{host_name}{}", path.unwrap_or("-regex")));
    let what = format!("route {name}");
    if !matching::apply(matched, &what, &mut settings, &mut imported.notes) {
        node.leave_out();
        return;
    }
    let notes = &mut imported.notes;
    if let Some(action) = get(node, "redirect") {
        redirecting(action, &what, &mut settings, notes);
    } else if let Some(answer) = get(node, "direct_response") {
        respond(answer, &what, &mut settings, notes);
    } else if let Some(action) = get(node, "route") {
        if !forward(manager, action, &what, &mut settings, imported) {
            node.leave_out();
            return;
        }
    } else {
        notes.omitted(node.place, what, "it is none of route, redirect and direct_response");
        node.leave_out();
        return;
    }
    for level in [manager.table, host, node] {
        headers(level, &mut settings, &what, &mut imported.notes);
    }
    filters(manager, &[manager.table, host, node], &what, &mut settings, &mut imported.notes);
    settings.extend("deny_ips", manager.chain.others.iter().cloned());
    let sources: Vec<&str> = manager.chain.sources.iter().map(String::as_str).collect();
    if !sources.is_empty() {
        allow(&sources, node.place, &what, &mut settings, &mut imported.notes);
    }
    let route = imported.routes.add(&name, node.place, settings);
    let rank = vec![-i64::try_from(imported.order.len()).unwrap_or(i64::MAX)];
    imported.order.push(Order { route: route.clone(), group, rank, is_exact: true });
    for filter in manager.filters {
        let filter_name = text(filter, "name").unwrap_or_default();
        if limits::is_local(filter) {
            let own =
                [node, host, manager.table].into_iter().find_map(|level| typed(level, filter_name));
            limits::add(filter, own, &route, imported);
        }
    }
}

/// The configuration of a filter for a route or a virtual host.
fn typed<'a>(level: &'a Node, filter: &str) -> Option<&'a Node> {
    get(level, "typed_per_filter_config")?.get(filter)
}

fn forward(
    manager: &Manager<'_>,
    action: &Node,
    what: &str,
    route: &mut Settings,
    imported: &mut Imported,
) -> bool {
    if let Some(cluster) = text(action, "cluster") {
        let Some(name) = clusters::upstream(manager.resources, cluster, action.place, imported)
        else {
            return false;
        };
        route.set("upstream", name);
    } else if let Some(weighted) = get(action, "weighted_clusters") {
        let mut split = Table::new();
        for part in items(weighted, "clusters") {
            let cluster = text(part, "name").unwrap_or_default();
            if let Some(own) = get(part, "typed_per_filter_config") {
                let why = "filters are those of the route: write a route for each cluster";
                let what = format!("{what}: {cluster}: typed_per_filter_config");
                imported.notes.omitted(own.place, what, why);
            }
            let weight = get(part, "weight").and_then(Node::number).unwrap_or(1);
            if let Some(name) = clusters::upstream(manager.resources, cluster, part.place, imported)
            {
                split.insert(name, i64::try_from(weight).unwrap_or(1).into());
            }
        }
        match split.len() {
            0 => return false,
            1 => route.set("upstream", split.keys().next().cloned().unwrap_or_default()),
            _ => route.set("split", split),
        }
    } else {
        imported.notes.omitted(
            action.place,
            what,
            "the cluster is named by a header or a plug-in: write a route for each",
        );
        return false;
    }
    limits::note_service(action, imported);
    if text(action, "priority") == Some("HIGH") {
        let why = "an upstream has one set of thresholds for all routes";
        imported.notes.omitted(action.place, format!("{what}: priority HIGH"), why);
    }
    rewriting(action, what, route, &mut imported.notes);
    forwarding(action, what, route, &mut imported.notes);
    true
}

/// The path that the upstream gets.
fn rewriting(action: &Node, what: &str, route: &mut Settings, notes: &mut Notes) {
    if let Some(by) = text(action, "prefix_rewrite") {
        let prefix = route.get("path").and_then(Value::as_str).unwrap_or_default().to_owned();
        if prefix.ends_with("/*") {
            replace(prefix.trim_end_matches("/*"), by, route);
        } else {
            route.set("replace_path", literal(by));
        }
    }
    if let Some(policy) = get(action, "path_rewrite_policy") {
        match text(config(policy), "path_template_rewrite").and_then(|it| of_template(it, route)) {
            Some(path) => route.set("replace_path", path),
            None => notes.omitted(
                policy.place,
                format!("{what}: path_rewrite_policy"),
                "write `replace_path` or `replace_prefix` of the route",
            ),
        }
    }
    if let Some(rewrite) = get(action, "regex_rewrite") {
        let pattern = get(rewrite, "pattern").and_then(|it| text(it, "regex")).and_then(prefix_of);
        let by = text(rewrite, "substitution").and_then(|by| by.strip_suffix("\\1"));
        match pattern.zip(by) {
            Some((prefix, by)) if is_below(route, &prefix) && !by.contains('\\') => {
                replace(&prefix, by, route);
            }
            _ => notes.omitted(
                rewrite.place,
                format!("{what}: regex_rewrite"),
                "write `replace_prefix` or `replace_path` in the route",
            ),
        }
    }
}

/// The path of a template whose variables are parameters of the route's path. None if another is in
/// it.
fn of_template(template: &str, route: &Settings) -> Option<String> {
    let matched = route.get("path").and_then(Value::as_str)?;
    let mut path = String::new();
    let mut rest = template;
    while let Some((before, after)) = rest.split_once('{') {
        let (name, after) = after.split_once('}')?;
        if before.contains('}') || !matched.contains(&format!("/{{{name}}}")) {
            return None;
        }
        path.extend([before, "{param:", name, "}"]);
        rest = after;
    }
    (!rest.contains('}')).then(|| path + rest)
}

/// Host, time limits, retries and copies.
fn forwarding(action: &Node, what: &str, route: &mut Settings, notes: &mut Notes) {
    if let Some(host) = text(action, "host_rewrite_literal").or(text(action, "host_rewrite")) {
        route.set("upstream_host", host);
    } else if get(action, "auto_host_rewrite").and_then(Node::flag) == Some(true) {
        route.set("upstream_host", "{upstream}");
    }
    match duration(action, "timeout") {
        Some(0) => {}
        Some(ms) => route.set("timeout", values::time(ms)),
        None => route.set("timeout", "15s"),
    }
    if let Some(ms) = duration(action, "idle_timeout").filter(|ms| *ms > 0) {
        route.set("websocket_idle_timeout", values::time(ms));
    }
    super::listeners::upgrades(action, what, notes);
    if let Some(policy) = get(action, "retry_policy") {
        retries(policy, what, route, notes);
    }
    if let Some(mirror) = items(action, "request_mirror_policies").first() {
        notes.omitted(
            mirror.place,
            format!("{what}: request_mirror_policies"),
            "write `mirror = { to = \"shadow\", share = \"5%\" }`",
        );
    }
    if let Some(hash) = items(action, "hash_policy").first() {
        let header = get(hash, "header").and_then(|it| text(it, "header_name"));
        if let Some(header) = header {
            let why = format!(
                "write `balance = \"hash:header:{}\"` of the upstream",
                header.to_lowercase()
            );
            notes.approximate(hash.place, format!("{what}: hash_policy"), why);
        }
    }
}

fn retries(policy: &Node, what: &str, route: &mut Settings, notes: &mut Notes) {
    let mut on: Vec<&str> = Vec::new();
    let statuses = get(policy, "retriable_status_codes").map(Node::texts).unwrap_or_default();
    for word in text(policy, "retry_on").unwrap_or_default().split(',').map(str::trim) {
        match word {
            "5xx" => on.extend(["connect", "reset", "5xx"]),
            "gateway-error" => on.extend(["502", "503", "504"]),
            "connect-failure" | "refused-stream" => on.push("connect"),
            "reset" | "reset-before-request" => on.push("reset"),
            "retriable-status-codes" => {
                let (known, others): (Vec<&str>, Vec<&str>) =
                    statuses.iter().partition(|status| is_retried(status));
                on.extend(known);
                for status in others {
                    let why = "a request is sent again after 408, 425, 429 and 500 to 599";
                    let what = format!("{what}: retriable_status_codes {status}");
                    notes.omitted(policy.place, what, why);
                }
            }
            "" => {}
            _ => {
                notes.omitted(
                    policy.place,
                    format!("{what}: retry_on {word}"),
                    "`on` of `retries` has connect, reset, timeout, 5xx and single statuses",
                );
            }
        }
    }
    on.sort_unstable();
    on.dedup();
    let mut table = Table::new();
    let count = get(policy, "num_retries").and_then(Node::number).unwrap_or(1).min(10);
    table.insert("count".into(), i64::try_from(count).unwrap_or(1).into());
    if !on.is_empty() {
        table.insert("on".into(), list(on));
    }
    route.set("retries", table);
    if let Some(ms) = duration(policy, "per_try_timeout").filter(|ms| *ms > 0) {
        route.set("try_timeout", values::time(ms));
    }
}

fn is_retried(status: &str) -> bool {
    let status = status.parse::<u16>().unwrap_or(0);
    matches!(status, 408 | 425 | 429 | 500..=599)
}

fn redirecting(action: &Node, what: &str, route: &mut Settings, notes: &mut Notes) {
    let scheme = match get(action, "https_redirect").and_then(Node::flag) {
        Some(true) => "https",
        _ => text(action, "scheme_redirect").unwrap_or("https"),
    };
    let host = text(action, "host_redirect").unwrap_or("{host}");
    let path = text(action, "path_redirect").map_or("{path}".to_owned(), literal);
    if let Some(unknown) = get(action, "prefix_rewrite").or(get(action, "regex_rewrite")) {
        notes.omitted(
            unknown.place,
            format!("{what}: redirect"),
            "the path of a redirect is `{path}`, or a text with `{param:<name>}`",
        );
    }
    let status = match text(action, "response_code") {
        Some("FOUND") => 302,
        Some("SEE_OTHER") => 303,
        Some("TEMPORARY_REDIRECT") => 307,
        Some("PERMANENT_REDIRECT") => 308,
        _ => 301,
    };
    let query =
        if get(action, "strip_query").and_then(Node::flag) == Some(true) { "" } else { "{query}" };
    route.set("redirect", redirect(&format!("{scheme}://{host}{path}{query}"), status));
}

fn respond(answer: &Node, what: &str, route: &mut Settings, notes: &mut Notes) {
    let mut respond = Table::new();
    let status = get(answer, "status").and_then(Node::number).unwrap_or(200);
    respond.insert("status".into(), i64::try_from(status).unwrap_or(200).into());
    if let Some(body) = get(answer, "body") {
        match text(body, "inline_string") {
            Some(body) => {
                respond.insert("body".into(), body.into());
            }
            None => notes.omitted(
                body.place,
                format!("{what}: body"),
                "the body of a fixed answer is a text",
            ),
        }
    }
    route.set("respond", respond);
}

/// Headers that are added or removed.
fn headers(level: &Node, route: &mut Settings, what: &str, notes: &mut Notes) {
    let is_forwarded = route.get("upstream").is_some() || route.get("split").is_some();
    for (theirs, own) in [
        ("request_headers_to_add", "request_headers"),
        ("response_headers_to_add", "response_headers"),
    ] {
        for item in
            items(level, theirs).iter().filter(|_| is_forwarded || own == "response_headers")
        {
            let Some(header) = get(item, "header") else { continue };
            let name = text(header, "key").unwrap_or_default();
            let value = text(header, "value").unwrap_or_default();
            let value = match value {
                "%DOWNSTREAM_REMOTE_ADDRESS_WITHOUT_PORT%" => "{client.ip}".to_owned(),
                "%REQ(:AUTHORITY)%" => "{host}".to_owned(),
                "%REQ(:METHOD)%" => "{method}".to_owned(),
                value if value.contains('%') => {
                    notes.omitted(
                        item.place,
                        format!("{what}: {name}: {value}"),
                        "docs/headers.md lists the variables",
                    );
                    continue;
                }
                value => literal(value),
            };
            let appends =
                match (text(item, "append_action"), get(item, "append").and_then(Node::flag)) {
                    (Some(action), _) => action == "APPEND_IF_EXISTS_OR_ADD",
                    (None, Some(append)) => append,
                    (None, None) => true,
                };
            route.header(own, if appends { "add" } else { "set" }, name, &value);
        }
    }
    for (theirs, own) in [
        ("request_headers_to_remove", "request_headers"),
        ("response_headers_to_remove", "response_headers"),
    ] {
        for name in get(level, theirs).map(Node::texts).unwrap_or_default() {
            if is_forwarded {
                route.remove_header(own, name);
            }
        }
    }
}

/// CORS, of the virtual host or the route.
fn filters(
    manager: &Manager<'_>,
    levels: &[&Node],
    what: &str,
    route: &mut Settings,
    notes: &mut Notes,
) {
    let has_filter =
        manager.filters.iter().any(|it| text(it, "name") == Some("envoy.filters.http.cors"));
    let is_limit = |name: &str| {
        manager.filters.iter().any(|it| text(it, "name") == Some(name) && limits::is_local(it))
    };
    for level in levels {
        let policy = typed(level, "envoy.filters.http.cors")
            .map(config)
            .or_else(|| get(level, "cors"))
            .or_else(|| get(get(level, "route")?, "cors"));
        let is_on = |policy: &&Node| {
            let enabled = get(policy, "enabled").and_then(Node::flag) != Some(false);
            has_filter && enabled && limits::is_for_any(policy, "filter_enabled")
        };
        if let Some(policy) = policy.filter(is_on) {
            cors(policy, what, route, notes);
        }
        for filter in get(level, "typed_per_filter_config").map(Node::pairs).unwrap_or_default() {
            if filter.key != "envoy.filters.http.cors" && !is_limit(&filter.key) {
                notes.omitted(
                    filter.place,
                    format!("{what}: {}", filter.key),
                    super::listeners::instead(&filter.key),
                );
            }
        }
    }
}

fn cors(policy: &Node, what: &str, route: &mut Settings, notes: &mut Notes) {
    let mut origins: Vec<String> = Vec::new();
    for origin in items(policy, "allow_origin_string_match") {
        match (
            text(origin, "exact"),
            text(origin, "prefix"),
            get(origin, "safe_regex").and_then(|it| text(it, "regex")),
        ) {
            (Some("*"), ..) | (_, Some("*"), _) | (.., Some(".*" | "\\*")) => {
                origins.push("*".to_owned());
            }
            (Some(exact), ..) => origins.push(exact.to_owned()),
            _ => notes.omitted(
                origin.place,
                format!("{what}: cors origin"),
                "an origin is a text, or `https://*.example.com`",
            ),
        }
    }
    origins.extend(
        get(policy, "allow_origin")
            .map(Node::texts)
            .unwrap_or_default()
            .into_iter()
            .map(str::to_owned),
    );
    if origins.is_empty() {
        return;
    }
    let is_any = origins.iter().any(|origin| origin == "*");
    let mut cors = Settings::default();
    cors.set(
        "origins",
        if is_any { list(["*"]) } else { list(origins.iter().map(String::as_str)) },
    );
    for (theirs, own) in [
        ("allow_methods", "methods"),
        ("allow_headers", "headers"),
        ("expose_headers", "exposed_headers"),
    ] {
        let names: Vec<&str> = text(policy, theirs)
            .unwrap_or_default()
            .split(',')
            .map(str::trim)
            .filter(|it| !it.is_empty())
            .collect();
        if !names.is_empty() && !names.contains(&"*") {
            cors.set(own, list(names));
        }
    }
    if get(policy, "allow_credentials").and_then(Node::flag) == Some(true) && !is_any {
        cors.set("credentials", true);
    }
    if let Some(seconds) =
        text(policy, "max_age").and_then(|it| it.parse::<u64>().ok()).filter(|it| *it > 0)
    {
        cors.set("max_age", values::time(seconds.saturating_mul(1000)));
    }
    route.set("cors", table(&cors));
}
