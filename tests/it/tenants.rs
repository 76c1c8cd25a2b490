//! Tenants: several clients that share limits, with limits of their own below.

use serde_json::Value;

use crate::cluster::{flood, wait_until_connected as wait_for_cluster};
use crate::shared::{is_decided_locally, wait_until_connected};
use crate::support::{
    CpuWaits, DEMO, Gateway, Redis, RedisCluster, Request, Response, Upstream, digest, eventually,
    key, proxy_to, send_many,
};

/// Clients `a` and `b` of the tenant `acme`, `c` of another, `d` without one. The secret of each is
/// its name.
fn clients() -> String {
    ["a", "b", "c", "d"]
        .map(|id| {
            let tenant = match id {
                "a" | "b" => "tenant = \"acme\"\n",
                "c" => "tenant = \"globex\"\n",
                _ => "",
            };
            key(id, id, "free") + tenant
        })
        .concat()
}

const RULES: &str = "[rules.of-tenant]\nper = [\"tenant\"]\nrate = \"100/d\"\n\
    [rules.of-client]\nper = [\"key\"]\nrate = \"70/d\"\n";

fn with(secret: &str) -> Request {
    Request::get("/").header("X-Api-Key", secret)
}

/// The statuses of so many requests of a client.
fn statuses(gateway: &Gateway, secret: &str, count: usize) -> (usize, usize) {
    let answers: Vec<u16> = (0..count).map(|_| gateway.send(&with(secret)).status).collect();
    let of = |status| answers.iter().filter(|one| **one == status).count();
    assert_eq!(of(200) + of(429), count, "{answers:?}");
    (of(200), of(429))
}

#[test]
fn limit_of_a_tenant_is_over_those_of_its_clients() {
    let gateway = Gateway::start(&format!("{DEMO}{RULES}{}", clients()));
    assert_eq!(statuses(&gateway, "a", 75), (70, 5), "the limit of the client");
    assert_eq!(statuses(&gateway, "b", 35), (30, 5), "what is left of the tenant's");
    assert_eq!(statuses(&gateway, "c", 70), (70, 0), "another tenant");
    assert_eq!(statuses(&gateway, "d", 70), (70, 0), "no tenant");
    let refused = gateway.send(&with("b"));
    assert_eq!(refused.header("x-ratelimit-reason"), Some("of-tenant"), "{refused:?}");
    // A refusal by the tenant's limit takes nothing of the client's, and the other way round.
    let tokens = |path: &str, rule: &str| {
        let listed = gateway.admin(path).json();
        let bucket =
            listed["rules"].as_array().unwrap().iter().find(|one| one["rule"] == rule).cloned();
        bucket.unwrap_or_else(|| panic!("{listed}"))["tokens"].clone()
    };
    assert_eq!(tokens("/api/clients/key/b/buckets", "of-client"), 40);
    assert_eq!(tokens("/api/clients/tenant/acme/buckets", "of-tenant"), 0);
}

