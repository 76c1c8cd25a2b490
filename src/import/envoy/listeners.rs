//! Listeners and their connection managers.

use std::iter;
use std::net::{Ipv6Addr, SocketAddr};

use toml::{Table, Value};

use super::routes::{self, Manager};
use super::{address, chains, clusters, config, duration, get, items, limits, text};
use crate::config::listener::{includes, is_ipv6_only};
use crate::import::common::listen;
use crate::import::note::Notes;
use crate::import::settings::{Imported, Settings};
use crate::import::values;
use crate::import::yaml::Node;

/// Takes over all listeners.
pub(super) fn import(resources: &Node, imported: &mut Imported) {
    for listener in items(resources, "listeners") {
        let name = text(listener, "name").unwrap_or("listener");
        let what = format!("listener {name}");
        let first_route = imported.routes.len();
        let has_http = managers(listener, name, resources, imported);
        let addresses = addresses(listener, &what, &mut imported.notes);
        if has_http {
            listen_on(listener, &what, &addresses, imported);
        } else {
            listener.leave_out();
        }
        imported.serve(first_route, &addresses);
    }
}

/// The connection managers of a listener. Returns whether there is one.
fn managers(listener: &Node, name: &str, resources: &Node, imported: &mut Imported) -> bool {
    let mut found = false;
    let what = format!("listener {name}");
    for (chain, conditions) in chains::usable(listener, &what, &mut imported.notes) {
        for filter in items(chain, "filters") {
            let kind = text(filter, "name").unwrap_or_default();
            let manager = config(filter);
            let is_manager = kind.ends_with("http_connection_manager")
                || get(manager, "route_config").is_some()
                || get(manager, "http_filters").is_some();
            if !is_manager {
                imported.notes.omitted(
                    filter.place,
                    format!("listener {name}: {kind}"),
                    "the gateway forwards HTTP only",
                );
                filter.leave_out();
                continue;
            }
            found = true;
            manager_settings(manager, name, imported);
            let Some(table) = get(manager, "route_config") else {
                imported.notes.omitted(
                    filter.place,
                    format!("listener {name}: routes"),
                    "routes of a control plane are not read",
                );
                continue;
            };
            let filters = items(manager, "http_filters");
            let manager = Manager { resources, filters, table, chain: &conditions };
            routes::import(&manager, imported);
        }
    }
    found
}

/// What a connection manager says about all requests.
fn manager_settings(manager: &Node, name: &str, imported: &mut Imported) {
    if let Some(ms) = duration(manager, "request_headers_timeout").filter(|ms| *ms > 0) {
        imported.limits.set("head_timeout", values::time(ms.min(600_000)));
    }
    if let Some(kilobytes) = get(manager, "max_request_headers_kb").and_then(Node::number) {
        let bytes = i64::try_from(kilobytes.clamp(1, 1024)).unwrap_or(32) * 1024;
        imported.server.set("max_header_bytes", bytes);
    }
    let options = get(manager, "common_http_protocol_options");
    for (theirs, own, most) in [
        ("max_headers_count", "max_headers", 256),
        ("max_requests_per_connection", "max_requests_per_connection", 1_000_000_000),
    ] {
        lowest(options, theirs, (own, most), &mut imported.limits);
    }
    let options = get(manager, "http2_protocol_options");
    let own = ("max_concurrent_streams", 10_000);
    lowest(options, "max_concurrent_streams", own, &mut imported.http2);
    upgrades(manager, &format!("listener {name}"), &mut imported.notes);
    let hops = get(manager, "xff_num_trusted_hops").and_then(Node::number).unwrap_or(0);
    if hops > 0 {
        let why = "write the addresses of the proxies in `server.trusted_proxies`: their number is not enough";
        imported.notes.omitted(
            manager.place,
            format!("listener {name}: xff_num_trusted_hops"),
            why,
        );
    }
    for filter in items(manager, "http_filters") {
        let kind = text(filter, "name").unwrap_or_default();
        let is_known = matches!(
            kind,
            "envoy.filters.http.router" | "envoy.router" | "envoy.filters.http.cors" | "envoy.cors"
        ) || limits::is_local(filter);
        if !is_known {
            imported.notes.omitted(filter.place, format!("filter {kind}"), instead(kind));
            filter.leave_out();
        }
    }
    for (key, why) in [
        ("access_log", "the access log is JSON on standard output: `[access_log]`"),
        ("tracing", "write `[tracing]` with the `endpoint` of a collector"),
        ("local_reply_config", "bodies of the gateway's own errors are `[errors.<status>]`"),
        ("scoped_routes", "routes of a control plane are not read"),
    ] {
        if let Some(node) = get(manager, key) {
            imported.notes.omitted(node.place, format!("listener {name}: {key}"), why);
        }
    }
}

