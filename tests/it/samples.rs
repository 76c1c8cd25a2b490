//! Samples: one outcome per request, and totals that agree with each other.

use std::io::Write as _;

use serde_json::{Value, json};

use crate::support::{
    ClosedPort, Connection, DEMO, Gateway, Latch, Request, Upstream, eventually, full_config, key,
    tollgate,
};

/// Routes of a good, a failing, a silent and an unreachable upstream, a limited route, and one that
/// needs Redis, which is down.
fn config(redis: &ClosedPort, [bad, silent, closed]: [std::net::SocketAddr; 3]) -> String {
    let upstream = |name: &str, address| {
        format!(
            "[upstreams.{name}]\nservers = [\"{address}\"]\n\
             [routes.{name}]\npath = \"/{name}\"\nupstream = \"{name}\"\n"
        )
    };
    let url = redis.address;
    let routes = "[routes.limited]\npath = \"/limited\"\nupstream = \"api\"\n\
        [routes.strict]\npath = \"/strict\"\nupstream = \"api\"\n";
    let rules = "[rules.few]\nper = []\nroutes = [\"limited\"]\nrate = \"2/d\"\n\
        [rules.fewer]\nper = [\"ip\"]\nroutes = [\"limited\"]\nrate = \"2/d\"\n\
        [rules.strict]\nper = []\nroutes = [\"strict\"]\nrate = \"9/d\"\non_failure = \"deny\"\n\
        [rules.trial]\nper = []\nroutes = [\"all\"]\nrate = \"1/d\"\nmode = \"shadow\"\n";
    let redis = format!("[redis]\nurl = \"redis://{url}\"\nstart_without = \"full\"\n");
    [
        DEMO.to_owned(),
        "[plans.pro]\n".to_owned(),
        routes.to_owned(),
        upstream("bad", bad),
        upstream("silent", silent),
        upstream("closed", closed),
        rules.to_owned(),
        redis,
        key("acme", "secret", "pro"),
    ]
    .concat()
}

/// The sum of a member over rows.
fn sum(rows: &Value, member: &str) -> u64 {
    let rows = rows.as_object().unwrap().values();
    rows.map(|row| if member.is_empty() { row } else { &row[member] }.as_u64().unwrap()).sum()
}

const OUTCOMES: [&str; 5] = ["allowed", "refused", "unavailable", "unauthorized", "rejected"];

fn all(outcomes: &Value) -> u64 {
    OUTCOMES.iter().map(|outcome| outcomes[outcome].as_u64().unwrap()).sum()
}

/// Asserts that the totals of a sample agree, and returns the number of its requests.
fn assert_totals_agree(sample: &Value) -> u64 {
    let requests = &sample["requests"];
    let total = all(requests);
    for outcome in OUTCOMES {
        assert_eq!(sum(&sample["plans"], outcome), requests[outcome], "{outcome}: {sample:#}");
    }
    assert_eq!(sum(&sample["rules"], "refused"), requests["refused"], "{sample:#}");
    assert_eq!(sum(&sample["routes"], "requests"), total, "{sample:#}");
    assert_eq!(sum(&sample["statuses"], ""), total, "{sample:#}");
    let errors = sample["statuses"]["5xx"].as_u64().unwrap_or_default();
    assert_eq!(sum(&sample["routes"], "errors"), errors, "{sample:#}");
    total
}

/// Adds up the members of samples that are counts.
fn add(sums: &mut Value, sample: &Value) {
    match (sums, sample) {
        (Value::Object(sums), Value::Object(rows)) => {
            for (name, value) in rows {
                add(sums.entry(name).or_insert(Value::Null), value);
            }
        }
        (sums, Value::Object(_)) if sums.is_null() => {
            *sums = json!({});
            add(sums, sample);
        }
        (sums, Value::Number(count)) if count.is_u64() => {
            *sums = json!(sums.as_u64().unwrap_or_default() + count.as_u64().unwrap());
        }
        _ => {}
    }
}

