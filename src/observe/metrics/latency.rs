//! Histograms of durations for percentiles. Their buckets are finer than those of the Prometheus
//! series: a bucket is at most an eighth of its lower bound wide.

use std::sync::atomic::{AtomicU64, Ordering};

use serde::{Deserialize, Serialize};

/// Number of buckets per power of two, and width of the buckets below [`FIRST_US`], in
/// microseconds.
const PER_OCTAVE: usize = 8;

/// Microseconds from which the width of a bucket is an eighth of its power of two.
const FIRST_US: u64 = 64;

/// Number of powers of two from [`FIRST_US`]. The last one ends at 2^32 µs, 71 minutes.
const OCTAVES: usize = 26;

/// Number of buckets. The last one also counts longer durations.
const BUCKETS: usize = PER_OCTAVE * (OCTAVES + 1);

/// Counts durations. Any number of threads record; one takes the counts.
#[derive(Debug)]
pub(super) struct LatencyHistogram([AtomicU64; BUCKETS]);

/// Numbers of durations by bucket, packed: for each bucket that is not empty its index, in one
/// byte, and its count in seven bits a byte, the lowest first.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "Vec<(u64, u64)>", into = "Vec<(u64, u64)>")]
pub struct Durations(Box<[u8]>);

/// Numbers of durations by bucket.
#[derive(Clone, Debug)]
pub(super) struct DurationCounts([u64; BUCKETS]);

/// Median and 99th percentile, in microseconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Percentiles {
    /// Half of the durations are at most this.
    pub p50_us: f64,
    /// 99 % of the durations are at most this.
    pub p99_us: f64,
}

/// Index of the bucket of a duration in microseconds.
fn bucket(us: u64) -> usize {
    if us < FIRST_US {
        return usize::try_from(us).unwrap_or_default() / PER_OCTAVE;
    }
    let octave = us.ilog2();
    let eighth = usize::try_from((us >> (octave - 3)) & 7).unwrap_or_default();
    let octave = usize::try_from(octave - FIRST_US.ilog2()).unwrap_or_default();
    ((octave + 1) * PER_OCTAVE + eighth).min(BUCKETS - 1)
}

/// Lower bound of a bucket, in microseconds. That of the next bucket is its upper bound.
fn lower_us(bucket: usize) -> u64 {
    let eighth = (bucket % PER_OCTAVE) as u64;
    match (bucket / PER_OCTAVE).checked_sub(1) {
        None => eighth * PER_OCTAVE as u64,
        Some(octave) => (PER_OCTAVE as u64 + eighth) << (octave + 3),
    }
}

// === impl LatencyHistogram ===

impl Default for LatencyHistogram {
    fn default() -> Self {
        Self(std::array::from_fn(|_| AtomicU64::new(0)))
    }
}

