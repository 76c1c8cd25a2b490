//! `upstream` blocks, and the servers that `proxy_pass` names itself.

use toml::{Table, Value};

use super::scope::Scope;
use super::{Directive, Importer, Place};
use crate::import::note::Notes;
use crate::import::settings::{Imported, Settings};
use crate::import::values;

/// How an upstream is connected to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Scheme {
    Http,
    Https,
    Grpc,
    Grpcs,
}

// === impl Scheme ===

impl Scheme {
    /// The scheme of a URL, and what follows it.
    pub(super) fn split(url: &str) -> Option<(Self, &str)> {
        let (scheme, rest) = url.split_once("://").unwrap_or(("http", url));
        Some(match scheme {
            "http" => (Self::Http, rest),
            "https" => (Self::Https, rest),
            "grpc" => (Self::Grpc, rest),
            "grpcs" => (Self::Grpcs, rest),
            _ => return None,
        })
    }

    pub(super) fn has_tls(self) -> bool {
        matches!(self, Self::Https | Self::Grpcs)
    }

    fn port(self) -> u16 {
        if self.has_tls() { 443 } else { 80 }
    }

    /// Part of the name of an upstream, for those that are used in several ways.
    fn suffix(self) -> &'static str {
        match self {
            Self::Http => "",
            Self::Https => "-tls",
            Self::Grpc => "-grpc",
            Self::Grpcs => "-grpcs",
        }
    }
}

/// The name of the upstream for the authority of a `proxy_pass`: that of a block, or a server. It
/// is added if it is not there. None if it cannot be one.
pub(super) fn upstream(
    importer: &Importer<'_>,
    scheme: Scheme,
    authority: &str,
    scope: &Scope<'_>,
    place: Place,
    imported: &mut Imported,
) -> Option<String> {
    let is_block = |it: &&Directive| it.name == "upstream" && it.first() == authority;
    let block = importer.http.iter().find(is_block);
    let wanted = match block {
        Some(_) => format!("{authority}{}", scheme.suffix()),
        None => {
            values::with_port(authority, scheme.port())?;
            format!("{authority}{}", scheme.suffix())
        }
    };
    let mut settings = match block {
        Some(block) => of_block(block, scheme, &mut imported.notes),
        None => {
            let server = address(authority, scheme)?;
            Settings::default().with("servers", vec![Value::from(server)])
        }
    };
    let place = block.map_or(place, |block| block.place);
    of_scope(scheme, scope, &mut settings, &mut imported.notes);
    // The same servers with other time limits are another upstream.
    let same =
        imported.upstreams.iter().find(|known| known.place == place && known.settings == settings);
    let same = same.or_else(|| {
        imported.upstreams.iter().find(|known| block.is_none() && known.settings == settings)
    });
    if let Some(known) = same {
        return Some(known.name.clone());
    }
    Some(imported.upstreams.add(&wanted, place, settings))
}

/// Notes the blocks that no route uses.
pub(super) fn note_unused(importer: &Importer<'_>, imported: &mut Imported) {
    for block in importer.http.iter().filter(|it| it.name == "upstream") {
        if !imported.upstreams.iter().any(|known| known.place == block.place) {
            imported.notes.omitted(block.place, block.shown(), "no route forwards to it");
        }
    }
}

/// An address of a server, with `https://` if it has TLS.
fn address(authority: &str, scheme: Scheme) -> Option<String> {
    let address = values::with_port(authority, scheme.port())?;
    Some(if scheme.has_tls() { format!("https://{address}") } else { address })
}

fn of_block(block: &Directive, scheme: Scheme, notes: &mut Notes) -> Settings {
    let mut settings = Settings::default();
    let mut servers: Vec<Value> = Vec::new();
    for directive in block.inner() {
        match directive.name.as_str() {
            "server" => servers.extend(server(directive, scheme, &mut settings, notes)),
            "zone" | "keepalive" | "keepalive_timeout" | "keepalive_requests"
            | "keepalive_time" | "resolver" | "resolver_timeout" => {}
            "least_conn" => settings.set("balance", "least_request"),
            "ip_hash" => settings.set("balance", "hash:ip"),
            "random" => settings.set("balance", "random_two"),
            "hash" => hash(directive, &mut settings, notes),
            "sticky" if directive.first() == "cookie" => {
                if let Some(cookie) = directive.arguments.get(1) {
                    settings.change("sticky", |sticky| {
                        sticky.insert("cookie".into(), cookie.as_str().into());
                    });
                }
            }
            _ => notes.omitted(
                directive.place,
                directive.shown(),
                "the gateway has no such setting of an upstream",
            ),
        }
    }
    settings.set("servers", servers);
    settings
}

