//! Responses while the process drains.

use pingora::proxy::Session;

/// Announces in the next response that its connection closes, if the process is draining. Pingora
/// closes the connection either way; without the announcement, a client may send its next request on
/// it and cannot know whether that request was served.
pub(super) fn announce(session: &mut Session) {
    if session.is_process_shutting_down() && !session.is_upgrade_req() {
        session.set_keepalive(None);
    }
}