impl LatencyHistogram {
    /// Records a duration in microseconds.
    pub(super) fn observe(&self, us: u64) {
        if let Some(count) = self.0.get(bucket(us)) {
            count.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// The durations since the previous call.
    pub(super) fn take(&self) -> Durations {
        let mut packed = Vec::new();
        for (index, count) in (0..).zip(&self.0) {
            // Most buckets are empty, and a load is cheaper than a swap.
            if count.load(Ordering::Relaxed) > 0 {
                pack(&mut packed, index, count.swap(0, Ordering::Relaxed));
            }
        }
        Durations(packed.into())
    }
}

// === impl Durations ===

/// Appends a bucket.
fn pack(packed: &mut Vec<u8>, index: u8, mut count: u64) {
    packed.push(index);
    loop {
        let low = (count & 0x7f) as u8;
        count >>= 7;
        packed.push(if count == 0 { low } else { low | 0x80 });
        if count == 0 {
            return;
        }
    }
}

impl Durations {
    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn add(&mut self, other: &Self) {
        if self.is_empty() {
            self.clone_from(other);
        } else if !other.is_empty() {
            let mut counts = DurationCounts::default();
            counts.add(self);
            counts.add(other);
            *self = counts.packed();
        }
    }

    /// The percentiles; `None` without durations.
    pub fn percentiles(&self) -> Option<Percentiles> {
        let mut counts = DurationCounts::default();
        counts.add(self);
        Some(Percentiles { p50_us: counts.quantile_us(0.5)?, p99_us: counts.quantile_us(0.99)? })
    }
}

/// From lower bounds of buckets, in microseconds, and their counts. Bounds of other buckets count
/// in those that contain them.
impl From<Vec<(u64, u64)>> for Durations {
    fn from(counted: Vec<(u64, u64)>) -> Self {
        let mut counts = DurationCounts::default();
        for (lower_us, count) in counted {
            if let Some(sum) = counts.0.get_mut(bucket(lower_us)) {
                *sum = sum.saturating_add(count);
            }
        }
        counts.packed()
    }
}

impl From<Durations> for Vec<(u64, u64)> {
    fn from(durations: Durations) -> Self {
        let mut counts = DurationCounts::default();
        counts.add(&durations);
        let each = counts.0.into_iter().enumerate().filter(|(_, count)| *count > 0);
        each.map(|(index, count)| (lower_us(index), count)).collect()
    }
}

// === impl DurationCounts ===

impl Default for DurationCounts {
    fn default() -> Self {
        Self([0; BUCKETS])
    }
}

impl DurationCounts {
    pub(super) fn add(&mut self, durations: &Durations) {
        let mut bytes = durations.0.iter().copied();
        while let Some(index) = bytes.next() {
            let (mut count, mut shift) = (0_u64, 0);
            for byte in bytes.by_ref() {
                count |= u64::from(byte & 0x7f) << shift;
                shift += 7;
                if byte < 0x80 {
                    break;
                }
            }
            if let Some(sum) = self.0.get_mut(usize::from(index)) {
                *sum += count;
            }
        }
    }

    /// The same counts in less memory.
    pub(super) fn packed(&self) -> Durations {
        let mut packed = Vec::new();
        for (index, count) in (0..).zip(self.0).filter(|(_, count)| *count > 0) {
            pack(&mut packed, index, count);
        }
        Durations(packed.into())
    }

    /// The duration that a share of all durations does not exceed, in microseconds. Linear between
    /// the bounds of its bucket, as Prometheus' `histogram_quantile`; `None` without durations.
    #[allow(clippy::cast_precision_loss, reason = "counts and bounds are far below 2^53")]
    fn quantile_us(&self, share: f64) -> Option<f64> {
        let rank = share * self.0.iter().sum::<u64>() as f64;
        let mut before = 0.0;
        let filled = self.0.iter().enumerate().filter(|(_, count)| **count > 0);
        let mut last = None;
        for (index, count) in filled {
            let (lower, upper) = (lower_us(index) as f64, lower_us(index + 1) as f64);
            let count = *count as f64;
            if before + count >= rank {
                return Some(lower + (upper - lower) * (rank - before) / count);
            }
            before += count;
            last = Some(upper);
        }
        last
    }
}

#[cfg(test)]
impl Durations {
    pub(crate) fn of(each: impl IntoIterator<Item = u64>) -> Self {
        let histogram = LatencyHistogram::default();
        for us in each {
            histogram.observe(us);
        }
        histogram.take()
    }

    /// Size in memory, without that of the type.
    pub(crate) fn bytes(&self) -> usize {
        self.0.len()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn durations(each: &[u64]) -> Durations {
        Durations::of(each.iter().copied())
    }

    #[test]
    fn buckets_are_an_eighth_wide_and_have_no_gaps() {
        assert_eq!((lower_us(0), lower_us(7), lower_us(8), lower_us(9)), (0, 56, 64, 72));
        assert_eq!(lower_us(BUCKETS), 1 << 32);
        for index in 0..BUCKETS {
            let (lower, upper) = (lower_us(index), lower_us(index + 1));
            assert_eq!((bucket(lower), bucket(upper - 1)), (index, index));
            assert!(upper - lower <= 8 || (upper - lower) * 8 <= lower, "{lower} to {upper}");
        }
        assert_eq!(bucket(u64::MAX), BUCKETS - 1);
    }

    #[test]
    fn taken_durations_are_not_taken_again() {
        let histogram = LatencyHistogram::default();
        histogram.observe(5);
        assert_eq!(histogram.take(), durations(&[6]));
        assert_eq!(histogram.take(), Durations::default());
        assert_eq!(Durations::default().percentiles(), None);
    }

    #[test]
    fn durations_are_sent_by_lower_bounds() {
        let each = durations(&[5, 6, 64, 1_000_000]);
        let json = serde_json::to_string(&each).unwrap();
        assert_eq!(json, "[[0,2],[64,1],[983040,1]]");
        assert_eq!(serde_json::from_str::<Durations>(&json).unwrap(), each);
        // Bounds of a program with other buckets.
        let other: Durations = serde_json::from_str("[[983041,1],[65,1],[7,2]]").unwrap();
        assert_eq!(other, each);
    }

    proptest! {
        #![proptest_config(crate::base::cases::with_cases(256))]

        #[test]
        fn percentile_is_at_most_a_bucket_off(mut each in prop::collection::vec(0..5_000_000_u64, 1..300)) {
            let found = durations(&each).percentiles().unwrap();
            each.sort_unstable();
            for (share, found) in [(50, found.p50_us), (99, found.p99_us)] {
                #[allow(clippy::cast_precision_loss, reason = "below 2^53")]
                let exact = each[(each.len() * share).div_ceil(100) - 1] as f64;
                prop_assert!((found - exact).abs() <= (exact / 8.0).max(8.0), "{found} of {exact}");
            }
        }

        #[test]
        fn sum_is_that_of_all_durations(
            parts in prop::collection::vec(prop::collection::vec(any::<u64>(), 0..400), 0..6),
        ) {
            let mut sum = Durations::default();
            for part in &parts {
                sum.add(&durations(part));
            }
            prop_assert_eq!(sum, durations(&parts.concat()));
        }
    }
}
