use super::super::api::{Status, Top, TopOfRule};
use super::super::rates::tests::tick;
use super::*;

fn client(kind: &str, id: &str, requests: u64, refused: u64) -> TopClient {
    TopClient { kind: kind.to_owned(), id: id.to_owned(), requests, refused }
}

/// Two rules that have counted clients of every kind.
pub(in crate::top) fn answers() -> Answers {
    let rule = |rule: &str, clients: Vec<TopClient>| TopOfRule { rule: rule.to_owned(), clients };
    let per_key = vec![
        client("key", "acme", 61_200, 12),
        client("ip", "203.0.113.7", 512, 500),
        client("unknown_key", "9f86d081884c7d65", 3, 0),
    ];
    let per_ip =
        vec![client("ip", "2001:db8:1:2::/64", 70_000, 0), client("ip", "203.0.113.7", 512, 0)];
    Answers {
        status: Status {
            version: "0.1.0".to_owned(),
            generation: 3,
            uptime_s: 4_000,
            ready: true,
            gateways: 1,
            ..Status::default()
        },
        top: Top {
            since_ms: 431_000,
            rules: vec![rule("per-key", per_key), rule("per-ip", per_ip)],
        },
        ..Answers::default()
    }
}

fn state() -> State {
    let mut state = State::new("127.0.0.1:9090".to_owned());
    state.take(News::Answers(Box::new(answers())), 7);
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
fn clients_are_sorted_as_is_wanted() {
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
    assert!(state.wanted().by_refused);
    press(&mut state, &[Key::Sort]);
    assert_eq!(ids(&state), [v6, by_ip, by_key, acme, unknown]);
    assert!(!state.wanted().by_refused);
    press(&mut state, &[Key::Sort]);
    assert_eq!(state.sort, Sort::Requests);
}

#[test]
fn tabs_follow_each_other_around() {
    use Tab::{Clients, Health, Overview};

    let table = [
        (Overview, Key::Next, Clients),
        (Health, Key::Next, Overview),
        (Overview, Key::Previous, Health),
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
fn a_client_opens_by_what_its_buckets_are_asked_by() {
    // (which of the list, what is opened)
    let table = [
        (0, Some(("ip", "2001:db8:1:2::"))),
        (1, Some(("key", "acme"))),
        (2, Some(("ip", "203.0.113.7"))),
        (4, None),
    ];
    for (place, expected) in table {
        let mut state = State { tab: Tab::Clients, chosen: place, ..state() };
        press(&mut state, &[Key::Open]);
        let open = state.wanted().open;
        let open = open.as_ref().map(|open| (&*open.kind, &*open.id));
        assert_eq!(open, expected, "{place}");
        assert_eq!(state.note.is_some(), expected.is_none());
        press(&mut state, &[Key::Back]);
        assert_eq!((state.wanted().open, state.note), (None, None));
    }
    let mut elsewhere = state();
    press(&mut elsewhere, &[Key::Open]);
    assert_eq!(elsewhere.open, None, "only where clients are listed");
}

#[test]
fn the_choice_stays_within_the_list() {
    let mut state = State { tab: Tab::Clients, ..state() };
    press(&mut state, &[Key::Up]);
    assert_eq!(state.chosen, 0);
    press(&mut state, &[Key::Down, Key::Down, Key::Up]);
    assert_eq!(state.chosen, 1);
    press(&mut state, &[Key::PageDown, Key::Down]);
    assert_eq!(state.chosen, 4);
    let mut fewer = answers();
    fewer.top.rules.truncate(1);
    state.take(News::Answers(Box::new(fewer)), 8);
    assert_eq!(state.chosen, 2);
    state.take(News::Answers(Box::default()), 9);
    assert_eq!(state.chosen, 0);
    press(&mut state, &[Key::Open, Key::Down, Key::PageUp]);
    assert_eq!((state.chosen, state.open), (0, None));
}

#[test]
fn a_pause_keeps_what_is_shown_and_says_what_is_wrong() {
    let mut state = state();
    state.take(News::History(vec![tick(1, 1, 0)]), 7);
    press(&mut state, &[Key::Pause]);
    state.take(News::Tick(Box::new(tick(2, 1, 0))), 8);
    state.take(News::Answers(Box::default()), 9);
    state.take(News::History(Vec::new()), 9);
    assert_eq!((state.ticks.len(), state.listed().len(), state.answered_at), (1, 5, 9));
    state.take(News::Trouble(unreachable()), 10);
    assert!(state.trouble.is_some());
    state.take(News::Answers(Box::default()), 11);
    assert_eq!(state.trouble, None);
    press(&mut state, &[Key::Pause]);
    state.take(News::Tick(Box::new(tick(3, 1, 0))), 12);
    assert_eq!(state.ticks.len(), 2);
}

#[test]
fn trouble_goes_when_the_gateway_is_back() {
    let mut state = State::new(String::new());
    state.take(News::Trouble(unreachable()), 1);
    state.take(News::NoEvents(unreachable()), 1);
    assert!(state.trouble.is_some() && state.no_events.is_some());
    state.take(News::Answers(Box::new(answers())), 2);
    state.take(News::History(Vec::new()), 2);
    assert!(state.trouble.is_none() && state.no_events.is_none());
    assert_eq!(state.answered_at, 2);
}

#[test]
fn five_minutes_are_kept() {
    let mut state = state();
    state.take(News::History((0..400).map(|at| tick(at, 1, 0)).collect()), 1);
    assert_eq!((state.ticks.len(), state.ticks[0].at_ms), (KEPT, 100_000));
    state.take(News::Tick(Box::new(tick(400, 1, 0))), 2);
    assert_eq!((state.ticks.len(), state.ticks[0].at_ms), (KEPT, 101_000));
}

#[test]
fn help_is_closed_by_any_key_and_left_by_one() {
    let mut state = state();
    press(&mut state, &[Key::Help, Key::Sort]);
    assert_eq!((state.help, state.sort), (false, Sort::Requests));
    press(&mut state, &[Key::Help]);
    assert!(!state.press(Key::Quit));
    assert!(!State::default().press(Key::Quit));
}