/// One `server` of a block.
fn server(
    directive: &Directive,
    scheme: Scheme,
    settings: &mut Settings,
    notes: &mut Notes,
) -> Option<Value> {
    if directive.has("down") {
        notes.omitted(
            directive.place,
            directive.shown(),
            "it is `down`: a server without requests is left out",
        );
        return None;
    }
    let Some(address) = address(directive.first(), scheme) else {
        let why = if directive.first().starts_with("unix:") {
            "servers over Unix sockets are not supported: let it listen on 127.0.0.1"
        } else {
            "it is no host with a port"
        };
        notes.omitted(directive.place, directive.shown(), why);
        return None;
    };
    let mut server = Table::new();
    if let Some(weight) = directive.value("weight").and_then(|it| it.parse::<i64>().ok()) {
        server.insert("weight".into(), weight.clamp(1, 1000).into());
    }
    if directive.has("backup") {
        server.insert("backup".into(), true.into());
    }
    let number = |name: &str| directive.value(name)?.parse::<i64>().ok();
    if let Some(failures) = number("max_fails") {
        eject(failures, directive.value("fail_timeout"), settings);
        notes.approximate(
            directive.place,
            directive.shown(),
            "`eject` is for all servers of the upstream, and counts failures in a row",
        );
    }
    if let Some(connections) = number("max_conns").filter(|number| *number > 0) {
        settings.set("max_connections", connections.min(1_000_000));
        notes.approximate(
            directive.place,
            directive.shown(),
            "`max_connections` is for all servers of the upstream together",
        );
    }
    if directive.has("resolve") || directive.value("service").is_some() {
        notes.approximate(
            directive.place,
            directive.shown(),
            "names are always looked up again when they expire",
        );
    }
    if server.is_empty() {
        return Some(address.into());
    }
    server.insert("address".into(), address.into());
    Some(server.into())
}

fn eject(failures: i64, time: Option<&str>, settings: &mut Settings) {
    let time = time.and_then(|time| values::milliseconds(time, 1000)).unwrap_or(10_000);
    settings.change("eject", |eject| {
        eject.insert("consecutive_failures".into(), failures.clamp(0, 10_000).into());
        eject.insert("for".into(), values::time(time.clamp(1_000, 3_600_000)).into());
    });
}

fn hash(directive: &Directive, settings: &mut Settings, notes: &mut Notes) {
    match crate::config::foreign::dimension(directive.first()).as_deref() {
        Some("ip") => settings.set("balance", "hash:ip"),
        Some(name) if name.starts_with("header:") => {
            settings.set("balance", format!("hash:{name}"));
        }
        _ => notes.omitted(
            directive.place,
            directive.shown(),
            "write `balance = \"hash:ip\"`, `\"hash:key\"` or `\"hash:header:<name>\"`",
        ),
    }
}

/// What the location says about connections to the upstream.
fn of_scope(scheme: Scheme, scope: &Scope<'_>, settings: &mut Settings, notes: &mut Notes) {
    match scheme {
        Scheme::Grpc => settings.set("protocol", "h2c"),
        Scheme::Grpcs => settings.set("protocol", "h2"),
        Scheme::Http | Scheme::Https => {}
    }
    for (theirs, own) in [
        ("connect_timeout", "connect_timeout"),
        ("read_timeout", "read_timeout"),
        ("send_timeout", "write_timeout"),
    ] {
        let kind = if matches!(scheme, Scheme::Grpc | Scheme::Grpcs) { "grpc" } else { "proxy" };
        let time = scope.one(&format!("{kind}_{theirs}"));
        if let Some(ms) = time.and_then(|it| values::milliseconds(it.first(), 1000)) {
            settings.set(own, values::time(ms));
        }
    }
    if !scheme.has_tls() {
        return;
    }
    for (theirs, own) in [
        ("proxy_ssl_trusted_certificate", "ca"),
        ("proxy_ssl_certificate", "cert"),
        ("proxy_ssl_certificate_key", "key"),
        ("proxy_ssl_name", "server_name"),
    ] {
        if let Some(directive) = scope.one(theirs).filter(|it| !it.first().contains('$')) {
            settings.change("tls", |tls| {
                tls.insert(own.into(), directive.first().into());
            });
        }
    }
    if !scope.is_on("proxy_ssl_verify")
        && let Some(pass) = scope.own().iter().find(|it| it.name.ends_with("_pass"))
    {
        notes.approximate(
            pass.place,
            pass.shown(),
            "the certificate of the server is always verified: for an authority of your own, set `tls = { ca = \"ca.pem\" }` of the \
             upstream",
        );
    }
}
