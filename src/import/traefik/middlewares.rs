//! Middlewares: settings of the routes that have them, and rules.

use std::collections::BTreeMap;

use toml::{Table, Value};

use super::Files;
use crate::import::common::{allow, is_below, list, literal, prefix_of, replace, table};
use crate::import::note::{Notes, Place};
use crate::import::settings::{Imported, Settings};
use crate::import::values;
use crate::import::yaml::{Node, Pair};

/// Maximum depth of chains.
const MAX_DEPTH: usize = 8;

/// The middlewares of these names, with those of chains. Those that are missing are noted.
pub(super) fn named<'a>(
    files: &Files<'a>,
    names: &[&str],
    place: Place,
    notes: &mut Notes,
) -> Vec<&'a Pair> {
    let mut found = Vec::new();
    collect(files, names, place, notes, 0, &mut found);
    found
}

fn collect<'a>(
    files: &Files<'a>,
    names: &[&str],
    place: Place,
    notes: &mut Notes,
    depth: usize,
    found: &mut Vec<&'a Pair>,
) {
    for name in names {
        let Some(middleware) = files.entry(&["http", "middlewares"], name) else {
            notes.omitted(place, format!("middleware {name}"), "it is in none of the files");
            continue;
        };
        match middleware.value.at(&["chain", "middlewares"]) {
            Some(chain) if depth < MAX_DEPTH => {
                collect(files, &chain.texts(), middleware.place, notes, depth + 1, found);
            }
            Some(_) => notes.omitted(place, format!("middleware {name}"), "chains name each other"),
            None => found.push(middleware),
        }
    }
}

/// Whether it redirects to HTTPS.
pub(super) fn redirects_to_https(middleware: &Pair) -> bool {
    middleware.value.text_at(&["redirectScheme", "scheme"]) == Some("https")
}

/// Applies a middleware to a route.
pub(super) fn apply(middleware: &Pair, route: &mut Settings, notes: &mut Notes) {
    for kind in middleware.value.pairs() {
        let value = &kind.value;
        let what = format!("middleware {}: {}", middleware.key, kind.key);
        match kind.key.as_str() {
            "stripPrefix" => strip(value, route, &what, kind.place, notes),
            "addPrefix" => {
                if let Some(prefix) = value.text_at(&["prefix"]) {
                    route.set("add_prefix", prefix.trim_end_matches('/'));
                }
            }
            "replacePath" => {
                if let Some(path) = value.text_at(&["path"]) {
                    route.set("replace_path", literal(path));
                }
            }
            "replacePathRegex" => {
                let by = value.text_at(&["replacement"]).and_then(|by| by.strip_suffix("$1"));
                let prefix = value.text_at(&["regex"]).and_then(prefix_of);
                match prefix.zip(by) {
                    Some((prefix, by)) if is_below(route, &prefix) && !by.contains('$') => {
                        replace(&prefix, by, route);
                    }
                    _ => notes.omitted(
                        kind.place,
                        what,
                        "write `replace_prefix` or `replace_path` in the route",
                    ),
                }
            }
            "headers" => headers(value, route, &what, notes),
            "ipAllowList" | "ipWhiteList" => {
                let ranges = value.get("sourceRange").map(Node::texts).unwrap_or_default();
                allow(&ranges, kind.place, &what, route, notes);
                if let Some(strategy) = value.get("ipStrategy") {
                    let why = "the address is that of `X-Forwarded-For` behind the proxies in `server.trusted_proxies`: list them";
                    notes.approximate(strategy.place, format!("{what}: ipStrategy"), why);
                }
            }
            "compress" => route.set("compress", true),
            "retry" => {
                let attempts = value.get("attempts").and_then(Node::number).unwrap_or(1);
                let mut retries = Table::new();
                let count = attempts.saturating_sub(1).min(10);
                retries.insert("count".into(), i64::try_from(count).unwrap_or(1).into());
                retries.insert("on".into(), list(["connect", "reset"]));
                route.set("retries", retries);
            }
            "buffering" => {
                let bytes = value.get("maxRequestBodyBytes").and_then(Node::number);
                let bytes = bytes.and_then(|bytes| i64::try_from(bytes).ok());
                let known = route.get("max_body_bytes").and_then(Value::as_integer).unwrap_or(0);
                // Of several middlewares, the smallest size; 0 is any.
                if let Some(bytes) = bytes.filter(|bytes| known == 0 || (1..known).contains(bytes))
                {
                    route.set("max_body_bytes", bytes.min(1 << 50));
                }
            }
            "forwardAuth" => forward_auth(value, route, &what, kind.place, notes),
            // Rules; redirects are those of listeners.
            "rateLimit" | "inFlightReq" | "redirectScheme" => {}
            name => notes.omitted(kind.place, what, instead(name)),
        }
    }
}

