//! Plugins of services and routes: settings of routes, and rules.

use std::collections::BTreeMap;

use toml::Table;

use super::services::routes_of;
use super::{Owner, Plugin};
use crate::import::common::{allow, deny, list, literal, table};
use crate::import::note::Notes;
use crate::import::settings::{Imported, Settings};
use crate::import::values;
use crate::import::yaml::Node;

/// The periods of `rate-limiting`.
const PERIODS: [(&str, &str); 6] = [
    ("second", "s"),
    ("minute", "m"),
    ("hour", "h"),
    ("day", "d"),
    ("month", "month"),
    ("year", "year"),
];

/// Applies a plugin to a route.
pub(super) fn apply(plugin: &Plugin<'_>, route: &mut Settings, notes: &mut Notes) {
    let nothing = Node::nothing();
    let config = plugin.node.get("config").unwrap_or(&nothing);
    let texts = |key: &str| config.get(key).map(Node::texts).unwrap_or_default();
    let what = format!("plugin {}", plugin.name);
    let place = plugin.node.place;
    match plugin.name {
        "cors" => cors(config, route),
        "ip-restriction" => {
            let both = |key: &str, older: &str| [texts(key), texts(older)].concat();
            let (allowed, denied) = (both("allow", "whitelist"), both("deny", "blacklist"));
            if !denied.is_empty() {
                deny(&denied, place, &what, route, notes);
            }
            if !allowed.is_empty() || denied.is_empty() {
                allow(&allowed, place, &what, route, notes);
            }
        }
        "request-transformer" | "request-transformer-advanced" => {
            transform(config, "request_headers", &what, route, notes);
        }
        "response-transformer" | "response-transformer-advanced" => {
            transform(config, "response_headers", &what, route, notes);
        }
        "request-size-limiting" => {
            let size = config.get("allowed_payload_size").and_then(Node::number).unwrap_or(128);
            let unit = match config.text_at(&["size_unit"]) {
                Some("bytes") => 1,
                Some("kilobytes") => 1_000,
                _ => 1_000_000,
            };
            let bytes = i64::try_from(size.saturating_mul(unit)).unwrap_or(1 << 50);
            route.set("max_body_bytes", bytes.min(1 << 50));
        }
        "request-termination" => terminate(config, route),
        "rate-limiting"
        | "rate-limiting-advanced"
        | "key-auth"
        | "prometheus"
        | "correlation-id" => {}
        name => notes.omitted(place, what, instead(name)),
    }
}

/// What to do about a plugin without an equal.
fn instead(name: &str) -> &'static str {
    match name {
        "basic-auth" => {
            "write `[clients.basic]` with `users = \"file:users.htpasswd\"`, for all routes"
        }
        "jwt" | "openid-connect" | "jwt-signer" => {
            "write `[clients.jwt]` with `issuer` and `audience`, for all routes"
        }
        "oauth2" | "oauth2-introspection" => {
            "write `[clients.introspection]` with `url`, for all routes"
        }
        "acl" => {
            "the groups are plans: a plan without a rate in a rule is not limited; there is no refusal by group"
        }
        "hmac-auth" | "ldap-auth" | "ldap-auth-advanced" | "session" | "mtls-auth" => {
            "clients are identified by API keys, tokens, passwords, certificates and addresses only"
        }
        "bot-detection" => "requests are not inspected for bots: `deny_ips` refuses addresses",
        "proxy-cache" | "proxy-cache-advanced" => "the gateway does not cache responses",
        "response-ratelimiting" => "write a rule with `count = \"header:x-cost\"`",
        "file-log" | "http-log" | "tcp-log" | "udp-log" | "syslog" | "loggly" | "statsd"
        | "datadog" => "the access log is JSON on standard output: `[access_log]`",
        "opentelemetry" | "zipkin" => "write `[tracing]` with the `endpoint` of a collector",
        "grpc-web" | "grpc-gateway" => "gRPC is forwarded as it is",
        "pre-function" | "post-function" | "serverless-functions" => "the gateway has no plug-ins",
        "ai-proxy" | "ai-rate-limiting-advanced" => {
            "write a rule with `count = \"json:usage.total_tokens\"`"
        }
        "http-redirect" | "redirect" => "write `redirect` of the route",
        "forward-auth" => "write `forward_auth` of the route",
        _ => "the gateway has no plug-ins, and nothing like it",
    }
}

