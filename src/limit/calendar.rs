//! Calendar periods: where the second, minute, hour, day, week, month or year of an instant starts
//! and ends.
//!
//! Instants are microseconds since the Unix epoch.
//!
//! # Boundaries
//!
//! - Seconds, minutes and hours are those of UTC, in every zone.
//! - Days, weeks, months and years start at midnight in the zone. So a day has 23 or 25 hours if
//!   the clocks are set forward or back on it.
//! - If the clocks skip midnight, the period starts later by the length of the skipped time,
//!   usually at 01:00. If a whole day is skipped, it has no period.
//! - If midnight occurs twice, the period starts at the first one.
//! - A month starts on its anchor day, or on its last day if it has fewer days. So anchor 31 starts
//!   periods on 31 January, on 28 or 29 February, and on 31 March.

use std::collections::HashMap;
use std::hash::{Hash, Hasher};
use std::sync::{Arc, LazyLock};

use arc_swap::ArcSwap;
use jiff::civil::Date;
use jiff::tz::TimeZone;
use jiff::{Timestamp, ToSpan as _};
use parking_lot::Mutex;
use thiserror::Error;

use crate::base::duration::MICROS_PER_SECOND;

/// Length of a calendar period.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Period {
    /// A second.
    Second,
    /// A minute.
    Minute,
    /// An hour.
    Hour,
    /// A day, of 23 to 25 hours.
    Day,
    /// Seven days.
    Week,
    /// A month, of 28 to 31 days.
    Month,
    /// A year, from 1 January.
    Year,
}

/// Periods of one length in one time zone: a cheap handle, which lives as long as the process.
/// Equal handles have the same zone, length and anchor.
#[derive(Clone, Copy)]
pub struct Calendar(&'static Shared);

/// A period and the end of the next one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// First instant of the period.
    pub start_us: u64,
    /// First instant after it.
    pub end_us: u64,
    /// First instant after the next period.
    pub next_end_us: u64,
}

/// Error: there is no such calendar.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum CalendarError {
    /// Neither the system nor the embedded database has the zone.
    #[error("unknown time zone")]
    UnknownZone,
    /// The anchor is not within the range of the period.
    #[error("the anchor is out of range")]
    Anchor,
}

struct Shared {
    key: Key,
    zone: TimeZone,
    /// The last computed period: a cache, so that most requests need no computation.
    last: ArcSwap<Bounds>,
}

#[derive(Clone, PartialEq, Eq, Hash)]
struct Key {
    period: Period,
    /// Day of the month, or of the week from Monday = 1; 1 for all other periods.
    anchor: u8,
    zone: Box<str>,
}

/// All calendars of this process. A reload adds few, and a calendar takes less than a kilobyte.
static CALENDARS: LazyLock<Mutex<HashMap<Key, Calendar>>> = LazyLock::new(Mutex::default);

/// Latest instant for which periods are computed, in the year 2255; later ones count as this one.
const MAX_US: u64 = 1 << 53;

impl Period {
    /// All lengths, from the shortest.
    pub const ALL: [Self; 7] =
        [Self::Second, Self::Minute, Self::Hour, Self::Day, Self::Week, Self::Month, Self::Year];

    /// The word in a limit such as `1000/month`.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Second => "s",
            Self::Minute => "m",
            Self::Hour => "h",
            Self::Day => "d",
            Self::Week => "week",
            Self::Month => "month",
            Self::Year => "year",
        }
    }

    /// Largest anchor: 7 for weeks, 31 for months; 1, the only one, for all others.
    pub const fn max_anchor(self) -> u8 {
        match self {
            Self::Week => 7,
            Self::Month => 31,
            _ => 1,
        }
    }

    /// Length in microseconds of a period that has the same length in every zone.
    const fn fixed_us(self) -> Option<u64> {
        match self {
            Self::Second => Some(MICROS_PER_SECOND),
            Self::Minute => Some(60 * MICROS_PER_SECOND),
            Self::Hour => Some(3_600 * MICROS_PER_SECOND),
            Self::Day | Self::Week | Self::Month | Self::Year => None,
        }
    }

    /// Whether the zone affects the period: it is a day or longer.
    pub const fn has_zone(self) -> bool {
        self.fixed_us().is_none()
    }
}

impl Calendar {
    /// Periods in `zone`, an IANA name such as `Europe/Berlin`. `anchor` is the day of the month, 1
    /// to 31, or the day of the week, from Monday = 1; 1 for all other periods.
    ///
    /// # Errors
    /// See [`CalendarError`].
    pub fn new(period: Period, zone: &str, anchor: u8) -> Result<Self, CalendarError> {
        if !(1..=period.max_anchor()).contains(&anchor) {
            return Err(CalendarError::Anchor);
        }
        let key = Key { period, anchor, zone: zone.into() };
        let mut calendars = CALENDARS.lock();
        if let Some(known) = calendars.get(&key) {
            return Ok(*known);
        }
        let zone = match zone {
            "UTC" => TimeZone::UTC,
            name => TimeZone::get(name).map_err(|_| CalendarError::UnknownZone)?,
        };
        let nothing = Bounds { start_us: 0, end_us: 0, next_end_us: 0 };
        let last = ArcSwap::from_pointee(nothing);
        let calendar = Self(Box::leak(Box::new(Shared { key: key.clone(), zone, last })));
        calendars.insert(key, calendar);
        Ok(calendar)
    }

    /// Length of the periods.
    pub const fn period(self) -> Period {
        self.0.key.period
    }

