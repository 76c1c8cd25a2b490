//! Abuse of HTTP/2 by a client that is built for it.

use super::{clear_listener, file};
use crate::support::{DEMO, Gateway, Upstream, eventually, fetch, http2_abuse, proxy_to};

/// Resident memory that all floods together may take.
const MAX_BYTES: u64 = 100_000_000;

/// Tokens of the limit in [`counting`], which no test exhausts.
const BURST: u64 = 100_000;

fn gateway(server: &str, config: &str) -> Gateway {
    Gateway::start_full(&file(server, &clear_listener("http2 = true"), config))
}

/// A gateway whose limit counts every request to this server.
fn counting(server: &str, upstream: &Upstream) -> Gateway {
    let limit = format!("[rules.all]\nper = []\nrate = \"1/d\"\nburst = {BURST}\n");
    gateway(server, &format!("{}{limit}", proxy_to(&[upstream.address])))
}

/// Tokens that a scenario takes.
fn tokens_of(gateway: &Gateway, scenario: impl FnOnce()) -> u64 {
    let remaining = || gateway.get("/last").remaining();
    let before = remaining();
    scenario();
    gateway.wait_for_count("tollgate_requests_in_flight", &[], 0);
    before - remaining() - 1
}

#[test]
fn row_60_floods_end_their_own_connection_or_cost_nothing() {
    let gateway = gateway("", DEMO);
    let abuse = |scenario| http2_abuse(scenario, gateway.address.port());
    // Long before the flood is complete.
    for (scenario, most) in [
        ("rapid_reset", 10_000),
        ("continuation", 200),
        ("empty_continuations", 10_000),
        ("malformed", 5_000),
        ("empty_heads", 5_000),
    ] {
        let result = abuse(scenario);
        // The reset of the connection may overtake its code.
        assert!(result["code"] == 11 || result["code"].is_null(), "{scenario}: {result}");
        assert!(result["sent"].as_u64().unwrap() < most, "{scenario}: {result}");
    }
    for scenario in ["empty_data", "large_head"] {
        let result = abuse(scenario);
        assert_eq!(result["complete"], false, "{scenario}: {result}");
    }
    // These are answered or ignored, one by one.
    for scenario in ["settings", "pings", "priorities", "window_updates"] {
        let result = abuse(scenario);
        assert_eq!(result["code"], serde_json::json!(null), "{scenario}: {result}");
        assert_eq!(result["complete"], true, "{scenario}: {result}");
    }
    assert_eq!(fetch(&["--http2-prior-knowledge", &gateway.url("/")]).status, 200);
    let (resident, peak) = gateway.memory_bytes();
    assert!(peak < MAX_BYTES, "{peak} bytes at the peak, {resident} now");
    gateway.wait_for_count("tollgate_client_connections_open", &[], 0);
}

#[test]
fn row_60_violations_of_the_protocol_end_the_connection() {
    let upstream = Upstream::echo();
    let gateway = counting("", &upstream);
    for (scenario, codes, requests) in [
        ("window_overflow", &[3][..], 0),
        ("even_stream", &[1], 0),
        ("decreasing_stream", &[1, 5], 1),
        ("data_after_end", &[1, 5], 1),
        ("data_on_idle_stream", &[1], 0),
        ("large_frame", &[6], 0),
        ("hpack_bomb", &[11], 0),
        ("crumbs", &[11], 0),
    ] {
        let tokens = tokens_of(&gateway, || {
            let result = http2_abuse(scenario, gateway.address.port());
            // The reset of the connection may overtake its code.
            let code = result["code"].as_u64();
            assert!(code.is_none_or(|code| codes.contains(&code)), "{scenario}: {result}");
        });
        assert!(tokens <= requests, "{scenario}: {tokens} tokens");
    }
}

#[test]
fn row_60_trickled_frames_meet_the_head_timeout() {
    let gateway = gateway("[server.limits]\nhead_timeout = \"1s\"", DEMO);
    for scenario in ["trickled_head", "trickled_settings", "trickled_continuations"] {
        let result = http2_abuse(scenario, gateway.address.port());
        assert_eq!(result["complete"], false, "{scenario}: {result}");
    }
    let reason = [("reason", "head_timeout")];
    eventually("the connections to be counted", || {
        (gateway.count("tollgate_connections_rejected_total", &reason) >= 2).then_some(())
    });
}

#[test]
fn row_60_every_stream_takes_its_tokens_whatever_follows() {
    let upstream = Upstream::responding("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nfirst");
    let gateway = counting("write_timeout = \"2s\"", &upstream);
    let abuse = |scenario| http2_abuse(scenario, gateway.address.port());
    let resets = tokens_of(&gateway, || {
        let result = abuse("slow_resets");
        assert_eq!((&result["complete"], &result["sent"]), (&true.into(), &60.into()), "{result}");
    });
    assert_eq!(resets, 60);
    // 200 of 300 exceed the limit of a connection: the gateway refuses them itself.
    let bodies = tokens_of(&gateway, || {
        let result = abuse("too_many_streams");
        assert_eq!(result["resets"]["7"], 200, "{result}");
    });
    assert_eq!(bodies, 100);
    let unread = tokens_of(&gateway, || {
        let result = abuse("zero_windows");
        assert_eq!(result["complete"], true, "{result}");
    });
    assert_eq!(unread, 50);
    let mismatched = tokens_of(&gateway, || {
        let result = abuse("length_mismatch");
        assert_eq!(result["responses"], 0, "{result}");
    });
    assert!(mismatched <= 10, "{mismatched}");
    let trailers = tokens_of(&gateway, || drop(abuse("pseudo_trailers")));
    assert_eq!(trailers, 10);
    let flood = tokens_of(&gateway, || drop(abuse("rapid_reset")));
    let seen = upstream.requests();
    let tokens = resets + bodies + unread + mismatched + trailers + flood;
    let others = seen.iter().filter(|seen| !seen.line().contains("/last")).count() as u64;
    assert!(others <= tokens, "{others} requests arrived, {tokens} tokens were taken");
    assert!(!seen.iter().any(|seen| seen.head.contains("smuggled")), "{seen:#?}");
    let (_, peak) = gateway.memory_bytes();
    assert!(peak < MAX_BYTES, "{peak} bytes at the peak");
    // A request that its client gives up is not a failure of the gateway.
    assert!(!gateway.log().contains("request failed"), "{}", gateway.log());
}