/// Samples of `GET /api/samples`, once they have that many requests.
fn samples(gateway: &Gateway, query: &str, total: u64) -> (Value, Value) {
    eventually("all requests in samples", || {
        let answer = gateway.admin(&format!("/api/samples{query}"));
        assert_eq!(answer.status, 200, "{}", answer.text());
        let answer = answer.json();
        let mut sums = Value::Null;
        let mut counted = 0;
        for sample in answer["samples"].as_array().unwrap() {
            counted += assert_totals_agree(sample);
            add(&mut sums, sample);
        }
        assert!(counted <= total, "{sums:#}");
        (counted == total).then_some((answer, sums))
    })
}

#[test]
fn every_request_has_one_outcome_and_totals_agree() {
    let bad = Upstream::responding("HTTP/1.1 503 Busy\r\nContent-Length: 2\r\n\r\nno");
    let latch = Latch::default();
    let silent = Upstream::start({
        let latch = latch.clone();
        move |_, stream| {
            latch.wait();
            stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n").is_ok()
        }
    });
    let (redis, closed) = (ClosedPort::bind(), ClosedPort::bind());
    let gateway = Gateway::start(&config(&redis, [bad.address, silent.address, closed.address]));
    let acme = |path: &str| Request::get(path).header("X-Api-Key", "secret");
    let long = format!("/{}", "x".repeat(20_000));
    let table = [
        (acme("/"), 200),
        (Request::get("/"), 200),
        (acme("/limited"), 200),
        (acme("/limited"), 200),
        (acme("/limited"), 429),
        (Request::get("/limited"), 429),
        (acme("/strict"), 503),
        (Request::get("/").header("X-Api-Key", "unknown"), 401),
        (Request::get("/a/../b"), 400),
        (Request::get(&long), 414),
        (Request::new("TRACE", "/"), 405),
        (acme("/bad"), 503),
        (acme("/closed"), 502),
    ];
    for (request, status) in &table {
        assert_eq!(gateway.send(request).status, *status, "{request:?}");
    }
    let mut client = Connection::open(gateway.address);
    client.write(b"GET /silent HTTP/1.1\r\nHost: a\r\n\r\n");
    silent.wait_for_requests(1);
    drop(client);
    let total = table.len() as u64 + 1;
    let (answer, sums) = samples(&gateway, "?from=1h", total);
    latch.open();
    assert_eq!(answer["step_ms"], 1_000);
    let expected =
        json!({"allowed": 7, "refused": 2, "unavailable": 1, "unauthorized": 1, "rejected": 3});
    assert_eq!(sums["requests"], expected);
    let statuses = json!({"2xx": 4, "4xx": 6, "5xx": 3, "none": 1});
    assert_eq!(sums["statuses"], statuses);
    assert_eq!(sums["plans"][""]["rejected"], 1);
    // Both rules refuse both requests; each request counts for one of them.
    let rules = &sums["rules"];
    assert_eq!(sum(rules, "refused"), 2, "{rules:#}");
    assert_eq!(rules["trial"]["shadow_refused"], 1, "{rules:#}");
    assert_eq!(rules["strict"], Value::Null);
    assert_routes_and_upstreams(&answer, &sums);
    assert_metrics(&gateway, total);
    assert_top(&gateway);
    assert_eq!(answer["total"]["requests"], expected);
    assert!(answer["total"]["latency"]["p99_ms"].is_number());
}

