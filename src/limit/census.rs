//! How many gateways there are, to go by when they cannot be counted. Pure.

use super::TICKS_PER_SECOND;

/// How long fewer gateways must have been seen before fewer are believed: whoever comes back first
/// after an outage sees itself alone, until the others are back too.
const DOUBT: u64 = 30 * TICKS_PER_SECOND;

/// Looks further apart than this say nothing of the time between them.
const GAP: u64 = 10 * TICKS_PER_SECOND;

/// More are not believed, as the file may not name more: whoever writes nonsense into the shared
/// store must not make this gateway's part of a limit so small that it never grants anything again.
const MOST: u32 = 10_000;

/// The number to go by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Census {
    believed: u32,
    /// The most that were seen since `since`, where that was fewer than are believed.
    fewer: u32,
    since: u64,
    last: u64,
}

impl Census {
    /// Nobody was counted: there is this gateway.
    pub const fn alone() -> Self {
        Self { believed: 1, fewer: 0, since: 0, last: 0 }
    }

    /// How many to go by, 1 to 10,000.
    pub const fn believed(&self) -> u32 {
        self.believed
    }

    /// Notes that so many were counted at `now`.
    pub fn counted(&mut self, gateways: u32, now: u64) {
        let gateways = gateways.clamp(1, MOST);
        let goes_on = self.fewer > 0 && now.saturating_sub(self.last) <= GAP;
        self.last = now;
        if gateways >= self.believed {
            (self.believed, self.fewer) = (gateways, 0);
        } else if !goes_on {
            (self.fewer, self.since) = (gateways, now);
        } else {
            self.fewer = self.fewer.max(gateways);
            if now.saturating_sub(self.since) >= DOUBT {
                (self.believed, self.fewer) = (self.fewer, 0);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is believed after counts that many seconds into the test.
    fn after(counts: &[(u64, u32)]) -> u32 {
        let mut census = Census::alone();
        for (second, gateways) in counts {
            census.counted(*gateways, second * TICKS_PER_SECOND);
        }
        census.believed()
    }

    #[test]
    fn more_are_believed_at_once_and_fewer_after_a_while() {
        assert_eq!(after(&[]), 1);
        assert_eq!(after(&[(0, 0)]), 1);
        assert_eq!(after(&[(0, 3)]), 3);
        assert_eq!(after(&[(0, u32::MAX)]), 10_000);
        assert_eq!(after(&[(0, 3), (3, 1)]), 3);
        let seen_alone: Vec<_> = (0..15).map(|look| (10 + look * 3, 1)).collect();
        let counts = |until: u64| {
            let looks = seen_alone.iter().copied().filter(|(second, _)| *second <= until);
            std::iter::once((7, 3)).chain(looks).collect::<Vec<_>>()
        };
        assert_eq!(after(&counts(39)), 3);
        assert_eq!(after(&counts(40)), 1);
    }

    #[test]
    fn an_outage_is_no_proof_that_the_others_are_gone() {
        assert_eq!(after(&[(0, 3), (3, 1), (60, 1)]), 3, "nobody looked in between");
        assert_eq!(after(&[(0, 3), (60, 1), (63, 2), (66, 3), (99, 1)]), 3);
        let slowly = [(0, 5), (3, 2), (12, 3), (21, 2), (30, 2), (33, 2)];
        assert_eq!(after(&slowly), 3, "the most that were seen meanwhile");
    }
}
