//! Requests to upgrade to another protocol, such as WebSocket.

use http::header;
use pingora::prelude::RequestHeader;

use crate::decide::headers::connection_options;

/// Removes `Upgrade` unless `Connection` names it: without that, it must not be acted on (RFC 9110,
/// section 7.8). Pingora would forward it in any case.
pub(super) fn remove_unless_requested(request: &mut RequestHeader) {
    if !request.headers.contains_key(header::UPGRADE) {
        return;
    }
    let is_upgrade = |option: &[u8]| option.eq_ignore_ascii_case(b"upgrade");
    if !connection_options(&request.headers).any(is_upgrade) {
        request.remove_header(&header::UPGRADE);
    }
}
