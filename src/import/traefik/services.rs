//! Services as upstreams.

use toml::{Table, Value};

use super::Files;
use crate::import::common::{Server, ServerUrl, add_server};
use crate::import::note::{Notes, Place};
use crate::import::settings::{Imported, Settings};
use crate::import::values;
use crate::import::yaml::{Node, Pair};

/// Maximum depth of services that name services.
const MAX_DEPTH: usize = 8;

/// Sets where a route forwards to: the service of this name. Returns false if it cannot, which is
/// noted.
pub(super) fn target(
    files: &Files<'_>,
    name: &str,
    place: Place,
    route: &mut Settings,
    imported: &mut Imported,
) -> bool {
    target_within(files, name, place, route, imported, 0)
}

fn target_within(
    files: &Files<'_>,
    name: &str,
    place: Place,
    route: &mut Settings,
    imported: &mut Imported,
    depth: usize,
) -> bool {
    let Some(service) = files.entry(&["http", "services"], name) else {
        let why = if name.ends_with("@internal") {
            "the gateway has its own dashboard and metrics at the admin port"
        } else {
            "it is in none of the files"
        };
        imported.notes.omitted(place, format!("service {name}"), why);
        return false;
    };
    if depth > MAX_DEPTH {
        imported.notes.omitted(place, format!("service {name}"), "services name each other");
        return false;
    }
    let inner = |imported: &mut Imported, route: &mut Settings, name: &str| {
        target_within(files, name, service.place, route, imported, depth + 1)
    };
    if let Some(balancer) = service.value.get("loadBalancer") {
        let name = upstream(files, service, balancer, imported);
        if balancer.get("passHostHeader").and_then(Node::flag) == Some(false) {
            route.set("upstream_host", "{upstream}");
        }
        route.set("upstream", name);
        return true;
    }
    if let Some(weighted) = service.value.get("weighted") {
        return split(files, weighted, route, imported, depth);
    }
    if let Some(mirroring) = service.value.get("mirroring") {
        let main = mirroring.text_at(&["service"]).unwrap_or_default();
        if !inner(imported, route, main) {
            return false;
        }
        mirror(files, mirroring, route, imported, depth);
        return true;
    }
    if let Some(failover) = service.value.get("failover") {
        imported.notes.approximate(
            service.place,
            format!("service {name}: failover"),
            "only the main service is used: write the servers of the other one with `backup = true`",
        );
        return inner(imported, route, failover.text_at(&["service"]).unwrap_or_default());
    }
    imported.notes.omitted(service.place, format!("service {name}"), "it has no servers");
    false
}

/// The upstream of a `loadBalancer`.
fn upstream(files: &Files<'_>, service: &Pair, balancer: &Node, imported: &mut Imported) -> String {
    let known = imported.upstreams.iter().find(|known| known.place == service.place);
    if let Some(known) = known {
        return known.name.clone();
    }
    let notes = &mut imported.notes;
    let mut settings = Settings::default();
    for server in balancer.get("servers").map(Node::items).unwrap_or_default() {
        let url = server.text_at(&["url"]).or(server.text()).unwrap_or_default();
        let Some(url) = ServerUrl::parse(url) else {
            notes.omitted(server.place, format!("server {url}"), "it is no URL of a server");
            continue;
        };
        if let Some(protocol) = url.protocol {
            settings.set("protocol", protocol);
        }
        if !url.path.is_empty() && server.get("preservePath").and_then(Node::flag) == Some(true) {
            notes.omitted(server.place, &url.path, "write `add_prefix` in the routes");
        }
        let weight = server.get("weight").and_then(Node::number);
        add_server(&mut settings, Server::new(&url.address, weight), server.place, notes);
    }
    match balancer.text_at(&["strategy"]) {
        Some("p2c") => settings.set("balance", "random_two"),
        Some("hrw") => settings.set("balance", "hash:ip"),
        Some("leasttime") => settings.set("balance", "least_request"),
        _ => {}
    }
    if let Some(cookie) = balancer.at(&["sticky", "cookie"]) {
        let mut sticky = Table::new();
        let name = cookie.text_at(&["name"]).unwrap_or("tollgate_server");
        sticky.insert("cookie".into(), name.into());
        if let Some(seconds) = cookie.get("maxAge").and_then(Node::number).filter(|it| *it > 0) {
            sticky.insert("ttl".into(), values::time(seconds.saturating_mul(1000)).into());
        }
        settings.set("sticky", sticky);
    }
    if let Some(check) = balancer.get("healthCheck") {
        health(check, &mut settings, notes);
    }
    if let Some(transport) = balancer.text_at(&["serversTransport"]) {
        transport_of(files, transport, balancer.place, &mut settings, notes);
    }
    imported.upstreams.add(&service.key, service.place, settings)
}

