//! Requests to upgrade to another protocol: WebSocket is the only one that is forwarded.

use http::{HeaderMap, header};
use pingora::prelude::RequestHeader;

use crate::net::framing::connection_options;

/// Removes `Upgrade` unless the request asks for a WebSocket. Pingora forwards no other, but takes
/// every request with this header for one to upgrade, so this must precede all use of it.
pub(in crate::gateway) fn remove_unless_websocket(request: &mut RequestHeader) {
    if request.headers.contains_key(header::UPGRADE) && !asks_for_websocket(&request.headers) {
        request.remove_header(&header::UPGRADE);
    }
}

/// Whether `Upgrade` is `websocket` and `Connection` names it: without that, it must not be acted
/// on (RFC 9110, section 7.8).
fn asks_for_websocket(headers: &HeaderMap) -> bool {
    let is_upgrade = |option: &[u8]| option.eq_ignore_ascii_case(b"upgrade");
    let is_websocket = headers
        .get(header::UPGRADE)
        .is_some_and(|value| value.as_bytes().eq_ignore_ascii_case(b"websocket"));
    is_websocket && connection_options(headers).any(is_upgrade)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn upgrade_stays_only_for_a_websocket_that_connection_names() {
        let table: [(&[&str], &str, bool); 8] = [
            (&["websocket"], "upgrade", true),
            (&["WebSocket"], "keep-alive, Upgrade", true),
            (&["websocket"], "keep-alive", false),
            (&["h2c"], "upgrade", false),
            (&["anything"], "upgrade", false),
            (&["h2c, websocket"], "upgrade", false),
            (&["h2c", "websocket"], "upgrade", false),
            (&[""], "upgrade", false),
        ];
        for (upgrades, connection, expected) in table {
            let mut request = RequestHeader::build("GET", b"/", None).unwrap();
            request.append_header(header::CONNECTION, connection).unwrap();
            for upgrade in upgrades {
                request.append_header(header::UPGRADE, *upgrade).unwrap();
            }
            remove_unless_websocket(&mut request);
            assert_eq!(request.headers.contains_key(header::UPGRADE), expected, "{upgrades:?}");
        }
    }
}
