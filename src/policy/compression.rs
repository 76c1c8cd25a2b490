//! Compression of responses: which ones, and by which coding (RFC 9110, sections 8.4 and 12.5.3).
//! Pure.
//!
//! Reading order: [`Compression`] here (what happens to a response), `accepted` (the coding that a
//! client gets), `media_type` (which contents are worth it).

mod accepted;
mod media_type;
#[cfg(test)]
mod tests;

use std::fmt;

use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, Version, header};

pub use crate::config::words::Coding;
use crate::net::framing;

/// The shortest body that is compressed, in bytes: with the header of its coding, a shorter one
/// hardly gets smaller, and fits into one packet.
pub const LEAST_BYTES: u64 = 512;

/// Headers of a response that are true of its body as the server has sent it only. Digests are of
/// the body with its coding (RFC 9530, sections 2 and 3).
pub const OF_THE_ORIGINAL: [HeaderName; 6] = [
    header::CONTENT_LENGTH,
    header::ACCEPT_RANGES,
    HeaderName::from_static("content-digest"),
    HeaderName::from_static("repr-digest"),
    HeaderName::from_static("digest"),
    HeaderName::from_static("content-md5"),
];

/// `compress` of an upstream or a route.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Compression {
    /// The codings, each once, the preferred one first; none: off.
    codings: Box<[Coding]>,
}

/// The request, as far as compression depends on it.
#[derive(Debug, Clone, Copy)]
pub struct Request<'a> {
    pub method: &'a Method,
    pub version: Version,
    pub headers: &'a HeaderMap,
}

/// What happens to a response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    /// It passes as it is, whatever the request accepts.
    Pass,
    /// It passes as it is, but that of another request may be compressed: `Vary` says so.
    Vary,
    /// It is compressed, and has the same `Vary`.
    Compress(Coding),
}

impl Compression {
    /// That by these codings, each of which is there once.
    pub fn of(codings: &[Coding]) -> Self {
        Self { codings: codings.into() }
    }

    /// Whether no response is compressed.
    pub fn is_off(&self) -> bool {
        self.codings.is_empty()
    }

    /// What happens to a response with this head.
    pub fn action(&self, request: Request<'_>, status: StatusCode, response: &HeaderMap) -> Action {
        if self.is_off() || !is_suitable(status, response) {
            return Action::Pass;
        }
        // Such a response has no body, only a part of one, or must be whole before it is used.
        let is_bare = !framing::has_body(request.method, status);
        let is_part = status == StatusCode::PARTIAL_CONTENT;
        // A body of HTTP/1.0 whose length is not known ends with the connection, so that a client
        // cannot see whether it is complete.
        let is_old = request.version < Version::HTTP_11;
        if is_bare || is_part || is_old || has_no_transform(request.headers) {
            return Action::Vary;
        }
        accepted::coding(&self.codings, request.headers).map_or(Action::Vary, Action::Compress)
    }
}

impl fmt::Display for Compression {
    /// The codings in their order: `br, gzip`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_off() {
            return f.write_str("off");
        }
        let names: Vec<&str> = self.codings.iter().map(|coding| coding.name()).collect();
        f.write_str(&names.join(", "))
    }
}

/// The value of `ETag` of a response that is compressed, if it has to change: a strong one names
/// the bytes that the server has sent (RFC 9110, section 8.8.1).
pub fn weakened(etag: &HeaderValue) -> Option<HeaderValue> {
    let etag = etag.as_bytes();
    let is_strong = etag.starts_with(b"\"");
    if is_strong { HeaderValue::from_bytes(&[b"W/", etag].concat()).ok() } else { None }
}

/// The value of `ETag` of a 304 for a client that has a compressed response, if it has to change:
/// a 304 has the `ETag` of that response (RFC 9110, section 15.4.5), and a cache would not find it
/// by a strong one (RFC 9111, section 4.3.4). `request`: the headers of the request, whose
/// `If-None-Match` has what the client has.
pub fn revalidated(etag: &HeaderValue, request: &HeaderMap) -> Option<HeaderValue> {
    let weak = weakened(etag)?;
    let strong = etag.as_bytes();
    let lines = request.get_all(header::IF_NONE_MATCH).iter().map(HeaderValue::as_bytes);
    let mut places = lines.flat_map(|line| {
        memchr::memmem::find_iter(line, strong).map(|at| line[..at].ends_with(b"W/"))
    });
    let has_weak = places.next()?;
    (has_weak && places.all(|is_weak| is_weak)).then_some(weak)
}

/// Whether a response can be compressed for some request.
fn is_suitable(status: StatusCode, response: &HeaderMap) -> bool {
    let is_without_content = status.is_informational()
        || matches!(status, StatusCode::NO_CONTENT | StatusCode::RESET_CONTENT);
    if is_without_content || is_encoded(response) || has_no_transform(response) {
        return false;
    }
    // Many servers send none with a 304.
    let media_type = response.get(header::CONTENT_TYPE);
    let is_of_such_type = match media_type {
        None => status == StatusCode::NOT_MODIFIED,
        Some(media_type) => media_type::is_compressible(media_type.as_bytes()),
    };
    // That of a 206 is the length of the part.
    let length = framing::content_length(response).and_then(|length| length.parse().ok());
    let is_short = length.is_some_and(|length: u64| length < LEAST_BYTES);
    let is_whole = !matches!(status, StatusCode::NOT_MODIFIED | StatusCode::PARTIAL_CONTENT);
    is_of_such_type && !(is_short && is_whole)
}

/// Whether a response has a coding already.
fn is_encoded(response: &HeaderMap) -> bool {
    let is_coding = |coding: &[u8]| !coding.is_empty() && !coding.eq_ignore_ascii_case(b"identity");
    framing::elements(response, &header::CONTENT_ENCODING).any(is_coding)
}

/// Whether the sender of these headers does not want contents to be changed on the way (RFC 9111,
/// sections 5.2.1.6 and 5.2.2.6).
fn has_no_transform(headers: &HeaderMap) -> bool {
    framing::elements(headers, &header::CACHE_CONTROL)
        .any(|directive| directive.eq_ignore_ascii_case(b"no-transform"))
}
