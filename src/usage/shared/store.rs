//! [`Store`]: reads and writes records in Redis, on a connection that no check uses. Each command
//! has one key.

pub mod days;

use std::collections::{BTreeMap, HashMap};
use std::hash::{BuildHasher as _, RandomState};
use std::sync::Arc;
use std::time::Duration;

use redis::{Cmd, FromRedisValue, Value};

use super::codec::{self, INDEX, RulePeriod, SLICES};
use super::writer::Grant;
use crate::base::clock;
use crate::base::duration::MICROS_PER_SECOND;
use crate::base::duration::micros;
use crate::limit::charge::BucketId;
use crate::policy::redis::Redis;
use crate::store::redis::link::records::{Records, RecordsError};
use crate::usage::file::KEEP_HOURS;
use crate::usage::ledger::{Change, Changes};
use crate::usage::record::Record;

/// Source of `lua/usage.lua`.
const SCRIPT: &str = include_str!("../../../lua/usage.lua");

/// Returns the time of the server that has a key, in seconds and microseconds.
const TIME: &str = "return redis.call('TIME')";

/// Most records in one call: Redis takes well below a millisecond for them.
const RECORDS_AT_ONCE: usize = 128;

/// Most calls that are unanswered at a time.
const CALLS_AT_ONCE: usize = 16;

/// Number of fields that one reply of `HSCAN` has, about.
const SCANNED_AT_ONCE: usize = 128;

/// Time between the expiries of two hashes of a period, in microseconds: not all at once.
const EXPIRY_STEP_US: u64 = MICROS_PER_SECOND;

/// How long the index lives without a new period, in milliseconds: longer than any record.
const INDEX_LIFETIME_MS: u64 = 5_000 * 86_400_000;

/// Records in the Redis of `settings`.
///
/// The second part identifies it among all writers.
pub struct Store(Records, u64);

/// How much is kept.
#[derive(Debug, Clone, Copy)]
pub struct Bounds {
    /// How long the usage of a period is kept after its end.
    pub keep: Duration,
    /// Maximum number of records; of hours, and of longer periods.
    pub max_records: u64,
}

impl Bounds {
    /// How long a period is kept after its end, in microseconds.
    fn keep_us(self, period: &RulePeriod) -> u64 {
        micros(if period.is_hour() { self.keep.min(KEEP_HOURS) } else { self.keep })
    }

    /// Whether a period is still kept at `unix_us` (Unix time).
    fn keeps(self, period: &RulePeriod, unix_us: u64) -> bool {
        unix_us < period.end_us.saturating_add(self.keep_us(period))
    }

    /// Whether there is room for one more record of each kind.
    pub fn have_room(self, index: &Index) -> bool {
        [false, true].iter().all(|are_hours| records(index, *are_hours) < self.max_records)
    }
}

/// Rules and periods that have records, and about how many.
pub type Index = HashMap<RulePeriod, u64>;

/// Number of records of hours, or of longer periods.
fn records(index: &Index, are_hours: bool) -> u64 {
    let alike = index.iter().filter(|(period, _)| period.is_hour() == are_hours);
    alike.fold(0, |sum: u64, (_, count)| sum.saturating_add(*count))
}

/// What a write did.
#[derive(Debug, Default)]
pub struct Written {
    /// Changes that may not be written.
    pub changes: Changes,
    /// Grants that may not be written.
    pub grants: Vec<Grant>,
    /// Number of records that have no room.
    pub without_room: u64,
    /// Why something is not written.
    pub error: Option<RecordsError>,
}

/// A record to read first.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Position {
    pub period: RulePeriod,
    pub bucket: BucketId,
}

/// Records, and where the next ones begin; `None` after the last.
pub type Page = (Vec<Record>, Option<Position>);

/// Something to write.
enum Pending {
    Change(Change),
    Grant(Grant),
}

impl Pending {
    const fn record(&self) -> &Record {
        match self {
            Self::Change(change) => &change.record,
            Self::Grant(grant) => &grant.record,
        }
    }

    fn encode(&self) -> Vec<u8> {
        match self {
            Self::Change(change) => codec::answer(&change.record, change.answered_at_us),
            Self::Grant(grant) => codec::grant(grant.units, grant.id, grant.record.counted_at_us),
        }
    }
}

