//! The upstream's response as it is forwarded to the client: without hop-by-hop headers, and with
//! unambiguous framing.

use std::mem;

use http::response::Parts;
use http::{HeaderName, HeaderValue, StatusCode, Version, header};
use pingora::prelude::{ResponseHeader, Result};

use crate::net::framing;

const KEEP_ALIVE: &str = "keep-alive";

/// Options of `Connection` for which no header is removed: those of the connection itself, and the
/// headers of the framing.
const KEPT_OPTIONS: [&str; 4] = [KEEP_ALIVE, "close", "content-length", "transfer-encoding"];

/// Prepares the head of an upstream's response to a request of the HTTP version `request`. Returns
/// whether the connection must close after the response.
///
/// # Errors
/// If a value is not valid in a header, which cannot happen with a head that was parsed.
pub(in crate::gateway) fn prepare(response: &mut ResponseHeader, request: Version) -> Result<bool> {
    // The version is that of the connection, not of the upstream (RFC 9112, section 2.3).
    response.set_version(Version::HTTP_11);
    if response.headers.contains_key(header::CONNECTION) {
        remove_hop_by_hop(response);
    }
    if let Some(length) = framing::one_length(&response.headers) {
        response.insert_header(header::CONTENT_LENGTH, length)?;
    }
    if response.status == StatusCode::NO_CONTENT || response.status.is_informational() {
        // Such a response has no body, whatever its headers (RFC 9110, section 8.6); a client that
        // waits for one would read the next response as the body.
        response.remove_header(&header::CONTENT_LENGTH);
        response.remove_header(&header::TRANSFER_ENCODING);
    }
    // HTTP/1.0 has no chunked coding (RFC 9112, section 6.1): the body ends with the connection.
    let unchunked =
        request == Version::HTTP_10 && response.remove_header(&header::TRANSFER_ENCODING).is_some();
    Ok(unchunked)
}

/// Copies the values of the headers.
///
/// They share the buffer of 4 KiB into which the head was read. A connection of an HTTP/2 client
/// keeps values in the table of its header compression, and with each of them the whole buffer.
///
/// # Errors
/// None, with a head that was parsed.
pub(in crate::gateway) fn detach(response: &mut ResponseHeader) -> Result<()> {
    let empty = ResponseHeader::build_no_case(response.status, Some(0))?;
    let mut parts = Parts::from(mem::replace(response, empty));
    for value in parts.headers.values_mut() {
        // Its bytes are valid: they are those of a value.
        if let Ok(mut copy) = HeaderValue::from_bytes(value.as_bytes()) {
            copy.set_sensitive(value.is_sensitive());
            *value = copy;
        }
    }
    *response = parts.into();
    Ok(())
}

/// Removes the headers that `Connection` names, and `Keep-Alive`, which some servers send without
/// naming it (RFC 9110, section 7.6.1). Pingora writes `Connection` itself.
fn remove_hop_by_hop(response: &mut ResponseHeader) {
    if response.status == StatusCode::SWITCHING_PROTOCOLS {
        return;
    }
    // Usually empty: a server that keeps its connections names no header.
    let named: Vec<HeaderName> = framing::named_by_connection(&response.headers)
        .filter(|name| !KEPT_OPTIONS.contains(&name.as_str()))
        .collect();
    for name in named {
        response.remove_header(&name);
    }
    // A pass over the names costs less than a look-up in both of Pingora's maps.
    if response.headers.keys().any(|name| name.as_str() == KEEP_ALIVE) {
        response.remove_header(KEEP_ALIVE);
    }
}
