//! What the file puts back into the buckets at the start.

use std::collections::HashMap;

use tracing::warn;

use super::file::{FileError, UsageFile};
use super::kept_log::KeptLog;
use super::record::Place;
use crate::limit::Limit;
use crate::limit::charge::BucketId;
use crate::store::memory::KeptBucket;

/// Buckets of a store that a log takes: see [`MemoryStore`](crate::store::memory::MemoryStore).
const fn weight(log: &KeptLog) -> usize {
    3 + log.stamps.len().div_ceil(4)
}

/// The buckets that count at `unix_us` (Unix time): of quotas whose period has not ended, and of
/// sliding windows with tokens in the window. At most as many as fit into a store of `most`
/// buckets.
pub(super) fn buckets(
    file: &UsageFile,
    unix_us: u64,
    most: usize,
) -> Result<impl Iterator<Item = KeptBucket>, FileError> {
    let mut quotas = quotas(file, unix_us, most)?;
    let (mut found, mut taken) = (Vec::new(), quotas.len());
    let damaged = file.read_logs(unix_us, |log| {
        // A bucket has both if its rule's kind has changed. The later one counts.
        if quotas.get(&log.bucket).is_some_and(|quota| quota.is_after(&log)) {
            return true;
        }
        quotas.remove(&log.bucket);
        taken += weight(&log);
        if taken <= most {
            let (bucket, limit, ages) = (log.bucket, log.limit(), log.ages(unix_us));
            found.push(KeptBucket { bucket, limit, level: limit.full(), ages });
        }
        taken < most
    })?;
    if damaged > 0 {
        warn!(
            damaged,
            "logs of sliding windows in the file of usage are damaged, and are left out"
        );
    }
    let of_quota = |(bucket, Quota { limit, level, .. })| {
        let ages = Vec::new();
        KeptBucket { bucket, limit, level, ages }
    };
    Ok(found.into_iter().chain(quotas.into_iter().map(of_quota)))
}

/// The last record of a bucket.
struct Quota {
    start_us: u64,
    /// The limit that it was counted under.
    limit: Limit,
    level: i64,
    counted_at_us: u64,
}

impl Quota {
    fn is_after(&self, log: &KeptLog) -> bool {
        self.counted_at_us.cast_signed() > log.newest()
    }
}

/// The level of each bucket whose period has not ended at `unix_us` (Unix time), by its last
/// record. At most `most`.
fn quotas(
    file: &UsageFile,
    unix_us: u64,
    most: usize,
) -> Result<HashMap<BucketId, Quota>, FileError> {
    let mut found: HashMap<BucketId, Quota> = HashMap::new();
    let after = Place { end_us: unix_us.saturating_add(1), bucket: BucketId(0) };
    file.read(after, |record| {
        let known = found.get(&record.place.bucket);
        // There are two if a reload has changed the periods.
        if known.is_none_or(|known| known.counted_at_us <= record.counted_at_us) {
            let level = record.limit.full().saturating_sub(record.used);
            let (limit, counted_at_us) = (record.limit, record.counted_at_us);
            let quota = Quota { start_us: record.start_us, limit, level, counted_at_us };
            found.insert(record.place.bucket, quota);
        }
        found.len() < most
    })?;
    remove_replaced(file, unix_us, &mut found)?;
    Ok(found)
}

