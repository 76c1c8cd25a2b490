use std::time::Duration;

use proptest::prelude::*;

use super::*;
use crate::policy::failures::FailureSet;
use crate::policy::health::CheckKind;

const SECOND: u64 = MICROS_PER_SECOND;

fn checks(rise: u32, fall: u32) -> HealthChecks {
    HealthChecks {
        kind: CheckKind::Tcp,
        port: None,
        interval: Duration::from_secs(5),
        timeout: Duration::from_secs(1),
        rise,
        fall,
    }
}

fn eject(consecutive_failures: Option<u32>, error_rate: Option<u16>) -> Eject {
    Eject {
        consecutive_failures,
        on: FailureSet::of_word("5xx").unwrap(),
        error_rate,
        window_us: 10 * SECOND,
        for_us: 30 * SECOND,
        max: 500,
    }
}

/// Ejects at `now`, and returns for how long, in microseconds.
fn ejected_for(health: &mut Health, eject: &Eject, now: u64) -> u64 {
    health.eject(EjectReason::ErrorRate, eject, now);
    health.failures.ejection.unwrap().until - now
}

fn state(health: &Health, now: u64) -> State {
    health.show(now).state
}

#[test]
fn first_check_decides_and_later_ones_by_rise_and_fall() {
    let failed = || Err(CheckFailure::Status(500));
    let checks = checks(2, 3);
    for first in [true, false] {
        let mut health = Health::default();
        health.set_checked(true);
        assert_eq!(state(&health, 1), State::Unchecked);
        assert_eq!(health.availability(1), Availability::Down { until: u64::MAX });
        let result = if first { Ok(()) } else { failed() };
        assert!(health.checked(result, &checks, 1));
        assert_eq!(state(&health, 1), if first { State::Up } else { State::Unhealthy });
    }
    let mut health = Health::default();
    health.set_checked(true);
    let mut states = Vec::new();
    // A success resets the failures in a row, and a failure the successes.
    for (now, passes) in (1_u64..).zip("+--+---+-++".chars().map(|sign| sign == '+')) {
        let result = if passes { Ok(()) } else { failed() };
        let before = state(&health, now);
        let changed = health.checked(result, &checks, now);
        assert_eq!(changed, before != state(&health, now));
        states.push(if state(&health, now) == State::Up { 'u' } else { 'd' });
    }
    assert_eq!(states.iter().collect::<String>(), "uuuuuuddddu");
    assert_eq!(health.availability(11), Availability::Up { since: 11 });
}

#[test]
fn reason_and_time_of_each_state_are_shown() {
    let mut health = Health::default();
    let shown = |health: &Health, now| {
        let HealthView { state, reason, since, until } = health.show(now);
        (state, reason, since, until)
    };
    assert_eq!(shown(&health, 9), (State::Up, String::new(), 0, u64::MAX));
    health.unreachable(10);
    let until = 10 + UNREACHABLE_US;
    let unreachable = (State::Unreachable, "a connection failed".to_owned(), 10, until);
    assert_eq!(shown(&health, 11), unreachable);
    let eject = eject(Some(1), None);
    assert_eq!(health.observe(true, &eject, 12), Some(Suspicion::ConsecutiveFailures));
    health.eject(EjectReason::ConsecutiveFailures, &eject, 12);
    let ejected = (State::Ejected, "consecutive failures".to_owned(), 12, 12 + 30 * SECOND);
    assert_eq!(shown(&health, 13), ejected);
    health.set_checked(true);
    health.checked(Err(CheckFailure::Timeout), &checks(1, 1), 14);
    let unhealthy = (State::Unhealthy, "check: timeout".to_owned(), 14, u64::MAX);
    assert_eq!(shown(&health, 15), unhealthy);
    assert!(health.order(Some(Order::Drain), 16) && !health.order(Some(Order::Drain), 17));
    assert_eq!(shown(&health, 18), (State::Drained, "operator".to_owned(), 16, u64::MAX));
    assert_eq!(health.availability(18), Availability::Off);
    assert!(!health.keeps_clients(18));
    assert!(health.order(None, 19));
    assert_eq!(shown(&health, 20), unhealthy);
}

#[test]
fn drained_endpoint_keeps_its_clients_while_it_is_healthy() {
    let mut health = Health::default();
    health.order(Some(Order::Drain), 1);
    assert!(health.keeps_clients(2));
    health.unreachable(3);
    assert!(!health.keeps_clients(4) && health.keeps_clients(3 + UNREACHABLE_US));
    health.order(Some(Order::Disable), 5);
    assert!(!health.keeps_clients(3 + UNREACHABLE_US));
}

#[test]
fn success_ends_a_run_of_failures() {
    let mut health = Health::default();
    let eject = eject(Some(3), None);
    for now in 1..100 {
        assert_eq!(health.observe(now % 3 != 0, &eject, now), None);
    }
    assert_eq!(health.observe(true, &eject, 100), None);
    assert_eq!(health.observe(true, &eject, 101), None);
    assert_eq!(health.observe(true, &eject, 102), Some(Suspicion::ConsecutiveFailures));
}

