//! Buckets that an operator has reset or granted tokens lately. What was taken from them before is
//! not given back: the bucket is as full as it would be if that had never been taken. Pure.

use std::collections::HashMap;

use parking_lot::Mutex;

use crate::base::duration::MICROS_PER_SECOND;
use crate::limit::charge::BucketId;

/// How long an adjustment is known, in microseconds. Longer than any request waits for a connection
/// to an upstream.
const KEPT_US: u64 = 3_600 * MICROS_PER_SECOND;

/// Maximum number of buckets. Beyond it, the adjustments that are known count for all buckets.
const MAX_BUCKETS: usize = 4_096;

/// Times of the last adjustments.
#[derive(Debug, Default)]
pub(super) struct Adjusted(Mutex<Times>);

#[derive(Debug, Default)]
struct Times {
    /// By bucket, in microseconds.
    buckets: HashMap<BucketId, u64>,
    /// Time of the last adjustment of a bucket that is not in the map, in microseconds; 0 without
    /// any.
    others: u64,
}

impl Adjusted {
    /// Notes that these buckets are adjusted at `now` (microseconds).
    pub(super) fn note(&self, buckets: impl Iterator<Item = BucketId>, now: u64) {
        let mut times = self.0.lock();
        let Times { buckets: known, others } = &mut *times;
        known.retain(|_, at| now.saturating_sub(*at) < KEPT_US);
        for bucket in buckets {
            if known.len() >= MAX_BUCKETS && !known.contains_key(&bucket) {
                known.clear();
                *others = now;
            }
            known.insert(bucket, now);
        }
    }

    /// Whether a bucket may have been adjusted at `taken_at` (microseconds) or later.
    pub(super) fn is_since(&self, bucket: BucketId, taken_at: u64) -> bool {
        let times = self.0.lock();
        let last = times.buckets.get(&bucket).copied().unwrap_or_default().max(times.others);
        last > 0 && last >= taken_at
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn adjustment_counts_for_what_was_taken_before() {
        let adjusted = Adjusted::default();
        assert!(!adjusted.is_since(BucketId(1), 0));
        adjusted.note([BucketId(1)].into_iter(), 50);
        assert_eq!([49, 50, 51].map(|at| adjusted.is_since(BucketId(1), at)), [true, true, false]);
        assert!(!adjusted.is_since(BucketId(2), 0));
    }

    #[test]
    fn adjustments_are_bounded_and_none_is_missed() {
        let adjusted = Adjusted::default();
        let all = |range: std::ops::Range<usize>| range.map(|number| BucketId(number as u128));
        adjusted.note(all(0..MAX_BUCKETS), 10);
        adjusted.note(all(MAX_BUCKETS..MAX_BUCKETS + 1), 20);
        assert_eq!(adjusted.0.lock().buckets.len(), 1);
        assert!(adjusted.is_since(BucketId(0), 10) && !adjusted.is_since(BucketId(0), 21));
        adjusted.note(all(0..1), 20 + KEPT_US);
        assert_eq!(adjusted.0.lock().buckets.len(), 1, "older ones are forgotten");
    }
}
