//! Moments as people and log collectors read them.

use std::fmt;

use serde::{Serialize, Serializer};

/// Ticks in a day.
const DAY: u64 = 86_400_000_000;

/// Ticks since 1970, shown as RFC 3339 has it, in UTC: `2026-11-21T16:34:01.000250Z`, or with fewer
/// digits of the second: `{:.3}`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Moment(pub u64);

impl Moment {
    /// Reads a moment as RFC 3339 has it, in UTC or with an offset: `2026-11-21T16:34:01Z`,
    /// `2026-11-21T17:34:01.25+01:00`. None where it is no moment since 1970.
    pub fn read(text: &str) -> Option<Self> {
        let (day, of_day) = (text.get(..10)?, text.get(11..)?);
        // A space stands for the letter by the RFC.
        text.get(10..11).filter(|between| matches!(*between, "T" | "t" | " "))?;
        let [year, month, day] = numbers(day, '-', [4, 2, 2])?;
        let [hour, minute, second] = numbers(of_day.get(..8)?, ':', [2, 2, 2])?;
        let is_there = (1..=12).contains(&month) && hour < 24 && minute < 60 && second < 60;
        let days = days(year, month, day).filter(|_| is_there)?;
        let (micros, offset) = fraction(of_day.get(8..)?)?;
        let seconds = (hour * 60 + minute) * 60 + second;
        let ticks = days.checked_mul(DAY)?.checked_add(seconds * 1_000_000 + micros)?;
        ticks.checked_add_signed(-minutes_of(offset)? * 60_000_000).map(Self)
    }
}

impl fmt::Display for Moment {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (year, month, day) = date(self.0 / DAY);
        let of_day = self.0 % DAY;
        let (seconds, micros) = (of_day / 1_000_000, of_day % 1_000_000);
        let (hour, minute, second) = (seconds / 3_600, seconds / 60 % 60, seconds % 60);
        let digits = formatter.precision().unwrap_or(6).clamp(1, 6);
        let fraction = micros / 10_u64.pow(6 - u32::try_from(digits).unwrap_or(6));
        write!(
            formatter,
            "{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{fraction:0digits$}Z"
        )
    }
}

