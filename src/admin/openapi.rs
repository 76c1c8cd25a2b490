//! `GET /api/openapi.json`: the OpenAPI description of the admin API. A test generates the document
//! from the routes and response types and stores it in `docs/`, so the binary needs no generator.

#[cfg(test)]
mod generated;
#[cfg(test)]
mod operations;

use http::StatusCode;

use super::answer::Answer;

/// The document, in OpenAPI 3.1.
const DOCUMENT: &[u8] = include_bytes!("../../docs/openapi.json");

/// Responds with the document.
pub(super) fn show() -> Answer {
    Answer::of(StatusCode::OK, "application/json", DOCUMENT.to_vec())
}