    /// IANA name of the zone.
    pub fn zone(self) -> &'static str {
        &self.0.key.zone
    }

    /// Day of the month, or of the week from Monday = 1; 1 for all other periods.
    pub const fn anchor(self) -> u8 {
        self.0.key.anchor
    }

    /// The period that contains `unix_us`, and the end of the next one.
    pub fn bounds(self, unix_us: u64) -> Bounds {
        let unix_us = unix_us.min(MAX_US);
        let last = **self.0.last.load();
        if (last.start_us..last.end_us).contains(&unix_us) {
            return last;
        }
        let bounds = self.compute(unix_us);
        self.0.last.store(Arc::new(bounds));
        bounds
    }

    /// As [`bounds`](Self::bounds), for a time that is not the current one: the last period stays
    /// in the cache.
    pub fn containing(self, unix_us: u64) -> Bounds {
        self.compute(unix_us.min(MAX_US))
    }

    /// The day of `unix_us` in the zone, as periods of a day have it: where midnight occurs twice,
    /// the day begins at the first one.
    pub fn day(self, unix_us: u64) -> Date {
        let days = Self::new(Period::Day, self.zone(), 1).unwrap_or(self);
        let start_us = days.bounds(unix_us).start_us;
        timestamp(start_us).to_zoned(self.0.zone.clone()).date()
    }

    /// Microseconds of the period that was computed last; 0 before the first.
    pub fn last_length_us(self) -> u64 {
        let last = **self.0.last.load();
        last.end_us - last.start_us
    }

    /// Whether the anchor is after the last day of some month, which then has its period start
    /// earlier.
    pub fn is_clamped(self) -> bool {
        self.period() == Period::Month && self.anchor() > 28
    }

    fn compute(self, unix_us: u64) -> Bounds {
        if let Some(length) = self.period().fixed_us() {
            let start_us = unix_us - unix_us % length;
            let end_us = start_us + length;
            return Bounds { start_us, end_us, next_end_us: end_us + length };
        }
        let local = timestamp(unix_us).to_zoned(self.0.zone.clone()).date();
        // A day can be skipped, and the local date of an instant may be a day off where the clocks
        // are set back over midnight: the search starts before both.
        let mut first = self.preceding(self.first_day(local));
        loop {
            let next = self.following(first);
            if self.instant(next) > unix_us {
                break;
            }
            first = next;
        }
        let (end, mut second) = (self.instant(self.following(first)), self.following(first));
        while self.instant(second) <= end {
            second = self.following(second);
        }
        Bounds { start_us: self.instant(first), end_us: end, next_end_us: self.instant(second) }
    }

    /// First day of the period that has the day `date`.
    fn first_day(self, date: Date) -> Date {
        match self.period() {
            Period::Week => {
                let since = date.weekday().since(weekday(self.anchor()));
                moved(date, -i64::from(since))
            }
            Period::Month => {
                let here = self.anchored(date);
                if here <= date { here } else { self.anchored(before_month(date)) }
            }
            Period::Year => date.first_of_year(),
            _ => date,
        }
    }

    /// First day of the period after the one that starts on `first`.
    fn following(self, first: Date) -> Date {
        match self.period() {
            Period::Week => moved(first, 7),
            Period::Month => self.anchored(moved(first.last_of_month(), 1)),
            Period::Year => moved(first.last_of_year(), 1),
            _ => moved(first, 1),
        }
    }

    /// First day of the period before the one that starts on `first`.
    fn preceding(self, first: Date) -> Date {
        self.first_day(moved(first, -1))
    }

    /// The anchor day in the month of `date`.
    fn anchored(self, date: Date) -> Date {
        let day = i64::from(self.anchor()).min(i64::from(date.days_in_month()));
        moved(date.first_of_month(), day - 1)
    }

    /// First instant of a day in the zone; 0 if it is before the Unix epoch.
    fn instant(self, date: Date) -> u64 {
        let midnight = self.0.zone.to_ambiguous_timestamp(date.at(0, 0, 0, 0)).compatible();
        let us = midnight.map_or(i64::MAX, Timestamp::as_microsecond);
        u64::try_from(us).unwrap_or(0)
    }
}

impl PartialEq for Calendar {
    fn eq(&self, other: &Self) -> bool {
        std::ptr::eq(self.0, other.0)
    }
}

impl Eq for Calendar {}

impl Hash for Calendar {
    fn hash<H: Hasher>(&self, state: &mut H) {
        std::ptr::from_ref(self.0).hash(state);
    }
}

impl std::fmt::Debug for Calendar {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Key { period, anchor, zone } = &self.0.key;
        write!(formatter, "{period:?} from {anchor} in {zone}")
    }
}

/// A month before, on its last day.
fn before_month(date: Date) -> Date {
    moved(date.first_of_month(), -1)
}

/// Date some days later. Saturates.
fn moved(date: Date, days: i64) -> Date {
    date.saturating_add(days.days())
}

/// Day of the week from Monday = 1.
fn weekday(number: u8) -> jiff::civil::Weekday {
    let number = i8::try_from(number).unwrap_or(1);
    jiff::civil::Weekday::from_monday_one_offset(number).unwrap_or(jiff::civil::Weekday::Monday)
}

fn timestamp(unix_us: u64) -> Timestamp {
    i64::try_from(unix_us)
        .ok()
        .and_then(|us| Timestamp::from_microsecond(us).ok())
        .unwrap_or(Timestamp::MAX)
}

#[cfg(test)]
mod tests;
