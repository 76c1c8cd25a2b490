//! Concurrency: a kind of limit. Allows a number of units to be held at once. A request holds its
//! cost from the decision until its response has ended.
//!
//! Reading order: [`Concurrency`] (the parameters), [`HeldUnits`] (what one gateway holds of a
//! bucket), [`entries`] (what all gateways hold of it, as it is stored in Redis).

pub mod entries;

use thiserror::Error;

use super::verdict::Standing;
use crate::base::duration::MICROS_PER_SECOND;

/// Time in microseconds after which the units of a gateway that does not renew them are free.
pub const LEASE_US: u64 = 15 * MICROS_PER_SECOND;

/// Parameters of a limit of this kind. A unit is a thousandth of what a request of cost 1 holds,
/// the smallest part that a cost can have.
///
/// The level of such a bucket is the number of free units. No time passes for it: a unit is free
/// again when the request that holds it ends. So it is never kept as a
/// [`Bucket`](super::bucket::Bucket): a store computes the level from the units that are held.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Concurrency {
    /// Units that can be held at once.
    full: i64,
}

/// Error in the limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum ConcurrencyError {
    /// The limit is 0: every request would be denied.
    #[error("a limit of 0 would refuse every request; the smallest is 1")]
    ZeroLimit,
    /// The limit is above [`MAX_LIMIT`].
    #[error("the limit is too large: at most {MAX_LIMIT} requests in flight can be counted")]
    LimitTooLarge,
}

/// Largest limit. Thousandths of it fit in 32 bits.
pub const MAX_LIMIT: u64 = 1_000_000;

/// What a call of `take.lua` says about the gateway that sends it. An absolute number, so that any
/// statement corrects what an earlier call with a lost reply has left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Statement {
    /// Identifies the process.
    pub gateway: u64,
    /// Number of the statement. A later statement of the gateway has a higher one; the script
    /// ignores a statement that arrives after a later one.
    pub number: u64,
    /// Units that the gateway holds, without those that the call takes; `None`: those of its last
    /// statement.
    pub units: Option<i64>,
}

impl Statement {
    /// No statement, for calls that only read.
    pub const NONE: Self = Self { gateway: 0, number: 0, units: None };
}

impl Concurrency {
    /// Parts of a token, which are units.
    pub const PARTS: u64 = 1_000;

    /// Creates a limit of this many requests of cost 1.
    ///
    /// # Errors
    /// If the limit is 0 or above [`MAX_LIMIT`].
    pub const fn new(limit: u64) -> Result<Self, ConcurrencyError> {
        if limit == 0 {
            return Err(ConcurrencyError::ZeroLimit);
        }
        if limit > MAX_LIMIT {
            return Err(ConcurrencyError::LimitTooLarge);
        }
        Ok(Self { full: (limit * Self::PARTS).cast_signed() })
    }

    /// Requests of cost 1 that can be in flight at once.
    pub const fn limit(&self) -> u64 {
        self.full.unsigned_abs() / Self::PARTS
    }

    /// Units that can be held at once.
    pub const fn full(&self) -> i64 {
        self.full
    }

    /// Converts [`PARTS`](Self::PARTS) of a token to units, which they are. Saturates.
    pub const fn units(&self, parts: u64) -> i64 {
        if parts > i64::MAX.unsigned_abs() { i64::MAX } else { parts.cast_signed() }
    }

    /// Standing at `level`, for a request that needs `needed` units. `remaining` is the number of
    /// tokens that can be granted, `guess_us` is [`retry_guess_us`].
    pub const fn standing(
        &self,
        level: i64,
        needed: i64,
        remaining: u64,
        guess_us: u64,
    ) -> Standing {
        let guess_us = if guess_us == 0 { MICROS_PER_SECOND } else { guess_us };
        Standing {
            limit: self.limit(),
            remaining,
            retry_after_us: if level >= needed { 0 } else { guess_us },
            reset_us: if level >= self.full { 0 } else { guess_us },
        }
    }
}

