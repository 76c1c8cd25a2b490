use proptest::prelude::*;

use super::*;
use crate::base::duration::MICROS_PER_SECOND as SECOND;
use crate::limit::Limit;
use crate::limit::share::Share;
use crate::limit::sliding_window::SlidingWindowError;

fn window(limit: u64, window_us: u64) -> SlidingWindow {
    SlidingWindow::new(limit, window_us).unwrap()
}

/// Takes tokens if the window has room. Returns whether it had.
fn take(log: &mut StampLog, window: &SlidingWindow, cost: u64, now: u64) -> bool {
    let level = log.bucket(window, now).level;
    let enough = level >= window.units(cost);
    if enough {
        log.record(window, level - window.units(cost), now);
    }
    enough
}

/// The definition: the time of every token, none ever forgotten.
#[derive(Default)]
struct Naive(VecDeque<u64>);

impl Naive {
    fn take(&mut self, window: &SlidingWindow, cost: u64, now: u64) -> bool {
        let is_inside = |at: &&u64| **at + window.window_us() > now;
        let inside = self.0.iter().filter(is_inside).count() as u64;
        let enough = inside + cost <= window.limit();
        if enough {
            (0..cost).for_each(|_| self.0.push_back(now));
        }
        enough
    }
}

/// Windows that fill and empty within some tens of microseconds.
fn windows() -> impl Strategy<Value = SlidingWindow> {
    (1..20_u64, 1..40_u64).prop_map(|(limit, window_us)| window(limit, window_us))
}

fn requests() -> impl Strategy<Value = Vec<(u64, u64)>> {
    let step = prop_oneof![3 => Just(0), 3 => 0..5_u64, 1 => 0..60_u64];
    prop::collection::vec((step, 1..4_u64), 1..300)
}

proptest! {
    #![proptest_config(crate::base::cases::with_cases(256))]

    /// In both directions: a request is allowed if and only if the window has room for it.
    #[test]
    fn request_is_denied_exactly_if_the_window_has_no_room(
        window in windows(),
        requests in requests(),
    ) {
        let (mut log, mut naive) = (StampLog::default(), Naive::default());
        let mut now = 1_000_000_u64;
        for (step, cost) in requests {
            now += step;
            let cost = cost.min(window.limit());
            let expected = naive.take(&window, cost, now);
            prop_assert_eq!(take(&mut log, &window, cost, now), expected, "{} at {}", cost, now);
        }
        prop_assert!(log.stamps().len() as u64 <= window.limit());
        prop_assert!(log.room() <= (8 * log.stamps().len()).max(2 * MIN_ROOM));
    }

    /// The clock may go back by up to a second: then a token counts as taken with the newest one.
    #[test]
    fn no_window_has_more_tokens_than_the_limit(
        window in windows(),
        requests in prop::collection::vec((-30..40_i64, 1..4_u64), 1..300),
    ) {
        let mut log = StampLog::default();
        let mut now = 1_000_000_u64;
        let (mut latest, mut taken) = (0_u64, Vec::<u64>::new());
        for (step, cost) in requests {
            now = now.saturating_add_signed(step).max(latest.saturating_sub(CLOCK_SLACK_US));
            latest = latest.max(now);
            let cost = cost.min(window.limit());
            if take(&mut log, &window, cost, now) {
                let stamp = taken.last().map_or(now, |newest| now.max(*newest));
                taken.extend((0..cost).map(|_| stamp));
            }
        }
        for start in &taken {
            let end = start + window.window_us();
            let inside = taken.iter().filter(|at| (*start..end).contains(*at)).count() as u64;
            prop_assert!(inside <= window.limit(), "{inside} from {start} on");
        }
    }

    #[test]
    fn retry_after_and_reset_are_exact_to_the_microsecond(
        window in windows(),
        requests in requests(),
        cost in 1..20_u64,
    ) {
        let limit = Limit::SlidingWindow(window);
        let cost = cost.min(limit.capacity());
        let (mut log, mut now) = (StampLog::default(), 1_000_000_u64);
        for (step, cost) in requests {
            now += step;
            take(&mut log, &window, cost.min(window.limit()), now);
        }
        let level = log.bucket(&window, now).level;
        let times = log.times(&window, level, limit.units(cost), now);
        let standing = limit.standing(level, cost, Share::WHOLE, times);
        let level_after = |us: u64| log.bucket(&window, now + us).level;
        let wait = standing.retry_after_us;
        prop_assert!(level_after(wait) >= limit.units(cost));
        prop_assert!(wait == 0 || level_after(wait - 1) < limit.units(cost), "a microsecond early");
        let reset = standing.reset_us;
        prop_assert_eq!(level_after(reset), limit.full());
        prop_assert!(reset == 0 || level_after(reset - 1) < limit.full(), "a microsecond early");
    }

    /// Times of a level that is not written yet are those of the log once it is.
    #[test]
    fn times_of_a_change_are_those_after_it(
        window in windows(),
        requests in requests(),
        (level, needed) in (0..20_i64, 1..20_i64),
    ) {
        let (mut log, mut now) = (StampLog::default(), 1_000_000_u64);
        for (step, cost) in requests {
            now += step;
            take(&mut log, &window, cost.min(window.limit()), now);
        }
        let level = level.min(window.full());
        let before = log.times(&window, level, needed, now);
        log.record(&window, level, now);
        prop_assert_eq!(log.times(&window, level, needed, now), before);
        prop_assert_eq!(log.bucket(&window, now).level, level);
    }

    #[test]
    fn window_with_a_settled_debt_is_never_over_the_limit_from_then_on(
        window in windows(),
        (before, after) in (requests(), requests()),
        debt in 1..40_i64,
    ) {
        let (mut log, mut now) = (StampLog::default(), 1_000_000_u64);
        for (step, cost) in before {
            now += step;
            take(&mut log, &window, cost.min(window.limit()), now);
        }
        log.settle(&window, debt, now);
        let owed = debt.min(window.full()).unsigned_abs();
        prop_assert!(log.bucket(&window, now).level <= window.full() - owed.cast_signed());
        let mut taken: Vec<u64> = (0..owed).map(|_| now).collect();
        for (step, cost) in after {
            now += step;
            let cost = cost.min(window.limit());
            if take(&mut log, &window, cost, now) {
                taken.extend((0..cost).map(|_| now));
                let inside = taken.iter().filter(|at| **at + window.window_us() > now).count();
                prop_assert!(inside as u64 <= window.limit());
            }
        }
    }

    #[test]
    fn changed_limit_keeps_the_newest_stamps(
        (was, is) in (windows(), windows()),
        requests in requests(),
    ) {
        let (mut log, mut now) = (StampLog::default(), 1_000_000_u64);
        for (step, cost) in requests {
            now += step;
            take(&mut log, &was, cost.min(was.limit()), now);
        }
        let kept = log.stamps().filter(|at| at + is.window_us().cast_signed() > now.cast_signed());
        let expected = is.full() - i64::try_from(kept.count()).unwrap().min(is.full());
        prop_assert_eq!(log.bucket(&is, now).level, expected);
        // What was used under the old limit still counts under the new one.
        if is.window_us() <= was.window_us() && is.limit() >= was.limit() {
            let missing = is.full() - log.bucket(&is, now).level;
            prop_assert!(missing <= was.full() - log.bucket(&was, now).level);
        }
    }
}

