//! What of an API's answer goes on to the client: all of it, but for what belongs to the connection
//! between the two of us, and what would leave the client in doubt where the answer ends.

use http::{HeaderName, HeaderValue, StatusCode, Version, header};
use pingora::prelude::{ResponseHeader, Result};

use super::forward;

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
    let lines: Vec<HeaderValue> =
        response.headers.get_all(header::CONNECTION).iter().cloned().collect();
    let options = lines.iter().flat_map(|line| line.as_bytes().split(|byte| *byte == b','));
    for option in options.map(<[u8]>::trim_ascii) {
        // These say something of the connection, or where the answer ends, and are no headers of it.
        let stays = [&b"close"[..], b"content-length", b"transfer-encoding"];
        if stays.iter().any(|name| option.eq_ignore_ascii_case(name)) {
            continue;
        }
        if let Ok(name) = HeaderName::from_bytes(option) {
            response.remove_header(&name);
        }
    }
    response.remove_header("Keep-Alive");
}
