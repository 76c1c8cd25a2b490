//! Entry points as listeners, with the certificates.

use toml::{Table, Value};

use super::Files;
use super::routers::Uses;
use crate::import::common::{list, listen};
use crate::import::note::Place;
use crate::import::settings::{Imported, Settings};
use crate::import::values;
use crate::import::yaml::Node;

/// An entry point.
#[derive(Debug)]
#[allow(clippy::struct_excessive_bools, reason = "each is a setting of its own")]
pub(super) struct EntryPoint<'a> {
    pub(super) name: &'a str,
    place: Place,
    pub(super) address: String,
    /// Name of its `tls.options`.
    options: &'a str,
    pub(super) has_tls: bool,
    redirects: bool,
    proxy_protocol: bool,
    /// Whether it is one of those of routers that name none.
    pub(super) is_default: bool,
    /// Networks whose `X-Forwarded-For` is used.
    trusted: Vec<&'a str>,
    /// Names of those of all of its routers.
    pub(super) middlewares: Vec<&'a str>,
}

/// The entry points of the files, and what they say about the whole file.
pub(super) fn entry_points<'a>(files: &Files<'a>, imported: &mut Imported) -> Vec<EntryPoint<'a>> {
    let mut found = Vec::new();
    for pair in files.pairs(&["entryPoints"]).chain(files.pairs(&["entrypoints"])) {
        let value = &pair.value;
        let text = value.text_at(&["address"]).unwrap_or_default();
        let what = format!("entry point {}", pair.key);
        let Some(address) = address(text) else {
            imported.notes.omitted(pair.place, what, "the gateway listens on addresses for TCP");
            continue;
        };
        for path in [["forwardedHeaders", "trustedIPs"], ["proxyProtocol", "trustedIPs"]] {
            let networks = value.at(&path).map(Node::texts).unwrap_or_default();
            imported
                .server
                .extend("trusted_proxies", networks.into_iter().filter_map(values::network));
        }
        for path in [["forwardedHeaders", "insecure"], ["proxyProtocol", "insecure"]] {
            if value.at(&path).and_then(Node::flag) == Some(true) {
                let why = "forwarded addresses are trusted from `server.trusted_proxies` only: list the proxies";
                imported.notes.omitted(pair.place, format!("{what}: {}", path.join(".")), why);
            }
        }
        timeouts(value, imported);
        if value.get("http3").is_some() {
            imported.notes.omitted(
                pair.place,
                format!("{what}: http3"),
                "the gateway has no HTTP/3",
            );
        }
        let http = |path: &[&str]| value.get("http").and_then(|http| http.at(path));
        let to_https = http(&["redirections", "entryPoint"])
            .is_some_and(|to| to.text_at(&["scheme"]).is_none_or(|scheme| scheme == "https"));
        found.push(EntryPoint {
            name: &pair.key,
            place: pair.place,
            address,
            options: http(&["tls", "options"]).and_then(Node::text).unwrap_or("default"),
            has_tls: value.get("http").is_some_and(|http| http.has("tls")),
            redirects: to_https,
            proxy_protocol: value.at(&["proxyProtocol", "trustedIPs"]).is_some(),
            is_default: value.get("asDefault").and_then(Node::flag) == Some(true),
            trusted: value
                .at(&["forwardedHeaders", "trustedIPs"])
                .map(Node::texts)
                .unwrap_or_default(),
            middlewares: http(&["middlewares"]).map(Node::texts).unwrap_or_default(),
        });
    }
    let differs = |point: &&EntryPoint<'_>| {
        let others = found.iter().filter(|other| !other.redirects);
        !point.trusted.is_empty() && others.into_iter().any(|other| other.trusted != point.trusted)
    };
    for point in found.iter().filter(differs) {
        let what = format!("entry point {}: forwardedHeaders.trustedIPs", point.name);
        let why = "`server.trusted_proxies` is for all listeners: these proxies are trusted on the others, too";
        imported.notes.approximate(point.place, what, why);
    }
    found
}

