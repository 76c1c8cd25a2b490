//! Requests of HTTP/2, in the form in which the rest of the gateway reads those of HTTP/1.1.

use http::{HeaderValue, header};
use pingora::prelude::{RequestHeader, Result};

use crate::decide::guard::has_outer_space;

/// Adds `Host`, which HTTP/2 sends as `:authority`, and joins the lines of `Cookie`, which HTTP/2
/// may split (RFC 9113, section 8.2.3): servers of HTTP/1.1 expect one.
///
/// # Errors
/// If a value is not valid in a header, which cannot happen with a head that was parsed.
pub(in crate::gateway) fn normalize(request: &mut RequestHeader) -> Result<()> {
    if !request.headers.contains_key(header::HOST)
        && let Some(authority) = request.uri.authority()
    {
        let host = authority.as_str().to_owned();
        request.insert_header(header::HOST, host)?;
    }
    match joined_cookies(request) {
        Some(cookies) => request.insert_header(header::COOKIE, cookies),
        None => Ok(()),
    }
}

/// The lines of `Cookie` as one; `None` if there is at most one, or if one is malformed: the
/// request is then refused.
fn joined_cookies(request: &RequestHeader) -> Option<HeaderValue> {
    let lines = request.headers.get_all(header::COOKIE);
    lines.iter().nth(1)?;
    if lines.iter().any(has_outer_space) {
        return None;
    }
    let lines: Vec<&[u8]> = lines.iter().map(HeaderValue::as_bytes).collect();
    HeaderValue::from_bytes(&lines.join(&b"; "[..])).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(uri: &str, headers: &[(&'static str, &'static str)]) -> RequestHeader {
        let mut builder = http::Request::builder().uri(uri).version(http::Version::HTTP_2);
        for (name, value) in headers {
            builder = builder.header(*name, *value);
        }
        RequestHeader::from(builder.body(()).unwrap().into_parts().0)
    }

    #[test]
    fn host_is_the_authority() {
        let mut plain = request("http://api.test:8080/x", &[]);
        normalize(&mut plain).unwrap();
        assert_eq!(plain.headers[header::HOST], "api.test:8080");
        let mut given = request("http://api.test/x", &[("host", "API.test")]);
        normalize(&mut given).unwrap();
        assert_eq!(given.headers[header::HOST], "API.test");
    }

    #[test]
    fn cookie_crumbs_become_one_line() {
        let mut crumbs =
            request("http://a/", &[("cookie", "a=1"), ("x", "y"), ("cookie", "b=2; c=3")]);
        normalize(&mut crumbs).unwrap();
        let lines: Vec<_> = crumbs.headers.get_all(header::COOKIE).iter().collect();
        assert_eq!(lines, ["a=1; b=2; c=3"]);
    }
}
