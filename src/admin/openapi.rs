//! `GET /api/openapi.json`: the admin API for programs. The document is made from the table of routes
//! and the types of the answers, and kept in `docs/`, so that the program carries no generator.

#[cfg(test)]
mod generated;
#[cfg(test)]
mod operations;

use http::StatusCode;

use super::answer::Answer;

/// OpenAPI 3.1.
const DOCUMENT: &[u8] = include_bytes!("../../docs/openapi.json");

/// The document.
pub(super) fn show() -> Answer {
    Answer::of(StatusCode::OK, "application/json", DOCUMENT.to_vec())
}
