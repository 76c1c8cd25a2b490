//! The head of a request as HTTP/2 has it.

use http::header::{self, HeaderMap, HeaderName, HeaderValue};
use http::uri::{Authority, Parts, PathAndQuery, Scheme};
use http::{Request, Uri, Version};
use pingora::prelude::{Error, ErrorType, RequestHeader, Result};

use crate::net::framing;

/// Headers of the client's connection, which HTTP/2 does not allow or which are not for the server.
const OF_THE_CONNECTION: [HeaderName; 5] = [
    header::CONNECTION,
    header::TRANSFER_ENCODING,
    header::UPGRADE,
    header::PROXY_AUTHORIZATION,
    // The gateway has responded to it.
    header::EXPECT,
];

/// The names of further ones.
const MORE_OF_THE_CONNECTION: [&str; 3] = ["keep-alive", "proxy-connection", "http2-settings"];

/// Removes the headers of the client's connection. `TE` stays if it is `trailers`, without which
/// some servers refuse gRPC.
pub(in crate::gateway::attempts) fn remove_hop_by_hop(request: &mut RequestHeader) {
    let named: Vec<HeaderName> = framing::named_by_connection(&request.headers).collect();
    let more = MORE_OF_THE_CONNECTION.map(HeaderName::from_static);
    let accepts_trailers = accepts_trailers(&request.headers);
    for name in named.iter().chain(&OF_THE_CONNECTION).chain(&more) {
        request.remove_header(name);
    }
    request.remove_header(&header::TE);
    if accepts_trailers {
        // The value is valid.
        let _ = request.insert_header(header::TE, HeaderValue::from_static("trailers"));
    }
}

fn accepts_trailers(headers: &HeaderMap) -> bool {
    framing::elements(headers, &header::TE).any(|coding| coding.eq_ignore_ascii_case(b"trailers"))
}

/// Converts a request, whose `Host` becomes the authority.
///
/// # Errors
/// If it has neither a valid `Host` nor an authority, which the decision refuses.
pub(in crate::gateway::attempts) fn of(
    mut request: RequestHeader,
    scheme: Scheme,
) -> Result<Request<()>> {
    let invalid = || Error::new(ErrorType::InvalidHTTPHeader).into_in();
    let host = request.remove_header(&header::HOST);
    let authority = match &host {
        Some(host) => Authority::try_from(host.as_bytes()).map_err(|_| invalid())?,
        None => request.uri.authority().cloned().ok_or_else(invalid)?,
    };
    let mut target = Parts::default();
    target.scheme = Some(scheme);
    target.authority = Some(authority);
    let root = || PathAndQuery::from_static("/");
    target.path_and_query = Some(request.uri.path_and_query().cloned().unwrap_or_else(root));
    let mut parts: http::request::Parts = request.into();
    parts.uri = Uri::from_parts(target).map_err(|_| invalid())?;
    parts.version = Version::HTTP_2;
    Ok(Request::from_parts(parts, ()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(headers: &[(&'static str, &'static str)]) -> RequestHeader {
        let mut request = RequestHeader::build("GET", b"/a?b=c", None).unwrap();
        for (name, value) in headers {
            request.append_header(*name, *value).unwrap();
        }
        request
    }

    #[test]
    fn headers_of_the_connection_are_removed() {
        let mut request = request(&[
            ("Host", "api.test"),
            ("Connection", "keep-alive, x-mine"),
            ("X-Mine", "1"),
            ("Keep-Alive", "timeout=5"),
            ("Upgrade", "h2c"),
            ("HTTP2-Settings", "x"),
            ("Transfer-Encoding", "chunked"),
            ("Expect", "100-continue"),
            ("TE", "gzip, trailers"),
            ("X-Other", "2"),
        ]);
        remove_hop_by_hop(&mut request);
        let request = of(request, Scheme::HTTPS).unwrap();
        let mut names: Vec<&str> = request.headers().keys().map(HeaderName::as_str).collect();
        names.sort_unstable();
        assert_eq!(names, ["te", "x-other"]);
        assert_eq!(request.headers()["te"], "trailers");
        assert_eq!(request.uri(), "https://api.test/a?b=c");
    }

    #[test]
    fn authority_is_that_of_the_target_without_a_host() {
        let mut without_host = request(&[]);
        assert!(of(without_host.clone(), Scheme::HTTP).is_err());
        without_host.set_uri("http://other.test/x".parse().unwrap());
        assert_eq!(of(without_host, Scheme::HTTP).unwrap().uri(), "http://other.test/x");
    }
}
