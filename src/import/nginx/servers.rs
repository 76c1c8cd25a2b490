//! `server` blocks: their listeners, certificates and hosts.

use toml::{Table, Value};

use super::limits::Zones;
use super::locations::{Locations, Path};
use super::scope::Scope;
use super::{Directive, Importer, Place, file_of, known, upstreams};
use crate::import::note::Notes;
use crate::import::settings::{Imported, Settings};
use crate::import::values;

/// What the locations of a server need to know about it.
#[derive(Debug)]
pub(super) struct Server {
    /// Hosts as gateway.toml writes them; none for all.
    pub(super) hosts: Vec<String>,
    has_tls: bool,
    /// Whether it is the only one with routes.
    pub(super) is_only: bool,
    /// Whether it has locations by prefix beside `/`.
    pub(super) has_prefixes: bool,
    /// How many routes come before its own.
    pub(super) first_route: usize,
}

/// An address that servers listen on.
#[derive(Debug)]
struct Listener {
    address: String,
    place: Place,
    settings: Settings,
    certificates: Vec<Value>,
    has_tls: bool,
    /// Whether all of its servers redirect to HTTPS.
    redirects: bool,
}

// === impl Server ===

impl Server {
    /// The value of `$server_name`.
    pub(super) fn name(&self) -> &str {
        self.hosts.first().map_or("", String::as_str)
    }

    /// The value of `$scheme`.
    pub(super) fn scheme(&self) -> &'static str {
        if self.has_tls { "https" } else { "http" }
    }
}

/// Takes over all servers.
pub(super) fn import(importer: &Importer<'_>, zones: &Zones, imported: &mut Imported) {
    let http = Scope::of(importer.http);
    let servers: Vec<&Directive> = importer.http.iter().filter(|it| it.name == "server").collect();
    let mut listeners: Vec<Listener> = Vec::new();
    for server in &servers {
        listen(&http.within(server.inner()), server, &mut listeners, &mut imported.notes);
    }
    let redirecting = |server: &Directive| redirects(server) && server_is_plain(server);
    let with_routes = servers.iter().filter(|server| !redirecting(server)).count();
    for server in &servers {
        for directive in server.inner() {
            known::note(directive, &mut imported.notes);
        }
        let scope = http.within(server.inner());
        trusted_proxies(&scope, server, servers.len() == 1, imported);
        if redirecting(server) {
            note_partial_redirect(server, &listeners, &mut imported.notes);
            continue;
        }
        let Some(hosts) = hosts(server, &mut imported.notes) else {
            let why = "the server is left out: without its names, its routes would be for all hosts. Write `host` in them";
            imported.notes.omitted(server.place, "server", why);
            continue;
        };
        let first_route = imported.routes.len();
        let own = Server {
            hosts,
            has_tls: has_tls(server),
            is_only: with_routes == 1,
            has_prefixes: has_prefixes(server.inner()),
            first_route,
        };
        routes(importer, zones, &scope, &own, server, imported);
        imported.serve(first_route, &addresses_of(server));
    }
    upstreams::note_unused(importer, imported);
    note_hosts(&servers, &mut imported.notes);
    write_listeners(listeners, imported);
}

fn routes(
    importer: &Importer<'_>,
    zones: &Zones,
    scope: &Scope<'_>,
    own: &Server,
    server: &Directive,
    imported: &mut Imported,
) {
    let locations = Locations { importer, zones, server: own };
    for directive in server.inner().iter().filter(|it| it.name == "if") {
        imported.notes.omitted(
            directive.place,
            directive.shown(),
            "there are no conditions: write a route with `host`, `methods`, `headers`, `query` or `cookies`",
        );
    }
    for directive in server.inner().iter().filter(|it| it.name == "rewrite") {
        let why = "write `redirect`, or `replace_prefix = { \"/old\" = \"/new\" }`, in a route of its own";
        imported.notes.omitted(directive.place, directive.shown(), why);
    }
    let answers = server.inner().iter().find(|it| it.name == "return");
    if let Some(answer) = answers {
        // It comes before all locations.
        locations.route(scope, &Path::all(answer.place), true, imported);
        return;
    }
    locations.add(scope, "/", imported);
    let has_locations = server.inner().iter().any(|it| it.name == "location");
    if !has_locations {
        locations.route(scope, &Path::all(server.place), true, imported);
    }
}

