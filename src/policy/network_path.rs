//! Paths that begin with two slashes, as servers read them that take what follows for a host.
//!
//! A network-path reference (RFC 3986, section 4.2): `new URL(…)` of JavaScript and Python's
//! `urlparse` parse `//x/api` as the host `x` and the path `/api`.

use std::net::Ipv4Addr;

use super::hosts::normalized;
use super::path::Readings;
use crate::net::address::Authority;

/// What separates segments to such a server.
const SLASHES: [char; 2] = ['/', '\\'];

/// A path that begins with two slashes, as such servers read it.
#[derive(Debug)]
pub struct NetworkPath<'a> {
    /// What they take for the host, as received: with its port, and not decoded.
    pub authority: &'a str,
    /// The host as routes compare it; `None` if servers can read the authority as more than one
    /// host, or refuse it.
    pub host: Option<String>,
    /// The readings of the rest of the path.
    pub readings: Readings<'static>,
}

/// The authority and the path after it; `None` if the path does not begin with two slashes.
pub(super) fn split(path: &str) -> Option<(&str, &str)> {
    let rest = path.strip_prefix('/')?.strip_prefix(SLASHES)?.trim_start_matches(SLASHES);
    Some(rest.find(SLASHES).map_or((rest, "/"), |end| rest.split_at(end)))
}

/// The host of an authority as routes compare it; `None` if it is not plain. A URL parser decodes
/// `%61`, maps characters beyond ASCII, and reads `0x7f.1` as `127.0.0.1`; other servers do not.
pub(super) fn host(authority: &str) -> Option<String> {
    let host = authority.split_once('@').map_or(authority, |(_, host)| host);
    let parts = Authority::split(host).ok()?;
    let is_port = parts.port.is_none_or(|port| port.bytes().all(|byte| byte.is_ascii_digit()));
    let is_name_byte =
        |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_');
    let is_plain = parts.in_brackets().is_some() || parts.host.bytes().all(is_name_byte);
    let normalized = normalized(host);
    (is_port && is_plain && !is_odd_address(&normalized)).then(|| normalized.into_owned())
}

/// Whether a URL parser takes the host for an IPv4 address (URL standard, "ends in a number
/// checker"), which is written in another way than with four numbers.
fn is_odd_address(host: &str) -> bool {
    let last = host.rsplit('.').next().unwrap_or_default();
    let is_hexadecimal = last
        .strip_prefix("0x")
        .is_some_and(|digits| digits.bytes().all(|byte| byte.is_ascii_hexdigit()));
    let is_decimal = !last.is_empty() && last.bytes().all(|byte| byte.is_ascii_digit());
    (is_hexadecimal || is_decimal) && host.parse::<Ipv4Addr>().is_err()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn authority_is_what_follows_the_slashes() {
        let table = [
            ("//x/api", Some(("x", "/api"))),
            ("///x:80/api/", Some(("x:80", "/api/"))),
            ("/\\x\\api", Some(("x", "\\api"))),
            ("//x", Some(("x", "/"))),
            ("//", Some(("", "/"))),
            ("/x", None),
            ("/%2fx", None),
            ("*", None),
        ];
        for (path, expected) in table {
            assert_eq!(split(path), expected, "{path}");
        }
    }

    #[test]
    fn host_is_that_of_a_url_or_uncertain() {
        let table = [
            ("Dear.TEST", Some("dear.test")),
            ("dear.test.:80", Some("dear.test")),
            ("u:p@dear.test:", Some("dear.test")),
            ("[2001:DB8:0::1]:80", Some("[2001:db8::1]")),
            ("192.0.2.1", Some("192.0.2.1")),
            ("", Some("")),
            ("de%61r.test", None),
            ("d\u{ef}ar.test", None),
            ("a@b@dear.test", None),
            ("dear.test:80:80", None),
            ("dear.test:x", None),
            ("dear.test;x", None),
            ("0x7f.1", None),
            ("2130706433", None),
            ("010.0.0.1", None),
            ("[::1", None),
        ];
        for (authority, expected) in table {
            assert_eq!(host(authority).as_deref(), expected, "{authority}");
        }
    }
}
