//! Where buckets live.
//!
//! [`memory`] keeps them in this process: exact, bounded, without a network. [`redis`] shares them.

pub mod memory;
pub mod redis;
