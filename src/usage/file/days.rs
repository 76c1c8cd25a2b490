//! What clients used by day, in a [`UsageFile`].

use redb::{ReadableDatabase as _, ReadableTable as _, ReadableTableMetadata as _};
use redb::{TableDefinition, WriteTransaction};

use super::{ABOUT, FileError, UsageFile};
use crate::usage::days::row::{Counts, Day, Position, Row, Rows};
use crate::usage::days::waiting::BatchId;

/// Day, hash of the client, the rest of the row.
type Key = (u32, u128, &'static str);

/// Requests, units, overage.
type Value = (i64, i64, i64);

/// Rows by day.
const ROWS: TableDefinition<'_, Key, Value> = TableDefinition::new("rows_by_day");

/// Creates the table if it is not there.
pub(super) fn create(writing: &WriteTransaction) -> Result<(), FileError> {
    writing.open_table(ROWS)?;
    Ok(())
}

impl UsageFile {
    /// Adds the rows of a batch, all or none, to those on the disk, unless it is the last batch
    /// that was added. If the file has `max_rows`, the oldest of days before `today` make room.
    /// Returns the number of rows that have no room.
    ///
    /// # Errors
    /// See [`FileError`]. The file has to be opened again then, and may have the rows or not: the
    /// same batch has to be added again before any other.
    pub fn add_days(
        &self,
        batch: BatchId,
        rows: &Rows,
        max_rows: u64,
        today: Day,
    ) -> Result<u64, FileError> {
        let mut without_room = 0;
        let writing = self.0.begin_write()?;
        if !note_batch(&writing, batch)? {
            return Ok(0);
        }
        {
            let mut table = writing.open_table(ROWS)?;
            for (row, counts) in rows {
                let (Position { day, owner }, text) = (row.position(), row.text());
                let key = (day.number(), owner, text.as_str());
                let mut sum = *counts;
                let before = table.get(key)?.map(|value| value.value());
                if let Some((requests, units, overage)) = before {
                    sum.add(Counts { requests, units, overage });
                } else if table.len()? >= max_rows {
                    let oldest = table.first()?.map(|(key, _)| {
                        let (day, owner, text) = key.value();
                        (day, owner, text.to_owned())
                    });
                    let Some(oldest) = oldest.filter(|(day, ..)| *day < today.number()) else {
                        without_room += 1;
                        continue;
                    };
                    table.remove((oldest.0, oldest.1, oldest.2.as_str()))?;
                }
                table.insert(key, (sum.requests, sum.units, sum.overage))?;
            }
        }
        writing.commit()?;
        Ok(without_room)
    }

    /// Removes the rows of days before `first`.
    ///
    /// # Errors
    /// See [`FileError`].
    pub fn remove_days(&self, first: Day) -> Result<(), FileError> {
        let writing = self.0.begin_write()?;
        writing.open_table(ROWS)?.retain_in(..(first.number(), 0, ""), |_, _| false)?;
        writing.commit()?;
        Ok(())
    }

    /// Calls `next` with the rows from `from` on, in order, until it returns false. With `owners`,
    /// only with those of clients with these hashes, in ascending order.
    ///
    /// # Errors
    /// See [`FileError`].
    pub fn read_days(
        &self,
        mut from: Position,
        owners: Option<&[u128]>,
        mut next: impl FnMut(Row, Counts) -> bool,
    ) -> Result<(), FileError> {
        let table = self.0.begin_read()?.open_table(ROWS)?;
        // Each turn reads from another place on, after clients that are not wanted.
        'from: loop {
            for entry in table.range((from.day.number(), from.owner, "")..)? {
                let (key, value) = entry?;
                let (number, owner, text) = key.value();
                let Some(day) = Day::of_number(number) else { continue };
                if let Some(owners) = owners
                    && !owners.contains(&owner)
                {
                    let later = owners.iter().copied().find(|one| *one > owner);
                    from = Position { day, owner: later.unwrap_or(u128::MAX) };
                    if later.is_none() && owner == u128::MAX {
                        return Ok(());
                    }
                    continue 'from;
                }
                let (requests, units, overage) = value.value();
                if let Some(row) = Row::of_text(day, text)
                    && !next(row, Counts { requests, units, overage })
                {
                    return Ok(());
                }
            }
            return Ok(());
        }
    }
}