/// One call of the script.
struct Call {
    period: RulePeriod,
    slice: usize,
    pending: Vec<Pending>,
}

impl Written {
    fn not_written(&mut self, calls: impl IntoIterator<Item = Call>) {
        for pending in calls.into_iter().flat_map(|call| call.pending) {
            match pending {
                Pending::Change(change) => {
                    self.changes.insert(change.record.place, change);
                }
                Pending::Grant(grant) => self.grants.push(grant),
            }
        }
    }
}

impl Store {
    /// Creates a store without a connection. Does no I/O.
    pub fn new(settings: Redis) -> Self {
        Self(Records::new(settings), RandomState::new().hash_one(clock::now()))
    }

    // === Index ===

    /// Reads the index, and removes from it what is not kept any more, by the clock of Redis:
    /// gateways share the index, and the clock of one must not remove it for all. Fields that this
    /// version does not know may be those of another one, and stay.
    ///
    /// # Errors
    /// See [`RecordsError`].
    pub async fn index(&self, bounds: Bounds) -> Result<Index, RecordsError> {
        let (fields, unix_us) = self.scan_at(INDEX).await?;
        self.kept(fields, bounds, unix_us).await
    }

    /// The periods of an index that are kept at `unix_us` (Unix time). Removes the others.
    async fn kept(
        &self,
        fields: Fields,
        bounds: Bounds,
        unix_us: u64,
    ) -> Result<Index, RecordsError> {
        let mut index = Index::new();
        let mut old = Vec::new();
        for (field, count) in fields {
            let period = std::str::from_utf8(&field).ok().and_then(RulePeriod::of_field);
            let Some(period) = period else { continue };
            if bounds.keeps(&period, unix_us) {
                let count = std::str::from_utf8(&count).ok().and_then(|it| it.parse().ok());
                index.insert(period, count.unwrap_or(0));
            } else {
                old.push(field);
            }
        }
        self.remove(INDEX, old).await?;
        Ok(index)
    }

    /// Removes fields of a hash.
    async fn remove(&self, key: &str, fields: Vec<Vec<u8>>) -> Result<(), RecordsError> {
        if !fields.is_empty() {
            self.call(self.command("HDEL", key).arg(fields)).await?;
        }
        Ok(())
    }

    /// Adds to the numbers of the index.
    async fn count(&self, added: &HashMap<RulePeriod, u64>) -> Result<(), RecordsError> {
        for (period, count) in added {
            self.call(self.command("HINCRBY", INDEX).arg(period.field()).arg(*count)).await?;
        }
        if !added.is_empty() {
            self.call(self.command("PEXPIRE", INDEX).arg(INDEX_LIFETIME_MS)).await?;
        }
        Ok(())
    }

    // === Writing ===

    /// Writes changes and grants, and counts new records in `index`. What may not be written is
    /// returned.
    pub async fn write(
        &self,
        index: &mut Index,
        changes: Changes,
        grants: Vec<Grant>,
        bounds: Bounds,
        unix_us: u64,
    ) -> Written {
        let mut written = Written::default();
        let mut calls = calls(changes, grants, |period| {
            let is_kept = bounds.keeps(period, unix_us);
            written.without_room += u64::from(!is_kept);
            is_kept
        });
        // A period is in the index before its records, so that they are found whatever happens in
        // between.
        let new = calls.iter().map(|call| &call.period).filter(|it| !index.contains_key(it));
        let new: HashMap<RulePeriod, u64> = new.map(|period| (period.clone(), 0)).collect();
        if let Err(error) = self.count(&new).await {
            written.error = Some(error);
            written.not_written(calls);
            return written;
        }
        index.extend(new);
        let mut added: HashMap<RulePeriod, u64> = HashMap::new();
        while !calls.is_empty() {
            let rest = calls.split_off(calls.len().min(CALLS_AT_ONCE));
            let now = std::mem::replace(&mut calls, rest);
            if !self.write_some(now, index, bounds, &mut added, &mut written).await {
                break;
            }
        }
        written.not_written(calls);
        if let Err(error) = self.count(&added).await {
            // The numbers are about right at the next reading of the index.
            written.error.get_or_insert(error);
        }
        written
    }

