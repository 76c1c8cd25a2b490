//! `ban`: clients that go on after refusals are refused for longer, on all gateways.

use serde_json::{Value, json};

use crate::cluster::wait_until_connected as wait_for_cluster;
use crate::support::{
    DEMO, Data, FaultProxy, Fleet, Gateway, Mode, Redis, RedisCluster, Request, Response,
    Stopwatch, digest, eventually, key,
};

/// One request of each client, then refusals; three of them begin a ban.
const RULES: &str = "[rules.strict]\nper = [\"key\"]\nrate = \"1/365d\"\n\
    ban = { after = 3, within = \"1h\", for = \"10m\", grow = 2 }\n\
    [rules.wide]\nper = [\"ip\"]\nrate = \"100000/d\"\n";

/// Tests send many requests on one connection.
const UNBOUNDED: &str = "[server.limits]\nmax_requests_per_connection = 0\n";

fn clients() -> String {
    ["acme", "beta", "gamma"].map(|id| key(id, id, "free")).concat()
}

fn with(secret: &str) -> Request {
    Request::get("/").header("X-Api-Key", secret)
}

fn detail(response: &Response) -> String {
    response.json()["detail"].as_str().unwrap().to_owned()
}

/// Whether a request of the client is refused by a ban.
fn is_banned(gateway: &Gateway, client: &str) -> bool {
    let answer = gateway.send(&with(client));
    answer.status == 429 && detail(&answer).contains("has banned this client")
}

#[track_caller]
fn wait_for_ban(gateway: &Gateway, client: &str) {
    let what = format!("the ban of {client}");
    eventually(&what, || is_banned(gateway, client).then_some(()));
}

/// Sends a request that is allowed and so many that are refused.
fn refuse(gateway: &Gateway, client: &str, times: usize) {
    for _ in 0..=times {
        gateway.send(&with(client));
    }
}

fn call(gateway: &Gateway, method: &str, path: &str, body: &str) -> Response {
    gateway.send_admin(&Request::new(method, path).body(body))
}

fn listed(gateway: &Gateway, query: &str) -> Vec<Value> {
    gateway.admin(&format!("/api/bans{query}")).json()["bans"].as_array().unwrap().clone()
}

#[test]
fn banned_client_gets_429_with_the_end_of_the_ban_everywhere() {
    let limits = "[clients]\nlimits_path = \"/limits\"\n";
    let gateway = Gateway::start(&format!("{DEMO}{limits}{RULES}{}", clients()));
    let mut connection = gateway.connect();
    let statuses: Vec<u16> = (0..4).map(|_| connection.send(&with("acme")).status).collect();
    assert_eq!(statuses, [200, 429, 429, 429]);
    let banned = connection.send(&with("acme"));
    assert_eq!(banned.status, 429);
    let wait: u64 = banned.header("retry-after").unwrap().parse().unwrap();
    assert!((595..=600).contains(&wait), "{banned:?}");
    assert_eq!(banned.header("x-ratelimit-reason"), Some("strict"));
    assert_eq!(banned.header("x-ratelimit-remaining"), Some("0"));
    assert!(detail(&banned).starts_with("Limit \"strict\" has banned this client; retry in "));
    assert_eq!(banned.json()["violated-policies"], json!(["strict"]));
    assert_eq!(connection.send(&with("beta")).status, 200, "another client");
    let labels = [("rule", "strict"), ("decision", "deny"), ("source", "ban")];
    assert_eq!(gateway.count("tollgate_decisions_total", &labels), 1);
    assert_eq!(gateway.count("tollgate_bans", &[("rule", "strict")]), 1);
    let explained = gateway.explain("{\"path\": \"/\", \"key_id\": \"acme\"}").json();
    assert_eq!(explained["verdict"]["decision"], "deny");
    assert_eq!(
        explained["rules"][0]["ban"],
        "after 3 refusals within 1h, for 10m, each further one 2 times longer, at most 1d"
    );
    assert!(explained["rules"][0]["banned_for_ms"].as_u64().unwrap() > 590_000, "{explained}");
    let own = gateway.send(&Request::get("/limits").header("X-Api-Key", "acme")).json();
    assert!(own["rules"][0]["banned_for_ms"].as_u64().unwrap() > 590_000, "{own}");
    let policy = gateway.admin("/api/policy").json();
    assert!(policy["rules"][0]["ban"].as_str().unwrap().starts_with("after 3 refusals"));
    eventually("the refusals in the audit", || {
        let runs = gateway.admin("/api/audit?key=acme").json()["refusal_runs"].clone();
        let count = |reason: &str| {
            let mut runs = runs.as_array().unwrap().iter();
            runs.find(|run| run["reason"] == reason).map(|run| run["count"].clone())
        };
        (count("limited") == Some(json!(3)) && count("banned") == Some(json!(1))).then_some(())
    });
}

