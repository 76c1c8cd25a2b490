//! Usage of quotas in Redis, of all gateways that share it: what `GET /api/usage` lists after a
//! crash, a reset, an outage and the end of a period.

use std::time::Duration;

use serde_json::Value;

use crate::shared::{as_documented_user, documented_rights};
use crate::support::{
    CpuWaits, DEMO, FaultProxy, Gateway, Mode, Redis, Request, Stopwatch, WallClock, eventually,
    full_config, inconclusive_if_stalled, keep_clear_of_midnight, key, sleep_for, timed_below,
    within,
};

/// Two quotas and a bucket, and two clients with a key.
fn config(redis: &str, limit: &str) -> String {
    format!(
        "{DEMO}{redis}\n[rules.quota]\nper = [\"key\"]\nkind = \"fixed_window\"\nlimit = \"{limit}\"\n\
         [rules.each]\nper = [\"ip\"]\nkind = \"fixed_window\"\nlimit = \"100000/year\"\n\
         [rules.bucket]\nper = [\"ip\"]\nrate = \"100000/s\"\n{}{}",
        key("acme", "secret", "free"),
        key("other", "hidden", "free"),
    )
}

fn request() -> Request {
    Request::get("/").header("X-Api-Key", "secret")
}

/// Sends requests that pass.
fn send(gateway: &Gateway, count: usize) {
    let mut client = gateway.connect();
    for _ in 0..count {
        let response = client.send(&request());
        assert_eq!(response.status, 200, "{}", response.text());
    }
}

/// Number of requests that pass, of `count`.
fn passed(gateway: &Gateway, count: usize) -> usize {
    (0..count).filter(|_| gateway.send(&request()).status == 200).count()
}

fn connected(gateway: &Gateway) {
    eventually("a connection to Redis", || {
        let connected = gateway.log().contains("connected to Redis");
        (connected && gateway.count("tollgate_breaker_state", &[]) == 0).then_some(())
    });
}

fn start(config: &str) -> Gateway {
    let gateway = Gateway::start(config);
    connected(&gateway);
    gateway
}

/// The entries of all pages; `None` if usage cannot be read.
fn entries(gateway: &Gateway, query: &str) -> Option<Vec<Value>> {
    let (mut found, mut cursor) = (Vec::new(), String::new());
    loop {
        let answer = gateway.admin(&format!("/api/usage?{query}{cursor}"));
        if answer.status != 200 {
            return None;
        }
        let page = answer.json();
        assert_eq!(page["source"], "redis");
        found.extend(page["entries"].as_array().unwrap().iter().cloned());
        let Some(next) = page["next"].as_str() else { return Some(found) };
        cursor = format!("&cursor={next}");
    }
}

/// What clients used of the rule `quota`, by the client's name and the beginning of the period.
fn used(gateway: &Gateway, query: &str) -> Option<Vec<(String, f64)>> {
    let entries = entries(gateway, &format!("rule=quota&{query}"))?;
    let one = |entry: &Value| {
        (entry["client"].as_str().unwrap().to_owned(), entry["used"].as_f64().unwrap())
    };
    Some(entries.iter().map(one).collect())
}

/// Waits until `acme` used these numbers of `quota`, by period.
fn wait_for_used(gateway: &Gateway, query: &str, expected: &[f64]) {
    let mut last = None;
    let found = within(Duration::from_secs(20), || {
        last = used(gateway, &format!("key=acme&{query}"));
        let numbers: Vec<f64> = last.iter().flatten().map(|(_, used)| *used).collect();
        (last.is_some() && numbers == expected).then_some(())
    });
    assert!(found.is_some(), "{last:?} instead of {expected:?}: {}", gateway.log());
}

fn summary(entry: &Value) -> String {
    let text = |name: &str| entry[name].as_str().unwrap().to_owned();
    let used = entry["used"].as_f64().unwrap();
    let (rule, kind, client) = (text("rule"), text("client_kind"), text("client"));
    format!("{rule} {kind} {client} {} {used} of {}", text("plan"), entry["limit"])
}