    /// Returns whether it is worth while to go on: Redis has accepted something.
    async fn write_some(
        &self,
        calls: Vec<Call>,
        index: &mut Index,
        bounds: Bounds,
        added: &mut HashMap<RulePeriod, u64>,
        written: &mut Written,
    ) -> bool {
        let commands: Vec<Cmd> =
            calls.iter().map(|call| self.script(call, index, bounds)).collect();
        let replies = match self.0.call_all(&commands).await {
            Ok(replies) => replies,
            Err(error) => {
                written.error = Some(error);
                written.not_written(calls);
                return false;
            }
        };
        let mut is_accepted = false;
        for (call, reply) in calls.into_iter().zip(replies) {
            match reply.and_then(read::<(u64, u64)>) {
                Ok((new, without_room)) => {
                    is_accepted = true;
                    written.without_room += without_room;
                    if new > 0 {
                        *index.entry(call.period.clone()).or_default() += new;
                        *added.entry(call.period).or_default() += new;
                    }
                }
                Err(error) => {
                    written.error = Some(error);
                    written.not_written([call]);
                }
            }
        }
        is_accepted
    }

    fn script(&self, call: &Call, index: &Index, bounds: Bounds) -> Cmd {
        let Call { period, slice, pending } = call;
        let records = records(index, period.is_hour());
        let kept_us = bounds.keep_us(period).saturating_add(*slice as u64 * EXPIRY_STEP_US);
        let expires_ms = period.end_us.saturating_add(kept_us) / 1_000;
        let mut command = redis::cmd("EVAL");
        command.arg(SCRIPT).arg(1).arg(self.0.key(&period.key(*slice)));
        command.arg("").arg(expires_ms).arg(bounds.max_records.saturating_sub(records));
        for one in pending {
            let record = one.record();
            command.arg(codec::field(record.place.bucket)).arg(one.encode());
            command.arg(codec::text(record));
        }
        command
    }

    // === Reading ===

    /// Reads records that `includes`, of the periods in `index`, in order from `from` on: at most
    /// `limit`. Fewer if it takes until `ends` (microseconds).
    ///
    /// # Errors
    /// See [`RecordsError`].
    pub async fn read(
        &self,
        index: Index,
        from: Option<Position>,
        includes: impl Fn(&Record) -> bool,
        limit: usize,
        ends: u64,
    ) -> Result<Page, RecordsError> {
        let mut periods: Vec<(RulePeriod, u64)> = index.into_iter().collect();
        periods.sort_unstable();
        let (mut found, mut has_read) = (Vec::new(), false);
        for (period, count) in periods {
            let first = match &from {
                Some(from) if period < from.period => continue,
                Some(from) if period == from.period => from.bucket,
                _ => BucketId(0),
            };
            let mut slice = codec::slice(first);
            while slice < SLICES {
                let until = SLICES.min(slice + slices_at_once(count, limit - found.len()));
                let begin = BucketId(first.0.max((slice as u128) << 120));
                if has_read && clock::now() >= ends {
                    return Ok((found, Some(Position { period, bucket: begin })));
                }
                for record in self.slices(&period, slice..until).await? {
                    if record.place.bucket < first || !includes(&record) {
                        continue;
                    }
                    if found.len() == limit {
                        let bucket = record.place.bucket;
                        return Ok((found, Some(Position { period, bucket })));
                    }
                    found.push(record);
                }
                (slice, has_read) = (until, true);
            }
        }
        Ok((found, None))
    }

    /// The records of some hashes, by bucket.
    async fn slices(
        &self,
        period: &RulePeriod,
        slices: std::ops::Range<usize>,
    ) -> Result<Vec<Record>, RecordsError> {
        let keys: Vec<String> = slices.map(|slice| period.key(slice)).collect();
        let commands: Vec<Cmd> = keys.iter().map(|key| self.scan_command(key, 0)).collect();
        let replies = self.0.call_all(&commands).await?;
        let mut records = BTreeMap::new();
        for (key, reply) in keys.iter().zip(replies) {
            let (mut fields, next) = scanned(reply?)?;
            if next != 0 {
                fields.extend(self.scan(key, next).await?.0);
            }
            let read = fields.iter().filter_map(|(field, value)| codec::read(period, field, value));
            // A field can be in several replies.
            records.extend(read.map(|record| (record.place.bucket, record)));
        }
        Ok(records.into_values().collect())
    }

