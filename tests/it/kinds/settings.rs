//! Settings that every kind of limit has: `on_missing`, `exempt`, `on_failure`; and what an upgrade
//! hands over.

use crate::support::{ClosedPort, DEMO, Gateway, Redis, Request, key};
use crate::upgrade::upgraded;

/// Settings of a rule of each kind, and how many requests at once it lets pass.
const KINDS: [(&str, usize); 4] = [
    ("rate = \"3/365d\"", 3),
    ("kind = \"fixed_window\"\nlimit = \"3/year\"", 3),
    ("kind = \"sliding_window\"\nlimit = \"3/h\"", 3),
    ("kind = \"leaky_bucket\"\nrate = \"1/365d\"\nmax_delay = \"1s\"", 1),
];

/// A rule of each route, with one of these settings, which also names the route.
fn rules(kind: &str, setting: &str, values: &[&str]) -> String {
    let rule = |value: &&str| {
        format!(
            "[routes.{value}]\npath = \"/{value}\"\n\
             [rules.{value}]\nper = [\"key\"]\nroutes = [\"{value}\"]\n{setting} = \"{value}\"\n{kind}\n"
        )
    };
    values.iter().map(rule).collect()
}

/// Statuses of requests one after the other: each value and how often it comes in a row.
fn runs(gateway: &Gateway, request: &Request, count: usize) -> Vec<(u16, usize)> {
    let mut runs: Vec<(u16, usize)> = Vec::new();
    for _ in 0..count {
        let status = gateway.send(request).status;
        match runs.last_mut() {
            Some((last, times)) if *last == status => *times += 1,
            _ => runs.push((status, 1)),
        }
    }
    runs
}

/// A request of a client behind a trusted proxy.
fn from(address: &str, path: &str) -> Request {
    Request::get(path).header("X-Forwarded-For", address)
}

/// Runs a test of each kind in memory and with Redis.
fn in_both_stores(config: impl Fn(&str) -> String, test: impl Fn(&Gateway, usize, &str)) {
    for (kind, limit) in KINDS {
        for redis in [None, Some(Redis::start())] {
            let table =
                redis.as_ref().map_or_else(String::new, |redis| redis.table_with_timeout("1s"));
            let proxies = "trusted_proxies = [\"127.0.0.1\"]\n";
            let gateway = Gateway::start(&format!("{proxies}{DEMO}{table}\n{}", config(kind)));
            if redis.is_some() {
                gateway.wait_for_redis();
            }
            let store = if redis.is_some() { "Redis" } else { "memory" };
            test(&gateway, limit, &format!("{kind} in {store}"));
        }
    }
}

#[test]
fn on_missing_decides_on_requests_without_a_key_for_every_kind() {
    let keys = key("acme", "secret", "free");
    let config = |kind: &str| {
        format!("{}{keys}", rules(kind, "on_missing", &["ip", "skip", "shared", "deny"]))
    };
    in_both_stores(config, |gateway, limit, case| {
        let passed = |address, path| runs(gateway, &from(address, path), limit + 1);
        let full = vec![(200, limit), (429, 1)];
        assert_eq!(passed("192.0.2.1", "/ip"), full, "{case}");
        assert_eq!(passed("192.0.2.2", "/ip"), full, "{case}: each address has its own");
        assert_eq!(passed("192.0.2.1", "/shared"), full, "{case}");
        assert_eq!(passed("192.0.2.2", "/shared"), [(429, limit + 1)], "{case}: one for all");
        assert_eq!(passed("192.0.2.1", "/skip"), [(200, limit + 1)], "{case}");
        assert_eq!(passed("192.0.2.1", "/deny"), [(401, limit + 1)], "{case}");
        let with_key = from("192.0.2.1", "/deny").header("X-Api-Key", "secret");
        assert_eq!(runs(gateway, &with_key, limit + 1), full, "{case}: with a key");
    });
}

#[test]
fn exempt_clients_take_nothing_from_a_limit_of_any_kind() {
    let keys = format!("{}{}", key("acme", "secret", "free"), key("monitor", "watch", "free"));
    let exempt = "exempt = { keys = [\"monitor\"], ips = [\"198.51.100.0/24\"] }";
    let config = |kind: &str| format!("[rules.all]\nper = []\n{exempt}\n{kind}\n{keys}");
    in_both_stores(config, |gateway, limit, case| {
        let monitor = from("192.0.2.1", "/").header("X-Api-Key", "watch");
        let inside = from("198.51.100.7", "/").header("X-Api-Key", "secret");
        for request in [&monitor, &inside] {
            assert_eq!(runs(gateway, request, limit + 2), [(200, limit + 2)], "{case}");
        }
        let other = from("192.0.2.1", "/").header("X-Api-Key", "secret");
        assert_eq!(runs(gateway, &other, limit + 1), [(200, limit), (429, 1)], "{case}");
        assert_eq!(runs(gateway, &monitor, 1), [(200, 1)], "{case}: after the limit is used");
    });
}

/// `"local"` is tested by the outage tests of each kind.
#[test]
fn on_failure_decides_without_redis_for_every_kind() {
    let closed = ClosedPort::bind();
    let redis = format!("[redis]\nurl = \"redis://{}\"\n", closed.address);
    for (kind, limit) in KINDS {
        let rules = rules(kind, "on_failure", &["allow", "deny"]);
        let gateway = Gateway::start(&format!("instances = 1\n{DEMO}{redis}{rules}"));
        let passed = |path: &str| runs(&gateway, &Request::get(path), limit + 1);
        assert_eq!(passed("/allow"), [(200, limit + 1)], "{kind}");
        assert_eq!(passed("/deny"), [(503, limit + 1)], "{kind}");
    }
}

#[test]
fn row_67_upgrade_gives_no_client_a_limit_of_any_kind_again() {
    for (kind, limit) in KINDS {
        let gateway = Gateway::start(&format!("{DEMO}[rules.all]\nper = []\n{kind}\n"));
        let request = Request::get("/");
        assert_eq!(runs(&gateway, &request, limit), [(200, limit)], "{kind}");
        upgraded(&gateway);
        assert_eq!(runs(&gateway, &request, 2), [(429, 2)], "{kind}: {}", gateway.log());
    }
}
