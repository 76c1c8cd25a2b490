//! Buckets in Redis, shared by every gateway that has the same `[redis]`: one script takes tokens
//! for many requests at once.
//!
//! Reading order: `class` (what went wrong, in a word), `error_text` (the same as the server
//! says it), `script` (a batch as the script's arguments,
//! its reply as answers), `call` (what is sent for that), `append` (records for a stream), `link` (the
//! connection, and who keeps it), `batch` (when a check leaves, and with whom).

pub mod append;
pub mod batch;
pub mod call;
pub mod class;
pub mod error_text;
pub mod link;
pub mod node;
pub mod script;

#[cfg(test)]
pub(crate) mod fixture;
#[cfg(test)]
mod parity;
