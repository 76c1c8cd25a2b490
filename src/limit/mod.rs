//! The limiter's core, pure: no I/O, no clock, no async. Every function takes `now` as a number
//! of ticks (microseconds), and every kept value is an integer.
//!
//! Reading order: [`quota`] (what is allowed), [`bucket`] (the level of one bucket and how it
//! moves), [`share`] (what a gateway takes that decides alone), [`charge`] (several buckets, all or
//! nothing), [`verdict`] (what to tell the client). For outages of the shared store: [`breaker`] (when
//! it is asked), [`membership`] (how many gateways share it), [`debt`] (what was granted without it). By hand: [`adjust`]. Who asks most: [`top_k`].
//!
//! # Another kind of limit
//!
//! The token bucket is the only kind today. Another kind (a sliding window, a calendar quota,
//! concurrency) needs two things of its own: a state with a transition like [`bucket::Bucket`],
//! and a way to say where it stands as a [`verdict::Standing`]. From there on, verdicts, headers
//! and metrics know only standings, never how a limit counts.

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
mod promises;

/// Ticks in a second: the clock of the limiter counts microseconds.
pub const MICROS_PER_SECOND: u64 = 1_000_000;

/// Whole seconds that cover `ticks`, rounded up: a client that waits that long is never early.
pub const fn seconds_up(ticks: u64) -> u64 {
    ticks.div_ceil(MICROS_PER_SECOND)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seconds_are_rounded_up() {
        for (ticks, seconds) in [(0, 0), (1, 1), (1_000_000, 1), (1_000_001, 2), (2_000_000, 2)] {
            assert_eq!(seconds_up(ticks), seconds, "{ticks}");
        }
    }
}
