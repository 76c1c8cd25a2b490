use super::*;

#[tokio::test(start_paused = true)]
async fn requests_that_may_call_redis_are_spread_evenly() {
    let breaker = BreakerHandle::new(Settings { ramp: vec![10, 100], ..Settings::default() }, None);
    assert!(breaker.admits() && !breaker.is_open());
    breaker.open("a test");
    assert!(!breaker.admits() && breaker.is_open());
    breaker.recovered();
    let admitted: Vec<bool> = (0..1_000).map(|_| breaker.admits()).collect();
    assert_eq!(admitted.iter().filter(|admitted| **admitted).count(), 100);
    let longest = admitted.split(|admitted| *admitted).map(<[bool]>::len).max();
    assert!(longest < Some(30), "{longest:?} in a row were not");
}

#[test]
fn transition_is_counted_once() {
    let transitions = prometheus::Opts::new("transitions", "x");
    let series = BreakerSeries {
        state: IntGauge::new("state", "x").unwrap(),
        transitions: IntCounterVec::new(transitions, &["to"]).unwrap(),
    };
    let breaker = BreakerHandle::new(Settings::default(), Some(series.clone()));
    assert!(breaker.note(Event::Failed, "x"));
    assert!(!breaker.note(Event::Failed, "x"));
    breaker.open("again");
    let counted = |to| series.transitions.with_label_values(&[to]).get();
    assert_eq!((series.state.get(), counted("open"), counted("half_open")), (2, 1, 0));
    breaker.recovered();
    assert_eq!((series.state.get(), counted("half_open")), (1, 1));
}

#[test]
fn random_sequences_of_two_processes_differ() {
    let numbers = || {
        let breaker = BreakerHandle::new(Settings::default(), None);
        (0..4).map(|_| breaker.random()).collect::<Vec<_>>()
    };
    assert_ne!(numbers(), numbers());
}

#[tokio::test(start_paused = true)]
async fn override_goes_before_results_of_calls() {
    let breaker = BreakerHandle::new(Settings { ramp: vec![10, 100], ..Settings::default() }, None);
    let seen = || (breaker.status().state.name(), breaker.status().admits_percent);
    breaker.set_override(Override::Open);
    assert!(breaker.is_open() && !breaker.admits());
    assert_eq!(seen(), ("open", 0));
    breaker.recovered();
    assert_eq!(seen(), ("open", 0), "probes change nothing");
    breaker.set_override(Override::Auto);
    assert_eq!(seen(), ("half_open", 10), "back step by step");
    breaker.set_override(Override::Closed);
    breaker.open("a test");
    assert!(breaker.admits());
    assert_eq!(seen(), ("closed", 100));
    breaker.set_override(Override::Auto);
    assert_eq!(seen(), ("open", 0), "results of calls count again");
    breaker.set_override(Override::Open);
    breaker.set_override(Override::Auto);
    assert_eq!(seen().0, "open", "an outage goes on");
}
