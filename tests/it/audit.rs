//! Refusal runs in the log and on the admin port, without secrets.

use serde_json::{Value, json};

use crate::support::{DEMO, Gateway, Request, eventually, key};

const SECRET: &str = "s3cr3t-7h4t-nob0dy-m4y-r34d";

/// The log lines about refusals.
fn refusal_lines(gateway: &Gateway) -> Vec<String> {
    let log = gateway.log();
    log.lines().filter(|line| line.contains("refused")).map(ToString::to_string).collect()
}

fn refuse(gateway: &Gateway, count: usize, request: &Request) {
    let mut client = gateway.connect();
    for _ in 0..=count {
        client.send(request);
    }
}

/// One request per hour and client.
const RULE: &str = "[rules.hourly]\nper = [\"key\"]\nrate = \"1/h\"\n";

#[test]
fn refusal_run_is_one_log_line() {
    let config = format!("{DEMO}{RULE}{}", key("acme", SECRET, "free"));
    let mut gateway = Gateway::start(&config);
    refuse(&gateway, 7, &Request::get("/").header("X-Api-Key", SECRET));
    refuse(&gateway, 3, &Request::get(&format!("/?other={SECRET}")));
    gateway.terminate();
    assert_eq!(gateway.exit().0, Some(0));
    let lines =
        eventually("both lines", || Some(refusal_lines(&gateway)).filter(|lines| lines.len() == 2));
    let of = |words: &[&str]| {
        let has_all = |line: &&String| words.iter().all(|word| line.contains(word));
        assert_eq!(lines.iter().filter(has_all).count(), 1, "{words:?} in {lines:?}");
    };
    of(&["rule=\"hourly\"", "plan=\"free\"", "key=\"acme\"", "count=7", "tokens=0"]);
    of(&["rule=\"hourly\"", "plan=\"free\"", "ip=\"127.0.0.1\"", "count=3", "tokens=0"]);
    assert!(!gateway.log().contains(SECRET), "{}", gateway.log());
}

#[test]
fn refusal_run_is_logged_soon_after_its_end() {
    let gateway = Gateway::start(&format!("{DEMO}{RULE}"));
    refuse(&gateway, 2, &Request::get("/"));
    let line = eventually("the line", || refusal_lines(&gateway).pop());
    assert!(line.contains("count=2"), "{line}");
}

#[test]
fn refusal_run_shows_addresses_as_client_ip_says() {
    for (wanted, shown) in [("hashed", "ip=\"h:"), ("off", "rule=")] {
        let table = format!("[access_log]\noutput = \"off\"\nclient_ip = \"{wanted}\"\n");
        let mut gateway = Gateway::start(&format!("{DEMO}{RULE}{table}"));
        refuse(&gateway, 1, &Request::get("/"));
        gateway.terminate();
        assert_eq!(gateway.exit().0, Some(0));
        let line = eventually("the line", || refusal_lines(&gateway).pop());
        assert!(line.contains(shown) && !line.contains("127.0.0.1"), "{line}");
    }
}

/// Response of `/api/audit`.
fn search(gateway: &Gateway, query: &str) -> Value {
    let answer = gateway.admin(&format!("/api/audit{query}"));
    assert_eq!(answer.status, 200, "{query}: {}", answer.text());
    answer.json()
}

/// Client, rule and count of each refusal run, the latest first.
fn summaries(gateway: &Gateway, query: &str) -> Vec<String> {
    let view = search(gateway, query);
    let bursts = view["refusal_runs"].as_array().unwrap().iter();
    let summaries = |burst: &Value| {
        let client = burst["key"].as_str().or(burst["ip"].as_str()).unwrap_or("unknown");
        format!("{client} {} {}", burst["rule"].as_str().unwrap(), burst["count"])
    };
    bursts.map(summaries).collect()
}

/// Waits for `count` refusals: each is recorded shortly after its response.
fn wait_for_refusals(gateway: &Gateway, count: u64) {
    eventually("all refusals", || {
        let view = search(gateway, "?limit=1000");
        let counts = view["refusal_runs"].as_array().unwrap().iter();
        let noted: u64 = counts.map(|burst| burst["count"].as_u64().unwrap()).sum();
        (noted == count).then_some(())
    });
}

/// Addresses come from `X-Forwarded-For`.
const TRUSTED_PROXY: &str = "trusted_proxies = [\"127.0.0.1\"]\n";

fn from(gateway: &Gateway, ip: &str, count: usize) {
    refuse(gateway, count, &Request::get("/").header("X-Forwarded-For", ip));
}

