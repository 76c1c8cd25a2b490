//! Points in time as people write them: a time of day, a date and a time, an age.

use jiff::civil::{Date, DateTime, Time};
use jiff::tz::{AmbiguousOffset, Offset, TimeZone};
use jiff::{Timestamp, ToSpan as _};

use super::{UtcTime, has_form, offset};
use crate::base::period;

/// Maximum length of the name of a time zone in bytes.
const MAX_ZONE_BYTES: usize = 64;

/// A point in time as it was written.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Moment {
    /// One point in time, in microseconds since the Unix epoch.
    At(u64),
    /// A time of day, on any day.
    Daily(Time, TimeZone),
}

impl Moment {
    /// Parses a time. `now` is in microseconds since the Unix epoch. Without an offset, the time is
    /// one of `zone`. Forms:
    ///
    /// - a time of day: `10:03`, `10:03:30`, `10:03Z`, `10:03+01:00`, `yesterday 10:03`
    /// - a date and a time: `2026-11-21 10:03`, `2026-11-21T10:03:30.25Z`
    /// - an age: `15m`
    pub(crate) fn parse(text: &str, now: u64, zone: &TimeZone) -> Option<Self> {
        if let Some(time) = UtcTime::parse(text) {
            return Some(Self::At(time.0));
        }
        if let Ok(ms) = period::milliseconds(text) {
            return Some(Self::At(now.saturating_sub(ms.saturating_mul(1_000))));
        }
        let (day, time) = match text.split_once([' ', 'T']) {
            Some(("yesterday", time)) => (Some(Day::Yesterday), time),
            Some(("today", time)) => (Some(Day::Today), time),
            Some((date, time)) if has_form(date, "0000-00-00") => {
                (Some(Day::Date(date.parse().ok()?)), time)
            }
            _ => (None, text),
        };
        let (time, zone) = time_of_day(time, zone)?;
        let today = timestamp(now).to_zoned(zone.clone()).date();
        let date = match day {
            None => return Some(Self::Daily(time, zone)),
            Some(Day::Today) => today,
            Some(Day::Yesterday) => today.yesterday().ok()?,
            Some(Day::Date(date)) => date,
        };
        let earliest = candidates(date.to_datetime(time), &zone).into_iter().flatten().next()?;
        Some(Self::At(earliest))
    }

    /// The point in time; of a time of day, the latest that is not after `now`.
    pub(crate) fn at(&self, now: u64) -> u64 {
        match self {
            Self::At(at) => *at,
            Self::Daily(time, zone) => {
                near(*time, zone, now).filter(|at| *at <= now).max().unwrap_or(now)
            }
        }
    }

    /// The point in time; of a time of day, the first that is not before `since`.
    pub(crate) fn first_from(&self, since: u64) -> u64 {
        match self {
            Self::At(at) => *at,
            Self::Daily(time, zone) => {
                near(*time, zone, since).filter(|at| *at >= since).min().unwrap_or(since)
            }
        }
    }
}

/// All points in time with that time of day, at least those within a day of `us`.
fn near(time: Time, zone: &TimeZone, us: u64) -> impl Iterator<Item = u64> {
    let date = timestamp(us).to_zoned(zone.clone()).date();
    let days = (-2..=2).filter_map(move |days: i64| date.checked_add(days.days()).ok());
    days.flat_map(move |date| candidates(date.to_datetime(time), zone)).flatten()
}

/// The day of a time of day.
enum Day {
    Today,
    Yesterday,
    Date(Date),
}

/// The time zone of that name, such as `Europe/Berlin`, `UTC` or `+01:00`. A space is accepted for
/// the plus sign, as `+` in a query is a space.
pub(crate) fn zone(name: &str) -> Option<TimeZone> {
    if let Some(offset) = offset(name) {
        return Some(TimeZone::fixed(offset));
    }
    let is_name = !name.is_empty() && name.len() <= MAX_ZONE_BYTES;
    TimeZone::get(name).ok().filter(|_| is_name)
}

/// Name of a time zone: that of the time zone database, else its offset at `now` (microseconds
/// since the Unix epoch).
pub(crate) fn zone_name(zone: &TimeZone, now: u64) -> String {
    let name = zone.iana_name().map(str::to_owned);
    name.unwrap_or_else(|| match zone.to_offset(timestamp(now)) {
        Offset::UTC => "UTC".to_owned(),
        offset => offset.to_string(),
    })
}

