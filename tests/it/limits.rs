//! Limits allow exactly the configured number of requests, also under concurrency and with several
//! clients.

use crate::support::{DEMO, Gateway, Redis, Request, StatusCounts, eventually, key, send_many};

/// A limit of `100/d`.
const HUNDRED: usize = 100;

fn exactly(passed: usize, refused: usize) -> StatusCounts {
    StatusCounts::from([(200, passed), (429, refused)])
}

#[test]
fn row_39_exactly_100_of_1000_requests_pass_per_key() {
    let rule = "[rules.per-key]\nper = [\"key\"]\nrate = \"100/d\"\n";
    let keys = key("one", "secret-1", "free") + &key("two", "secret-2", "free");
    let gateway = Gateway::start(&format!("{DEMO}{rule}{keys}"));
    let url = gateway.url("/");
    let with_keys = |secrets: &'static [&'static str]| {
        send_many(1_000 * secrets.len(), |client, number| {
            client.get(&url).header("x-api-key", secrets[number % secrets.len()])
        })
    };
    assert_eq!(with_keys(&["secret-1"]), exactly(HUNDRED, 900));
    // The other key has its own full bucket.
    assert_eq!(with_keys(&["secret-1", "secret-2"]), exactly(HUNDRED, 1_900));
}

#[test]
fn exactly_100_requests_pass_per_address() {
    let rule = "[rules.per-ip]\nper = [\"ip\"]\nrate = \"100/d\"\n";
    let trusted = "trusted_proxies = [\"127.0.0.1\"]\n";
    let gateway = Gateway::start(&format!("{trusted}{DEMO}{rule}"));
    let url = gateway.url("/");
    let answers = send_many(500, |client, number| {
        client.get(&url).header("x-forwarded-for", format!("192.0.2.{}", number % 2))
    });
    assert_eq!(answers, exactly(2 * HUNDRED, 300));
    // The same for the address of the connection.
    assert_eq!(send_many(250, |client, _| client.get(&url)), exactly(HUNDRED, 150));
}

#[test]
fn exactly_100_requests_pass_per_route() {
    let rule = "[rules.per-route]\nper = [\"route\"]\nrate = \"100/d\"\n";
    let other = "[routes.other]\npath = \"/other/*\"\nupstream = \"api\"\n";
    let gateway = Gateway::start(&format!("{DEMO}{other}{rule}"));
    let (all, other) = (gateway.url("/"), gateway.url("/other/"));
    let answers = send_many(500, |client, number| client.get([&all, &other][number % 2]));
    assert_eq!(answers, exactly(2 * HUNDRED, 300));
}

#[test]
fn exactly_100_requests_pass_globally() {
    let rule = "[rules.everyone]\nper = []\nrate = \"100/d\"\n";
    let other = "[routes.other]\npath = \"/other/*\"\nupstream = \"api\"\n";
    let keys = key("one", "secret-1", "free");
    let gateway = Gateway::start(&format!("{DEMO}{other}{rule}{keys}"));
    let urls = [gateway.url("/"), gateway.url("/other/")];
    let answers = send_many(300, |client, number| match number % 3 {
        0 => client.get(&urls[0]).header("x-api-key", "secret-1"),
        number => client.get(&urls[number - 1]),
    });
    assert_eq!(answers, exactly(HUNDRED, 200));
}

