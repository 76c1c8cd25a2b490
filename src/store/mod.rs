//! Stores of buckets.
//!
//! [`limiter`] checks each request in one of: [`redis`], whose buckets all gateways share;
//! [`deny_cache`], which refuses by recent answers of Redis; [`memory`], whose buckets are local to
//! this process; or [`fallback`] while Redis is unavailable, which records its grants as [`debts`],
//! of which [`lapsed`] has those whose period has ended. [`leases`] has the tokens that this
//! process has borrowed from the shared store. [`held`] has the units that requests in flight hold.
//! [`bans`] has the clients that are refused for longer. [`rule`] has what they know of a rule.
//! `peek_cache` bounds how often clients read their limits.

mod adjusted;
pub mod bans;
pub mod debts;
pub mod deny_cache;
pub mod fallback;
pub mod held;
pub mod lapsed;
pub mod leases;
pub mod limiter;
pub mod memory;
pub mod peek_cache;
pub mod redis;
pub mod rule;