/// Whether a server only redirects to HTTPS: by `return`, by `rewrite`, by an `if` as certbot
/// writes it, or in `location /`.
fn redirects(server: &Directive) -> bool {
    let inner = server.inner();
    let to_https = |it: &Directive| {
        let target = it.arguments.last().map_or("", String::as_str);
        let target = if it.name == "rewrite" {
            it.arguments.get(1).map_or("", String::as_str)
        } else {
            target
        };
        matches!(it.name.as_str(), "return" | "rewrite")
            && target.starts_with("https://")
            && (target.contains("$request_uri") || target.contains("$uri") || target.contains("$1"))
            && ["$host", "$server_name", "$http_host"].iter().any(|host| target.contains(host))
    };
    let certbot = |it: &Directive| it.name == "if" && it.inner().iter().any(to_https);
    let root = |it: &Directive| {
        it.name == "location"
            && it.arguments.last().is_some_and(|path| path == "/")
            && it.inner().iter().any(to_https)
    };
    let is_other = |it: &Directive| {
        it.name == "location"
            && !root(it)
            && !it.first().contains("acme-challenge")
            && it.arguments.len() < 3
            && !it.arguments.iter().any(|path| path.contains("/.well-known/"))
    };
    inner.iter().any(|it| to_https(it) || certbot(it) || root(it)) && !inner.iter().any(is_other)
}

fn server_is_plain(server: &Directive) -> bool {
    !has_tls(server)
}

fn has_tls(server: &Directive) -> bool {
    server.inner().iter().any(|it| {
        (it.name == "listen" && it.has("ssl")) || (it.name == "ssl" && it.first() == "on")
    })
}

fn has_prefixes(directives: &[Directive]) -> bool {
    directives.iter().any(|it| {
        it.name == "location"
            && it.arguments.len() == 1
            && it.first() != "/"
            && it.first().starts_with('/')
    })
}

/// The hosts of a server; an empty list for all. None if it has names, and none of them can be
/// taken over.
fn hosts(server: &Directive, notes: &mut Notes) -> Option<Vec<String>> {
    let is_default = server
        .inner()
        .iter()
        .any(|it| it.name == "listen" && (it.has("default_server") || it.has("default")));
    let mut hosts = Vec::new();
    let mut is_all = is_default || !server.inner().iter().any(|it| it.name == "server_name");
    for directive in server.inner().iter().filter(|it| it.name == "server_name") {
        for name in &directive.arguments {
            let valid = |host: &str| {
                !host.is_empty()
                    && host.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '.' | '-'))
            };
            let name = name.to_ascii_lowercase();
            match name.as_str() {
                "_" | "" | "*" | "$hostname" => is_all = true,
                "localhost" if directive.arguments.len() == 1 => is_all = true,
                wildcard if wildcard.strip_prefix("*.").is_some_and(valid) => hosts.push(name),
                both if both.strip_prefix('.').is_some_and(valid) => {
                    hosts.extend([both[1..].to_owned(), format!("*{both}")]);
                }
                host if valid(host) => hosts.push(name),
                _ => notes.omitted(
                    directive.place,
                    format!("server_name {name}"),
                    "a host is a name, or `*.example.com` for all names below one",
                ),
            }
        }
    }
    if is_all { Some(Vec::new()) } else { Some(hosts).filter(|hosts| !hosts.is_empty()) }
}

/// `set_real_ip_from`.
fn trusted_proxies(scope: &Scope<'_>, server: &Directive, is_only: bool, imported: &mut Imported) {
    if let Some(own) = server.inner().iter().find(|it| it.name == "set_real_ip_from" && !is_only) {
        let why = "`server.trusted_proxies` is for all servers: these proxies are trusted on the others, too";
        imported.notes.approximate(own.place, own.shown(), why);
    }
    let header = scope.one("real_ip_header");
    if let Some(first) = scope.one("set_real_ip_from") {
        if header.is_none() {
            let why = "without `real_ip_header`, nginx reads `X-Real-IP`; here the address is that of `X-Forwarded-For`, which the proxy has to send";
            imported.notes.approximate(first.place, first.shown(), why);
        }
        let is_proxy = header.is_some_and(|it| it.first() == "proxy_protocol");
        if !is_proxy && !scope.is_on("real_ip_recursive") {
            let why = "nginx uses the last address of the header; here it is the last one that is no trusted proxy, as with `real_ip_recursive on`: clients in \
                this network can write another one before it";
            imported.notes.approximate(first.place, "real_ip_recursive off", why);
        }
    }
    for directive in scope.all("set_real_ip_from") {
        match values::network(directive.first()) {
            Some(network) => imported.server.extend("trusted_proxies", [network]),
            None => imported.notes.omitted(
                directive.place,
                directive.shown(),
                "a trusted proxy is an address or a network",
            ),
        }
    }
    if let Some(header) = header {
        let known = ["x-forwarded-for", "proxy_protocol"];
        if !known.contains(&header.first().to_ascii_lowercase().as_str()) {
            imported.notes.approximate(
                header.place,
                header.shown(),
                "the address is that of `X-Forwarded-For`, which the proxy has to send",
            );
        }
    }
}

