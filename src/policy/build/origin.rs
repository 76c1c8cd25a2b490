//! One server behind an upstream, as it is written: `host:port`.

use std::net::{Ipv4Addr, Ipv6Addr};

use crate::config::diagnostic::{Diagnostic, Diagnostics};
use crate::config::spanned::Spanned;
use crate::config::suggest::cut;
use crate::policy::settings::Origin;

/// The longest name that DNS knows.
const MAX_HOST_BYTES: usize = 253;

/// Reads a server; an error when it is none.
pub(super) fn origin(item: &Spanned<String>, diagnostics: &mut Diagnostics) -> Option<Origin> {
    match parse(item.get_ref()) {
        Ok(origin) => Some(origin),
        Err((message, help)) => {
            diagnostics.push(Diagnostic::new(item.span(), message).help(help));
            None
        }
    }
}

/// What is wrong, and what to write.
type Reason = (String, String);

fn parse(text: &str) -> Result<Origin, Reason> {
    let shown = cut(text, 64);
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
    if text.parse::<Ipv6Addr>().is_ok() {
        let help = format!("write `[{shown}]:80`");
        return Err((format!("the server `{shown}` has no port"), help));
    }
    let Some((host, port)) = text.rsplit_once(':').filter(|_| !text.ends_with(']')) else {
        return Err((format!("the server `{shown}` has no port"), format!("write `{shown}:80`")));
    };
    let port = match port.parse::<u16>() {
        Ok(port) if port > 0 && !port_has_sign(text) => port,
        _ => {
            let message = format!("the server `{shown}` has no valid port");
            return Err((message, "a port is a number from 1 to 65535".to_owned()));
        }
    };
    let inner = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
    let host = match inner {
        Some(inner) if inner.parse::<Ipv6Addr>().is_ok() => inner,
        None if is_host(host) => host,
        _ => return Err((format!("`{shown}` is not a server"), looks_like())),
    };
    Ok(Origin { host: host.to_ascii_lowercase(), port })
}

/// `+80` parses as a number and is no port.
fn port_has_sign(text: &str) -> bool {
    text.rsplit(':').next().is_some_and(|port| port.starts_with('+'))
}

/// Whether a text is a name that can be looked up, or an IPv4 address.
pub(super) fn is_host(host: &str) -> bool {
    let is_label = |label: &str| {
        !label.is_empty()
            && label.len() <= 63
            && label.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_'))
    };
    let is_number = host.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
    let labels = host.strip_suffix('.').unwrap_or(host);
    host.len() <= MAX_HOST_BYTES
        && labels.split('.').all(is_label)
        && (!is_number || host.parse::<Ipv4Addr>().is_ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn servers_are_a_host_and_a_port() {
        let table = [
            ("127.0.0.1:3000", "127.0.0.1", 3000),
            ("[::1]:3000", "::1", 3000),
            ("API.example.com:80", "api.example.com", 80),
            ("api_1:65535", "api_1", 65535),
        ];
        for (text, host, port) in table {
            assert_eq!(parse(text), Ok(Origin { host: host.to_owned(), port }), "{text}");
        }
        let wrong = [
            "",
            ":",
            ":80",
            "api",
            "api:",
            "api:0",
            "api:65536",
            "api:+80",
            "api:80:80",
            "::1",
            "[::1]",
            "[::1:80",
            "[api]:80",
            "999.1.1.1:80",
            "a b:80",
            "http://api:80",
            "api:80/x",
            "https://api",
            "a..b:80",
            "\u{e4}:80",
        ];
        for text in wrong {
            assert!(parse(text).is_err(), "{text}");
        }
    }
}
