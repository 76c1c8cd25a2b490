//! The body of a request to the operator's port, with a limit on its size and on its time.

use std::time::Duration;

use http::header::CONTENT_LENGTH;
use pingora::protocols::http::ServerSession;

/// The most bytes of a body that are read.
pub(super) const MAX_BYTES: usize = 64 * 1024;

/// How long a body may take to arrive.
const PATIENCE: Duration = Duration::from_secs(10);

/// Why there is no body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum BodyError {
    /// It is longer than [`MAX_BYTES`].
    TooLong,
    /// It did not arrive.
    Unread,
}

/// The whole body of a request.
///
/// # Errors
/// See [`BodyError`].
pub(super) async fn read(session: &mut ServerSession) -> Result<Vec<u8>, BodyError> {
    let announced = session.req_header().headers.get(CONTENT_LENGTH);
    let announced = announced.and_then(|length| length.to_str().ok()?.parse::<u64>().ok());
    if announced.is_some_and(|length| length > MAX_BYTES as u64) {
        return Err(BodyError::TooLong);
    }
    let reading = async {
        let mut body = Vec::new();
        while let Some(part) = session.read_request_body().await.map_err(|_| BodyError::Unread)? {
            if body.len() + part.len() > MAX_BYTES {
                return Err(BodyError::TooLong);
            }
            body.extend_from_slice(&part);
        }
        Ok(body)
    };
    tokio::time::timeout(PATIENCE, reading).await.unwrap_or(Err(BodyError::Unread))
}
