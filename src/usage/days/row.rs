//! [`Row`] and [`Counts`]: what one client used on one day.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use jiff::Timestamp;
use jiff::civil::Date;
use jiff::tz::TimeZone;
use sha2::{Digest as _, Sha256};

use crate::usage::record::{OWNER_KINDS, Owner};

/// Bytes that separate the parts of a text. No part contains it.
const SEPARATOR: char = '\0';

/// A calendar day, as the number 20261128. Ordered by time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Day(u32);

/// What was counted: one client, rule, plan and route on one day.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Row {
    /// The day in the time zone of the rule.
    pub day: Day,
    /// Name of the rule.
    pub rule: Arc<str>,
    /// Time zone of the rule, in which the day begins and ends.
    pub zone: Arc<str>,
    /// Whose quota it is.
    pub owner: Owner,
    /// Name of the client's plan.
    pub plan: Arc<str>,
    /// Name of the route; empty if it is not counted by route, or if no route matched.
    pub route: Arc<str>,
}

/// Sums over requests. Units are thousandths of a token.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    /// Requests that were allowed, and did not get all their tokens back.
    pub requests: i64,
    /// Units that they took.
    pub units: i64,
    /// Those of these units that the quota did not hold.
    pub overage: i64,
}

/// Counts that are not written yet.
pub type Rows = HashMap<Row, Counts>;

/// Where a client has its rows of a day. All rows of a client on a day are adjacent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Position {
    /// The day.
    pub day: Day,
    /// See [`owner_hash`].
    pub owner: u128,
}

impl Day {
    /// Before all others.
    pub const FIRST: Self = Self(0);

    /// After all others.
    pub const LAST: Self = Self(99_999_999);

    /// The day of a date.
    pub fn of(date: Date) -> Self {
        let part = |part: i16| u32::from(part.unsigned_abs());
        Self(part(date.year()) * 10_000 + part(date.month().into()) * 100 + part(date.day().into()))
    }

    /// The day with this number; `None` if there is none.
    pub fn of_number(number: u32) -> Option<Self> {
        let part = |part: u32| i16::try_from(part).ok();
        let (month, day) = (part(number / 100 % 100)?, part(number % 100)?);
        let date = Date::new(part(number / 10_000)?, month.try_into().ok()?, day.try_into().ok()?);
        date.ok().map(Self::of)
    }

    /// Reads `2026-11-28`.
    pub fn parse(text: &str) -> Option<Self> {
        (text.len() == 10).then(|| text.parse::<Date>().ok().map(Self::of))?
    }

    /// The first and the last day of a month such as `2026-11`.
    pub fn month(text: &str) -> Option<(Self, Self)> {
        let first = (text.len() == 7).then(|| format!("{text}-01").parse::<Date>().ok())??;
        Some((Self::of(first), Self::of(first.last_of_month())))
    }

    /// The day in UTC of a Unix time in microseconds.
    pub fn of_unix(unix_us: u64) -> Self {
        let time = i64::try_from(unix_us).ok().and_then(|us| Timestamp::from_microsecond(us).ok());
        time.map_or(Self::LAST, |time| Self::of(time.to_zoned(TimeZone::UTC).date()))
    }

    /// Unix time in microseconds of the start of the day in UTC.
    pub fn start_us(self) -> u64 {
        let Self(number) = self;
        let part = |part: u32| i16::try_from(part).unwrap_or(1);
        let small = |part: u32| i8::try_from(part).unwrap_or(1);
        let date = Date::new(part(number / 10_000), small(number / 100 % 100), small(number % 100));
        let start = date.ok().and_then(|date| date.to_zoned(TimeZone::UTC).ok());
        start.and_then(|start| u64::try_from(start.timestamp().as_microsecond()).ok()).unwrap_or(0)
    }

    /// Its number, such as 20261128.
    pub const fn number(self) -> u32 {
        self.0
    }
}

/// As `2026-11-28`.
impl fmt::Display for Day {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(number) = self;
        write!(formatter, "{:04}-{:02}-{:02}", number / 10_000, number / 100 % 100, number % 100)
    }
}

