//! Reads the body of a request to the admin port, with limits on its size and time.

use std::time::Duration;

use http::header::CONTENT_LENGTH;
use pingora::protocols::http::ServerSession;

/// Maximum length of most bodies, in bytes.
pub(super) const MAX_BYTES: usize = 64 * 1024;

/// Maximum time to receive a body.
const READ_TIMEOUT: Duration = Duration::from_secs(10);

/// Why a body could not be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum BodyError {
    /// The body is longer than this.
    TooLong(usize),
    /// The body did not arrive completely, or not in time.
    Unread,
}

/// Reads the body of a request, of at most `max` bytes.
///
/// # Errors
/// See [`BodyError`].
pub(super) async fn read(session: &mut ServerSession, max: usize) -> Result<Vec<u8>, BodyError> {
    let announced = session.req_header().headers.get(CONTENT_LENGTH);
    let announced = announced.and_then(|length| length.to_str().ok()?.parse::<u64>().ok());
    if announced.is_some_and(|length| length > max as u64) {
        return Err(BodyError::TooLong(max));
    }
    let reading = async {
        let mut body = Vec::new();
        while let Some(part) = session.read_request_body().await.map_err(|_| BodyError::Unread)? {
            if body.len() + part.len() > max {
                return Err(BodyError::TooLong(max));
            }
            body.extend_from_slice(&part);
        }
        Ok(body)
    };
    tokio::time::timeout(READ_TIMEOUT, reading).await.unwrap_or(Err(BodyError::Unread))
}
