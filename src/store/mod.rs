//! Where buckets live.
//!
//! [`memory`] keeps them in this process: exact, bounded, without a network.

pub mod deny_cache;
pub mod limiter;
pub mod memory;
pub mod redis;

/// The limiter as the gateway has it.
pub type Limiter = limiter::Limiter<std::sync::Arc<redis::link::Link>>;