/// Notes the protocols that a connection could change to, other than WebSocket.
pub(super) fn upgrades(node: &Node, what: &str, notes: &mut Notes) {
    for upgrade in items(node, "upgrade_configs") {
        let protocol = text(upgrade, "upgrade_type").unwrap_or_default();
        let is_enabled = get(upgrade, "enabled").and_then(Node::flag) != Some(false);
        if protocol.eq_ignore_ascii_case("websocket") && !is_enabled {
            let why = "WebSocket is always forwarded";
            notes.omitted(upgrade.place, format!("{what}: {protocol}"), why);
        } else if !protocol.eq_ignore_ascii_case("websocket") && is_enabled {
            let why = "of protocols that a connection changes to, only WebSocket is forwarded";
            notes.omitted(upgrade.place, format!("{what}: upgrade to {protocol}"), why);
        }
    }
}

/// Sets `own` to a number above 0, at most `most`. Of several listeners the lowest is used: it is
/// one setting for all.
fn lowest(
    options: Option<&Node>,
    theirs: &str,
    (own, most): (&'static str, i64),
    settings: &mut Settings,
) {
    let number = options.and_then(|it| get(it, theirs)).and_then(Node::number);
    if let Some(number) = number.filter(|number| *number > 0) {
        let known = settings.get(own).and_then(Value::as_integer).unwrap_or(most);
        settings.set(own, i64::try_from(number).unwrap_or(most).min(known));
    }
}

/// What to do about an HTTP filter without an equal.
pub(super) fn instead(name: &str) -> &'static str {
    match name.rsplit('.').next().unwrap_or_default() {
        "jwt_authn" => "write `[clients.jwt]` with `issuer` and `audience`, for all routes",
        "ext_authz" => "write `[forward_auth]` with `url`: it is asked by HTTP, not by gRPC",
        "ratelimit" => {
            "the numbers are in the file of the rate limit service: docs/migrating.md shows them as rules"
        }
        "basic_auth" => {
            "write `[clients.basic]` with `users = \"file:users.htpasswd\"`, for all routes"
        }
        "api_key_auth" => "write `[keys.<id>]` with the SHA-256 of each key: `tollgate hash-key`",
        "oauth2" => "write `[clients.jwt]` or `[clients.introspection]`",
        "rbac" => "write `allow_ips` and `deny_ips` of routes; there are no other policies",
        "compressor" | "gzip" | "brotli" => "write `compress = true` of the upstreams",
        "health_check" => "`/ready` and `/live` are at the admin port",
        "fault" => "the gateway injects no faults",
        "buffer" => "bodies are forwarded as they arrive; `max_body_bytes` limits them",
        "grpc_web" | "grpc_stats" | "grpc_http1_bridge" | "grpc_json_transcoder" => {
            "gRPC is forwarded as it is, not translated"
        }
        "lua" | "wasm" | "golang" | "ext_proc" => "the gateway has no plug-ins",
        "local_ratelimit" => "a rule without `[redis]`",
        "adaptive_concurrency" | "admission_control" => {
            "write `max_in_flight = \"auto\"` of the upstream"
        }
        "bandwidth_limit" => "the gateway does not limit bytes a second",
        _ => "the gateway has nothing like it",
    }
}

/// The addresses of a listener. Those that are no IP address with a port are noted.
fn addresses(listener: &Node, what: &str, notes: &mut Notes) -> Vec<String> {
    let mut found: Vec<(SocketAddr, &Node)> = Vec::new();
    for node in iter::once(listener).chain(items(listener, "additional_addresses")) {
        let Some((host, port)) = address(node) else {
            notes.omitted(node.place, what, "a listener has an address and a port");
            continue;
        };
        let host = if host.contains(':') { format!("[{host}]") } else { host.to_owned() };
        match format!("{host}:{port}").parse() {
            Ok(address) => found.push((address, node)),
            Err(_) => notes.omitted(node.place, what, "a listener has an IP address and a port"),
        }
    }
    let all: Vec<SocketAddr> = found.iter().map(|(address, _)| *address).collect();
    for (address, node) in &found {
        let is_all_of_ipv6 = address.ip() == Ipv6Addr::UNSPECIFIED;
        let has_ipv4 = is_ipv6_only(*address, all.iter().copied());
        if is_all_of_ipv6 && !accepts_ipv4(node) && !has_ipv4 {
            let why = "it also accepts connections by IPv4, as with `ipv4_compat`";
            notes.approximate(node.place, format!("{what}: {address}"), why);
        }
    }
    // One socket accepts the connections of both.
    let is_kept = |address: &SocketAddr| !all.iter().any(|it| includes(*it, *address));
    let mut kept: Vec<String> = Vec::new();
    for address in all.iter().filter(|it| is_kept(it)).map(SocketAddr::to_string) {
        if !kept.contains(&address) {
            kept.push(address);
        }
    }
    kept
}