#[test]
fn denied_request_takes_no_tokens_from_other_rules() {
    // Limits: 5 per key, 1,000 globally, 300 per route.
    let rules = r#"
[rules.everyone]
per = []
rate = "1000/d"

[rules.per-route]
per = ["route"]
rate = "300/d"

[rules.per-key]
per = ["key"]
rate = "5/d"

[headers]
policies = "all"
"#;
    let keys = key("one", "secret-1", "free") + &key("two", "secret-2", "free");
    let gateway = Gateway::start(&format!("{DEMO}{rules}{keys}"));
    let url = gateway.url("/");
    let answers = send_many(1_000, |client, _| client.get(&url).header("x-api-key", "secret-1"));
    assert_eq!(answers, exactly(5, 995));
    let answer = gateway.send(&Request::get("/").header("x-api-key", "secret-2"));
    // Only five requests of the first key and this one were charged; the 995 denied ones were not.
    let limits = answer.header("ratelimit").unwrap();
    for left in ["\"everyone\";r=994;", "\"per-route\";r=294;", "\"per-key\";r=4;"] {
        assert!(limits.contains(left), "{left} in {limits}");
    }
    let decided = |rule, decision| {
        gateway.count("tollgate_decisions_total", &[("rule", rule), ("decision", decision)])
    };
    assert_eq!(decided("per-key", "allow"), 6);
    assert_eq!(decided("per-key", "deny"), 995);
    assert_eq!((decided("everyone", "allow"), decided("everyone", "deny")), (6, 0));
}

#[test]
fn order_of_rules_does_not_change_the_charges() {
    for names in [["first", "second"], ["second", "first"]] {
        let rule = |name: &str| match name {
            "first" => "[rules.first]\nper = []\nrate = \"2/d\"\n",
            _ => "[rules.second]\nper = [\"method\"]\nrate = \"3/d\"\n",
        };
        let rules: String = names.map(rule).concat();
        let all = "[headers]\npolicies = \"all\"\n";
        let gateway = Gateway::start(&format!("{DEMO}{rules}{all}"));
        let statuses: Vec<u16> = (0..5).map(|_| gateway.get("/").status).collect();
        assert_eq!(statuses, [200, 200, 429, 429, 429]);
        let answer = gateway.get("/");
        let limits = answer.header("ratelimit").unwrap();
        assert!(limits.contains("\"second\";r=1;"), "one of three is left: {limits}");
    }
}

#[test]
fn route_charges_its_cost() {
    let config = r#"
[routes.dear]
path = "/dear"
upstream = "api"
cost = 40

[rules.all]
per = []
rate = "100/d"
"#;
    let gateway = Gateway::start(&format!("{DEMO}{config}"));
    assert_eq!(gateway.get("/dear").remaining(), 60);
    assert_eq!(gateway.get("/cheap").remaining(), 59);
    assert_eq!(gateway.get("/dear").remaining(), 19);
    // 19 tokens are less than the cost of 40; the denied request takes none, so cheap requests
    // still pass.
    let refused = gateway.get("/dear");
    assert_eq!((refused.status, refused.remaining()), (429, 19));
    assert_eq!(gateway.get("/cheap").remaining(), 18);
}

#[test]
fn rule_charges_its_own_cost_whatever_the_route_costs() {
    let config = r#"
[clients]
limits_path = "/limits"

[routes.dear]
path = "/dear"
upstream = "api"
cost = 40

[rules.tokens]
per = []
rate = "100/d"

[rules.calls]
per = ["ip"]
kind = "fixed_window"
limit = "50/year"
cost = 1

[rules.halves]
per = ["ip"]
kind = "leaky_bucket"
rate = "1000/s"
cost = 0.5
"#;
    let redis = Redis::start();
    for table in [String::new(), redis.table()] {
        let gateway = Gateway::start(&format!("{DEMO}{config}{table}"));
        for (path, tokens, calls) in [("/dear", 60, 49), ("/cheap", 59, 48), ("/dear", 19, 47)] {
            assert_eq!(gateway.get(path).status, 200);
            // With Redis, a view is up to a moment old.
            eventually("the view to have the request", || {
                let own = gateway.get("/limits").json();
                let remaining = |rule: usize| own["rules"][rule]["remaining"].as_u64();
                ((remaining(0), remaining(1)) == (Some(tokens), Some(calls))).then_some(())
            });
        }
        let own = gateway.get("/limits").json();
        let costs: Vec<f64> =
            (0..3).map(|rule| own["rules"][rule]["cost"].as_f64().unwrap()).collect();
        assert_eq!(costs, [1.0, 1.0, 0.5], "{own}");
        assert_eq!(own["rules"][0]["routes"][1]["cost"], 40, "{own}");
        assert!(own["rules"][1].get("routes").is_none(), "all routes cost the same: {own}");
        // The refusal is by the tokens, and takes no call.
        assert_eq!(gateway.get("/dear").status, 429);
        eventually("the view to have the refusal", || {
            (gateway.get("/limits").json()["rules"][1]["remaining"] == 47).then_some(())
        });
    }
}

