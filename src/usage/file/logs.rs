//! The logs of sliding windows in a [`UsageFile`].
//!
//! A log is a row of [`LOGS`] with its last stamps, and if there are many, a row of [`BASES`] with
//! those before them. So a request of a client with thousands of stamps has few of them written
//! again. See [`KeptLog::tail`].

use redb::{ReadableDatabase as _, ReadableTable as _, TableDefinition, WriteTransaction};

use super::{ABOUT, FileError, UsageFile};
use crate::limit::Limit;
use crate::limit::charge::BucketId;
use crate::usage::kept_log::{KeptLog, bytes, has_left};

/// Limit, newest stamp, number of records that it counts as, last stamps.
type Row = (&'static [u8], i64, u64, &'static [u8]);

/// By bucket.
const LOGS: TableDefinition<'_, u128, Row> = TableDefinition::new("logs");

/// The stamps before those of [`LOGS`], by bucket.
const BASES: TableDefinition<'_, u128, &[u8]> = TableDefinition::new("log_bases");

/// Name in [`ABOUT`] of the number of records that all logs count as.
const RECORDS: &str = "log_records";

/// Maximum number of rows that one call of [`UsageFile::ended_logs`] examines.
const ROWS_AT_ONCE: usize = 4_096;

/// Logs without stamps in their windows, and where the search ends.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct EndedLogs {
    /// Their buckets.
    pub buckets: Vec<BucketId>,
    /// The bucket to continue from; `None` at the end of the file.
    pub next: Option<BucketId>,
}

/// Creates the tables that are not there.
pub(super) fn create(writing: &WriteTransaction) -> Result<(), FileError> {
    writing.open_table(LOGS)?;
    writing.open_table(BASES)?;
    Ok(())
}

impl UsageFile {
    /// Writes logs, all or none, to the disk, in the place of those that it has of these buckets;
    /// `None` removes the one of a bucket. `unix_us` is their time (Unix time). Returns the number
    /// of logs that have no room, because all logs together would count as more than `max_records`.
    ///
    /// # Errors
    /// See [`FileError`]. The file has to be opened again then.
    pub fn write_logs(
        &self,
        each: impl IntoIterator<Item = (BucketId, Option<KeptLog>)>,
        max_records: u64,
        unix_us: u64,
    ) -> Result<u64, FileError> {
        let mut without_room = 0;
        let writing = self.0.begin_write()?;
        {
            let mut about = writing.open_table(ABOUT)?;
            let (mut logs, mut bases) = (writing.open_table(LOGS)?, writing.open_table(BASES)?);
            let mut total = about.get(RECORDS)?.map_or(0, |records| records.value());
            for (bucket, log) in each {
                let before = logs.get(bucket.0)?.map_or(0, |row| row.value().2);
                let Some(log) = log else {
                    logs.remove(bucket.0)?;
                    bases.remove(bucket.0)?;
                    total = total.saturating_sub(before);
                    continue;
                };
                let (records, others) = (log.records(), total.saturating_sub(before));
                if records > before && others.saturating_add(records) > max_records {
                    without_room += 1;
                    continue;
                }
                total = others.saturating_add(records);
                let tail = match bases.get(bucket.0)? {
                    Some(base) => log.tail(base.value(), unix_us),
                    None => log.tail(&[], unix_us),
                };
                if tail.is_none() {
                    bases.insert(bucket.0, bytes(&log.stamps).as_slice())?;
                } else if tail.is_some_and(|tail| tail.len() == log.stamps.len()) {
                    bases.remove(bucket.0)?;
                }
                let mut limit = Vec::new();
                log.limit().export(&mut limit);
                let tail = bytes(tail.unwrap_or_default());
                logs.insert(bucket.0, (&limit[..], log.newest(), records, &tail[..]))?;
            }
            about.insert(RECORDS, total)?;
        }
        writing.commit()?;
        Ok(without_room)
    }

    /// What all logs together count as.
    pub(super) fn log_records(&self) -> Result<u64, FileError> {
        let about = self.0.begin_read()?.open_table(ABOUT)?;
        Ok(about.get(RECORDS)?.map_or(0, |records| records.value()))
    }

    /// Calls `next` with the logs that have stamps in their windows at `unix_us` (Unix time), until
    /// it returns false. Returns the number of damaged ones, which are left out.
    ///
    /// # Errors
    /// See [`FileError`].
    pub fn read_logs(
        &self,
        unix_us: u64,
        mut next: impl FnMut(KeptLog) -> bool,
    ) -> Result<u64, FileError> {
        let mut damaged = 0;
        let reading = self.0.begin_read()?;
        let (logs, bases) = (reading.open_table(LOGS)?, reading.open_table(BASES)?);
        for entry in logs.iter()? {
            let (bucket, row) = entry?;
            let (limit, newest, _, tail) = row.value();
            let base = bases.get(bucket.value())?;
            let base = base.as_ref().map_or(&[][..], |base| base.value());
            let log = KeptLog::read(BucketId(bucket.value()), limit, base, tail, unix_us);
            match log.filter(|log| log.stamps.is_empty() || log.newest() == newest) {
                None => damaged += 1,
                Some(log) if log.stamps.is_empty() => {}
                Some(log) => {
                    if !next(log) {
                        break;
                    }
                }
            }
        }
        Ok(damaged)
    }

