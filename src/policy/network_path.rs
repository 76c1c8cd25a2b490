//! Paths that begin with two slashes, as servers read them that take what follows for a host.
//!
//! A network-path reference (RFC 3986, section 4.2): `new URL(…)` of JavaScript and Python's
//! `urlparse` parse `//x/api` as the host `x` and the path `/api`. Servers that decode a path
//! before they parse it do the same with `/%2Fx/api`.

use std::borrow::Cow;
use std::net::Ipv4Addr;

use super::hosts::normalized;
use super::path::Readings;
use crate::net::address::Authority;
use crate::net::percent;

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

/// Whether a path begins with two slashes, the second in any spelling.
pub(super) fn is(path: &[u8]) -> bool {
    path.strip_prefix(b"/").is_some_and(|rest| slash(rest).is_some())
}

/// The authority and the path after it; `None` if the path does not begin with two slashes, the
/// second in any spelling.
pub(super) fn split(path: &str) -> Option<(&str, Cow<'_, str>)> {
    let rest = path.strip_prefix('/')?;
    if let Some(rest) = rest.strip_prefix(SLASHES) {
        let rest = rest.trim_start_matches(SLASHES);
        let (authority, path) = rest.find(SLASHES).map_or((rest, "/"), |end| rest.split_at(end));
        return Some((authority, path.into()));
    }
    // To a server that decodes first, all spellings are slashes.
    slash(rest.as_bytes())?;
    let rest = after_slashes(rest);
    let end = (0..rest.len()).find(|at| slash(&rest.as_bytes()[*at..]).is_some());
    let (authority, path) = rest.split_at(end.unwrap_or(rest.len()));
    let width = slash(path.as_bytes()).unwrap_or(0);
    Some((authority, format!("/{}", path.get(width..).unwrap_or_default()).into()))
}

/// Length of the slash that a text begins with, plain or percent-encoded; `None` if it begins with
/// none.
fn slash(text: &[u8]) -> Option<usize> {
    match text {
        [b'/' | b'\\', ..] => Some(1),
        _ => matches!(percent::escape(text), Some(b'/' | b'\\')).then_some(3),
    }
}

fn after_slashes(mut text: &str) -> &str {
    while let Some(width) = slash(text.as_bytes()) {
        text = text.get(width..).unwrap_or_default();
    }
    text
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
            ("/%2fx/api", Some(("x", "/api"))),
            ("/%5Cx%2Fapi%2fy", Some(("x", "/api%2fy"))),
            ("/%2F/\\%2fx:80", Some(("x:80", "/"))),
            ("/%2f%78/%20", Some(("%78", "/%20"))),
            ("/%2fx%", Some(("x%", "/"))),
            ("//x%2fapi", Some(("x%2fapi", "/"))),
            ("/x", None),
            ("/x%2f", None),
            ("/%2", None),
            ("/%252fx", None),
            ("*", None),
        ];
        for (path, expected) in table {
            let split = split(path);
            let split = split.as_ref().map(|(authority, rest)| (*authority, &**rest));
            assert_eq!(split, expected, "{path}");
            assert_eq!(is(path.as_bytes()), expected.is_some(), "{path}");
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
