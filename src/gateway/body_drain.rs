//! What becomes of a request's body that nobody wants: read to its end where it is short, so that
//! the connection can go on; where it is long, read for a while, so that the client gets to see
//! the answer before the connection closes.

use std::time::Duration;

use http::header;
use pingora::proxy::Session;

/// The longest body that is read to its end behind an answer.
const KEEP_BYTES: usize = 64 * 1024;

/// How much of a longer body is read before the connection is closed.
const CLOSE_BYTES: usize = 4 * 1024 * 1024;

/// How long the rest of a body is waited for.
const TIMEOUT: Duration = Duration::from_secs(2);

/// Reads a short body to its end. Returns whether that is where the request now is, so that the
/// connection can go on.
pub(super) async fn drain(session: &mut Session) -> bool {
    if session.is_body_done() || session.is_body_empty() {
        return true;
    }
    let request = session.req_header();
    // Such a client waits for leave to send its body, which it does not get.
    if request.headers.contains_key(header::EXPECT) {
        return false;
    }
    let length = request.headers.get(header::CONTENT_LENGTH).and_then(|v| v.to_str().ok());
    if length.is_some_and(|length| length.parse().is_ok_and(|n: usize| n > KEEP_BYTES)) {
        return false;
    }
    discard(session, KEEP_BYTES).await
}

/// Reads on for a while behind an answer after which the connection closes.
pub(super) async fn linger(session: &mut Session) {
    if session.req_header().headers.contains_key(header::EXPECT) {
        return;
    }
    discard(session, CLOSE_BYTES).await;
}

/// Reads and drops up to `most_bytes` of the body. Returns whether that was all of it.
async fn discard(session: &mut Session, most_bytes: usize) -> bool {
    let read = async {
        let mut left = most_bytes;
        loop {
            match session.read_request_body().await {
                Ok(Some(chunk)) if chunk.len() <= left => left -= chunk.len(),
                Ok(None) => return true,
                // Too long; or broken, and then nobody knows where the next request begins, although
                // Pingora takes such a body for one that is done.
                Ok(Some(_)) | Err(_) => return false,
            }
        }
    };
    let is_read = tokio::time::timeout(TIMEOUT, read).await.unwrap_or(false);
    is_read && session.is_body_done()
}