/// `ipv4_compat` of an address.
fn accepts_ipv4(node: &Node) -> bool {
    let socket = get(node, "address").and_then(|address| get(address, "socket_address"));
    socket.and_then(|it| get(it, "ipv4_compat")).and_then(Node::flag) == Some(true)
}

/// Opens the addresses of a listener, with its certificates.
fn listen_on(listener: &Node, what: &str, addresses: &[String], imported: &mut Imported) {
    let mut settings = Settings::default();
    let mut has_tls = false;
    let mut certificates: Vec<Value> = Vec::new();
    for chain in chains::all(listener) {
        let Some(context) =
            get(chain, "transport_socket").map(config).or_else(|| get(chain, "tls_context"))
        else {
            continue;
        };
        has_tls = true;
        if !tls(context, what, &mut settings, &mut certificates, &mut imported.notes) {
            return;
        }
    }
    for filter in items(listener, "listener_filters") {
        let name = text(filter, "name").unwrap_or_default();
        if name.contains("local_ratelimit") {
            let why = "new connections have no rate: `max_connections` and `max_connections_per_ip` of `[server.limits]` limit how many are open";
            imported.notes.omitted(filter.place, format!("{what}: {name}"), why);
        }
    }
    if chains::reads_proxy_protocol(listener) {
        let why = "only `server.trusted_proxies` may send it: list them";
        imported.notes.omitted(listener.place, format!("{what}: proxy_protocol"), why);
    }
    if !has_tls {
        for address in addresses {
            listen(imported, address.clone());
        }
        return;
    }
    if certificates.is_empty() {
        imported.notes.omitted(
            listener.place,
            what,
            "it has no certificate in a file: list some in `certificates`",
        );
        return;
    }
    settings.set("certificates", certificates);
    for address in addresses {
        let mut own = Settings::default().with("address", address.as_str());
        for (key, value) in settings.iter() {
            own.set(key, value.clone());
        }
        imported.listeners.push((listener.place, own));
    }
}

/// `DownstreamTlsContext`. Returns false if it requires client certificates that cannot be
/// verified, which is noted.
fn tls(
    context: &Node,
    what: &str,
    settings: &mut Settings,
    certificates: &mut Vec<Value>,
    notes: &mut Notes,
) -> bool {
    let is_required = get(context, "require_client_certificate").and_then(Node::flag) == Some(true);
    let nothing = Node::nothing();
    let common = get(context, "common_tls_context").unwrap_or(&nothing);
    for certificate in items(common, "tls_certificates") {
        match clusters::files(certificate) {
            Some((cert, key)) => {
                let mut table = Table::new();
                table.insert("cert".into(), cert.into());
                table.insert("key".into(), key.into());
                if !certificates.contains(&Value::from(table.clone())) {
                    certificates.push(table.into());
                }
            }
            None => {
                certificate.leave_out();
                let why = "a certificate and its key are files";
                notes.omitted(certificate.place, format!("{what}: certificate"), why);
            }
        }
    }
    let ca = clusters::validation(common, what, notes)
        .and_then(|it| get(it, "trusted_ca"))
        .and_then(|it| text(it, "filename"));
    let known = settings.get("client_ca").and_then(Value::as_str).map(str::to_owned);
    match (ca, known) {
        (Some(ca), None) => {
            settings.set("client_ca", ca);
            if !is_required {
                settings.set("client_auth", "optional");
            }
        }
        (Some(ca), Some(known)) => {
            if ca != known {
                let why = format!("a listener has one `client_ca`: {known} is used");
                notes.omitted(context.place, format!("{what}: {ca}"), why);
            }
            // The strictest is used.
            if is_required {
                settings.remove("client_auth");
            }
        }
        (None, _) if is_required => {
            let why = "its authority is not in a file: the listener is left out, write it with `client_ca`";
            notes.omitted(context.place, format!("{what}: require_client_certificate"), why);
            return false;
        }
        (None, _) => {}
    }
    let minimum = get(common, "tls_params").and_then(|it| text(it, "tls_minimum_protocol_version"));
    if minimum == Some("TLSv1_3") {
        settings.set("min_tls", "1.3");
    }
    true
}
