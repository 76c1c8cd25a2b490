//! Where buckets live.
//!
//! [`memory`] keeps them in this process: exact, bounded, without a network.

pub mod memory;
