//! How many live gateways share the store, as smoothed from heartbeat counts that may be missing or
//! too low. Pure.

use super::MICROS_PER_SECOND;

/// How long a lower count must persist before it is adopted, in microseconds. After an outage the
/// first gateway to reconnect counts only itself until the others have sent a heartbeat.
const SHRINK_DELAY_US: u64 = 30 * MICROS_PER_SECOND;

/// Longest gap between two counts that still belong to one series of lower counts, in microseconds.
const MAX_GAP_US: u64 = 10 * MICROS_PER_SECOND;

/// Upper bound of the number, equal to the largest that the configuration file accepts. Invalid
/// data in the shared store must not shrink this gateway's local share to nothing.
const MAX_GATEWAYS: u32 = 10_000;

/// Number of live gateways. It rises with the first higher count and falls only after
/// 30 s of lower counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Membership {
    live: u32,
    /// Highest count since `fewer_since`, while counts are below `live`; 0 otherwise.
    fewer: u32,
    fewer_since: u64,
    /// Time of the last count.
    last: u64,
}

impl Membership {
    /// This gateway only, before the first count.
    pub const fn new() -> Self {
        Self { live: 1, fewer: 0, fewer_since: 0, last: 0 }
    }

    /// Number of live gateways to divide a limit by, 1 to 10,000.
    pub const fn live(&self) -> u32 {
        self.live
    }

    /// Records that `gateways` were counted at `now` (microseconds). The count is clamped to 1 to
    /// 10,000.
    pub fn observe(&mut self, gateways: u32, now: u64) {
        let gateways = gateways.clamp(1, MAX_GATEWAYS);
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
            membership.observe(*gateways, second * MICROS_PER_SECOND);
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
}
