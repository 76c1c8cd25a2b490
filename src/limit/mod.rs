//! Token bucket arithmetic. Pure: no I/O, no clock, no async. Every function takes `now` in
//! microseconds, and all state is in integers.
//!
//! Reading order:
//! - [`quota`]: rate and burst of a token bucket, in integer units;
//! - [`bucket`]: level of one bucket, its refill and its charge;
//! - [`charge`]: one request checked against several buckets, all or nothing;
//! - [`verdict`]: the decision, and the numbers that a client gets: remaining, retry after, reset;
//! - [`adjust`]: reset and grant by an operator;
//! - [`breaker`], [`membership`], [`share`], [`debt`]: outages of the shared store: when to call it,
//!   how many gateways share it, how much one of them may grant locally, and what it then owes;
//! - [`top_k`]: the clients with the most requests.
//!
//! # Another kind of limit
//!
//! The token bucket is the only kind today. Another kind (a sliding window, a calendar quota,
//! concurrency) needs a state with a transition like [`bucket::Bucket`], and a conversion to a
//! [`verdict::Standing`]. Verdicts, headers and metrics read only standings.

pub mod adjust;
pub mod breaker;
pub mod bucket;
pub mod charge;
pub mod debt;
pub mod membership;
pub mod quota;
pub mod share;
pub mod top_k;
pub mod verdict;

#[cfg(test)]
mod property_tests;

/// Microseconds in a second.
pub const MICROS_PER_SECOND: u64 = 1_000_000;

/// Converts microseconds to whole seconds, rounded up, so that a client that waits for the result is
/// never early.
pub const fn seconds_up(us: u64) -> u64 {
    us.div_ceil(MICROS_PER_SECOND)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seconds_are_rounded_up() {
        for (us, seconds) in [(0, 0), (1, 1), (1_000_000, 1), (1_000_001, 2), (2_000_000, 2)] {
            assert_eq!(seconds_up(us), seconds, "{us}");
        }
    }
}
