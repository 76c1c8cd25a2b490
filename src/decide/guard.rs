//! Rejects malformed requests: too large, or ambiguous between servers.

use std::net::Ipv6Addr;

use http::{HeaderMap, Method, Version, header};

use super::Head;
use super::raw_head::RawHead;
use crate::net::address::Authority;
use crate::net::framing::connection_options;
use crate::net::url_target::UrlTarget;
use crate::policy::settings::Server;

/// Most options of `Connection` that are read. Pingora forwards no request to HTTP/1.1 with more.
const MOST_OPTIONS: usize = 9;

/// Why a request cannot be forwarded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Malformed {
    /// HTTP/1.1 without `Host`, or a host only in the target (RFC 9112, section 3.2).
    NoHost,
    /// An invalid host (RFC 9112, section 3.2).
    InvalidHost,
    /// A target that is the URL of another host than `Host` (RFC 9112, section 3.2.2). Over
    /// HTTP/1.1, Pingora refuses it before.
    OtherHost,
    /// A target that is neither a path nor a URL nor `*` (RFC 9112, section 3.2).
    InvalidTarget,
    /// CONNECT: the client asks for a tunnel, which only a forward proxy opens.
    Connect,
    /// A method with lower-case letters. None is registered, and some servers read `get` as `GET`.
    LowercaseMethod,
    /// Both `Content-Length` and `Transfer-Encoding`: servers that use different ones read
    /// different requests (RFC 9112, section 6.3).
    ConflictingLengths,
    /// A header value over HTTP/2 that begins or ends with a space or a tab (RFC 9113, section
    /// 8.2.1). HTTP/1.1 does not count them to the value, so the upstream would read another one
    /// than the gateway.
    SpaceAroundValue,
    /// A line of the head ends with LF without CR (RFC 9112, section 2.2, lets a server accept it).
    BareLineFeed,
    /// An `Expect` other than `100-continue`. Servers disagree on what follows: some refuse the
    /// request without reading its body (RFC 9110, section 10.1.1).
    UnsupportedExpectation,
    /// A body with another coding than `chunked`, or chunked twice. Pingora would decode the chunks
    /// and forward the rest as not encoded (RFC 9112, section 6.1).
    UnsupportedCoding,
    /// `Connection` has an option that is no token, more than [`MOST_OPTIONS`], or names a header
    /// that must be forwarded, as `Host` (RFC 9110, section 7.6.1).
    InvalidConnection,
    /// A target longer than `server.max_uri_bytes`.
    UriTooLong,
    /// Header lines larger than `server.max_header_bytes`.
    HeadersTooLarge,
    /// More header lines than `server.limits.max_headers`.
    TooManyHeaders,
}

/// Checks a request's head.
///
/// # Errors
/// The first reason to reject the request.
pub fn check(server: &Server, head: &Head<'_>) -> Result<(), Malformed> {
    if *head.method == Method::CONNECT {
        return Err(Malformed::Connect);
    }
    if head.target.len() > server.max_uri_bytes {
        return Err(Malformed::UriTooLong);
    }
    if head.headers.len() > server.limits.max_headers {
        return Err(Malformed::TooManyHeaders);
    }
    // The size on the wire: each line has a colon, a space and a line break, too.
    let line = |(name, value): (&http::HeaderName, &http::HeaderValue)| {
        name.as_str().len() + value.len() + 4
    };
    if head.headers.iter().map(line).sum::<usize>() > server.max_header_bytes {
        return Err(Malformed::HeadersTooLarge);
    }
    if head.version == Version::HTTP_2 && head.headers.values().any(has_outer_space) {
        return Err(Malformed::SpaceAroundValue);
    }
    if head.method.as_str().bytes().any(|byte| byte.is_ascii_lowercase()) {
        return Err(Malformed::LowercaseMethod);
    }
    let target = Target::of(head.target).ok_or(Malformed::InvalidTarget)?;
    check_host(head.headers, head.version, target)?;
    let host = head.headers.get(header::HOST).map(http::HeaderValue::as_bytes);
    if let (Some(url), Some(host)) = (UrlTarget::of(head.target), host)
        && !url.is_of_host(host)
    {
        return Err(Malformed::OtherHost);
    }
    match head.raw {
        RawHead::Plain => {}
        RawHead::ConflictingLengths => return Err(Malformed::ConflictingLengths),
        RawHead::BareLineFeed => return Err(Malformed::BareLineFeed),
    }
    let options = || connection_options(head.headers).filter(|option| !option.is_empty());
    if !options().all(is_removable) || options().count() > MOST_OPTIONS {
        return Err(Malformed::InvalidConnection);
    }
    if has_unsupported_expectation(head.headers) {
        return Err(Malformed::UnsupportedExpectation);
    }
    if has_unsupported_coding(head.headers) { Err(Malformed::UnsupportedCoding) } else { Ok(()) }
}

