//! Times in UTC, as RFC 3339 shows them. `moment` reads the times that people write.

mod moment;

use std::fmt;

use jiff::Timestamp;
use jiff::civil::{DateTime, Time};
use jiff::fmt::temporal::DateTimePrinter;
use jiff::tz::{Offset, TimeZone};
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

pub(crate) use moment::{Moment, zone, zone_name};

/// Microseconds since the Unix epoch. Shown in UTC (`2026-11-21T16:34:01.000250Z`), by default with
/// six digits of the second: `{:.3}` shows three.
///
/// A time after the last that [`Timestamp`] supports, at the end of the year 9999, is shown as
/// that.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct UtcTime(pub u64);

const MICROSECONDS: DateTimePrinter = DateTimePrinter::new().precision(Some(6));

impl UtcTime {
    /// Parses a time as RFC 3339 has it, in UTC or with an offset: `2026-11-21T16:34:01Z`,
    /// `2026-11-21T17:34:01.25+01:00`. A space is accepted for the plus sign, as `+` in a query is
    /// a space. Returns `None` for a time before the epoch, for a leap second and for anything
    /// else. A time after the last that [`Timestamp`] supports is that, so that
    /// `9999-12-31T23:59:59Z` has no end.
    pub fn parse(text: &str) -> Option<Self> {
        let (date_time, rest) = text.split_at_checked("0000-00-00T00:00:00".len())?;
        let is_leap_second = date_time.ends_with("60");
        if !has_form(date_time, "0000-00-00T00:00:00") || is_leap_second {
            return None;
        }
        let (fraction, offset) = match rest.strip_prefix('.') {
            None => ("0", rest),
            Some(rest) => rest.split_at(rest.bytes().take_while(u8::is_ascii_digit).count()),
        };
        // Nine digits is the most that the parser accepts.
        let date_time: DateTime = format!("{date_time}.{fraction:.9}").parse().ok()?;
        let timestamp = match self::offset(offset)?.to_timestamp(date_time) {
            Ok(timestamp) => timestamp,
            Err(_) if date_time.year() == DateTime::MAX.year() => Timestamp::MAX,
            Err(_) => return None,
        };
        timestamp.as_microsecond().try_into().ok().map(Self)
    }

    /// The time of this many seconds since the epoch. `{:.0}` shows it without a fraction.
    pub fn of_seconds(seconds: u64) -> Self {
        Self(seconds.saturating_mul(super::duration::MICROS_PER_SECOND))
    }

    /// Appends the time with six digits of the second, without the cost of [`fmt`].
    pub fn append_to(self, text: &mut Vec<u8>) {
        // Writing to a `Vec` does not fail.
        let _ = MICROSECONDS.print_timestamp(&self.timestamp(), text);
    }

    /// The time in a zone, in a form of [`strftime`](jiff::fmt::strtime).
    pub fn in_zone(self, zone: TimeZone, form: &str) -> String {
        self.timestamp().to_zoned(zone).strftime(form).to_string()
    }

    fn timestamp(self) -> Timestamp {
        let microseconds = i64::try_from(self.0).unwrap_or(i64::MAX);
        Timestamp::from_microsecond(microseconds).unwrap_or(Timestamp::MAX)
    }
}

impl fmt::Display for UtcTime {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let digits = formatter.precision().unwrap_or(6);
        write!(formatter, "{:.digits$}", self.timestamp())
    }
}

impl Serialize for UtcTime {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for UtcTime {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        Self::parse(&text).ok_or_else(|| D::Error::custom("a time is not in the form of RFC 3339"))
    }
}

/// Whether `text` has a digit for each `0` of `form`, a separator of date and time for `T`, and
/// otherwise the same characters. The parser of `jiff` also accepts shorter forms.
fn has_form(text: &str, form: &str) -> bool {
    let matches = |(byte, form): (u8, u8)| match form {
        b'0' => byte.is_ascii_digit(),
        b'T' => matches!(byte, b'T' | b't' | b' '),
        form => byte == form,
    };
    text.len() == form.len() && text.bytes().zip(form.bytes()).all(matches)
}

