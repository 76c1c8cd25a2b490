//! Each entry is looked up where it is listed, and its line is valid there.

use super::Place::{
    Acme, Any, Basic, Certificate, Client, Cors, Eab, ForwardAuth, Grant, Headers, Introspection,
    Jwt, Key, Listener, Plan, Redis, Root, Route, Rule, Secret, Server, ServerLimits, Upstream,
    UpstreamServer, UpstreamTls,
};
use super::*;
use crate::load::from_text;

/// A user with a password, as a file has it.
const USERS: &str = "users = ['a:$2y$04$4KVlRPKQZEt1b2RBMpYQeOOoEI1ZPjm/zyo.2grGrZ8ntdITzzflm']\n";

/// A file that lacks a line in the table of `place`.
fn file(place: Place, meant: &str, line: &str) -> Option<String> {
    let keep = |name: &str, default: &'static str| if meant == name { "" } else { default };
    let server = "[upstreams.api]\nservers = ['demo']\n[routes.all]\n";
    Some(match place {
        Server => format!("[server]\n{line}\n{server}"),
        ServerLimits => format!("[server.limits]\n{line}\n{server}"),
        Cors => format!(
            "[cors]\n{}{line}\n{server}",
            keep("origins", "origins = ['https://a.example']\n")
        ),
        Headers => format!("[headers]\n{line}\n{server}"),
        Listener => format!(
            "[[listeners]]\n{}{}{line}\n[acme]\ndomains = ['a.example']\n{server}",
            keep("address", "address = '0.0.0.0:443'\n"),
            keep("certificates", "certificates = ['acme']\n"),
        ),
        Acme => {
            format!("[acme]\n{}{line}\n{server}", keep("domains", "domains = ['a.example']\n"))
        }
        Client => format!("[clients]\n{line}\n{server}"),
        UpstreamServer => {
            format!("[routes.all]\n[[upstreams.api.servers]]\n{line}\n")
        }
        UpstreamTls => format!(
            "[routes.all]\n[upstreams.api]\nservers = ['https://h']\n[upstreams.api.tls]\n{line}"
        ),
        Redis => {
            format!("[redis]\n{}{line}\n{server}", keep("url", "url = 'redis://h'\n"))
        }
        Upstream => format!(
            "[routes.all]\n[upstreams.api]\n{}{line}",
            keep("servers", "servers = ['demo']\n")
        ),
        Route => format!("{server}{line}\n"),
        Rule => format!(
            "{server}[rules.r]\n{}{}{line}\n",
            keep("per", "per = ['key']\n"),
            keep("rate", "rate = '10/s'\n"),
        ),
        Grant => format!(
            "{server}[plans.free]\n[rules.r]\nper = []\n[rules.r.plans.free]\n{}{line}\n",
            keep("rate", "rate = '10/s'\n"),
        ),
        Plan => format!("{server}[plans.free]\n{line}\n"),
        Jwt => {
            format!("{server}[clients.jwt]\nissuer = 'https://id.test'\naudience = 'api'\n{line}\n")
        }
        Introspection => {
            let url = keep("url", "url = 'https://id.test'\n");
            let id = keep("client_id", "client_id = 'a'\n");
            let secret = keep("client_secret", "client_secret = 'b'\n");
            format!("{server}[clients.introspection]\n{url}{id}{secret}{line}\n")
        }
        ForwardAuth => {
            let url = keep("url", "url = 'http://a.test'\n");
            format!("[forward_auth]\n{url}{line}\n{server}")
        }
        Basic => {
            format!("{server}[clients.basic]\n{}{line}\n", keep("users", USERS))
        }
        Key => format!("{server}[keys.k]\nsha256 = '{}'\n{line}\n", "0".repeat(64)),
        Secret => format!("{server}[[keys.k.secrets]]\nsha256 = '{}'\n{line}\n", "0".repeat(64)),
        Root | Certificate | Eab | Any => return None,
    })
}

#[test]
fn each_row_is_an_entry() {
    let rows = include_str!("names.txt").lines();
    let rows = rows.filter(|line| line.contains(" | ") && !line.starts_with('#'));
    assert_eq!(ENTRIES.len(), rows.count());
    for entry in ENTRIES.iter() {
        let Entry { names, why, .. } = entry;
        assert!(names.iter().chain([why]).all(|text| !text.starts_with('$')), "{entry:?}");
    }
}

#[test]
fn suggested_lines_are_valid_where_they_are_suggested() {
    for entry in ENTRIES.iter().filter(|entry| !entry.line.is_empty()) {
        let text = file(entry.place, entry.meant, entry.line).unwrap();
        let errors = from_text("gateway.toml", &text).err().map(|report| report.render(false));
        assert_eq!(errors, None, "{text}");
    }
}

#[test]
fn listed_names_are_unknown_where_they_are_listed() {
    let tables = [
        (Root, ""),
        (Server, "[server]"),
        (ServerLimits, "[server.limits]"),
        (Headers, "[headers]"),
        (Listener, "[[listeners]]"),
        (Acme, "[acme]"),
        (Client, "[clients]"),
        (Jwt, "[clients.jwt]"),
        (Introspection, "[clients.introspection]"),
        (Basic, "[clients.basic]"),
        (ForwardAuth, "[forward_auth]"),
        (Redis, "[redis]"),
        (Plan, "[plans.free]"),
        (Key, "[keys.k]"),
        (Secret, "[[keys.k.secrets]]"),
        (Upstream, "[upstreams.api]"),
        (UpstreamServer, "[[upstreams.api.servers]]"),
        (UpstreamTls, "[upstreams.api.tls]"),
        (Eab, "[acme.eab]"),
        (Route, "[routes.all]"),
        (Rule, "[rules.r]"),
        (Grant, "[rules.r.plans.free]"),
    ];
    for entry in ENTRIES.iter() {
        for (place, head) in tables.iter().filter(|(place, _)| *place == entry.place) {
            for name in &entry.names {
                let report = from_text("a", &format!("{head}\n{name} = 1979-05-27\n")).unwrap_err();
                let found = report
                    .errors
                    .list
                    .iter()
                    .find(|error| error.message.starts_with("unknown name"));
                let help = found.unwrap_or_else(|| panic!("{place:?} {name}")).help.clone();
                let own = head.trim_end_matches(']').split('.').nth(1).unwrap_or_default();
                assert_eq!(help, Some(help_of(entry, own)), "{place:?} {name}");
            }
        }
    }
}

