//! Clusters as upstreams.

use toml::Table;

use super::{address, config, duration, get, items, text};
use crate::import::common::{Server, add_server};
use crate::import::note::{Notes, Place};
use crate::import::settings::{Imported, Settings};
use crate::import::values;
use crate::import::yaml::Node;

/// The name of the upstream of a cluster, which is added if it is not there. None if there is no
/// such cluster, which is noted.
pub(super) fn upstream(
    resources: &Node,
    name: &str,
    place: Place,
    imported: &mut Imported,
) -> Option<String> {
    let found =
        items(resources, "clusters").iter().find(|cluster| text(cluster, "name") == Some(name));
    let Some(cluster) = found else {
        imported.notes.omitted(place, format!("cluster {name}"), "it is not in the file");
        return None;
    };
    if let Some(known) = imported.upstreams.iter().find(|known| known.place == cluster.place) {
        return Some(known.name.clone());
    }
    let settings = settings(cluster, name, &mut imported.notes);
    Some(imported.upstreams.add(name, cluster.place, settings))
}

fn settings(cluster: &Node, name: &str, notes: &mut Notes) -> Settings {
    let what = format!("cluster {name}");
    let mut settings = Settings::default();
    let tls = get(cluster, "transport_socket").or_else(|| get(cluster, "tls_context"));
    let scheme = if tls.is_some() { "https://" } else { "" };
    servers(cluster, scheme, &what, &mut settings, notes);
    match text(cluster, "lb_policy") {
        Some("LEAST_REQUEST") => settings.set("balance", "random_two"),
        Some("RING_HASH" | "MAGLEV") => settings.set("balance", "hash:ip"),
        Some("RANDOM") => {
            notes.approximate(
                cluster.place,
                format!("{what}: RANDOM"),
                "servers get requests in turn",
            );
        }
        _ => {}
    }
    if let Some(ms) = duration(cluster, "connect_timeout") {
        settings.set("connect_timeout", values::time(ms));
    }
    if has_http2(cluster) {
        settings.set("protocol", if tls.is_some() { "h2" } else { "h2c" });
    }
    if let Some(tls) = tls {
        tls_of(tls, &what, &mut settings, notes);
    }
    for (number, check) in items(cluster, "health_checks").iter().enumerate() {
        if number == 0 {
            health(check, &what, &mut settings, notes);
        } else {
            let why = "an upstream has one health check, the first";
            notes.omitted(check.place, format!("{what}: health_checks"), why);
        }
    }
    if let Some(outlier) = get(cluster, "outlier_detection") {
        eject(outlier, &mut settings);
    }
    for threshold in
        get(cluster, "circuit_breakers").map(|it| items(it, "thresholds")).unwrap_or_default()
    {
        if text(threshold, "priority") == Some("HIGH") {
            let why = "an upstream has one set of thresholds for all routes, those of `DEFAULT`";
            notes.omitted(threshold.place, format!("{what}: circuit_breakers HIGH"), why);
            continue;
        }
        for (theirs, own) in [
            ("max_connections", "max_connections"),
            ("max_pending_requests", "max_pending"),
            ("max_requests", "max_in_flight"),
        ] {
            let number = get(threshold, theirs).and_then(Node::number).filter(|it| *it > 0);
            if let Some(number) = number {
                settings.set(own, i64::try_from(number.min(1_000_000)).unwrap_or(1_000_000));
            }
        }
    }
    if settings.get("max_connections").is_none() {
        settings.remove("max_pending");
    }
    settings
}

