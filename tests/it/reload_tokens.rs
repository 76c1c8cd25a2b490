//! Clients keep the fraction of their buckets when a rule changes.

use std::sync::atomic::{AtomicBool, Ordering};

use crate::support::{DEMO, Gateway, Redis, Request, eventually, key};

fn rule(rate: &str) -> String {
    format!("\n[rules.r]\nper = [\"ip\"]\nrate = \"{rate}\"\n")
}

/// Starts a gateway and waits until it uses the configured store.
fn start(file: &str) -> Gateway {
    let gateway = Gateway::start(file);
    if file.contains("[redis]") {
        let connected = || gateway.log().contains("connected to Redis").then_some(());
        eventually("a connection to Redis", connected);
    }
    gateway
}

/// Takes tokens and returns the remaining ones.
fn spend(gateway: &Gateway, count: usize) -> u64 {
    let mut left = 0;
    for _ in 0..count {
        left = gateway.get("/").remaining();
    }
    left
}

/// A client with 60 % of its bucket keeps 60 % of the new one, independent of other clients.
#[track_caller]
fn assert_fraction_is_kept(rest: &str) {
    let file =
        |rate: &str| format!("trusted_proxies = [\"127.0.0.1\"]\n{DEMO}{}{rest}", rule(rate));
    let gateway = start(&file("100/d"));
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let others = scope.spawn(|| {
            let mut client = gateway.connect();
            let other = Request::get("/").header("X-Forwarded-For", "192.0.2.1");
            let mut served = 0;
            while !done.load(Ordering::Relaxed) {
                assert!(matches!(client.send(&other).status, 200 | 429));
                served += 1;
            }
            served
        });
        assert_eq!(spend(&gateway, 40), 60);
        gateway.apply(&file("50/d"));
        assert_eq!(spend(&gateway, 1), 29);
        // An empty bucket stays empty.
        assert_eq!(spend(&gateway, 29), 0);
        gateway.apply(&file("1000/d"));
        assert_eq!(gateway.get("/").status, 429);
        gateway.apply(&file("2/d"));
        assert_eq!(gateway.get("/").status, 429);
        done.store(true, Ordering::Relaxed);
        assert!(others.join().unwrap() > 0);
    });
}

#[test]
fn row_46_client_keeps_its_fraction_in_memory() {
    assert_fraction_is_kept("");
}

#[test]
fn row_46_client_keeps_its_fraction_in_redis() {
    let redis = Redis::start();
    assert_fraction_is_kept(&redis.table());
}

#[test]
fn row_46_reload_clears_the_deny_cache() {
    let redis = Redis::start();
    let file = |rule: &str| format!("{DEMO}{rule}{}", redis.table());
    let gateway = start(&file(&rule("1/d")));
    spend(&gateway, 1);
    assert_eq!((gateway.get("/").status, gateway.get("/").status), (429, 429));
    gateway.apply(&file(""));
    assert_eq!(gateway.get("/").status, 200);
    // With the old rule again, its bucket is unchanged.
    gateway.apply(&file(&rule("1/d")));
    assert_eq!(gateway.get("/").status, 429);
}

#[test]
fn renamed_rule_starts_with_full_buckets() {
    let file = |name: &str| format!("{DEMO}{}", rule("3/d").replace("rules.r", name));
    let gateway = start(&file("rules.old"));
    assert_eq!(spend(&gateway, 3), 0);
    gateway.apply(&file("rules.new"));
    assert_eq!(spend(&gateway, 1), 2);
}

#[test]
fn key_moved_to_another_plan_keeps_its_fraction() {
    let file = |plan: &str| {
        let rule = "[rules.r]\nper = [\"key\"]\nplans.free = { rate = \"10/d\" }\n\
            plans.pro = { rate = \"100/d\" }\n";
        format!("{DEMO}[plans.pro]\n{rule}{}", key("acme", "secret", plan))
    };
    let gateway = start(&file("free"));
    let acme = Request::get("/").header("X-Api-Key", "secret");
    for left in [9, 8, 7, 6, 5] {
        assert_eq!(gateway.send(&acme).remaining(), left);
    }
    gateway.apply(&file("pro"));
    assert_eq!(gateway.send(&acme).remaining(), 49);
    gateway.apply(&file("free"));
    assert_eq!(gateway.send(&acme).remaining(), 3);
}

/// Changes the order of `per`, and adds the first table of another plan.
#[track_caller]
fn assert_tokens_are_kept_where_the_limit_is(rest: &str) {
    let file = |per: &str, more: &str| {
        let rule = format!("[rules.r]\nper = [{per}]\nrate = \"10/d\"\n{more}\n");
        format!("{DEMO}[plans.pro]\n{rule}{}{rest}", key("acme", "secret", "pro"))
    };
    let gateway = start(&file("\"ip\", \"host\"", ""));
    assert_eq!(spend(&gateway, 4), 6);
    gateway.apply(&file("\"host\", \"ip\"", ""));
    assert_eq!(spend(&gateway, 1), 5, "per in another order");
    let of_pro = "plans.pro = { rate = \"100/d\" }";
    gateway.apply(&file("\"host\", \"ip\"", of_pro));
    assert_eq!(spend(&gateway, 1), 4, "a first table, for the plan `pro`");
    let acme = Request::get("/").header("X-Api-Key", "secret");
    assert_eq!(gateway.send(&acme).remaining(), 99, "pro has a separate bucket");
    gateway.apply(&file("\"ip\", \"host\"", ""));
    assert_eq!(spend(&gateway, 1), 3, "the table is gone again");
}

#[test]
fn reload_that_keeps_a_clients_limit_keeps_its_tokens_in_memory() {
    assert_tokens_are_kept_where_the_limit_is("");
}

#[test]
fn reload_that_keeps_a_clients_limit_keeps_its_tokens_in_redis() {
    let redis = Redis::start();
    assert_tokens_are_kept_where_the_limit_is(&redis.table());
}