fn timestamp(us: u64) -> Timestamp {
    UtcTime(us).timestamp()
}

/// Parses `10:03`, `10:03:30` or `10:03:30.25`, with an optional offset.
fn time_of_day(text: &str, zone: &TimeZone) -> Option<(Time, TimeZone)> {
    let end = text.find(|c: char| !c.is_ascii_digit() && c != ':' && c != '.');
    let (time, rest) = text.split_at(end.unwrap_or(text.len()));
    let zone = match rest {
        "" => zone.clone(),
        rest => TimeZone::fixed(offset(rest)?),
    };
    let time = if time.find(':') == Some(1) { format!("0{time}") } else { time.to_owned() };
    let (whole, fraction) = time.split_once('.').unwrap_or((&time, "0"));
    let digits = !fraction.is_empty() && fraction.bytes().all(|byte| byte.is_ascii_digit());
    let is_time = match whole.len() {
        5 => has_form(&time, "00:00"),
        _ => has_form(whole, "00:00:00") && !whole.ends_with("60") && digits,
    };
    let text = if whole.len() == 5 { time.clone() } else { format!("{whole}.{fraction:.9}") };
    Some((text.parse().ok().filter(|_| is_time)?, zone))
}

/// The points in time with that date and time in `zone`, in microseconds since the Unix epoch: two
/// if clocks are set back then. A time that clocks skip is that much later.
fn candidates(date_time: DateTime, zone: &TimeZone) -> [Option<u64>; 2] {
    let at = |offset: Offset| {
        let at = offset.to_timestamp(date_time).ok()?;
        u64::try_from(at.as_microsecond()).ok()
    };
    match zone.to_ambiguous_timestamp(date_time).offset() {
        AmbiguousOffset::Unambiguous { offset } => [at(offset), None],
        AmbiguousOffset::Gap { before, .. } => [at(before), None],
        AmbiguousOffset::Fold { before, after } => [at(before), at(after)],
    }
}

#[cfg(test)]
mod tests {
    use jiff::tz::db;
    use proptest::prelude::*;

    use super::*;

    /// Saturday, 21 November 2026, 16:34:01 UTC.
    const NOW: u64 = 1_795_278_841_000_000;

    const HOUR: u64 = 3_600_000_000;

    /// Clocks are set in March and October; a zone without these, and one half an hour off.
    fn zones() -> Vec<TimeZone> {
        let names = ["Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Asia/Kolkata"];
        names.iter().filter_map(|name| db().get(name).ok()).chain([TimeZone::UTC]).collect()
    }

    #[test]
    fn moments_are_parsed_as_people_write_them() {
        let zone = TimeZone::fixed(Offset::from_hours(1).unwrap());
        let utc = |text: &str| UtcTime::parse(text).unwrap().0;
        let table = [
            ("10:03", Some("2026-11-21T09:03:00Z")),
            ("9:03", Some("2026-11-21T08:03:00Z")),
            ("10:03:30", Some("2026-11-21T09:03:30Z")),
            ("10:03:30.25", Some("2026-11-21T09:03:30.25Z")),
            ("17:34:01", Some("2026-11-21T16:34:01Z")),
            ("17:34:02", Some("2026-11-20T16:34:02Z")),
            ("10:03Z", Some("2026-11-21T10:03:00Z")),
            ("10:03+02:00", Some("2026-11-21T08:03:00Z")),
            ("10:03 02:00", Some("2026-11-21T08:03:00Z")),
            ("10:03-05:30", Some("2026-11-21T15:33:00Z")),
            ("today 23:00", Some("2026-11-21T22:00:00Z")),
            ("yesterday 10:03", Some("2026-11-20T09:03:00Z")),
            ("yesterday 10:03Z", Some("2026-11-20T10:03:00Z")),
            ("2026-11-19 10:03", Some("2026-11-19T09:03:00Z")),
            ("2026-11-19T10:03:30", Some("2026-11-19T09:03:30Z")),
            ("2026-11-19T10:03Z", Some("2026-11-19T10:03:00Z")),
            ("2026-11-19T10:03:30+01:00", Some("2026-11-19T09:03:30Z")),
            ("15m", Some("2026-11-21T16:19:01Z")),
            ("0s", Some("2026-11-21T16:34:01Z")),
            ("24:00", None),
            ("10:60", None),
            ("10:03:60", None),
            ("10:3", None),
            ("10", None),
            ("1003", None),
            ("10:03x", None),
            ("10:03:30.", None),
            ("10:03.5", None),
            ("10:03+1", None),
            ("tomorrow 10:03", None),
            ("yesterday", None),
            ("2026-02-30 10:03", None),
            ("1969-12-31 10:03", None),
            ("１０:03", None),
            ("", None),
        ];
        for (text, expected) in table {
            let at = Moment::parse(text, NOW, &zone).map(|moment| moment.at(NOW));
            assert_eq!(at.map(UtcTime), expected.map(utc).map(UtcTime), "{text}");
        }
    }

