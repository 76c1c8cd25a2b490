//! Where buckets live.
//!
//! [`memory`] keeps them in this process: exact, bounded, without a network.

pub mod deny_cache;
pub mod limiter;
pub mod memory;
pub mod redis;
