//! How many live gateways share the store, as smoothed from heartbeat counts that may be missing or
//! too low. Pure.

use crate::base::duration::MICROS_PER_SECOND;

/// How long a lower count must persist before it is adopted, in microseconds. After an outage the
/// first gateway to reconnect counts only itself until the others have sent a heartbeat.
const SHRINK_DELAY_US: u64 = 30 * MICROS_PER_SECOND;

/// Longest gap between two counts that still belong to one series of lower counts, in microseconds.
const MAX_GAP_US: u64 = 10 * MICROS_PER_SECOND;

/// Upper bound of the number, equal to the largest that the configuration file accepts. Invalid
/// data in the shared store must not shrink this gateway's local share to nothing.
const MAX_GATEWAYS: u32 = 10_000;

/// Number of live gateways. It rises with the first higher count. It falls by the gateways that
/// have left, and otherwise only after 30 s of lower counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Membership {
    live: u32,
    /// Gateways that had left at the last count; `None` before the first.
    left: Option<u64>,
    /// Highest count since `fewer_since`, while counts are below `live`; 0 otherwise.
    fewer: u32,
    fewer_since: u64,
    /// Time of the last count.
    last: u64,
}

impl Membership {
    /// This gateway only, before the first count.
    pub const fn new() -> Self {
        Self { live: 1, left: None, fewer: 0, fewer_since: 0, last: 0 }
    }

    /// Number of live gateways to divide a limit by, 1 to 10,000.
    pub const fn live(&self) -> u32 {
        self.live
    }

    /// Records that `gateways` were counted at `now` (microseconds), and that `left` have left so
    /// far. The count is clamped to 1 to 10,000.
    pub fn observe(&mut self, gateways: u32, left: u64, now: u64) {
        let gateways = gateways.clamp(1, MAX_GATEWAYS);
        self.subtract(left);
        let continues = self.fewer > 0 && now.saturating_sub(self.last) <= MAX_GAP_US;
        self.last = now;
        if gateways >= self.live {
            (self.live, self.fewer) = (gateways, 0);
        } else if !continues {
            (self.fewer, self.fewer_since) = (gateways, now);
        } else {
            self.fewer = self.fewer.max(gateways);
            if now.saturating_sub(self.fewer_since) >= SHRINK_DELAY_US {
                (self.live, self.fewer) = (self.fewer, 0);
            }
        }
    }

    /// Subtracts the gateways that have left since the last count. The store counts them from zero
    /// again if it loses its data.
    fn subtract(&mut self, left: u64) {
        let before = self.left.replace(left).unwrap_or(left);
        let gone = u32::try_from(left.saturating_sub(before)).unwrap_or(u32::MAX);
        self.live = self.live.saturating_sub(gone).max(1);
        self.fewer = self.fewer.saturating_sub(gone);
    }
}

impl Default for Membership {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Number of live gateways after these counts, each at a second of the test.
    fn live_after(counts: &[(u64, u32)]) -> u32 {
        let mut membership = Membership::new();
        for (second, gateways) in counts {
            membership.observe(*gateways, 0, second * MICROS_PER_SECOND);
        }
        membership.live()
    }

    #[test]
    fn higher_count_counts_at_once_and_lower_count_after_30_seconds() {
        assert_eq!(live_after(&[]), 1);
        assert_eq!(live_after(&[(0, 0)]), 1);
        assert_eq!(live_after(&[(0, 3)]), 3);
        assert_eq!(live_after(&[(0, u32::MAX)]), 10_000);
        assert_eq!(live_after(&[(0, 3), (3, 1)]), 3);
        let ones: Vec<_> = (0..15).map(|beat| (10 + beat * 3, 1)).collect();
        let counts = |until: u64| {
            let beats = ones.iter().copied().filter(|(second, _)| *second <= until);
            std::iter::once((7, 3)).chain(beats).collect::<Vec<_>>()
        };
        assert_eq!(live_after(&counts(39)), 3);
        assert_eq!(live_after(&counts(40)), 1);
    }

    #[test]
    fn lower_counts_around_an_outage_do_not_shrink_the_membership() {
        assert_eq!(live_after(&[(0, 3), (3, 1), (60, 1)]), 3, "no counts in between");
        assert_eq!(live_after(&[(0, 3), (60, 1), (63, 2), (66, 3), (99, 1)]), 3);
        let slowly = [(0, 5), (3, 2), (12, 3), (21, 2), (30, 2), (33, 2)];
        assert_eq!(live_after(&slowly), 3, "the highest of the lower counts");
    }

    #[test]
    fn gateways_that_leave_are_not_counted_from_the_next_count_on() {
        let mut membership = Membership::new();
        let mut live = |second: u64, gateways, left| {
            membership.observe(gateways, left, second * MICROS_PER_SECOND);
            membership.live()
        };
        assert_eq!(live(0, 3, 7), 3, "those that left before the first count were never counted");
        assert_eq!(live(1, 4, 7), 4);
        assert_eq!(live(2, 3, 8), 3);
        assert_eq!(live(3, 1, 9), 2, "one has left, one may be late");
        assert_eq!(live(4, 1, 10), 1);
        assert_eq!(live(5, 3, 0), 3, "the store has lost its data");
        assert_eq!(live(6, 1, 0), 3);
        assert_eq!(live(7, 1, u64::MAX), 1);
    }
}
