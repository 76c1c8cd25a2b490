//! The responder for HTTP-01 challenges (RFC 8555, section 8.3): answers the certificate authority
//! before routes, rate limits and redirects. A path that is not that of a pending challenge is a
//! request like any other.

use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderValue, Method, header};
use pingora::prelude::{RequestHeader, Result};
use pingora::proxy::Session;

use crate::acme::challenges::Challenges;
use crate::gateway::exchange::Exchange;
use crate::gateway::respond;

/// Returns the answer to a request; `None` if it does not ask for a pending challenge.
pub(in crate::gateway) fn answer(
    challenges: &Challenges,
    request: &RequestHeader,
) -> Option<Arc<str>> {
    let answer = challenges.answer(request.uri.path())?;
    let is_read = matches!(request.method, Method::GET | Method::HEAD);
    let has_body = [header::CONTENT_LENGTH, header::TRANSFER_ENCODING]
        .iter()
        .any(|name| request.headers.contains_key(name));
    (is_read && !has_body).then_some(answer)
}

/// Writes the response.
///
/// # Errors
/// The client has closed the connection.
pub(in crate::gateway) async fn respond(
    session: &mut Session,
    exchange: &Exchange,
    answer: &str,
) -> Result<()> {
    let mut head = respond::ok(3)?;
    head.insert_header(header::CONTENT_TYPE, HeaderValue::from_static("text/plain"))?;
    head.insert_header(header::CACHE_CONTROL, HeaderValue::from_static("no-store"))?;
    let body = Bytes::copy_from_slice(answer.as_bytes());
    respond::send_body(session, exchange, head, body).await
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::acme::challenges::PendingChallenge;

    #[test]
    fn only_a_read_without_a_body_is_answered() {
        let challenges = Challenges::default();
        let pending = PendingChallenge {
            domain: "a.example".to_owned(),
            token: "t".to_owned(),
            key_authorization: "t.thumb".to_owned(),
        };
        challenges.replace([&pending].into_iter());
        let answer = |method: &str, path: &str, headers: &[(&'static str, &str)]| {
            let mut request = RequestHeader::build(method, path.as_bytes(), None).unwrap();
            for (name, value) in headers {
                request.append_header(*name, *value).unwrap();
            }
            super::answer(&challenges, &request).is_some()
        };
        let path = "/.well-known/acme-challenge/t";
        assert!(answer("GET", path, &[("host", "a.example")]));
        assert!(answer("HEAD", path, &[]));
        assert!(answer("GET", "/.well-known/acme-challenge/t?x=1", &[]));
        assert!(!answer("POST", path, &[]));
        assert!(!answer("GET", path, &[("content-length", "5")]));
        assert!(!answer("GET", path, &[("transfer-encoding", "chunked")]));
        assert!(!answer("GET", "/.well-known/acme-challenge/u", &[]));
    }
}
