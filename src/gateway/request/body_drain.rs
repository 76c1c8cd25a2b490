//! Unread request bodies. A short one is read and discarded, so that the connection can be kept.
//! Before the connection closes, a part of a long one is read and discarded, so that the client can
//! read the response (lingering close).

use std::time::Duration;

use http::header;
use pingora::proxy::Session;
use tokio::time::timeout;

/// Longest body that is discarded to keep the connection.
const MAX_DRAIN_BYTES: usize = 64 * 1024;

/// Bytes of a longer body that are discarded at most before the connection closes.
const MAX_LINGER_BYTES: usize = 4 * 1024 * 1024;

/// How long reading the rest of a body can take.
pub(in crate::gateway) const DRAIN_TIMEOUT: Duration = Duration::from_secs(2);

/// Discards the unread rest of a short body. Returns whether the request has been read to its end,
/// so that the connection can be kept.
pub(in crate::gateway) async fn drain(session: &mut Session) -> bool {
    if session.is_body_done() || session.is_body_empty() {
        return true;
    }
    let request = session.req_header();
    // A client that sent `Expect: 100-continue` does not send the body without a 100.
    if request.headers.contains_key(header::EXPECT) {
        return false;
    }
    let length = request.headers.get(header::CONTENT_LENGTH).and_then(|v| v.to_str().ok());
    if length.is_some_and(|length| length.parse().is_ok_and(|n: usize| n > MAX_DRAIN_BYTES)) {
        return false;
    }
    discard(session, MAX_DRAIN_BYTES).await
}

/// Discards the whole body, as an upstream reads it. Ends early if the client sends nothing for
/// `pause`.
pub(in crate::gateway) async fn consume(session: &mut Session, pause: Duration) {
    if session.req_header().headers.contains_key(header::EXPECT) {
        return;
    }
    while let Ok(Ok(Some(_))) = timeout(pause, session.read_request_body()).await {}
}

/// Discards a part of the body after a response that closes the connection, or the stream of
/// HTTP/2. A client of HTTP/2 that still sends afterwards gets RST_STREAM with NO_ERROR (RFC 9113,
/// section 8.1).
pub(in crate::gateway) async fn linger(session: &mut Session) {
    // Over HTTP/2, Pingora sends no 100, and curl loses a response that a reset follows at once.
    if session.as_http1().is_some() && session.req_header().headers.contains_key(header::EXPECT) {
        return;
    }
    discard(session, MAX_LINGER_BYTES).await;
}

/// As [`linger`], unless the request has been read to its end. Over HTTP/2, many clients ignore the
/// response if their stream is reset while they send.
pub(in crate::gateway) async fn linger_unless_read(session: &mut Session) {
    if !session.is_body_done() && !session.is_body_empty() {
        // Boxed: most requests have been read.
        Box::pin(linger(session)).await;
    }
}

/// Discards up to `max_bytes` of the body. Returns whether that was the rest of it.
async fn discard(session: &mut Session, max_bytes: usize) -> bool {
    let read = async {
        let mut left = max_bytes;
        loop {
            match session.read_request_body().await {
                Ok(Some(chunk)) if chunk.len() <= left => left -= chunk.len(),
                Ok(None) => return true,
                // Too long, or broken: then it is unknown where the next request begins, although
                // Pingora considers such a body done.
                Ok(Some(_)) | Err(_) => return false,
            }
        }
    };
    let is_read = timeout(DRAIN_TIMEOUT, read).await.unwrap_or(false);
    is_read && session.is_body_done()
}