#[test]
fn ejections_grow_while_they_follow_one_another() {
    let mut health = Health::default();
    let eject = eject(Some(1), None);
    let mut now = 1;
    let mut times = Vec::new();
    for _ in 0..12 {
        let time_us = ejected_for(&mut health, &eject, now);
        assert!(health.is_ejected(now + time_us - 1) && !health.is_ejected(now + time_us));
        assert_eq!(health.availability(now + time_us), Availability::Up { since: now + time_us });
        times.push(time_us / eject.for_us);
        now += time_us;
    }
    assert_eq!(times, [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 10, 10]);
    // Each period of `for` without an ejection takes one step back.
    assert_eq!(ejected_for(&mut health, &eject, now + 95 * SECOND), 8 * eject.for_us);
    assert_eq!(ejected_for(&mut health, &eject, now + 3_000 * SECOND), eject.for_us);
}

#[test]
fn error_rate_needs_twenty_requests_and_others_that_are_better() {
    let eject = eject(None, Some(500));
    let mut health = Health::default();
    let mut suspicions = Vec::new();
    for now in 1..=20 {
        suspicions.push(health.observe(now % 2 == 0, &eject, now).is_some());
    }
    assert_eq!(suspicions.iter().filter(|suspicion| **suspicion).count(), 1);
    assert!(suspicions[19]);
    assert!(
        stands_out(20, 10, (0, 0)) && stands_out(20, 10, (40, 0)) && stands_out(20, 10, (40, 10))
    );
    assert!(!stands_out(20, 10, (40, 11)) && !stands_out(20, 20, (10, 10)));
}

#[test]
fn at_most_a_share_of_the_endpoints_and_never_the_last_is_ejected() {
    let table = [(1, 500, 0), (2, 500, 1), (3, 500, 1), (4, 500, 2), (4, 1_000, 3), (1, 1_000, 0)];
    for (total, max, most) in table {
        let mut ejected = 0;
        while may_eject(total, ejected, max) {
            ejected += 1;
        }
        assert_eq!(ejected, most, "{total} {max}");
    }
}

#[derive(Clone, Copy, Debug)]
enum Event {
    Connected,
    NotConnected,
    Ended { has_failed: bool },
    Checked { is_well: bool },
    Order(Option<Order>),
}

fn event() -> impl Strategy<Value = Event> {
    prop_oneof![
        Just(Event::Connected),
        Just(Event::NotConnected),
        any::<bool>().prop_map(|has_failed| Event::Ended { has_failed }),
        any::<bool>().prop_map(|is_well| Event::Checked { is_well }),
        Just(Event::Order(None)),
        Just(Event::Order(Some(Order::Drain))),
        Just(Event::Order(Some(Order::Disable))),
    ]
}

proptest! {
    #![proptest_config(crate::base::cases::with_cases(256))]

    #[test]
    fn endpoint_gets_requests_if_nothing_known_says_otherwise(
        events in prop::collection::vec((event(), 0..20 * SECOND), 0..60),
        is_checked: bool,
    ) {
        let (eject, checks) = (eject(Some(2), Some(500)), checks(2, 2));
        let mut health = Health::default();
        health.set_checked(is_checked);
        let mut now = 1;
        for (event, pause) in events {
            now += pause;
            match event {
                Event::Connected => { health.reachable(now); }
                Event::NotConnected => health.unreachable(now),
                Event::Ended { has_failed } => {
                    let was_ejected = health.is_ejected(now);
                    let suspicion = health.observe(has_failed, &eject, now);
                    prop_assert!(suspicion.is_none() || has_failed && !was_ejected);
                    if suspicion.is_some() {
                        let time_us = ejected_for(&mut health, &eject, now);
                        prop_assert!((1..=10).contains(&(time_us / eject.for_us)));
                    }
                }
                Event::Checked { is_well } => {
                    let result = if is_well { Ok(()) } else { Err(CheckFailure::Timeout) };
                    health.checked(result, &checks, now);
                    prop_assert!(!health.is_unchecked());
                }
                Event::Order(order) => { health.order(order, now); }
            }
            let HealthView { state, reason, since, until } = health.show(now);
            prop_assert!(since <= now && until > now);
            prop_assert_eq!(reason.is_empty(), state == State::Up);
            match health.availability(now) {
                Availability::Up { since } => {
                    prop_assert_eq!(state, State::Up);
                    prop_assert!(since <= now);
                }
                Availability::Off => {
                    prop_assert!(matches!(state, State::Drained | State::Disabled));
                }
                Availability::Down { until } => {
                    prop_assert!(until > now);
                    // It ends by itself, unless a check has to end it.
                    let ends = until < u64::MAX;
                    prop_assert_eq!(ends, matches!(state, State::Ejected | State::Unreachable));
                    let then = health.availability(until);
                    prop_assert!(!ends || matches!(then, Availability::Up { .. }), "{:?}", then);
                }
            }
        }
    }
}
