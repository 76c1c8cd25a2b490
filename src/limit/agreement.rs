//! Whether the gateways that share a store have the same limits. Pure.

use crate::base::duration::MICROS_PER_SECOND;

/// How long gateways must have different limits before it is reported, in microseconds: longer than
/// a reload of one after the other takes to be seen, and than a gateway counts that was killed.
const REPORT_DELAY_US: u64 = 15 * MICROS_PER_SECOND;

/// Whether all live gateways have the limits of this one, and whether it has been reported that
/// they do not.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Agreement {
    /// Number of gateways with other limits at the last count.
    others: u32,
    /// Time since which there are any, in microseconds.
    since: Option<u64>,
    is_reported: bool,
}

/// What is to be reported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// Gateways have had other limits for [`REPORT_DELAY_US`].
    Differ,
    /// All gateways have the same limits again, after [`Change::Differ`].
    Agree,
}

impl Agreement {
    /// Number of live gateways whose limits are not those of this one.
    pub const fn others(&self) -> u32 {
        self.others
    }

    /// Records that `others` gateways with other limits were counted at `now` (microseconds).
    pub fn observe(&mut self, others: u32, now: u64) -> Option<Change> {
        self.others = others;
        if others == 0 {
            self.since = None;
            return std::mem::take(&mut self.is_reported).then_some(Change::Agree);
        }
        let since = *self.since.get_or_insert(now);
        if self.is_reported || now.saturating_sub(since) < REPORT_DELAY_US {
            return None;
        }
        self.is_reported = true;
        Some(Change::Differ)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is reported at which second, by the numbers of gateways with other limits from second 0
    /// on.
    fn reported(counts: impl IntoIterator<Item = u32>) -> Vec<(u64, Change)> {
        let mut agreement = Agreement::default();
        let each = (0..).zip(counts).filter_map(|(second, others)| {
            Some((second, agreement.observe(others, second * MICROS_PER_SECOND)?))
        });
        each.collect()
    }

    #[test]
    fn difference_is_reported_once_after_15_seconds_and_then_its_end() {
        let counts = [0; 5].into_iter().chain([1; 40]).chain([0; 5]);
        assert_eq!(reported(counts), [(20, Change::Differ), (45, Change::Agree)]);
    }

    #[test]
    fn difference_of_a_reload_in_turn_is_not_reported() {
        let counts = [0, 1, 2].into_iter().chain([3; 12]).chain([0; 20]).chain([1; 15]).chain([0]);
        assert_eq!(reported(counts), []);
    }

    #[test]
    fn difference_with_ever_other_gateways_is_one() {
        assert_eq!(reported((0..40).map(|second| 1 + second % 3)), [(15, Change::Differ)]);
    }
}
