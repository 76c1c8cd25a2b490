//! [`UsageFile`]: records in a file of redb, which survives a crash of the process and of the
//! machine.

mod days;
mod logs;

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::time::Duration;

use redb::backends::FileBackend;
use redb::{
    Builder, Database, DatabaseError, ReadableDatabase as _, ReadableTable as _,
    ReadableTableMetadata as _, StorageError, TableDefinition,
};
use thiserror::Error;

use super::ledger::{Change, Changes};
use super::record::{OWNER_KINDS, Owner, Place, Record};
use crate::base::duration::micros;
use crate::limit::Limit;
use crate::limit::calendar::Period;
use crate::limit::charge::BucketId;

/// End of the period and bucket.
type Key = (u64, u128);

/// Rule, kind of owner, owner, plan, start of the period, units used, time of the last count,
/// limit.
type Row = (&'static str, &'static str, &'static str, &'static str, u64, i64, u64, &'static [u8]);

/// Usage of periods of an hour, which is kept for a shorter time.
const HOURS: TableDefinition<'_, Key, Row> = TableDefinition::new("hours");

/// Usage of longer periods.
const DAYS: TableDefinition<'_, Key, Row> = TableDefinition::new("days");

/// `version` is that of this layout, `process` and `batch` are the [`BatchId`] of the last rows by
/// day.
///
/// [`BatchId`]: super::days::waiting::BatchId
const ABOUT: TableDefinition<'_, &str, u64> = TableDefinition::new("about");

const VERSION: u64 = 1;

/// Memory for pages that were read or written.
const CACHE_BYTES: usize = 16 << 20;

/// How long the usage of an hour is kept after its end, at most.
pub(super) const KEEP_HOURS: Duration = Duration::from_secs(7 * 86_400);

/// An open file. No other process can open it.
#[derive(Debug)]
pub struct UsageFile(Database);

/// Why a file cannot be opened.
#[derive(Debug, Error)]
pub enum OpenError {
    /// Another process has it open.
    #[error("another process uses it; each gateway needs its own file")]
    InUse,
    /// It is not a file of usage, or it is damaged.
    #[error("it is damaged or of another program ({0}); with another path, counts begin at zero")]
    Damaged(String),
    /// A newer version of tollgate has written it.
    #[error("a newer version of tollgate has written it (layout {0})")]
    Newer(u64),
    /// It cannot be read or written.
    #[error("{0}")]
    Io(io::Error),
}

/// Why records cannot be read or written.
#[derive(Debug, Error)]
#[error("{0}")]
pub struct FileError(redb::Error);

impl<E: Into<redb::Error>> From<E> for FileError {
    fn from(error: E) -> Self {
        Self(error.into())
    }
}

impl From<DatabaseError> for OpenError {
    fn from(error: DatabaseError) -> Self {
        match error {
            DatabaseError::DatabaseAlreadyOpen | DatabaseError::LockProtocolMismatch => Self::InUse,
            DatabaseError::Storage(StorageError::Io(error)) => Self::of_io(error),
            other => Self::Damaged(other.to_string()),
        }
    }
}

impl OpenError {
    fn of_io(error: io::Error) -> Self {
        match error.kind() {
            // What is written there is wrong.
            io::ErrorKind::InvalidData | io::ErrorKind::UnexpectedEof => {
                Self::Damaged(error.to_string())
            }
            _ => Self::Io(error),
        }
    }
}

impl UsageFile {
    /// Opens the file, which is created with mode 0600 if there is none.
    ///
    /// # Errors
    /// See [`OpenError`].
    pub fn open(path: &Path) -> Result<Self, OpenError> {
        let file = open(path).map_err(OpenError::Io)?;
        let mut builder = Builder::new();
        builder.set_cache_size(CACHE_BYTES);
        let opened = Self(builder.create_with_backend(FileBackend::new(file)?)?);
        let version = opened.prepare().map_err(|FileError(error)| match error {
            redb::Error::Io(error) => OpenError::of_io(error),
            error => OpenError::Damaged(error.to_string()),
        })?;
        if version > VERSION { Err(OpenError::Newer(version)) } else { Ok(opened) }
    }

    /// Creates the tables that are not there. Returns the version of the layout.
    fn prepare(&self) -> Result<u64, FileError> {
        let writing = self.0.begin_write()?;
        let version = {
            let mut about = writing.open_table(ABOUT)?;
            let known = about.get("version")?.map(|version| version.value());
            if known.is_none() {
                about.insert("version", VERSION)?;
            }
            known.unwrap_or(VERSION)
        };
        if version <= VERSION {
            writing.open_table(HOURS)?;
            writing.open_table(DAYS)?;
            logs::create(&writing)?;
            days::create(&writing)?;
        }
        writing.commit()?;
        Ok(version)
    }

    /// Writes changes, all or none, to the disk. Of periods that have ended at `unix_us` (Unix
    /// time), the oldest make room if the file has `max_records` of hours or of longer periods.
    /// Returns the number of records that have no room.
    ///
    /// # Errors
    /// See [`FileError`]. The file has to be opened again then.
    pub fn write(
        &self,
        changes: &Changes,
        max_records: u64,
        unix_us: u64,
    ) -> Result<u64, FileError> {
        let mut without_room = 0;
        let writing = self.0.begin_write()?;
        let (hours, days): (Vec<&Change>, Vec<&Change>) =
            changes.values().partition(|change| is_hour(&change.record));
        for (definition, mut here) in [(HOURS, hours), (DAYS, days)] {
            let mut table = writing.open_table(definition)?;
            here.sort_unstable_by_key(|change| change.record.place);
            for change in here {
                let key = key(change.record.place);
                let before = table.get(key)?.map(|row| row.value().5);
                if before.is_none() && table.len()? >= max_records {
                    let oldest = table.first()?.map(|(key, _)| key.value());
                    let Some(oldest) = oldest.filter(|(end_us, _)| *end_us <= unix_us) else {
                        without_room += 1;
                        continue;
                    };
                    table.remove(oldest)?;
                }
                let used = change.used_after(before);
                let mut limit = Vec::new();
                change.record.limit.export(&mut limit);
                table.insert(key, row(&change.record, used, &limit))?;
            }
        }
        writing.commit()?;
        Ok(without_room)
    }

    /// Whether each kind of record has room for one more at `unix_us` (Unix time), as
    /// [`write`](Self::write) and [`write_logs`](Self::write_logs) count.
    ///
    /// # Errors
    /// See [`FileError`].
    pub fn has_room(&self, max_records: u64, unix_us: u64) -> Result<bool, FileError> {
        let reading = self.0.begin_read()?;
        for definition in [HOURS, DAYS] {
            let table = reading.open_table(definition)?;
            let has_ended = |(end_us, _): Key| end_us <= unix_us;
            let oldest = table.first()?.map(|(key, _)| key.value());
            if table.len()? >= max_records && !oldest.is_some_and(has_ended) {
                return Ok(false);
            }
        }
        Ok(self.log_records()? < max_records)
    }

    /// Removes the usage of periods that ended more than `keep` before `unix_us` (Unix time).
    ///
    /// # Errors
    /// See [`FileError`].
    pub fn remove_old(&self, keep: Duration, unix_us: u64) -> Result<(), FileError> {
        let writing = self.0.begin_write()?;
        for (definition, keep) in [(HOURS, keep.min(KEEP_HOURS)), (DAYS, keep)] {
            let before = unix_us.saturating_sub(micros(keep));
            writing.open_table(definition)?.retain_in(..(before, 0), |_, _| false)?;
        }
        writing.commit()?;
        Ok(())
    }

    /// Calls `next` with the records from `from` on, in order, until it returns false.
    ///
    /// # Errors
    /// See [`FileError`].
    pub fn read(&self, from: Place, mut next: impl FnMut(Record) -> bool) -> Result<(), FileError> {
        let reading = self.0.begin_read()?;
        let (hours, days) = (reading.open_table(HOURS)?, reading.open_table(DAYS)?);
        let (mut hours, mut days) =
            (hours.range(key(from)..)?.peekable(), days.range(key(from)..)?.peekable());
        loop {
            // Of the two, the one that ends first.
            let place = |entry: Option<&Result<Entry<'_>, StorageError>>| match entry {
                Some(Ok((key, _))) => Some(key.value()),
                Some(Err(_)) => Some((0, 0)),
                None => None,
            };
            let first = match (place(hours.peek()), place(days.peek())) {
                (None, None) => return Ok(()),
                (Some(hour), Some(day)) if day < hour => days.next(),
                (Some(_), _) => hours.next(),
                (None, Some(_)) => days.next(),
            };
            let Some((key, row)) = first.transpose()? else { return Ok(()) };
            if let Some(record) = record(key.value(), row.value())
                && !next(record)
            {
                return Ok(());
            }
        }
    }
}

