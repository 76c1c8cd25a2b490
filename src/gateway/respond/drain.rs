//! Responses after which their connection closes.

use http::StatusCode;
use pingora::proxy::Session;

use crate::downstream::ConnectionInfo;

/// Announces in the next response, which has this status, that its connection closes, if it does.
/// Without the announcement, a client may send its next request on it and cannot know whether that
/// request was served. Interim responses and those that upgrade the connection announce nothing.
pub(in crate::gateway) fn announce(session: &mut Session, status: StatusCode) {
    if ConnectionInfo::current().is_closing() && !status.is_informational() {
        session.set_keepalive(None);
    }
}
