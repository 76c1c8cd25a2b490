//! Clients that replace their own keys, by POST to the limits path.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::{Value, json};

use super::{IN_REDIS, SOON, call, config, create, done, status, wait_for, with};
use crate::support::{
    Connection, Gateway, HTTP2_LISTENER, Redis, Request, Response, eventually, fetch, full_config,
    key, timed_below,
};

const PATH: &str = "/limits";

/// Clients with keys in a `store`, which they can replace.
fn own(redis: &str, store: &str) -> String {
    let clients = format!("[clients]\nlimits_path = \"{PATH}\"\n[cors]\norigins = [\"*\"]\n");
    let file = key("of-file", "file-secret", "pro");
    config(redis, &format!("{store}self_rotation = true\n{clients}{file}"))
}

fn rotate(gateway: &Gateway, secret: &str, body: &Value) -> Response {
    let request = Request::new("POST", PATH).header("X-Api-Key", secret);
    let request = if body.is_null() { request } else { request.body(body.to_string()) };
    gateway.send(&request)
}

/// A client replaces its key, on the first gateway.
fn life_of_an_own_key(gateways: &[Gateway]) {
    let gateway = &gateways[0];
    let first = create(gateway, &json!({ "id": "acme", "plan": "pro", "name": "2026" }));
    wait_for(gateways, &first, 200);
    let answer = rotate(gateway, &first, &json!({ "overlap": "1h", "name": "2027" }));
    let new = done(&answer);
    assert_eq!(answer.header("cache-control"), Some("no-store"));
    assert_eq!(answer.header("access-control-allow-origin"), None);
    let second = new["key"].as_str().unwrap().to_owned();
    assert!(second.starts_with("tg_") && second != first);
    assert_eq!((&new["name"], &new["expires"]), (&json!("2027"), &Value::Null));
    for gateway in gateways {
        assert_eq!((status(gateway, &second), status(gateway, &first)), (200, 200));
    }
    let used = |gateway: &Gateway, secret: &str| {
        gateway.send(&with(secret)).header("x-ratelimit-remaining").unwrap().parse::<u64>().unwrap()
    };
    assert_eq!(used(gateway, &first) - 1, used(gateway, &second), "one bucket");

    // Once a minute, whatever key and gateway.
    for (gateway, secret) in gateways.iter().zip([&first, &second]) {
        let soon = rotate(gateway, secret, &Value::Null);
        assert_eq!(soon.status, 429, "{}", soon.text());
        let seconds: u64 = soon.header("retry-after").unwrap().parse().unwrap();
        assert!((1..=60).contains(&seconds), "{seconds}");
    }
    let stored = done(&call(gateway, "GET", "/acme", &Value::Null));
    let names: Vec<&Value> =
        stored["secrets"].as_array().unwrap().iter().map(|secret| &secret["name"]).collect();
    assert_eq!(names, ["2026", "2027"]);
    assert_eq!(stored["secrets"][0]["expires"], new["previous_expires"]);

    let audit = gateway.admin("/api/audit?kind=change&key=acme").json();
    let change = &audit["changes"][0];
    assert_eq!((&change["by"], &change["status"]), (&json!("client"), &json!(200)), "{audit}");
    assert_eq!(change["call"], format!("POST {PATH}"));
    let what = change["what"].as_str().unwrap();
    assert!(what.starts_with("client acme replaced its key 2026 by a new one 2027;"), "{what}");
    assert!(gateway.log().contains("a client replaces its own key"));
    for secret in [&first, &second] {
        assert!(!gateway.log().contains(secret.as_str()) && !audit.to_string().contains(secret));
    }
}

#[test]
fn client_replaces_its_own_key_in_redis() {
    let redis = Redis::start();
    let text = own(&redis.table(), IN_REDIS);
    let all: [Gateway; 2] = std::array::from_fn(|_| Gateway::start_full(&text));
    all.iter().for_each(Gateway::wait_for_redis);
    life_of_an_own_key(&all);
}

