//! The time zone of the gateway, in which times are shown.

use jiff::tz::{Offset, TimeZone};

use crate::api::samples::SampleRange;
use crate::base::time::UtcTime;

/// The zone of the gateway. If this machine does not know it, its present offset.
#[derive(Debug, Clone)]
pub(super) struct Zone {
    name: Option<String>,
    offset: Offset,
    times: TimeZone,
}

impl Zone {
    /// The zone that a response names; UTC without one.
    pub(super) fn of(samples: Option<&SampleRange>) -> Self {
        let seconds = samples.map_or(0, |samples| samples.utc_offset_s);
        let offset = Offset::from_seconds(seconds).unwrap_or(Offset::UTC);
        let name = samples.and_then(|samples| samples.time_zone.clone());
        let known = name.as_deref().and_then(|name| TimeZone::get(name).ok());
        Self { name, offset, times: known.unwrap_or_else(|| TimeZone::fixed(offset)) }
    }

    /// Its name and its present offset: `Europe/Berlin (UTC+01:00)`.
    pub(super) fn label(&self) -> String {
        let seconds = self.offset.seconds();
        let minutes = seconds.unsigned_abs() / 60;
        let sign = if seconds < 0 { '-' } else { '+' };
        let offset = format!("UTC{sign}{:02}:{:02}", minutes / 60, minutes % 60);
        match self.name.as_deref() {
            _ if seconds == 0 && self.name.as_deref().is_none_or(|name| name.ends_with("UTC")) => {
                "UTC".to_owned()
            }
            Some(name) => format!("{} ({offset})", super::screen::words::cut(name, 32)),
            None => offset,
        }
    }

    /// A time in the zone: `2026-11-21 17:40:00`.
    pub(super) fn time(&self, time: UtcTime) -> String {
        time.in_zone(self.times.clone(), "%Y-%m-%d %H:%M:%S")
    }

    /// The same without the year: `11-21 17:40:00`.
    pub(super) fn short_time(&self, time: UtcTime) -> String {
        time.in_zone(self.times.clone(), "%m-%d %H:%M:%S")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn zone(name: Option<&str>, utc_offset_s: i32) -> Zone {
        let time_zone = name.map(str::to_owned);
        Zone::of(Some(&SampleRange { time_zone, utc_offset_s, ..SampleRange::default() }))
    }

    #[test]
    fn times_are_in_the_zone_of_the_gateway() {
        let [winter, summer] = ["2026-11-21T16:40:00.123456Z", "2026-07-21T16:40:00Z"]
            .map(|text| UtcTime::parse(text).unwrap());
        let berlin = zone(Some("Europe/Berlin"), 3_600);
        assert_eq!(berlin.label(), "Europe/Berlin (UTC+01:00)");
        assert_eq!(berlin.time(winter), "2026-11-21 17:40:00");
        assert_eq!(berlin.time(summer), "2026-07-21 18:40:00");
        assert_eq!(berlin.short_time(winter), "11-21 17:40:00");
        let unknown = zone(Some("Mars/Olympus"), -12_600);
        assert_eq!(unknown.label(), "Mars/Olympus (UTC-03:30)");
        assert_eq!(unknown.time(winter), "2026-11-21 13:10:00");
        for utc in [Zone::of(None), zone(Some("UTC"), 0), zone(Some("Etc/UTC"), 0)] {
            assert_eq!(utc.label(), "UTC");
            assert_eq!(utc.time(winter), "2026-11-21 16:40:00");
        }
        assert_eq!(zone(None, 3_600).label(), "UTC+01:00");
        assert_eq!(zone(None, i32::MAX).time(winter), "2026-11-21 16:40:00");
    }
}