fn health(check: &Node, settings: &mut Settings, notes: &mut Notes) {
    let mut health = Table::new();
    let time =
        |name: &str| check.text_at(&[name]).and_then(|text| values::milliseconds(text, 1000));
    if check.text_at(&["mode"]) == Some("grpc") {
        health.insert("kind".into(), "grpc".into());
    } else {
        health.insert("path".into(), check.text_at(&["path"]).unwrap_or("/").into());
        if let Some(host) = check.text_at(&["hostname"]) {
            health.insert("host".into(), host.into());
        }
        if let Some(status) = check.get("status").and_then(Node::number) {
            let status = i64::try_from(status).unwrap_or(200);
            health.insert("status".into(), Value::Array(vec![status.into()]));
        }
    }
    if let Some(port) = check.get("port").and_then(Node::number).filter(|port| *port > 0) {
        health.insert("port".into(), i64::try_from(port).unwrap_or(80).into());
    }
    let interval = time("interval").unwrap_or(30_000).clamp(100, 3_600_000);
    let timeout = time("timeout").unwrap_or(5_000).clamp(1, 60_000).min(interval);
    health.insert("interval".into(), values::time(interval).into());
    health.insert("timeout".into(), values::time(timeout).into());
    if check.get("headers").is_some() || check.get("method").is_some() {
        notes.omitted(
            check.place,
            "healthCheck: headers, method",
            "a check is a GET request without headers of its own",
        );
    }
    settings.set("health", health);
}

/// What a `serversTransport` says about connections.
fn transport_of(
    files: &Files<'_>,
    name: &str,
    place: Place,
    settings: &mut Settings,
    notes: &mut Notes,
) {
    let Some(transport) = files.entry(&["http", "serversTransports"], name) else {
        notes.omitted(place, format!("serversTransport {name}"), "it is in none of the files");
        return;
    };
    let value = &transport.value;
    let mut tls = Table::new();
    if let Some(name) = value.text_at(&["serverName"]) {
        tls.insert("server_name".into(), name.into());
    }
    if let Some(ca) = value.get("rootCAs").map(Node::texts).unwrap_or_default().first() {
        tls.insert("ca".into(), (*ca).into());
    }
    if let Some(own) = value.get("certificates").map(Node::items).unwrap_or_default().first()
        && let (Some(cert), Some(key)) = (own.text_at(&["certFile"]), own.text_at(&["keyFile"]))
    {
        tls.insert("cert".into(), cert.into());
        tls.insert("key".into(), key.into());
    }
    let has_tls = matches!(settings.get("servers"), Some(Value::Array(servers)) if servers.iter().any(|server| server.to_string().contains("https://")));
    if !tls.is_empty() && has_tls {
        settings.set("tls", tls);
    }
    if value.get("insecureSkipVerify").and_then(Node::flag) == Some(true) {
        notes.omitted(
            transport.place,
            "insecureSkipVerify",
            "certificates of servers are always verified: for an authority of your own, set `tls = { ca = \"ca.pem\" }` of the upstream",
        );
    }
    for (theirs, own) in [
        ("dialTimeout", "connect_timeout"),
        ("responseHeaderTimeout", "first_byte_timeout"),
        ("idleConnTimeout", "idle_timeout"),
    ] {
        let text = value.text_at(&["forwardingTimeouts", theirs]);
        let ms = text.and_then(|text| values::milliseconds(text, 1000)).filter(|ms| *ms > 0);
        if let Some(ms) = ms {
            settings.set(own, values::time(ms));
        }
    }
}

/// `weighted`: several upstreams.
fn split(
    files: &Files<'_>,
    weighted: &Node,
    route: &mut Settings,
    imported: &mut Imported,
    depth: usize,
) -> bool {
    let mut split = Table::new();
    for part in weighted.get("services").map(Node::items).unwrap_or_default() {
        let name = part.text_at(&["name"]).unwrap_or_default();
        let mut own = Settings::default();
        if !target_within(files, name, part.place, &mut own, imported, depth + 1) {
            continue;
        }
        let Some(upstream) = own.get("upstream").and_then(Value::as_str) else {
            imported.notes.omitted(
                part.place,
                format!("service {name}"),
                "a part of `weighted` is a service with servers",
            );
            continue;
        };
        let weight = part.get("weight").and_then(Node::number).unwrap_or(1);
        split.insert(upstream.to_owned(), i64::try_from(weight).unwrap_or(1).into());
    }
    if weighted.get("sticky").is_some() {
        route.set("split_by", "client");
        imported.notes.approximate(
            weighted.place,
            "weighted: sticky",
            "a client keeps its upstream by its key or address, without a cookie",
        );
    }
    match split.len() {
        0 => false,
        1 => {
            route.remove("split_by");
            let only = split.keys().next().cloned().unwrap_or_default();
            route.set("upstream", only);
            true
        }
        _ => {
            route.set("split", split);
            true
        }
    }
}

fn mirror(
    files: &Files<'_>,
    mirroring: &Node,
    route: &mut Settings,
    imported: &mut Imported,
    depth: usize,
) {
    let mirrors = mirroring.get("mirrors").map(Node::items).unwrap_or_default();
    for (number, mirror) in mirrors.iter().enumerate() {
        let name = mirror.text_at(&["name"]).unwrap_or_default();
        if number > 0 {
            imported.notes.omitted(
                mirror.place,
                format!("mirror {name}"),
                "a route has one mirror",
            );
            continue;
        }
        let mut own = Settings::default();
        let percent = mirror.get("percent").and_then(Node::number).unwrap_or(0).min(100);
        if percent == 0 || !target_within(files, name, mirror.place, &mut own, imported, depth + 1)
        {
            continue;
        }
        if let Some(upstream) = own.get("upstream") {
            let mut table = Table::new();
            table.insert("to".into(), upstream.clone());
            table.insert("share".into(), format!("{percent}%").into());
            route.set("mirror", table);
        }
    }
}