/// Removes the buckets of which a reload has shortened the periods, and whose last period has
/// ended: the record of the longer one is older, and counts no more.
fn remove_replaced(
    file: &UsageFile,
    unix_us: u64,
    found: &mut HashMap<BucketId, Quota>,
) -> Result<(), FileError> {
    let Some(earliest_us) = found.values().map(|quota| quota.start_us).min() else {
        return Ok(());
    };
    file.read(Place { end_us: earliest_us, bucket: BucketId(0) }, |record| {
        let bucket = record.place.bucket;
        let has_ended = record.place.end_us <= unix_us;
        let counted_at_us = found.get(&bucket).map(|quota| quota.counted_at_us);
        if has_ended && counted_at_us.is_some_and(|at| at < record.counted_at_us) {
            found.remove(&bucket);
        }
        has_ended
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::limit::adjust::Adjustment;
    use crate::limit::calendar::{Calendar, Period};
    use crate::limit::charge::{Charge, Mode};
    use crate::limit::fixed_window::FixedWindow;
    use crate::limit::share::Share;
    use crate::limit::sliding_window::SlidingWindow;
    use crate::store::memory::MemoryStore;
    use crate::usage::kept_log;
    use crate::usage::ledger::{Change, Changes};
    use crate::usage::record::{Owner, Record};

    const HOUR_US: u64 = 3_600_000_000;
    const BEGUN_AT: u64 = 1_000 * HOUR_US;

    fn limit(tokens: u64, window_us: u64) -> Limit {
        Limit::SlidingWindow(SlidingWindow::new(tokens, window_us).unwrap())
    }

    fn charge(id: u128, limit: Limit, cost: u64) -> Charge {
        Charge { bucket: bucket(id), rule: 0, limit_index: 0, limit, cost, mode: Mode::Enforce }
    }

    fn bucket(id: u128) -> BucketId {
        BucketId(id.wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835))
    }

    /// A process, whose clock begins at a time of the wall clock.
    struct Process {
        store: MemoryStore,
        begun_at: u64,
    }

    impl Process {
        fn start(file: &UsageFile, limit: Limit, unix_us: u64) -> Self {
            // Some time after its clock has begun.
            let begun_at = unix_us - 1_000;
            // Twice what the tests fill: buckets are not spread evenly over its shards.
            let store = MemoryStore::new(20_000, &[limit]);
            store.note_changed_logs();
            store.restore(buckets(file, unix_us, 10_000).unwrap(), 1_000);
            Self { store, begun_at }
        }

        fn now(&self, unix_us: u64) -> u64 {
            unix_us - self.begun_at
        }

        /// Tokens left.
        fn left(&self, id: u128, limit: Limit, unix_us: u64) -> i64 {
            self.store.bucket(&charge(id, limit, 1), self.now(unix_us)).level
        }

        fn take(&self, id: u128, limit: Limit, cost: u64, unix_us: u64) -> bool {
            self.store
                .take(&[charge(id, limit, cost)], self.now(unix_us), Share::one_of(1))
                .allowed()
        }

        fn write(&self, file: &UsageFile, unix_us: u64) {
            let now = self.now(unix_us);
            let changed = self.store.take_changed_logs();
            let each = changed
                .into_iter()
                .filter_map(|log| kept_log::change(&self.store, log, now, self.begun_at));
            assert_eq!(file.write_logs(each, 100_000, unix_us).unwrap(), 0);
        }
    }

    fn file() -> (tempfile::TempDir, UsageFile) {
        let folder = tempfile::tempdir().unwrap();
        let file = UsageFile::open(&folder.path().join("usage.redb")).unwrap();
        (folder, file)
    }

    #[test]
    fn clock_that_went_back_delays_tokens_by_at_most_a_window() {
        let (_folder, file) = file();
        let limit = limit(4, HOUR_US);
        let process = Process::start(&file, limit, BEGUN_AT);
        for at in 0..4 {
            assert!(process.take(1, limit, 1, BEGUN_AT + at * 1_000_000));
        }
        process.write(&file, BEGUN_AT + 3_000_000);
        // Set back to between the second and the third, and to long before all.
        for (unix_us, oldest_left) in [(BEGUN_AT + 1_500_000, 1), (BEGUN_AT / 2, 4)] {
            let process = Process::start(&file, limit, unix_us);
            assert_eq!(process.left(1, limit, unix_us), 0);
            let oldest = BEGUN_AT.min(unix_us) + HOUR_US;
            assert_eq!(process.left(1, limit, oldest - 1), 0);
            assert_eq!(process.left(1, limit, oldest), oldest_left);
            assert_eq!(process.left(1, limit, unix_us + HOUR_US), 4);
        }
        // Set forward by half an hour: they leave so much earlier.
        let later = BEGUN_AT + HOUR_US / 2;
        let process = Process::start(&file, limit, later);
        assert_eq!(process.left(1, limit, BEGUN_AT + HOUR_US), 1);
    }

    #[test]
    fn changed_limit_or_window_keeps_what_can_be_kept() {
        let (_folder, file) = file();
        let was = limit(10, HOUR_US);
        let process = Process::start(&file, was, BEGUN_AT);
        for at in 0..8 {
            assert!(process.take(1, was, 1, BEGUN_AT + at * 60_000_000));
        }
        let unix_us = BEGUN_AT + 8 * 60_000_000;
        process.write(&file, unix_us);
        // (limit, window) -> tokens left now, and once the first four of the eight have left the
        // hour
        let table = [
            ((10, HOUR_US), (2, 6)),
            ((100, HOUR_US), (92, 96)),
            // The newest five.
            ((5, HOUR_US), (0, 1)),
            ((10, 2 * HOUR_US), (2, 2)),
            ((10, HOUR_US / 12), (6, 10)),
        ];
        for ((tokens, window_us), expected) in table {
            let limit = limit(tokens, window_us);
            let process = Process::start(&file, limit, unix_us);
            let later = BEGUN_AT + 3 * 60_000_000 + HOUR_US;
            let found = [unix_us, later].map(|at| process.left(1, limit, at));
            assert_eq!((found[0], found[1]), expected, "{limit:?}");
        }
    }

    /// What a bucket has used of a quota in the period of `counted_at_us`.
    fn record(id: u128, limit: Limit, used: i64, counted_at_us: u64) -> (Place, Change) {
        let bounds = limit.calendar().unwrap().bounds(counted_at_us);
        let place = Place { end_us: bounds.end_us, bucket: bucket(id) };
        let record = Record {
            place,
            start_us: bounds.start_us,
            rule: "r".into(),
            owner: Owner { kind: "key", id: String::new() },
            plan: "free".into(),
            limit,
            used,
            counted_at_us,
        };
        (place, Change { record, set: None, answered_at_us: 0 })
    }

    #[test]
    fn bucket_whose_kind_has_changed_has_what_was_counted_last() {
        let calendar = Calendar::new(Period::Year, "UTC", 1).unwrap();
        let fixed = Limit::FixedWindow(FixedWindow::new(10, calendar).unwrap());
        let window = limit(10, HOUR_US);
        for (counted_at_us, is_log) in [(BEGUN_AT - 1, true), (BEGUN_AT + 1, false)] {
            let (_folder, file) = file();
            let changes: Changes = [record(1, fixed, 7, counted_at_us)].into_iter().collect();
            file.write(&changes, 10, BEGUN_AT).unwrap();
            let process = Process::start(&file, window, BEGUN_AT);
            process.store.adjust(&[charge(1, window, 1)], Adjustment::Reset, 1_000);
            assert!(process.take(1, window, 3, BEGUN_AT));
            process.write(&file, BEGUN_AT);
            let found: Vec<KeptBucket> = buckets(&file, BEGUN_AT + 2, 100).unwrap().collect();
            let [found] = &found[..] else { panic!("{found:?}") };
            assert_eq!(found.limit.log().is_some(), is_log);
            assert_eq!(found.ages.len(), if is_log { 3 } else { 0 });
        }
    }

    #[test]
    fn record_of_a_longer_period_from_before_a_reload_does_not_count() {
        let fixed = |period| {
            let calendar = Calendar::new(period, "UTC", 1).unwrap();
            Limit::FixedWindow(FixedWindow::new(10, calendar).unwrap())
        };
        let (year, day) = (fixed(Period::Year), fixed(Period::Day));
        let at_day = |days: u64| BEGUN_AT + days * 24 * HOUR_US;
        let (_folder, file) = file();
        let changes: Changes = [
            // Shortened on the first day, and not used since.
            record(1, year, 7, at_day(0)),
            record(1, day, 8, at_day(0) + HOUR_US),
            // Lengthened.
            record(2, day, 3, at_day(0)),
            record(2, year, 4, at_day(0) + HOUR_US),
            record(3, year, 5, at_day(0)),
        ]
        .into_iter()
        .collect();
        file.write(&changes, 10, at_day(0)).unwrap();
        let used = |unix_us| {
            let found = buckets(&file, unix_us, 100).unwrap();
            let mut used: Vec<(u128, i64)> = found
                .map(|it| {
                    let id = (1..=3).find(|id| bucket(*id) == it.bucket).unwrap();
                    (id, it.limit.full() - it.level)
                })
                .collect();
            used.sort_unstable();
            used
        };
        assert_eq!(used(at_day(0) + 2 * HOUR_US), [(1, 8), (2, 4), (3, 5)]);
        assert_eq!(used(at_day(2)), [(2, 4), (3, 5)]);
    }

    #[test]
    fn no_more_logs_are_restored_than_fit_into_the_store() {
        let (_folder, file) = file();
        let limit = limit(100, HOUR_US);
        let process = Process::start(&file, limit, BEGUN_AT);
        for id in 0..50 {
            assert!(process.take(id, limit, 40, BEGUN_AT));
        }
        process.write(&file, BEGUN_AT);
        // Each takes 13 buckets.
        assert_eq!(buckets(&file, BEGUN_AT, 135).unwrap().count(), 10);
        assert_eq!(buckets(&file, BEGUN_AT, 1_000).unwrap().count(), 50);
    }

    /// Its stamps are from before the process began.
    #[test]
    fn bucket_is_full_once_its_restored_log_is_freed() {
        let (_folder, file) = file();
        let limit = limit(100, HOUR_US);
        let process = Process::start(&file, limit, BEGUN_AT);
        assert!(process.take(1, limit, 35, BEGUN_AT));
        process.write(&file, BEGUN_AT);
        let process = Process::start(&file, limit, BEGUN_AT + HOUR_US / 2);
        let later = BEGUN_AT + HOUR_US + 10_000_000;
        assert_eq!(process.left(1, limit, later), 100);
        // So many logs that those are freed that are not needed, and few enough that no bucket is
        // dropped.
        for id in 10..2_200 {
            assert!(process.take(id, limit, 1, later));
        }
        assert_eq!(process.left(1, limit, later), 100);
    }

    #[derive(Clone, Debug)]
    enum Step {
        Take { id: u128, cost: u64 },
        GiveBack { id: u128, units: i64 },
        Grant { id: u128, units: u64 },
        Reset { id: u128 },
        Write,
        Restart,
    }

    fn step() -> impl Strategy<Value = Step> {
        let id = 0..3u128;
        prop_oneof![
            12 => (id.clone(), 1..40u64).prop_map(|(id, cost)| Step::Take { id, cost }),
            1 => (id.clone(), 1..20i64).prop_map(|(id, units)| Step::GiveBack { id, units }),
            1 => (id.clone(), 1..60u64).prop_map(|(id, units)| Step::Grant { id, units }),
            1 => id.prop_map(|id| Step::Reset { id }),
            3 => Just(Step::Write),
            3 => Just(Step::Restart),
        ]
    }

    proptest! {
        #![proptest_config(crate::base::cases::with_cases(64))]

        /// Of processes that write before they end, the decisions and levels are those of one that
        /// goes on.
        #[test]
        fn restart_equals_no_restart(
            tokens in 1..200u64,
            steps in prop::collection::vec((step(), 0..600_000_000u64), 1..60),
        ) {
            let (_folder, file) = file();
            let limit = limit(tokens, HOUR_US);
            let mut unix_us = BEGUN_AT;
            let mut process = Process::start(&file, limit, unix_us);
            let steady = Process { store: MemoryStore::new(10_000, &[limit]), begun_at: 0 };
            for (step, us) in steps {
                unix_us += us;
                let adjust = |process: &Process, id, adjustment| {
                    let now = process.now(unix_us);
                    process.store.adjust(&[charge(id, limit, 1)], adjustment, now)
                };
                match step {
                    Step::Take { id, cost } => prop_assert_eq!(
                        process.take(id, limit, cost.min(tokens), unix_us),
                        steady.take(id, limit, cost.min(tokens), unix_us)
                    ),
                    Step::GiveBack { id, units } => {
                        adjust(&process, id, Adjustment::GiveBack(units));
                        adjust(&steady, id, Adjustment::GiveBack(units));
                    }
                    Step::Grant { id, units } => {
                        adjust(&process, id, Adjustment::Grant(units));
                        adjust(&steady, id, Adjustment::Grant(units));
                    }
                    Step::Reset { id } => {
                        adjust(&process, id, Adjustment::Reset);
                        adjust(&steady, id, Adjustment::Reset);
                    }
                    Step::Write => process.write(&file, unix_us),
                    Step::Restart => {
                        process.write(&file, unix_us);
                        process = Process::start(&file, limit, unix_us);
                    }
                }
                for id in 0..3 {
                    let readings = [&process, &steady].map(|one| {
                        one.store.reading(&charge(id, limit, 1), Share::one_of(1), one.now(unix_us))
                    });
                    prop_assert_eq!(readings[0], readings[1], "{}", id);
                }
            }
        }
    }
}
