//! Metrics, logs and headers in an outage.

use super::{
    Fixture, HIGH_RATE, config, decided_by, get, request, times_opened, wait_until_closed,
    wait_until_connected, wait_until_open,
};
use crate::support::{DEMO, FaultProxy, Gateway, Mode, Redis, Request, eventually, key, send_many};

/// One log line for each transition, for any number of requests.
#[test]
fn row_01_outage_is_counted_and_logged_once() {
    // A timeout on a busy machine would open the breaker again.
    let fixture = Fixture::with_timeout("1s", HIGH_RATE);
    let gateway = &fixture.gateway;
    assert_eq!((super::breaker(gateway), times_opened(gateway)), (0, 0));
    let lines = gateway.log().lines().count();
    fixture.proxy.set(Mode::Refuse);
    wait_until_open(gateway);
    let counts =
        send_many(3_000, |client, _| client.get(gateway.url("/")).header("X-Api-Key", "secret"));
    assert_eq!(counts.get(&200), Some(&3_000), "{counts:?}");
    fixture.proxy.set(Mode::Pass);
    wait_until_closed(gateway);
    let changes = |to| gateway.count("tollgate_breaker_transitions_total", &[("to", to)]);
    assert_eq!(["open", "half_open", "closed"].map(changes), [1, 1, 1]);
    let log = gateway.log();
    for line in ["breaker open", "breaker half open", "breaker closed"] {
        assert_eq!(log.matches(line).count(), 1, "{line}");
    }
    assert!(log.lines().count() <= lines + 10, "{log}");
}

#[test]
fn mode_header_shows_local_fallback() {
    let redis = Redis::start();
    let proxy = FaultProxy::start(&redis);
    // A check that times out on a busy machine would be decided locally.
    let text = config(&proxy.table("1s"), HIGH_RATE);
    let gateway = Gateway::start(&format!("{text}\n[headers]\nmode = true\n"));
    wait_until_connected(&gateway);
    let mode = || gateway.send(&request()).header("x-ratelimit-mode").map(str::to_owned);
    assert_eq!(mode(), None);
    proxy.set(Mode::Refuse);
    wait_until_open(&gateway);
    assert_eq!(mode().as_deref(), Some("local"));
    proxy.set(Mode::Pass);
    wait_until_closed(&gateway);
    assert_eq!(mode(), None);
}

/// `on_failure` of each rule.
#[test]
fn on_failure_of_a_rule_denies_or_allows() {
    let redis = Redis::start();
    let proxy = FaultProxy::start(&redis);
    let rule = |name: &str| {
        format!(
            "[routes.{name}]\npath = \"/{name}\"\nupstream = \"api\"\n[rules.{name}]\n\
             per = [\"key\"]\nroutes = [\"{name}\"]\nrate = \"3/d\"\non_failure = \"{name}\"\n"
        )
    };
    let rules = ["local", "deny", "allow"].map(rule).concat();
    let gateway = Gateway::start(&format!(
        "instances = 1\n{DEMO}{}{rules}{}",
        proxy.table(super::LONG_TIMEOUT),
        key("acme", "secret", "free")
    ));
    let ask = |path: &str| gateway.send(&Request::get(path).header("X-Api-Key", "secret"));
    eventually("Redis to decide", || {
        ask("/deny");
        (decided_by(&gateway, "redis") > 0).then_some(())
    });
    proxy.set(Mode::Refuse);
    eventually("the breaker to open", || (super::breaker(&gateway) == 2).then_some(()));
    let statuses = |path| [(); 5].map(|()| ask(path).status);
    assert_eq!(statuses("/local"), [200, 200, 200, 429, 429]);
    assert_eq!(statuses("/allow"), [200; 5]);
    assert_eq!(statuses("/deny"), [503; 5]);
    let refusal = ask("/deny");
    let wait: u64 = refusal.header("retry-after").unwrap().parse().unwrap();
    assert!((1..=60).contains(&wait), "{refusal:?}");
    let types = refusal.header("content-type");
    assert_eq!(types, Some("application/problem+json"));
    proxy.set(Mode::Pass);
    eventually("the rule to allow again", || (ask("/deny").status != 503).then_some(()));
}

/// Each gateway sends heartbeats that all gateways read.
#[test]
fn gateways_count_each_other() {
    let redis = Redis::start();
    let text = config(&redis.table(), HIGH_RATE);
    let gateways: [Gateway; 3] = std::array::from_fn(|_| Gateway::start(&text));
    for gateway in &gateways {
        gateway.wait_for_count("tollgate_gateways", &[], 3);
    }
    assert_eq!(redis.query::<u64>(&["ZCARD", "tollgate:gateways"]), 3);
}

#[test]
fn row_22_readiness_without_redis_follows_redis_ready() {
    let mut redis = Redis::stopped();
    let ready = |gateway: &Gateway| gateway.admin("/ready").status;
    let of = |more: &str| Gateway::start(&config(&format!("{}{more}", redis.table()), HIGH_RATE));
    let (always, connected) = (of("ready = \"always\"\n"), of("ready = \"connected\"\n"));
    assert_eq!((ready(&always), ready(&connected), ready(&of(""))), (200, 503, 200));
    assert_eq!((get(&always), get(&connected)), (200, 200), "served all the same");
    redis.launch();
    eventually("to be ready", || (ready(&connected) == 200).then_some(()));
    redis.kill();
    eventually("not to be ready", || (ready(&connected) == 503).then_some(()));
    assert_eq!((ready(&always), get(&connected)), (200, 200));
}
