//! Where buckets live.
//!
//! [`limiter`] decides where a request is decided: in [`redis`], whose buckets all gateways share;
//! by what Redis has said already ([`deny_cache`]); in [`memory`], whose buckets are this process'
//! own; or, while Redis does not answer, by [`fallback`], which owes Redis what it grants ([`debts`]).
//! `glances` bounds what clients may ask without paying.

pub mod debts;
pub mod deny_cache;
pub mod fallback;
pub mod glances;
pub mod limiter;
pub mod memory;
pub mod redis;