/// What to do about a middleware without an equal.
fn instead(kind: &str) -> &'static str {
    match kind {
        "basicAuth" => {
            "passwords are verified for all routes: `[clients.basic]` with `users = [\"alice:$2y$…\"]`, and \
             `on_missing_key = \"deny\"` in `[clients]`"
        }
        "digestAuth" => "write `[clients.basic]`, or keys of clients",
        "circuitBreaker" => "write `eject` of the upstream",
        "errors" => {
            "`[errors.5xx]` has the bodies of the gateway's own errors; those of upstreams are forwarded as they are"
        }
        "redirectRegex" => {
            "write a route with `redirect = { to = \"https://new.example{path}{query}\" }`"
        }
        "stripPrefixRegex" => "write `path` with a parameter and `replace_path` in the route",
        "passTLSClientCert" => {
            "write `request_headers` of the route; a rule counts certificates by `per = [\"cert\"]`"
        }
        "contentType" | "grpcWeb" => {
            "it needs nothing here: bodies and media types are forwarded as they are"
        }
        "plugin" => "the gateway has no plug-ins",
        _ => "the gateway has nothing like it",
    }
}

fn strip(value: &Node, route: &mut Settings, what: &str, place: Place, notes: &mut Notes) {
    let prefixes = value.get("prefixes").map(Node::texts).unwrap_or_default();
    match prefixes.iter().find(|prefix| is_below(route, prefix)) {
        Some(prefix) => replace(prefix, "", route),
        None => notes.omitted(place, what, "`strip_prefix` is a prefix of the `path` of its route"),
    }
}

fn forward_auth(value: &Node, route: &mut Settings, what: &str, place: Place, notes: &mut Notes) {
    let Some(address) = value.text_at(&["address"]) else {
        notes.omitted(place, what, "it has no `address`: write `forward_auth` of the route");
        return;
    };
    let known = route.get("forward_auth").and_then(|known| known.get("url")?.as_str());
    if known.is_some_and(|known| known != address) {
        let why = "a route asks one server, that of the first of these middlewares: let it ask the other one";
        notes.omitted(place, what, why);
        return;
    }
    let mut auth = Table::new();
    auth.insert("url".into(), address.into());
    let mut headers = |theirs: &str, own: &str| {
        let names = value.get(theirs).map(Node::texts).unwrap_or_default();
        if !names.is_empty() {
            auth.insert(own.into(), list(names));
        }
    };
    headers("authRequestHeaders", "request_headers");
    headers("authResponseHeaders", "response_headers");
    route.set("forward_auth", auth);
    for unknown in ["authResponseHeadersRegex", "tls", "forwardBody", "addAuthCookiesToResponse"] {
        if let Some(node) = value.get(unknown) {
            notes.omitted(
                node.place,
                format!("{what}: {unknown}"),
                "docs/forward-auth.md lists the settings",
            );
        }
    }
}

fn headers(value: &Node, route: &mut Settings, what: &str, notes: &mut Notes) {
    for (theirs, own) in
        [("customRequestHeaders", "request_headers"), ("customResponseHeaders", "response_headers")]
    {
        for header in value.get(theirs).map(Node::pairs).unwrap_or_default() {
            let text = header.value.text().unwrap_or_default();
            let lower = header.key.to_ascii_lowercase();
            if lower == "host" && own == "request_headers" {
                route.set("upstream_host", text);
            } else if lower.starts_with("x-forwarded-") && own == "request_headers" {
                let why = "the gateway writes it itself, from the connection or a trusted proxy";
                notes.omitted(header.place, format!("{what}: {}", header.key), why);
            } else if text.is_empty() {
                route.remove_header(own, &header.key);
            } else {
                route.header(own, "set", &header.key, &literal(text));
            }
        }
    }
    cors(value, route);
    security(value, route);
    for unknown in [
        "accessControlAllowOriginListRegex",
        "allowedHosts",
        "sslRedirect",
        "sslHost",
        "sslProxyHeaders",
        "hostsProxyHeaders",
        "publicKey",
    ] {
        if let Some(node) = value.get(unknown) {
            let why = match unknown {
                "accessControlAllowOriginListRegex" => {
                    "an origin is a text, or `https://*.example.com`: `cors` of the route"
                }
                "sslRedirect" | "sslHost" => "write a listener with `redirect = \"https\"`",
                "allowedHosts" => "write `host` in the route",
                _ => "the gateway has nothing like it",
            };
            notes.omitted(node.place, format!("{what}: {unknown}"), why);
        }
    }
}

