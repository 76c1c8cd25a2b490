//! Buckets in Redis, shared by every gateway that has the same `[redis]`.
//!
//! Reading order: `class` (what went wrong, in a word), `link` (the connection, and who keeps it).

pub mod class;
pub mod link;
