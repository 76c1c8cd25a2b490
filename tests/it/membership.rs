//! How gateways that share a Redis count each other, and notice that they have different limits.

use std::time::Duration;

use crate::support::{DEMO, Gateway, Redis, RedisCluster, Stopwatch, eventually, tollgate, within};
use crate::upgrade::upgraded;

/// Longer than different limits last until they are reported, on a busy machine.
const REPORTED: Duration = Duration::from_secs(60);

/// A file with this burst in `table`.
fn file(table: &str, burst: u32) -> String {
    format!("{DEMO}{table}[rules.r]\nper = [\"ip\"]\nrate = \"1/s\"\nburst = {burst}\n")
}

/// The number of live gateways in the status of one.
fn live(gateway: &Gateway) -> u64 {
    gateway.admin("/api/status").json()["gateways"].as_u64().unwrap()
}

fn wait_for_live(gateway: &Gateway, expected: u64) {
    eventually("the number of live gateways", || (live(gateway) == expected).then_some(()));
}

/// The number of gateways with other limits in the status of one.
fn others(gateway: &Gateway) -> Option<u64> {
    gateway.admin("/api/status").json()["limits"]["gateways_with_others"].as_u64()
}

fn wait_for_others(gateway: &Gateway, expected: u64) {
    eventually("gateways with other limits", || (others(gateway) == Some(expected)).then_some(()));
}

/// The hashes of limits in the metrics of a gateway.
fn hashes(gateway: &Gateway) -> Vec<String> {
    let metrics = gateway.metrics();
    let lines = metrics.lines().filter(|line| line.starts_with("tollgate_limits_info{"));
    lines.map(ToOwned::to_owned).collect()
}

#[test]
fn gateways_with_other_limits_are_shown_and_logged_until_they_agree() {
    let redis = Redis::start();
    let [first, second, third] =
        [100, 100, 1_000].map(|burst| Gateway::start(&file(&redis.table(), burst)));
    wait_for_others(&first, 1);
    wait_for_others(&second, 1);
    wait_for_others(&third, 2);
    assert_eq!(first.count("tollgate_gateways_with_other_limits", &[]), 1);
    assert_eq!(hashes(&first), hashes(&second));
    assert_ne!(hashes(&first), hashes(&third));
    wait_for_live(&first, 3);
    let top = tollgate(&["top", "--once", "--admin", &first.admin.to_string()], "").stdout;
    assert!(top.contains("gateways 3, 1 with other limits than "), "{top}");
    let reported = |gateway: &Gateway| {
        let words = "gateways that share this Redis have other limits than this one others=";
        gateway.log().matches(words).count()
    };
    let (of_first, of_third) = within(REPORTED, || {
        let all = [&first, &second, &third];
        all.iter().all(|gateway| reported(gateway) > 0).then(|| (first.log(), third.log()))
    })
    .expect("a line in the log");
    assert!(of_first.contains("others=1 gateways=3 limits="), "{of_first}");
    assert!(of_third.contains("others=2 gateways=3 limits="), "{of_third}");

    third.apply(&file(&redis.table(), 100));
    for gateway in [&first, &second, &third] {
        wait_for_others(gateway, 0);
        eventually("the end in the log", || {
            gateway.log().contains("have the same limits again").then_some(())
        });
        assert_eq!(reported(gateway), 1);
    }
    assert_eq!(hashes(&third), hashes(&first), "the former hash is gone");
}

#[test]
fn gateways_with_other_limits_are_seen_in_a_cluster_and_those_that_stop_are_gone() {
    let cluster = RedisCluster::start(0);
    let [first, mut second] =
        [100, 1_000].map(|burst| Gateway::start(&file(&cluster.table(), burst)));
    wait_for_live(&first, 2);
    wait_for_others(&first, 1);
    second.terminate();
    assert_eq!(second.exit().0, Some(0));
    let watch = Stopwatch::start();
    wait_for_live(&first, 1);
    wait_for_others(&first, 0);
    assert!(watch.elapsed() < Duration::from_secs(10), "{:?}", watch.elapsed());
}

#[test]
fn gateway_that_is_replaced_or_stops_is_not_counted_any_more() {
    let redis = Redis::start();
    let [first, mut second] = [(); 2].map(|()| Gateway::start(&file(&redis.table(), 100)));
    wait_for_live(&first, 2);
    wait_for_live(&second, 2);
    // The process before still serves its open connections.
    let _open = first.connect();
    for _ in 0..2 {
        upgraded(&first);
    }
    let watch = Stopwatch::start();
    for gateway in [&first, &second] {
        wait_for_live(gateway, 2);
    }
    second.terminate();
    assert_eq!(second.exit().0, Some(0));
    wait_for_live(&first, 1);
    // Without a word of the others, they count for 40 s.
    assert!(watch.elapsed() < Duration::from_secs(15), "{:?}", watch.elapsed());
}
