//! Responses while the process drains.

use pingora::proxy::Session;

use crate::downstream::ConnectionInfo;

/// Announces in the next response that its connection closes, if the listeners are closed. Without the
/// announcement, a client may send its next request on it and cannot know whether that request was served.
pub(super) fn announce(session: &mut Session) {
    if ConnectionInfo::current().is_closing() && !session.is_upgrade_req() {
        session.set_keepalive(None);
    }
}
