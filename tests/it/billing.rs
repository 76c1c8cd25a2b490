//! Usage for bills: by day and route, in every format, compared with the access log over kills,
//! reloads, the end of a month and a change of plan.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use jiff::tz::TimeZone;
use jiff::{Timestamp, ToSpan as _};
use parking_lot::Mutex;
use serde_json::Value;

use crate::shared::{TIMEOUT_OF_CALLS, is_decided_locally, late_checks};
use crate::support::{
    CpuWaits, Gateway, Redis, Request, TIMEOUT, WallClock, eventually, full_config,
    inconclusive_if_stalled, keep_clear_of_midnight, key, sleep_for, timed_below, tollgate, within,
};

/// What is compared: requests by client, plan, route and day.
type Sums = BTreeMap<(String, String, String, String), i64>;

/// Two routes, two plans, and a quota of a month.
const ROUTES: &str = r#"
[plans.free]
[plans.pro]
[upstreams.api]
servers = ["demo"]
[routes.search]
path = "/search"
upstream = "api"
cost = 5
[routes.rest]
path = "/*"
upstream = "api"
[rules.monthly]
per = ["key"]
kind = "fixed_window"
limit = "1000000/month"
plans.pro = { limit = "2000000/month" }
[rules.bucket]
per = ["ip"]
rate = "100000/s"
"#;

fn config(store: &str, detail: &str, plan: &str) -> String {
    let keys = [key("acme", "secret", plan), key("other", "hidden", "free")].concat();
    let usage = if store.contains("[usage]") { "" } else { "[usage]\n" };
    format!("{ROUTES}{keys}{store}\n{usage}detail = \"{detail}\"\n")
}

fn place() -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("usage.redb");
    (folder, path)
}

fn in_file(path: &Path) -> String {
    format!("[usage]\nfile = \"{}\"\n", path.display())
}

fn request(path: &str, secret: &str) -> Request {
    Request::get(path).header("X-Api-Key", secret)
}

/// All entries of a list of usage, over all pages.
fn entries(gateway: &Gateway, query: &str) -> Vec<Value> {
    let (mut found, mut cursor) = (Vec::new(), String::new());
    loop {
        let answer = gateway.admin(&format!("/api/usage?{query}{cursor}"));
        assert_eq!(answer.status, 200, "{}", answer.text());
        let page = answer.json();
        found.extend(page["entries"].as_array().unwrap().iter().cloned());
        let Some(next) = page["next"].as_str() else { return found };
        cursor = format!("&cursor={next}");
    }
}

fn text(entry: &Value, name: &str) -> String {
    entry[name].as_str().unwrap_or_default().to_owned()
}

/// Requests of the rule `monthly`, from entries by route.
fn sums(entries: &[Value]) -> Sums {
    let of_rule = entries.iter().filter(|entry| entry["rule"] == "monthly");
    let mut sums = Sums::new();
    for entry in of_rule {
        let identity =
            (text(entry, "client"), text(entry, "plan"), text(entry, "route"), text(entry, "day"));
        *sums.entry(identity).or_default() += entry["requests"].as_i64().unwrap();
    }
    sums
}

fn run(arguments: &[&str], gateway: &Gateway) -> String {
    let admin = format!("http://{}", gateway.admin);
    let mut all = vec!["usage", "--admin", &admin];
    all.extend(arguments);
    let outcome = tollgate(&all, "");
    assert_eq!(outcome.code, Some(0), "{}", outcome.stderr);
    outcome.stdout
}