fn timeouts(value: &Node, imported: &mut Imported) {
    let time = |name: &str| {
        let text = value.text_at(&["transport", "respondingTimeouts", name])?;
        values::milliseconds(text, 1000)
            .filter(|ms| *ms >= 1000)
            .map(|ms| values::time(ms / 1000 * 1000))
    };
    for (theirs, own) in [
        ("readTimeout", "read_timeout"),
        ("writeTimeout", "write_timeout"),
        ("idleTimeout", "keepalive_timeout"),
    ] {
        if let Some(time) = time(theirs) {
            imported.server.set(own, time);
        }
    }
}

/// `:443`, `127.0.0.1:80/tcp`.
fn address(text: &str) -> Option<String> {
    let text = text.strip_suffix("/tcp").unwrap_or(text);
    let text = if text.starts_with(':') { format!("0.0.0.0{text}") } else { text.to_owned() };
    text.parse::<std::net::SocketAddr>().ok().map(|address| address.to_string())
}

/// Writes the listeners.
pub(super) fn write(
    files: &Files<'_>,
    mut entry_points: Vec<EntryPoint<'_>>,
    uses: &Uses,
    imported: &mut Imported,
) {
    let certificates = certificates(files);
    if entry_points.is_empty() {
        entry_points = assumed(uses, &certificates, imported);
    }
    let acme = !uses.domains.is_empty() && acme(files, uses, imported);
    for point in entry_points {
        let EntryPoint { name, place, address, .. } = &point;
        let redirects =
            point.redirects || uses.redirecting.contains(*name) && !uses.serving.contains(*name);
        let mut listener = Settings::default().with("address", address.as_str());
        if point.has_tls || uses.with_tls.contains(*name) && !redirects {
            let mut all = certificates.clone();
            if acme {
                all.push("acme".into());
            }
            if all.is_empty() {
                let why = "it has TLS, and no certificate is in the files: list some in `certificates`, or write `[acme]`";
                imported.notes.omitted(*place, format!("entry point {name}"), why);
                continue;
            }
            listener.set("certificates", all);
            if !options(files, &point, &mut listener, imported) {
                continue;
            }
        } else if redirects {
            listener.set("redirect", "https");
        } else if !point.proxy_protocol {
            listen(imported, address.clone());
            continue;
        }
        if point.proxy_protocol {
            listener.set("proxy_protocol", true);
        }
        imported.listeners.push((*place, listener));
    }
}

/// Takes over `tls.options` of an entry point. Returns false if it requires client certificates
/// that cannot be verified, which is noted.
fn options(
    files: &Files<'_>,
    point: &EntryPoint<'_>,
    listener: &mut Settings,
    imported: &mut Imported,
) -> bool {
    let what = format!("entry point {}: tls.options {}", point.name, point.options);
    let notes = &mut imported.notes;
    let Some(found) = files.entry(&["tls", "options"], point.options) else {
        if point.options != "default" {
            notes.omitted(
                point.place,
                what,
                "it is in none of the files: the listener is left out",
            );
            return false;
        }
        return true;
    };
    let value = &found.value;
    match value.text_at(&["minVersion"]) {
        Some("VersionTLS13") => listener.set("min_tls", "1.3"),
        Some("VersionTLS10" | "VersionTLS11") => {
            notes.approximate(found.place, format!("{what}: minVersion"), "it is TLS 1.2");
        }
        _ => {}
    }
    for unknown in ["maxVersion", "cipherSuites", "curvePreferences", "alpnProtocols", "sniStrict"]
    {
        if let Some(node) = value.get(unknown) {
            let why = "listeners have `certificates`, `min_tls` and `client_ca`";
            notes.omitted(node.place, format!("{what}: {unknown}"), why);
        }
    }
    let Some(auth) = value.get("clientAuth") else { return true };
    let what = format!("{what}: clientAuth");
    let files = auth.get("caFiles").map(Node::texts).unwrap_or_default();
    let kind = auth.text_at(&["clientAuthType"]).unwrap_or("NoClientCert");
    match (kind, files.as_slice()) {
        ("RequireAndVerifyClientCert", [ca, ..]) => listener.set("client_ca", *ca),
        ("VerifyClientCertIfGiven", [ca, ..]) => {
            listener.set("client_ca", *ca);
            listener.set("client_auth", "optional");
        }
        ("RequireAndVerifyClientCert" | "RequireAnyClientCert", _) => {
            let why = "client certificates are verified by `client_ca`: the listener is left out, write it with one";
            notes.omitted(auth.place, what, why);
            return false;
        }
        (kind, _) => {
            let why = "certificates that are not verified are not asked for: write `client_ca`";
            notes.omitted(auth.place, format!("{what}: {kind}"), why);
        }
    }
    if files.len() > 1 {
        let why = "a listener has one `client_ca`, the first is used: join the files in one";
        notes.omitted(auth.place, format!("{what}: caFiles"), why);
    }
    true
}

