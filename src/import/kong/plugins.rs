//! Plugins of services and routes that are settings of routes.

use toml::Table;

use super::{Owner, Plugin};
use crate::import::common::{allow, deny, list, literal, table};
use crate::import::note::Notes;
use crate::import::settings::Settings;
use crate::import::values;
use crate::import::yaml::Node;

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
            let written = config.get("allowed_payload_size");
            let size = written.and_then(Node::number).unwrap_or(128);
            if let Some(written) = written.filter(|it| it.number().is_none()) {
                let why = "it is no whole number: 128 megabytes are used, write `max_body_bytes`";
                notes.omitted(written.place, format!("{what}: allowed_payload_size"), why);
            }
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
        | "service-protection"
        | "key-auth"
        | "key-auth-enc"
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

impl Owner<'_> {
    /// How specific it is: the most specific plugin of a name applies.
    pub(super) fn rank(&self) -> u8 {
        match self {
            Self::Route(_) => 2,
            Self::Service(_) => 1,
            Self::All | Self::Consumer(_) | Self::Group(_) => 0,
        }
    }
}
