//! The cookie that keeps the requests of a client on one endpoint. Its value is a keyed hash of the
//! endpoint's address, so that clients can neither read nor choose the address. If the cookies of
//! several upstreams have one name, the client has one cookie with a value of each.

use std::fmt::Write as _;
use std::net::SocketAddr;
use std::sync::LazyLock;

use http::{HeaderMap, HeaderValue, header};
use ring::hmac;

use crate::policy::servers::Sticky;

/// Bytes of the hash that the value has, in hexadecimal digits.
const VALUE_BYTES: usize = 8;

/// What is between the values of several upstreams in one cookie.
const SEPARATOR: char = '.';

/// Maximum number of values in a cookie; further ones are ignored.
const MAX_VALUES: usize = 32;

/// The key of upstreams without a secret, until the process ends.
static OWN_KEY: LazyLock<[u8; 32]> = LazyLock::new(|| {
    let mut key = [0; 32];
    // Without randomness, clients could compute the values; the process has failed before in that
    // case.
    let _ = getrandom::fill(&mut key);
    key
});

/// The value for an endpoint of the upstream with this name.
pub(super) fn value(sticky: &Sticky, upstream: &str, endpoint: SocketAddr) -> Box<str> {
    let key = match &sticky.secret {
        Some(secret) => hmac::Key::new(hmac::HMAC_SHA256, secret.reveal().as_bytes()),
        None => hmac::Key::new(hmac::HMAC_SHA256, &*OWN_KEY),
    };
    let tag = hmac::sign(&key, format!("{upstream} {endpoint}").as_bytes());
    let mut text = String::with_capacity(2 * VALUE_BYTES);
    for byte in tag.as_ref().iter().take(VALUE_BYTES) {
        // Writing to a String does not fail.
        let _ = write!(text, "{byte:02x}");
    }
    text.into()
}

/// The value that a request has. Other cookies of the same line may be any bytes.
pub(crate) fn of_request<'a>(sticky: &Sticky, headers: &'a HeaderMap) -> Option<&'a str> {
    let lines = headers.get_all(header::COOKIE).into_iter();
    let mut pairs = lines.flat_map(|line| line.as_bytes().split(|byte| *byte == b';'));
    pairs.find_map(|pair| {
        let (name, value) = str::from_utf8(pair).ok()?.trim_ascii().split_once('=')?;
        (name == &*sticky.cookie).then_some(value)
    })
}

/// The values in a cookie: each is of one of the upstreams whose cookies have this name.
pub(crate) fn values(cookie: &str) -> impl Iterator<Item = &str> {
    cookie.split(SEPARATOR).take(MAX_VALUES)
}

/// The cookie with the value of an endpoint, and those that it has for other upstreams.
pub(crate) fn joined<'a>(value: &str, others: impl Iterator<Item = &'a str>) -> String {
    let mut text = value.to_owned();
    for other in others.take(MAX_VALUES - 1) {
        text.push(SEPARATOR);
        text.push_str(other);
    }
    text
}

/// The header `Set-Cookie`. `is_https`: the client's connection has TLS.
pub(crate) fn set_cookie(sticky: &Sticky, value: &str, is_https: bool) -> Option<HeaderValue> {
    let mut text = format!("{}={value}; Path=/", sticky.cookie);
    if let Some(ttl) = sticky.ttl {
        let _ = write!(text, "; Max-Age={}", ttl.as_secs());
    }
    text.push_str("; HttpOnly; SameSite=Lax");
    if is_https {
        text.push_str("; Secure");
    }
    text.try_into().ok()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::policy::redis::Secret;

    fn sticky(secret: Option<&str>) -> Sticky {
        let secret = secret.map(|secret| Secret::new(secret.to_owned()));
        Sticky { cookie: "srv".into(), ttl: Some(Duration::from_secs(60)), secret }
    }

    #[test]
    fn value_depends_on_secret_upstream_and_address() {
        let address = SocketAddr::from(([10, 0, 0, 1], 80));
        let of = |secret, upstream| value(&sticky(secret), upstream, address);
        assert_eq!(of(Some("a"), "api"), of(Some("a"), "api"));
        assert_eq!(of(None, "api"), of(None, "api"));
        assert_ne!(of(Some("a"), "api"), of(Some("b"), "api"));
        assert_ne!(of(Some("a"), "api"), of(Some("a"), "web"));
        assert_eq!(of(Some("a"), "api").len(), 16);
    }

    #[test]
    fn cookie_is_found_among_others() {
        let mut headers = HeaderMap::new();
        headers.append(header::COOKIE, HeaderValue::from_static("a=b; xsrv=1"));
        assert_eq!(of_request(&sticky(None), &headers), None);
        headers.append(header::COOKIE, HeaderValue::from_static("c=d;srv=12ab"));
        assert_eq!(of_request(&sticky(None), &headers), Some("12ab"));
    }

    #[test]
    fn cookie_has_a_value_of_each_upstream() {
        assert_eq!(joined("a", ["b", "c"].into_iter()), "a.b.c");
        assert_eq!(joined("a", std::iter::empty()), "a");
        assert_eq!(values("a.b.c").collect::<Vec<_>>(), ["a", "b", "c"]);
        let many = joined("a", std::iter::repeat_n("b", 100));
        assert_eq!(values(&many).count(), MAX_VALUES);
        assert_eq!(values(&format!("{many}.c")).count(), MAX_VALUES);
    }

    #[test]
    fn cookie_is_not_for_scripts() {
        let text = |is_https| set_cookie(&sticky(None), "12ab", is_https).unwrap();
        assert_eq!(text(false), "srv=12ab; Path=/; Max-Age=60; HttpOnly; SameSite=Lax");
        assert_eq!(text(true), "srv=12ab; Path=/; Max-Age=60; HttpOnly; SameSite=Lax; Secure");
    }
}
