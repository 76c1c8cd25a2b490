//! When a certificate is ordered. Pure: times are Unix seconds, and jitter comes from a seed, so
//! that a restart keeps the plan.

use serde::{Deserialize, Serialize};

use crate::base::hash::GOLDEN;

/// Shortest time between two orders for the same domain, in seconds.
pub const MIN_GAP_S: u64 = 60;

/// Longest time between a failed order and the next, in seconds: a day. Only the server can ask for
/// more.
const MAX_BACKOFF_S: u64 = 86_400;

/// Longest time that the server can ask to wait, in seconds: a week, the longest period of the rate
/// limits of a public certificate authority.
const MAX_RETRY_AFTER_S: u64 = 7 * 86_400;

/// Number of failures that a restart keeps at most: an operator who has mended the cause restarts
/// the gateway and then waits four minutes at most, but a gateway that restarts in a loop still
/// backs off.
const MAX_KEPT_FAILURES: u32 = 3;

/// How far the time of an attempt can lie in the future before it counts as the result of a wrong
/// clock.
const MAX_CLOCK_SKEW_S: u64 = 3_600;

/// The period for which a certificate is valid.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lifetime {
    /// First second of the period.
    pub not_before: u64,
    /// Last second of the period.
    pub not_after: u64,
}

/// The orders for one domain so far. Stored, so that restarts and other gateways respect them.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attempts {
    /// Time of the last order; 0 before the first.
    pub last: u64,
    /// Number of failed orders since the last successful one.
    pub failures: u32,
    /// Time before which the server does not want another order; 0 if it did not say.
    #[serde(default)]
    pub retry_at: u64,
    /// Why the last order failed; `None` if it did not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

impl Attempts {
    /// Adds an order that begins. If its result is never stored, the next waits for the minimum
    /// gap.
    pub fn begun(&self, now: u64) -> Self {
        Self { last: now, ..self.clone() }
    }

    /// Adds a successful order.
    pub fn succeeded(now: u64) -> Self {
        Self { last: now, ..Self::default() }
    }

    /// Adds a failed order. `retry_after` is the number of seconds that the server asks to wait.
    pub fn failed(&self, now: u64, retry_after: Option<u64>, error: String) -> Self {
        let wait = retry_after.map(|seconds| seconds.min(MAX_RETRY_AFTER_S));
        Self {
            last: now,
            failures: self.failures.saturating_add(1),
            retry_at: wait.map_or(0, |seconds| now.saturating_add(seconds)),
            error: Some(error),
        }
    }

    /// The orders as a gateway counts them that has just started.
    pub fn after_restart(self) -> Self {
        Self { failures: self.failures.min(MAX_KEPT_FAILURES), ..self }
    }
}

/// Returns the time of the next order. It may lie in the past: then the order is due.
///
/// `lifetime` is that of the present certificate, `None` without one. `seed` spreads the orders of
/// many domains and many gateways.
pub fn next_order(lifetime: Option<Lifetime>, attempts: &Attempts, seed: u64, now: u64) -> u64 {
    let due = lifetime.map_or(0, |lifetime| renewal_time(lifetime, seed));
    let has_attempt = attempts.last > 0 && attempts.last <= now.saturating_add(MAX_CLOCK_SKEW_S);
    if !has_attempt {
        return due;
    }
    let wait = match attempts.failures {
        0 => MIN_GAP_S,
        failures => {
            // A quarter of the time that is left: a short-lived certificate must not expire between
            // two attempts.
            let left = lifetime.map_or(0, |period| period.not_after.saturating_sub(attempts.last));
            let cap = if left == 0 { MAX_BACKOFF_S } else { (left / 4).max(MIN_GAP_S) };
            backoff(failures, seed).min(cap)
        }
    };
    let retry_at = attempts.retry_at.min(attempts.last.saturating_add(MAX_RETRY_AFTER_S));
    due.max(attempts.last.saturating_add(wait)).max(retry_at)
}

/// Returns when a certificate is renewed: at two thirds of its lifetime, or up to a thirtieth of
/// the lifetime earlier.
fn renewal_time(lifetime: Lifetime, seed: u64) -> u64 {
    let Lifetime { not_before, not_after } = lifetime;
    let length = not_after.saturating_sub(not_before);
    let jitter = seed % (length / 30 + 1);
    not_before.saturating_add(length - length / 3).saturating_sub(jitter)
}

