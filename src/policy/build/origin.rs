//! Parses a server of an upstream: `host:port`.

use std::net::Ipv6Addr;

use crate::config::diagnostic::{Diagnostic, Diagnostics};
use crate::config::spanned::Spanned;
use crate::config::suggest::cut;
use crate::net::address::{AddressError, HostPort};

/// Reads a server, or reports an error.
pub(super) fn origin(item: &Spanned<String>, diagnostics: &mut Diagnostics) -> Option<HostPort> {
    match parse(item.get_ref()) {
        Ok(origin) => Some(origin),
        Err((message, help)) => {
            diagnostics.push(Diagnostic::new(item.span(), message).help(help));
            None
        }
    }
}

/// A message and its help.
type Reason = (String, String);

fn parse(text: &str) -> Result<HostPort, Reason> {
    let looks_like =
        || "a server looks like `127.0.0.1:3000`, `[::1]:3000` or `api:3000`".to_owned();
    if text.starts_with("https://") {
        let help = "take a server without TLS, as `host:port`".to_owned();
        return Err(("TLS to upstreams is not supported yet".to_owned(), help));
    }
    if let Some((_, rest)) = text.split_once("://") {
        let authority = rest.split('/').next().unwrap_or("");
        let plain = authority.rsplit('@').next().unwrap_or("");
        let help = format!("write `{}`", cut(plain, 64));
        return Err(("a server is `host:port`, without a scheme".to_owned(), help));
    }
    if text.contains('/') {
        return Err(("a server is `host:port`, without a path".to_owned(), looks_like()));
    }
    let shown = cut(text, 64);
    HostPort::parse(text, None).map_err(|error| match error {
        AddressError::ExtraColon if text.parse::<Ipv6Addr>().is_ok() => {
            (format!("the server `{shown}` has no port"), format!("write `[{shown}]:80`"))
        }
        AddressError::NoPort => {
            (format!("the server `{shown}` has no port"), format!("write `{shown}:80`"))
        }
        AddressError::NotPort => {
            let message = format!("the server `{shown}` has no valid port");
            (message, "a port is a number from 1 to 65535".to_owned())
        }
        _ => (format!("`{shown}` is not a server"), looks_like()),
    })
}
