use super::super::rates::tests::sample;
use super::*;
use crate::api::clients::Top;
use crate::api::status::{Connections, Memory, Status};

fn client(kind: &str, id: &str, requests: u64, refused: u64) -> TopClient {
    TopClient { kind: kind.to_owned().into(), id: id.to_owned(), requests, refused, error: 0 }
}

const RECENT: &str = r#"{"time_zone": "Europe/Berlin", "utc_offset_s": 3600, "total": {
    "at_ms": 1, "span_ms": 10000, "plans": {}, "rules": {},
    "latency": {"p50_ms": 1.204, "p99_ms": 88.5},
    "routes": {"": {"requests": 9, "errors": 0, "p50_ms": 0.087, "p99_ms": 0.12},
               "search": {"requests": 700, "errors": 3, "p50_ms": 1.3, "p99_ms": 1204.2}},
    "upstreams": {"api": {"requests": 690, "errors": 2, "failures": 1, "p50_ms": 1.1, "p99_ms": 1200.0}}}}"#;

const AUDIT: &str = r#"{"refusal_runs": [
    {"first": "2026-11-21T16:34:01.000250Z", "last": "2026-11-21T16:34:19.310002Z", "count": 1412,
     "key": "acme", "ip": "203.0.113.7", "rule": "per-key", "plan": "pro", "tokens": 0, "open": true,
     "kind": "limit", "status": 429},
    {"first": "2026-11-21T16:30:01.000250Z", "last": "2026-11-21T16:30:01.000250Z", "count": 1,
     "key": null, "ip": "2001:db8:1:2::", "rule": null, "plan": "free", "tokens": null, "open": false,
     "kind": "unauthorized", "reason": "unknown_key", "status": 401},
    {"first": "2026-11-21T10:00:00Z", "last": "2026-11-21T10:01:00Z", "count": 60,
     "key": null, "ip": "h:4f1c09d2a7b35e68", "rule": "per-ip", "plan": "free", "tokens": 0, "open": false}],
    "more": 4, "dropped": 0}"#;

/// Two rules that have counted clients of every kind.
pub(in crate::top) fn data() -> Data {
    let rule = |rule: &str, clients: Vec<TopClient>| TopOfRule { rule: rule.to_owned(), clients };
    let per_key = vec![
        client("key", "acme", 61_200, 12),
        client("ip", "203.0.113.7", 512, 500),
        client("unknown_key", "9f86d081884c7d65", 3, 0),
    ];
    let per_ip =
        vec![client("ip", "2001:db8:1:2::/64", 70_000, 0), client("ip", "203.0.113.7", 512, 0)];
    Data {
        status: Status {
            version: "0.1.0".to_owned(),
            generation: 3,
            uptime_s: 4_000,
            ready: true,
            gateways: 1,
            connections: Some(Connections { open: 128, max: 20_000, ..Connections::default() }),
            memory: Some(Memory { resident_bytes: 40 << 20, max_bytes: None }),
            ..Status::default()
        },
        top: Top {
            since_ms: 431_000,
            rules: vec![rule("per-key", per_key), rule("per-ip", per_ip)],
            ..Top::default()
        },
        recent: serde_json::from_str(RECENT).unwrap(),
        audit: serde_json::from_str(AUDIT).unwrap(),
        ..Data::default()
    }
}

fn state() -> State {
    let mut state = State::new("127.0.0.1:9090".to_owned());
    state.take(Update::Data(Box::new(data())), 7);
    state
}

fn press(state: &mut State, keys: &[Key]) {
    for key in keys {
        assert!(state.press(*key), "{key:?}");
    }
}

fn unreachable() -> GatewayError {
    GatewayError::Unreachable { at: "127.0.0.1:9090".to_owned(), why: "no".to_owned() }
}

#[test]
fn clients_are_sorted_by_the_selected_order() {
    let mut state = state();
    let ids = |state: &State| -> Vec<String> {
        state.listed().iter().map(|one| format!("{} {}", one.client.id, one.rule)).collect()
    };
    let (acme, v6) = ("acme per-key", "2001:db8:1:2::/64 per-ip");
    let [by_ip, by_key] = ["203.0.113.7 per-ip", "203.0.113.7 per-key"];
    let unknown = "9f86d081884c7d65 per-key";
    assert_eq!(ids(&state), [v6, acme, by_ip, by_key, unknown]);
    press(&mut state, &[Key::Sort]);
    assert_eq!(ids(&state), [by_key, acme, v6, by_ip, unknown]);
    assert!(state.selection().by_refused);
    press(&mut state, &[Key::Sort]);
    assert_eq!(ids(&state), [v6, by_ip, by_key, acme, unknown]);
    assert!(!state.selection().by_refused);
    press(&mut state, &[Key::Sort]);
    assert_eq!(state.sort, Sort::Requests);
}

#[test]
fn tabs_wrap_around() {
    use Tab::{Clients, Health, Overview, Refusals};

    let table = [
        (Overview, Key::Next, Clients),
        (Refusals, Key::Next, Overview),
        (Overview, Key::Previous, Refusals),
        (Clients, Key::Previous, Overview),
        (Overview, Key::Tab(Health), Health),
    ];
    for (from, key, to) in table {
        let mut state = State { tab: from, ..state() };
        press(&mut state, &[key]);
        assert_eq!(state.tab, to, "{from:?} {key:?}");
    }
}