#[test]
fn every_gateway_lists_what_each_client_used_at_all_of_them() {
    keep_clear_of_midnight();
    let redis = Redis::start();
    let text = config(&redis.table(), "100/month");
    let gateways: [Gateway; 2] = std::array::from_fn(|_| start(&text));
    let [first, second] = &gateways;
    send(first, 3);
    send(second, 4);
    let other = Request::get("/").header("X-Api-Key", "hidden");
    assert_eq!(second.send(&other).status, 200);
    assert_eq!(first.get("/").status, 200);
    let expected = [
        "each ip 127.0.0.1 free 9 of 100000",
        // Without a key, a client is counted by its address.
        "quota ip 127.0.0.1 free 1 of 100",
        "quota key acme free 7 of 100",
        "quota key other free 1 of 100",
    ];
    for gateway in &gateways {
        for query in ["", "period=all", "limit=1", "limit=3&period=all"] {
            let mut last = Vec::new();
            let found = within(Duration::from_secs(20), || {
                last = entries(gateway, query)?.iter().map(summary).collect();
                last.sort();
                (last == expected).then_some(())
            });
            assert!(found.is_some(), "{query}: {last:#?}");
        }
        let of = |query: &str| entries(gateway, query).unwrap().len();
        assert_eq!(of("key=acme"), 1);
        assert_eq!(of("ip=127.0.0.1"), 2);
        assert_eq!(of("rule=quota"), 3);
        assert_eq!(of("key=none"), 0);
        assert_eq!(of("period=2020-01-01T00:00:00Z"), 0);
        assert_eq!(gateway.admin("/api/usage?cursor=1-2").status, 400);
    }
    // The CSV has the same entries.
    let json = first.admin("/api/usage").json();
    let csv = first.admin("/api/usage?format=csv").text();
    let rows: Vec<Vec<&str>> = csv.lines().map(|line| line.split(',').collect()).collect();
    let columns = &rows[0];
    let json = json["entries"].as_array().unwrap();
    assert_eq!(rows.len(), json.len() + 1);
    for (row, entry) in rows[1..].iter().zip(json) {
        for (column, value) in columns.iter().zip(row) {
            let expected = match &entry[*column] {
                Value::String(text) => text.clone(),
                other => other.to_string(),
            };
            assert_eq!(*value, expected, "{column}");
        }
    }
    // Keys are below the prefix, expire, and hold no secret.
    let keys: Vec<String> = redis.query(&["KEYS", "*"]);
    let records: Vec<&String> =
        keys.iter().filter(|key| key.starts_with("tollgate:usage:")).collect();
    assert!((2..=4).contains(&records.len()), "{keys:?}");
    assert!(keys.iter().all(|key| key.starts_with("tollgate:")), "{keys:?}");
    for key in records {
        let left_ms: i64 = redis.query(&["PTTL", key]);
        assert!(left_ms > 100 * 86_400_000, "{key}: {left_ms} ms");
        let all: Vec<Vec<u8>> = redis.query(&["HGETALL", key]);
        let text = String::from_utf8_lossy(&all.concat()).into_owned();
        assert!(!text.contains("secret") && !text.contains("hidden"), "{text}");
    }
}

/// The bound of a crash: at most a second of requests is missing, and only until the client's next
/// request at any gateway.
#[test]
fn crash_hides_at_most_a_second_until_the_next_request() {
    let redis = Redis::start();
    let text = config(&redis.table(), "100000/year");
    let survivor = start(&text);
    let mut total = 0;
    for _ in 0..3 {
        let gateway = start(&text);
        send(&gateway, 100);
        let before = total + 100;
        timed_below(Duration::from_secs(1), || {
            wait_for_used(&survivor, "", &[f64::from(before)]);
        });
        send(&gateway, 50);
        total = before + 50;
        // SIGKILL.
        drop(gateway);
        let listed = used(&survivor, "key=acme").unwrap();
        let listed = listed.first().map_or(0.0, |(_, used)| *used);
        assert!(
            (f64::from(before)..=f64::from(total)).contains(&listed),
            "{before} {listed} {total}"
        );
        send(&survivor, 1);
        total += 1;
        wait_for_used(&survivor, "", &[f64::from(total)]);
    }
}