#[test]
fn refusal_runs_are_found_by_key_address_rule_and_time() {
    let config = format!("{TRUSTED_PROXY}{DEMO}{RULE}{}", key("acme", SECRET, "free"));
    let gateway = Gateway::start(&config);
    assert_eq!(search(&gateway, ""), json!({"refusal_runs": [], "more": 0, "dropped": 0}));
    refuse(&gateway, 7, &Request::get("/").header("X-Api-Key", SECRET));
    // Otherwise the order of the runs would be undefined.
    wait_for_refusals(&gateway, 7);
    from(&gateway, "192.0.2.1", 3);
    wait_for_refusals(&gateway, 10);
    from(&gateway, "2001:db8::7", 1);
    wait_for_refusals(&gateway, 11);
    let view = search(&gateway, "?key=acme");
    let burst = &view["refusal_runs"][0];
    let members = |name: &str| burst[name].clone();
    assert_eq!(
        json!(["count", "key", "ip", "rule", "plan", "tokens", "open"].map(members)),
        json!([7, "acme", "127.0.0.1", "hourly", "free", 0, true])
    );
    let [first, last] = ["first", "last"].map(|name| burst[name].as_str().unwrap().to_owned());
    assert!(first.starts_with("20") && first.ends_with('Z') && first < last, "{burst}");
    assert!(!view.to_string().contains(SECRET), "{view}");

    let all = ["2001:db8:: hourly 1", "192.0.2.1 hourly 3", "acme hourly 7"];
    let before = format!("?until={first}");
    let table: [(&str, &[&str]); 12] = [
        ("", &all),
        ("?rule=hourly", &all),
        ("?since=1h", &all),
        ("?since=1970-01-01T00:00:00Z", &all),
        ("?limit=1", &all[..1]),
        ("?ip=192.0.2.1", &all[1..2]),
        ("?ip=::ffff:192.0.2.1&rule=hourly&since=1h&until=0s", &all[1..2]),
        ("?ip=2001:db8::8", &all[..1]),
        ("?ip=2001:db8::/64", &all[..1]),
        ("?ip=192.0.2.9", &[]),
        ("?until=1h", &[]),
        (&before, &all[2..]),
    ];
    for (query, expected) in table {
        assert_eq!(summaries(&gateway, query), expected, "{query}");
    }
    assert_eq!(search(&gateway, "?limit=1")["more"], 2);
    // A removed rule can be searched for while the audit has its refusals.
    gateway.apply(&format!("{TRUSTED_PROXY}{DEMO}{}", RULE.replace("hourly", "daily")));
    assert_eq!(summaries(&gateway, "?rule=hourly&key=acme"), all[2..]);
}

#[test]
fn invalid_audit_queries_are_400_with_the_reason() {
    let gateway = Gateway::start(&format!("{DEMO}{RULE}{}", key("acme", SECRET, "free")));
    let moment = "must be a time such as `2026-11-21T16:34:01Z`, or an age such as `15m`";
    for (query, detail) in [
        ("rul=x", "the query has an unknown name `rul`: did you mean `rule`?"),
        ("rule=hour", "the file has no rule `hour`: did you mean `hourly`?"),
        ("rule=", "the file has no rule ``: there is only `hourly`"),
        ("key=acmee", "the file has no key `acmee`: did you mean `acme`?"),
        ("rule=hourly&rule=hourly", "`rule` is given twice"),
        ("ip=here", "not an address; expected one like `203.0.113.7` or `2001:db8::1`"),
        (
            "ip=h:0123456789abcdef",
            "addresses are shown plain here, not hashed; search by the address",
        ),
        ("since=yesterday", moment),
        ("since=15", moment),
        ("until=2026-02-30T00:00:00Z", moment),
        ("since=1h&until=2h", "`since` is after `until`"),
        ("limit=0", "`limit` must be a number from 1 to 1000"),
        ("limit=1001", "`limit` must be a number from 1 to 1000"),
        ("key=%ff", "the query is not UTF-8"),
    ] {
        let answer = gateway.admin(&format!("/api/audit?{query}"));
        let view = answer.json()["detail"].as_str().unwrap_or_default().to_owned();
        assert_eq!(answer.status, 400, "{query}: {}", answer.text());
        assert!(view.contains(detail), "{query}: {view}");
    }
}

#[test]
fn audit_is_searched_by_addresses_as_client_ip_shows_them() {
    let start = |client_ip: &str| {
        let table = format!("[access_log]\noutput = \"off\"\nclient_ip = \"{client_ip}\"\n");
        let gateway = Gateway::start(&format!("{DEMO}{RULE}{table}"));
        refuse(&gateway, 2, &Request::get("/"));
        wait_for_refusals(&gateway, 2);
        gateway
    };
    let hashed = start("hashed");
    let shown =
        search(&hashed, "?ip=127.0.0.1")["refusal_runs"][0]["ip"].as_str().unwrap().to_owned();
    assert!(shown.starts_with("h:"), "{shown}");
    assert_eq!(summaries(&hashed, &format!("?ip={shown}")), [format!("{shown} hourly 2")]);
    let off = start("off");
    assert_eq!(summaries(&off, ""), ["unknown hourly 2"]);
    let answer = off.admin("/api/audit?ip=127.0.0.1");
    assert_eq!(answer.status, 400);
    assert!(answer.text().contains("addresses are not recorded"), "{}", answer.text());
}
