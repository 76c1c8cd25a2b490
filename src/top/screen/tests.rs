//! Snapshots of the screen at 80 by 24; any other size is drawn without a panic.

use std::collections::BTreeMap;

use proptest::prelude::*;
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::style::Color;

use super::*;
use crate::api::clients::ClientBuckets;
use crate::api::reloads::Reloads;
use crate::api::samples::{OutcomeCounts, RouteRequests, RuleCounts, Sample, UpstreamRequests};
use crate::api::upstreams::Upstreams;
use crate::top::client::GatewayError;
use crate::top::feed::{ClientId, Update};
use crate::top::rates::tests::sample;
use crate::top::state::tests::data;
use crate::top::state::{Key, Sort};

const NOW: u64 = 20_000_000;

fn terminal(state: &State, (width, height): (u16, u16), color: bool) -> Terminal<TestBackend> {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
    terminal.draw(|frame| draw(frame, state, Theme { color }, NOW)).unwrap();
    terminal
}

fn drawn(state: &State) -> String {
    terminal(state, (80, 24), false).backend().to_string()
}

/// A gateway after five minutes.
fn state(tab: Tab) -> State {
    let mut state = State { tab, ..State::new("127.0.0.1:9090".to_owned()) };
    let samples = (0..300).map(|at| {
        let decisions = |allowed, refused| RuleCounts { allowed, refused, shadow_refused: 0 };
        let rules = BTreeMap::from([
            ("per-key".to_owned(), decisions(100 + at, at / 3)),
            ("everyone".to_owned(), decisions(100 + at, 0)),
            ("trial".to_owned(), RuleCounts { shadow_refused: 7, ..decisions(90 + at, 0) }),
        ]);
        let requests = |allowed, refused| OutcomeCounts { allowed, refused, ..Default::default() };
        let plans = BTreeMap::from([
            (String::new(), OutcomeCounts { rejected: 2, ..requests(0, 0) }),
            ("free".to_owned(), OutcomeCounts { unauthorized: 4, ..requests(8 + at, at / 3) }),
            ("pro".to_owned(), OutcomeCounts { unavailable: 1, ..requests(1_000, 0) }),
        ]);
        let route =
            |requests, errors| RouteRequests { requests, errors, ..RouteRequests::default() };
        let upstream = |requests, errors, failures| UpstreamRequests {
            requests,
            errors,
            failures,
            ..UpstreamRequests::default()
        };
        let routes = BTreeMap::from([
            (String::new(), route(2, 0)),
            ("search".to_owned(), route(1_005 + at, 3)),
            ("rest".to_owned(), route(at / 3 + 8, 0)),
        ]);
        let upstreams = BTreeMap::from([
            ("api".to_owned(), upstream(1_000 + at, 2, 1)),
            ("trial".to_owned(), upstream(8, 0, 0)),
        ]);
        let statuses = [("2xx", 1_005 + at), ("4xx", 6 + at / 3), ("5xx", 3), ("none", 1)];
        let statuses = statuses.map(|(class, count)| (class.to_owned(), count)).into();
        let sources = BTreeMap::from([("redis".to_owned(), 90), ("cache".to_owned(), 9)]);
        Sample {
            plans,
            rules,
            routes,
            upstreams,
            statuses,
            sources,
            in_flight: 3,
            ..sample(1_000 + at, 0, 0)
        }
    });
    state.take(Update::History(samples.collect()), NOW);
    state.take(Update::Data(Box::new(data())), NOW);
    state
}

fn from_json<T: serde::de::DeserializeOwned>(text: &str) -> T {
    serde_json::from_str(text).unwrap()
}

fn error() -> GatewayError {
    let why = "Connection refused (os error 111)".to_owned();
    GatewayError::Unreachable { at: "127.0.0.1:9090".to_owned(), why }
}

#[test]
fn overview_shows_charts_and_rates() {
    insta::assert_snapshot!(drawn(&state(Tab::Overview)));
    insta::assert_snapshot!(drawn(&State { sort: Sort::Refused, ..state(Tab::Overview) }));
}