    /// Finds logs without stamps in their windows at `unix_us` (Unix time), and damaged ones.
    /// Examines a bounded number of logs, from that of the bucket `from` on.
    ///
    /// # Errors
    /// See [`FileError`].
    pub fn ended_logs(&self, from: BucketId, unix_us: u64) -> Result<EndedLogs, FileError> {
        let mut found = EndedLogs::default();
        let logs = self.0.begin_read()?.open_table(LOGS)?;
        for (count, entry) in logs.range(from.0..)?.enumerate() {
            let (bucket, row) = entry?;
            let bucket = BucketId(bucket.value());
            if count == ROWS_AT_ONCE {
                found.next = Some(bucket);
                break;
            }
            let (mut limit, newest, ..) = row.value();
            let window = Limit::import_window(&mut limit);
            if window.is_none_or(|window| has_left(&window, newest, unix_us)) {
                found.buckets.push(bucket);
            }
        }
        Ok(found)
    }

    /// Removes logs.
    ///
    /// # Errors
    /// See [`FileError`].
    pub fn remove_logs(&self, buckets: &[BucketId]) -> Result<(), FileError> {
        let removed = buckets.iter().map(|bucket| (*bucket, None));
        self.write_logs(removed, u64::MAX, 0).map(drop)
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::limit::sliding_window::SlidingWindow;

    const HOUR_US: u64 = 3_600_000_000;

    fn place() -> (tempfile::TempDir, std::path::PathBuf) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("usage.redb");
        (folder, path)
    }

    /// A log of stamps at these times, in a window of an hour.
    fn log(bucket: u128, stamps: impl IntoIterator<Item = i64>) -> KeptLog {
        let window = SlidingWindow::new(4_096, HOUR_US).unwrap();
        KeptLog { bucket: BucketId(bucket), window, stamps: stamps.into_iter().collect() }
    }

    fn write(file: &UsageFile, logs: &[KeptLog], max_records: u64, unix_us: u64) -> u64 {
        let each = logs.iter().map(|log| (log.bucket, Some(log.clone())));
        file.write_logs(each, max_records, unix_us).unwrap()
    }

    fn all(path: &Path, unix_us: u64) -> Vec<KeptLog> {
        let mut found = Vec::new();
        let damaged = UsageFile::open(path).unwrap().read_logs(unix_us, |log| {
            found.push(log);
            true
        });
        assert_eq!(damaged.unwrap(), 0);
        found
    }

    fn records(file: &UsageFile) -> u64 {
        let about = file.0.begin_read().unwrap().open_table(ABOUT).unwrap();
        about.get(RECORDS).unwrap().map_or(0, |records| records.value())
    }

    /// Stamps in the rows of [`BASES`] and [`LOGS`].
    fn parts(file: &UsageFile, bucket: u128) -> (usize, usize) {
        let reading = file.0.begin_read().unwrap();
        let (logs, bases) = (reading.open_table(LOGS).unwrap(), reading.open_table(BASES).unwrap());
        let base = bases.get(bucket).unwrap().map_or(0, |base| base.value().len() / 8);
        (base, logs.get(bucket).unwrap().map_or(0, |row| row.value().3.len() / 8))
    }

    #[test]
    fn logs_are_read_as_they_were_written_last() {
        let (_folder, path) = place();
        let file = UsageFile::open(&path).unwrap();
        // (stamps, those in the base and after it)
        let steps = [(1..65, (0, 64)), (1..66, (65, 0)), (1..130, (65, 64)), (1..131, (130, 0))];
        for (stamps, expected) in steps {
            let many = log(7, stamps);
            write(&file, &[many.clone(), log(u128::MAX, [5])], 1_000, 200);
            assert_eq!(parts(&file, 7), expected);
        }
        drop(file);
        assert_eq!(all(&path, 200), [log(7, 1..131), log(u128::MAX, [5])]);
        // What leaves the window.
        assert_eq!(all(&path, HOUR_US + 5), [log(7, 6..131)]);
        assert_eq!(all(&path, HOUR_US + 130), []);
        let file = UsageFile::open(&path).unwrap();
        let later = HOUR_US.cast_signed() + 500;
        write(&file, &[log(7, [later])], 1_000, later.cast_unsigned());
        assert_eq!(parts(&file, 7), (0, 1), "stamps that have left the window make room");
        file.write_logs([(BucketId(7), None)], 0, 0).unwrap();
        assert_eq!((parts(&file, 7), records(&file)), ((0, 0), 1));
    }

