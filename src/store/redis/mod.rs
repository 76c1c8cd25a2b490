//! Buckets in Redis, shared by every gateway: one script takes tokens for many requests at once.
//!
//! Reading order: `script` (a batch as the script's arguments, its reply as answers), `batch` (when
//! a check leaves, and with whom).

pub mod batch;
pub mod link;
pub mod script;

#[cfg(test)]
pub(crate) mod fixture;
#[cfg(test)]
mod parity;