#[test]
fn clients_are_listed_with_the_selected_one() {
    insta::assert_snapshot!(drawn(&State { selected: 1, ..state(Tab::Clients) }));
}

#[test]
fn routes_and_upstreams_are_listed_with_errors_and_latency() {
    insta::assert_snapshot!("routes", drawn(&state(Tab::Routes)));
    let by_errors = State { sort: Sort::Refused, ..state(Tab::Routes) };
    insta::assert_snapshot!("routes_by_errors", drawn(&by_errors));
}

#[test]
fn refusal_runs_are_listed_in_the_zone_of_the_gateway() {
    insta::assert_snapshot!("refusals", drawn(&State { selected: 1, ..state(Tab::Refusals) }));
    let mut none = state(Tab::Refusals);
    none.data = Some(crate::top::feed::Data::default());
    insta::assert_snapshot!("no_refusals", drawn(&none));
}

#[test]
fn buckets_of_a_client_are_shown() {
    let mut state = state(Tab::Clients);
    state.open = Some(ClientId { kind: "key".to_owned(), id: "acme".to_owned() });
    insta::assert_snapshot!("buckets_pending", drawn(&state));
    let buckets: ClientBuckets = from_json(
        r#"{"client": {"kind": "key", "id": "acme", "plan": "pro", "counted_as": null},
        "levels": "redis", "rules": [
        {"rule": "per-key", "applies": true, "mode": "enforce", "per": ["key"], "own": true,
         "rate": "100/s", "burst": 500, "tokens": 423, "full_after_ms": 770},
        {"rule": "in-debt", "applies": true, "mode": "shadow", "per": ["key"], "own": true,
         "rate": "300/m", "burst": 10000, "tokens": -120, "full_after_ms": 2024000},
        {"rule": "nearly-empty", "applies": true, "mode": "enforce", "per": [], "own": false,
         "rate": "5/d", "burst": 20, "tokens": 1, "full_after_ms": 300000000},
        {"rule": "per-ip", "applies": true, "mode": "enforce", "per": ["ip"], "own": false,
         "rate": "20/s", "burst": 200, "unknown": ["ip"], "tokens": null, "full_after_ms": null},
        {"rule": "search", "applies": false, "mode": "enforce", "per": [], "own": true,
         "rate": null, "burst": null, "tokens": null, "full_after_ms": null,
         "why_not": {"code": "other_routes", "why": "its routes do not list it"}}]}"#,
    );
    let mut data = data();
    data.buckets = state.open.clone().map(|open| (open, Ok(buckets)));
    state.take(Update::Data(Box::new(data)), NOW);
    insta::assert_snapshot!("buckets", drawn(&state));
}