#[test]
fn selected_client_opens_unless_its_key_is_unknown() {
    // (index in the list, opened client)
    let table = [
        (0, Some(("ip", "2001:db8:1:2::"))),
        (1, Some(("key", "acme"))),
        (2, Some(("ip", "203.0.113.7"))),
        (4, None),
    ];
    for (place, expected) in table {
        let mut state = State { tab: Tab::Clients, selected: place, ..state() };
        press(&mut state, &[Key::Open]);
        let open = state.selection().open;
        let open = open.as_ref().map(|open| (&*open.kind, &*open.id));
        assert_eq!(open, expected, "{place}");
        assert_eq!(state.note.is_some(), expected.is_none());
        press(&mut state, &[Key::Back]);
        assert_eq!((state.selection().open, state.note), (None, None));
    }
    let mut other_tab = state();
    press(&mut other_tab, &[Key::Open]);
    assert_eq!(other_tab.open, None, "only on the tab of clients");
}

#[test]
fn selected_refusal_opens_its_client_unless_the_address_is_hashed() {
    let table = [(0, Some(("key", "acme"))), (1, Some(("ip", "2001:db8:1:2::"))), (2, None)];
    for (place, expected) in table {
        let mut state = State { tab: Tab::Refusals, selected: place, ..state() };
        press(&mut state, &[Key::Open]);
        let open = state.selection().open;
        let open = open.as_ref().map(|open| (&*open.kind, &*open.id));
        assert_eq!((open, state.note.is_some()), (expected, expected.is_none()), "{place}");
    }
    let mut state = State { tab: Tab::Refusals, ..state() };
    press(&mut state, &[Key::PageDown, Key::Down]);
    assert_eq!(state.selected, 2);
    press(&mut state, &[Key::Tab(Tab::Clients)]);
    assert_eq!(state.selected, 0);
}

#[test]
fn selection_stays_within_the_list() {
    let mut state = State { tab: Tab::Clients, ..state() };
    press(&mut state, &[Key::Up]);
    assert_eq!(state.selected, 0);
    press(&mut state, &[Key::Down, Key::Down, Key::Up]);
    assert_eq!(state.selected, 1);
    press(&mut state, &[Key::PageDown, Key::Down]);
    assert_eq!(state.selected, 4);
    let mut fewer = data();
    fewer.top.rules.truncate(1);
    state.take(Update::Data(Box::new(fewer)), 8);
    assert_eq!(state.selected, 2);
    state.take(Update::Data(Box::default()), 9);
    assert_eq!(state.selected, 0);
    press(&mut state, &[Key::Open, Key::Down, Key::PageUp]);
    assert_eq!((state.selected, state.open), (0, None));
}

#[test]
fn pause_keeps_data_and_still_shows_errors() {
    let mut state = state();
    state.take(Update::History(vec![sample(1, 1, 0)]), 7);
    press(&mut state, &[Key::Pause]);
    state.take(Update::Sample(Box::new(sample(2, 1, 0))), 8);
    state.take(Update::Data(Box::default()), 9);
    state.take(Update::History(Vec::new()), 9);
    assert_eq!((state.samples.len(), state.listed().len(), state.data_at), (1, 5, 9));
    state.take(Update::Failed(unreachable()), 10);
    assert!(state.error.is_some());
    state.take(Update::Data(Box::default()), 11);
    assert_eq!(state.error, None);
    press(&mut state, &[Key::Pause]);
    state.take(Update::Sample(Box::new(sample(3, 1, 0))), 12);
    assert_eq!(state.samples.len(), 2);
}

#[test]
fn error_clears_when_the_gateway_answers() {
    let mut state = State::new(String::new());
    state.take(Update::Failed(unreachable()), 1);
    state.take(Update::NoEvents(unreachable()), 1);
    assert!(state.error.is_some() && state.no_events.is_some());
    state.take(Update::Data(Box::new(data())), 2);
    state.take(Update::History(Vec::new()), 2);
    assert!(state.error.is_none() && state.no_events.is_none());
    assert_eq!(state.data_at, 2);
}

#[test]
fn samples_of_five_minutes_are_kept() {
    let mut state = state();
    state.take(Update::History((0..400).map(|at| sample(at, 1, 0)).collect()), 1);
    assert_eq!((state.samples.len(), state.samples[0].at_ms), (MAX_SAMPLES, 100_000));
    state.take(Update::Sample(Box::new(sample(400, 1, 0))), 2);
    assert_eq!((state.samples.len(), state.samples[0].at_ms), (MAX_SAMPLES, 101_000));
}

#[test]
fn any_key_closes_help_and_quit_quits() {
    let mut state = state();
    press(&mut state, &[Key::Help, Key::Sort]);
    assert_eq!((state.help, state.sort), (false, Sort::Requests));
    press(&mut state, &[Key::Help]);
    assert!(!state.press(Key::Quit));
    assert!(!State::default().press(Key::Quit));
}