fn cors(config: &Node, route: &mut Settings) {
    let texts = |key: &str| config.get(key).map(Node::texts).unwrap_or_default();
    let origins = texts("origins");
    let origins = if origins.is_empty() { vec!["*"] } else { origins };
    let is_any = origins.contains(&"*");
    let mut cors = Settings::default();
    cors.set("origins", if is_any { list(["*"]) } else { list(origins) });
    for (theirs, own) in
        [("methods", "methods"), ("headers", "headers"), ("exposed_headers", "exposed_headers")]
    {
        let names = texts(theirs);
        if !names.is_empty() && !names.contains(&"*") {
            cors.set(own, list(names));
        }
    }
    if config.get("credentials").and_then(Node::flag) == Some(true) && !is_any {
        cors.set("credentials", true);
    }
    if let Some(seconds) = config.get("max_age").and_then(Node::number).filter(|it| *it > 0) {
        cors.set("max_age", values::time(seconds.saturating_mul(1000)));
    }
    route.set("cors", table(&cors));
}

/// `add`, `replace` and `remove` of headers.
fn transform(
    config: &Node,
    kind: &'static str,
    what: &str,
    route: &mut Settings,
    notes: &mut Notes,
) {
    for action in config.pairs() {
        let headers = action.value.get("headers").map(Node::texts).unwrap_or_default();
        for header in headers {
            let (name, value) = header.split_once(':').unwrap_or((header, ""));
            if value.contains("$(") {
                notes.omitted(
                    action.place,
                    format!("{what}: {header}"),
                    "docs/headers.md lists the variables",
                );
                continue;
            }
            match action.key.as_str() {
                "remove" => route.remove_header(kind, name),
                "replace" | "add" => route.header(kind, "set", name, &literal(value)),
                "append" => route.header(kind, "add", name, &literal(value)),
                _ => notes.omitted(
                    action.place,
                    format!("{what}: {} {header}", action.key),
                    "write `set`, `add` or `remove`",
                ),
            }
            if action.key == "add" {
                notes.approximate(
                    action.place,
                    format!("{what}: add {header}"),
                    "the header replaces one that is there already",
                );
            }
        }
        for part in ["querystring", "body", "json", "uri"] {
            if let Some(unknown) = action.value.get(part) {
                let why = "queries and bodies are not changed; paths are by `replace_path` and `replace_prefix`";
                notes.omitted(unknown.place, format!("{what}: {} {part}", action.key), why);
            }
        }
    }
}

fn terminate(config: &Node, route: &mut Settings) {
    let mut respond = Table::new();
    let status = config.get("status_code").and_then(Node::number).unwrap_or(503);
    respond.insert("status".into(), i64::try_from(status).unwrap_or(503).into());
    if let Some(body) = config.text_at(&["body"]).or(config.text_at(&["message"])) {
        respond.insert("body".into(), body.into());
    }
    if let Some(kind) = config.text_at(&["content_type"]) {
        respond.insert("content_type".into(), kind.into());
    }
    for name in [
        "upstream",
        "upstream_host",
        "strip_prefix",
        "replace_prefix",
        "add_prefix",
        "retries",
        "request_headers",
    ] {
        route.remove(name);
    }
    route.set("respond", respond);
}

/// Adds the limits of a plugin for a route to the rules.
pub(super) fn limit(plugin: &Plugin<'_>, route: &str, imported: &mut Imported) {
    let place = plugin.node.place;
    let mut is_known = false;
    for rule in imported.rules.iter_mut().filter(|rule| rule.place == place) {
        rule.settings.extend("routes", [route.to_owned()]);
        is_known = true;
    }
    if is_known {
        return;
    }
    for (name, mut settings) in limits(plugin, imported) {
        settings.extend("routes", [route.to_owned()]);
        imported.rules.add(&name, place, settings);
    }
}

/// The rules of a plugin, without routes.
fn limits(plugin: &Plugin<'_>, imported: &mut Imported) -> Vec<(String, Settings)> {
    let Some(config) = plugin.node.get("config") else { return Vec::new() };
    let per = per(plugin, config, &mut imported.notes);
    let base = || Settings::default().with("per", per.clone());
    let mut found = Vec::new();
    match plugin.name {
        "rate-limiting" => {
            for (theirs, unit) in PERIODS {
                if let Some(limit) = config.get(theirs).and_then(Node::number).filter(|it| *it > 0)
                {
                    let rule = base()
                        .with("kind", "fixed_window")
                        .with("limit", format!("{limit}/{unit}"));
                    found.push((theirs.to_owned(), rule));
                }
            }
        }
        "rate-limiting-advanced" => {
            let numbers = |key: &str| -> Vec<u64> {
                let texts = config.get(key).map(Node::texts).unwrap_or_default();
                texts.into_iter().filter_map(|text| text.parse().ok()).collect()
            };
            for (limit, seconds) in numbers("limit").into_iter().zip(numbers("window_size")) {
                let rate = values::rate(limit, seconds.saturating_mul(1000));
                let Some(rate) = rate else { continue };
                let rule = if limit <= 4096 {
                    base().with("kind", "sliding_window").with("limit", rate)
                } else {
                    base().with("rate", rate)
                };
                found.push((format!("in-{seconds}s"), rule));
            }
        }
        _ => return Vec::new(),
    }
    policy(plugin, config, imported);
    let on_failure = config.get("fault_tolerant").and_then(Node::flag);
    if on_failure == Some(false) && imported.redis.get("url").is_some() {
        for (_, rule) in &mut found {
            rule.set("on_failure", "deny");
        }
    }
    found
}