#[test]
fn tenant_has_a_plan_and_overrides_for_its_clients() {
    let config = "[plans.pro]\n[tenants.acme]\nplan = \"pro\"\nrules.of-client = { rate = \"5/d\" }\n\
        [tenants.globex]\n\
        [rules.of-tenant]\nper = [\"tenant\"]\nrate = \"10/d\"\nplans.pro = { rate = \"1000/d\" }\n\
        [rules.of-client]\nper = [\"key\"]\nrate = \"70/d\"\n\
        [rules.of-address]\nper = [\"ip\"]\nrate = \"5000/d\"\n";
    let own = "rules.of-client = { rate = \"6/d\" }\n";
    let without_plan = format!("[keys.e]\nsha256 = \"{}\"\ntenant = \"acme\"\n", digest("e"));
    let keys = format!(
        "{}tenant = \"acme\"\n{}tenant = \"acme\"\n{own}{}tenant = \"globex\"\n{without_plan}",
        key("a", "a", "free"),
        key("b", "b", "free"),
        key("c", "c", "free"),
    );
    let gateway = Gateway::start(&format!("{DEMO}{config}{keys}"));
    let limit = |secret: &str, rule: &str| {
        let explained = gateway.explain(format!(r#"{{"key": "{secret}"}}"#)).json();
        let rules = explained["rules"].as_array().unwrap();
        let charge = rules.iter().find(|one| one["name"] == rule).unwrap();
        format!("{} {}", charge["rate"].as_str().unwrap(), charge["rate_of"].as_str().unwrap())
    };
    assert_eq!(limit("a", "of-tenant"), "1000/d plan", "the tenant's plan, not the client's");
    assert_eq!(limit("c", "of-tenant"), "10/d rule");
    assert_eq!(limit("a", "of-client"), "5/d tenant");
    assert_eq!(limit("b", "of-client"), "6/d key");
    assert_eq!(limit("c", "of-client"), "70/d rule");
    assert_eq!(limit("a", "of-address"), "5000/d rule");
    let explained = gateway.explain(r#"{"key": "e"}"#).json();
    assert_eq!(explained["client"]["plan"], "pro");
    assert_eq!(explained["client"]["tenant"], "acme");
    // Clients of different plans share the limit of their tenant.
    assert_eq!(gateway.send(&with("e")).status, 200);
    assert_eq!(gateway.send(&with("a")).status, 200);
    let text = gateway.admin("/api/clients/tenant/acme/buckets").text();
    assert!(text.contains("998"), "{text}");
}

#[test]
fn limits_of_tenants_are_exact_over_two_gateways_by_the_log_of_the_upstream() {
    let redis = Redis::start();
    let upstream = Upstream::echo();
    let config = format!("{}{}{RULES}{}", proxy_to(&[upstream.address]), redis.table(), clients());
    let gateways: [Gateway; 2] = std::array::from_fn(|_| Gateway::start(&config));
    gateways.iter().for_each(wait_until_connected);
    let urls: Vec<String> = gateways.iter().map(|gateway| gateway.url("/")).collect();
    let secrets = ["a", "b", "c", "d"];
    let waits = CpuWaits::now();
    let counts = send_many(800, |client, number| {
        let secret = secrets[number / 2 % secrets.len()];
        client.get(&urls[number % 2]).header("X-Api-Key", secret)
    });
    assert_eq!(counts.values().sum::<usize>(), 800, "{counts:?}");
    if is_decided_locally(&gateways, &waits) {
        return;
    }
    // 100 of a and b together, at most 70 of each; 70 of c, and of d, which has no tenant.
    assert_eq!(counts.get(&200), Some(&(100 + 70 + 70)), "{counts:?}");
    assert_eq!(upstream.requests().len(), 240);
}

fn post(gateway: &Gateway, action: &str, body: &str) -> Response {
    let path = format!("/api/clients/tenant/acme/{action}");
    gateway.send_admin(&Request::new("POST", &path).body(body))
}

#[test]
fn tenant_is_reset_granted_and_listed() {
    let gateway = Gateway::start(&format!("{DEMO}{RULES}{}", clients()));
    statuses(&gateway, "a", 70);
    statuses(&gateway, "b", 31);
    let top = gateway.admin("/api/clients").json();
    let of_rule = top["rules"].as_array().unwrap().iter().find(|one| one["rule"] == "of-tenant");
    let clients = &of_rule.unwrap()["clients"];
    assert_eq!((&clients[0]["kind"], &clients[0]["id"]), (&"tenant".into(), &"acme".into()));
    assert_eq!(clients[0]["requests"], 101);
    let granted = post(&gateway, "grant", r#"{"rule": "of-tenant", "tokens": 2}"#);
    assert_eq!(granted.status, 200, "{granted:?}");
    assert_eq!(statuses(&gateway, "b", 3), (2, 1));
    let reset = post(&gateway, "reset", "");
    let reset: Value = reset.json();
    let rules: Vec<&Value> =
        reset["buckets"].as_array().unwrap().iter().map(|one| &one["rule"]).collect();
    assert_eq!(rules, ["of-tenant"], "its clients keep theirs: {reset}");
    assert_eq!(statuses(&gateway, "a", 1), (0, 1));
    assert_eq!(statuses(&gateway, "b", 1), (1, 0));
    let unknown = gateway.admin("/api/clients/tenant/nobody/buckets");
    assert_eq!(unknown.status, 404);
    assert!(unknown.text().contains("the file has no tenant `nobody`"), "{unknown:?}");
}

#[test]
fn tenant_is_in_the_access_log_and_in_headers_for_the_upstream() {
    let upstream = Upstream::echo();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("access.log");
    let config = format!(
        "[access_log]\noutput = \"{}\"\n[upstreams.api]\nservers = [\"{}\"]\n[plans.free]\n\
         [routes.all]\nrequest_headers.set = {{ X-Tenant = \"{{client.tenant}}\" }}\n{}",
        path.display(),
        upstream.address,
        clients()
    );
    let gateway = Gateway::start(&config);
    // What a client sends in the header does not reach the upstream.
    for secret in ["a", "d"] {
        assert_eq!(gateway.send(&with(secret).header("X-Tenant", "globex")).status, 200);
    }
    let seen: Vec<Option<String>> = upstream
        .requests()
        .iter()
        .map(|request| request.header("x-tenant").map(str::to_owned))
        .collect();
    assert_eq!(seen[0].as_deref(), Some("acme"));
    assert_ne!(seen[1].as_deref(), Some("globex"));
    let lines = eventually("two lines", || {
        let text = std::fs::read_to_string(&path).ok()?;
        (text.lines().count() == 2 && text.ends_with('\n')).then_some(text)
    });
    assert!(lines.contains(r#""tenant":"acme""#), "{lines}");
    assert!(lines.contains(r#""tenant":null"#), "{lines}");
}

/// Four limits of a tenant and its clients are one call to one slot of the cluster.
#[test]
fn colocated_limits_of_tenants_are_exact_in_a_cluster() {
    let redis = RedisCluster::steady(1);
    let rules = "[rules.of-tenant]\nper = [\"tenant\"]\nrate = \"100/365d\"\n\
        [rules.month]\nper = [\"tenant\"]\nkind = \"fixed_window\"\nlimit = \"90/year\"\n\
        [rules.of-client]\nper = [\"key\"]\nrate = \"70/365d\"\n\
        [rules.of-route]\nper = [\"key\", \"route\"]\nrate = \"5000/d\"\n";
    for lanes in [0, 6] {
        let lines = format!(
            "timeout = \"1s\"\nlanes = {lanes}\ncolocate = \"tenant\"\nprefix = \"tenants-{lanes}:\"\n"
        );
        let config = format!("{DEMO}{}{rules}{}", redis.table_with(&lines), clients());
        let gateways: [Gateway; 2] = std::array::from_fn(|_| Gateway::start(&config));
        gateways.iter().for_each(wait_for_cluster);
        let waits = CpuWaits::now();
        let counts = flood(&gateways, &["a", "b"], 300);
        if is_decided_locally(&gateways, &waits) {
            return;
        }
        assert_eq!(counts, [(200, 90), (429, 210)].into(), "lanes {lanes}");
        let calls = |gateway: &Gateway| gateway.count("tollgate_redis_calls_total", &[]);
        let before = calls(&gateways[0]);
        for _ in 0..10 {
            assert_eq!(gateways[0].send(&with("c")).status, 200);
        }
        assert_eq!(calls(&gateways[0]) - before, 10, "lanes {lanes}");
    }
}

/// Of a tenant without a plan, only requests of its clients show which bucket they count in.
#[test]
fn buckets_of_a_tenant_are_those_of_its_clients_or_are_not_known() {
    let config = "[clients]\non_missing_key = \"deny\"\n[plans.pro]\n[tenants.acme]\nplan = \"pro\"\n\
        [tenants.globex]\n[rules.of-tenant]\nper = [\"tenant\"]\nrate = \"9/d\"\n\
        plans.pro = { rate = \"20/d\" }\n[rules.of-client]\nper = [\"key\"]\nrate = \"70/d\"\n";
    let keys = key("a", "a", "free")
        + "tenant = \"acme\"\n"
        + &key("c", "c", "pro")
        + "tenant = \"globex\"\n";
    let gateway = Gateway::start(&format!("{DEMO}{config}{keys}"));
    assert_eq!(gateway.send(&with("a")).status, 200);
    assert_eq!(gateway.send(&with("c")).status, 200);
    let rule = |tenant: &str, name: &str| {
        let listed = gateway.admin(&format!("/api/clients/tenant/{tenant}/buckets")).json();
        let rules = listed["rules"].as_array().unwrap();
        rules.iter().find(|one| one["rule"] == name).unwrap().clone()
    };
    assert_eq!(rule("acme", "of-tenant")["tokens"], 19);
    assert_eq!(rule("globex", "of-tenant")["unknown"], serde_json::json!(["plan"]));
    assert_eq!(rule("globex", "of-tenant")["tokens"], Value::Null);
    assert_eq!(rule("acme", "of-client")["bucket"], Value::Null);
    assert_eq!(rule("acme", "of-client")["tokens"], Value::Null, "it has one for each client");
    let reset = post(&gateway, "reset", "{\"rule\": \"of-client\"}");
    assert_ne!(reset.status, 200, "{}", reset.text());
    assert_eq!(post(&gateway, "reset", "").json()["buckets"][0]["rule"], "of-tenant");
    assert_eq!(rule("acme", "of-tenant")["tokens"], 20);
}