impl Serialize for Moment {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl Moment {
    /// The same text without the machinery of `fmt`: every line of the access log begins with it.
    /// None beyond the year 9999.
    pub fn digits(self) -> Option<[u8; 27]> {
        let (year, month, day) = date(self.0 / DAY);
        let of_day = self.0 % DAY;
        let (seconds, micros) = (of_day / 1_000_000, of_day % 1_000_000);
        let mut text = *b"0000-00-00T00:00:00.000000Z";
        let places = [
            (0..4, year),
            (5..7, month),
            (8..10, day),
            (11..13, seconds / 3_600),
            (14..16, seconds / 60 % 60),
            (17..19, seconds % 60),
            (20..26, micros),
        ];
        for (place, number) in places {
            let mut rest = number;
            for digit in text.get_mut(place)?.iter_mut().rev() {
                *digit += u8::try_from(rest % 10).ok()?;
                rest /= 10;
            }
            if rest > 0 {
                return None;
            }
        }
        Some(text)
    }
}

/// Year, month and day of a day since 1970. Years are counted from March, so that the day that
/// comes and goes is a year's last, in cycles of 400 years, after which the calendar repeats.
fn date(days: u64) -> (u64, u64, u64) {
    const CYCLE: u64 = 146_097;
    /// Days from the first of March of the year 0 to the first of January 1970.
    const TO_1970: u64 = 719_468;
    let days = days + TO_1970;
    let (cycle, of_cycle) = (days / CYCLE, days % CYCLE);
    let leaps = of_cycle / 1_460 + of_cycle / (CYCLE - 1);
    let year = (of_cycle + of_cycle / 36_524 - leaps) / 365;
    let of_year = of_cycle - (365 * year + year / 4 - year / 100);
    // Months from March have 31, 30, 31, 30, 31 days, twice, and so on: 153 days in five.
    let month = (5 * of_year + 2) / 153;
    let day = of_year - (153 * month + 2) / 5 + 1;
    let in_next_year = u64::from(month >= 10);
    (cycle * 400 + year + in_next_year, if month < 10 { month + 3 } else { month - 9 }, day)
}

/// The day since 1970 of a date that exists.
fn days(year: u64, month: u64, day: u64) -> Option<u64> {
    let last_of_year = [31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
    let before: u64 = last_of_year.iter().take(usize::try_from(month.checked_sub(1)?).ok()?).sum();
    let leaps = |year: u64| year / 4 - year / 100 + year / 400;
    // Leap days of the years before; this year's, if it has one, is after February.
    let is_leap = leaps(year) - leaps(year.checked_sub(1)?);
    let leap = if month > 2 { is_leap } else { 0 };
    let days = year.checked_sub(1_970)? * 365 + leaps(year - 1) - leaps(1_969);
    let days = days + before + leap + day.checked_sub(1)?;
    (date(days) == (year, month, day)).then_some(days)
}

/// Numbers of so many digits each.
fn numbers<const N: usize>(text: &str, between: char, digits: [usize; N]) -> Option<[u64; N]> {
    let mut parts = text.split(between);
    let mut found = [0; N];
    for (number, digits) in found.iter_mut().zip(digits) {
        let part = parts.next().filter(|part| part.len() == digits)?;
        *number = part.bytes().all(|byte| byte.is_ascii_digit()).then(|| part.parse().ok())??;
    }
    parts.next().is_none().then_some(found)
}

/// The microseconds of `.25+01:00`, and what follows them.
fn fraction(text: &str) -> Option<(u64, &str)> {
    let Some(rest) = text.strip_prefix('.') else { return Some((0, text)) };
    let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
    let (digits, rest) = rest.split_at(digits);
    let six: String = digits.chars().chain("000000".chars()).take(6).collect();
    let is_there = !digits.is_empty();
    is_there.then(|| Some((six.parse().ok()?, rest)))?
}

/// Minutes east of Greenwich. A plus sign in a query is a space.
fn minutes_of(offset: &str) -> Option<i64> {
    let (sign, rest) = match offset.split_at_checked(1)? {
        ("Z" | "z", "") => return Some(0),
        ("+" | " ", rest) => (1, rest),
        ("-", rest) => (-1, rest),
        _ => return None,
    };
    let [hours, minutes] = numbers(rest, ':', [2, 2])?;
    let is_there = hours < 24 && minutes < 60;
    is_there.then(|| i64::try_from(hours * 60 + minutes).ok().map(|minutes| sign * minutes))?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_moment_reads_as_rfc_3339() {
        let table = [
            (0, "1970-01-01T00:00:00.000000Z"),
            (951_782_399_999_999, "2000-02-28T23:59:59.999999Z"),
            (951_782_400_000_000, "2000-02-29T00:00:00.000000Z"),
            (1_795_278_841_000_250, "2026-11-21T16:34:01.000250Z"),
            (4_107_542_400_000_000, "2100-03-01T00:00:00.000000Z"),
        ];
        for (ticks, expected) in table {
            assert_eq!(Moment(ticks).to_string(), expected);
            assert_eq!(
                Moment(ticks).digits().as_ref().map(<[u8; 27]>::as_slice),
                Some(expected.as_bytes())
            );
        }
        // The year 10000, and the last tick there is.
        for ticks in [253_402_300_800_000_000, u64::MAX] {
            assert_eq!(Moment(ticks).digits(), None);
            let text = Moment(ticks).to_string();
            assert_eq!(serde_json::to_value(Moment(ticks)).unwrap(), text);
        }
    }

    proptest::proptest! {
        #[test]
        fn digits_are_what_fmt_prints(ticks in 0..253_402_300_800_000_000_u64) {
            let text = Moment(ticks).to_string();
            let digits = Moment(ticks).digits().unwrap();
            proptest::prop_assert_eq!(std::str::from_utf8(&digits).unwrap(), &text);
            proptest::prop_assert_eq!(serde_json::to_value(Moment(ticks)).unwrap(), text);
        }
    }

    #[test]
    fn a_second_may_have_fewer_digits() {
        let table = [
            (0, "1970-01-01T00:00:00.000Z"),
            (951_782_399_999_999, "2000-02-28T23:59:59.999Z"),
            (951_825_600_000_000, "2000-02-29T12:00:00.000Z"),
            (1_795_248_005_250_000, "2026-11-21T08:00:05.250Z"),
            (4_107_542_400_000_000, "2100-03-01T00:00:00.000Z"),
        ];
        for (ticks, expected) in table {
            assert_eq!(format!("{:.3}", Moment(ticks)), expected);
        }
    }

    #[test]
    fn a_moment_is_read_as_it_is_written() {
        let at = 1_795_278_841_000_000;
        let table = [
            ("2026-11-21T16:34:01Z", Some(at)),
            ("2026-11-21 16:34:01z", Some(at)),
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
            ("9999-12-31T23:59:59Z", Some(253_402_300_799_000_000)),
            ("2026-02-29T00:00:00Z", None),
            ("2026-00-10T00:00:00Z", None),
            ("2026-13-10T00:00:00Z", None),
            ("2026-11-00T00:00:00Z", None),
            ("2026-11-21T24:00:00Z", None),
            ("2026-11-21T16:34:60Z", None),
            ("2026-11-21T16:34:01", None),
            ("2026-11-21T16:34:01.Z", None),
            ("2026-11-21T16:34:01+24:00", None),
            ("2026-11-21T16:34:01Zulu", None),
            ("2026-11-21T16:34Z", None),
            ("2026-11-21", None),
            ("+026-11-21T16:34:01Z", None),
            ("２０２６-11-21T16:34:01Z", None),
            ("1795278841", None),
            ("", None),
        ];
        for (text, expected) in table {
            assert_eq!(Moment::read(text).map(|moment| moment.0), expected, "{text}");
        }
    }

    /// Every day of 1,000 years, against a calendar that counts them one by one.
    #[test]
    fn no_day_is_missed() {
        let is_leap = |year: u64| {
            year.is_multiple_of(4) && !year.is_multiple_of(100) || year.is_multiple_of(400)
        };
        let (mut year, mut month, mut day) = (1970, 1, 1);
        for number in 0..365_243 {
            assert_eq!(date(number), (year, month, day));
            assert_eq!(days(year, month, day), Some(number));
            let last = match month {
                2 => 28 + u64::from(is_leap(year)),
                4 | 6 | 9 | 11 => 30,
                _ => 31,
            };
            day += 1;
            if day > last {
                (day, month) = (1, month + 1);
            }
            if month > 12 {
                (month, year) = (1, year + 1);
            }
        }
    }
}