fn cors(value: &Node, route: &mut Settings) {
    let origins = value.get("accessControlAllowOriginList").map(Node::texts).unwrap_or_default();
    if origins.is_empty() {
        return;
    }
    let mut cors = Settings::default().with("origins", list(origins.iter().copied()));
    for (theirs, own) in [
        ("accessControlAllowMethods", "methods"),
        ("accessControlAllowHeaders", "headers"),
        ("accessControlExposeHeaders", "exposed_headers"),
    ] {
        let names = value.get(theirs).map(Node::texts).unwrap_or_default();
        if !names.is_empty() && !names.contains(&"*") {
            cors.set(own, list(names));
        }
    }
    if value.get("accessControlAllowCredentials").and_then(Node::flag) == Some(true)
        && !origins.contains(&"*")
    {
        cors.set("credentials", true);
    }
    if let Some(seconds) =
        value.get("accessControlMaxAge").and_then(Node::number).filter(|it| *it > 0)
    {
        cors.set("max_age", values::time(seconds.saturating_mul(1000)));
    }
    route.set("cors", table(&cors));
}

/// Headers of responses that have settings of their own.
fn security(value: &Node, route: &mut Settings) {
    let is_on = |name: &str| value.get(name).and_then(Node::flag) == Some(true);
    let mut set =
        |name: &str, text: &str| route.header("response_headers", "set", name, &literal(text));
    if let Some(seconds) = value.get("stsSeconds").and_then(Node::number).filter(|it| *it > 0) {
        let mut text = format!("max-age={seconds}");
        text += if is_on("stsIncludeSubdomains") { "; includeSubDomains" } else { "" };
        text += if is_on("stsPreload") { "; preload" } else { "" };
        set("Strict-Transport-Security", &text);
    }
    match value.text_at(&["customFrameOptionsValue"]) {
        Some(text) => set("X-Frame-Options", text),
        None if is_on("frameDeny") => set("X-Frame-Options", "DENY"),
        None => {}
    }
    if is_on("contentTypeNosniff") {
        set("X-Content-Type-Options", "nosniff");
    }
    if is_on("browserXssFilter") {
        set("X-XSS-Protection", "1; mode=block");
    }
    for (theirs, own) in [
        ("contentSecurityPolicy", "Content-Security-Policy"),
        ("referrerPolicy", "Referrer-Policy"),
        ("permissionsPolicy", "Permissions-Policy"),
    ] {
        if let Some(text) = value.text_at(&[theirs]) {
            set(own, text);
        }
    }
}

/// Adds the limits of a middleware for a route to the rules.
pub(super) fn limit(middleware: &Pair, route: &str, imported: &mut Imported) {
    for kind in middleware.value.pairs() {
        let settings = match kind.key.as_str() {
            "rateLimit" => rate(middleware, kind, imported),
            "inFlightReq" => in_flight(middleware, kind, &mut imported.notes),
            _ => continue,
        };
        let Some(settings) = settings else { continue };
        let known = imported.rules.iter_mut().find(|rule| rule.place == kind.place);
        if let Some(known) = known {
            known.settings.extend("routes", [route.to_owned()]);
            continue;
        }
        let default = if kind.key == "rateLimit" { "ip" } else { "host" };
        let criterion = kind.value.get("sourceCriterion");
        let per = per(criterion, default, kind.place, imported);
        let mut rule = Settings::default().with("per", list([per.as_str()]));
        for (name, value) in settings.iter() {
            rule.set(name, value.clone());
        }
        rule.extend("routes", [route.to_owned()]);
        imported.rules.add(&middleware.key, kind.place, rule);
    }
}

