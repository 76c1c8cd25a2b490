//! Headers of requests and responses, CORS, and lists of addresses.

use toml::Value;

use super::scope::{Scope, Text, text};
use super::servers::Server;
use crate::import::note::Notes;
use crate::import::settings::Settings;
use crate::import::values;

/// Headers of requests that the gateway writes itself.
const OWN: [&str; 9] = [
    "connection",
    "upgrade",
    "x-forwarded-for",
    "x-forwarded-proto",
    "x-forwarded-host",
    "x-forwarded-port",
    "x-forwarded-scheme",
    "x-request-id",
    "content-length",
];

/// Adds the settings of a route that are about headers and addresses.
pub(super) fn add(scope: &Scope<'_>, server: &Server, route: &mut Settings, notes: &mut Notes) {
    if route.get("upstream").is_some() {
        request(scope, server, route, notes);
    }
    response(scope, server, route, notes);
    addresses(scope, route, notes);
}

fn request(scope: &Scope<'_>, server: &Server, route: &mut Settings, notes: &mut Notes) {
    let mut headers = scope.all("proxy_set_header");
    headers.extend(scope.all("grpc_set_header"));
    let mut has_host = false;
    for directive in headers {
        let [name, value] = directive.arguments.as_slice() else { continue };
        let lower = name.to_ascii_lowercase();
        if lower == "host" {
            has_host = true;
            match value.as_str() {
                "$host" | "$http_host" | "$host:$server_port" | "$server_name" => {}
                "$proxy_host" => route.set("upstream_host", "{upstream}"),
                literal if !literal.contains('$') => route.set("upstream_host", literal),
                _ => notes.omitted(
                    directive.place,
                    directive.shown(),
                    "the host of the upstream is that of the client, a text, or `upstream_host = \"{upstream}\"`",
                ),
            }
            continue;
        }
        if OWN.contains(&lower.as_str()) {
            continue;
        }
        if value.is_empty() {
            route.remove_header("request_headers", name);
            continue;
        }
        match text(&scope.expanded(value), server.name(), server.scheme()) {
            Text::Known(value) => route.header("request_headers", "set", name, &value),
            Text::Unknown(variable) => {
                notes.omitted(directive.place, directive.shown(), unknown(&variable));
            }
        }
    }
    // nginx sends the name of `proxy_pass` by default.
    if !has_host {
        route.set("upstream_host", "{upstream}");
    }
}

fn unknown(variable: &str) -> String {
    format!("`{variable}` is not known here: docs/headers.md lists the variables")
}

fn response(scope: &Scope<'_>, server: &Server, route: &mut Settings, notes: &mut Notes) {
    let mut is_cors = false;
    for directive in scope.all("add_header") {
        let [name, value, ..] = directive.arguments.as_slice() else { continue };
        if name.to_ascii_lowercase().starts_with("access-control-") {
            is_cors = true;
            continue;
        }
        match text(&scope.expanded(value), server.name(), server.scheme()) {
            Text::Known(value) => route.header("response_headers", "set", name, &value),
            Text::Unknown(variable) => {
                notes.omitted(directive.place, directive.shown(), unknown(&variable));
            }
        }
    }
    if route.get("upstream").is_some() {
        for directive in scope.all("proxy_hide_header") {
            route.remove_header("response_headers", directive.first());
        }
    }
    if is_cors {
        cors(scope, route, notes);
    }
}

/// CORS by `add_header`.
fn cors(scope: &Scope<'_>, route: &mut Settings, notes: &mut Notes) {
    let mut table = Settings::default();
    for directive in scope.all("add_header") {
        let [name, value, ..] = directive.arguments.as_slice() else { continue };
        let Some(kind) =
            name.to_ascii_lowercase().strip_prefix("access-control-").map(str::to_owned)
        else {
            continue;
        };
        let (place, shown) = (directive.place, directive.shown());
        let list =
            || value.split(',').map(|item| item.trim().to_owned()).filter(|item| !item.is_empty());
        match kind.as_str() {
            "allow-origin" if value.contains('$') => notes.omitted(
                place,
                shown,
                "write the origins of the pages: `cors = { origins = [\"https://app.example.com\"] }` in the route",
            ),
            "allow-origin" => table.extend("origins", list()),
            _ if value.contains('$') => {}
            "allow-methods" if value.trim() != "*" => table.extend("methods", list()),
            "allow-headers" if value.trim() != "*" => table.extend("headers", list()),
            "expose-headers" if value.trim() != "*" => table.extend("exposed_headers", list()),
            "allow-credentials" => table.set("credentials", value.trim() == "true"),
            "max-age" => {
                if let Some(ms) = values::milliseconds(value, 1000) {
                    table.set("max_age", values::time(ms));
                }
            }
            _ => {}
        }
    }
    let Some(Value::Array(origins)) = table.get("origins") else { return };
    let is_any = origins.iter().any(|origin| origin.as_str() == Some("*"));
    if is_any && table.get("credentials").is_some() {
        table.remove("credentials");
        if let Some(first) = scope.one("add_header") {
            notes.omitted(
                first.place,
                "Access-Control-Allow-Credentials",
                "browsers accept no credentials for all origins: list the origins in `cors` of the route",
            );
        }
    }
    let cors: toml::Table =
        table.iter().map(|(name, value)| (name.to_owned(), value.clone())).collect();
    route.set("cors", cors);
}

/// `allow` and `deny`.
fn addresses(scope: &Scope<'_>, route: &mut Settings, notes: &mut Notes) {
    // In nginx, both are inherited together.
    let level = scope.lists();
    let mut is_open = true;
    let mut last_word = None;
    for directive in level {
        let is_allow = directive.name == "allow";
        match directive.first() {
            "all" => {
                last_word = Some(is_allow);
                is_open = is_allow;
                // The first line that matches is used.
                break;
            }
            "unix:" => continue,
            _ => {}
        }
        let Some(network) = values::network(directive.first()) else {
            notes.omitted(directive.place, directive.shown(), "it is no address and no network");
            continue;
        };
        route.extend(if is_allow { "allow_ips" } else { "deny_ips" }, [network]);
    }
    let both = route.get("allow_ips").is_some() && route.get("deny_ips").is_some();
    if last_word != Some(false) {
        // Without `deny all`, the allowed ones are only exceptions from the denied ones.
        let removed = route.remove("allow_ips");
        if removed.is_some()
            && both
            && let Some(first) = level_of(scope)
        {
            notes.approximate(
                first.place,
                first.shown(),
                "the order of the lines does not matter here: `deny_ips` refuses also the addresses that are allowed before",
            );
        }
    } else if both && let Some(first) = level_of(scope) {
        notes.approximate(
            first.place,
            first.shown(),
            "the order of the lines does not matter here: `deny_ips` comes before `allow_ips`",
        );
    }
    if !is_open && route.get("allow_ips").is_none() {
        route.set("deny_ips", vec![Value::from("0.0.0.0/0"), Value::from("::/0")]);
    }
}

fn level_of<'a>(scope: &Scope<'a>) -> Option<&'a super::Directive> {
    scope.lists().into_iter().next()
}
