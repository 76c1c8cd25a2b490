//! Row 38 of docs/faults.md: an unbounded number of clients with bounded memory.

use crate::support::{DEMO, Gateway, send_many};

/// Sends requests from `count` addresses, through a trusted proxy.
fn flood(gateway: &Gateway, count: usize) {
    let url = gateway.url("/");
    let answers = send_many(count, |client, number| {
        let [.., a, b, c] = number.to_be_bytes();
        client.get(&url).header("x-forwarded-for", format!("11.{a}.{b}.{c}"))
    });
    assert_eq!(answers.values().sum::<usize>(), count);
}

fn gateway(max_buckets: usize) -> Gateway {
    Gateway::start(&format!(
        "trusted_proxies = [\"127.0.0.1\"]\n{DEMO}\
         [rules.per-ip]\nper = [\"ip\"]\nrate = \"100/d\"\n\
         [memory]\nmax_buckets = {max_buckets}\n"
    ))
}

#[test]
fn row_38_number_of_buckets_is_bounded() {
    let gateway = gateway(500);
    flood(&gateway, 2_500);
    let buckets = gateway.count("tollgate_local_buckets", &[]);
    assert!((250..=500).contains(&buckets), "{buckets}");
    let evictions = gateway.count("tollgate_local_evictions_total", &[]);
    assert!(evictions >= 2_500 - 500, "{evictions}");
}

#[test]
fn row_38_every_client_has_its_own_bucket_below_the_bound() {
    let gateway = gateway(10_000);
    flood(&gateway, 2_000);
    assert_eq!(gateway.count("tollgate_local_buckets", &[]), 2_000);
    assert_eq!(gateway.count("tollgate_local_evictions_total", &[]), 0);
}

#[test]
fn row_38_evicted_client_gets_no_second_burst() {
    let gateway = gateway(50);
    let url = gateway.url("/");
    let knock = |count| {
        let passed =
            send_many(count, |client, _| client.get(&url).header("x-forwarded-for", "192.0.2.1"));
        passed.get(&200).copied().unwrap_or(0)
    };
    // The client uses its 100 tokens, its bucket is evicted, and it returns.
    let first = knock(150);
    flood(&gateway, 1_000);
    let second = knock(150);
    assert!(first == 100 && second == 0, "{first}, then {second}");
}