/// The rule of an `inFlightReq`. None if it has no limit, which is noted.
fn in_flight(middleware: &Pair, kind: &Pair, notes: &mut Notes) -> Option<Settings> {
    let amount = kind.value.get("amount").and_then(Node::number).filter(|it| *it > 0);
    let Some(amount) = amount else {
        let what = format!("middleware {}: inFlightReq", middleware.key);
        notes.omitted(kind.place, what, "it has no `amount` above 0");
        return None;
    };
    let limit = i64::try_from(amount.min(1_000_000)).unwrap_or(1);
    Some(Settings::default().with("kind", "concurrency").with("limit", limit))
}

/// A middleware at several routers counts for each of them alone.
pub(super) fn separate(imported: &mut Imported) {
    let Imported { rules, routes, .. } = imported;
    let mut further: Vec<(String, Place, Settings)> = Vec::new();
    for rule in rules.iter_mut() {
        let Some(Value::Array(names)) = rule.settings.get("routes") else { continue };
        // Alternatives of one rule are one router.
        let mut routers: BTreeMap<Place, Vec<Value>> = BTreeMap::new();
        for name in names {
            if let Some(route) = name.as_str().and_then(|name| routes.get(name)) {
                routers.entry(route.place).or_default().push(name.clone());
            }
        }
        if routers.len() < 2 {
            continue;
        }
        if routers.values().all(|routes| routes.len() == 1) {
            rule.settings.extend("per", ["route".to_owned()]);
            continue;
        }
        for (number, routes) in routers.into_values().enumerate() {
            if number == 0 {
                rule.settings.set("routes", routes);
            } else {
                let mut settings = rule.settings.clone();
                settings.set("routes", routes);
                further.push((rule.name.to_owned(), rule.place, settings));
            }
        }
    }
    for (name, place, settings) in further {
        rules.add(&name, place, settings);
    }
}

fn rate(middleware: &Pair, kind: &Pair, imported: &mut Imported) -> Option<Settings> {
    let value = &kind.value;
    let period = value.text_at(&["period"]);
    // A shorter one would allow more.
    let period_ms = period.map_or(Some(1000), |text| values::milliseconds_up(text, 1000));
    let average = value.get("average").and_then(Node::number).unwrap_or(0);
    let Some(rate) = period_ms.and_then(|ms| values::rate(average, ms)) else {
        let why = match period_ms {
            Some(_) => "its average is 0: it limits nothing",
            None => "its period is no time that can be read: write a rule",
        };
        imported.notes.omitted(
            kind.place,
            format!("middleware {}: rateLimit", middleware.key),
            why,
        );
        return None;
    };
    let burst = value.get("burst").and_then(Node::number).unwrap_or(1).max(1);
    if let Some(endpoint) =
        value.at(&["redis", "endpoints"]).map(Node::texts).unwrap_or_default().first()
        && let Some(address) = values::with_port(endpoint, 6379)
    {
        imported.redis.set("url", format!("redis://{address}"));
    }
    let burst = i64::try_from(burst).unwrap_or(i64::MAX);
    Some(Settings::default().with("rate", rate).with("burst", burst))
}

/// What a `sourceCriterion` counts by.
fn per(criterion: Option<&Node>, default: &str, place: Place, imported: &mut Imported) -> String {
    let nothing = Node::nothing();
    let criterion = match criterion {
        Some(criterion) => criterion,
        None if default != "ip" => return default.to_owned(),
        None => &nothing,
    };
    let notes = &mut imported.notes;
    if let Some(name) = criterion.text_at(&["requestHeaderName"]) {
        return format!("header:{}", name.to_lowercase());
    }
    if criterion.get("requestHost").and_then(Node::flag) == Some(true) {
        return "host".to_owned();
    }
    let subnet = criterion.at(&["ipStrategy", "ipv6Subnet"]).and_then(Node::number);
    let subnet = subnet.and_then(|bits| i64::try_from(bits).ok()).filter(|bits| *bits > 0);
    let known = imported.clients.get("ipv6_prefix").and_then(Value::as_integer).unwrap_or(64);
    if let Some(bits) = subnet.filter(|bits| *bits < known) {
        imported.clients.set("ipv6_prefix", bits);
    }
    if criterion.get("ipStrategy").is_none() && imported.server.get("trusted_proxies").is_some() {
        let why = "behind `server.trusted_proxies`, each client counts, not the proxy";
        notes.approximate(place, "rateLimit: the address of the connection", why);
    }
    if criterion.get("ipStrategy").is_some() {
        notes.approximate(
            place,
            "ipStrategy",
            "the address is that of `X-Forwarded-For` behind the proxies in `server.trusted_proxies`, whatever their number",
        );
    }
    "ip".to_owned()
}
