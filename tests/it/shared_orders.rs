//! Orders of operators for endpoints that apply to all gateways with the same Redis.

use std::time::Duration;

use crate::support::{
    DEMO, Data, Fleet, Gateway, Request, Upstream, eventually, full_config, proxy_to, timed_below,
    tollgate,
};
use crate::upgrade::upgraded;

const OK: &str = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";

/// How soon all gateways have an order, at the latest.
const SOON: Duration = Duration::from_secs(4);

/// Gateways with two servers.
fn fleet(data: Data) -> (Fleet, [Upstream; 2]) {
    let servers: [Upstream; 2] = std::array::from_fn(|_| Upstream::responding(OK));
    let addresses = [servers[0].address, servers[1].address];
    let fleet = Fleet::start(data, None, |redis| format!("{redis}{}", proxy_to(&addresses)));
    (fleet, servers)
}

/// Gives an order for the first server to all gateways.
#[track_caller]
fn order(gateway: &Gateway, servers: &[Upstream; 2], verb: &str) {
    let path = format!("/api/upstreams/api/{}/{verb}?scope=all", servers[0].address);
    let answer = gateway.send_admin(&Request::new("POST", &path));
    assert_eq!(answer.status, 200, "{}", answer.text());
}

/// The state of the first server.
fn state(gateway: &Gateway) -> String {
    gateway.endpoints()[0]["state"].as_str().unwrap().to_owned()
}

#[track_caller]
fn wait_for(gateways: &[Gateway], expected: &str) {
    eventually(expected, || gateways.iter().all(|it| state(it) == expected).then_some(()));
}

#[test]
fn order_for_all_gateways_applies_on_each_and_the_newest_wins() {
    let (fleet, servers) = fleet(Data::Kept);
    let [a, b, c] = &fleet.gateways;
    let server = servers[0].address.to_string();
    let url = format!("http://{}", a.admin);
    let drained = tollgate(&["upstreams", "drain", "api", &server, "--all", "--admin", &url], "");
    assert_eq!(drained.code, Some(0), "{drained:?}");
    assert!(drained.stdout.contains("drained: operator"), "{}", drained.stdout);
    timed_below(SOON, || wait_for(&fleet.gateways, "drained"));
    for gateway in &fleet.gateways {
        for _ in 0..4 {
            assert_eq!(gateway.get("/").status, 200);
        }
    }
    assert_eq!((servers[0].requests().len(), servers[1].requests().len()), (0, 12));
    order(b, &servers, "disable");
    timed_below(SOON, || wait_for(&fleet.gateways, "disabled"));
    // An order for one gateway is newer there.
    let path = format!("/api/upstreams/api/{server}/enable");
    assert_eq!(c.send_admin(&Request::new("POST", &path)).status, 200);
    order(a, &servers, "drain");
    timed_below(SOON, || wait_for(&fleet.gateways, "drained"));
    // A gateway that is started later.
    let late = Gateway::start_full(a.config());
    wait_for(&[late], "drained");
    order(c, &servers, "enable");
    timed_below(SOON, || wait_for(&fleet.gateways, "up"));
}

#[test]
fn newer_orders_for_one_gateway_outlive_its_upgrade() {
    let (fleet, servers) = fleet(Data::Kept);
    let [a, b, _] = &fleet.gateways;
    let alone = |verb: &str| {
        let path = format!("/api/upstreams/api/{}/{verb}", servers[0].address);
        assert_eq!(b.send_admin(&Request::new("POST", &path)).status, 200);
    };
    // It reads all orders at once: those for the first server are not newer.
    let wait_for_all_orders = || {
        for (verb, second) in [("drain", "drained"), ("enable", "up")] {
            let path = format!("/api/upstreams/api/{}/{verb}?scope=all", servers[1].address);
            assert_eq!(a.send_admin(&Request::new("POST", &path)).status, 200);
            eventually(second, || (b.endpoints()[1]["state"] == second).then_some(()));
        }
    };
    for (for_all, for_one, expected) in [("drain", "enable", "up"), ("enable", "drain", "drained")]
    {
        order(a, &servers, for_all);
        wait_for_all_orders();
        alone(for_one);
        upgraded(b);
        wait_for_all_orders();
        assert_eq!(state(b), expected);
    }
}

#[test]
fn row_188_order_without_redis_is_shared_when_it_is_back() {
    let (fleet, servers) = fleet(Data::Kept);
    fleet.kill_redis();
    let [a, b, _] = &fleet.gateways;
    let log = "orders for endpoints are not shared";
    eventually(log, || a.log().contains(log).then_some(()));
    order(a, &servers, "drain");
    assert_eq!((&*state(a), &*state(b)), ("drained", "up"));
    fleet.restart_redis();
    wait_for(&fleet.gateways, "drained");
    let log = "orders for endpoints are shared again";
    eventually(log, || a.log().contains(log).then_some(()));
}

#[test]
fn row_188_orders_outlive_the_data_of_redis() {
    let (fleet, servers) = fleet(Data::Lost);
    order(&fleet.gateways[0], &servers, "disable");
    wait_for(&fleet.gateways, "disabled");
    fleet.kill_redis();
    fleet.restart_redis();
    let late = Gateway::start_full(fleet.gateways[0].config());
    wait_for(&[late], "disabled");
    wait_for(&fleet.gateways, "disabled");
}

#[test]
fn order_for_all_gateways_needs_redis() {
    let gateway = Gateway::start_full(&full_config(&DEMO.replace("demo", "127.0.0.1:81")));
    let send = |query: &str| {
        let path = format!("/api/upstreams/api/127.0.0.1:81/drain?{query}");
        gateway.send_admin(&Request::new("POST", &path)).status
    };
    assert_eq!([send("scope=all"), send("scope=some"), send("scope=gateway")], [409, 400, 200]);
}
