use proptest::prelude::*;

use super::*;

const SECOND: u64 = crate::base::duration::MICROS_PER_SECOND;
/// Random number with the longest jitter.
const LATEST: u64 = u64::MAX;

fn closed() -> Breaker {
    Breaker::new(Settings::default(), 0)
}

/// Microseconds until the first probe of a breaker that opened at `now`.
fn open_for(breaker: &Breaker, now: u64) -> u64 {
    match breaker.state() {
        State::Open { until } => until - now,
        state => panic!("{state:?}"),
    }
}

#[test]
fn one_failure_opens_the_breaker() {
    let mut breaker = closed();
    assert_eq!(breaker.admits_percent(0), 100);
    breaker.note(Event::Failed, 7, 0);
    assert_eq!(breaker.state(), State::Open { until: 8 });
    assert_eq!(breaker.admits_percent(7), 0);
}

#[test]
fn five_consecutive_timeouts_open_the_breaker() {
    let mut breaker = closed();
    for now in 0..4 {
        breaker.note(Event::TimedOut, now, 0);
    }
    breaker.note(Event::Answered, 4, 0);
    for now in 5..9 {
        breaker.note(Event::TimedOut, now, 0);
        assert_eq!(breaker.state(), State::Closed, "an answer in between");
    }
    breaker.note(Event::TimedOut, 9, 0);
    assert!(matches!(breaker.state(), State::Open { .. }));
}

#[test]
fn ten_timeouts_in_twenty_calls_within_the_window_open_the_breaker() {
    let alternate = |breaker: &mut Breaker, calls: u64, apart: u64| {
        for call in 0..calls {
            let event = if call % 2 == 0 { Event::TimedOut } else { Event::Answered };
            breaker.note(event, call * apart, 0);
        }
    };
    let mut breaker = closed();
    alternate(&mut breaker, 20, 1_000);
    assert_eq!(breaker.state(), State::Closed, "19 calls and then an answer");
    breaker.note(Event::TimedOut, 20_000, 0);
    assert!(matches!(breaker.state(), State::Open { .. }));

    let mut seldom = closed();
    alternate(&mut seldom, 200, SECOND / 2);
    assert_eq!(seldom.state(), State::Closed, "never twenty calls within five seconds");
}

#[test]
fn one_timeout_in_three_calls_keeps_the_breaker_closed() {
    let mut breaker = closed();
    for call in 0..60 {
        let event = if call % 3 == 0 { Event::TimedOut } else { Event::Answered };
        breaker.note(event, call * 1_000, 0);
    }
    assert_eq!(breaker.state(), State::Closed);
}

#[test]
fn open_time_doubles_up_to_its_maximum_and_resets_after_a_long_close() {
    let mut breaker = closed();
    let mut now = 20 * SECOND;
    let mut lengths = Vec::new();
    for _ in 0..8 {
        breaker.open(now, LATEST - 1);
        let length = open_for(&breaker, now);
        lengths.push(length <= 15 * SECOND);
        now += length;
    }
    assert_eq!(lengths, [true; 8]);
    let bound = |openings: u32| {
        let mut breaker = closed();
        (0..=openings).for_each(|_| breaker.open(SECOND, 0));
        let most = |random| {
            let mut breaker = breaker.clone();
            breaker.openings -= 1;
            breaker.open(SECOND, random);
            open_for(&breaker, SECOND)
        };
        (0..2_000_u64).map(|part| most(part.wrapping_mul(0x9e37_79b9_7f4a_7c15))).max().unwrap()
    };
    for (openings, expected) in [(0, 500_000), (1, 1_000_000), (4, 8_000_000), (5, 15_000_000)] {
        let longest = bound(openings);
        assert!(longest <= expected && longest > expected / 10 * 9, "{openings}: {longest}");
    }
    // Closed for as long as the longest opening: the next one is the first again.
    breaker.recovered(now);
    breaker.advance(now + 4 * SECOND);
    assert_eq!(breaker.state(), State::Closed);
    breaker.open(now + 19 * SECOND, 499_999);
    assert_eq!(open_for(&breaker, now + 19 * SECOND), 500_000);
}

/// Gateways that lose Redis together draw different times. Each tenth of the longest one gets a
/// tenth of them.
#[test]
fn first_probes_of_many_gateways_are_spread_over_the_whole_open_time() {
    const GATEWAYS: u64 = 20_000;
    for (openings, longest) in [(1, 500_000), (3, 2_000_000), (9, 15 * SECOND)] {
        let mut tenths = [0_u64; 10];
        for gateway in 0..GATEWAYS {
            let mut breaker = closed();
            let random = gateway.wrapping_mul(0x9e37_79b9_7f4a_7c15);
            (0..openings).for_each(|_| breaker.open(SECOND, random));
            let wait = open_for(&breaker, SECOND);
            assert!((1..=longest).contains(&wait), "{wait} of {longest}");
            tenths[usize::try_from((wait - 1) * 10 / longest).unwrap()] += 1;
        }
        let even = GATEWAYS / 10;
        assert!(tenths.iter().all(|count| count.abs_diff(even) < even / 5), "{tenths:?}");
    }
}

