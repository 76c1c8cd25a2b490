//! [`KeptLog`]: the log of a sliding window, as the file has it.

use crate::limit::Limit;
use crate::limit::charge::BucketId;
use crate::limit::sliding_window::SlidingWindow;
use crate::store::memory::{ChangedLog, MemoryStore};

/// Size of a stamp in the file.
const STAMP: usize = size_of::<i64>();

/// Largest number of stamps that are written again when one is added.
pub(super) const MAX_TAIL: usize = 64;

/// Number of stamps that count as a record against `usage.max_records`, beside the first.
const STAMPS_PER_RECORD: usize = 16;

/// When the tokens of one bucket were taken, in microseconds of Unix time. At least one, the oldest
/// first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeptLog {
    pub bucket: BucketId,
    /// The limit that they were counted under.
    pub window: SlidingWindow,
    /// The times.
    pub stamps: Vec<i64>,
}

impl KeptLog {
    /// Time of the last token.
    pub fn newest(&self) -> i64 {
        self.stamps.last().copied().unwrap_or_default()
    }

    pub const fn limit(&self) -> Limit {
        Limit::SlidingWindow(self.window)
    }

    /// Microseconds from each token to `unix_us` (Unix time). If the clock went back, later ones
    /// count as taken now, so that they leave the window within its length.
    pub fn ages(&self, unix_us: u64) -> Vec<i64> {
        let now = unix_us.cast_signed();
        self.stamps.iter().map(|at| now.saturating_sub(*at).max(0)).collect()
    }

    /// Number of records that it counts as against `usage.max_records`.
    pub(super) fn records(&self) -> u64 {
        1 + (self.stamps.len() / STAMPS_PER_RECORD) as u64
    }

    /// The stamps that follow those of `base`, which the file has; `None` if the file needs all of
    /// them again: `base` differs, or too many follow. Stamps of `base` that have left the window
    /// at `unix_us` do not count.
    pub(super) fn tail(&self, base: &[u8], unix_us: u64) -> Option<&[i64]> {
        let base: Vec<i64> = stamps(base)?;
        let left = base.partition_point(|at| has_left(&self.window, *at, unix_us));
        let tail = self.stamps.strip_prefix(base.get(left..)?)?;
        (tail.len() <= MAX_TAIL).then_some(tail)
    }

    /// The log that the file has as `base` and `tail`, at `unix_us`; `None` if it is damaged. If
    /// all tokens have left the window, it is empty.
    pub(super) fn read(
        bucket: BucketId,
        mut limit: &[u8],
        base: &[u8],
        tail: &[u8],
        unix_us: u64,
    ) -> Option<Self> {
        let window = Limit::import_window(&mut limit)?;
        let mut all = stamps(base)?;
        all.extend(stamps(tail)?);
        if !all.is_sorted() {
            return None;
        }
        let left = all.partition_point(|at| has_left(&window, *at, unix_us));
        let most = usize::try_from(window.limit()).unwrap_or(usize::MAX);
        all.drain(..left.max(all.len().saturating_sub(most)));
        Some(Self { bucket, window, stamps: all })
    }
}

/// The bucket of a changed log, and what the file is to have of it at `now`: nothing if it has no
/// tokens in the window. `None` if the file keeps what it has, because the store has removed the
/// bucket. `frame_us` is Unix time less the process' clock.
pub(super) fn change(
    store: &MemoryStore,
    ChangedLog { bucket, is_full }: ChangedLog,
    now: u64,
    frame_us: u64,
) -> Option<(BucketId, Option<KeptLog>)> {
    let Some((window, mut stamps)) = store.stamps(bucket, now) else {
        return is_full.then_some((bucket, None));
    };
    let frame = frame_us.cast_signed();
    for at in &mut stamps {
        *at = at.saturating_add(frame);
    }
    Some((bucket, (!stamps.is_empty()).then_some(KeptLog { bucket, window, stamps })))
}

/// Whether a token has left the window at `unix_us`.
pub(super) fn has_left(window: &SlidingWindow, stamp: i64, unix_us: u64) -> bool {
    stamp.saturating_add(window.window_us().cast_signed()) <= unix_us.cast_signed()
}

pub(super) fn bytes(stamps: &[i64]) -> Vec<u8> {
    stamps.iter().flat_map(|at| at.to_le_bytes()).collect()
}

