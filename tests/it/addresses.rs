//! Row 34 of docs/faults.md: which address is the client's, for any `X-Forwarded-For`.

use crate::support::{DEMO, Gateway, Request};

/// Placeholder for the peer's address, which is 127.0.0.1 in all tests.
const PEER: &str = "";

fn forwarded(lines: &[String]) -> Request {
    lines.iter().fold(Request::get("/"), |request, line| request.header("X-Forwarded-For", line))
}

/// Lines of `X-Forwarded-For`, and the client's address if 127.0.0.1 and 10.0.0.0/8 are trusted.
fn table() -> Vec<(Vec<String>, &'static str)> {
    let one = |line: &str, counted| (vec![line.to_string()], counted);
    let hops = |before: &str, hop: &str, count: usize| {
        [before].into_iter().chain(std::iter::repeat_n(hop, count)).collect::<Vec<_>>().join(", ")
    };
    vec![
        one("192.0.2.1", "192.0.2.1"),
        one("6.6.6.6, 192.0.2.1", "192.0.2.1"),
        one("192.0.2.1, 10.0.0.1", "192.0.2.1"),
        one("6.6.6.6,192.0.2.1 ,\t10.0.0.1,10.0.0.2", "192.0.2.1"),
        one("192.0.2.1:8080", "192.0.2.1"),
        one("[2001:db8::1]:443", "2001:db8::1"),
        one("[2001:db8::1]", "2001:db8::1"),
        one("2001:db8::1", "2001:db8::1"),
        (vec!["6.6.6.6".into(), "192.0.2.1, 10.0.0.1".into()], "192.0.2.1"),
        (vec!["192.0.2.1".into(), "10.0.0.1".into(), "10.0.0.2".into()], "192.0.2.1"),
        // All addresses are trusted: the first one is the client.
        one("10.0.0.9", "10.0.0.9"),
        one("10.0.0.9, 10.0.0.1", "10.0.0.9"),
        // Malformed text left of the client's address is ignored; right of it, the peer is the
        // client.
        one("junk, 192.0.2.1", "192.0.2.1"),
        one("192.0.2.1, junk", PEER),
        one("192.0.2.1, junk, 10.0.0.1", PEER),
        one("", PEER),
        one(", ,", PEER),
        one("unknown", PEER),
        one("_hidden", PEER),
        one("fe80::1%eth0", PEER),
        one("192.0.2.256", PEER),
        one("192.0.2.1:99999", PEER),
        one("192.0.2.1;6.6.6.6", PEER),
        one("\u{fffd}", PEER),
        // Fifty hops.
        one(&hops("192.0.2.1", "6.6.6.6", 49), "6.6.6.6"),
        one(&hops("192.0.2.1", "10.0.0.1", 3), "192.0.2.1"),
        one(&hops("192.0.2.1", "10.0.0.1", 49), "10.0.0.1"),
        one(&"x, ".repeat(50), PEER),
    ]
}

#[test]
fn row_34_trusted_proxy_last_untrusted_address_is_the_client() {
    let gateway = Gateway::start(&format!(
        "trusted_proxies = [\"127.0.0.1\", \"10.0.0.0/8\"]\n{DEMO}\
         [rules.per-ip]\nper = [\"ip\"]\nrate = \"1000/d\"\n"
    ));
    for (lines, counted) in table() {
        let plainly =
            if counted == PEER { Request::get("/") } else { forwarded(&[counted.to_string()]) };
        let before = gateway.send(&plainly).remaining();
        let after = gateway.send(&forwarded(&lines)).remaining();
        assert_eq!(after, before - 1, "{lines:?} should count as {counted:?}");
    }
}

#[test]
fn row_34_untrusted_peer_forwarded_addresses_are_ignored() {
    let gateway = Gateway::start(&format!(
        "trusted_proxies = [\"10.0.0.0/8\"]\n{DEMO}\
         [rules.per-ip]\nper = [\"ip\"]\nrate = \"1000/d\"\n"
    ));
    let mut left = gateway.get("/").remaining();
    for (lines, _) in table() {
        left -= 1;
        assert_eq!(gateway.send(&forwarded(&lines)).remaining(), left, "{lines:?}");
    }
    // All requests share one bucket.
    assert_eq!(gateway.count("tollgate_local_buckets", &[]), 1);
}