    /// Reads the fields of a hash from a cursor on.
    async fn scan(&self, key: &str, cursor: u64) -> Result<(Fields, u64), RecordsError> {
        let (mut fields, mut cursor) = (Fields::new(), cursor);
        loop {
            let (found, next) = scanned(self.call(&self.scan_command(key, cursor)).await?)?;
            fields.extend(found);
            if next == 0 {
                return Ok((fields, 0));
            }
            cursor = next;
        }
    }

    /// Reads all fields of a hash, and the Unix time of its server in microseconds.
    async fn scan_at(&self, key: &str) -> Result<(Fields, u64), RecordsError> {
        let mut time = redis::cmd("EVAL");
        time.arg(TIME).arg(1).arg(self.0.key(key));
        let replies = self.0.call_all(&[time, self.scan_command(key, 0)]).await?;
        let [time, fields] = <[_; 2]>::try_from(replies).map_err(|_| RecordsError::malformed())?;
        let (seconds, us): (u64, u64) = read(time?)?;
        let (mut fields, next) = scanned(fields?)?;
        if next != 0 {
            fields.extend(self.scan(key, next).await?.0);
        }
        Ok((fields, seconds.saturating_mul(MICROS_PER_SECOND).saturating_add(us)))
    }

    fn scan_command(&self, key: &str, cursor: u64) -> Cmd {
        let mut command = self.command("HSCAN", key);
        command.arg(cursor).arg("COUNT").arg(SCANNED_AT_ONCE);
        command
    }

    fn command(&self, name: &str, key: &str) -> Cmd {
        let mut command = redis::cmd(name);
        command.arg(self.0.key(key));
        command
    }

    async fn call(&self, command: &Cmd) -> Result<Value, RecordsError> {
        let mut replies = self.0.call_all(std::slice::from_ref(command)).await?;
        replies.pop().unwrap_or(Ok(Value::Nil))
    }
}

/// Number of hashes to read at once, of a period with about `count` records, for at most `wanted`
/// of them.
fn slices_at_once(count: u64, wanted: usize) -> usize {
    let in_one = usize::try_from(count).unwrap_or(usize::MAX) / SLICES + 1;
    (wanted / in_one).clamp(1, CALLS_AT_ONCE)
}

/// Names and values of a hash.
type Fields = Vec<(Vec<u8>, Vec<u8>)>;

/// Reads a reply to `HSCAN`: fields, and the next cursor.
fn scanned(reply: Value) -> Result<(Fields, u64), RecordsError> {
    let (cursor, flat): (u64, Vec<Vec<u8>>) = read(reply)?;
    let mut fields = Fields::with_capacity(flat.len() / 2);
    let mut flat = flat.into_iter();
    while let (Some(field), Some(value)) = (flat.next(), flat.next()) {
        fields.push((field, value));
    }
    Ok((fields, cursor))
}

fn read<T: FromRedisValue>(reply: Value) -> Result<T, RecordsError> {
    T::from_redis_value(reply).map_err(|_| RecordsError::malformed())
}

/// What to write, by hash and in bounded numbers. What is not in a period that `keeps` is left out.
fn calls(
    changes: Changes,
    grants: Vec<Grant>,
    mut keeps: impl FnMut(&RulePeriod) -> bool,
) -> Vec<Call> {
    let mut hashes: BTreeMap<(RulePeriod, usize), Vec<Pending>> = BTreeMap::new();
    let changes = changes.into_values().map(Pending::Change);
    for pending in changes.chain(grants.into_iter().map(Pending::Grant)) {
        let record = pending.record();
        let period = RulePeriod::of(record);
        if keeps(&period) {
            let slice = codec::slice(record.place.bucket);
            hashes.entry((period, slice)).or_default().push(pending);
        }
    }
    let mut calls = Vec::new();
    for ((period, slice), mut pending) in hashes {
        while !pending.is_empty() {
            let rest = pending.split_off(pending.len().min(RECORDS_AT_ONCE));
            let now = std::mem::replace(&mut pending, rest);
            let rule = Arc::clone(&period.rule);
            calls.push(Call { period: RulePeriod { rule, ..period }, slice, pending: now });
        }
    }
    calls
}

#[cfg(test)]
mod tests;