    #[test]
    fn time_that_occurs_twice_or_never_is_the_nearest() {
        let Ok(berlin) = db().get("Europe/Berlin") else { return };
        let utc = |text: &str| UtcTime::parse(text).unwrap().0;
        let latest = |text: &str, now: &str| {
            UtcTime(Moment::parse(text, utc(now), &berlin).unwrap().at(utc(now))).to_string()
        };
        // Clocks are set back from 03:00 to 02:00 at 01:00 UTC.
        assert_eq!(latest("02:30", "2026-10-25T00:45:00Z"), "2026-10-25T00:30:00.000000Z");
        assert_eq!(latest("02:30", "2026-10-25T01:15:00Z"), "2026-10-25T00:30:00.000000Z");
        assert_eq!(latest("02:30", "2026-10-25T02:00:00Z"), "2026-10-25T01:30:00.000000Z");
        // Clocks are set forward from 02:00 to 03:00 at 01:00 UTC.
        assert_eq!(latest("02:30", "2026-03-29T05:00:00Z"), "2026-03-29T01:30:00.000000Z");
        assert_eq!(latest("02:30", "2026-03-29T00:59:00Z"), "2026-03-28T01:30:00.000000Z");
    }

    proptest! {
        #![proptest_config(crate::base::cases::with_cases(256))]

        /// For any moment and zone, also around changes of the clocks.
        #[test]
        fn time_of_day_is_the_nearest_such_moment(
            seconds in 1_700_000_000..1_900_000_000_u64,
            (hour, minute, second) in (0..24_i8, 0..60_i8, 0..60_i8),
        ) {
            let now = seconds * 1_000_000;
            for zone in zones() {
                let text = format!("{hour:02}:{minute:02}:{second:02}");
                let moment = Moment::parse(&text, now, &zone).unwrap();
                let (latest, first) = (moment.at(now), moment.first_from(now));
                prop_assert!(latest <= now && now - latest <= 25 * HOUR, "{zone:?} {text}");
                prop_assert!(first >= now && first - now <= 25 * HOUR, "{zone:?} {text}");
                for at in [latest, first] {
                    let shown = timestamp(at).to_zoned(zone.clone()).time();
                    let time = Time::new(hour, minute, second, 0).unwrap();
                    let date = timestamp(at).to_zoned(zone.clone()).date();
                    let is_gap = matches!(
                        zone.to_ambiguous_timestamp(date.to_datetime(time)).offset(),
                        AmbiguousOffset::Gap { .. }
                    );
                    prop_assert!(shown == time || is_gap, "{zone:?} {text}: {shown}");
                }
            }
        }

        #[test]
        fn malformed_text_is_not_a_moment(text in ".{0,40}", digits in "[0-9:. TZ+-]{0,30}") {
            for text in [text, digits] {
                if let Some(moment) = Moment::parse(&text, NOW, &TimeZone::UTC) {
                    prop_assert!(moment.at(NOW) <= NOW || matches!(moment, Moment::At(_)));
                }
                let _ = zone(&text);
            }
        }
    }

    #[test]
    fn zones_have_names() {
        let name = |text: &str| zone(text).map(|zone| zone_name(&zone, NOW));
        assert_eq!(name("+01:00").as_deref(), Some("+01"));
        assert_eq!(name(" 05:30").as_deref(), Some("+05:30"));
        assert_eq!(name("Z").as_deref(), Some("UTC"));
        assert_eq!(name("UTC").as_deref(), Some("UTC"));
        for wrong in ["", "../../../etc/passwd", "/etc/localtime", "Nowhere", &"x".repeat(100)] {
            assert_eq!(name(wrong), None, "{wrong}");
        }
        assert!(!zones().is_empty());
    }
}