#[test]
fn half_open_breaker_admits_the_ramp_step_by_step() {
    let mut breaker = closed();
    breaker.open(0, 0);
    breaker.recovered(10 * SECOND);
    let steps = [(0, 1), (999_999, 1), (SECOND, 10), (2 * SECOND, 50), (3 * SECOND, 100)];
    for (after, percent) in steps {
        assert_eq!(breaker.admits_percent(10 * SECOND + after), percent, "{after}");
        breaker.advance(10 * SECOND + after);
        assert_eq!(breaker.state(), State::HalfOpen { since: 10 * SECOND });
    }
    assert_eq!(breaker.next_step(10 * SECOND), Some(11 * SECOND));
    assert_eq!(breaker.next_step(11 * SECOND), Some(12 * SECOND));
    breaker.advance(14 * SECOND);
    assert_eq!((breaker.state(), breaker.next_step(14 * SECOND)), (State::Closed, None));
}

#[test]
fn openings_reset_only_after_open_max_us_in_the_closed_state() {
    let longest = Settings::default().open_max_us;
    let mut breaker = closed();
    breaker.open(longest, 0);
    assert_eq!(breaker.openings, 1);
    breaker.recovered(longest + SECOND);
    breaker.open(3 * longest, 0);
    assert_eq!(breaker.openings, 2, "half open is not closed");
    let close = |breaker: &mut Breaker, now| {
        breaker.recovered(now - 4 * SECOND);
        breaker.advance(now);
        assert_eq!(breaker.state(), State::Closed);
    };
    close(&mut breaker, 4 * longest);
    breaker.open(5 * longest - 1, 0);
    assert_eq!(breaker.openings, 3, "closed for too short a time");
    close(&mut breaker, 6 * longest);
    breaker.open(7 * longest, 0);
    assert_eq!(breaker.openings, 1);
}

#[test]
fn ramp_up_half_opens_a_closed_breaker_and_keeps_an_open_one() {
    let mut breaker = closed();
    breaker.ramp_up(SECOND);
    assert_eq!(breaker.state(), State::HalfOpen { since: SECOND });
    breaker.ramp_up(2 * SECOND);
    assert_eq!(breaker.state(), State::HalfOpen { since: SECOND }, "already half open");
    breaker.open(3 * SECOND, 6);
    breaker.ramp_up(3 * SECOND);
    assert_eq!(breaker.state(), State::Open { until: 3 * SECOND + 7 });
}

#[test]
fn failure_while_half_open_opens_for_longer() {
    let mut breaker = closed();
    breaker.open(0, 0);
    breaker.recovered(SECOND);
    breaker.note(Event::Failed, 2 * SECOND, 999_999);
    assert_eq!(open_for(&breaker, 2 * SECOND), SECOND);
    breaker.note(Event::Failed, 2 * SECOND, 5);
    assert_eq!(
        open_for(&breaker, 2 * SECOND),
        SECOND,
        "calls from before the opening do not count"
    );
}

proptest! {
    #![proptest_config(crate::base::cases::with_cases(256))]

    /// Over any sequence of events: no request is admitted while open, all are while closed, and no
    /// opening is longer than `open_max_us`.
    #[test]
    fn admitted_percentage_follows_the_state_and_openings_are_bounded(
        steps in prop::collection::vec((0..6_u8, 0..3_000_000_u64, any::<u64>()), 1..200),
    ) {
        let settings = Settings::default();
        let mut breaker = closed();
        let mut now = 0;
        for (what, wait, random) in steps {
            now += wait;
            match what {
                0 => breaker.note(Event::Answered, now, random),
                1 => breaker.note(Event::TimedOut, now, random),
                2 => breaker.note(Event::Failed, now, random),
                3 => breaker.open(now, random),
                4 => breaker.recovered(now),
                _ => breaker.advance(now),
            }
            let percent = breaker.admits_percent(now);
            match breaker.state() {
                State::Closed => prop_assert_eq!(percent, 100),
                State::Open { until } => {
                    prop_assert_eq!(percent, 0);
                    prop_assert!(until <= now + settings.open_max_us);
                }
                State::HalfOpen { .. } => prop_assert!(settings.ramp.contains(&percent)),
            }
        }
    }
}
