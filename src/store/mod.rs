//! Where buckets live.
//!
//! [`limiter`] decides where a request is decided: in [`redis`], whose buckets all gateways share;
//! by what Redis has said already ([`deny_cache`]); or in [`memory`], whose buckets are this
//! process' own.

pub mod deny_cache;
pub mod limiter;
pub mod memory;
pub mod redis;
