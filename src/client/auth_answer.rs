//! What a server says that is asked about a request (`forward_auth`).

use bytes::Bytes;
use http::{HeaderName, HeaderValue, StatusCode};

/// What an answer adds to the request, or to the response to the client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AuthAnswer {
    /// The request goes on, and the upstream gets these headers.
    Allowed(Vec<(HeaderName, HeaderValue)>),
    /// The client gets this response.
    Refused(AuthRefusal),
}

/// The response to a client whose request the server refuses.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AuthRefusal {
    /// 401, 403, or that of a redirect.
    pub status: StatusCode,
    pub headers: Vec<(HeaderName, HeaderValue)>,
    pub body: Bytes,
}
