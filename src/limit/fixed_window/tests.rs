use proptest::prelude::*;

use super::*;
use crate::base::duration::MICROS_PER_SECOND;
use crate::limit::Limit;
use crate::limit::calendar::Period;

const DAY: u64 = 86_400 * MICROS_PER_SECOND;

fn daily(limit: u64) -> FixedWindow {
    FixedWindow::new(limit, Calendar::new(Period::Day, "UTC", 1).unwrap()).unwrap()
}

#[test]
fn limits_that_cannot_be_counted_are_an_error() {
    let calendar = daily(1).calendar();
    let of = |limit| FixedWindow::new(limit, calendar);
    assert_eq!(of(0), Err(FixedWindowError::ZeroLimit));
    assert_eq!(of(9_007_199_254_741), Err(FixedWindowError::LimitTooLarge));
    assert_eq!(of(9_007_199_254_740).map(|window| window.limit()), Ok(9_007_199_254_740));
}

#[test]
fn period_ends_by_unix_time_however_the_process_clock_runs() {
    let (window, used) = (daily(10), Bucket { level: 3_000, at: 2 * DAY });
    // The process began 5 us after midnight.
    let at = |us: u64, unix_us: u64| Now { us, unix_us };
    assert_eq!(window.bucket(3_000, at(0, DAY + 5)), used);
    assert_eq!(window.refilled(used, at(7, 2 * DAY - 1)), used);
    assert_eq!(window.refilled(used, at(7, 2 * DAY)), Bucket { level: 10_000, at: 3 * DAY });
    // By the process' clock, the period ends when the rest of the day has passed.
    assert_eq!(window.full_at(used, at(0, DAY + 5)), DAY - 5);
    // The wall clock was set forward by an hour meanwhile.
    let hour = DAY / 24;
    assert_eq!(window.full_at(used, at(7, DAY + 12 + hour)), DAY - 5 - hour);
}

#[test]
fn bucket_is_full_again_exactly_at_the_end_of_its_period() {
    let window = daily(10);
    let bucket = window.refilled(Bucket { level: 10_000, at: 0 }, Now::unix(DAY + 5));
    assert_eq!(bucket, Bucket { level: 10_000, at: 2 * DAY });
    let used = bucket.less(7_000);
    assert_eq!(window.refilled(used, Now::unix(2 * DAY - 1)), Bucket { level: 3_000, at: 2 * DAY });
    assert_eq!(window.refilled(used, Now::unix(2 * DAY)), Bucket { level: 10_000, at: 3 * DAY });
    assert_eq!(
        (window.full_at(used, Now::unix(0)), window.full_at(bucket, Now::unix(0))),
        (2 * DAY, 0)
    );
}

#[test]
fn clock_that_goes_back_over_a_boundary_resets_nothing_twice() {
    let window = daily(10);
    let used = Bucket { level: 3, at: 2 * DAY };
    // Back into the day before, and forward again.
    let back = window.refilled(used, Now::unix(DAY - 1));
    assert_eq!(back, used);
    assert_eq!(window.refilled(back, Now::unix(DAY)), used);
    // By more than a period, the end of the earlier period is that of the current one.
    assert_eq!(window.refilled(Bucket { level: 3, at: 9 * DAY }, Now::unix(5)).at, DAY);
}

#[test]
fn unknown_bucket_ends_with_the_current_period_or_with_the_next_after_the_clock_went_back() {
    let (window, now) = (daily(10), Now::unix(DAY - 1));
    // Unix time was corrected by 5 us since the end was computed, or the period was a longer one.
    let ends = [(DAY - 5, DAY), (DAY + 5, DAY), (2 * DAY - 5, 2 * DAY), (9 * DAY, DAY)];
    for (end_us, at) in ends {
        assert_eq!(window.bucket_until(3, end_us, now), Bucket { level: 3, at });
    }
}

#[test]
fn standing_waits_for_the_end_of_the_period() {
    let window = daily(10);
    // (level, needed) -> (retry after, reset)
    for ((level, needed), expected) in [((3, 3), (0, 60)), ((2, 3), (60, 60)), ((10, 1), (0, 60))] {
        let standing = window.standing(level, needed, 3, 60);
        assert_eq!((standing.retry_after_us, standing.reset_us), expected);
    }
    assert_eq!((window.left_us(DAY), window.left_us(2 * DAY - 1)), (DAY, 1));
}

#[test]
fn changed_limit_keeps_what_was_used() {
    let bucket = Bucket { level: 4_000, at: DAY };
    // (limit, level) of 6 used of 10
    for (limit, level) in [(20, 14_000), (10, 4_000), (7, 1_000), (6, 0), (1, -5_000)] {
        let changed = daily(limit).with_limit_changed(bucket, 10_000);
        assert_eq!(changed, Bucket { level, at: DAY }, "{limit}");
    }
    // However much that is: it ends with the period.
    let indebted = Bucket { level: -9_990_000, at: DAY };
    assert_eq!(daily(1).with_limit_changed(indebted, 10_000).level, -9_999_000);
    let lowest = Bucket { level: daily(10).lowest(), at: DAY };
    assert_eq!(daily(1).with_limit_changed(lowest, 10_000).level, daily(1).lowest());
}

