//! When an event is sent again.

/// Number of attempts, over some seven hours.
pub(super) const ATTEMPTS: u32 = 20;

/// Time until the second attempt, in milliseconds.
const FIRST_MS: u64 = 1_000;

/// Longest time between two attempts, in milliseconds.
const MOST_MS: u64 = 30 * 60 * 1_000;

/// Milliseconds until the next attempt after `attempts`, each twice as long as the one before,
/// less up to a quarter by `random`; `None` after the last.
pub(super) fn wait_ms(attempts: u32, random: u64) -> Option<u64> {
    if attempts >= ATTEMPTS {
        return None;
    }
    let doubled = FIRST_MS.saturating_mul(1 << attempts.saturating_sub(1).min(32));
    let longest = doubled.min(MOST_MS);
    Some(longest - random % (longest / 4 + 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_double_up_to_half_an_hour_and_end() {
        let waits: Vec<Option<u64>> = (1..=ATTEMPTS).map(|attempts| wait_ms(attempts, 0)).collect();
        let first: Vec<Option<u64>> = [1_000, 2_000, 4_000, 8_000].map(Some).to_vec();
        assert_eq!(waits[..4], first);
        assert_eq!(waits[15], Some(MOST_MS));
        assert_eq!(waits[19], None);
        for random in [0, 7, u64::MAX] {
            let wait = wait_ms(3, random).unwrap();
            assert!((3_000..=4_000).contains(&wait), "{wait}");
        }
    }
}