/// The stamps of bytes; `None` if they are damaged.
fn stamps(bytes: &[u8]) -> Option<Vec<i64>> {
    let (each, rest) = bytes.as_chunks::<STAMP>();
    rest.is_empty().then(|| each.iter().map(|at| i64::from_le_bytes(*at)).collect())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const WINDOW_US: u64 = 1_000;

    fn log(limit: u64, stamps: Vec<i64>) -> KeptLog {
        let window = SlidingWindow::new(limit, WINDOW_US).unwrap();
        KeptLog { bucket: BucketId(7), window, stamps }
    }

    fn read(of: &KeptLog, base: &[u8], tail: &[u8], unix_us: u64) -> Option<Vec<i64>> {
        let mut limit = Vec::new();
        of.limit().export(&mut limit);
        KeptLog::read(of.bucket, &limit, base, tail, unix_us).map(|log| log.stamps)
    }

    #[test]
    fn only_new_stamps_follow_a_base() {
        let base = bytes(&[10, 20, 20, 30]);
        // (stamps, time) -> stamps after the base
        let table = [
            (vec![10, 20, 20, 30, 40, 50], 60, Some(vec![40, 50])),
            (vec![10, 20, 20, 30], 60, Some(vec![])),
            // The first has left the window.
            (vec![20, 20, 30, 40], 1_010, Some(vec![40])),
            (vec![40], 1_035, Some(vec![40])),
            // Changed otherwise: given back, granted, moved by another clock.
            (vec![10, 20, 20, 40], 60, None),
            (vec![10, 20, 20], 60, None),
            (vec![20, 20, 30, 40], 60, None),
            (vec![11, 21, 21, 31], 60, None),
        ];
        for (stamps, unix_us, expected) in table {
            let log = log(9, stamps);
            let tail = log.tail(&base, unix_us).map(<[i64]>::to_vec);
            assert_eq!(tail, expected, "{log:?} at {unix_us}");
            if let Some(tail) = tail {
                assert_eq!(read(&log, &base, &bytes(&tail), unix_us), Some(log.stamps.clone()));
            }
        }
        let many: Vec<i64> = (1..=65).collect();
        assert_eq!(log(100, many.clone()).tail(&[], 100), None);
        assert_eq!(log(100, many[1..].to_vec()).tail(&[], 100).map(<[i64]>::len), Some(64));
        assert_eq!(log(9, vec![1]).tail(&[1, 2, 3], 100), None, "a damaged base is written again");
    }

    #[test]
    fn newest_stamps_of_a_clock_that_went_back_count_as_taken_now() {
        assert_eq!(log(9, vec![10, 20, 50]).ages(30), [20, 10, 0]);
    }

    #[test]
    fn damaged_logs_are_not_read() {
        let log = log(9, vec![10, 20]);
        let (base, tail) = (bytes(&[10]), bytes(&[20]));
        assert_eq!(read(&log, &base, &tail, 30), Some(vec![10, 20]));
        assert_eq!(read(&log, &tail, &base, 30), None, "not in order");
        assert_eq!(read(&log, &base[..7], &tail, 30), None);
        assert_eq!(read(&log, &base, &tail[..1], 30), None);
        assert_eq!(KeptLog::read(log.bucket, &[3, 1], &base, &tail, 30), None);
        assert_eq!(KeptLog::read(log.bucket, &[], &base, &tail, 30), None);
        let mut other = Vec::new();
        Limit::token_bucket(1, 1, 1).unwrap().export(&mut other);
        assert_eq!(KeptLog::read(log.bucket, &other, &base, &tail, 30), None);
    }

    proptest! {
        #![proptest_config(crate::base::cases::with_cases(256))]

        /// Any bytes are a log with at most the limit's stamps, or damaged.
        #[test]
        fn any_bytes_are_read_without_a_panic(
            limit in prop::collection::vec(any::<u8>(), 0..20),
            base in prop::collection::vec(any::<u8>(), 0..40),
            tail in prop::collection::vec(any::<u8>(), 0..40),
            unix_us in any::<u64>(),
        ) {
            if let Some(log) = KeptLog::read(BucketId(1), &limit, &base, &tail, unix_us) {
                prop_assert!(log.stamps.len() as u64 <= log.window.limit());
            }
            let window = log(3, Vec::new());
            if let Some(stamps) = read(&window, &base, &tail, unix_us) {
                prop_assert!(stamps.len() <= 3 && stamps.is_sorted());
                let log = log(3, stamps);
                prop_assert!(log.ages(unix_us).iter().all(|age| *age >= 0));
                let _ = log.tail(&base, unix_us);
            }
        }
    }
}