/// Notes the last batch. Returns false if the file has it.
fn note_batch(writing: &WriteTransaction, batch: BatchId) -> Result<bool, FileError> {
    let BatchId { process, number } = batch;
    let mut about = writing.open_table(ABOUT)?;
    let last_process = about.insert("process", process)?.map(|last| last.value());
    let last_number = about.insert("batch", number)?.map(|last| last.value());
    Ok((last_process, last_number) != (Some(process), Some(number)))
}

#[cfg(test)]
mod tests {
    use redb::Builder;

    use super::*;
    use crate::base::faulty_file::{Fault, Faults, FaultyFile};
    use crate::usage::days::row::owner_hash;
    use crate::usage::days::row::tests::row;

    fn rows(day: u32, clients: std::ops::Range<u32>) -> Rows {
        let counts = Counts { requests: 1, units: 1_000, overage: -5 };
        clients.map(|client| (row(day, client), counts)).collect()
    }

    fn batch(number: u64) -> BatchId {
        BatchId { process: 7, number }
    }

    const START: Position = Position { day: Day::FIRST, owner: 0 };

    fn read(file: &UsageFile, owners: Option<&[u128]>) -> Vec<(String, i64)> {
        let mut found = Vec::new();
        let each = |row: Row, counts: Counts| {
            found.push((format!("{} {}", row.day, row.owner.id), counts.requests));
            true
        };
        file.read_days(START, owners, each).unwrap();
        found.sort();
        found
    }

    #[test]
    fn rows_are_added_listed_by_client_and_removed() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("usage.redb");
        let file = UsageFile::open(&path).unwrap();
        let today = Day::of_number(20_261_128).unwrap();
        for (number, day) in [(1, 20_261_127), (2, 20_261_128)] {
            assert_eq!(file.add_days(batch(number), &rows(day, 0..100), 1_000, today).unwrap(), 0);
        }
        let one = rows(20_261_128, 7..8);
        assert_eq!(file.add_days(batch(3), &one, 1_000, today).unwrap(), 0);
        drop(file);
        let file = UsageFile::open(&path).unwrap();
        assert_eq!(read(&file, None).len(), 200);
        let mut owners = [7, 8, 500].map(|client: u32| owner_hash("key", &client.to_string()));
        owners.sort_unstable();
        let expected = ["2026-11-27 7", "2026-11-27 8", "2026-11-28 7", "2026-11-28 8"];
        let counts = [1, 1, 2, 1];
        let expected: Vec<(String, i64)> =
            expected.map(str::to_owned).into_iter().zip(counts).collect();
        assert_eq!(read(&file, Some(&owners)), expected);
        // The oldest rows of earlier days make room; those of today do not.
        let more = rows(20_261_128, 100..250);
        assert_eq!(file.add_days(batch(4), &more, 200, today).unwrap(), 50);
        assert_eq!(read(&file, None).len(), 200);
        file.remove_days(Day::of_number(20_261_129).unwrap()).unwrap();
        assert!(read(&file, None).is_empty());
    }

    /// If only the last step of a write fails, the file has it when it is opened again.
    #[test]
    fn batch_that_is_written_again_after_an_error_counts_once() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("usage.redb");
        drop(UsageFile::open(&path).unwrap());
        let faults = Faults::default();
        let backend = FaultyFile::open(&path, &faults);
        let file = UsageFile(Builder::new().create_with_backend(backend).unwrap());
        faults.set(Fault::Sync(0));
        let (today, rows) = (Day::of_number(20_261_128).unwrap(), rows(20_261_128, 7..8));
        assert!(file.add_days(batch(1), &rows, 10, today).is_err());
        drop(file);
        let file = UsageFile::open(&path).unwrap();
        let count = || read(&file, None).iter().map(|(_, requests)| requests).sum::<i64>();
        assert_eq!(count(), 1);
        let other = BatchId { process: 8, number: 2 };
        for (batch, expected) in [(batch(1), 1), (batch(2), 2), (other, 3), (other, 3)] {
            assert_eq!(file.add_days(batch, &rows, 10, today).unwrap(), 0);
            assert_eq!(count(), expected, "{batch:?}");
        }
    }
}