#[test]
fn requests_before_the_end_of_the_process_are_written() {
    let redis = Redis::start();
    let text = config(&redis.table(), "100/year");
    let survivor = start(&text);
    let mut gateway = start(&text);
    send(&gateway, 7);
    gateway.terminate();
    assert_eq!(gateway.exit().0, Some(0), "{}", gateway.log());
    assert_eq!(used(&survivor, "key=acme"), Some(vec![("acme".to_owned(), 7.0)]));
}

#[test]
fn upgrade_keeps_what_both_processes_counted() {
    let redis = Redis::start();
    let gateway = start(&config(&redis.table(), "100/year"));
    for round in 1..=2 {
        send(&gateway, 5);
        let upgrade = gateway.send_admin(&Request::new("POST", "/api/upgrade"));
        assert_eq!(upgrade.status, 200, "{}", upgrade.text());
        send(&gateway, 5);
        wait_for_used(&gateway, "", &[10.0 * f64::from(round)]);
    }
    assert!(!gateway.log().contains("usage cannot be written"), "{}", gateway.log());
}

/// Redis that does not respond delays no request by the writing of usage.
#[test]
fn slow_redis_delays_only_the_list() {
    let redis = Redis::start();
    let proxy = FaultProxy::start(&redis);
    let table = format!("{}{BREAKER}", proxy.table("200ms"));
    let text = format!("instances = 2\n{}", config(&table, "1000/year"));
    let gateways = [start(&text)];
    let [gateway] = &gateways;
    send(gateway, 10);
    proxy.set(Mode::Hang);
    // Until the breaker is open, a check waits for its timeout.
    assert_eq!(passed(gateway, 20), 20);
    wait_for_breaker(&gateways, 2);
    timed_below(Duration::from_secs(2), || assert_eq!(passed(gateway, 200), 200));
    assert_eq!(gateway.admin("/api/usage").status, 503);
    proxy.set(Mode::Pass);
    wait_for_breaker(&gateways, 0);
    // Checks that Redis ran after their timeout are counted twice.
    eventually("all requests", || {
        let used = used(gateway, "key=acme")?.first()?.1;
        (230.0..=250.0).contains(&used).then_some(())
    });
}

