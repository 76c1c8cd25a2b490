//! What limits of several kinds have in common, in memory and in Redis.

mod settings;

use crate::support::{DEMO, Gateway, Redis, Request, StatusCounts, key, send_many};

/// A request of the client that the tests of kinds limit.
pub(crate) fn request() -> Request {
    Request::get("/").header("X-Api-Key", "secret")
}

/// Number of requests that pass, of `count`, in turn at each gateway.
pub(crate) fn passed(gateways: &[&Gateway], count: usize) -> usize {
    let urls: Vec<String> = gateways.iter().map(|gateway| gateway.url("/")).collect();
    let counts: StatusCounts = send_many(count, |client, number| {
        client.get(&urls[number % urls.len()]).header("X-Api-Key", "secret")
    });
    let (passed, refused) = (counts.get(&200), counts.get(&429));
    let sum = passed.unwrap_or(&0) + refused.unwrap_or(&0);
    assert_eq!(sum, count, "{counts:?}");
    *passed.unwrap_or(&0)
}

#[test]
fn all_rules_of_a_request_are_charged_together_or_not_at_all() {
    let redis = Redis::start();
    // Settings of a rule that allows five requests, and its policy.
    let kinds = [
        ("kind = \"fixed_window\"\nlimit = \"5/year\"", "q=5;w=3"),
        ("kind = \"sliding_window\"\nlimit = \"5/h\"", "q=5;w=3600"),
        ("limit = \"10/d\"\nburst = 5", "q=5;w=86400"),
        ("rate = \"5/d\"", "q=5;w=86400"),
    ];
    for ((settings, policy), table) in
        kinds.into_iter().flat_map(|kind| [(kind, String::new()), (kind, redis.table())])
    {
        let rules = format!(
            "[rules.bucket]\nper = [\"key\"]\nrate = \"100/d\"\n[rules.own]\nper = [\"key\"]\n{settings}\n"
        );
        let headers = "\n[headers]\npolicies = \"all\"\n";
        let key = key("acme", "secret", "free");
        let gateway = Gateway::start(&[DEMO, &table, headers, &rules, &key].concat());
        if !table.is_empty() {
            redis.query::<String>(&["FLUSHALL"]);
            gateway.wait_for_redis();
        }
        assert_eq!(passed(&[&gateway], 20), 5, "{settings}");
        let refused = gateway.send(&request());
        let [limits, policies] =
            ["ratelimit", "ratelimit-policy"].map(|name| refused.header(name).unwrap());
        assert!(limits.contains("\"bucket\";r=95;"), "{settings}: {limits}");
        assert!(limits.contains("\"own\";r=0;"), "{settings}: {limits}");
        assert!(policies.contains(&format!("\"own\";{policy}")), "{settings}: {policies}");
    }
}