#[test]
fn clients_are_warned_from_a_share_of_the_limit_on() {
    // (limit, thousandths, highest level at which they are warned)
    let table = [
        (10, 800, Some(2_000)),
        (10, 1_000, Some(0)),
        (1, 1, Some(999)),
        (3, 333, Some(2_001)),
        (9_007_199_254_740, 500, Some(4_503_599_627_370_000)),
        (10, 0, None),
    ];
    for (limit, soft, level) in table {
        let window = daily(limit).with(Overage::Refuse, soft);
        assert_eq!(window.soft_level(), level, "{limit} {soft}");
    }
}

#[test]
fn window_with_overage_is_exported_and_imported() {
    for (overage, soft) in [(Overage::Refuse, 0), (Overage::Refuse, 800), (Overage::Count, 0)] {
        let limit = Limit::FixedWindow(daily(7).with(overage, soft));
        let mut bytes = Vec::new();
        limit.export(&mut bytes);
        bytes.extend_from_slice(b"more");
        let mut rest = &bytes[..];
        assert_eq!(Limit::import(&mut rest), Some(limit));
        assert_eq!(rest, b"more");
    }
}

#[test]
fn changed_period_keeps_what_was_used_until_the_new_period_ends() {
    let monthly = Calendar::new(Period::Month, "UTC", 1).unwrap();
    let used = Bucket { level: 4, at: 31 * DAY };
    // From a month to a day, and back.
    assert_eq!(daily(10).refilled(used, Now::unix(5 * DAY)), Bucket { level: 4, at: 6 * DAY });
    let monthly = FixedWindow::new(10, monthly).unwrap();
    assert_eq!(monthly.refilled(Bucket { level: 4, at: 6 * DAY }, Now::unix(5 * DAY)), used);
}

/// Two callers, one of them with a wrong clock, and the server's clock.
fn skews() -> impl Strategy<Value = i64> {
    prop_oneof![
        Just(0),
        -2_000_000..2_000_000_i64,
        -200_000_000_000..200_000_000_000_i64,
        Just(-86_400_000_000)
    ]
}

proptest! {
    #![proptest_config(crate::base::cases::with_cases(256))]

    /// Whatever the gateways' clocks show, each period of the server's clock has the limit once.
    #[test]
    fn skewed_gateways_reset_each_period_once(
        limit in 1..20_u64,
        period in prop::sample::select(&Period::ALL[..4]),
        skews in prop::collection::vec(skews(), 1..4),
        steps in prop::collection::vec((0..4_usize, 0..40_000_000_u64, 0..5_000_i64), 1..100),
    ) {
        let window = FixedWindow::new(limit, Calendar::new(period, "UTC", 1).unwrap()).unwrap();
        let calendar = window.calendar();
        let mut now = 20_000 * DAY - 5 * MICROS_PER_SECOND;
        let mut stored = Bucket { level: window.full(), at: 0 };
        let (mut counted, mut in_period) = (0, 0);
        for (gateway, step, cost) in steps {
            now += step;
            let skew = skews[gateway % skews.len()];
            let bounds = calendar.bounds(now.saturating_add_signed(skew));
            let bucket = window.advanced(stored, bounds, now);
            let expected = calendar.bounds(now);
            prop_assert_eq!(bucket.at, expected.end_us);
            if expected.end_us != in_period {
                (counted, in_period) = (0, expected.end_us);
            }
            prop_assert_eq!(bucket.level, window.full() - counted);
            if bucket.level >= cost {
                counted += cost;
                stored = bucket.less(cost);
            }
        }
    }

    #[test]
    fn requests_of_a_period_are_allowed_up_to_the_limit_and_no_further(
        limit in 1..30_u64,
        anchor in 1..=31_u8,
        steps in prop::collection::vec((0..3_000_000_000_000_u64, 1..9_000_i64), 1..200),
    ) {
        let calendar = Calendar::new(Period::Month, "Europe/Berlin", anchor).unwrap();
        let window = FixedWindow::new(limit, calendar).unwrap();
        let (mut now, mut bucket) = (20_000 * DAY, Bucket { level: window.full(), at: 0 });
        let (mut used, mut start) = (0, 0);
        for (step, cost) in steps {
            now += step / 100;
            let period = calendar.bounds(now).start_us;
            if period != start {
                (used, start) = (0, period);
            }
            bucket = window.refilled(bucket, Now::unix(now));
            let fits = used + cost <= window.full();
            prop_assert_eq!(bucket.level >= cost, fits);
            if fits {
                used += cost;
                bucket = bucket.less(cost);
            }
        }
    }
}
