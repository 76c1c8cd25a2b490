//! What of an API's answer goes on to the client: all of it, but for what belongs to the connection
//! between the two of us, and what would leave the client in doubt where the answer ends.

use http::{HeaderName, StatusCode, Version, header};
use pingora::prelude::{ResponseHeader, Result};

use super::forward;
use crate::decide::headers::connection_options;

const KEEP_ALIVE: &str = "keep-alive";

/// What `Connection` may say without a header being taken out for it: these say something of the
/// connection itself, or where the answer ends.
const STAYS: [&[u8]; 4] = [b"keep-alive", b"close", b"content-length", b"transfer-encoding"];

/// Prepares the head of an API's answer to a request of that version of HTTP. Returns whether the
/// connection must close behind it.
///
/// # Errors
/// A value that is no header, which an answer that was read cannot have.
pub(super) fn prepare(response: &mut ResponseHeader, request: Version) -> Result<bool> {
    // The version is that of the connection, not of the API (RFC 9112, section 2.3).
    response.set_version(Version::HTTP_11);
    if response.headers.contains_key(header::CONNECTION) {
        drop_hop_by_hop(response);
    }
    if let Some(length) = forward::one_length(&response.headers) {
        response.insert_header(header::CONTENT_LENGTH, length)?;
    }
    if response.status == StatusCode::NO_CONTENT || response.status.is_informational() {
        // Such an answer has no body, whatever it says (RFC 9110, section 8.6); a client that waits
        // for one would take the next answer for it.
        response.remove_header(&header::CONTENT_LENGTH);
        response.remove_header(&header::TRANSFER_ENCODING);
    }
    // HTTP/1.0 knows no chunks (RFC 9112, section 6.1): the body ends with the connection.
    let unchunked =
        request == Version::HTTP_10 && response.remove_header(&header::TRANSFER_ENCODING).is_some();
    Ok(unchunked)
}

/// Takes out what `Connection` names, and `Keep-Alive`, which some send without naming it (RFC 9110,
/// section 7.6.1). `Connection` itself is Pingora's to write.
fn drop_hop_by_hop(response: &mut ResponseHeader) {
    if response.status == StatusCode::SWITCHING_PROTOCOLS {
        return;
    }
    // Mostly none: an API that keeps its connections says so and names nothing.
    let named: Vec<HeaderName> = connection_options(&response.headers)
        .filter(|option| !STAYS.iter().any(|name| option.eq_ignore_ascii_case(name)))
        .filter_map(|option| HeaderName::from_bytes(option).ok())
        .collect();
    for name in named {
        response.remove_header(&name);
    }
    // A look at the names costs less than a search in both of Pingora's maps.
    if response.headers.keys().any(|name| name.as_str() == KEEP_ALIVE) {
        response.remove_header(KEEP_ALIVE);
    }
}
