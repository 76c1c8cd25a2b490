use std::collections::HashSet;
use std::fmt::Write as _;
use std::io::Write as _;
use std::process::{Command, Stdio};

use jiff::tz::{self, TimeZone};

use super::*;

/// As in `periods.py`.
const CALENDARS: [(Period, u8); 9] = [
    (Period::Day, 1),
    (Period::Week, 1),
    (Period::Week, 7),
    (Period::Month, 1),
    (Period::Month, 15),
    (Period::Month, 29),
    (Period::Month, 30),
    (Period::Month, 31),
    (Period::Year, 1),
];

fn unix_us(text: &str) -> u64 {
    text.parse::<Timestamp>().unwrap().as_microsecond().try_into().unwrap()
}

/// Start, end and end of the next period at an instant, as RFC 3339 text in UTC.
fn bounds(period: Period, zone: &str, anchor: u8, at: &str) -> [String; 3] {
    let bounds = Calendar::new(period, zone, anchor).unwrap().bounds(unix_us(at));
    [bounds.start_us, bounds.end_us, bounds.next_end_us].map(|us| timestamp(us).to_string())
}

#[test]
fn days_start_at_midnight_in_their_zone() {
    // (period, zone, anchor, instant) -> (start, end, next end)
    let table = [
        (
            (Period::Second, "UTC", 1, "2026-03-01T10:20:30.5Z"),
            ["2026-03-01T10:20:30Z", "2026-03-01T10:20:31Z", "2026-03-01T10:20:32Z"],
        ),
        (
            (Period::Minute, "UTC", 1, "2026-03-01T10:20:30Z"),
            ["2026-03-01T10:20:00Z", "2026-03-01T10:21:00Z", "2026-03-01T10:22:00Z"],
        ),
        (
            // Half an hour off UTC, and yet the hours of UTC.
            (Period::Hour, "Asia/Kolkata", 1, "2026-03-01T10:20:30Z"),
            ["2026-03-01T10:00:00Z", "2026-03-01T11:00:00Z", "2026-03-01T12:00:00Z"],
        ),
        (
            (Period::Day, "UTC", 1, "2026-03-01T00:00:00Z"),
            ["2026-03-01T00:00:00Z", "2026-03-02T00:00:00Z", "2026-03-03T00:00:00Z"],
        ),
        (
            // 23 hours, then 24.
            (Period::Day, "Europe/Berlin", 1, "2026-03-29T12:00:00Z"),
            ["2026-03-28T23:00:00Z", "2026-03-29T22:00:00Z", "2026-03-30T22:00:00Z"],
        ),
        (
            // 25 hours.
            (Period::Day, "Europe/Berlin", 1, "2026-10-25T12:00:00Z"),
            ["2026-10-24T22:00:00Z", "2026-10-25T23:00:00Z", "2026-10-26T23:00:00Z"],
        ),
        (
            // The clocks go from 23:59 to 01:00.
            (Period::Day, "America/Santiago", 1, "2026-09-06T12:00:00Z"),
            ["2026-09-06T04:00:00Z", "2026-09-07T03:00:00Z", "2026-09-08T03:00:00Z"],
        ),
        (
            // Midnight occurs twice: the clocks go from 01:00 back to midnight.
            (Period::Day, "America/Havana", 1, "2026-11-01T05:30:00Z"),
            ["2026-11-01T04:00:00Z", "2026-11-02T05:00:00Z", "2026-11-03T05:00:00Z"],
        ),
        (
            // 30 December 2011 does not exist there.
            (Period::Day, "Pacific/Apia", 1, "2011-12-30T09:59:59Z"),
            ["2011-12-29T10:00:00Z", "2011-12-30T10:00:00Z", "2011-12-31T10:00:00Z"],
        ),
    ];
    for ((period, zone, anchor, at), expected) in table {
        assert_eq!(bounds(period, zone, anchor, at), expected, "{period:?} {zone} {anchor} {at}");
    }
}

#[test]
fn weeks_and_months_start_on_their_anchor() {
    // (period, zone, anchor, instant) -> (start, end, next end)
    let table = [
        (
            (Period::Week, "UTC", 1, "2026-03-01T12:00:00Z"),
            ["2026-02-23T00:00:00Z", "2026-03-02T00:00:00Z", "2026-03-09T00:00:00Z"],
        ),
        (
            (Period::Week, "UTC", 7, "2026-03-01T12:00:00Z"),
            ["2026-03-01T00:00:00Z", "2026-03-08T00:00:00Z", "2026-03-15T00:00:00Z"],
        ),
        (
            (Period::Month, "Europe/Berlin", 1, "2026-02-28T23:00:00Z"),
            ["2026-02-28T23:00:00Z", "2026-03-31T22:00:00Z", "2026-04-30T22:00:00Z"],
        ),
        (
            (Period::Month, "UTC", 31, "2026-02-10T00:00:00Z"),
            ["2026-01-31T00:00:00Z", "2026-02-28T00:00:00Z", "2026-03-31T00:00:00Z"],
        ),
        (
            (Period::Month, "UTC", 31, "2028-02-29T00:00:00Z"),
            ["2028-02-29T00:00:00Z", "2028-03-31T00:00:00Z", "2028-04-30T00:00:00Z"],
        ),
        (
            (Period::Month, "UTC", 30, "2028-02-28T00:00:00Z"),
            ["2028-01-30T00:00:00Z", "2028-02-29T00:00:00Z", "2028-03-30T00:00:00Z"],
        ),
        (
            (Period::Month, "UTC", 29, "2027-03-01T00:00:00Z"),
            ["2027-02-28T00:00:00Z", "2027-03-29T00:00:00Z", "2027-04-29T00:00:00Z"],
        ),
        (
            (Period::Year, "Asia/Tokyo", 1, "2026-12-31T15:00:00Z"),
            ["2026-12-31T15:00:00Z", "2027-12-31T15:00:00Z", "2028-12-31T15:00:00Z"],
        ),
    ];
    for ((period, zone, anchor, at), expected) in table {
        assert_eq!(bounds(period, zone, anchor, at), expected, "{period:?} {zone} {anchor} {at}");
    }
}

