//! How long to wait before the next attempt to connect. Pure.

/// The longest wait after one failure; it doubles with each further one.
const FIRST_MS: u64 = 50;

/// A connection that lived this long was a good one: what fails after it is a new story.
pub(super) const STEADY_MS: u64 = 10_000;

/// Milliseconds before the next attempt when `failures` in a row came before it: anything between
/// 1 and the bound ("full jitter"), so that gateways which lost their Redis together do not come
/// back together.
pub(super) fn delay_ms(failures: u32, most_ms: u64, random: u64) -> u64 {
    let bound = FIRST_MS.checked_shl(failures.min(32)).unwrap_or(most_ms).min(most_ms);
    1 + random % bound.max(1)
}

/// Failures in a row after a connection that lived this long. One that broke at once counts as
/// one more failure, or a server that accepts and then refuses would be connected to in a loop.
pub(super) fn failures_after(failures: u32, lived_ms: u64) -> u32 {
    if lived_ms >= STEADY_MS { 0 } else { failures.saturating_add(1) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bound_doubles_up_to_the_most() {
        let bounds: Vec<u64> =
            (0..9).map(|failures| delay_ms(failures, 5_000, u64::MAX - 1)).collect();
        for (failures, delay) in bounds.into_iter().enumerate() {
            let bound = (50 << failures).min(5_000);
            assert!((1..=bound).contains(&delay), "{failures}: {delay}");
            let failures = u32::try_from(failures).unwrap();
            assert_eq!(delay_ms(failures, 5_000, bound - 1), bound);
            assert_eq!(delay_ms(failures, 5_000, 0), 1);
        }
        assert_eq!(delay_ms(u32::MAX, 5_000, 4_999), 5_000);
        assert_eq!(delay_ms(9, 0, 7), 1);
    }

    #[test]
    fn only_a_steady_connection_starts_anew() {
        assert_eq!(failures_after(7, STEADY_MS), 0);
        assert_eq!(failures_after(7, STEADY_MS - 1), 8);
        assert_eq!(failures_after(0, 0), 1);
    }
}