#[test]
fn limits_that_cannot_be_counted_are_an_error() {
    assert_eq!(SlidingWindow::new(0, 1), Err(SlidingWindowError::ZeroLimit));
    assert_eq!(SlidingWindow::new(4_097, 1), Err(SlidingWindowError::LimitTooLarge));
    assert_eq!(SlidingWindow::new(1, 0), Err(SlidingWindowError::ZeroWindow));
    assert_eq!(
        SlidingWindow::new(1, SlidingWindow::MAX_WINDOW_US + 1),
        Err(SlidingWindowError::WindowTooLong)
    );
    assert_eq!(window(4_096, SlidingWindow::MAX_WINDOW_US).limit(), 4_096);
}

#[test]
fn token_leaves_exactly_at_the_end_of_its_window() {
    let minute = window(2, 60 * SECOND);
    let mut log = StampLog::default();
    assert!(take(&mut log, &minute, 1, 5) && take(&mut log, &minute, 1, 7));
    assert!(!take(&mut log, &minute, 1, 60 * SECOND + 4));
    assert!(take(&mut log, &minute, 1, 60 * SECOND + 5));
    assert!(!take(&mut log, &minute, 1, 60 * SECOND + 6));
}

#[test]
fn clock_that_goes_back_by_more_than_a_second_delays_by_at_most_a_window() {
    let second = window(3, SECOND);
    let mut log = StampLog::default();
    assert!(take(&mut log, &second, 3, 100 * SECOND));
    let now = 50 * SECOND;
    assert!(log.is_ahead(now));
    assert_eq!(log.bucket(&second, now), Bucket { level: 0, at: now });
    assert_eq!(log.times(&second, 0, 1, now), Times { left_us: SECOND, wait_us: SECOND });
    log.record(&second, 0, now);
    assert!(!take(&mut log, &second, 1, 51 * SECOND - 1));
    assert!(take(&mut log, &second, 3, 51 * SECOND));
}

#[test]
fn undone_request_leaves_the_older_stamps() {
    let minute = window(5, 60 * SECOND);
    let mut log = StampLog::default();
    assert!(take(&mut log, &minute, 2, SECOND) && take(&mut log, &minute, 3, 9 * SECOND));
    log.undo(&minute, 3, 10 * SECOND);
    let second = SECOND.cast_signed();
    assert_eq!(log.stamps().collect::<Vec<_>>(), [second, second]);
    // A grant of an operator removes the oldest.
    assert!(take(&mut log, &minute, 1, 11 * SECOND));
    log.record(&minute, 4, 12 * SECOND);
    assert_eq!(log.stamps().collect::<Vec<_>>(), [11 * second]);
}

#[test]
fn room_grows_and_shrinks_with_the_stamps_and_is_exact_for_a_full_log() {
    let minute = window(100, 60 * SECOND);
    let mut log = StampLog::default();
    assert!(take(&mut log, &minute, 1, SECOND));
    assert_eq!(log.room(), MIN_ROOM);
    for _ in 0..99 {
        assert!(take(&mut log, &minute, 1, 2 * SECOND));
    }
    assert_eq!((log.stamps().len(), log.room()), (100, 100));
    assert!(take(&mut log, &minute, 1, 70 * SECOND));
    assert!(log.room() <= 2 * MIN_ROOM, "{}", log.room());
}
