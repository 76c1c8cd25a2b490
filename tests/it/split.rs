//! Routes with several upstreams by weight (`docs/canary.md`).

use std::net::Ipv4Addr;

use crate::support::{
    ClosedPort, Connection, Gateway, PeerServer, Request, Upstream, eventually, key, send_many,
};

const OK: &str = "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n";

/// A route to two upstreams, with these settings.
fn config(api: &str, canary: &str, settings: &str) -> String {
    format!(
        "[plans.free]\n[upstreams.api]\nservers = [\"{api}\"]\n[upstreams.canary]\n\
         servers = [\"{canary}\"]\n[routes.all]\n{settings}\n"
    )
}

/// Number of responses of an upstream, by the metrics.
fn answers(gateway: &Gateway, upstream: &str) -> u64 {
    let labels = [("upstream", upstream), ("result", "2xx")];
    gateway.count("tollgate_upstream_results_total", &labels)
}

/// Also from many connections at a time.
#[test]
fn requests_are_spread_within_two_percent() {
    let (api, canary) = (Upstream::responding(OK), Upstream::responding(OK));
    let settings = "split = { api = 90, canary = 10 }";
    let file = config(&api.address.to_string(), &canary.address.to_string(), settings);
    let gateway = Gateway::start(&file);
    let url = gateway.url("/");
    let statuses = send_many(1_000, |client, _| client.get(&url));
    assert_eq!(statuses.into_iter().collect::<Vec<_>>(), [(200, 1_000)]);
    let (to_api, to_canary) = (api.requests().len() as u64, canary.requests().len() as u64);
    assert_eq!(to_api + to_canary, 1_000);
    assert!(to_canary.abs_diff(100) <= 2, "{to_canary} of 1000");
    assert_eq!((answers(&gateway, "api"), answers(&gateway, "canary")), (to_api, to_canary));
}

#[test]
fn limits_count_the_requests_to_both_upstreams() {
    let (api, canary) = (Upstream::responding(OK), Upstream::responding(OK));
    let settings =
        "path = \"/*\"\nsplit = { api = 1, canary = 1 }\n[rules.r]\nper = []\nrate = \"2/d\"";
    let file = config(&api.address.to_string(), &canary.address.to_string(), settings);
    let gateway = Gateway::start(&file);
    let statuses: Vec<u16> = (0..4).map(|_| gateway.get("/").status).collect();
    assert_eq!(statuses, [200, 200, 429, 429]);
    assert_eq!((api.requests().len(), canary.requests().len()), (1, 1));
}

/// Which upstream each of 64 addresses gets: whether it is the canary.
fn by_address(gateway: &Gateway, canary: &Upstream) -> Vec<bool> {
    let each = (1..=64).map(|last| {
        let before = canary.requests().len();
        for _ in 0..3 {
            let mut connection =
                Connection::open_from(Ipv4Addr::new(127, 0, 1, last), gateway.address);
            assert_eq!(connection.send(&Request::get("/")).status, 200);
        }
        let more = canary.requests().len() - before;
        assert!(more == 0 || more == 3, "{more} of 3 requests of one client");
        more == 3
    });
    each.collect()
}

#[test]
fn client_keeps_its_upstream_and_a_raised_weight_moves_none_back() {
    let (api, canary) = (Upstream::responding(OK), Upstream::responding(OK));
    let with = |weights: &str| {
        let settings = format!("split = {weights}\nsplit_by = \"client\"");
        config(&api.address.to_string(), &canary.address.to_string(), &settings)
    };
    let gateway = Gateway::start(&with("{ api = 75, canary = 25 }"));
    let quarter = by_address(&gateway, &canary);
    assert_eq!(by_address(&gateway, &canary), quarter);
    gateway.apply(&with("{ api = 75, canary = 75 }"));
    let half = by_address(&gateway, &canary);
    assert!(quarter.iter().zip(&half).all(|(before, after)| *after || !before));
    let counts = [&quarter, &half].map(|some| some.iter().filter(|is| **is).count());
    assert!((6..=26).contains(&counts[0]) && (20..=44).contains(&counts[1]), "{counts:?}");
    // Another process selects the same.
    let other = Gateway::start(&with("{ api = 75, canary = 25 }"));
    assert_eq!(by_address(&other, &canary), quarter);
}

#[test]
fn explanation_names_the_upstream_that_the_client_gets() {
    let (api, canary) = (Upstream::responding(OK), Upstream::responding(OK));
    let keys: String =
        (0..12).map(|n| key(&format!("k{n}"), format!("secret {n}"), "free")).collect();
    let settings = format!("split = {{ api = 50, canary = 50 }}\nsplit_by = \"client\"\n{keys}");
    let file = config(&api.address.to_string(), &canary.address.to_string(), &settings);
    let gateway = Gateway::start(&file);
    let mut chosen = Vec::new();
    for n in 0..12 {
        let explained = gateway.explain(format!("{{\"key_id\": \"k{n}\"}}")).json();
        let before = canary.requests().len();
        let request = Request::get("/").header("X-Api-Key", format!("secret {n}"));
        assert_eq!(gateway.send(&request).status, 200);
        let is_canary = canary.requests().len() > before;
        let expected = if is_canary { "canary" } else { "api" };
        assert_eq!(explained["route"]["upstream"], expected, "{explained}");
        chosen.push(is_canary);
    }
    assert!(chosen.contains(&true) && chosen.contains(&false), "{chosen:?}");
    let policy = gateway.admin("/api/policy").json();
    let route = &policy["routes"][0];
    assert_eq!((&route["upstream"], &route["split_by"]), (&"".into(), &"client".into()));
    assert_eq!(route["split"][1], serde_json::json!({ "upstream": "canary", "weight": 50 }));
}

#[test]
fn upstreams_have_their_own_protocol_and_the_log_names_them() {
    let (http1, http2) = (Upstream::responding(OK), PeerServer::node(None));
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("access.log");
    let settings = format!(
        "split = {{ api = 1, canary = 1 }}\n[access_log]\noutput = {log:?}\nfields = [\"upstream\", \"server\"]"
    );
    let file = config(&http1.address.to_string(), &http2.address.to_string(), &settings);
    let file = file.replace("[routes.all]", "protocol = \"h2c\"\n[routes.all]");
    let gateway = Gateway::start(&file);
    assert!((0..10).all(|_| gateway.get("/").status == 200));
    assert_eq!((answers(&gateway, "api"), answers(&gateway, "canary")), (5, 5));
    assert_eq!(http1.requests().len(), 5);
    let line =
        |upstream, server| format!("{{\"upstream\":\"{upstream}\",\"server\":\"{server}\"}}");
    let expected =
        [line("api", http1.address.to_string()), line("canary", http2.address.to_string())];
    eventually("the access log has all requests", || {
        let log = std::fs::read_to_string(&log).ok()?;
        let counts = expected.each_ref().map(|line| log.matches(line.as_str()).count());
        (counts == [5, 5]).then_some(())
    });
}

/// A retry goes to another server of the same upstream, not to the other upstream.
#[test]
fn upstream_that_fails_is_not_replaced_by_the_other() {
    let (api, closed) = (Upstream::responding(OK), ClosedPort::bind());
    let settings = "split = { api = 1, canary = 1 }";
    let file = config(&api.address.to_string(), &closed.address.to_string(), settings);
    let gateway = Gateway::start(&file);
    let mut statuses: Vec<u16> = (0..10).map(|_| gateway.get("/").status).collect();
    statuses.sort_unstable();
    assert_eq!(statuses, [200, 200, 200, 200, 200, 502, 502, 502, 502, 502]);
}