/// The breaker is half open, a server is ejected, memory is over its limit, connections are
/// rejected, and the last reload was rejected.
fn degraded() -> State {
    let mut state = state(Tab::Health);
    let mut data = data();
    data.status = from_json(
        r#"{"version": "0.1.0", "generation": 2, "uptime_s": 86400, "draining": true, "ready": false,
        "redis": {"configured": true, "connected": false},
        "breaker": {"state": "half_open", "override": "auto", "since_ms": 1200, "admits_percent": 10,
                    "retry_after_ms": 300}, "gateways": 3,
        "limits": {"hash": "9f3c0a51e27b8846", "gateways_with_others": 1},
        "buckets": {"local": 1204, "max": 1000000, "evictions": 5, "debts": 17},
        "connections": {"open": 18211, "max": 20000, "rejected_last_minute": {
          "head_timeout": 4, "max_connections_per_ip": 12044, "memory": 2276, "preface": 3}},
        "overloaded": {"descriptors": false, "memory": true, "paused": true},
        "memory": {"resident_bytes": 985661440, "max_bytes": 966367641},
        "rules": [
          {"rule": "per-ip", "bans": 12, "rate_percent": null, "warned": 0, "overage_tokens": 0},
          {"rule": "search", "bans": 0, "rate_percent": 42.5, "warned": 0, "overage_tokens": 0},
          {"rule": "monthly", "bans": null, "rate_percent": null, "warned": 1204, "overage_tokens": 310.5},
          {"rule": "daily", "bans": null, "rate_percent": null, "warned": 7, "overage_tokens": 0}]}"#,
    );
    data.reloads = from_json::<Reloads>(
        r#"{"reloads": [
        {"at": "2026-11-21T16:40:00.123Z", "cause": "file_changed", "result": "rejected", "generation": 2,
         "errors": [{"message": "`rate` is not a rate", "line": 12, "column": 8}], "more_errors": 1},
        {"at": "2026-11-21T16:39:00.001Z", "cause": "requested", "result": "applied", "generation": 2,
         "changes": [{"kind": "plan", "name": "trial", "what": "added"}], "more_changes": 0}]}"#,
    );
    data.upstreams = from_json::<Upstreams>(
        r#"{"upstreams": [
        {"name": "api", "servers": ["api.internal:3000"], "addresses": [
          {"address": "10.0.0.7:3000", "health": "ok", "retry_after_ms": 0},
          {"address": "10.0.0.8:3000", "health": "down", "retry_after_ms": 3100}]},
        {"name": "gone", "servers": ["gone.internal:80"], "addresses": []},
        {"name": "trial", "servers": ["demo"], "addresses": []}]}"#,
    );
    state.take(Update::Data(Box::new(data)), NOW);
    state.samples.back_mut().unwrap().config_valid = false;
    state
}

#[test]
fn health_shows_redis_reloads_and_upstreams() {
    insta::assert_snapshot!("health_good", drawn(&state(Tab::Health)));
    insta::assert_snapshot!("health_degraded", drawn(&degraded()));
}

#[test]
fn error_is_shown_above_the_last_data() {
    let mut unknown = State::new("127.0.0.1:9090".to_owned());
    insta::assert_snapshot!("before_the_first_response", drawn(&unknown));
    unknown.take(Update::Failed(error()), 1);
    insta::assert_snapshot!("unreachable", drawn(&unknown));
    let mut known = State { data_at: NOW - 12_000_000, ..state(Tab::Overview) };
    known.take(Update::Failed(GatewayError::WrongToken { at: "127.0.0.1:9090".to_owned() }), NOW);
    known.paused = true;
    insta::assert_snapshot!("error_with_old_data", drawn(&known));
}

#[test]
fn help_lists_the_keys() {
    let mut state = state(Tab::Overview);
    state.press(Key::Help);
    insta::assert_snapshot!(drawn(&state));
}

#[test]
fn no_color_disables_colours() {
    let colors = |color| {
        let mut found = Vec::new();
        for state in Tab::ALL.map(state).into_iter().chain([degraded()]) {
            let terminal = terminal(&state, (80, 24), color);
            let cells = terminal.backend().buffer().content();
            found.extend(cells.iter().flat_map(|cell| [cell.fg, cell.bg]));
        }
        found.into_iter().any(|color| color != Color::Reset)
    };
    assert_eq!((colors(true), colors(false)), (true, false));
}

proptest! {
    #![proptest_config(crate::base::cases::with_cases(256))]

    #[test]
    fn any_size_is_drawn(
        width in 0_u16..200,
        height in 0_u16..60,
        keys in prop::collection::vec(0_usize..9, 0..6),
        fails in any::<bool>(),
    ) {
        use Key::{Back, Down, Help, Next, Open, PageDown, Pause, Sort, Up};

        let mut state = degraded();
        for key in keys {
            state.press([Back, Down, Help, Next, Open, PageDown, Pause, Sort, Up][key]);
        }
        if fails {
            state.take(Update::Failed(error()), NOW);
            state.take(Update::NoEvents(error()), NOW);
        }
        terminal(&state, (width, height), true);
    }
}