#[test]
fn client_replaces_its_own_key_in_a_file() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("keys.redb");
    let store = format!("[key_store]\nurl = \"file:{}\"\n", path.display());
    life_of_an_own_key(&[Gateway::start_full(&own("", &store))]);
}

/// Of attempts at once on two gateways, one makes a key, and Redis is asked a few times only.
#[test]
fn client_gets_one_key_of_many_attempts_at_once() {
    const ATTEMPTS: usize = 200;
    let redis = Redis::start();
    let text = own(&redis.table(), IN_REDIS);
    let all: [Gateway; 2] = std::array::from_fn(|_| Gateway::start_full(&text));
    all.iter().for_each(Gateway::wait_for_redis);
    let secret = create(&all[0], &json!({ "id": "acme", "plan": "pro" }));
    wait_for(&all, &secret, 200);
    let reads = redis.calls("hmget");
    let statuses = parking_lot::Mutex::new(BTreeMap::<u16, usize>::new());
    let left = AtomicUsize::new(ATTEMPTS);
    std::thread::scope(|scope| {
        for at in 0..16 {
            let (all, secret, statuses, left) = (&all, &secret, &statuses, &left);
            scope.spawn(move || {
                let take = |left: usize| left.checked_sub(1);
                while left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take).is_ok() {
                    let status = rotate(&all[at % 2], secret, &Value::Null).status;
                    *statuses.lock().entry(status).or_default() += 1;
                }
            });
        }
    });
    let statuses = statuses.into_inner();
    assert_eq!(statuses.get(&200), Some(&1), "{statuses:?}");
    assert_eq!(statuses.get(&429), Some(&(ATTEMPTS - 1)), "{statuses:?}");
    let stored = done(&call(&all[0], "GET", "/acme", &Value::Null));
    assert_eq!(stored["secrets"].as_array().unwrap().len(), 2);
    let reads = redis.calls("hmget") - reads;
    assert!(reads < 20, "{reads} reads");
}

#[test]
fn key_that_the_client_ends_is_refused_everywhere_and_its_own_end_is_kept() {
    let redis = Redis::start();
    let text = own(&redis.table(), IN_REDIS);
    let all: [Gateway; 2] = std::array::from_fn(|_| Gateway::start_full(&text));
    all.iter().for_each(Gateway::wait_for_redis);
    let expires = "2126-01-01T00:00:00.000000Z";
    let first = create(&all[0], &json!({ "id": "acme", "plan": "pro", "expires": expires }));
    wait_for(&all, &first, 200);
    let new = done(&rotate(&all[0], &first, &json!({ "overlap": "0s" })));
    assert_eq!(new["expires"], expires, "a client cannot prolong its own key");
    timed_below(SOON, || wait_for(&all, &first, 401));
    assert_eq!(status(&all[1], new["key"].as_str().unwrap()), 200);
}