#[test]
fn limit_by_window_allows_its_burst_at_once_and_is_shown_as_written() {
    let rules = "[rules.hourly]\nper = [\"ip\"]\nlimit = \"40/h\"\nburst = 7\n";
    let gateway = Gateway::start(&format!("{DEMO}{rules}"));
    // The rate is 33 an hour: one token in 109 s.
    let url = gateway.url("/");
    assert_eq!(send_many(200, |client, _| client.get(&url)), exactly(7, 193));
    let refused = gateway.send(&Request::get("/")).json();
    let detail = refused["detail"].as_str().unwrap().to_owned();
    assert!(detail.starts_with("Limit \"hourly\" (40/h, burst 7, plan "), "{detail}");
    let policy = gateway.admin("/api/policy").json();
    let rule = &policy["rules"][0];
    assert_eq!(rule["kind"], "token_bucket");
    let limit = &rule["limits"][0];
    assert_eq!([&limit["rate"], &limit["rate_is"]], ["40/h", "limit"], "{limit}");
    let audit = gateway.admin("/api/audit").json();
    let run = &audit["refusal_runs"][0];
    assert_eq!([&run["rate"], &run["rate_is"]], ["40/h", "limit"], "{run}");
    let buckets = gateway.admin("/api/clients/ip/127.0.0.1/buckets").json();
    let bucket = &buckets["rules"][0];
    assert_eq!((&bucket["rate"], &bucket["window_ms"]), (&"40/h".into(), &763_637.into()));
}

#[test]
fn burst_by_time_is_what_the_rate_yields_in_it() {
    let rule = "[rules.r]\nper = []\nrate = \"240/d\"\nburst = \"3h\"\n";
    let gateway = Gateway::start(&format!("{DEMO}{rule}"));
    let url = gateway.url("/");
    assert_eq!(send_many(100, |client, _| client.get(&url)), exactly(30, 70));
}

#[test]
fn cost_of_half_a_token_lets_exactly_twice_as_many_requests_pass() {
    let rule = "[rules.r]\nper = []\nrate = \"30/d\"\n";
    let half = "[routes.half]\npath = \"/half\"\nupstream = \"api\"\ncost = 0.5\n";
    let gateway = Gateway::start(&format!("{DEMO}{half}{rule}"));
    let url = gateway.url("/half");
    assert_eq!(send_many(100, |client, _| client.get(&url)), exactly(60, 40));
    let refused = gateway.send(&Request::get("/half"));
    assert_eq!(refused.header("x-ratelimit-remaining"), Some("0"));
    let detail = refused.json()["detail"].as_str().unwrap().to_owned();
    assert!(detail.contains(" lacks the 0.5 tokens that this request takes; "), "{detail}");
    // Half a token in 1440 s.
    let retry_after_ms = refused.json()["retry_after_ms"].as_u64().unwrap();
    assert!((1_300_000..=1_440_000).contains(&retry_after_ms), "{retry_after_ms}");
    let run = &gateway.admin("/api/audit").json()["refusal_runs"][0];
    assert_eq!(run["cost"], 0.5, "{run}");
    let explained = gateway.explain(r#"{"method":"GET","path":"/half"}"#).json();
    assert_eq!(explained["route"]["cost"], 0.5, "{explained:#}");
    let policy = gateway.admin("/api/policy").json();
    let costs: Vec<_> = policy["routes"].as_array().unwrap().iter().map(|r| &r["cost"]).collect();
    assert!(costs.contains(&&0.5.into()) && costs.contains(&&1.into()), "{costs:?}");
}