#[test]
fn instants_outside_the_range_have_periods() {
    for (period, anchor) in CALENDARS {
        let calendar = Calendar::new(period, "America/New_York", anchor).unwrap();
        assert_eq!(calendar.bounds(0).start_us, 0);
        let last = calendar.bounds(u64::MAX);
        assert!(last.start_us <= MAX_US && MAX_US < last.end_us && last.end_us < last.next_end_us);
    }
}

#[test]
fn equal_calendars_are_shared() {
    let of = |zone, anchor| Calendar::new(Period::Month, zone, anchor);
    assert_eq!(of("UTC", 3), of("UTC", 3));
    assert_ne!(of("UTC", 3), of("UTC", 4));
    assert_ne!(of("UTC", 3), of("Europe/Berlin", 3));
    assert_eq!(of("Mars/Olympus", 1), Err(CalendarError::UnknownZone));
    assert_eq!(of("UTC", 0), Err(CalendarError::Anchor));
    assert_eq!(of("UTC", 32), Err(CalendarError::Anchor));
    assert_eq!(Calendar::new(Period::Week, "UTC", 8), Err(CalendarError::Anchor));
    assert_eq!(Calendar::new(Period::Year, "UTC", 2), Err(CalendarError::Anchor));
}

/// Instants around every transition of the zone in 2000 to 2040, and some in between, in seconds.
fn instants(zone: &TimeZone) -> Vec<i64> {
    let (from, to): (Timestamp, Timestamp) =
        ("2000-01-01T00:00:00Z".parse().unwrap(), "2041-01-01T00:00:00Z".parse().unwrap());
    let transitions = zone.following(from).map(|transition| transition.timestamp());
    let mut instants = Vec::new();
    for at in transitions.take_while(|at| *at < to) {
        let at = at.as_second();
        instants.extend([-1, 0, 43_200].map(|offset| at + offset));
    }
    // Leap days and ends of months, also in zones without transitions.
    for day in ["2000-02-29", "2024-02-29", "2026-02-28", "2026-03-31", "2039-12-31"] {
        let noon: Timestamp = format!("{day}T12:00:00Z").parse().unwrap();
        instants.extend([-43_200, 0, 43_199].map(|offset| noon.as_second() + offset));
    }
    instants
}

#[test]
fn periods_agree_with_another_library_at_every_transition_from_2000_to_2040() {
    let mut seen = HashSet::new();
    let mut input = String::new();
    for name in tz::db().available() {
        let name = name.as_str();
        let Ok(zone) = TimeZone::get(name) else { continue };
        // Those of Python's standard library only; aliases once.
        let is_special = name.starts_with("posix") || name.starts_with("right");
        if is_special || !std::path::Path::new("/usr/share/zoneinfo").join(name).is_file() {
            continue;
        }
        let instants = instants(&zone);
        let offsets: Vec<i32> = instants
            .iter()
            .map(|at| zone.to_offset(Timestamp::from_second(*at).unwrap()).seconds())
            .collect();
        if !seen.insert((instants.clone(), offsets)) {
            continue;
        }
        input.push_str(name);
        for at in &instants {
            let _ = write!(input, " {at}");
        }
        input.push('\n');
    }
    assert!(seen.len() > 200, "{} zones: install them: apt-get install tzdata", seen.len());
    let output = reference(input);
    let mut compared = 0;
    for line in output.lines() {
        let mut words = line.split(' ');
        let (name, at) = (words.next().unwrap(), words.next().unwrap().parse::<u64>().unwrap());
        for (period, anchor) in CALENDARS {
            let mut second = || words.next().unwrap().parse::<u64>().unwrap() * MICROS_PER_SECOND;
            let expected = Bounds { start_us: second(), end_us: second(), next_end_us: second() };
            let calendar = Calendar::new(period, name, anchor).unwrap();
            for us in [0, MICROS_PER_SECOND - 1] {
                let bounds = calendar.bounds(at * MICROS_PER_SECOND + us);
                assert_eq!(bounds, expected, "{calendar:?} at {at}");
            }
            compared += 1;
        }
    }
    println!("compared {compared} periods of {} zones", seen.len());
    assert!(compared > 100 * seen.len(), "{compared}");
}

/// What Python's zoneinfo says about the same instants.
fn reference(input: String) -> String {
    let mut python = Command::new("python3")
        .args(["-c", include_str!("periods.py")])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("install it: apt-get install python3");
    let mut stdin = python.stdin.take().unwrap();
    let writer = std::thread::spawn(move || stdin.write_all(input.as_bytes()));
    let output = python.wait_with_output().unwrap();
    writer.join().unwrap().unwrap();
    assert!(output.status.success(), "periods.py fails");
    String::from_utf8(output.stdout).unwrap()
}