fn servers(cluster: &Node, scheme: &str, what: &str, settings: &mut Settings, notes: &mut Notes) {
    let assignment = get(cluster, "load_assignment");
    for group in assignment.map(|it| items(it, "endpoints")).unwrap_or_default() {
        let priority = get(group, "priority").and_then(Node::number).unwrap_or(0);
        if priority > 0 {
            let why = "its servers get requests when none of a lower priority is healthy, not when a part of them is not";
            notes.approximate(group.place, format!("{what}: priority {priority}"), why);
        }
        if let Some(weight) =
            get(group, "load_balancing_weight").filter(|it| it.number() != Some(1))
        {
            let why =
                "servers have weights, groups have none: write `weight` of each of these servers";
            notes.approximate(weight.place, format!("{what}: load_balancing_weight"), why);
        }
        for endpoint in items(group, "lb_endpoints") {
            if matches!(text(endpoint, "health_status"), Some("UNHEALTHY" | "DRAINING" | "TIMEOUT"))
            {
                let why = "its `health_status` says that it gets no requests";
                notes.omitted(endpoint.place, format!("{what}: endpoint"), why);
                continue;
            }
            let weight = get(endpoint, "load_balancing_weight").and_then(Node::number);
            // Also beside it, as some files have it.
            let inner = get(endpoint, "endpoint").filter(|it| get(it, "address").is_some());
            let Some(address) = server(inner.unwrap_or(endpoint), scheme, what, notes) else {
                continue;
            };
            // The highest one that the gateway has.
            let server = Server { address: &address, weight, priority: priority.min(100) };
            add_server(settings, server, endpoint.place, notes);
        }
    }
    // Versions before 3.
    for host in items(cluster, "hosts") {
        let socket = get(host, "socket_address");
        let host_of = socket.and_then(|socket| text(socket, "address"));
        let port = socket.and_then(|socket| get(socket, "port_value")).and_then(Node::number);
        if let Some((host_name, port)) = host_of.zip(port.and_then(|port| u16::try_from(port).ok()))
            && let Some(address) = values::with_port(&format!("{host_name}:{port}"), port)
        {
            let address = format!("{scheme}{address}");
            add_server(settings, Server::new(&address, None), host.place, notes);
        }
    }
    match text(cluster, "type") {
        Some("EDS") => {
            notes.omitted(cluster.place, what, "endpoints of a control plane are not read");
        }
        Some("ORIGINAL_DST") => notes.omitted(cluster.place, what, "an upstream has servers"),
        _ => {}
    }
}

/// The address of an endpoint. None if it cannot be taken over, which is noted.
fn server(endpoint: &Node, scheme: &str, what: &str, notes: &mut Notes) -> Option<String> {
    let Some((host, port)) = address(endpoint) else {
        let why = "a server is a host with a port: it has no `socket_address`";
        notes.omitted(endpoint.place, format!("{what}: endpoint"), why);
        return None;
    };
    let host = if host.contains(':') { format!("[{host}]") } else { host.to_owned() };
    let found = values::with_port(&format!("{host}:{port}"), port);
    if found.is_none() {
        notes.omitted(endpoint.place, format!("{what}: {host}"), "it is no host of a server");
    }
    found.map(|address| format!("{scheme}{address}"))
}

fn has_http2(cluster: &Node) -> bool {
    if get(cluster, "http2_protocol_options").is_some() {
        return true;
    }
    let options =
        get(cluster, "typed_extension_protocol_options").map(Node::pairs).unwrap_or_default();
    options.iter().any(|option| {
        get(&option.value, "explicit_http_config")
            .and_then(|explicit| get(explicit, "http2_protocol_options"))
            .is_some()
    })
}

/// The conditions on the certificates of the other side. Those beside the authority are noted.
pub(super) fn validation<'a>(common: &'a Node, what: &str, notes: &mut Notes) -> Option<&'a Node> {
    let combined = get(common, "combined_validation_context")
        .and_then(|it| get(it, "default_validation_context"));
    let found = get(common, "validation_context").or(combined)?;
    for key in [
        "match_typed_subject_alt_names",
        "match_subject_alt_names",
        "verify_subject_alt_name",
        "verify_certificate_spki",
        "verify_certificate_hash",
        "crl",
    ] {
        if let Some(node) = get(found, key) {
            let why = "any certificate of the authority is accepted: use an authority for these certificates alone";
            notes.omitted(node.place, format!("{what}: {key}"), why);
        }
    }
    Some(found)
}