#[test]
fn reset_by_an_operator_at_another_gateway_lowers_what_is_used() {
    let redis = Redis::start();
    let text = config(&redis.table(), "100/year");
    let gateways: [Gateway; 2] = std::array::from_fn(|_| start(&text));
    let [first, second] = &gateways;
    send(first, 30);
    wait_for_used(second, "", &[30.0]);
    // Not written yet when the reset is.
    send(first, 1);
    let reset = Request::new("POST", "/api/clients/key/acme/reset").body(r#"{"rule": "quota"}"#);
    assert_eq!(second.send_admin(&reset).status, 200);
    wait_for_used(first, "", &[0.0]);
    // The write of the first gateway arrives after it at the latest.
    sleep_for(Duration::from_millis(1_100));
    wait_for_used(first, "", &[0.0]);
    send(first, 5);
    wait_for_used(second, "", &[5.0]);
    let grant = Request::new("POST", "/api/clients/key/acme/grant");
    let grant = grant.body(r#"{"rule": "quota", "tokens": 3}"#);
    assert_eq!(first.send_admin(&grant).status, 200);
    wait_for_used(second, "", &[2.0]);
}

const BREAKER: &str =
    "\n[redis.breaker]\nopen = \"100ms\"\nopen_max = \"500ms\"\nramp_step = \"100ms\"\n";

fn wait_for_breaker(gateways: &[Gateway], state: u64) {
    for gateway in gateways {
        eventually("the breaker", || {
            (gateway.count("tollgate_breaker_state", &[]) == state).then_some(())
        });
    }
}

#[test]
fn outage_is_in_the_records_without_another_request() {
    let redis = Redis::start();
    let proxy = FaultProxy::start(&redis);
    // Checks that time out on a busy machine would be counted twice.
    let table = format!("{}{BREAKER}", proxy.table("1s"));
    let text = format!("instances = 2\n{}", config(&table, "100/year"));
    let gateways: [Gateway; 2] = std::array::from_fn(|_| start(&text));
    let [first, second] = &gateways;
    send(first, 10);
    wait_for_used(second, "", &[10.0]);
    // Noted, and not written when Redis is lost.
    send(first, 2);
    proxy.set(Mode::Refuse);
    wait_for_breaker(&gateways, 2);
    let local = [passed(first, 20), passed(second, 30)];
    assert_eq!(local, [20, 30]);
    for gateway in &gateways {
        eventually("usage that is not written", || {
            (gateway.count("tollgate_usage_unwritten", &[]) > 0).then_some(())
        });
    }
    let refused = first.admin("/api/usage");
    assert_eq!(refused.status, 503, "{}", refused.text());
    assert_eq!(refused.header("content-type"), Some("application/problem+json"));
    assert!(refused.text().contains("usage is in Redis, which cannot be read now"));
    proxy.set(Mode::Pass);
    wait_for_breaker(&gateways, 0);
    for gateway in &gateways {
        wait_for_used(gateway, "", &[62.0]);
        eventually("everything to be written", || {
            (gateway.count("tollgate_usage_unwritten", &[]) == 0).then_some(())
        });
        assert_eq!(gateway.count("tollgate_usage_dropped_total", &[]), 0);
    }
    assert!(first.count("tollgate_usage_writes_total", &[("result", "ok")]) > 0);
}

#[test]
fn usage_that_cannot_be_written_is_kept_and_said() {
    let redis = Redis::start();
    let text = config(&redis.table(), "100/year");
    let gateway = start(&text);
    send(&gateway, 3);
    wait_for_used(&gateway, "", &[3.0]);
    redis.query::<String>(&["ACL", "SETUSER", "default", "-hset"]);
    send(&gateway, 4);
    eventually("a failed write", || {
        let failed = gateway.count("tollgate_usage_writes_total", &[("result", "error")]);
        let unwritten = gateway.count("tollgate_usage_unwritten", &[]);
        (failed > 0 && unwritten > 0).then_some(())
    });
    // It is logged after it is counted.
    let failed = "usage cannot be written to Redis";
    let log = eventually(failed, || Some(gateway.log()).filter(|log| log.contains(failed)));
    assert!(log.contains("needs `+hget +hset +hdel +hincrby +hscan +pexpire`"), "{log}");
    // Requests are limited as before.
    assert_eq!(gateway.count("tollgate_breaker_state", &[]), 0);
    redis.query::<String>(&["ACL", "SETUSER", "default", "-hscan"]);
    let refused = gateway.admin("/api/usage");
    assert_eq!(refused.status, 503);
    assert!(refused.text().contains("+hscan"), "{}", refused.text());
    redis.query::<String>(&["ACL", "SETUSER", "default", "+hset", "+hscan"]);
    wait_for_used(&gateway, "", &[7.0]);
    gateway.wait_for_count("tollgate_usage_unwritten", &[], 0);
    eventually("the end in the log", || {
        gateway.log().contains("usage is written to Redis again").then_some(())
    });
}

#[test]
fn end_of_missing_rights_for_heartbeats_and_the_stream_is_logged() {
    let redis = Redis::start();
    redis.query::<String>(&["ACL", "SETUSER", "default", "-zadd", "-xadd"]);
    let stream = "[audit]\nstream = true\n";
    let gateway = start(&format!("{}{stream}", config(&redis.table(), "1/year")));
    let has = |words: &str| {
        eventually(words, || gateway.log().contains(words).then_some(()));
    };
    has("Redis does not count this gateway");
    assert!(!gateway.log().contains("Redis counts this gateway again"));
    send(&gateway, 1);
    let refuse = |words: &str| {
        assert_eq!(gateway.send(&request()).status, 429);
        // The record is written when the refusal run ends.
        within(Duration::from_secs(60), || gateway.log().contains(words).then_some(()))
            .unwrap_or_else(|| panic!("{words} in {}", gateway.log()));
    };
    refuse("Redis does not take refusals into");
    redis.query::<String>(&["ACL", "SETUSER", "default", "+zadd", "+xadd"]);
    refuse("Redis takes refusals into");
    has("Redis counts this gateway again");
}

#[test]
fn documented_acl_rights_suffice_for_usage() {
    let redis = Redis::start();
    redis.query::<String>(&documented_rights());
    let gateway = start(&config(&as_documented_user(&redis.table()), "100/year"));
    // A period that is not kept any more is removed.
    redis.query::<i64>(&["HSET", "tollgate:usage", "quota:1000000000-1000086400", "1"]);
    send(&gateway, 3);
    wait_for_used(&gateway, "period=all", &[3.0]);
    assert_eq!(redis.query::<i64>(&["HLEN", "tollgate:usage"]), 2);
    let reset = Request::new("POST", "/api/clients/key/acme/reset").body(r#"{"rule": "quota"}"#);
    assert_eq!(gateway.send_admin(&reset).status, 200);
    wait_for_used(&gateway, "", &[0.0]);
    assert_eq!(gateway.count("tollgate_usage_writes_total", &[("result", "error")]), 0);
}

/// A time a minute before the end of a day in UTC, as an offset from now, in seconds.
fn before_midnight() -> i64 {
    let second = jiff::Timestamp::now().as_second();
    86_400 - second % 86_400 - 60
}

#[test]
fn ended_periods_are_listed_until_they_are_not_kept() {
    // The real day can end meanwhile.
    let (clock, offset) = (WallClock::new(), before_midnight());
    clock.set(offset);
    let mut redis = Redis::stopped();
    redis.launch_with(|command| clock.apply_to(command));
    let text = full_config(&config(&redis.table(), "100/d"));
    let (began, waits) = (Stopwatch::start(), CpuWaits::now());
    let gateways: [Gateway; 2] =
        std::array::from_fn(|_| Gateway::start_with(&text, |command| clock.apply_to(command)));
    gateways.iter().for_each(connected);
    let [first, second] = &gateways;
    send(first, 3);
    send(second, 5);
    wait_for_used(first, "", &[8.0]);
    if began.elapsed().as_secs() > 50 {
        let finding = "the day ended before the requests were counted";
        return inconclusive_if_stalled(finding, waits.stall(), Duration::from_secs(10));
    }
    clock.set(offset + 7_200);
    // Gateways read the clock once a second.
    sleep_for(Duration::from_millis(1_500));
    send(second, 2);
    wait_for_used(first, "", &[2.0]);
    wait_for_used(first, "period=all", &[8.0, 2.0]);
    let entries = entries(second, "period=all&rule=quota").unwrap();
    assert_eq!(entries[0]["period_end"], entries[1]["period_start"]);
    let time = entries[0]["counted_at"].as_str().unwrap();
    wait_for_used(second, &format!("period={time}"), &[8.0]);
    // 99 days after its end, and 100 days.
    clock.set(offset + 99 * 86_400);
    wait_for_used(first, "period=all", &[8.0, 2.0]);
    clock.set(offset + 100 * 86_400 + 600);
    sleep_for(Duration::from_millis(1_500));
    wait_for_used(first, "period=all", &[2.0]);
    let old: Vec<String> = redis.query(&["KEYS", "tollgate:usage:quota:*"]);
    assert_eq!(old.len(), 1, "{old:?}");
}

/// Requests that are decided locally in a period that ends before Redis is back are in the record
/// of that period.
#[test]
fn outage_over_the_end_of_a_period_is_in_the_record_of_that_period() {
    const LEFT: Duration = Duration::from_secs(8);
    let (clock, began, waits) = (WallClock::new(), Stopwatch::start(), CpuWaits::now());
    clock.set(before_midnight() + 60 - LEFT.as_secs().cast_signed());
    let mut redis = Redis::stopped();
    redis.launch_with(|command| clock.apply_to(command));
    let proxy = FaultProxy::start(&redis);
    let table = format!("{}{BREAKER}", proxy.table("1s"));
    let text = full_config(&format!("instances = 2\n{}", config(&table, "100/d")));
    let gateways: [Gateway; 2] =
        std::array::from_fn(|_| Gateway::start_with(&text, |command| clock.apply_to(command)));
    gateways.iter().for_each(connected);
    let [first, second] = &gateways;
    send(first, 10);
    if began.elapsed() > LEFT / 2 {
        let finding = "the gateways took long to start: the day ends too soon";
        return inconclusive_if_stalled(finding, waits.stall(), LEFT / 8);
    }
    wait_for_used(second, "", &[10.0]);
    proxy.set(Mode::Refuse);
    wait_for_breaker(&gateways, 2);
    assert_eq!([passed(first, 5), passed(second, 7)], [5, 7]);
    let took = began.elapsed();
    // The clock was set by whole seconds.
    if took > LEFT.saturating_sub(Duration::from_secs(1)) {
        let finding = "the day ended before the requests were counted";
        return inconclusive_if_stalled(finding, waits.stall(), LEFT / 4);
    }
    sleep_for(LEFT.saturating_sub(took) + Duration::from_secs(3));
    // The next day, still without Redis.
    assert_eq!([passed(first, 2), passed(second, 1)], [2, 1]);
    proxy.set(Mode::Pass);
    wait_for_breaker(&gateways, 0);
    wait_for_used(first, "period=all", &[22.0, 3.0]);
    // Not a second time.
    send(first, 1);
    wait_for_used(second, "period=all", &[22.0, 4.0]);
}

#[test]
fn number_of_records_is_bounded() {
    let redis = Redis::start();
    let text = config(&redis.table(), "100000/year").replace("[\"key\"]", "[\"header:x-id\"]");
    let text = format!("{text}[usage]\nmax_records = 1000\n");
    let gateway = start(&text);
    let mut client = gateway.connect();
    let mut send = |ids: std::ops::Range<usize>| {
        for id in ids {
            let response = client.send(&request().header("X-Id", id.to_string()));
            assert_eq!(response.status, 200, "{}", response.text());
        }
    };
    let count = || entries(&gateway, "limit=10000").unwrap_or_default().len();
    // With the one of the rule `each`.
    send(0..999);
    eventually("all records", || (count() == 1_000).then_some(()));
    send(990..1_040);
    eventually("records without room", || {
        (gateway.count("tollgate_usage_dropped_total", &[]) >= 41).then_some(())
    });
    assert_eq!(count(), 1_000);
    // It is logged after it is counted.
    let full = "Redis has usage.max_records";
    eventually(full, || gateway.log().contains(full).then_some(()));
    // Known clients are counted on.
    let quotas = entries(&gateway, "rule=quota&limit=100").unwrap();
    let twice = quotas.iter().filter(|entry| entry["used"].as_f64() == Some(2.0)).count();
    assert_eq!((twice, quotas.len()), (9, 999));
    // The end is logged once there is room, also without further requests.
    let again = || gateway.log().matches("usage of new clients is written to Redis again").count();
    assert_eq!(again(), 0, "{}", gateway.log());
    gateway.save(&text.replace("max_records = 1000", "max_records = 2000"));
    eventually("the end in the log", || (again() == 1).then_some(()));
    send(1_040..1_050);
    eventually("the new records", || (count() == 1_010).then_some(()));
    assert_eq!(again(), 1, "{}", gateway.log());
}