/// Returns the seconds to wait after the given number of failures, at least 1: from about a minute,
/// doubling, to a day. Differs by an eighth in both directions.
fn backoff(failures: u32, seed: u64) -> u64 {
    let doublings = failures.saturating_sub(1).min(11);
    let middle = (MIN_GAP_S << doublings).min(MAX_BACKOFF_S);
    // Another multiple of the seed for each failure: two gateways that met once do not meet again.
    let random = seed.wrapping_add(u64::from(failures)).wrapping_mul(GOLDEN) >> 16;
    (middle - middle / 8 + random % (middle / 4 + 1)).clamp(MIN_GAP_S, MAX_BACKOFF_S)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const DAY: u64 = 86_400;

    /// Some time in 2026.
    const NOW: u64 = 1_795_000_000;

    fn failed(failures: u32, last: u64) -> Attempts {
        Attempts { last, failures, retry_at: 0, error: Some("e".to_owned()) }
    }

    #[test]
    fn renewal_is_at_two_thirds_of_the_lifetime_or_a_little_earlier() {
        let lifetime = Lifetime { not_before: NOW, not_after: NOW + 90 * DAY };
        let at = |seed| next_order(Some(lifetime), &Attempts::default(), seed, NOW) - NOW;
        assert_eq!(at(0), 60 * DAY);
        assert_eq!(at(3 * DAY), 57 * DAY, "the most jitter");
        assert_eq!(at(3 * DAY + 1), 60 * DAY);
        let short = Lifetime { not_before: NOW, not_after: NOW + 30 };
        assert_eq!(next_order(Some(short), &Attempts::default(), 0, NOW), NOW + 20);
    }

    #[test]
    fn missing_certificate_is_ordered_at_once_and_expired_one_too() {
        assert_eq!(next_order(None, &Attempts::default(), 7, NOW), 0);
        let expired = Lifetime { not_before: 0, not_after: NOW - 1 };
        assert!(next_order(Some(expired), &Attempts::default(), 7, NOW) <= NOW);
    }

    #[test]
    fn waits_grow_from_a_minute_to_a_day() {
        let waits: Vec<u64> = (1..=14)
            .map(|failures| next_order(None, &failed(failures, NOW), 0x5eed, NOW) - NOW)
            .collect();
        assert!(waits.first().is_some_and(|wait| (60..=68).contains(wait)), "{waits:?}");
        let doubles = |pair: &[u64]| pair[1] * 10 >= pair[0] * 14 || pair[1] > MAX_BACKOFF_S / 2;
        assert!(waits.windows(2).all(doubles), "{waits:?}");
        assert!(waits.iter().all(|wait| *wait <= MAX_BACKOFF_S), "{waits:?}");
        assert!(waits.last().is_some_and(|wait| *wait >= MAX_BACKOFF_S * 7 / 8), "{waits:?}");
    }

    #[test]
    fn server_can_ask_for_a_longer_wait_but_not_for_more_than_a_week() {
        let attempts = Attempts::default().failed(NOW, Some(7_200), "rate limited".to_owned());
        assert_eq!(next_order(None, &attempts, 1, NOW), NOW + 7_200);
        let attempts = Attempts::default().failed(NOW, Some(u64::MAX), "rate limited".to_owned());
        assert_eq!(next_order(None, &attempts, 1, NOW), NOW + 7 * DAY);
        let edited = Attempts { retry_at: u64::MAX, ..failed(1, NOW) };
        assert_eq!(next_order(None, &edited, 1, NOW), NOW + 7 * DAY);
    }

    #[test]
    fn attempt_in_the_future_is_ignored() {
        // The clock was wrong, and has been set since.
        assert_eq!(next_order(None, &failed(9, NOW + 400 * DAY), 1, NOW), 0);
    }

    #[test]
    fn restart_shortens_a_long_wait() {
        let attempts = failed(12, NOW).after_restart();
        assert!(next_order(None, &attempts, 1, NOW) <= NOW + 300);
        let asked = Attempts { retry_at: NOW + 7_200, ..failed(12, NOW) };
        assert_eq!(next_order(None, &asked.after_restart(), 1, NOW), NOW + 7_200);
    }

    proptest! {
        #![proptest_config(crate::base::cases::with_cases(256))]

        /// Whatever fails before: if the server then answers, the certificate is renewed before it
        /// expires, unless less than two minimum gaps are left.
        #[test]
        fn certificate_is_renewed_before_it_expires(
            length in 600_u64..400 * DAY,
            seed: u64,
            failures in 0_u32..40,
        ) {
            let lifetime = Lifetime { not_before: NOW, not_after: NOW + length };
            let mut attempts = Attempts::succeeded(NOW);
            let mut now = NOW;
            for _ in 0..failures {
                let next = next_order(Some(lifetime), &attempts, seed, now).max(now);
                if next + 3 * MIN_GAP_S >= lifetime.not_after {
                    break;
                }
                now = next;
                attempts = attempts.failed(now, None, String::new());
            }
            prop_assert!(next_order(Some(lifetime), &attempts, seed, now) < lifetime.not_after);
        }

        /// No inputs lead to two orders within the minimum gap.
        #[test]
        fn orders_are_never_closer_than_the_minimum_gap(
            period in proptest::option::of((any::<u64>(), any::<u64>())),
            last in 1_u64..u64::MAX / 2,
            failures: u32,
            retry_at: u64,
            seed: u64,
        ) {
            let lifetime = period.map(|(not_before, not_after)| Lifetime { not_before, not_after });
            let attempts = Attempts { last, failures, retry_at, error: None };
            prop_assert!(next_order(lifetime, &attempts, seed, last) >= last + MIN_GAP_S);
        }
    }
}
