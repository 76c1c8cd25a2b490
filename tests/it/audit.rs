//! Refusal runs in the log and on the admin port, without secrets.

use std::io::Write as _;
use std::net::{TcpListener, TcpStream};

use serde_json::{Value, json};

use crate::support::{DEMO, FaultProxy, Gateway, Mode, Redis, Request, eventually, key, proxy_to};

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
    of(&[
        "kind=\"limit\" status=429 reason=\"limited\"",
        "route=\"all\" cost=1",
        "count=7",
        "generation=1",
    ]);
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
    let empty = search(&gateway, "");
    assert_eq!(
        (&empty["refusal_runs"], &empty["more"], &empty["dropped"]),
        (&json!([]), &json!(0), &json!(0))
    );
    assert!(empty["kept_since"].as_str().unwrap().starts_with("20"), "{empty}");
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
    let table: [(&str, &[&str]); 13] = [
        ("", &all),
        ("?rule=hourly", &all),
        ("?since=1h", &all),
        ("?since=00:00Z&until=23:59:59Z", &all),
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
        let found = summaries(&gateway, query);
        // A time without a date is one of today, which may have begun since, or be about to end.
        let now = jiff::Timestamp::now().to_string();
        let is_over = now[..10] != first[..10] || now[11..].starts_with("23:59:59");
        if !(is_over && query.contains("=00:00Z")) {
            assert_eq!(found, expected, "{query}");
        }
    }
    assert_eq!(search(&gateway, "?limit=1")["more"], 2);
    // A removed rule can be searched for while the audit has its refusals.
    gateway.apply(&format!("{TRUSTED_PROXY}{DEMO}{}", RULE.replace("hourly", "daily")));
    assert_eq!(summaries(&gateway, "?rule=hourly&key=acme"), all[2..]);
}

