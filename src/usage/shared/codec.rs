//! Keys, fields and values of records in Redis.
//!
//! The records of a rule and a period are in [`SLICES`] hashes, by the first byte of the bucket. So
//! no key grows so large that its expiry would block Redis, and a cluster spreads them. A further
//! hash, the index, has each rule and period.

use std::sync::Arc;

use crate::base::duration::MICROS_PER_SECOND;
use crate::limit::charge::BucketId;
use crate::limit::{Limit, double};
use crate::usage::record::{OWNER_KINDS, Owner, Place, Record};

/// Number of hashes of a rule and a period.
pub const SLICES: usize = 256;

/// Key of the index, after the prefix.
pub const INDEX: &str = "usage";

/// Version of a value, and of a change that has what is used.
const ANSWER: u8 = 1;

/// A change that adds units which the bucket does not have.
const GRANT: u8 = 2;

/// Bytes of a value before the grants.
const HEAD: usize = 26;

/// Bytes of a grant: what identifies it, and its units.
const GRANT_BYTES: usize = 16;

/// A rule in one period. Ordered by the end of the period.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RulePeriod {
    /// First instant after the period, in microseconds of Unix time.
    pub end_us: u64,
    /// First instant of the period.
    pub start_us: u64,
    /// Name of the rule.
    pub rule: Arc<str>,
}

impl RulePeriod {
    /// Those of a record.
    pub fn of(record: &Record) -> Self {
        Self {
            end_us: record.place.end_us,
            start_us: record.start_us,
            rule: Arc::clone(&record.rule),
        }
    }

    /// Field of the index.
    pub fn field(&self) -> String {
        let Self { rule, start_us, end_us } = self;
        format!("{rule}:{}-{}", start_us / MICROS_PER_SECOND, end_us / MICROS_PER_SECOND)
    }

    /// Reads a field of the index; `None` if it is malformed.
    pub fn of_field(field: &str) -> Option<Self> {
        let (rule, times) = field.rsplit_once(':')?;
        let (start, end) = times.split_once('-')?;
        let us = |text: &str| text.parse::<u64>().ok()?.checked_mul(MICROS_PER_SECOND);
        let (start_us, end_us) = (us(start)?, us(end)?);
        (start_us < end_us).then(|| Self { end_us, start_us, rule: rule.into() })
    }

    /// Key of the hash with these buckets, after the prefix.
    pub fn key(&self, slice: usize) -> String {
        format!("{INDEX}:{}:{slice:02x}", self.field())
    }

    pub const fn is_hour(&self) -> bool {
        self.end_us.saturating_sub(self.start_us) <= 3_600 * MICROS_PER_SECOND
    }
}

/// Number of the hash that has the bucket.
#[allow(clippy::cast_possible_truncation, reason = "the first byte")]
pub const fn slice(bucket: BucketId) -> usize {
    (bucket.0 >> 120) as usize
}

pub fn field(bucket: BucketId) -> String {
    format!("{:032x}", bucket.0)
}

/// The change to what `record` says, as an answer at `answered_at_us` by Redis' clock had it.
pub fn answer(record: &Record, answered_at_us: u64) -> Vec<u8> {
    let mut change = vec![ANSWER];
    change.extend_from_slice(&double(record.used));
    change.extend_from_slice(&double(answered_at_us.cast_signed()));
    change.extend_from_slice(&double(record.counted_at_us.cast_signed()));
    change
}

/// The change that adds units which were granted locally, and which the bucket will never have.
/// `id` identifies it, so that it is added once.
pub fn grant(units: i64, id: u64, counted_at_us: u64) -> Vec<u8> {
    let mut change = vec![GRANT];
    change.extend_from_slice(&double(units));
    change.extend_from_slice(&id.to_le_bytes());
    change.extend_from_slice(&double(counted_at_us.cast_signed()));
    change
}

/// What a value has besides numbers: the owner, the plan and the limit.
pub fn text(record: &Record) -> Vec<u8> {
    let mut text = Vec::with_capacity(64);
    for part in [record.owner.kind, &record.owner.id, &record.plan] {
        text.extend_from_slice(part.as_bytes());
        text.push(0);
    }
    record.limit.export(&mut text);
    text
}

/// Reads a record; `None` if it is malformed, or has what this version does not know.
pub fn read(period: &RulePeriod, field: &[u8], value: &[u8]) -> Option<Record> {
    let field = std::str::from_utf8(field).ok().filter(|field| field.len() == 32)?;
    let bucket = BucketId(u128::from_str_radix(field, 16).ok()?);
    let (head, rest) = value.split_at_checked(HEAD)?;
    if head.first() != Some(&ANSWER) {
        return None;
    }
    let count = usize::from(*head.last()?);
    let (grants, text) = rest.split_at_checked(count * GRANT_BYTES)?;
    let granted = grants.chunks_exact(GRANT_BYTES).map(|grant| number(grant, 8));
    let granted = granted.sum::<Option<i64>>()?;
    let mut parts = text.splitn(4, |byte| *byte == 0);
    let mut part = || std::str::from_utf8(parts.next()?).ok();
    let (kind, id, plan) = (part()?, part()?, part()?);
    let kind = OWNER_KINDS.into_iter().find(|known| *known == kind)?;
    Some(Record {
        place: Place { end_us: period.end_us, bucket },
        start_us: period.start_us,
        rule: Arc::clone(&period.rule),
        owner: Owner { kind, id: id.to_owned() },
        plan: plan.into(),
        limit: Limit::import(&mut parts.next()?)?,
        used: number(head, 1)?.checked_add(granted)?,
        counted_at_us: u64::try_from(number(head, 17)?).ok()?,
    })
}

/// The double at a place, which must be a whole number that a double has exactly.
#[allow(clippy::cast_possible_truncation, reason = "checked")]
fn number(bytes: &[u8], at: usize) -> Option<i64> {
    let bytes = bytes.get(at..at.checked_add(8)?)?;
    let number = f64::from_le_bytes(bytes.try_into().ok()?);
    (number.abs() <= 2_f64.powi(53) && number.fract() == 0.0).then_some(number as i64)
}
