//! `[[listeners]]`. The addresses of `server.listen` are in `server`.

use std::ops::Range;
use std::path::PathBuf;

use super::environment::Environment;
use super::values::switch;
use super::{address, listener_tls};
use crate::base::text::cut;
use crate::config::Config;
use crate::config::diagnostic::{Diagnostic, Diagnostics};
use crate::config::spanned::Spanned;
use crate::config::{listener, listeners as written};
use crate::policy::listener::{ListenAddress, Listener};
use crate::policy::settings::Server;

/// What the address of a Unix socket begins with.
const UNIX: &str = "unix:";

/// Maximum length of the path of a Unix socket, in bytes: `sun_path` of the operating system
/// without the NUL at its end.
const MAX_SOCKET_PATH_BYTES: usize = 107;

/// Default permissions of a Unix socket.
const MODE: u32 = 0o660;

/// An address that is in use, and where the file has it; none for a default.
type Taken = (ListenAddress, Option<Range<usize>>);

/// All listeners: those of `server.listen`, then those of `[[listeners]]` without an error. With an
/// error there is no policy, so the indexes do not matter.
pub(super) fn listeners(
    config: &Config,
    server: Option<&Server>,
    environment: Environment<'_>,
    diagnostics: &mut Diagnostics,
) -> Vec<Listener> {
    let listen = server.map_or(&[][..], |server| &server.listen);
    let mut listeners: Vec<Listener> = listen.iter().copied().map(Listener::clear).collect();
    let tables = config.listeners.as_ref().map_or(&[][..], |list| list.get_ref());
    let has_tls = tables.iter().any(|table| table.get_ref().certificates.is_some());
    let mut taken = taken(config, server);
    for table in tables {
        let listener = table.get_ref();
        let address = address(table, diagnostics);
        if let (Some(address), Some(field)) = (&address, &listener.address) {
            check_is_free(address, field.span(), &taken, diagnostics);
            taken.push((address.clone(), Some(field.span())));
        }
        check_proxy_protocol(listener, server, diagnostics);
        check_redirect(listener, has_tls, diagnostics);
        let has_certificates = listener.certificates.is_some();
        let tls = listener_tls::tls(config, listener, environment, diagnostics);
        let hsts = listener_tls::hsts(listener, diagnostics);
        let Some(address) = address else { continue };
        listeners.push(Listener {
            address,
            tls,
            http2: listener.http2.as_ref().map_or(has_certificates, |http2| *http2.get_ref()),
            proxy_protocol: switch(&written::Listener::proxy_protocol, &listener.proxy_protocol),
            redirect: listener.redirect.as_ref().map(|redirect| *redirect.get_ref()),
            hsts,
        });
    }
    listeners
}

/// The addresses of `server.listen` and of the admin port.
fn taken(config: &Config, server: Option<&Server>) -> Vec<Taken> {
    let Some(server) = server else { return Vec::new() };
    let table = config.server.as_ref().map(Spanned::get_ref);
    let list = table.and_then(|table| table.listen.as_ref());
    let items = list.map_or(&[][..], |list| list.get_ref());
    let admin = table.and_then(|table| table.admin.as_ref()).map(Spanned::span);
    let spans = items.iter().map(|item| Some(item.span())).chain(std::iter::repeat(None));
    let listen = server.listen.iter().map(|address| ListenAddress::Tcp(*address)).zip(spans);
    listen.chain([(ListenAddress::Tcp(server.admin), admin)]).collect()
}

/// Reports an address that is in `taken`. Port 0 is a different port each time.
fn check_is_free(
    address: &ListenAddress,
    span: Range<usize>,
    taken: &[Taken],
    diagnostics: &mut Diagnostics,
) {
    let is_same = |(other, _): &&Taken| match (address, other) {
        (ListenAddress::Tcp(one), ListenAddress::Tcp(other)) => listener::overlap(*one, *other),
        (ListenAddress::Unix { path, .. }, ListenAddress::Unix { path: other, .. }) => {
            path == other
        }
        _ => false,
    };
    let Some((known, other)) = taken.iter().find(is_same) else { return };
    let shown = cut(&address.to_string(), 64);
    let has_equal = match (address, known) {
        (ListenAddress::Tcp(one), ListenAddress::Tcp(other)) => one == other,
        _ => true,
    };
    diagnostics.push(match (other, has_equal) {
        (Some(other), true) => Diagnostic::new(span, format!("`{shown}` is written twice"))
            .and(other.clone(), "here first")
            .help("give each listener and the admin port another address"),
        (Some(other), false) => {
            Diagnostic::new(span, format!("`{shown}` and `{known}` have the same port"))
                .and(other.clone(), "this is the other one")
                .help("give each listener and the admin port another address")
        }
        (None, _) => {
            let is = if has_equal { "is" } else { "has the port of" };
            Diagnostic::new(span, format!("`{shown}` {is} the default of `server.admin`"))
                .help("take another port, or set `admin` in `[server]`")
        }
    });
}