#[test]
fn usage_is_listed_by_day_and_route_in_every_format() {
    keep_clear_of_midnight();
    let (_folder, path) = place();
    let text_of = |plan: &str| config(&in_file(&path), "route", plan);
    let gateway = Gateway::start(&text_of("free"));
    for (path, secret, count) in
        [("/search", "secret", 3), ("/x", "secret", 4), ("/search", "hidden", 2)]
    {
        for _ in 0..count {
            assert_eq!(gateway.send(&request(path, secret)).status, 200);
        }
    }
    gateway.apply(&text_of("pro"));
    assert_eq!(gateway.send(&request("/search", "secret")).status, 200);
    // Without a key, the client counts by its address.
    assert_eq!(gateway.get("/x").status, 200);
    let day = Timestamp::now().to_zoned(TimeZone::UTC).strftime("%Y-%m-%d").to_string();
    let expected = |client: &str, plan: &str, route: &str, requests: i64| {
        let parts = [client, plan, route, &day].map(str::to_owned);
        let [client, plan, route, day] = parts;
        ((client, plan, route, day), requests)
    };
    let all = Sums::from([
        expected("acme", "free", "search", 3),
        expected("acme", "free", "rest", 4),
        expected("acme", "pro", "search", 1),
        expected("other", "free", "search", 2),
        expected("127.0.0.1", "free", "rest", 1),
    ]);
    eventually("usage by route", || (sums(&entries(&gateway, "by=route")) == all).then_some(()));
    for limit in 1..4 {
        let paged = entries(&gateway, &format!("by=route&limit={limit}"));
        assert_eq!(sums(&paged), all, "{limit}");
    }
    let by_day = entries(&gateway, "by=day&client=acme&plan=free");
    assert_eq!(by_day.len(), 1, "{by_day:?}");
    let entry = &by_day[0];
    assert_eq!((entry["requests"].as_i64(), entry["used"].as_f64()), (Some(7), Some(19.0)));
    assert_eq!((&entry["zone"], &entry["route"]), (&Value::from("UTC"), &Value::Null));

    let month = &day[..7];
    let csv = gateway.admin(&format!("/api/usage?by=route&key=other&month={month}&format=csv"));
    assert_eq!(csv.header("content-type"), Some("text/csv; charset=utf-8; header=present"));
    let head = "day,zone,rule,client_kind,client,plan,route,requests,used,overage\r\n";
    let line = format!("{day},UTC,monthly,key,other,free,search,2,10.0,0.0\r\n");
    assert_eq!(csv.text(), format!("{head}{line}"));
    let by_route = ["--by", "route", "--client", "other", "--month", month];
    assert_eq!(run(&[&by_route[..], &["--csv"]].concat(), &gateway), csv.text());
    let lines = run(&[&by_route[..], &["--jsonl"]].concat(), &gateway);
    let line: Value = serde_json::from_str(lines.trim_end()).unwrap();
    assert_eq!(line, entries(&gateway, "by=route&key=other")[0]);
    let table = run(&by_route, &gateway);
    assert!(table.contains("key other  free  search"), "{table}");
    let periods = run(&["--client", "other", "--month", month, "--csv"], &gateway);
    assert!(periods.starts_with("rule,client_kind,client,plan,period_start"), "{periods}");
    assert!(periods.contains("monthly,key,other,free,"), "{periods}");

    for wrong in
        ["by=week", "by=day&month=2026", "by=day&period=all", "route=search", "key=a&client=b"]
    {
        assert_eq!(gateway.admin(&format!("/api/usage?{wrong}")).status, 400, "{wrong}");
    }
    // What is kept survives a crash.
    drop(gateway);
    let gateway = Gateway::start(&text_of("pro"));
    assert_eq!(sums(&entries(&gateway, "by=route")), all);
}

#[test]
fn usage_by_day_is_off_by_default_and_says_how_to_turn_it_on() {
    keep_clear_of_midnight();
    let (_folder, path) = place();
    let gateway = Gateway::start(&config(&in_file(&path), "off", "free"));
    let refused = gateway.admin("/api/usage?by=day");
    assert_eq!(refused.status, 409);
    assert!(refused.text().contains("usage.detail = \\\"day\\\""), "{}", refused.text());
    gateway.apply(&config(&in_file(&path), "day", "free"));
    assert_eq!(gateway.send(&request("/search", "secret")).status, 200);
    eventually("usage by day", || (entries(&gateway, "by=day").len() == 1).then_some(()));
    assert_eq!(gateway.admin("/api/usage?by=route").status, 409);
}

