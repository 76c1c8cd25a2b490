//! The media types whose contents get smaller by compression, as nginx and Caddy list them.
//! Pictures, sound, video, archives and most fonts are compressed in themselves.

/// Types beside `text/*` and those with one of [`SUFFIXES`].
const TYPES: [&str; 30] = [
    "application/ecmascript",
    "application/graphql",
    "application/javascript",
    "application/json",
    "application/jsonl",
    "application/json-seq",
    "application/msgpack",
    "application/ndjson",
    "application/protobuf",
    "application/rtf",
    "application/sql",
    "application/toml",
    "application/vnd.google.protobuf",
    "application/vnd.mapbox-vector-tile",
    "application/vnd.ms-fontobject",
    "application/wasm",
    "application/x-javascript",
    "application/x-ndjson",
    "application/x-protobuf",
    "application/x-sh",
    "application/x-yaml",
    "application/xml",
    "application/xml-dtd",
    "application/yaml",
    "font/collection",
    "font/otf",
    "font/ttf",
    "image/bmp",
    "image/vnd.microsoft.icon",
    "image/x-icon",
];

/// Structured syntaxes (RFC 6838, section 4.2.8): `image/svg+xml`, `application/problem+json`.
const SUFFIXES: [&[u8]; 4] = [b"+json", b"+xml", b"+yaml", b"+json-seq"];

/// A stream of events, whose pages wait for each of them. Proxies on the way to the page may hold
/// back a part of a compressed one.
const EVENTS: &[u8] = b"text/event-stream";

/// Whether contents of this media type, the value of `Content-Type`, are compressed.
pub(super) fn is_compressible(content_type: &[u8]) -> bool {
    let end = content_type.iter().position(|byte| *byte == b';').unwrap_or(content_type.len());
    let own = content_type.get(..end).unwrap_or_default().trim_ascii();
    if own.eq_ignore_ascii_case(EVENTS) {
        return false;
    }
    let begins = |prefix: &[u8]| {
        own.get(..prefix.len()).is_some_and(|begin| begin.eq_ignore_ascii_case(prefix))
    };
    let ends = |suffix: &&[u8]| {
        let begin = own.len().checked_sub(suffix.len());
        begin.is_some_and(|begin| own[begin..].eq_ignore_ascii_case(suffix))
    };
    begins(b"text/")
        || SUFFIXES.iter().any(ends)
        || TYPES.iter().any(|listed| own.eq_ignore_ascii_case(listed.as_bytes()))
}