/// The help of an entry for a value that its line cannot repeat.
fn help_of(entry: &Entry, own: &str) -> String {
    entry.help(own, &DeValue::Boolean(false))
}

/// The names of settings in the tables of docs/migrating.md: the first column, without values.
fn names_of_the_page() -> Vec<String> {
    let page = include_str!("../../../docs/migrating.md");
    let mut names = Vec::new();
    for row in page.lines().filter(|line| line.starts_with("| ") && !line.starts_with("| --")) {
        let first = row.split('|').nth(1).unwrap_or_default();
        for code in first.split('`').skip(1).step_by(2) {
            // `burst=N nodelay` is `burst`, `ipStrategy.depth` is `ipStrategy` and `depth`.
            let setting = code.split([' ', '=', ':']).next().unwrap_or_default();
            for name in setting.split('.').filter(|name| !name.is_empty()) {
                let is_name = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
                if name.chars().all(is_name)
                    && !name.starts_with("X-")
                    && !name.starts_with("RateLimit")
                {
                    names.push(name.to_owned());
                }
            }
        }
    }
    names
}

/// Settings near those of the page, in each gateway.
const NEIGHBOURS: &[&str] = &[
    // nginx
    "proxy_pass",
    "proxy_set_header",
    "proxy_hide_header",
    "add_header",
    "proxy_redirect",
    "proxy_read_timeout",
    "proxy_connect_timeout",
    "proxy_send_timeout",
    "proxy_buffering",
    "proxy_cache",
    "proxy_next_upstream",
    "proxy_http_version",
    "proxy_ssl_verify",
    "limit_rate",
    "limit_except",
    "auth_basic",
    "auth_request",
    "error_page",
    "gzip",
    "root",
    "try_files",
    "worker_processes",
    "worker_connections",
    "keepalive_requests",
    "server_tokens",
    "client_max_body_size",
    "client_header_timeout",
    "large_client_header_buffers",
    "access_log",
    "error_log",
    "ssl_certificate",
    "ssl_protocols",
    "real_ip_header",
    "rewrite",
    "location",
    "resolver",
    // Traefik
    "entryPoints",
    "middlewares",
    "average",
    "sourceCriterion",
    "inFlightReq",
    "stripPrefix",
    "replacePathRegex",
    "redirectScheme",
    "ipAllowList",
    "basicAuth",
    "forwardAuth",
    "compress",
    "retry",
    "circuitBreaker",
    "healthCheck",
    "passHostHeader",
    "serversTransport",
    "sticky_cookie",
    "certFile",
    "certResolver",
    "customRequestHeaders",
    // Kong
    "strip_path",
    "preserve_host",
    "key-auth",
    "acl",
    "request-termination",
    "request-transformer",
    "ip-restriction",
    "bot_detection",
    "proxy-cache",
    "request-size-limiting",
    "fault_tolerant",
    "hide_client_headers",
    "limit_by",
    // Envoy
    "route_config",
    "weighted_clusters",
    "prefix_rewrite",
    "host_rewrite_literal",
    "request_headers_to_add",
    "outlier_detection",
    "circuit_breakers",
    "lb_policy",
    "lb_endpoints",
    "request_mirror_policies",
    "num_retries",
    "xff_num_trusted_hops",
    "fill_interval",
    "typed_per_filter_config",
    "idle_timeout",
    "ext_authz",
    // Caddy
    "reverse_proxy",
    "file_server",
    "encode",
    "basic_auth",
    "handle_path",
    "redir",
    "header_up",
    "health_uri",
    "lb_try_duration",
    "rate_limit",
    "handle_errors",
    "trusted_proxies",
    "flush_interval",
    "max_events",
    // HAProxy
    "stick-table",
    "http_req_rate",
    "track-sc0",
    "deny_status",
    "maxconn",
    "nbthread",
    "default_backend",
    "use_backend",
    "send-proxy",
    "redispatch",
    "httpchk",
    "http-request",
    "errorfile",
    "tarpit",
    "fullconn",
    "peers",
    "source",
    "check",
    "connect",
];

#[test]
fn names_of_the_page_on_migrating_have_help_wherever_they_are_written() {
    // Words that are values or settings of other tables in the page, and names that this file has
    // there.
    let tables = ["[rules.r]", "[routes.all]", "[server]", "[upstreams.api]"];
    let mut without = Vec::new();
    let names = names_of_the_page();
    assert!(names.len() > 80, "{names:?}");
    for name in names.iter().map(String::as_str).chain(NEIGHBOURS.iter().copied()) {
        for head in tables {
            let file = format!("{head}\n{name} = 1979-05-27\n");
            let Err(report) = from_text("a", &file) else { continue };
            let list = &report.errors.list;
            let unknown = list.iter().find(|error| error.message.starts_with("unknown name"));
            let help = unknown.and_then(|error| error.help.as_deref()).unwrap_or("known");
            if help.starts_with("possible here") {
                without.push(format!("{head} {name}"));
            }
        }
    }
    assert!(without.is_empty(), "{without:#?}");
}