/// Adds the addresses of a server to the listeners.
fn listen(scope: &Scope<'_>, server: &Directive, listeners: &mut Vec<Listener>, notes: &mut Notes) {
    let own = server.inner();
    let mut listens: Vec<(Place, Option<&Directive>)> =
        own.iter().filter(|it| it.name == "listen").map(|it| (it.place, Some(it))).collect();
    if listens.is_empty() {
        listens.push((server.place, None));
    }
    let certificates = certificates(scope, notes);
    let redirects = redirects(server);
    for (place, directive) in listens {
        let has = |flag: &str| directive.is_some_and(|it| it.has(flag));
        let text = directive.map_or("80", Directive::first);
        if has("quic") {
            notes.omitted(place, format!("listen {text} quic"), "the gateway has no HTTP/3");
            continue;
        }
        let Some(address) = address(text) else {
            notes.omitted(
                place,
                format!("listen {text}"),
                "an address is an IP address and a port, or a Unix socket",
            );
            continue;
        };
        let has_tls = has("ssl") || scope.is_on("ssl");
        let at = listeners.iter().position(|it| it.address == address);
        let listener = match at {
            Some(at) => &mut listeners[at],
            None => {
                listeners.push(Listener {
                    address,
                    place,
                    settings: Settings::default(),
                    certificates: Vec::new(),
                    has_tls: false,
                    redirects: true,
                });
                let last = listeners.len() - 1;
                &mut listeners[last]
            }
        };
        listener.has_tls |= has_tls;
        listener.redirects &= redirects;
        if has("proxy_protocol") {
            listener.settings.set("proxy_protocol", true);
        }
        if has_tls {
            for certificate in &certificates {
                if !listener.certificates.contains(certificate) {
                    listener.certificates.push(certificate.clone());
                }
            }
            tls(scope, listener, notes);
        } else if has("http2") || scope.is_on("http2") {
            listener.settings.set("http2", true);
        }
    }
}

/// The certificates of a server.
fn certificates(scope: &Scope<'_>, notes: &mut Notes) -> Vec<Value> {
    let keys = scope.all("ssl_certificate_key");
    let mut found = Vec::new();
    for (cert, key) in scope.all("ssl_certificate").into_iter().zip(keys) {
        if cert.first().contains('$') || cert.first().starts_with("data:") {
            notes.omitted(
                cert.place,
                cert.shown(),
                "certificates are files: list them in `certificates`",
            );
            continue;
        }
        let mut certificate = Table::new();
        certificate.insert("cert".into(), cert.first().into());
        certificate.insert("key".into(), key.first().into());
        if let Some(ocsp) = scope.one("ssl_stapling_file") {
            certificate.insert("ocsp".into(), ocsp.first().into());
        }
        found.push(certificate.into());
    }
    found
}

/// Client certificates and versions of TLS.
fn tls(scope: &Scope<'_>, listener: &mut Listener, notes: &mut Notes) {
    let verify = scope.one("ssl_verify_client").map_or("off", Directive::first);
    if let Some(ca) = scope.one("ssl_client_certificate")
        && verify != "off"
    {
        notes.approximate(
            ca.place,
            ca.shown(),
            "client certificates are asked for on the whole listener, also for its other servers",
        );
        let client = ClientAuth { ca: ca.first(), is_optional: verify.starts_with("optional") };
        client.add(listener, ca.place, notes);
    } else if let Some(directive) = scope.one("ssl_verify_client").filter(|_| verify != "off") {
        let why = "no `ssl_client_certificate` is beside it: write `client_ca` of the listener";
        notes.omitted(directive.place, directive.shown(), why);
    }
    if scope.one("ssl_protocols").is_some_and(|it| it.arguments == ["TLSv1.3"]) {
        listener.settings.set("min_tls", "1.3");
    }
}

/// What a server asks of clients.
struct ClientAuth<'a> {
    ca: &'a str,
    is_optional: bool,
}

impl ClientAuth<'_> {
    /// Adds it to what other servers of the listener ask for: the strictest is used.
    fn add(&self, listener: &mut Listener, place: Place, notes: &mut Notes) {
        let known = listener.settings.get("client_ca").and_then(Value::as_str).map(str::to_owned);
        let Some(known) = known else {
            listener.settings.set("client_ca", self.ca);
            if self.is_optional {
                listener.settings.set("client_auth", "optional");
            }
            return;
        };
        if known != self.ca {
            let why = format!(
                "a listener has one `client_ca`: {known} is used for all servers of {}. Give this server a port of its own",
                listener.address
            );
            notes.omitted(place, format!("ssl_client_certificate {}", self.ca), why);
        }
        let was_optional = listener.settings.get("client_auth").is_some();
        if was_optional != self.is_optional {
            listener.settings.remove("client_auth");
            let why = format!(
                "servers of {} differ: the strictest is used, a client certificate is required",
                listener.address
            );
            notes.approximate(place, "ssl_verify_client", why);
        }
    }
}

