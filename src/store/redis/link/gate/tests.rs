use super::*;

#[tokio::test(start_paused = true)]
async fn requests_return_evenly() {
    let gate = Gate::new(Settings { ramp: vec![10, 100], ..Settings::default() }, None);
    assert!(gate.admits() && !gate.is_open());
    gate.open("a test");
    assert!(!gate.admits() && gate.is_open());
    gate.recovered();
    let admitted: Vec<bool> = (0..1_000).map(|_| gate.admits()).collect();
    assert_eq!(admitted.iter().filter(|admitted| **admitted).count(), 100);
    let longest = admitted.split(|admitted| *admitted).map(<[bool]>::len).max();
    assert!(longest < Some(30), "{longest:?} in a row were not");
}

#[test]
fn one_change_is_told_once() {
    let transitions = prometheus::Opts::new("transitions", "x");
    let series = BreakerSeries {
        state: IntGauge::new("state", "x").unwrap(),
        transitions: IntCounterVec::new(transitions, &["to"]).unwrap(),
    };
    let gate = Gate::new(Settings::default(), Some(series.clone()));
    assert!(gate.note(Event::Failed, "x"));
    assert!(!gate.note(Event::Failed, "x"));
    gate.open("again");
    let told = |to| series.transitions.with_label_values(&[to]).get();
    assert_eq!((series.state.get(), told("open"), told("half_open")), (2, 1, 0));
    gate.recovered();
    assert_eq!((series.state.get(), told("half_open")), (1, 1));
}

#[test]
fn two_processes_draw_different_numbers() {
    let numbers = || {
        let gate = Gate::new(Settings::default(), None);
        (0..4).map(|_| gate.random()).collect::<Vec<_>>()
    };
    assert_ne!(numbers(), numbers());
}

#[tokio::test(start_paused = true)]
async fn a_hand_goes_before_what_becomes_of_calls() {
    let gate = Gate::new(Settings { ramp: vec![10, 100], ..Settings::default() }, None);
    let seen = || (gate.standing().state, gate.standing().admits_percent);
    gate.set_override(Override::Open);
    assert!(gate.is_open() && !gate.admits());
    assert_eq!(seen(), ("open", 0));
    gate.recovered();
    assert_eq!(seen(), ("open", 0), "probes change nothing");
    gate.set_override(Override::Auto);
    assert_eq!(seen(), ("half_open", 10), "back step by step");
    gate.set_override(Override::Closed);
    gate.open("a test");
    assert!(gate.admits());
    assert_eq!(seen(), ("closed", 100));
    gate.set_override(Override::Auto);
    assert_eq!(seen(), ("open", 0), "what has become of calls counts again");
    gate.set_override(Override::Open);
    gate.set_override(Override::Auto);
    assert_eq!(seen().0, "open", "an outage goes on");
}
