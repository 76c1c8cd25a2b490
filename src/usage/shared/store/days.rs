//! What clients used by day, in Redis. An index has each day, and about how many rows it has.

use std::collections::{BTreeMap, HashMap};

use redis::Cmd;

use super::{CALLS_AT_ONCE, Fields, Store, read};
use crate::base::clock;
use crate::base::duration::micros;
use crate::store::redis::link::records::RecordsError;
use crate::usage::days::batch::{Batch, Batches, SLICES, slice};
use crate::usage::days::row::{Counts, Day, Position, Row};

/// Source of `lua/usage_days.lua`.
const SCRIPT: &str = include_str!("../../../../lua/usage_days.lua");

/// Key of the index, after the prefix; followed by `:`, the day and the slice, that of a hash.
const INDEX: &str = "usage-days";

/// How long the index lives without a new day, in milliseconds: longer than any row.
const INDEX_LIFETIME_MS: u64 = 5_000 * 86_400_000;

/// Time between the expiries of two hashes of a day, in milliseconds: not all at once.
const EXPIRY_STEP_MS: u64 = 2_000;

/// Time from the start of a day in UTC until it has ended in every time zone.
const DAY: std::time::Duration = std::time::Duration::from_secs(38 * 3_600);

/// How much is kept.
#[derive(Debug, Clone, Copy)]
pub struct DayBounds {
    /// How long a day is kept after its end.
    pub keep: std::time::Duration,
    /// Maximum number of rows.
    pub max_rows: u64,
}

/// The days that have rows, and about how many.
pub type DayIndex = BTreeMap<Day, u64>;

/// Rows of one client on one day.
pub type ClientDay = Vec<(Row, Counts)>;

impl DayBounds {
    /// The first day that is still kept at `unix_us` (Unix time).
    pub fn first(self, unix_us: u64) -> Day {
        Day::of_unix(unix_us.saturating_sub(micros(self.keep.saturating_add(DAY))))
    }

    fn expires_ms(self, day: Day) -> u64 {
        day.start_us().saturating_add(micros(self.keep.saturating_add(2 * DAY))) / 1_000
    }
}

impl Store {
    /// Reads the days that have rows, and removes from the index those that are not kept any more,
    /// by the clock of Redis. Fields that this version does not know stay: see
    /// [`index`](Self::index).
    ///
    /// # Errors
    /// See [`RecordsError`].
    pub async fn days(&self, bounds: DayBounds) -> Result<DayIndex, RecordsError> {
        let (fields, unix_us) = self.scan_at(INDEX).await?;
        self.kept_days(fields, bounds.first(unix_us)).await
    }

    /// The days of an index from `first` on. Removes the others.
    async fn kept_days(&self, fields: Fields, first: Day) -> Result<DayIndex, RecordsError> {
        let (mut index, mut old) = (DayIndex::new(), Vec::new());
        for (field, count) in fields {
            let number = |text: &[u8]| std::str::from_utf8(text).ok()?.parse::<u64>().ok();
            let day = number(&field).and_then(|day| Day::of_number(u32::try_from(day).ok()?));
            match day {
                Some(day) if day >= first => drop(index.insert(day, number(&count).unwrap_or(0))),
                Some(_) => old.push(field),
                None => {}
            }
        }
        self.remove(INDEX, old).await?;
        Ok(index)
    }

    /// Adds batches, and counts new rows in `index`. Batches that may not have been added stay in
    /// `batches`. Returns the number of rows that have no room.
    ///
    /// # Errors
    /// Some batches may not have been added. See [`RecordsError`].
    pub async fn add_days(
        &self,
        batches: &mut Batches,
        index: &mut DayIndex,
        bounds: DayBounds,
    ) -> Result<u64, RecordsError> {
        let mut without_room = 0;
        while !batches.is_empty() {
            let now = batches.next(CALLS_AT_ONCE);
            // A day is in the index before its rows, so that they are found whatever happens in
            // between.
            let new = now.iter().map(|batch| (batch.place.0, 0));
            let new: HashMap<Day, u64> = new.filter(|(day, _)| !index.contains_key(day)).collect();
            if let Err(error) = self.count_days(&new).await {
                batches.not_answered(now);
                return Err(error);
            }
            index.extend(new);
            let commands: Vec<Cmd> =
                now.iter().map(|batch| self.day_script(batch, index, bounds)).collect();
            let replies = match self.0.call_all(&commands).await {
                Ok(replies) => replies,
                Err(error) => {
                    batches.not_answered(now);
                    return Err(error);
                }
            };
            let (mut added, mut failed) = (HashMap::new(), None);
            for (batch, reply) in now.into_iter().zip(replies) {
                match reply.and_then(read::<(u64, u64)>) {
                    Ok((new, refused)) => {
                        without_room += refused;
                        *index.entry(batch.place.0).or_default() += new;
                        *added.entry(batch.place.0).or_default() += new;
                    }
                    Err(error) => {
                        failed = Some(error);
                        batches.not_answered([batch]);
                    }
                }
            }
            added.retain(|_, count| *count > 0);
            self.count_days(&added).await?;
            if let Some(error) = failed {
                return Err(error);
            }
        }
        Ok(without_room)
    }

