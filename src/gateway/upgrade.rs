//! Requests for another protocol, WebSockets for one.

use http::header;
use pingora::prelude::RequestHeader;

use crate::decide::headers::connection_options;

/// `Upgrade` is the client's wish only where `Connection` names it, too (RFC 9110, section 7.8);
/// otherwise it is left from somebody else's. Pingora would ask the API for it in any case.
pub(super) fn drop_unless_asked(request: &mut RequestHeader) {
    if !request.headers.contains_key(header::UPGRADE) {
        return;
    }
    let is_upgrade = |option: &[u8]| option.eq_ignore_ascii_case(b"upgrade");
    if !connection_options(&request.headers).any(is_upgrade) {
        request.remove_header(&header::UPGRADE);
    }
}