    #[test]
    fn logs_without_tokens_in_the_window_are_found_a_part_at_a_time() {
        let (_folder, path) = place();
        let file = UsageFile::open(&path).unwrap();
        let logs: Vec<KeptLog> =
            (0..5_000u32).map(|bucket| log(bucket.into(), [bucket.into()])).collect();
        write(&file, &logs, 10_000, 0);
        let first = file.ended_logs(BucketId(0), HOUR_US + 10).unwrap();
        assert_eq!(first.buckets.len(), 11);
        assert_eq!(first.next, Some(BucketId(4_096)));
        let second = file.ended_logs(BucketId(4_096), HOUR_US + 4_100).unwrap();
        assert_eq!((second.buckets.len(), second.next), (5, None));
        file.remove_logs(&first.buckets).unwrap();
        assert_eq!(records(&file), 5_000 - 11);
        drop(file);
        assert_eq!(all(&path, 5_000).len(), 5_000 - 11);
    }

    #[test]
    fn full_file_takes_no_further_logs_and_no_longer_ones() {
        let (_folder, path) = place();
        let file = UsageFile::open(&path).unwrap();
        // 15 stamps count as a record, 16 as two.
        assert_eq!(write(&file, &[log(1, 0..15), log(2, 0..16)], 3, 20), 0);
        assert_eq!(records(&file), 3);
        assert_eq!(write(&file, &[log(3, 0..1), log(1, 0..16)], 3, 20), 2);
        assert_eq!(write(&file, &[log(2, 1..17)], 3, 20), 0, "one that is no longer than before");
        assert_eq!(write(&file, &[log(2, 16..17), log(3, 0..1)], 3, 20), 0);
        drop(file);
        assert_eq!(all(&path, 20), [log(1, 0..15), log(2, 16..17), log(3, 0..1)]);
    }

    #[test]
    fn file_of_a_version_without_logs_is_opened() {
        let (_folder, path) = place();
        let file = UsageFile::open(&path).unwrap();
        let writing = file.0.begin_write().unwrap();
        assert!(writing.delete_table(LOGS).unwrap() && writing.delete_table(BASES).unwrap());
        writing.commit().unwrap();
        drop(file);
        assert_eq!(all(&path, 20), []);
        let file = UsageFile::open(&path).unwrap();
        write(&file, &[log(1, [5])], 10, 20);
        drop(file);
        assert_eq!(all(&path, 20), [log(1, [5])]);
    }

    #[test]
    fn damaged_logs_are_counted_and_written_again() {
        let (_folder, path) = place();
        let file = UsageFile::open(&path).unwrap();
        write(&file, &(1..=4).map(|bucket| log(bucket, 0..100)).collect::<Vec<_>>(), 1_000, 200);
        let writing = file.0.begin_write().unwrap();
        {
            let mut logs = writing.open_table(LOGS).unwrap();
            let limit = logs.get(1).unwrap().unwrap().value().0.to_vec();
            logs.insert(1, (&limit[..3], 99, 7, &[][..])).unwrap();
            logs.insert(2, (&limit[..], 98, 7, &[][..])).unwrap();
            writing.open_table(BASES).unwrap().insert(3, &[1, 2, 3][..]).unwrap();
        }
        writing.commit().unwrap();
        let read = || {
            let mut found = Vec::new();
            let damaged = file.read_logs(200, |log| {
                found.push(log.bucket.0);
                true
            });
            (damaged.unwrap(), found)
        };
        assert_eq!(read(), (3, vec![4]));
        write(&file, &(1..=3).map(|bucket| log(bucket, 0..101)).collect::<Vec<_>>(), 1_000, 200);
        assert_eq!(read(), (0, vec![1, 2, 3, 4]));
    }

    /// `cargo test --lib ten_thousand_logs -- --ignored --nocapture`
    #[test]
    #[ignore = "a measurement"]
    fn ten_thousand_logs() {
        const COUNT: u128 = 10_000;
        let bucket = |number: u128| number.wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835);
        for stamps in [10, 100, 4_000] {
            let (_folder, path) = place();
            let file = UsageFile::open(&path).unwrap();
            let write = |stamps: i64| {
                let begun = crate::base::clock::now();
                for first in (0..COUNT).step_by(1_000) {
                    let logs = (first..first + 1_000).map(|number| log(bucket(number), 0..stamps));
                    let each = logs.map(|log| (log.bucket, Some(log)));
                    file.write_logs(each, u64::MAX, 10_000).unwrap();
                }
                (crate::base::clock::now() - begun) / 1_000
            };
            let (first, again) = (write(stamps), write(stamps + 1));
            let begun = crate::base::clock::now();
            let mut found = 0;
            file.read_logs(10_000, |_| {
                found += 1;
                true
            })
            .unwrap();
            let read = (crate::base::clock::now() - begun) / 1_000;
            let bytes = std::fs::metadata(&path).unwrap().len() / u64::try_from(COUNT).unwrap();
            eprintln!(
                "{found} logs of {stamps}: {first} ms to write, {again} ms with a token more each, {read} ms to read; {bytes} bytes a log"
            );
        }
    }
}