fn assert_routes_and_upstreams(answer: &Value, sums: &Value) {
    let routes = &sums["routes"];
    assert_eq!(routes["bad"]["errors"], 1);
    assert_eq!(
        (&routes["closed"]["requests"], &routes["closed"]["errors"]),
        (&json!(1), &json!(1))
    );
    assert_eq!(routes["strict"]["errors"], 1);
    let upstreams = &sums["upstreams"];
    let row = |name: &str| ["requests", "errors", "failures"].map(|of| upstreams[name][of].clone());
    assert_eq!(row("bad"), [json!(1), json!(1), json!(0)]);
    // A failed connection is retried once.
    assert_eq!(row("closed"), [json!(2), json!(0), json!(2)]);
    let latency = |rows: &str, name: &str| {
        let rows = answer["samples"].as_array().unwrap().iter().map(|sample| &sample[rows][name]);
        rows.filter(|row| row["p99_ms"].is_number()).count()
    };
    assert!(latency("routes", "all") > 0 && latency("upstreams", "bad") > 0);
    assert_eq!(latency("upstreams", "closed"), 0);
}

/// The same counts in `/metrics`.
fn assert_metrics(gateway: &Gateway, total: u64) {
    assert_eq!(gateway.count("tollgate_requests_total", &[]), total);
    assert_eq!(gateway.count("tollgate_requests_total", &[("status", "")]), 1);
    assert_eq!(gateway.count("tollgate_refused_total", &[]), 2);
    assert_eq!(gateway.count("tollgate_gateways", &[]), 1);
    let reasons = [
        ("limited", 2),
        ("redis_unavailable", 1),
        ("unknown_key", 1),
        ("dot_segment", 1),
        ("uri_too_long", 1),
        ("method_not_allowed", 1),
        ("upstream_connect", 1),
        ("client_closed", 1),
        ("no_route", 0),
    ];
    for (reason, expected) in reasons {
        let count = gateway.count("tollgate_rejections_total", &[("reason", reason)]);
        assert_eq!(count, expected, "{reason}");
    }
    assert_eq!(gateway.count("tollgate_rejections_total", &[]), 9);
}

/// The same requests in `top --once`.
fn assert_top(gateway: &Gateway) {
    let top = tollgate(&["top", "--once", "--admin", &gateway.admin.to_string()], "");
    for row in ["; in flight 0\n", "key acme", "limited", "LATEST REFUSALS", "time zone  "] {
        assert!(top.stdout.contains(row), "{row}: {}", top.stdout);
    }
}

#[test]
fn samples_of_a_range_name_the_time_zone() {
    let zoned = |zone: &str| {
        Gateway::start_with(&full_config(DEMO), |command| {
            command.env("TZ", zone);
        })
    };
    let berlin = zoned("Europe/Berlin");
    berlin.get("/");
    let (answer, _) = samples(&berlin, "", 1);
    assert_eq!(answer["time_zone"], "Europe/Berlin");
    let offset = answer["utc_offset_s"].as_u64().unwrap();
    assert!(offset == 3_600 || offset == 7_200, "{offset}");
    let millis = |member: &str| answer[member].as_u64().unwrap();
    assert_eq!(millis("to_ms") - millis("from_ms"), 300_000);
    assert_eq!(zoned("UTC").admin("/api/samples").json()["utc_offset_s"], 0);
}

#[test]
fn malformed_range_is_400() {
    let gateway = Gateway::start(DEMO);
    for (query, expected) in [
        ("?from=yesterday", "`from` must be a time"),
        ("?to=now", "`to` must be a time"),
        ("?from=1m&to=2m", "`from` is after `to`"),
        ("?begin=1m", "unknown name `begin`"),
        ("?from=1m&from=2m", "given twice"),
    ] {
        let answer = gateway.admin(&format!("/api/samples{query}"));
        assert_eq!(answer.status, 400, "{query}");
        assert!(answer.text().contains(expected), "{query}: {}", answer.text());
    }
    assert_eq!(gateway.admin("/api/samples?from=1000d").status, 200);
    assert_eq!(gateway.admin("/api/samples?from=1m&to=1m").json()["samples"], json!([]));
}

#[test]
fn gateways_is_1_without_redis() {
    assert_eq!(Gateway::start(DEMO).count("tollgate_gateways", &[]), 1);
}
