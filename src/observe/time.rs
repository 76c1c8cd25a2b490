//! Moments as people and log collectors read them.

use std::fmt;

use serde::{Serialize, Serializer};

/// Ticks in a day.
const DAY: u64 = 86_400_000_000;

/// Ticks since 1970, shown as RFC 3339 has it, in UTC: `2026-11-21T16:34:01.000250Z`, or with fewer
/// digits of the second: `{:.3}`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Moment(pub u64);

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

    /// Every day of 1,000 years, against a calendar that counts them one by one.
    #[test]
    fn no_day_is_missed() {
        let is_leap = |year: u64| {
            year.is_multiple_of(4) && !year.is_multiple_of(100) || year.is_multiple_of(400)
        };
        let (mut year, mut month, mut day) = (1970, 1, 1);
        for number in 0..365_243 {
            assert_eq!(date(number), (year, month, day));
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
