//! Whether a client sends or reads too slowly. Pure: times are microseconds of the monotonic clock.
//!
//! A client has a time allowance. Waiting for the client spends it, each byte that the client sends
//! or reads adds the time that it may take at the minimum rate. So a client that is cut off has had
//! less than the minimum rate, over all of its waits less the allowance at the beginning. Waits for
//! the upstream spend nothing.

use std::num::NonZeroU64;

/// Time allowance at the beginning, in microseconds.
const GRACE_US: u64 = 5_000_000;

/// Largest time allowance, in microseconds: a client that was fast can pause for as long.
const MAX_ALLOWANCE_US: u64 = 30_000_000;

const US_PER_SECOND: u64 = 1_000_000;

/// Largest minimum rate, in bytes a second.
pub const MAX_RATE: u64 = 1_000_000_000;

/// Measures one direction of one connection or request.
#[derive(Clone, Copy, Debug)]
pub struct RateMeter {
    /// Bytes a second, up to [`MAX_RATE`].
    rate: NonZeroU64,
    /// The allowance at the beginning of the current wait, in microseconds times `rate`, so that no
    /// byte is lost to rounding.
    allowance: u64,
    /// When the current wait for the client began; `None`: nothing is expected of it.
    waiting_since: Option<u64>,
}

impl RateMeter {
    /// Begins to measure. Rates beyond [`MAX_RATE`] count as that.
    pub fn new(rate: NonZeroU64) -> Self {
        let rate = rate.min(NonZeroU64::new(MAX_RATE).unwrap_or(rate));
        Self { rate, allowance: GRACE_US.saturating_mul(rate.get()), waiting_since: None }
    }

    /// Notes that the gateway waits for the client from `now` on. No effect if it does already.
    pub fn wait(&mut self, now: u64) {
        self.waiting_since.get_or_insert(now);
    }

    /// Notes that the gateway no longer waits for the client.
    pub fn pause(&mut self, now: u64) {
        if let Some(since) = self.waiting_since.take() {
            let spent = now.saturating_sub(since).saturating_mul(self.rate.get());
            self.allowance = self.allowance.saturating_sub(spent);
        }
    }

    /// Notes that the last `us` microseconds of a wait were no wait for the client.
    pub fn skip(&mut self, now: u64, us: u64) {
        if let Some(since) = &mut self.waiting_since {
            *since = since.saturating_add(us).min(now.max(*since));
        }
    }

    /// Notes that the client has sent or read this many bytes until `now`. A wait continues.
    pub fn note(&mut self, now: u64, bytes: u64) {
        let is_waiting = self.waiting_since.is_some();
        self.pause(now);
        let most = MAX_ALLOWANCE_US.saturating_mul(self.rate.get());
        let added = bytes.saturating_mul(US_PER_SECOND);
        self.allowance = self.allowance.saturating_add(added).min(most);
        if is_waiting {
            self.wait(now);
        }
    }

    /// When the client is too slow unless it sends or reads something before; `None` while the
    /// gateway does not wait for it.
    pub fn deadline(&self) -> Option<u64> {
        Some(self.waiting_since?.saturating_add(self.allowance.div_ceil(self.rate.get())))
    }