/// Hash of a client, the same in every process.
pub fn owner_hash(kind: &str, id: &str) -> u128 {
    let hash = Sha256::new().chain_update(kind).chain_update([0]).chain_update(id).finalize();
    hash.iter().take(16).fold(0, |sum, byte| sum << 8 | u128::from(*byte))
}

impl Row {
    /// Where it is.
    pub fn position(&self) -> Position {
        Position { day: self.day, owner: owner_hash(self.owner.kind, &self.owner.id) }
    }

    /// All of it but the day, as a text.
    pub fn text(&self) -> String {
        let Self { rule, zone, owner: Owner { kind, id }, plan, route, .. } = self;
        // Ids come from tokens of others as well.
        let id = id.replace(SEPARATOR, "\u{fffd}");
        [&**rule, kind, &id, &**plan, &**route, &**zone].join("\0")
    }

    /// The row of a day with this text; `None` if it has what this version does not know.
    pub fn of_text(day: Day, text: &str) -> Option<Self> {
        let mut parts = text.split(SEPARATOR);
        let mut part = || parts.next();
        let (rule, kind, id) = (part()?, part()?, part()?);
        let (plan, route, zone) = (part()?, part()?, part()?);
        let kind = OWNER_KINDS.into_iter().find(|known| *known == kind)?;
        let owner = Owner { kind, id: id.to_owned() };
        let (plan, route, zone) = (plan.into(), route.into(), zone.into());
        Some(Self { day, rule: rule.into(), zone, owner, plan, route })
    }
}

impl Counts {
    /// Adds others.
    pub fn add(&mut self, other: Self) {
        self.requests = self.requests.saturating_add(other.requests);
        self.units = self.units.saturating_add(other.units);
        self.overage = self.overage.saturating_add(other.overage);
    }

    /// Whether there is nothing to add.
    pub fn is_zero(&self) -> bool {
        *self == Self::default()
    }
}

/// Adds counts to those of the same row.
pub fn add_all(rows: &mut Rows, others: impl IntoIterator<Item = (Row, Counts)>) {
    for (row, counts) in others {
        rows.entry(row).or_default().add(counts);
    }
}

#[cfg(test)]
pub(in crate::usage) mod tests {
    use super::*;

    /// A row of this client, on the day with this number.
    pub(in crate::usage) fn row(day: u32, client: u32) -> Row {
        Row {
            day: Day::of_number(day).unwrap(),
            rule: "r".into(),
            zone: "UTC".into(),
            owner: Owner { kind: "key", id: client.to_string() },
            plan: "p".into(),
            route: "".into(),
        }
    }

    #[test]
    fn days_are_read_and_written_and_bound_a_month() {
        let day = Day::parse("2026-11-28").unwrap();
        assert_eq!((day.number(), day.to_string()), (20_261_128, "2026-11-28".to_owned()));
        assert_eq!(Day::of_number(20_261_128), Some(day));
        assert_eq!(Day::of_number(20_261_331), None);
        let month = |text| Day::month(text).map(|(first, last)| format!("{first} {last}"));
        assert_eq!(month("2028-02").as_deref(), Some("2028-02-01 2028-02-29"));
        for wrong in ["2026-13", "2026-1", "2026", "2026-11-01", "-202601"] {
            assert_eq!(month(wrong), None, "{wrong}");
        }
        for wrong in ["2026-11-31", "20261128", "2026-11-28T00:00", ""] {
            assert_eq!(Day::parse(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn row_is_read_from_its_text() {
        let row = Row {
            day: Day::of_number(20_261_128).unwrap(),
            rule: "monthly".into(),
            zone: "Europe/Berlin".into(),
            owner: Owner { kind: "token", id: "=1+1, \"é\"".to_owned() },
            plan: "pro".into(),
            route: "".into(),
        };
        assert_eq!(Row::of_text(row.day, &row.text()), Some(row.clone()));
        let owner = Owner { kind: "token", id: "a\0b".to_owned() };
        let odd = Row { owner, ..row };
        let read = Row::of_text(odd.day, &odd.text()).unwrap();
        assert_eq!((&*read.owner.id, &*read.zone), ("a\u{fffd}b", "Europe/Berlin"));
        assert_eq!(Row::of_text(odd.day, "a\0key\0b"), None);
    }
}