/// Requests that got their tokens back are not in the list by day either.
#[test]
fn refunded_requests_are_not_counted_by_day() {
    keep_clear_of_midnight();
    let (_folder, path) = place();
    let closed = crate::support::free_port();
    let text = config(&in_file(&path), "route", "free")
        .replace("[\"demo\"]", &format!("[\"127.0.0.1:{closed}\"]"));
    let gateway = Gateway::start(&text);
    for _ in 0..3 {
        assert_eq!(gateway.send(&request("/search", "secret")).status, 502);
    }
    gateway.apply(&config(&in_file(&path), "route", "free"));
    assert_eq!(gateway.send(&request("/x", "secret")).status, 200);
    eventually("usage by day", || {
        let sums = sums(&entries(&gateway, "by=route"));
        let requests: Vec<i64> = sums.into_values().filter(|requests| *requests != 0).collect();
        (requests == [1]).then_some(())
    });
}

/// A quota that warns, and whose plan `pro` may exceed it.
const SOFT: &str = r#"
[clients]
limits_path = "/limits"
[plans.free]
[plans.pro]
[upstreams.api]
servers = ["demo"]
[routes.all]
path = "/*"
upstream = "api"
[rules.monthly]
per = ["key"]
kind = "fixed_window"
limit = "10/month"
soft = "80%"
plans.pro = { limit = "10/month", overage = "count" }
"#;