/// Whether an option of `Connection` is a token, and no name of a header that must be forwarded.
/// Such a name would take the header away from the upstream, or one that the gateway sets.
fn is_removable(option: &[u8]) -> bool {
    const FORWARDED: [&str; 4] =
        ["host", "x-forwarded-for", "x-forwarded-host", "x-forwarded-proto"];
    let is_token =
        option.iter().all(|byte| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(byte));
    let is = |name: &&str| option.eq_ignore_ascii_case(name.as_bytes());
    is_token && !FORWARDED.iter().any(is)
}

/// Whether a header value begins or ends with a space or a tab.
pub fn has_outer_space(value: &http::HeaderValue) -> bool {
    let is_space = |byte: Option<&u8>| matches!(byte, Some(b' ' | b'\t'));
    let value = value.as_bytes();
    is_space(value.first()) || is_space(value.last())
}

fn has_unsupported_expectation(headers: &HeaderMap) -> bool {
    let mut expectations = headers.get_all(header::EXPECT).iter();
    expectations.any(|value| !value.as_bytes().eq_ignore_ascii_case(b"100-continue"))
}

fn has_unsupported_coding(headers: &HeaderMap) -> bool {
    let mut codings = headers.get_all(header::TRANSFER_ENCODING).iter();
    let is_unsupported =
        |coding: &http::HeaderValue| !coding.as_bytes().eq_ignore_ascii_case(b"chunked");
    codings.next().is_some_and(is_unsupported) || codings.next().is_some()
}

/// The form of a request's target (RFC 9112, section 3.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Target {
    Path,
    /// With scheme and host, as clients send to a proxy.
    Url,
    /// `*`: the server itself, as in `OPTIONS *`.
    Server,
}

impl Target {
    /// `None` for anything else, such as `api/search`: Pingora forwards it unchanged and reports
    /// `/` as its path, but a server may read it as `/api/search`, which has other limits.
    fn of(target: &[u8]) -> Option<Self> {
        match target {
            [b'/', ..] => Some(Self::Path),
            b"*" => Some(Self::Server),
            _ => UrlTarget::of(target).map(|_| Self::Url),
        }
    }
}

/// Without `Host`, Pingora forwards the host of a URL, which routes have not been matched with.
fn check_host(headers: &HeaderMap, version: Version, target: Target) -> Result<(), Malformed> {
    match headers.get(header::HOST) {
        Some(host) if is_host(host.as_bytes()) => Ok(()),
        Some(_) => Err(Malformed::InvalidHost),
        None if version == Version::HTTP_11 || target == Target::Url => Err(Malformed::NoHost),
        None => Ok(()),
    }
}

/// A name or an address, with an optional port; empty if the target has no host. For anything else,
/// servers disagree on where the name ends: some read `api.test:80:80` as `api.test`.
fn is_host(host: &[u8]) -> bool {
    let Ok(host) = std::str::from_utf8(host) else { return false };
    let Ok(authority) = Authority::split(host) else { return false };
    let in_name = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_');
    let valid_host = match authority.in_brackets() {
        Some(address) => address.parse::<Ipv6Addr>().is_ok(),
        None => authority.host.bytes().all(in_name),
    };
    valid_host && authority.port.is_none_or(|port| port.bytes().all(|byte| byte.is_ascii_digit()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn host_is_a_name_or_an_address_with_an_optional_port() {
        for host in ["", "a", "A.example:80", "a_b-c.example.", "a:", "192.0.2.1:1", "[::1]:80"] {
            assert!(is_host(host.as_bytes()), "{host}");
        }
        for host in ["a:b", "a:80:80", "a, b", "a b", "/", "a%2eb", "u@a", "[::1", "[a]", "[::1]x"]
        {
            assert!(!is_host(host.as_bytes()), "{host}");
        }
        assert!(!is_host(b"a\xff"));
    }

    #[test]
    fn connection_names_no_header_that_must_be_forwarded() {
        for option in ["close", "Upgrade", "x-mine", "TE", "!#$%&'*+-.^_`|~"] {
            assert!(is_removable(option.as_bytes()), "{option}");
        }
        for option in ["Host", "x-forwarded-for", "X-Forwarded-Proto", ":path", "x a", "\"x\""] {
            assert!(!is_removable(option.as_bytes()), "{option}");
        }
        assert!(!is_removable(b"x\xff"));
    }

    #[test]
    fn target_is_a_path_or_a_url() {
        assert_eq!(Target::of(b"/api"), Some(Target::Path));
        assert_eq!(Target::of(b"HTTP://a/api"), Some(Target::Url));
        assert_eq!(Target::of(b"*"), Some(Target::Server));
        for target in [&b"api"[..], b"", b"?x", b"./api", b"x:/api", b"http:/api", b"\\api", b"**"]
        {
            assert_eq!(Target::of(target), None, "{target:?}");
        }
    }
}