/// What a plugin counts by.
fn per(plugin: &Plugin<'_>, config: &Node, notes: &mut Notes) -> Vec<toml::Value> {
    let limit_by =
        config.text_at(&["limit_by"]).or(config.text_at(&["identifier"])).unwrap_or("consumer");
    let header = config.text_at(&["header_name"]).unwrap_or("x-api-key").to_lowercase();
    let mut per = match limit_by {
        "ip" => vec!["ip".to_owned()],
        "header" => vec![format!("header:{header}")],
        "service" | "path" => Vec::new(),
        _ => vec!["key".to_owned()],
    };
    match (limit_by, plugin.owner) {
        ("consumer-group", _) => notes.approximate(
            plugin.node.place,
            "limit_by: consumer-group",
            "it counts by key: groups are plans, `plans.<plan>` of the rule",
        ),
        ("path", _) => per.push("route".to_owned()),
        _ => {}
    }
    per.into_iter().map(Into::into).collect()
}

/// `policy: redis`.
fn policy(plugin: &Plugin<'_>, config: &Node, imported: &mut Imported) {
    if config.text_at(&["policy"]) == Some("cluster") {
        let why = "each gateway counts alone: counting together needs `[redis]` with `url`";
        imported.notes.approximate(plugin.node.place, "policy: cluster", why);
    }
    let is_redis =
        [config.text_at(&["policy"]), config.text_at(&["strategy"])].contains(&Some("redis"));
    if !is_redis {
        return;
    }
    let host = config.text_at(&["redis", "host"]).or(config.text_at(&["redis_host"]));
    let port = config.at(&["redis", "port"]).or(config.get("redis_port")).and_then(Node::number);
    let address = host.and_then(|host| {
        values::with_port(host, u16::try_from(port.unwrap_or(6379)).unwrap_or(6379))
    });
    let Some(address) = address else {
        imported.notes.omitted(plugin.node.place, "redis", "write `[redis]` with `url`");
        return;
    };
    let has_tls =
        config.at(&["redis", "ssl"]).or(config.get("redis_ssl")).and_then(Node::flag) == Some(true);
    imported.redis.set("url", format!("redis{}://{address}", if has_tls { "s" } else { "" }));
    let database =
        config.at(&["redis", "database"]).or(config.get("redis_database")).and_then(Node::number);
    if let Some(database) = database.filter(|number| *number > 0) {
        imported.redis.set("database", i64::try_from(database).unwrap_or(0));
    }
    if config.at(&["redis", "password"]).or(config.get("redis_password")).is_some() {
        imported.notes.omitted(
            plugin.node.place,
            "redis password",
            "secrets are not copied: write `password = \"${REDIS_PASSWORD}\"` in `[redis]`",
        );
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

/// What needs all routes: a key that is required, and limits of consumers.
pub(super) fn rules(documents: &[Node], plugins: &[Plugin<'_>], imported: &mut Imported) {
    let requires: Vec<&Plugin<'_>> =
        plugins.iter().filter(|plugin| plugin.name == "key-auth").collect();
    let Some(first) = requires.first() else { return };
    let names = first.node.at(&["config", "key_names"]).map(Node::texts).unwrap_or_default();
    let names = if names.is_empty() { vec!["apikey"] } else { names };
    let places = names.iter().flat_map(|name| [format!("header:{name}"), format!("query:{name}")]);
    imported.clients.set("api_key", list(places.collect::<Vec<_>>().iter().map(String::as_str)));
    if first.node.at(&["config", "hide_credentials"]).and_then(Node::flag) == Some(true) {
        imported.clients.set("hide_key", true);
    }
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

impl Owner<'_> {
    /// How specific it is: the most specific plugin of a name applies.
    pub(super) fn rank(&self) -> u8 {
        match self {
            Self::Route(_) => 2,
            Self::Service(_) => 1,
            Self::All | Self::Consumer(_) => 0,
        }
    }

    /// Name of the consumer that it is.
    pub(super) fn consumer(&self) -> Option<&str> {
        match self {
            Self::Consumer(name) => Some(name),
            _ => None,
        }
    }
}
