//! What no request may be, whatever its rules: too large, or readable in two ways.

use http::{Version, header};
use pingora::proxy::Session;

use crate::policy::settings::Server;

/// Why a request cannot be sent on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Malformed {
    /// HTTP/1.1 without a host (RFC 9112, section 3.2).
    NoHost,
    /// Both `Content-Length` and `Transfer-Encoding`: whoever believes the other one reads
    /// another request (RFC 9112, section 6.3).
    TwoLengths,
    /// A target longer than `server.max_uri_bytes`.
    UriTooLong,
    /// Header lines larger than `server.max_header_bytes`.
    HeadersTooLarge,
}

/// Checks a request's head.
///
/// # Errors
/// The first thing found wrong with it.
pub(super) fn check(server: &Server, session: &Session) -> Result<(), Malformed> {
    let request = session.req_header();
    if request.raw_path().len() > server.max_uri_bytes {
        return Err(Malformed::UriTooLong);
    }
    // As on the wire: a colon, a space and a line break beside name and value.
    let line = |(name, value): (&http::HeaderName, &http::HeaderValue)| {
        name.as_str().len() + value.len() + 4
    };
    if request.headers.iter().map(line).sum::<usize>() > server.max_header_bytes {
        return Err(Malformed::HeadersTooLarge);
    }
    let has_host = request.headers.contains_key(header::HOST) || request.uri.authority().is_some();
    if request.version == Version::HTTP_11 && !has_host {
        return Err(Malformed::NoHost);
    }
    if request.headers.contains_key(header::TRANSFER_ENCODING) && sent_content_length(session) {
        return Err(Malformed::TwoLengths);
    }
    Ok(())
}

/// Whether the client sent `Content-Length`. Pingora drops it beside `Transfer-Encoding`, so only
/// the bytes that came still tell.
fn sent_content_length(session: &Session) -> bool {
    const NAME: &[u8] = b"content-length";
    let Some(http1) = session.as_http1() else { return false };
    let head = http1.get_headers_raw_bytes();
    head.split(|byte| *byte == b'\n')
        .any(|line| line.get(..NAME.len()).is_some_and(|name| name.eq_ignore_ascii_case(NAME)))
}