#[test]
fn operators_list_begin_extend_and_lift_bans() {
    let gateway = Gateway::start(&format!("{DEMO}{RULES}{}", clients()));
    refuse(&gateway, "acme", 3);
    assert!(is_banned(&gateway, "acme"));
    let body = r#"{"rule": "strict", "key": "beta", "for": "1h", "reason": "ticket 7"}"#;
    let begun = call(&gateway, "POST", "/api/bans", body);
    assert_eq!(begun.status, 200, "{}", begun.text());
    assert!(is_banned(&gateway, "beta"), "without a request that was refused");
    let all = listed(&gateway, "");
    assert_eq!(all.len(), 2);
    let beta = listed(&gateway, "?key=beta").remove(0);
    assert_eq!((&beta["reason"], &beta["client"]), (&json!("ticket 7"), &json!("beta")));
    assert!(beta["by"].is_string() && beta["left_ms"].as_u64().unwrap() > 3_590_000, "{beta}");
    let first = gateway.admin("/api/bans?limit=1").json();
    let next = first["next"].as_str().unwrap();
    let second = gateway.admin(&format!("/api/bans?limit=1&cursor={next}")).json();
    assert_eq!(
        [&first["bans"][0], &second["bans"][0]].map(|ban| &ban["id"]),
        [&all[0]["id"], &all[1]["id"]]
    );
    assert!(second.get("next").is_none());
    let id = beta["id"].as_str().unwrap();
    let longer =
        call(&gateway, "POST", "/api/bans", &format!("{{\"id\": \"{id}\", \"for\": \"2h\"}}"));
    assert!(longer.json()["left_ms"].as_u64().unwrap() > 7_190_000, "{}", longer.text());
    let lifted = call(&gateway, "DELETE", &format!("/api/bans?id={id}"), "");
    assert_eq!(lifted.json()["lifted"].as_array().unwrap().len(), 1, "{}", lifted.text());
    assert_eq!(gateway.send(&with("beta")).status, 200);
    assert_eq!(call(&gateway, "DELETE", &format!("/api/bans?id={id}"), "").status, 404);
    assert_eq!(call(&gateway, "DELETE", "/api/bans?key=acme", "").status, 200);
    assert!(!is_banned(&gateway, "acme"));
    assert!(listed(&gateway, "").is_empty());
    for (method, path, body, status) in [
        ("POST", "/api/bans", "", 400),
        ("POST", "/api/bans", r#"{"rule": "wide", "ip": "10.0.0.1"}"#, 409),
        ("POST", "/api/bans", r#"{"rule": "strict", "key": "unknown"}"#, 404),
        ("POST", "/api/bans", r#"{"rule": "strict", "key": "beta", "for": "1ms"}"#, 400),
        ("DELETE", "/api/bans", "", 400),
        ("DELETE", "/api/bans?id=x", "", 400),
        ("GET", "/api/bans?limit=0", "", 400),
    ] {
        assert_eq!(call(&gateway, method, path, body).status, status, "{method} {path} {body}");
    }
    let changes = gateway.admin("/api/audit?kind=change&key=beta").json();
    let what: Vec<&str> = changes["changes"]
        .as_array()
        .unwrap()
        .iter()
        .map(|one| one["what"].as_str().unwrap())
        .collect();
    assert!(
        what.iter()
            .any(|what| what.starts_with("banned key beta: strict") && what.contains("ticket 7")),
        "{what:?}"
    );
    assert!(what.iter().any(|what| what.starts_with("lifted bans: key beta")), "{what:?}");
}

#[test]
fn tokens_of_a_tenant_see_its_bans_and_change_none() {
    let token = |name: &str, more: &str| {
        format!("[[admin.tokens]]\nname = \"{name}\"\nsha256 = \"{}\"\n{more}\n", digest(name))
    };
    let tokens = token("operator", "roles = [\"operate\"]")
        + &token("reader", "")
        + &token("customer", "tenant = \"big\"");
    let acme = key("acme", "acme", "free") + "tenant = \"big\"\n";
    let gateway =
        Gateway::start(&format!("{DEMO}{RULES}{acme}{}{tokens}", key("beta", "beta", "free")));
    let as_token = |token: &str, method: &str, path: &str, body: &str| {
        let request = Request::new(method, path).header("Authorization", format!("Bearer {token}"));
        gateway.send_admin(&request.body(body))
    };
    let ban = |client: &str| format!("{{\"rule\": \"strict\", \"key\": \"{client}\"}}");
    for client in ["acme", "beta"] {
        assert_eq!(as_token("operator", "POST", "/api/bans", &ban(client)).status, 200);
        assert_eq!(as_token("reader", "POST", "/api/bans", &ban(client)).status, 403);
        assert_eq!(as_token("customer", "POST", "/api/bans", &ban(client)).status, 403);
        let path = format!("/api/bans?key={client}");
        assert_eq!(as_token("reader", "DELETE", &path, "").status, 403);
        assert_eq!(as_token("customer", "DELETE", &path, "").status, 403);
    }
    let clients = |token: &str| {
        let bans = as_token(token, "GET", "/api/bans", "").json()["bans"].clone();
        bans.as_array().unwrap().iter().map(|ban| ban["client"].clone()).collect::<Vec<_>>().len()
    };
    assert_eq!((clients("reader"), clients("customer")), (2, 1));
}

#[test]
fn shadow_rules_and_candidates_ban_no_client_and_enforced_parts_do() {
    let rule = |more: &str| {
        format!("{DEMO}[rules.r]\nper = [\"key\"]\nrate = \"5/365d\"\n{more}\n{}", clients())
    };
    let gateway = Gateway::start(&rule("enforce = \"0%\"\nban = { after = 1 }"));
    for _ in 0..10 {
        assert_eq!(gateway.send(&with("acme")).status, 200);
    }
    gateway.apply(&rule("candidate = { rate = \"1/365d\" }\nban = { after = 1 }"));
    for _ in 0..4 {
        assert_eq!(gateway.send(&with("beta")).status, 200, "the candidate refuses");
    }
    assert!(listed(&gateway, "").is_empty());
    gateway.apply(&rule("ban = { after = 1 }"));
    refuse(&gateway, "gamma", 5);
    assert!(is_banned(&gateway, "gamma"));
    // A rule without `ban` looks no ban up.
    gateway.apply(&rule(""));
    assert_eq!(gateway.send(&with("gamma")).status, 429);
    assert!(!is_banned(&gateway, "gamma"));
}

/// A gateway that is cut off from Redis enforces the bans that it knows, and begins others. When it
/// is back, all know all of them.
#[test]
fn row_219_ban_is_enforced_on_three_gateways_one_of_them_cut_off_from_redis() {
    let redis = Redis::start();
    let proxy = FaultProxy::start(&redis);
    let breaker =
        "[redis.breaker]\nopen = \"100ms\"\nopen_max = \"500ms\"\nramp_step = \"100ms\"\n";
    let text = |table: String| format!("{DEMO}{RULES}{}{UNBOUNDED}{table}{breaker}", clients());
    let [a, b] = [(); 2].map(|()| Gateway::start(&text(redis.table())));
    let c = Gateway::start(&text(proxy.table("1s")));
    [&a, &b, &c].into_iter().for_each(Gateway::wait_for_redis);
    // Refusals of all gateways count together.
    a.send(&with("acme"));
    for gateway in [&a, &b, &c] {
        assert_eq!(gateway.send(&with("acme")).status, 429);
    }
    for gateway in [&a, &b, &c] {
        wait_for_ban(gateway, "acme");
    }
    proxy.set(Mode::Refuse);
    let log = "bans are not shared";
    eventually(log, || c.log().contains(log).then_some(()));
    assert!(is_banned(&c, "acme"), "cut off from Redis");
    refuse(&a, "beta", 3);
    wait_for_ban(&b, "beta");
    assert!(!is_banned(&c, "beta"), "it began without this gateway");
    refuse(&c, "gamma", 12);
    assert!(is_banned(&c, "gamma"), "by its own count");
    assert!(listed(&a, "?key=gamma").is_empty());
    proxy.set(Mode::Pass);
    wait_for_ban(&c, "beta");
    eventually("the ban of gamma", || (!listed(&a, "?key=gamma").is_empty()).then_some(()));
    assert!(is_banned(&a, "gamma"));
    let again = "bans are shared again";
    eventually(again, || c.log().contains(again).then_some(()));
    // A gateway that is started later, as after a restart.
    let late = Gateway::start(&text(redis.table()));
    for client in ["acme", "beta", "gamma"] {
        wait_for_ban(&late, client);
    }
    // Lifted by one, on all.
    assert_eq!(call(&b, "DELETE", "/api/bans?key=beta", "").status, 200);
    for gateway in [&a, &c, &late] {
        eventually("the end of the ban", || listed(gateway, "?key=beta").is_empty().then_some(()));
    }
    assert!(!is_banned(&a, "beta"));
}

/// By the number of Redis' own commands. A refusal from the deny cache costs one call a second.
#[test]
fn flood_of_a_banned_client_costs_redis_nothing() {
    let redis = Redis::start();
    let text = format!("{DEMO}{RULES}{}{UNBOUNDED}{}", clients(), redis.table());
    let gateways: [Gateway; 2] = std::array::from_fn(|_| Gateway::start(&text));
    gateways.iter().for_each(Gateway::wait_for_redis);
    refuse(&gateways[0], "acme", 3);
    for gateway in &gateways {
        wait_for_ban(gateway, "acme");
    }
    let checks = || -> u64 {
        let sum = |gateway: &Gateway| gateway.count("tollgate_redis_calls_total", &[]);
        gateways.iter().map(sum).sum()
    };
    let (before, commands) = (checks(), redis.calls("evalsha"));
    let watch = Stopwatch::start();
    for gateway in &gateways {
        let mut connection = gateway.connect();
        for _ in 0..1_000 {
            assert_eq!(connection.send(&with("acme")).status, 429);
        }
    }
    assert_eq!(checks() - before, 0, "calls with checks");
    // Heartbeats: a few in each second that a busy machine takes for the 2,000 requests.
    let sent = redis.calls("evalsha") - commands;
    let most = (30 + 10 * watch.elapsed().as_secs()).min(500);
    assert!(sent <= most, "{sent} of at most {most}");
    let banned: u64 = gateways
        .iter()
        .map(|gateway| gateway.count("tollgate_decisions_total", &[("source", "ban")]))
        .sum();
    assert!(banned >= 2_000, "{banned}");
}

/// Redis is killed and starts without its data: gateways keep the bans, and give them to it.
#[test]
fn row_220_bans_survive_the_loss_of_redis_and_its_data() {
    let fleet =
        Fleet::start(Data::Lost, None, |redis| format!("{DEMO}{RULES}{}{redis}", clients()));
    let [a, b, c] = &fleet.gateways;
    refuse(a, "acme", 3);
    for gateway in &fleet.gateways {
        wait_for_ban(gateway, "acme");
    }
    fleet.kill_redis();
    for gateway in [a, b, c] {
        assert!(is_banned(gateway, "acme"));
    }
    fleet.restart_redis();
    let late = Gateway::start_full(a.config());
    wait_for_ban(&late, "acme");
    for gateway in [a, b, c] {
        assert!(is_banned(gateway, "acme"));
    }
}

#[test]
fn ban_is_enforced_by_all_gateways_of_a_cluster() {
    let redis = RedisCluster::steady(1);
    let text = format!("{DEMO}{RULES}{}{}", clients(), redis.table());
    let gateways: [Gateway; 2] = std::array::from_fn(|_| Gateway::start(&text));
    gateways.iter().for_each(wait_for_cluster);
    refuse(&gateways[0], "acme", 3);
    for gateway in &gateways {
        wait_for_ban(gateway, "acme");
    }
    assert_eq!(listed(&gateways[1], "").len(), 1);
}

#[test]
fn ban_ends_by_itself_and_a_further_one_is_longer() {
    let rule = "[rules.r]\nper = [\"key\"]\nrate = \"1/365d\"\n\
        ban = { after = 2, within = \"10s\", for = \"5s\", grow = 3 }\n";
    let gateway = Gateway::start(&format!("{DEMO}{rule}{}", clients()));
    refuse(&gateway, "acme", 2);
    let left = || {
        listed(&gateway, "")
            .first()
            .map(|ban| (ban["number"].clone(), ban["left_ms"].as_u64().unwrap()))
    };
    let (number, first) = left().unwrap();
    assert!(number == 1 && first <= 5_000, "{number} {first}");
    eventually("the end of the ban", || listed(&gateway, "").is_empty().then_some(()));
    refuse(&gateway, "acme", 1);
    let (number, further) = left().unwrap();
    assert!(number == 2 && further > 5_000 && further <= 15_000, "{number} {further}");
}