fn check_warnings_and_overage(store: &str) {
    keep_clear_of_midnight();
    let keys = [key("acme", "secret", "pro"), key("other", "hidden", "free")].concat();
    let text = format!("{SOFT}{keys}{store}");
    let is_shared = store.contains("[redis]");
    let gateways: Vec<Gateway> =
        (0..if is_shared { 2 } else { 1 }).map(|_| Gateway::start(&text)).collect();
    if is_shared {
        for gateway in &gateways {
            wait_for_breaker(gateway, 0);
        }
    }
    let (first, last) = (&gateways[0], gateways.last().unwrap());
    for number in 1..=14 {
        let waits = CpuWaits::now();
        let gateway = if number % 2 == 0 { first } else { last };
        let response = gateway.send(&request("/x", "secret"));
        let status = first.send(&request("/x", "hidden")).status;
        if is_shared && is_decided_locally(&gateways, &waits) {
            return;
        }
        assert_eq!(response.status, 200, "{number}");
        let warning = format!("\"monthly\";u={number};q=10");
        let expected = (number >= 8).then_some(warning.as_str());
        assert_eq!(response.header("x-ratelimit-warning"), expected);
        let remaining = (10_u64.saturating_sub(number)).to_string();
        assert_eq!(response.header("x-ratelimit-remaining"), Some(&*remaining));
        assert_eq!(status, if number <= 10 { 200 } else { 429 }, "{number}");
    }
    let used = |query: &str| {
        let found = entries(first, &format!("{query}&key=acme"));
        let [one] = &found[..] else { return None };
        Some((one["used"].as_f64(), one["overage"].as_f64()))
    };
    for query in ["period=current", "by=day"] {
        eventually(query, || (used(query) == Some((Some(14.0), Some(4.0)))).then_some(()));
    }
    let count = |name: &str, plan: &str| -> u64 {
        let labels = [("rule", "monthly"), ("plan", plan)];
        gateways.iter().map(|gateway| gateway.existing(name, &labels).unwrap_or(0)).sum()
    };
    assert_eq!(count("tollgate_overage_tokens_total", "pro"), 4);
    assert_eq!(count("tollgate_overage_tokens_total", "free"), 0);
    assert_eq!(count("tollgate_soft_limit_requests_total", "pro"), 7);
    assert_eq!(count("tollgate_soft_limit_requests_total", "free"), 3);
    let own = last.send(&request("/limits", "secret")).json();
    let rule = &own["rules"][0];
    assert_eq!((rule["soft"].as_u64(), rule["overage"].as_str()), (Some(8), Some("count")));
    assert_eq!((rule["overage_used"].as_f64(), rule["remaining"].as_u64()), (Some(4.0), Some(0)));
    assert!(rule.get("retry_after_ms").is_none(), "{rule}");
    let explained = first.explain(r#"{"path": "/x", "key_id": "acme"}"#);
    assert!(explained.text().contains("\"overage\": \"count\""), "{}", explained.text());
}

#[test]
fn quota_warns_and_counts_overage_in_redis() {
    let redis = Redis::start();
    check_warnings_and_overage(&format!("{}\n[usage]\ndetail = \"day\"\n", redis.table()));
}

#[test]
fn quota_warns_and_counts_overage_in_memory() {
    let (_folder, path) = place();
    check_warnings_and_overage(&format!("{}detail = \"day\"\n", in_file(&path)));
}

/// Requests beyond a quota are allowed without Redis, too, and are in its bucket afterwards.
#[test]
fn overage_of_an_outage_is_settled() {
    keep_clear_of_midnight();
    let redis = Redis::start();
    let text = format!("{SOFT}{}{}", key("acme", "secret", "pro"), redis.table());
    let gateway = Gateway::start(&text);
    wait_for_breaker(&gateway, 0);
    for _ in 0..8 {
        assert_eq!(gateway.send(&request("/x", "secret")).status, 200);
    }
    redis.pause();
    wait_for_breaker(&gateway, 2);
    for _ in 0..6 {
        assert_eq!(gateway.send(&request("/x", "secret")).status, 200);
    }
    redis.resume();
    wait_for_breaker(&gateway, 0);
    eventually("the overage", || {
        let found = entries(&gateway, "key=acme");
        (found.first()?["overage"].as_f64()? >= 4.0).then_some(())
    });
}

/// Gateways, a Redis and a clock, and what clients saw.
struct Day {
    clock: WallClock,
    /// Noon of the last day of this month, in UTC.
    noon: Timestamp,
    redis: Redis,
    gateways: Vec<Gateway>,
    logs: Vec<PathBuf>,
    plan: &'static str,
    seen: Sums,
    tokens: BTreeMap<(String, String), i64>,
    hour: i64,
    /// Checks of gateways that were killed to which Redis has not replied in time.
    late_checks: u64,
    /// Each hour is a phase, and so is what is left of it after a process was killed.
    waits: CpuWaits,
}

impl Day {
    fn start(folder: &Path) -> Self {
        let now = Timestamp::now();
        let noon = now.to_zoned(TimeZone::UTC).date().last_of_month().at(12, 0, 0, 0);
        let noon = noon.to_zoned(TimeZone::UTC).unwrap().timestamp();
        let mut day = Self {
            clock: WallClock::new(),
            noon,
            redis: Redis::stopped(),
            gateways: Vec::new(),
            logs: (0..2).map(|index| folder.join(format!("access-{index}.log"))).collect(),
            plan: "free",
            seen: Sums::new(),
            tokens: BTreeMap::new(),
            hour: 0,
            late_checks: 0,
            waits: CpuWaits::default(),
        };
        day.set_hour(0);
        day.launch_redis();
        day.gateways = (0..2).map(|index| day.gateway(index)).collect();
        day.waits = CpuWaits::now();
        day
    }

    fn launch_redis(&mut self) {
        let clock = &self.clock;
        self.redis.launch_with(|command: &mut Command| {
            clock.apply_to(command);
            // A killed process loses nothing that it has written. While it waits for the disk, it
            // postpones what it writes.
            command.args(["--appendonly", "yes", "--appendfsync", "no"]);
        });
    }

    fn config(&self, index: usize) -> String {
        let log = format!("[access_log]\noutput = \"{}\"\n", self.logs[index].display());
        let rest = config(&self.redis.table(), "route", self.plan);
        format!("instances = 2\n{rest}{log}")
    }

    fn gateway(&self, index: usize) -> Gateway {
        let clock = &self.clock;
        let gateway = Gateway::start_with(&full_config(&self.config(index)), |command| {
            clock.apply_to(command);
        });
        wait_for_breaker(&gateway, 0);
        gateway
    }

    fn kill_redis(&mut self) {
        self.waits.next_phase();
        self.redis.kill();
    }

    /// Kills a gateway, and starts it again.
    fn crash(&mut self, index: usize) {
        self.waits.next_phase();
        let killed = self.gateways.remove(index);
        self.late_checks += late_checks(std::slice::from_ref(&killed));
        drop(killed);
        let gateway = self.gateway(index);
        self.gateways.insert(index, gateway);
    }

    /// Waits until this gateway lists all requests: those of another one are in Redis then.
    fn wait_until_listed(&self, index: usize) {
        let is_listed = || {
            let listed = sums(&entries(&self.gateways[index], "by=route&since=2026-01-01"));
            (missing(&listed, &self.seen) == 0).then_some(())
        };
        timed_below(Duration::from_secs(2), || eventually("all requests in the list", is_listed));
    }

    /// Sets the clock to some hours after noon. Gateways read it once a second: they have done so
    /// at the beginning of a day, and before a fault.
    fn set_hour(&mut self, hour: i64) {
        if hour == 12 {
            // A line has the time of the clock that it is written by.
            let sent: i64 = self.seen.values().sum();
            eventually("the lines of the month", || {
                (self.logged().values().sum::<i64>() >= sent).then_some(())
            });
        }
        self.waits.next_phase();
        self.hour = hour;
        let time = self.noon + hour.hours();
        self.clock.set(time.as_second() - Timestamp::now().as_second());
        if !self.gateways.is_empty() && [4, 8, 10, 12, 15, 20].contains(&hour) {
            sleep_for(Duration::from_millis(1_500));
        }
    }

    /// Sends requests of both clients on both routes through a gateway, in turn.
    fn send(&mut self, index: usize, count: usize) {
        let time = (self.noon + self.hour.hours()).to_zoned(TimeZone::UTC);
        let mut connection = self.gateways[index].connect();
        for number in 0..count {
            let (route, path, cost) =
                if number % 3 == 0 { ("search", "/search", 5) } else { ("rest", "/x", 1) };
            let (client, secret, plan) = if number % 2 == 0 {
                ("acme", "secret", self.plan)
            } else {
                ("other", "hidden", "free")
            };
            let response = connection.send(&request(path, secret));
            assert_eq!(response.status, 200, "{}", response.text());
            let day = time.strftime("%Y-%m-%d").to_string();
            let identity = (client.to_owned(), plan.to_owned(), route.to_owned(), day);
            *self.seen.entry(identity).or_default() += 1;
            let month = time.strftime("%Y-%m").to_string();
            *self.tokens.entry((client.to_owned(), month)).or_default() += cost;
        }
    }

    /// Tokens that each client used in each month, by the list.
    #[allow(clippy::cast_possible_truncation, reason = "costs are whole tokens")]
    fn listed_tokens(&self) -> BTreeMap<(String, String), i64> {
        let listed = entries(&self.gateways[0], "period=all&rule=monthly");
        let each = listed.iter().map(|entry| {
            let month = text(entry, "period_start")[..7].to_owned();
            ((text(entry, "client"), month), entry["used"].as_f64().unwrap() as i64)
        });
        each.collect()
    }

    /// Requests that the access logs of all gateways have.
    fn logged(&self) -> Sums {
        let mut sums = Sums::new();
        for log in &self.logs {
            for line in std::fs::read_to_string(log).unwrap().lines() {
                let line: Value = serde_json::from_str(line).expect(line);
                assert_eq!(line["decision"], "allow", "{line}");
                let day = text(&line, "time")[..10].to_owned();
                let identity = (text(&line, "key"), text(&line, "plan"), text(&line, "route"), day);
                *sums.entry(identity).or_default() += 1;
            }
        }
        sums
    }
}

fn wait_for_breaker(gateway: &Gateway, state: u64) {
    eventually("a state of the breaker", || {
        let is_known = state != 0 || gateway.log().contains("connected to Redis");
        (is_known && gateway.count("tollgate_breaker_state", &[]) == state).then_some(())
    });
}

/// The same numbers from CSV.
fn sums_of_csv(csv: &str) -> Sums {
    let mut lines = csv.lines();
    let head: Vec<&str> = lines.next().unwrap().split(',').collect();
    let each = lines.map(|line| {
        let cells = head.iter().zip(line.split(','));
        let entry = cells.map(|(name, cell)| ((*name).to_owned(), Value::from(cell)));
        let mut entry = Value::Object(entry.collect());
        entry["requests"] = entry["requests"].as_str().unwrap().parse::<i64>().unwrap().into();
        entry
    });
    sums(&each.collect::<Vec<Value>>())
}

/// Number of requests that one has and the other lacks.
fn missing(from: &Sums, of: &Sums) -> i64 {
    of.iter().map(|(row, count)| (count - from.get(row).unwrap_or(&0)).max(0)).sum()
}

/// 24 simulated hours over the end of a month, with two killed gateways, a killed Redis, an outage
/// and a change of plan.
#[test]
fn row_230_usage_of_a_day_of_faults_agrees_with_the_access_log() {
    /// Requests in the second before a kill that may be missing.
    const LAST: usize = 24;
    let folder = tempfile::tempdir().unwrap();
    let mut day = Day::start(folder.path());
    for hour in 0..24 {
        day.set_hour(hour);
        day.send(0, 12);
        day.send(1, 18);
        match hour {
            // A crash after all requests are in Redis, a second later, loses nothing.
            4 => {
                day.wait_until_listed(1);
                day.crash(0);
            }
            // Redis is killed, and requests are decided without it.
            8 | 15 => {
                day.kill_redis();
                wait_for_breaker(&day.gateways[0], 2);
                wait_for_breaker(&day.gateways[1], 2);
                day.send(0, 9);
                day.send(1, 9);
                day.launch_redis();
                wait_for_breaker(&day.gateways[0], 0);
                wait_for_breaker(&day.gateways[1], 0);
            }
            // A change of plan.
            10 => {
                day.plan = "pro";
                (0..2).for_each(|index| day.gateways[index].apply(&day.config(index)));
            }
            // A crash right after requests.
            20 => {
                day.wait_until_listed(0);
                day.send(1, LAST);
                day.crash(1);
            }
            _ => {}
        }
    }
    let last = i64::try_from(LAST).unwrap();
    // The totals are those of the buckets, and lack nothing.
    let are_equal = || (day.listed_tokens() == day.tokens).then_some(());
    if within(TIMEOUT, are_equal).is_none() {
        let late = day.late_checks + late_checks(&day.gateways);
        let what = format!("{:?}, not {:?}; {late} late", day.listed_tokens(), day.tokens);
        assert!(late > 0, "{what}");
        // A gateway counts such a check once more, as local, and settles it.
        let stall = day.waits.stall_of_servers();
        return inconclusive_if_stalled(&what, stall, TIMEOUT_OF_CALLS);
    }
    let listed = eventually("usage by route", || {
        let listed = sums(&entries(&day.gateways[0], "by=route&since=2026-01-01"));
        (missing(&listed, &day.seen) <= last).then_some(listed)
    });
    assert_eq!(missing(&day.seen, &listed), 0, "{listed:?}\n{:?}", day.seen);
    let by_route = ["--by", "route", "--since", "2026-01-01"];
    let csv = run(&[&by_route[..], &["--csv"]].concat(), &day.gateways[1]);
    assert_eq!(sums_of_csv(&csv), listed);
    let lines = run(&[&by_route[..], &["--jsonl"]].concat(), &day.gateways[1]);
    let lines: Vec<Value> = lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(sums(&lines), listed);

    for gateway in &mut day.gateways {
        gateway.terminate();
        assert_eq!(gateway.exit().0, Some(0), "{}", gateway.log());
    }
    let logged = day.logged();
    assert_eq!(missing(&day.seen, &logged), 0, "{logged:?}\n{:?}", day.seen);
    assert!(missing(&logged, &listed) <= last && missing(&listed, &logged) <= last);
    // All but the day of the last crash agrees to the request.
    let first_day = listed.keys().map(|(.., day)| day.clone()).min().unwrap();
    let of_first_day = |sums: &Sums| {
        let each = sums.iter().filter(|((.., day), _)| *day == first_day);
        each.map(|(row, count)| (row.clone(), *count)).collect::<Sums>()
    };
    assert_eq!(of_first_day(&listed), of_first_day(&logged));
    assert_eq!(of_first_day(&listed), of_first_day(&day.seen));
}

/// Heads and bodies of requests.
type Received = Vec<(BTreeMap<String, String>, String)>;

/// A server that notes the requests it gets, and answers the first ones with 503.
struct Receiver {
    address: std::net::SocketAddr,
    requests: Arc<Mutex<Received>>,
}

impl Receiver {
    fn start(failures: usize) -> Self {
        use std::io::{BufRead as _, BufReader, Read as _, Write as _};

        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let requests = Arc::new(Mutex::new(Received::new()));
        let noted = Arc::clone(&requests);
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let Ok(stream) = stream else { return };
                let mut reader = BufReader::new(stream);
                let mut head = BTreeMap::new();
                for line in reader.by_ref().lines() {
                    let Ok(line) = line else { break };
                    if line.is_empty() {
                        break;
                    }
                    if let Some((name, value)) = line.split_once(": ") {
                        head.insert(name.to_ascii_lowercase(), value.to_owned());
                    }
                }
                let length = head.get("content-length").and_then(|text| text.parse().ok());
                let mut body = vec![0; length.unwrap_or(0)];
                if reader.read_exact(&mut body).is_err() {
                    continue;
                }
                let mut noted = noted.lock();
                noted.push((head, String::from_utf8(body).unwrap()));
                let status = if noted.len() <= failures { "503 Busy" } else { "204 Done" };
                let answer =
                    format!("HTTP/1.1 {status}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
                // An error shows in the gateway's next attempt.
                let _ = reader.get_mut().write_all(answer.as_bytes());
            }
        });
        Self { address, requests }
    }

    fn received(&self) -> Received {
        self.requests.lock().clone()
    }

    fn table(&self) -> String {
        format!(
            "\n[webhooks.billing]\nurl = \"http://{}/events?a=b\"\nsecret = \"whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw\"\n",
            self.address
        )
    }
}