#[test]
fn invalid_audit_queries_are_400_with_the_reason() {
    let gateway = Gateway::start(&format!("{DEMO}{RULE}{}", key("acme", SECRET, "free")));
    let moment =
        "must be a time such as `10:03` or `2026-11-21T16:34:01Z`, or an age such as `15m`";
    for (query, detail) in [
        ("rul=x", "the query has an unknown name `rul`: did you mean `rule`?"),
        ("rule=hour", "the file has no rule `hour`: did you mean `hourly`?"),
        ("rule=", "the file has no rule ``: there is only `hourly`"),
        ("key=acmee", "the file has no key `acmee`: did you mean `acme`?"),
        ("kind=limits", "there is no kind `limits`: did you mean `limit`?"),
        ("kind=limit,", "there is no kind ``: possible here: `limit`, `unavailable`"),
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
        ("since=10:03&zone=Nowhere", "`zone` must be a time zone such as `Europe/Berlin`"),
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

/// A rule for each kind of refusal. The address of a request decides which of them applies.
const KINDS: &str = r#"
[clients]
on_missing_key = "deny"
[rules.hourly]
per = ["key"]
rate = "10/h"
[rules.planned]
per = ["key"]
rate = "5/h"
mode = "shadow"
"#;

/// Members of all runs that the query finds, the latest first.
fn members<const N: usize>(gateway: &Gateway, query: &str, names: [&str; N]) -> Vec<Value> {
    let view = search(gateway, query);
    let runs = view["refusal_runs"].as_array().unwrap().iter();
    runs.map(|run| Value::from(names.map(|name| run[name].clone()).to_vec())).collect()
}

#[test]
fn every_kind_of_refusal_is_found_with_its_status() {
    let plan = "[plans.free]\n[upstreams.demo]\nservers = [\"demo\"]\n[routes.search]\npath = \"/search\"\ncost = 5\nupstream = \"demo\"\n";
    let gateway =
        Gateway::start(&format!("{TRUSTED_PROXY}{plan}{KINDS}{}", key("acme", SECRET, "free")));
    let request = || Request::get("/search").header("X-Forwarded-For", "192.0.2.1");
    let mut statuses = Vec::new();
    for _ in 0..4 {
        statuses.push(gateway.send(&request().header("X-Api-Key", SECRET)).status);
    }
    statuses.push(gateway.send(&request()).status);
    statuses.push(gateway.send(&request().header("X-Api-Key", "guess")).status);
    assert_eq!(statuses, [200, 200, 429, 429, 401, 401]);
    wait_for_refusals(&gateway, 5);
    let names =
        ["kind", "status", "key", "rule", "plan", "rate", "burst", "route", "cost", "count"];
    let of = |kind: &str| members(&gateway, &format!("?kind={kind}"), names);
    let limit = json!(["limit", 429, "acme", "hourly", "free", "10/h", 10, "search", 5, 2]);
    assert_eq!(of("limit"), [limit]);
    let shadow = json!(["shadow", null, "acme", "planned", "free", "5/h", 5, "search", 5, 1]);
    assert_eq!(of("shadow"), [shadow]);
    let names = ["status", "reason", "key_from", "ip", "rule", "plan", "rate", "route", "cost"];
    let mut unauthorized = members(&gateway, "?kind=unauthorized", names);
    unauthorized.sort_by_key(ToString::to_string);
    let ip = "192.0.2.1";
    let missing = json!([401, "missing_key", null, ip, null, null, null, "search", null]);
    let source = "header:x-api-key";
    let unknown = json!([401, "unknown_key", source, ip, null, null, null, "search", null]);
    assert_eq!(unauthorized, [missing, unknown]);
    assert_eq!(of("unavailable"), [] as [Value; 0]);
    assert_eq!(of("limit,shadow").len(), 2);
    assert_eq!(members(&gateway, "", ["generation"]), vec![json!([1]); 4]);
    // Only a limit counts as a refusal of a limit.
    assert_eq!(gateway.count("tollgate_refused_total", &[]), 2);
}

/// 503s are no refusals of a limit: neither in the metric of the alert nor in the audit.
#[test]
fn unavailable_redis_is_another_kind_than_a_limit() {
    let redis = Redis::start();
    let proxy = FaultProxy::start(&redis);
    let rule = "[rules.strict]\nper = [\"key\"]\nrate = \"1000/s\"\non_failure = \"deny\"\n";
    let table = proxy.table("50ms");
    let acme = key("acme", SECRET, "free");
    let mut gateway = Gateway::start(&format!("{DEMO}{rule}{table}{acme}"));
    let send = || gateway.send(&Request::get("/").header("X-Api-Key", SECRET)).status;
    let sources = [("source", "redis")];
    eventually("Redis to decide", || {
        (send() == 200 && gateway.count("tollgate_decisions_total", &sources) > 0).then_some(())
    });
    let before = count(&gateway);
    proxy.set(Mode::Hang);
    assert_eq!([(); 3].map(|()| send()), [503; 3]);
    eventually("all three", || (count(&gateway) == before + 3).then_some(()));
    assert_eq!(gateway.count("tollgate_refused_total", &[]), 0);
    let denied = [("decision", "deny"), ("source", "policy")];
    assert!(gateway.count("tollgate_decisions_total", &denied) >= 3);
    let names = ["kind", "status", "key", "rule", "tokens", "cost"];
    let run = json!(["unavailable", 503, "acme", "strict", null, 1]);
    assert_eq!(members(&gateway, "", names), [run]);
    gateway.terminate();
    assert_eq!(gateway.exit().0, Some(0));
    let line = eventually("the line", || refusal_lines(&gateway).pop());
    assert!(
        line.contains(
            "kind=\"unavailable\" status=503 reason=\"redis_unavailable\" rule=\"strict\""
        ),
        "{line}"
    );
}

/// Number of refusals in all runs.
fn count(gateway: &Gateway) -> u64 {
    let counts = members(gateway, "", ["count"]);
    counts.iter().map(|members| members[0].as_u64().unwrap()).sum()
}

/// The client's texts are in no record: names are those of the file.
#[test]
fn hostile_header_values_are_not_recorded() {
    let plan =
        "[plans.free]\n[upstreams.demo]\nservers = [\"demo\"]\n[routes.all]\nupstream = \"demo\"\n";
    let gateway = Gateway::start(&format!("{plan}{KINDS}"));
    let hostile = "<script>alert(1)</script>\" key=\"root";
    for name in ["X-Api-Key", "X-Forwarded-For", "User-Agent", "X-Request-Id"] {
        gateway.send(&Request::get("/%3Cscript%3E?a=%0ab").header(name, hostile));
    }
    eventually("the runs", || {
        let view = search(&gateway, "?kind=unauthorized");
        assert!(!view.to_string().contains("script"), "{view}");
        view["refusal_runs"].as_array().is_some_and(|runs| !runs.is_empty()).then_some(())
    });
}

/// `(kind, rule)` of each refusal run.
fn runs_by_rule(gateway: &Gateway) -> Vec<(String, String)> {
    let view = gateway.admin("/api/audit").json();
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let runs = view["refusal_runs"].as_array().unwrap().iter();
    let mut runs: Vec<_> = runs.map(|run| (text(&run["kind"]), text(&run["rule"]))).collect();
    runs.sort();
    runs
}

#[test]
fn every_shadow_rule_that_demands_a_key_is_recorded() {
    let rule = |name: &str| {
        format!(
            "[rules.{name}]\nper = [\"key\"]\nrate = \"1/s\"\nmode = \"shadow\"\non_missing = \"deny\"\n"
        )
    };
    let gateway = Gateway::start(&format!("{DEMO}{}{}", rule("first"), rule("second")));
    assert_eq!(gateway.get("/").status, 200);
    let shadow = |rule: &str| ("shadow".to_owned(), rule.to_owned());
    assert_eq!(runs_by_rule(&gateway), [shadow("first"), shadow("second")]);
}

/// Such a request can go on for hours.
#[test]
fn shadow_refusal_is_recorded_when_the_request_begins() {
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let rule = "[rules.strict]\nper = []\nrate = \"1/h\"\nmode = \"shadow\"\n";
    let config = format!("{}{rule}", proxy_to(&[silent.local_addr().unwrap()]));
    let gateway = Gateway::start(&config);
    let clients = [(); 2].map(|()| {
        let mut client = TcpStream::connect(gateway.address).unwrap();
        client.write_all(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n").unwrap();
        client
    });
    let recorded = || (!runs_by_rule(&gateway).is_empty()).then_some(());
    eventually("the refusal", recorded);
    assert_eq!(gateway.count("tollgate_requests_total", &[]), 0);
    drop(clients);
}