/// Microseconds after which a refused request may be tried again: a guess between half a second and
/// two seconds, since no gateway knows when a request in flight will end. Differs for each `seed`,
/// so that clients that are refused together do not return together.
pub const fn retry_guess_us(seed: u64) -> u64 {
    // SplitMix64.
    let mut hash = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
    hash = (hash ^ (hash >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    hash = (hash ^ (hash >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    MICROS_PER_SECOND / 2 + (hash ^ (hash >> 31)) % (MICROS_PER_SECOND * 3 / 2)
}

/// Units of one bucket that requests of one gateway hold. Each request [takes](Self::take) its
/// units and
/// [releases](Self::release) them once.
///
/// An operator can free units while requests hold them. From then on, these requests count for at
/// most the rest, and their ends do not free units of later requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HeldUnits {
    /// Number of times that an operator has freed units.
    epoch: u32,
    /// Held by requests of this epoch.
    current: i64,
    /// Held by requests of earlier epochs.
    earlier: i64,
    /// Of the latter, those that count. At most `earlier`.
    counted: i64,
}

impl HeldUnits {
    /// Units that count against the limit.
    pub const fn units(&self) -> i64 {
        self.current + self.counted
    }

    /// Whether no request holds any.
    pub const fn is_empty(&self) -> bool {
        self.current == 0 && self.earlier == 0
    }

    /// Adds the units of a request. Returns the epoch to release them with.
    pub const fn take(&mut self, units: i64) -> u32 {
        self.current += units;
        self.epoch
    }

    /// Removes the units of a request that took them in `epoch`.
    pub fn release(&mut self, units: i64, epoch: u32) {
        if epoch == self.epoch {
            self.current = (self.current - units).max(0);
        } else {
            self.earlier = (self.earlier - units).max(0);
            self.counted = self.counted.min(self.earlier);
        }
    }

    /// Frees `units`, at most all.
    pub fn free(&mut self, units: i64) {
        self.counted = self.units().saturating_sub(units).max(0);
        self.earlier += self.current;
        self.current = 0;
        self.epoch = self.epoch.wrapping_add(1);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[derive(Clone, Debug)]
    enum Step {
        Take(i64),
        /// Ends one of the requests in flight.
        Release(prop::sample::Index),
        Free(i64),
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            4 => (1..5_i64).prop_map(Step::Take),
            4 => any::<prop::sample::Index>().prop_map(Step::Release),
            1 => prop_oneof![0..10_i64, Just(i64::MAX)].prop_map(Step::Free),
        ]
    }

    proptest! {
        #![proptest_config(crate::base::cases::with_cases(256))]

        /// In any order, units never fall below zero, never exceed what requests hold, count fully
        /// without an operator, and are all free at the end.
        #[test]
        fn releases_and_takes_in_any_order_leak_nothing(
            steps in prop::collection::vec(step(), 1..200),
        ) {
            let mut held = HeldUnits::default();
            let mut requests: Vec<(i64, u32)> = Vec::new();
            let mut freed = 0_i64;
            for step in steps {
                match step {
                    Step::Take(units) => requests.push((units, held.take(units))),
                    Step::Release(_) if requests.is_empty() => {}
                    Step::Release(at) => {
                        let (units, epoch) = requests.swap_remove(at.index(requests.len()));
                        held.release(units, epoch);
                    }
                    Step::Free(units) => {
                        let before = held.units();
                        held.free(units);
                        prop_assert_eq!(held.units(), before.saturating_sub(units).max(0));
                        freed = freed.saturating_add(units);
                    }
                }
                let real: i64 = requests.iter().map(|(units, _)| units).sum();
                let current: i64 = requests
                    .iter()
                    .filter(|(_, epoch)| *epoch == held.epoch)
                    .map(|(units, _)| units)
                    .sum();
                prop_assert!(held.units() >= current, "later requests count fully");
                prop_assert!(held.units() <= real && held.units() >= real.saturating_sub(freed));
                prop_assert_eq!(held.is_empty(), requests.is_empty());
            }
            for (units, epoch) in requests {
                held.release(units, epoch);
            }
            prop_assert!(held.is_empty());
            prop_assert_eq!(held.units(), 0);
        }
    }

    #[test]
    fn requests_that_were_in_flight_at_a_reset_free_no_units_of_later_ones() {
        let mut held = HeldUnits::default();
        let old = held.take(10);
        held.free(i64::MAX);
        assert_eq!(held.units(), 0);
        let new = held.take(3);
        held.release(10, old);
        assert_eq!(held.units(), 3);
        held.release(3, new);
        assert!(held.is_empty());
    }

    #[test]
    fn retry_is_a_guess_of_half_a_second_to_two_that_differs() {
        let guesses: Vec<u64> = (0..1_000).map(retry_guess_us).collect();
        assert!(guesses.iter().all(|us| (500_000..2_000_000).contains(us)));
        let below_a_second = guesses.iter().filter(|us| **us < 1_000_000).count();
        assert!((250..420).contains(&below_a_second), "{below_a_second}");
    }

    #[test]
    fn limit_is_1_to_a_million() {
        assert_eq!(Concurrency::new(0), Err(ConcurrencyError::ZeroLimit));
        assert_eq!(Concurrency::new(MAX_LIMIT).unwrap().limit(), MAX_LIMIT);
        assert_eq!(Concurrency::new(MAX_LIMIT + 1), Err(ConcurrencyError::LimitTooLarge));
    }
}