/// Verifies a request as a receiver does, in another language.
fn verify((head, body): &(BTreeMap<String, String>, String)) -> Value {
    let script = "import base64, hashlib, hmac, json, sys\n\
        head, body = json.loads(sys.argv[1]), sys.argv[2]\n\
        key = base64.b64decode('MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw')\n\
        signed = f\"{head['webhook-id']}.{head['webhook-timestamp']}.{body}\".encode()\n\
        expected = base64.b64encode(hmac.new(key, signed, hashlib.sha256).digest()).decode()\n\
        sys.exit(0 if head['webhook-signature'] == 'v1,' + expected else 1)\n";
    let head = serde_json::to_string(head).unwrap();
    let status = Command::new("python3").args(["-c", script, &head, body]).status().unwrap();
    assert!(status.success(), "{head} {body}");
    serde_json::from_str(body).unwrap()
}

fn check_webhooks(store: &str) {
    keep_clear_of_midnight();
    let receiver = Receiver::start(2);
    let keys = [key("acme", "secret", "pro"), key("other", "hidden", "free")].concat();
    let config = format!("{SOFT}{keys}{store}{}", receiver.table());
    let gateways: Vec<Gateway> = (0..if store.contains("[redis]") { 2 } else { 1 })
        .map(|_| Gateway::start(&config))
        .collect();
    if store.contains("[redis]") {
        for gateway in &gateways {
            wait_for_breaker(gateway, 0);
        }
    }
    for number in 0..12 {
        let gateway = &gateways[number % gateways.len()];
        assert_eq!(gateway.send(&request("/x", "secret")).status, 200);
    }
    // Below the share at which it is warned.
    for _ in 0..7 {
        assert_eq!(gateways[0].send(&request("/x", "hidden")).status, 200);
    }
    let sent = |result: &str| -> u64 {
        let labels = [("webhook", "billing"), ("result", result)];
        let each = gateways.iter();
        each.map(|one| one.existing("tollgate_webhook_attempts_total", &labels).unwrap_or(0)).sum()
    };
    eventually("both events", || (sent("ok") == 2).then_some(()));
    assert_eq!(sent("error"), 2);
    // Further requests of the same period are no further events.
    for number in 0..6 {
        assert_eq!(gateways[number % gateways.len()].send(&request("/x", "secret")).status, 200);
    }
    sleep_for(Duration::from_secs(2));
    let requests = receiver.received();
    assert_eq!(requests.len(), 4, "{requests:#?}");
    let mut ids: Vec<&String> = requests.iter().map(|(head, _)| &head["webhook-id"]).collect();
    ids.sort();
    ids.dedup();
    assert_eq!(ids.len(), 2, "{ids:?}");
    let bodies: Vec<Value> = requests.iter().map(verify).collect();
    // Those that were accepted.
    let accepted = &bodies[2..];
    let mut kinds: Vec<String> = accepted.iter().map(|body| text(body, "type")).collect();
    kinds.sort();
    assert_eq!(kinds, ["quota.overage", "quota.soft"]);
    for data in accepted.iter().map(|body| &body["data"]) {
        assert_eq!((text(data, "client"), text(data, "rule")), ("acme".into(), "monthly".into()));
        assert_eq!(data["limit"], 10);
        assert!(data["used"].as_f64().unwrap() >= 8.0, "{data}");
    }
    for gateway in &gateways {
        assert!(!gateway.log().contains("MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"), "{}", gateway.log());
    }
}