    async fn count_days(&self, added: &HashMap<Day, u64>) -> Result<(), RecordsError> {
        for (day, count) in added {
            self.call(self.command("HINCRBY", INDEX).arg(day.number()).arg(*count)).await?;
        }
        if !added.is_empty() {
            self.call(self.command("PEXPIRE", INDEX).arg(INDEX_LIFETIME_MS)).await?;
        }
        Ok(())
    }

    fn day_script(&self, batch: &Batch, index: &DayIndex, bounds: DayBounds) -> Cmd {
        let (day, slice) = batch.place;
        let known = index.values().fold(0_u64, |sum, count| sum.saturating_add(*count));
        let expires_ms = bounds.expires_ms(day).saturating_add(slice as u64 * EXPIRY_STEP_MS);
        let mut command = redis::cmd("EVAL");
        command.arg(SCRIPT).arg(1).arg(self.0.key(&key(day, slice)));
        command.arg(expires_ms).arg(bounds.max_rows.saturating_sub(known));
        command.arg(&self.1.to_le_bytes()[..]).arg(batch.number);
        for (row, counts) in &batch.rows {
            command.arg(row.text()).arg(encoded(*counts));
        }
        command
    }

    /// Calls `next` with the rows of each client on each of the days in `index`, in order from
    /// `from` on, until it returns false. With `owners`, only of clients with these hashes. Returns
    /// the first place that is not read because it takes until `ends` (microseconds), if so.
    ///
    /// # Errors
    /// See [`RecordsError`].
    pub async fn read_days(
        &self,
        index: DayIndex,
        from: Position,
        owners: Option<&[u128]>,
        ends: u64,
        mut next: impl FnMut(Position, ClientDay) -> bool,
    ) -> Result<Option<Position>, RecordsError> {
        let wanted: Option<Vec<usize>> =
            owners.map(|owners| owners.iter().map(|owner| slice(*owner)).collect());
        let mut has_read = false;
        for day in index.into_keys().filter(|day| *day >= from.day) {
            let first = if day == from.day { from.owner } else { 0 };
            let slices = slice(first)..SLICES;
            let includes = |slice: &usize| wanted.as_ref().is_none_or(|all| all.contains(slice));
            let slices: Vec<usize> = slices.filter(includes).collect();
            for slices in slices.chunks(CALLS_AT_ONCE) {
                let begin = slices.first().map_or(0, |slice| (*slice as u128) << 122);
                if has_read && clock::now() >= ends {
                    return Ok(Some(Position { day, owner: begin.max(first) }));
                }
                for (position, rows) in self.client_days(day, slices).await? {
                    let is_wanted = position.owner >= first
                        && owners.is_none_or(|owners| owners.contains(&position.owner));
                    if is_wanted && !next(position, rows) {
                        return Ok(None);
                    }
                }
                has_read = true;
            }
        }
        Ok(None)
    }

    /// The rows of some hashes, by client.
    async fn client_days(
        &self,
        day: Day,
        slices: &[usize],
    ) -> Result<BTreeMap<Position, ClientDay>, RecordsError> {
        let mut rows: HashMap<Row, Counts> = HashMap::new();
        let keys: Vec<String> = slices.iter().map(|slice| key(day, *slice)).collect();
        let commands: Vec<Cmd> = keys.iter().map(|key| self.scan_command(key, 0)).collect();
        let replies = self.0.call_all(&commands).await?;
        for (key, reply) in keys.iter().zip(replies) {
            let (mut fields, next) = super::scanned(reply?)?;
            if next != 0 {
                fields.extend(self.scan(key, next).await?.0);
            }
            // A field can be in several replies.
            rows.extend(fields.iter().filter_map(|(field, value)| {
                let text = std::str::from_utf8(field).ok()?;
                Some((Row::of_text(day, text)?, decoded(value)?))
            }));
        }
        let mut clients: BTreeMap<Position, ClientDay> = BTreeMap::new();
        for (row, counts) in rows {
            clients.entry(row.position()).or_default().push((row, counts));
        }
        Ok(clients)
    }
}

/// Key of a hash, after the prefix.
fn key(day: Day, slice: usize) -> String {
    format!("{INDEX}:{}:{slice:02x}", day.number())
}

#[allow(clippy::cast_precision_loss, reason = "sums are at most 2^53")]
fn encoded(counts: Counts) -> Vec<u8> {
    let Counts { requests, units, overage } = counts;
    [requests, units, overage].iter().flat_map(|number| (*number as f64).to_le_bytes()).collect()
}

#[allow(clippy::cast_possible_truncation, reason = "sums are at most 2^53")]
fn decoded(value: &[u8]) -> Option<Counts> {
    let (1, numbers) = value.split_first().filter(|_| value.len() == 25)? else { return None };
    let number = |at: usize| {
        let bytes = numbers.get(at..at + 8)?.try_into().ok()?;
        Some(f64::from_le_bytes(bytes).round() as i64)
    };
    Some(Counts { requests: number(0)?, units: number(8)?, overage: number(16)? })
}

#[cfg(test)]
mod tests;