impl Listener {
    /// Takes over what another listener for the same requests has.
    fn merge(&mut self, other: Self, notes: &mut Notes) {
        self.has_tls |= other.has_tls;
        self.redirects &= other.redirects;
        for certificate in other.certificates {
            if !self.certificates.contains(&certificate) {
                self.certificates.push(certificate);
            }
        }
        if let Some(ca) = other.settings.get("client_ca").and_then(Value::as_str) {
            let is_optional = other.settings.get("client_auth").is_some();
            ClientAuth { ca, is_optional }.add(self, other.place, notes);
        }
        for (name, value) in other.settings.iter() {
            if !name.starts_with("client_") {
                self.settings.set(name, value.clone());
            }
        }
    }
}

/// The addresses of a server.
fn addresses_of(server: &Directive) -> Vec<String> {
    let listens = server.inner().iter().filter(|it| it.name == "listen");
    let addresses: Vec<String> = listens.filter_map(|it| address(it.first())).collect();
    if addresses.is_empty() { vec!["0.0.0.0:80".to_owned()] } else { addresses }
}

/// The address of `listen` with a port.
fn address(text: &str) -> Option<String> {
    if let Some(path) = text.strip_prefix("unix:") {
        return path.starts_with('/').then(|| format!("unix:{path}"));
    }
    if let Ok(port) = text.parse::<u16>() {
        return Some(format!("0.0.0.0:{port}"));
    }
    let address = values::with_port(&text.replacen('*', "0.0.0.0", 1), 80)?;
    let address = address.replacen("localhost:", "127.0.0.1:", 1);
    address.parse::<std::net::SocketAddr>().ok().map(|it| it.to_string())
}

fn write_listeners(mut listeners: Vec<Listener>, imported: &mut Imported) {
    // `[::]:80` accepts IPv4, too.
    let is_ipv4 = |it: &Listener, all: &[Listener]| {
        let port = it.address.strip_prefix("0.0.0.0:")?;
        all.iter().position(|other| other.address == format!("[::]:{port}"))
    };
    while let Some(at) = listeners.iter().position(|it| is_ipv4(it, &listeners).is_some()) {
        let other = listeners.remove(at);
        if let Some(both) = is_ipv4(&other, &listeners) {
            listeners[both].merge(other, &mut imported.notes);
        }
    }
    for listener in listeners {
        let Listener { address, place, mut settings, certificates, has_tls, redirects } = listener;
        if has_tls && certificates.is_empty() {
            imported.notes.omitted(
                place,
                format!("listen {address}"),
                "it has no certificate that can be taken over",
            );
            continue;
        }
        let mut table = Settings::default().with("address", address.as_str());
        if has_tls {
            table.set("certificates", certificates);
        } else if redirects {
            table.set("redirect", "https");
        }
        for (name, value) in std::mem::take(&mut settings).iter() {
            table.set(name, value.clone());
        }
        let is_plain = table.iter().count() == 1 && !address.starts_with("unix:");
        if is_plain {
            imported.server.extend("listen", [address]);
        } else {
            imported.listeners.push((place, table));
        }
    }
}

/// Notes a server that redirects beside others that do not, on one address.
fn note_partial_redirect(server: &Directive, listeners: &[Listener], notes: &mut Notes) {
    let addresses = addresses_of(server);
    let is_partial = |it: &&Listener| addresses.contains(&it.address) && !it.redirects;
    if let Some(listener) = listeners.iter().find(is_partial) {
        let why = format!(
            "`redirect` is for a whole listener, and {} has other servers: requests for this host are served there without TLS",
            listener.address
        );
        notes.omitted(server.place, "redirect to https", why);
    }
}

/// Notes that hosts without a server get 404.
fn note_hosts(servers: &[&Directive], notes: &mut Notes) {
    let mut with_routes = servers.iter().filter(|server| !redirects(server));
    let Some(first) = with_routes.next() else { return };
    let has_default = servers
        .iter()
        .flat_map(|server| server.inner())
        .any(|it| it.name == "listen" && (it.has("default_server") || it.has("default")));
    let names = |server: &Directive| {
        hosts(server, &mut Notes::default()).is_none_or(|hosts| !hosts.is_empty())
    };
    if !has_default && servers.iter().all(|server| names(server)) {
        notes.approximate(
            file_of(first.place),
            "server",
            "nginx serves other hosts by its first server; here they get 404: remove `host` from the routes to serve all",
        );
    }
}