/// Listeners for files without entry points, which are in Traefik's static configuration.
fn assumed<'a>(
    uses: &Uses,
    certificates: &[Value],
    imported: &mut Imported,
) -> Vec<EntryPoint<'a>> {
    let has_tls = !uses.with_tls.is_empty() || !certificates.is_empty();
    imported.notes.approximate(
        Place::default(),
        "entryPoints",
        "the files have none: the listeners are assumed. Name the static configuration as another argument",
    );
    let point = |address: &str, has_tls: bool, redirects: bool| EntryPoint {
        name: "",
        place: Place::default(),
        address: address.to_owned(),
        options: "default",
        has_tls,
        redirects,
        proxy_protocol: false,
        is_default: false,
        trusted: Vec::new(),
        middlewares: Vec::new(),
    };
    if has_tls {
        vec![point("0.0.0.0:80", false, true), point("0.0.0.0:443", true, false)]
    } else {
        vec![point("0.0.0.0:80", false, false)]
    }
}

/// `tls.certificates`, and the default one first.
fn certificates(files: &Files<'_>) -> Vec<Value> {
    let tls = files.documents.iter().filter_map(|document| document.get("tls"));
    let mut found: Vec<Value> = Vec::new();
    for tls in tls {
        let default = tls.at(&["stores", "default", "defaultCertificate"]);
        let listed = tls.get("certificates").map(Node::items).unwrap_or_default();
        for node in default.into_iter().chain(listed) {
            let (Some(cert), Some(key)) = (node.text_at(&["certFile"]), node.text_at(&["keyFile"]))
            else {
                continue;
            };
            let mut certificate = Table::new();
            certificate.insert("cert".into(), cert.into());
            certificate.insert("key".into(), key.into());
            if !found.contains(&Value::from(certificate.clone())) {
                found.push(certificate.into());
            }
        }
    }
    found
}

/// `[acme]` of the first resolver. Returns whether there is one.
fn acme(files: &Files<'_>, uses: &Uses, imported: &mut Imported) -> bool {
    let names: Vec<&str> =
        uses.domains.iter().map(String::as_str).filter(|domain| !domain.starts_with('*')).collect();
    for wildcard in uses.domains.iter().filter(|domain| domain.starts_with('*')) {
        let why = "a wildcard needs certificate files: the gateway does not have dns-01";
        imported.notes.omitted(Place::default(), wildcard, why);
    }
    if names.is_empty() {
        return false;
    }
    let resolver =
        files.pairs(&["certificatesResolvers"]).find(|it| it.value.get("acme").is_some());
    imported.acme.set("domains", list(names));
    imported.acme.set("storage", "acme");
    let Some(resolver) = resolver else { return true };
    if let Some(acme) = resolver.value.get("acme") {
        if let Some(email) = acme.text_at(&["email"]) {
            imported.acme.set("email", email);
        }
        if let Some(directory) = acme.text_at(&["caServer"]) {
            imported.acme.set("directory", directory);
        }
        if acme.get("tlsChallenge").is_some() {
            imported.acme.set("challenge", "tls-alpn-01");
        }
        if let Some(dns) = acme.get("dnsChallenge") {
            let why = "the gateway does not have dns-01: http-01 needs port 80, tls-alpn-01 port 443, from the Internet";
            imported.notes.approximate(dns.place, "dnsChallenge", why);
        }
        if let Some(storage) = acme.get("storage") {
            let why = "the accounts and certificates of Traefik are not read: new ones are ordered, in the folder `acme`";
            imported.notes.approximate(storage.place, "storage", why);
        }
    }
    true
}