/// Parses `Z`, `+01:00` or `-05:30`.
fn offset(text: &str) -> Option<Offset> {
    let (sign, rest) = match text.split_at_checked(1)? {
        ("Z" | "z", "") => return Some(Offset::UTC),
        ("+" | " ", rest) => (1, rest),
        ("-", rest) => (-1, rest),
        _ => return None,
    };
    let time: Time = Some(rest).filter(|rest| has_form(rest, "00:00"))?.parse().ok()?;
    let minutes = i32::from(time.hour()) * 60 + i32::from(time.minute());
    Offset::from_seconds(sign * minutes * 60).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn appended(time: UtcTime) -> String {
        let mut text = b"at ".to_vec();
        time.append_to(&mut text);
        String::from_utf8(text).unwrap().split_off(3)
    }

    #[test]
    fn time_is_shown_in_utc_with_microseconds() {
        let table = [
            (0, "1970-01-01T00:00:00.000000Z"),
            (951_782_399_999_999, "2000-02-28T23:59:59.999999Z"),
            (951_782_400_000_000, "2000-02-29T00:00:00.000000Z"),
            (1_795_278_841_000_250, "2026-11-21T16:34:01.000250Z"),
            (4_107_542_400_000_000, "2100-03-01T00:00:00.000000Z"),
            (253_402_207_200_999_999, "9999-12-30T22:00:00.999999Z"),
            (253_402_207_201_000_000, "9999-12-30T22:00:00.999999Z"),
            (u64::MAX, "9999-12-30T22:00:00.999999Z"),
        ];
        for (microseconds, expected) in table {
            let time = UtcTime(microseconds);
            assert_eq!(time.to_string(), expected);
            assert_eq!(appended(time), expected);
            assert_eq!(serde_json::to_value(time).unwrap(), expected);
        }
    }

    proptest::proptest! {
        #![proptest_config(crate::base::cases::with_cases(256))]

        #[test]
        fn shown_time_is_parsed_to_the_same_time(microseconds in 0..253_402_207_200_000_000_u64) {
            let time = UtcTime(microseconds);
            let text = time.to_string();
            proptest::prop_assert_eq!(appended(time), &*text);
            proptest::prop_assert_eq!(UtcTime::parse(&text), Some(time));
        }
    }

    #[test]
    fn precision_cuts_the_second() {
        let table = [
            (0, "1970-01-01T00:00:00.000Z"),
            (951_782_399_999_999, "2000-02-28T23:59:59.999Z"),
            (951_825_600_000_000, "2000-02-29T12:00:00.000Z"),
            (1_795_248_005_250_000, "2026-11-21T08:00:05.250Z"),
            (4_107_542_400_000_000, "2100-03-01T00:00:00.000Z"),
        ];
        for (microseconds, expected) in table {
            assert_eq!(format!("{:.3}", UtcTime(microseconds)), expected);
        }
    }

    #[test]
    fn rfc_3339_is_parsed_and_nothing_else() {
        let at = 1_795_278_841_000_000;
        let table = [
            ("2026-11-21T16:34:01Z", Some(at)),
            ("2026-11-21 16:34:01z", Some(at)),
            ("2026-11-21t16:34:01z", Some(at)),
            ("2026-11-21T16:34:01.000250Z", Some(at + 250)),
            ("2026-11-21T16:34:01.5Z", Some(at + 500_000)),
            ("2026-11-21T16:34:01.1234567890123Z", Some(at + 123_456)),
            ("2026-11-21T17:34:01+01:00", Some(at)),
            ("2026-11-21T22:04:01 05:30", Some(at)),
            ("2026-11-21T11:34:01.25-05:00", Some(at + 250_000)),
            ("1970-01-01T00:00:00Z", Some(0)),
            ("1970-01-01T00:30:00+01:00", None),
            ("1969-12-31T23:59:59Z", None),
            ("0000-01-01T00:00:00Z", None),
            ("9999-12-30T22:00:00Z", Some(253_402_207_200_000_000)),
            ("9999-12-30T22:00:01Z", Some(253_402_207_200_999_999)),
            ("9999-12-31T23:59:59Z", Some(253_402_207_200_999_999)),
            ("9999-12-31T23:59:59.999999-23:59", Some(253_402_207_200_999_999)),
            ("9999-12-31T00:00:00+23:59", Some(253_402_128_060_000_000)),
            ("9999-12-32T00:00:00Z", None),
            ("2026-02-29T00:00:00Z", None),
            ("2026-00-10T00:00:00Z", None),
            ("2026-13-10T00:00:00Z", None),
            ("2026-11-00T00:00:00Z", None),
            ("2026-11-21T24:00:00Z", None),
            ("2026-11-21T16:60:00Z", None),
            ("2026-11-21T16:34:60Z", None),
            ("2026-11-21T16:34:01", None),
            ("2026-11-21T16:34:01.Z", None),
            ("2026-11-21T16:34:01,5Z", None),
            ("2026-11-21T16:34:01+24:00", None),
            ("2026-11-21T16:34:01+01:60", None),
            ("2026-11-21T16:34:01+01", None),
            ("2026-11-21T16:34:01Zulu", None),
            ("2026-11-21T16:34:01Z[Europe/Berlin]", None),
            ("2026-11-21T16:34Z", None),
            ("2026-11-21", None),
            ("20261121T163401Z", None),
            ("+026-11-21T16:34:01Z", None),
            ("+002026-11-21T16:34:01Z", None),
            ("２０２６-11-21T16:34:01Z", None),
            ("1795278841", None),
            ("", None),
        ];
        for (text, expected) in table {
            assert_eq!(UtcTime::parse(text).map(|time| time.0), expected, "{text}");
        }
    }
}