fn address(
    table: &Spanned<written::Listener>,
    diagnostics: &mut Diagnostics,
) -> Option<ListenAddress> {
    let listener = table.get_ref();
    let Some(field) = &listener.address else {
        if !diagnostics.explain_absence(&["listeners", "address"]) {
            let help = "write `address = \"0.0.0.0:443\"`";
            let diagnostic = Diagnostic::new(table.span(), "a listener has no `address`");
            diagnostics.push(diagnostic.help(help));
        }
        return None;
    };
    let mode = listener.mode.as_ref().map(|field| mode(field, diagnostics));
    let Some(path) = field.get_ref().strip_prefix(UNIX) else {
        if let Some(field) = &listener.mode {
            let message = "`mode` is for Unix sockets, and `address` is not one";
            diagnostics.push(Diagnostic::new(field.span(), message).help("leave it out"));
        }
        return address::socket("address", field, diagnostics).map(ListenAddress::Tcp);
    };
    let (message, help) = if path.starts_with("//") {
        let path = format!("/{}", path.trim_start_matches('/'));
        let help = format!("write `{UNIX}{}`", cut(&path, 64));
        ("the path of a Unix socket follows `unix:` without `//`", help)
    } else if !path.starts_with('/') || path.len() < 2 || path.contains('\0') {
        let help = "it looks like `unix:/run/tollgate.sock`".to_owned();
        ("a Unix socket has an absolute path", help)
    } else if path.len() > MAX_SOCKET_PATH_BYTES {
        let help = "shorten it, or use a link to its folder".to_owned();
        ("the path of a Unix socket has at most 107 bytes", help)
    } else {
        return Some(ListenAddress::Unix {
            path: PathBuf::from(path),
            mode: mode.unwrap_or(Some(MODE))?,
        });
    };
    diagnostics.push(Diagnostic::new(field.span(), message).help(help));
    None
}

/// Permissions in three octal digits, with or without a 0 before them.
fn mode(field: &Spanned<String>, diagnostics: &mut Diagnostics) -> Option<u32> {
    let text = field.get_ref();
    let digits = text.strip_prefix('0').filter(|rest| rest.len() == 3).unwrap_or(text);
    let is_octal = digits.len() == 3 && digits.bytes().all(|byte| (b'0'..=b'7').contains(&byte));
    let mode = u32::from_str_radix(digits, 8).ok().filter(|_| is_octal);
    if mode.is_none() {
        let message = format!("`{}` is not the permissions of a file", cut(text, 64));
        let help = "write octal digits such as `\"0660\"`, which is the default, or `\"0600\"`";
        diagnostics.push(Diagnostic::new(field.span(), message).help(help));
    }
    mode
}

/// Reports the PROXY protocol without anyone that may speak it. The permissions of a Unix socket
/// say who may.
fn check_proxy_protocol(
    listener: &written::Listener,
    server: Option<&Server>,
    diagnostics: &mut Diagnostics,
) {
    let Some(field) = listener.proxy_protocol.as_ref().filter(|field| *field.get_ref()) else {
        return;
    };
    let is_unix =
        listener.address.as_ref().is_some_and(|address| address.get_ref().starts_with(UNIX));
    let has_proxies = server.is_none_or(|server| !server.trusted_proxies.is_empty());
    if is_unix || has_proxies || diagnostics.explain_absence(&["server", "trusted_proxies"]) {
        return;
    }
    let message = "`proxy_protocol` accepts only `server.trusted_proxies`, and there are none";
    let help =
        "write `trusted_proxies = [\"10.0.0.0/8\"]` in `[server]`, with the address of the proxy";
    diagnostics.push(Diagnostic::new(field.span(), message).help(help));
}

/// Reports a redirect to where no listener is, or from a listener with TLS.
fn check_redirect(listener: &written::Listener, has_tls: bool, diagnostics: &mut Diagnostics) {
    let Some(field) = &listener.redirect else { return };
    let diagnostic = if let Some(certificates) = &listener.certificates {
        Diagnostic::new(field.span(), "`redirect` is for a listener without `certificates`")
            .and(certificates.span(), "this listener serves HTTPS already")
            .help(
                "write `redirect` in another listener, such as one with `address = \"0.0.0.0:80\"`",
            )
    } else if !has_tls {
        if diagnostics.explain_absence(&["listeners", "certificates"]) {
            return;
        }
        Diagnostic::new(field.span(), "`redirect` leads to HTTPS, which no listener serves")
            .help("add a listener with `certificates`, such as `address = \"0.0.0.0:443\"`")
    } else {
        return;
    };
    diagnostics.push(diagnostic);
}