#[test]
fn row_231_webhooks_are_sent_once_by_all_gateways_and_again_after_failures() {
    let redis = Redis::start();
    check_webhooks(&redis.table());
}

#[test]
fn webhooks_are_sent_without_redis() {
    let (_folder, path) = place();
    check_webhooks(&in_file(&path));
}

/// A server that never answers holds up neither requests nor usage.
#[test]
fn row_231_webhook_that_waits_for_its_server_holds_up_no_request() {
    keep_clear_of_midnight();
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let redis = Redis::start();
    let webhook = format!(
        "\n[webhooks.slow]\nurl = \"http://{address}/\"\nsecret = \"whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw\"\ntimeout = \"1m\"\n"
    );
    let text = format!("{SOFT}{}{}{webhook}", key("acme", "secret", "pro"), redis.table());
    let gateway = Gateway::start(&text);
    wait_for_breaker(&gateway, 0);
    for _ in 0..9 {
        assert_eq!(gateway.send(&request("/x", "secret")).status, 200);
    }
    // The server accepts the connection and says nothing.
    let (_held, _) = listener.accept().unwrap();
    for _ in 0..20 {
        assert_eq!(gateway.send(&request("/x", "secret")).status, 200);
    }
    eventually("the usage", || {
        (entries(&gateway, "key=acme").first()?["used"].as_f64() == Some(29.0)).then_some(())
    });
}