type Entry<'a> = (redb::AccessGuard<'a, Key>, redb::AccessGuard<'a, Row>);

fn is_hour(record: &Record) -> bool {
    record.limit.calendar().is_some_and(|calendar| calendar.period() == Period::Hour)
}

fn open(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false).mode(0o600);
    options.open(path)
}

const fn key(place: Place) -> Key {
    (place.end_us, place.bucket.0)
}

fn row<'a>(record: &'a Record, used: i64, limit: &'a [u8]) -> RowOf<'a> {
    let Record { start_us, rule, owner, plan, counted_at_us, .. } = record;
    (rule, owner.kind, &owner.id, plan, *start_us, used, *counted_at_us, limit)
}

type RowOf<'a> = (&'a str, &'a str, &'a str, &'a str, u64, i64, u64, &'a [u8]);

/// The record of a row; `None` if it has what this version does not know.
fn record((end_us, bucket): Key, row: RowOf<'_>) -> Option<Record> {
    let (rule, kind, id, plan, start_us, used, counted_at_us, mut limit) = row;
    let kind = OWNER_KINDS.into_iter().find(|known| *known == kind)?;
    Some(Record {
        place: Place { end_us, bucket: BucketId(bucket) },
        start_us,
        rule: rule.into(),
        owner: Owner { kind, id: id.to_owned() },
        plan: plan.into(),
        limit: Limit::import(&mut limit)?,
        used,
        counted_at_us,
    })
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use proptest::prelude::*;

    use super::*;
    use crate::limit::calendar::Calendar;
    use crate::limit::fixed_window::FixedWindow;

    const HOUR_US: u64 = 3_600_000_000;

    fn limit(period: Period, tokens: u64) -> Limit {
        let calendar = Calendar::new(period, "Europe/Berlin", 1).unwrap();
        Limit::FixedWindow(FixedWindow::new(tokens, calendar).unwrap())
    }

    fn change(bucket: u128, end_us: u64, period: Period, used: i64, set: Option<i64>) -> Change {
        let record = Record {
            place: Place { end_us, bucket: BucketId(bucket) },
            start_us: end_us.saturating_sub(HOUR_US),
            rule: "quota".into(),
            owner: Owner { kind: "key", id: format!("client {bucket}") },
            plan: "free".into(),
            limit: limit(period, 100),
            used,
            counted_at_us: end_us.saturating_sub(1),
        };
        Change { record, set, answered_at_us: 0 }
    }

    fn changes(each: impl IntoIterator<Item = Change>) -> Changes {
        each.into_iter().map(|change| (change.record.place, change)).collect()
    }

    fn all(file: &UsageFile) -> Vec<Record> {
        let mut found = Vec::new();
        let from = Place { end_us: 0, bucket: BucketId(0) };
        file.read(from, |record| {
            found.push(record);
            true
        })
        .unwrap();
        found
    }

    fn place() -> (tempfile::TempDir, std::path::PathBuf) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("usage.redb");
        (folder, path)
    }

    #[test]
    fn records_are_read_as_they_were_written_by_the_end_of_their_periods() {
        let (_folder, path) = place();
        let mut written = vec![
            change(1, 10 * HOUR_US, Period::Hour, 5, None),
            change(2, 9 * HOUR_US, Period::Month, 7, None),
            change(u128::MAX, 10 * HOUR_US, Period::Day, 1 << 53, None),
            change(3, 11 * HOUR_US, Period::Hour, 0, None),
        ];
        UsageFile::open(&path).unwrap().write(&changes(written.clone()), 100, 0).unwrap();
        let file = UsageFile::open(&path).unwrap();
        written.sort_by_key(|change| change.record.place);
        let written: Vec<Record> = written.into_iter().map(|change| change.record).collect();
        assert_eq!(all(&file), written);
        let mut first = Vec::new();
        let from = Place { end_us: 10 * HOUR_US, bucket: BucketId(2) };
        file.read(from, |record| {
            first.push(record.place.bucket.0);
            false
        })
        .unwrap();
        assert_eq!(first, [u128::MAX]);
    }

    #[test]
    fn what_was_used_grows_unless_an_operator_sets_it() {
        let (_folder, path) = place();
        let file = UsageFile::open(&path).unwrap();
        // (used, set by an operator before) -> used in the file
        let steps = [
            ((5, None), 5),
            ((3, None), 5),
            ((8, None), 8),
            ((2, Some(2)), 2),
            ((4, None), 4),
            ((6, Some(1)), 6),
        ];
        for ((used, set), expected) in steps {
            file.write(&changes([change(1, HOUR_US, Period::Day, used, set)]), 100, 0).unwrap();
            assert_eq!(all(&file)[0].used, expected, "{used} {set:?}");
        }
    }

    #[test]
    fn ended_periods_are_removed_after_their_time_and_hours_earlier() {
        let (_folder, path) = place();
        let file = UsageFile::open(&path).unwrap();
        let now = 400 * 24 * HOUR_US;
        let ago = |days: u64| now - days * 24 * HOUR_US;
        let each = [
            change(1, ago(101), Period::Day, 1, None),
            change(2, ago(99), Period::Day, 1, None),
            change(3, ago(8), Period::Hour, 1, None),
            change(4, ago(6), Period::Hour, 1, None),
            change(5, now + HOUR_US, Period::Year, 1, None),
        ];
        file.write(&changes(each), 100, now).unwrap();
        let kept = |file: &UsageFile| -> Vec<u128> {
            all(file).iter().map(|record| record.place.bucket.0).collect()
        };
        file.remove_old(Duration::from_secs(100 * 86_400), now).unwrap();
        assert_eq!(kept(&file), [2, 4, 5]);
        file.remove_old(Duration::from_secs(86_400), now).unwrap();
        assert_eq!(kept(&file), [5]);
    }

    #[test]
    fn full_file_drops_ended_periods_and_then_new_clients() {
        let (_folder, path) = place();
        let file = UsageFile::open(&path).unwrap();
        let now = 100 * HOUR_US;
        let write = |each: Vec<Change>| file.write(&changes(each), 3, now).unwrap();
        let day = |bucket, hour: u64, used| change(bucket, hour * HOUR_US, Period::Day, used, None);
        assert_eq!(write(vec![day(1, 98, 1), day(2, 99, 1), day(3, 120, 1)]), 0);
        let kept =
            || -> Vec<u128> { all(&file).iter().map(|record| record.place.bucket.0).collect() };
        assert_eq!(write(vec![day(4, 120, 1)]), 0);
        assert_eq!(kept(), [2, 3, 4]);
        assert_eq!(write(vec![day(5, 120, 1), day(6, 120, 1), day(3, 120, 9)]), 1);
        assert_eq!(kept(), [3, 4, 5]);
        // A known client is counted on, and hours have a table apart.
        assert_eq!(all(&file)[0].used, 9);
        assert_eq!(write(vec![change(7, 101 * HOUR_US, Period::Hour, 1, None)]), 0);
    }

    #[test]
    fn file_of_a_newer_layout_is_refused() {
        let (_folder, path) = place();
        let file = UsageFile::open(&path).unwrap();
        let writing = file.0.begin_write().unwrap();
        writing.open_table(ABOUT).unwrap().insert("version", 2).unwrap();
        writing.commit().unwrap();
        drop(file);
        assert!(matches!(UsageFile::open(&path), Err(OpenError::Newer(2))));
    }

    /// `cargo test --release --lib million_records -- --ignored --nocapture`
    #[test]
    #[ignore = "a measurement"]
    fn million_records() {
        let (_folder, path) = place();
        let file = UsageFile::open(&path).unwrap();
        let count = 1_000_000u128;
        let bucket = |number: u128| number.wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835);
        let begun = crate::base::clock::now();
        for first in (0..count).step_by(10_000) {
            let each = (first..first + 10_000)
                .map(|number| change(bucket(number), HOUR_US, Period::Day, 1, None));
            file.write(&changes(each), u64::MAX, 0).unwrap();
        }
        let written = crate::base::clock::now();
        let again = (0..10_000).map(|number| change(bucket(number), HOUR_US, Period::Day, 2, None));
        file.write(&changes(again), u64::MAX, 0).unwrap();
        let counted = crate::base::clock::now();
        let mut found = 0;
        file.read(Place { end_us: 0, bucket: BucketId(0) }, |_| {
            found += 1;
            true
        })
        .unwrap();
        let read = crate::base::clock::now();
        let bytes = std::fs::metadata(&path).unwrap().len();
        eprintln!(
            "{found} records: {} ms to write in steps of 10,000, {} ms for 10,000 further counts, {} ms to read; {} bytes a record",
            (written - begun) / 1_000,
            (counted - written) / 1_000,
            (read - counted) / 1_000,
            bytes / found,
        );
        assert_eq!(found, 1_000_000);
    }

    #[test]
    fn open_file_cannot_be_opened_again() {
        let (_folder, path) = place();
        let _file = UsageFile::open(&path).unwrap();
        assert!(matches!(UsageFile::open(&path), Err(OpenError::InUse)));
    }

    proptest! {
        #![proptest_config(crate::base::cases::with_cases(48))]

        /// The file has the changes of all writes, whatever is written when.
        #[test]
        fn file_equals_a_map(
            writes in prop::collection::vec(
                prop::collection::vec((0..4u128, 1..4u64, any::<bool>(), 0..50i64), 0..6), 1..6)
        ) {
            let (_folder, path) = place();
            let mut expected: HashMap<Place, i64> = HashMap::new();
            for write in writes {
                let file = UsageFile::open(&path).unwrap();
                let write = changes(write.into_iter().map(|(bucket, hour, is_hour, used)| {
                    // A bucket has one kind of period.
                    let bucket = bucket * 2 + u128::from(is_hour);
                    let period = if is_hour { Period::Hour } else { Period::Day };
                    change(bucket, hour * HOUR_US, period, used, None)
                }));
                for (place, change) in &write {
                    let used = expected.entry(*place).or_default();
                    *used = (*used).max(change.record.used);
                }
                prop_assert_eq!(file.write(&write, 100, 0).unwrap(), 0);
            }
            let found = all(&UsageFile::open(&path).unwrap());
            let found: HashMap<Place, i64> =
                found.iter().map(|record| (record.place, record.used)).collect();
            prop_assert_eq!(found, expected);
        }
    }
}