#[test]
fn key_is_replaced_for_its_client_only() {
    let redis = Redis::start();
    let text = own(&redis.table(), IN_REDIS);
    let gateway = Gateway::start_full(&format!("{text}{HTTP2_LISTENER}"));
    gateway.wait_for_redis();
    let secret = create(&gateway, &json!({ "id": "acme", "plan": "pro" }));
    wait_for(std::slice::from_ref(&gateway), &secret, 200);
    let post = |headers: &[(&str, &str)], body: &str| {
        let request = headers
            .iter()
            .fold(Request::new("POST", PATH), |request, (name, value)| request.header(name, value));
        gateway.send(&request.body(body)).status
    };
    let own = ("X-Api-Key", secret.as_str());
    assert_eq!(post(&[], ""), 401, "no key");
    assert_eq!(post(&[("X-Api-Key", "guess")], ""), 401, "an unknown key");
    assert_eq!(post(&[("X-Api-Key", "file-secret")], ""), 403, "a key of the file");
    assert_eq!(post(&[own, ("Origin", "https://page.test")], ""), 403, "a page");
    assert_eq!(post(&[own, ("Sec-Fetch-Site", "cross-site")], ""), 403, "a page");
    assert_eq!(post(&[own], "overlap=1h"), 400, "a form");
    assert_eq!(post(&[own], &format!("{{\"name\": \"{}\"}}", "x".repeat(2000))), 400, "too long");
    assert_eq!(post(&[own], "{\"name\": \"a b\"}"), 400, "no name");
    let options = gateway.send(&Request::new("OPTIONS", PATH));
    assert_eq!(options.header("allow"), Some("GET, HEAD, OPTIONS, POST"));
    let asks = |method: &str| {
        let request = Request::new("OPTIONS", PATH).header("Origin", "https://page.test");
        gateway.send(&request.header("Access-Control-Request-Method", method)).status
    };
    assert_eq!((asks("GET"), asks("POST")), (204, 403));
    let stored = done(&call(&gateway, "GET", "/acme", &Value::Null));
    assert_eq!(stored["version"], 1);

    // Over both versions of HTTP, and after a 100.
    eventually("the time after an attempt that was refused", || {
        (rotate(&gateway, &secret, &json!({ "name": "a" })).status == 200).then_some(())
    });
    let second = create(&gateway, &json!({ "id": "second", "plan": "pro" }));
    let third = create(&gateway, &json!({ "id": "third", "plan": "pro" }));
    let versions = [
        ("--http1.1", gateway.address, &second),
        ("--http2-prior-knowledge", gateway.listener(1), &third),
    ];
    for (version, address, secret) in versions {
        let url = format!("http://{address}{PATH}");
        let header = format!("X-Api-Key: {secret}");
        let body = ["-H", "Expect: 100-continue", "-d", "{\"name\": \"b\"}"];
        let answer = fetch(&[&[version, "-H", &header][..], &body, &[&url]].concat());
        assert_eq!((answer.status, &answer.json()["name"]), (200, &json!("b")), "{version}");
    }
}

#[test]
fn keys_cannot_be_replaced_by_default_or_while_the_store_is_away() {
    let redis = Redis::start();
    let text = own(&redis.table(), IN_REDIS);
    let gateway = Gateway::start_full(&text);
    gateway.wait_for_redis();
    let secret = create(&gateway, &json!({ "id": "acme", "plan": "pro" }));
    wait_for(std::slice::from_ref(&gateway), &secret, 200);
    redis.pause();
    let away = rotate(&gateway, &secret, &Value::Null);
    assert_eq!((away.status, away.header("retry-after")), (503, Some("1")), "{}", away.text());
    redis.resume();
    let without = text.replace("self_rotation = true\n", "");
    gateway.apply(without.strip_prefix(&full_config("")).unwrap());
    let off = rotate(&gateway, &secret, &Value::Null);
    assert_eq!((off.status, off.header("allow")), (405, Some("GET, HEAD, OPTIONS")));
}

/// What follows such a chunk is not the next request.
#[test]
fn connection_closes_after_a_body_with_a_malformed_chunk() {
    let redis = Redis::start();
    let gateway = Gateway::start_full(&own(&redis.table(), IN_REDIS));
    let secret = create(&gateway, &json!({ "id": "acme", "plan": "pro" }));
    wait_for(std::slice::from_ref(&gateway), &secret, 200);
    let mut client = Connection::open(gateway.address);
    let head = format!(
        "POST {PATH} HTTP/1.1\r\nHost: a\r\nX-Api-Key: {secret}\r\nTransfer-Encoding: chunked\r\n\r\n"
    );
    let next = format!("GET / HTTP/1.1\r\nHost: a\r\nX-Api-Key: {secret}\r\n\r\n");
    client.write(format!("{head}zz\r\n{next}").as_bytes());
    let answer = client.read_response("POST");
    assert_eq!((answer.status, answer.header("connection")), (400, Some("close")));
    assert!(client.is_closed_by_server());
}