/// `UpstreamTlsContext`.
fn tls_of(socket: &Node, what: &str, settings: &mut Settings, notes: &mut Notes) {
    let context = config(socket);
    let mut tls = Table::new();
    if let Some(name) = text(context, "sni") {
        tls.insert("server_name".into(), name.into());
    }
    let common = get(context, "common_tls_context");
    let validation = common.and_then(|common| validation(common, what, notes));
    let ca = validation.and_then(|it| get(it, "trusted_ca")).and_then(|it| text(it, "filename"));
    match ca {
        // Those of the system are the default.
        Some(ca) if !ca.starts_with("/etc/ssl/certs/") && !ca.starts_with("/etc/pki/") => {
            tls.insert("ca".into(), ca.into());
        }
        Some(_) => {}
        None => notes.approximate(
            socket.place,
            what,
            "the certificate of the server is always verified: for an authority of your own, set `tls = { ca = \"ca.pem\" }`",
        ),
    }
    let own = common.and_then(|common| items(common, "tls_certificates").first());
    if let Some((cert, key)) = own.and_then(files) {
        tls.insert("cert".into(), cert.into());
        tls.insert("key".into(), key.into());
    }
    if !tls.is_empty() {
        settings.set("tls", tls);
    }
}

/// Paths of a certificate and its key.
pub(super) fn files(certificate: &Node) -> Option<(&str, &str)> {
    let file = |key: &str| text(get(certificate, key)?, "filename");
    Some((file("certificate_chain")?, file("private_key")?))
}

fn health(check: &Node, what: &str, settings: &mut Settings, notes: &mut Notes) {
    let mut health = Table::new();
    if let Some(http) = get(check, "http_health_check") {
        health.insert("path".into(), text(http, "path").unwrap_or("/").into());
        if let Some(host) = text(http, "host") {
            health.insert("host".into(), host.into());
        }
        expected(http, what, &mut health, notes);
    } else if let Some(grpc) = get(check, "grpc_health_check") {
        health.insert("kind".into(), "grpc".into());
        if let Some(service) = text(grpc, "service_name").filter(|it| !it.is_empty()) {
            health.insert("service".into(), service.into());
        }
    } else {
        health.insert("kind".into(), "tcp".into());
    }
    let interval = duration(check, "interval").unwrap_or(5_000).clamp(100, 3_600_000);
    let timeout = duration(check, "timeout").unwrap_or(1_000).clamp(1, 60_000).min(interval);
    health.insert("interval".into(), values::time(interval).into());
    health.insert("timeout".into(), values::time(timeout).into());
    for (theirs, own) in [("healthy_threshold", "rise"), ("unhealthy_threshold", "fall")] {
        if let Some(number) = get(check, theirs).and_then(Node::number) {
            health.insert(own.into(), i64::try_from(number.clamp(1, 100)).unwrap_or(1).into());
        }
    }
    settings.set("health", health);
}

/// `expected_statuses`, the statuses of a healthy server; 200 if there are none.
fn expected(http: &Node, what: &str, health: &mut Table, notes: &mut Notes) {
    let ranges = items(http, "expected_statuses");
    let mut statuses: Vec<u64> = Vec::new();
    for range in ranges {
        let number = |key: &str| get(range, key).and_then(Node::number).unwrap_or(0);
        // The end is exclusive.
        statuses.extend(number("start").max(200)..number("end").min(600));
    }
    statuses.sort_unstable();
    statuses.dedup();
    if ranges.is_empty() {
        statuses.push(200);
    } else if statuses.iter().copied().eq(200..400) {
        // The default.
        return;
    } else if statuses.is_empty() {
        let place = ranges.first().map_or(http.place, |range| range.place);
        let why = "`status` of `health` has statuses of 200 to 599";
        notes.omitted(place, format!("{what}: expected_statuses"), why);
        return;
    }
    let statuses: Vec<toml::Value> =
        statuses.into_iter().map(|it| i64::try_from(it).unwrap_or(200).into()).collect();
    health.insert("status".into(), statuses.into());
}

fn eject(outlier: &Node, settings: &mut Settings) {
    let number = |key: &str| get(outlier, key).and_then(Node::number);
    let mut eject = Table::new();
    let failures = number("consecutive_5xx").or(number("consecutive_gateway_failure")).unwrap_or(5);
    eject.insert(
        "consecutive_failures".into(),
        i64::try_from(failures.min(10_000)).unwrap_or(5).into(),
    );
    let time = duration(outlier, "base_ejection_time").unwrap_or(30_000).clamp(1_000, 3_600_000);
    eject.insert("for".into(), values::time(time).into());
    let max = number("max_ejection_percent").unwrap_or(10).clamp(1, 100);
    eject.insert("max".into(), format!("{max}%").into());
    settings.set("eject", eject);
}
