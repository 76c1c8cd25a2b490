//! What concerns no single master: the number of gateways, the stream of refusals, adjustments by
//! an operator, and the settlement of debts at the end.

use super::gateways;
use crate::support::{
    ClusterNode, DEMO, Gateway, RedisCluster, Request, StatusCounts, key, send_many,
};

/// Limits in several slots, which no test refills.
const RULES: &str = "[rules.client]\nper = [\"key\"]\nrate = \"20/d\"\n\
    [rules.address]\nper = [\"ip\"]\nkind = \"fixed_window\"\nlimit = \"1000/year\"\n";

const STREAM: &str = "[audit]\nstream = true\n";

fn start<const N: usize>(redis: &RedisCluster) -> [Gateway; N] {
    let keys: String = (0..8).map(|n| key(&format!("k{n}"), format!("s{n}"), "free")).collect();
    gateways(&format!("{DEMO}{}{RULES}{STREAM}{keys}", redis.table()))
}

/// Sends requests of all eight clients.
fn flood(gateways: &[Gateway], count: usize) -> StatusCounts {
    let urls: Vec<String> = gateways.iter().map(|gateway| gateway.url("/")).collect();
    send_many(count, |client, number| {
        let secret = format!("s{}", number % 8);
        client.get(&urls[number / 8 % urls.len()]).header("X-Api-Key", secret)
    })
}

fn post(gateway: &Gateway, path: &str, body: &str) -> u16 {
    gateway.send_admin(&Request::new("POST", path).body(body)).status
}

#[test]
fn gateways_are_counted_once_each() {
    let redis = RedisCluster::steady(0);
    let gateways: [Gateway; 3] = start(&redis);
    for gateway in &gateways {
        gateway.wait_for_count("tollgate_gateways", &[], 3);
    }
}

#[test]
fn refusals_of_all_gateways_are_in_the_stream_and_found() {
    let redis = RedisCluster::steady(0);
    let [mut first, second]: [Gateway; 2] = start(&redis);
    let counts = flood(std::slice::from_ref(&first), 8 * 25);
    assert_eq!(counts, [(200, 160), (429, 40)].into());
    // Its runs are recorded when it ends.
    first.terminate();
    assert_eq!(first.exit().0, Some(0), "{}", first.log());
    let view = second.admin("/api/audit?all=true").json();
    assert!(view["incomplete"].is_null(), "{view}");
    let runs = view["refusal_runs"].as_array().unwrap();
    let refused: u64 = runs.iter().map(|run| run["count"].as_u64().unwrap()).sum();
    assert_eq!((runs.len(), refused), (8, 40), "{view}");
}

#[test]
fn operator_reads_and_resets_buckets_of_several_masters() {
    let redis = RedisCluster::steady(0);
    let gateways: [Gateway; 2] = start(&redis);
    assert_eq!(flood(&gateways, 8 * 25), [(200, 160), (429, 40)].into());
    for client in 0..8 {
        let path = format!("/api/clients/key/k{client}/buckets");
        let view = gateways[1].admin(&path).json();
        assert!(view.to_string().contains("\"client\""), "{view}");
        let bucket = view["rules"][0]["bucket"].as_str().unwrap();
        let here = |node: &ClusterNode| node.try_query(&["EXISTS", bucket]).unwrap_or(0) == 1;
        assert_eq!(redis.nodes.iter().filter(|node| here(node)).count(), 1, "{bucket}");
        let status = post(&gateways[0], &format!("/api/clients/key/k{client}/reset"), "");
        assert_eq!(status, 200);
    }
    // The deny cache of the other gateway may have a refusal from before for a second.
    crate::support::sleep_for(std::time::Duration::from_millis(1_100));
    assert_eq!(flood(&gateways, 8 * 25), [(200, 160), (429, 40)].into());
}

#[test]
fn sigterm_settles_the_debts_to_all_masters() {
    let redis = RedisCluster::steady(0);
    let [mut first, second]: [Gateway; 2] = start(&redis);
    assert_eq!(post(&first, "/api/breaker", "{\"state\": \"open\"}"), 200);
    assert_eq!(flood(std::slice::from_ref(&first), 80), [(200, 80)].into(), "decided locally");
    assert_eq!(post(&first, "/api/breaker", "{\"state\": \"auto\"}"), 200);
    first.terminate();
    assert_eq!(first.exit().0, Some(0), "{}", first.log());
    // One of the address, one of each client; each request is a token of both.
    assert!(first.log().contains("debts settled buckets=9 tokens=160"), "{}", first.log());
    let rest = flood(std::slice::from_ref(&second), 8 * 25);
    assert_eq!(rest, [(200, 80), (429, 120)].into());
}

/// The debts of an outage to quotas in all slots are settled without a request to them.
#[test]
fn debts_to_quotas_in_several_slots_are_settled_without_a_request() {
    let redis = RedisCluster::steady(0);
    let keys: String = (0..12).map(|n| key(&format!("k{n}"), format!("s{n}"), "free")).collect();
    let rules = "[rules.month]\nper = [\"key\"]\nkind = \"fixed_window\"\nlimit = \"100/month\"\n";
    let breaker = "[redis.breaker]\nramp = [100]\n";
    let config = format!("{DEMO}{}{breaker}{rules}{keys}", redis.table());
    let [gateway]: [Gateway; 1] = gateways(&config);
    assert_eq!(post(&gateway, "/api/breaker", "{\"state\": \"open\"}"), 200);
    let counts = send_many(24, |client, number| {
        client.get(gateway.url("/")).header("X-Api-Key", format!("s{}", number % 12))
    });
    assert_eq!(counts, [(200, 24)].into());
    assert_eq!(post(&gateway, "/api/breaker", "{\"state\": \"auto\"}"), 200);
    let labels = [("rule", "month")];
    gateway.wait_for_count("tollgate_debt_settled_tokens_total", &labels, 24);
}