    /// Whether the client is too slow.
    pub fn is_too_slow(&self, now: u64) -> bool {
        self.deadline().is_some_and(|deadline| now >= deadline)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn meter(rate: u64) -> RateMeter {
        RateMeter::new(NonZeroU64::new(rate).unwrap())
    }

    #[test]
    fn silent_client_is_too_slow_after_the_grace() {
        let mut meter = meter(240);
        assert_eq!(meter.deadline(), None);
        meter.wait(1_000);
        assert_eq!(meter.deadline(), Some(1_000 + GRACE_US));
        assert!(!meter.is_too_slow(999 + GRACE_US));
        assert!(meter.is_too_slow(1_000 + GRACE_US));
    }

    #[test]
    fn byte_a_second_hardly_extends_the_grace() {
        let mut meter = meter(240);
        meter.wait(0);
        for second in 1..=5 {
            assert!(!meter.is_too_slow(second * US_PER_SECOND - 1));
            meter.note(second * US_PER_SECOND, 1);
        }
        assert!(meter.is_too_slow(5_021_000));
    }

    #[test]
    fn waits_for_the_upstream_are_free() {
        let mut meter = meter(240);
        meter.wait(0);
        meter.pause(GRACE_US - 1);
        assert!(!meter.is_too_slow(u64::MAX));
        meter.wait(3_600_000_000);
        assert_eq!(meter.deadline(), Some(3_600_000_001));
    }

    #[test]
    fn fast_client_can_pause_for_the_largest_allowance() {
        let mut meter = meter(240);
        meter.wait(0);
        meter.note(1_000_000, 1_000_000_000);
        assert_eq!(meter.deadline(), Some(1_000_000 + MAX_ALLOWANCE_US));
    }

    /// A client's behavior in one wait: how long it takes, how many bytes it ends with, and how
    /// long the gateway does not wait afterwards.
    fn steps() -> impl Strategy<Value = Vec<(u64, u64, u64)>> {
        proptest::collection::vec((0..3_000_000_u64, 0..100_000_u64, 0..60_000_000_u64), 1..200)
    }

    proptest! {
        #![proptest_config(crate::base::cases::with_cases(256))]

        #[test]
        fn client_at_the_rate_is_never_too_slow(rate in 1..=MAX_RATE, steps in steps()) {
            let (mut meter, mut now) = (meter(rate), 0);
            for (took, _, pause) in steps {
                meter.wait(now);
                prop_assert!(!meter.is_too_slow(now + took), "at {now}");
                now += took;
                // Rounded up to a whole byte.
                let due = (u128::from(took) * u128::from(rate)).div_ceil(1_000_000);
                meter.note(now, u64::try_from(due).unwrap());
                meter.pause(now);
                now += pause;
            }
        }

        #[test]
        fn client_that_is_too_slow_had_less_than_the_rate_in_some_period(
            rate in 1..100_000_u64,
            steps in steps(),
        ) {
            let (mut meter, mut now) = (meter(rate), 0);
            // Time of waiting and bytes since the beginning, at the end of each wait.
            let (mut waited, mut bytes, mut points) = (0_u64, 0_u64, vec![(0, 0)]);
            for (took, sent, pause) in steps {
                meter.wait(now);
                if meter.is_too_slow(now + took) {
                    let slow = points.iter().any(|(waited_then, bytes_then)| {
                        let waited = u128::from(waited + took - waited_then);
                        let expected = waited.saturating_sub(u128::from(GRACE_US)) * u128::from(rate);
                        u128::from(bytes - bytes_then) * 1_000_000 <= expected
                    });
                    prop_assert!(slow, "too slow at {now}");
                    return Ok(());
                }
                now += took;
                waited += took;
                bytes += sent;
                points.push((waited, bytes));
                meter.note(now, sent);
                meter.pause(now);
                now += pause;
            }
        }

        #[test]
        fn client_below_the_rate_is_too_slow_in_the_end(rate in 2..=MAX_RATE, pace in 1..1_000_000_u64) {
            let mut meter = meter(rate);
            let (mut now, mut sent) = (0, 0);
            meter.wait(now);
            // At half of the rate, the allowance of 5 s lasts for 10 s, and whole bytes for no
            // longer than that.
            while !meter.is_too_slow(now) {
                now += pace;
                let due = u64::try_from(u128::from(now) * u128::from(rate / 2) / 1_000_000).unwrap();
                if !meter.is_too_slow(now) {
                    meter.note(now, due - sent);
                }
                sent = due;
                prop_assert!(now <= 2 * GRACE_US + 2 * pace, "{now}");
            }
        }
    }
}
