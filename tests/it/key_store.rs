//! The key store: clients with API keys that the admin API changes while gateways run.

mod outages;
mod own_keys;

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::support::{
    DEMO, Gateway, Redis, RedisCluster, Request, Response, Stopwatch, digest, eventually,
    full_config, key, timed_below, tollgate,
};

/// How soon a change is in force on all gateways, at the latest.
const SOON: Duration = Duration::from_secs(1);

/// How long a request waits for the look-up of its key.
const LOOKUP_TIMEOUT: Duration = Duration::from_millis(250);

const PLANS: &str = "[plans.pro]\n[rules.per-key]\nper = [\"key\"]\non_missing = \
                     \"skip\"\nplans.free = { rate = \"1000/365d\" }\nplans.pro = { rate = \"2000000/365d\" }\n";

const IN_REDIS: &str = "[key_store]\nurl = \"redis\"\n";

fn config(redis: &str, store: &str) -> String {
    full_config(&format!("instances = 3\n{redis}\n{DEMO}{PLANS}{store}"))
}

/// Gateways that share a Redis, and their store.
fn gateways<const N: usize>(redis: &Redis) -> [Gateway; N] {
    let text = config(&redis.table(), IN_REDIS);
    let all = std::array::from_fn(|_| Gateway::start_full(&text));
    all.iter().for_each(Gateway::wait_for_redis);
    all
}

/// A gateway whose store is a file in a new folder.
fn with_file() -> (TempDir, Gateway) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("keys.redb");
    let store = format!("[key_store]\nurl = \"file:{}\"\n", path.display());
    (folder, Gateway::start_full(&config("", &store)))
}

fn call(gateway: &Gateway, method: &str, path: &str, body: &Value) -> Response {
    let request = Request::new(method, &format!("/api/keys{path}"));
    let request = if body.is_null() { request } else { request.body(body.to_string()) };
    gateway.send_admin(&request)
}

#[track_caller]
fn done(answer: &Response) -> Value {
    assert!(matches!(answer.status, 200 | 201), "{} {}", answer.status, answer.text());
    answer.json()
}

/// Creates a client, and returns its API key.
#[track_caller]
fn create(gateway: &Gateway, body: &Value) -> String {
    done(&call(gateway, "POST", "", body))["key"].as_str().unwrap().to_owned()
}

fn with(secret: &str) -> Request {
    Request::get("/").header("X-Api-Key", secret)
}

fn status(gateway: &Gateway, secret: &str) -> u16 {
    gateway.send(&with(secret)).status
}

/// Waits until all gateways answer with this status.
#[track_caller]
fn wait_for(gateways: &[Gateway], secret: &str, expected: u16) {
    let is_there = || gateways.iter().all(|it| status(it, secret) == expected).then_some(());
    eventually(&format!("{expected} of all gateways"), is_there);
}

fn life_of_a_client(gateway: &Gateway) {
    let created = call(
        gateway,
        "POST",
        "",
        &json!({ "id": "acme", "plan": "pro", "metadata": { "owner": "anna" } }),
    );
    assert_eq!(created.status, 201, "{}", created.text());
    assert_eq!(created.header("location"), Some("/api/keys/acme"));
    let first = created.json()["key"].as_str().unwrap().to_owned();
    assert!(first.starts_with("tg_") && first.len() == 52, "{first}");
    wait_for(std::slice::from_ref(gateway), &first, 200);
    let shown = call(gateway, "GET", "/acme", &Value::Null);
    let tag = shown.header("etag").unwrap().to_owned();
    assert!(tag.starts_with("\"1-"), "{tag}");
    assert!(!shown.text().contains(&first), "{}", shown.text());
    assert_eq!(shown.json()["secrets"][0]["sha256"], digest(&first));

    // Another client of the same id, or with the same key, is none.
    assert_eq!(call(gateway, "POST", "", &json!({ "id": "acme", "plan": "pro" })).status, 409);
    let same = json!({ "id": "other", "plan": "pro", "secrets": [{ "sha256": digest(&first) }] });
    assert_eq!(call(gateway, "POST", "", &same).status, 409);
    let unknown = call(gateway, "POST", "", &json!({ "id": "b", "plan": "gold" }));
    assert!(
        unknown.status == 400 && unknown.text().contains("no plan `gold`"),
        "{}",
        unknown.text()
    );

    // A change of an old version changes nothing.
    let old = Request::new("PATCH", "/api/keys/acme").header("If-Match", "\"7\"");
    assert_eq!(gateway.send_admin(&old.body("{\"enabled\": false}")).status, 412);
    let current = Request::new("PATCH", "/api/keys/acme").header("If-Match", &tag);
    let changed = done(
        &gateway
            .send_admin(&current.body("{\"tenant\": \"north\", \"metadata\": {\"owner\": null}}")),
    );
    assert_eq!(
        (&changed["tenant"], &changed["metadata"], &changed["version"]),
        (&json!("north"), &json!({}), &json!(2))
    );

    let rotated =
        done(&call(gateway, "POST", "/acme/rotate", &json!({ "overlap": "1h", "name": "2027" })));
    let second = rotated["key"].as_str().unwrap().to_owned();
    wait_for(std::slice::from_ref(gateway), &second, 200);
    assert_eq!(status(gateway, &first), 200);
    let third = done(&call(gateway, "POST", "/acme/rotate", &json!({ "overlap": "0s" })));
    let third = third["key"].as_str().unwrap().to_owned();
    wait_for(std::slice::from_ref(gateway), &second, 401);
    assert_eq!((status(gateway, &first), status(gateway, &third)), (401, 200));

    done(&call(gateway, "POST", "/acme/disable", &Value::Null));
    wait_for(std::slice::from_ref(gateway), &third, 401);
    let detail = gateway.send(&with(&third)).json()["detail"].as_str().unwrap().to_owned();
    assert_eq!(detail, "The API key in the header X-Api-Key is disabled.");
    done(&call(gateway, "POST", "/acme/enable", &Value::Null));
    wait_for(std::slice::from_ref(gateway), &third, 200);
    done(&call(gateway, "DELETE", "/acme", &Value::Null));
    wait_for(std::slice::from_ref(gateway), &third, 401);
    assert_eq!(call(gateway, "GET", "/acme", &Value::Null).status, 404);
    for secret in [&first, &second, &third] {
        assert!(!gateway.log().contains(secret.as_str()), "the log has an API key");
    }
}

#[test]
fn client_is_created_changed_and_removed_in_redis() {
    let redis = Redis::start();
    let [gateway] = gateways(&redis);
    life_of_a_client(&gateway);
}

#[test]
fn client_is_created_changed_and_removed_in_a_file() {
    let (_folder, gateway) = with_file();
    life_of_a_client(&gateway);
}

#[test]
fn client_is_created_changed_and_removed_in_a_cluster() {
    let cluster = RedisCluster::start(0);
    let gateway = Gateway::start_full(&config(&cluster.table(), IN_REDIS));
    gateway.wait_for_redis();
    life_of_a_client(&gateway);
}

#[test]
fn clients_of_a_file_outlive_the_process_and_an_upgrade() {
    let (_folder, gateway) = with_file();
    let secret = create(&gateway, &json!({ "id": "acme", "plan": "pro" }));
    wait_for(std::slice::from_ref(&gateway), &secret, 200);
    let upgraded = gateway.send_admin(&Request::new("POST", "/api/upgrade"));
    assert_eq!(upgraded.status, 200, "{}", upgraded.text());
    wait_for(std::slice::from_ref(&gateway), &secret, 200);
    done(&call(&gateway, "POST", "/acme/disable", &Value::Null));
    wait_for(std::slice::from_ref(&gateway), &secret, 401);
}

#[test]
fn key_of_the_file_comes_first_and_is_not_looked_up() {
    let redis = Redis::start();
    let known = key("acme", "file-secret", "pro");
    let store = format!("{IN_REDIS}{known}");
    let gateway = Gateway::start_full(&config(&redis.table(), &store));
    gateway.wait_for_redis();
    assert_eq!(call(&gateway, "POST", "", &json!({ "id": "acme", "plan": "pro" })).status, 409);
    assert_eq!(status(&gateway, "file-secret"), 200);
    let lookups = ["found", "unknown", "cached", "cached_unknown", "failed"];
    let count = |result| gateway.count("tollgate_key_lookups_total", &[("result", result)]);
    assert_eq!(lookups.map(count), [0; 5]);
    assert_eq!(status(&gateway, "guess"), 401);
    assert_eq!(status(&gateway, "guess"), 401);
    assert_eq!(lookups.map(count), [0, 1, 0, 1, 0]);
}

#[test]
fn row_208_change_is_in_force_on_all_gateways_within_a_second() {
    let redis = Redis::start();
    let all: [Gateway; 3] = gateways(&redis);
    let secret = create(&all[0], &json!({ "id": "acme", "plan": "pro" }));
    timed_below(SOON, || wait_for(&all, &secret, 200));
    for gateway in &all {
        done(&call(gateway, "POST", "/acme/disable", &Value::Null));
        timed_below(SOON, || wait_for(&all, &secret, 401));
        done(&call(gateway, "POST", "/acme/enable", &Value::Null));
        timed_below(SOON, || wait_for(&all, &secret, 200));
    }
    // The plan, by the limit that the response reports.
    let limit = |gateway: &Gateway| {
        gateway.send(&with(&secret)).header("x-ratelimit-limit").map(str::to_owned)
    };
    assert_eq!(limit(&all[1]).as_deref(), Some("2000000"));
    done(&call(&all[0], "PATCH", "/acme", &json!({ "plan": "free" })));
    let is_free = || all.iter().all(|it| limit(it).as_deref() == Some("1000")).then_some(());
    timed_below(SOON, || eventually("the plan free", is_free));
}

#[test]
fn row_208_rotation_under_load_refuses_no_request() {
    let redis = Redis::start();
    let all: [Gateway; 2] = gateways(&redis);
    let first = create(&all[0], &json!({ "id": "acme", "plan": "pro" }));
    let current = parking_lot::Mutex::new(first);
    let (is_over, sent) = (AtomicBool::new(false), AtomicUsize::new(0));
    std::thread::scope(|scope| {
        let (all, current, is_over, sent) = (&all, &current, &is_over, &sent);
        let clients: Vec<_> = (0..8)
            .map(|at: usize| {
                scope.spawn(move || {
                    let mut statuses = BTreeSet::new();
                    let mut connection = all[at % 2].connect();
                    while !is_over.load(Ordering::Relaxed) {
                        let secret = current.lock().clone();
                        statuses.insert(connection.send(&with(&secret)).status);
                        sent.fetch_add(1, Ordering::Relaxed);
                    }
                    statuses
                })
            })
            .collect();
        for _ in 0..10 {
            let before = sent.load(Ordering::Relaxed);
            eventually("requests", || (sent.load(Ordering::Relaxed) > before + 50).then_some(()));
            let rotated = done(&call(&all[0], "POST", "/acme/rotate", &json!({ "overlap": "1h" })));
            *current.lock() = rotated["key"].as_str().unwrap().to_owned();
        }
        is_over.store(true, Ordering::Relaxed);
        for client in clients {
            assert_eq!(client.join().unwrap(), BTreeSet::from([200]));
        }
    });
    // One bucket of the client throughout.
    let remaining =
        all[1].send(&with(&current.lock())).header("x-ratelimit-remaining").map(str::to_owned);
    let remaining: usize = remaining.unwrap().parse().unwrap();
    assert!(2_000_000 - remaining > sent.load(Ordering::Relaxed), "{remaining}");
}

#[test]
fn row_209_while_redis_hangs_cached_keys_pass_and_others_get_503() {
    let redis = Redis::start();
    let all: [Gateway; 3] = gateways(&redis);
    let secret = create(&all[0], &json!({ "id": "acme", "plan": "pro" }));
    wait_for(&all, &secret, 200);
    redis.pause();
    let limit = LOOKUP_TIMEOUT + Duration::from_millis(100);
    let refused = timed_below(limit, || all[1].send(&with("guess")));
    assert_eq!((refused.status, refused.header("retry-after")), (503, Some("1")));
    assert!(refused.text().contains("cannot be checked at the moment"), "{}", refused.text());
    for gateway in &all {
        assert_eq!(status(gateway, &secret), 200);
    }
    let log = "the key store cannot be read";
    eventually(log, || all.iter().all(|it| it.log().contains(log)).then_some(()));
    // At once from now on.
    timed_below(LOOKUP_TIMEOUT / 2, || assert_eq!(status(&all[1], "another"), 503));
    assert_eq!(call(&all[0], "POST", "/acme/disable", &Value::Null).status, 503);
    redis.resume();
    eventually("the store is read again", || {
        all.iter().all(|it| it.count("tollgate_key_store_up", &[]) == 1).then_some(())
    });
    // The change that got 503 may have been made: it is made again.
    done(&call(&all[2], "POST", "/acme/disable", &Value::Null));
    timed_below(SOON, || wait_for(&all, &secret, 401));
    assert_eq!(status(&all[0], "guess"), 401);
}

#[test]
fn row_210_lost_data_of_redis_is_noticed() {
    let redis = Redis::start();
    let all: [Gateway; 2] = gateways(&redis);
    let secret = create(&all[0], &json!({ "id": "acme", "plan": "pro" }));
    wait_for(&all, &secret, 200);
    redis.query::<String>(&["FLUSHALL"]);
    timed_below(SOON, || wait_for(&all, &secret, 401));
    let same = json!({ "id": "acme", "plan": "pro", "secrets": [{ "sha256": digest(&secret) }] });
    done(&call(&all[1], "POST", "", &same));
    timed_below(SOON, || wait_for(&all, &secret, 200));
    // Changes that are trimmed before a gateway reads them.
    redis.query::<u64>(&["DEL", "tollgate:{keys}:changes"]);
    let log = "changes of the key store were missed";
    eventually(log, || all.iter().all(|it| it.log().contains(log)).then_some(()));
    assert_eq!(status(&all[0], &secret), 200);
}

#[test]
fn row_211_flood_of_unknown_keys_costs_redis_a_bounded_number_of_calls() {
    const CLIENTS: usize = 8;
    const GUESSES: usize = 800;
    let redis = Redis::start();
    let [gateway] = gateways(&redis);
    let secret = create(&gateway, &json!({ "id": "acme", "plan": "pro" }));
    wait_for(std::slice::from_ref(&gateway), &secret, 200);
    let before = redis.calls("eval");
    let began = Stopwatch::start();
    let looked_up = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for client in 0..CLIENTS {
            let (gateway, looked_up) = (&gateway, &looked_up);
            scope.spawn(move || {
                let mut connection = gateway.connect();
                for guess in 0..GUESSES {
                    let guess = with(&format!("guess-{client}-{guess}"));
                    let status = connection.send(&guess).status;
                    assert!(matches!(status, 401 | 503), "{status}");
                    looked_up.fetch_add(usize::from(status == 401), Ordering::Relaxed);
                }
            });
        }
        for _ in 0..200 {
            assert_eq!(status(&gateway, &secret), 200);
        }
    });
    let took = began.elapsed();
    let looked_up = looked_up.into_inner();
    assert!(looked_up >= CLIENTS * GUESSES / 10, "{looked_up} guesses were looked up");
    let calls = redis.calls("eval") - before;
    let most = u64::try_from(took.as_millis()).unwrap() / 2 + 10;
    assert!(calls <= most, "{calls} calls in {took:?}");
    // Each guess is remembered.
    let count = |result| gateway.count("tollgate_key_lookups_total", &[("result", result)]);
    let unknown = count("cached_unknown");
    assert_eq!(status(&gateway, "guess-0-0"), 401);
    assert_eq!(count("cached_unknown"), unknown + 1);
}

#[test]
fn denied_address_costs_no_look_up() {
    let redis = Redis::start();
    let text = config(&redis.table(), IN_REDIS);
    let lists = "deny_ips = [\"192.0.2.0/24\"]\ntrusted_proxies = [\"127.0.0.1\"]\n";
    let gateway = Gateway::start_full(&text.replacen(
        "instances = 3\n",
        &format!("instances = 3\n{lists}"),
        1,
    ));
    gateway.wait_for_redis();
    let secret = create(&gateway, &json!({ "id": "acme", "plan": "pro" }));
    let look_ups = || {
        let results = ["found", "unknown", "cached", "cached_unknown", "failed"];
        results
            .map(|result| gateway.count("tollgate_key_lookups_total", &[("result", result)]))
            .iter()
            .sum::<u64>()
    };
    let before = look_ups();
    for guess in [secret.as_str(), "guess-1", "guess-2"] {
        let request = with(guess).header("X-Forwarded-For", "192.0.2.7");
        assert_eq!(gateway.send(&request).status, 403);
    }
    assert_eq!(look_ups(), before);
    assert_eq!(status(&gateway, &secret), 200);
    assert_eq!(look_ups(), before + 1);
}

/// Guesses at keys, up to the limit of their address and beyond; and clients meanwhile. Returns the
/// number of look-ups beyond the limit.
fn guess_beyond_the_limit(gateway: &Gateway) -> u64 {
    let from = |address: &str, secret: &str| {
        gateway.send(&with(secret).header("X-Forwarded-For", address))
    };
    let known = create(gateway, &json!({ "id": "acme", "plan": "pro" }));
    let new = create(gateway, &json!({ "id": "globex", "plan": "pro" }));
    assert_eq!(from("192.0.2.1", &known).status, 200);
    for guess in 0..5 {
        assert_eq!(from("192.0.2.7", &format!("guess-{guess}")).status, 401);
    }
    let look_ups = || {
        ["found", "unknown", "failed"]
            .map(|result| gateway.count("tollgate_key_lookups_total", &[("result", result)]))
            .iter()
            .sum::<u64>()
    };
    // Redis says for the first time that the address has no tokens.
    assert_eq!(from("192.0.2.7", "guess-5").status, 429);
    let before = look_ups();
    for guess in 6..60 {
        let refused = from("192.0.2.7", &format!("guess-{guess}"));
        assert_eq!(refused.status, 429);
        assert!(refused.text().contains("per-ip"), "{}", refused.text());
    }
    let beyond = look_ups() - before;
    // A key in memory, one that is not, and one that is not from the address without tokens.
    assert_eq!([from("192.0.2.1", &known).status, from("192.0.2.1", &new).status], [200, 200]);
    assert_eq!(from("192.0.2.7", &new).status, 429);
    // The audit does not call a key unknown that was not looked up.
    eventually("the refusals", || {
        let audit = gateway.admin("/api/audit?ip=192.0.2.7").json();
        let of = |reason: &str| {
            let runs = audit["refusal_runs"].as_array().unwrap();
            runs.iter().find(|run| run["reason"] == reason).map(|run| run["key_state"].clone())
        };
        let states = ["unknown_key", "limited_unverified_key"].map(of);
        (states == [Some(json!("unknown")), Some(json!("unverified"))]).then_some(())
    });
    let last = if known.ends_with('x') { 'y' } else { 'x' };
    let other = format!("{}{last}", &known[..known.len() - 1]);
    assert_eq!(from("192.0.2.8", &other).status, 401);
    beyond
}

const PER_ADDRESS: &str = "[rules.per-ip]\nper = [\"ip\"]\nrate = \"5/365d\"\n";

#[test]
fn address_without_tokens_costs_no_look_up_in_memory() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("keys.redb");
    let store = format!("{PER_ADDRESS}[key_store]\nurl = \"file:{}\"\n", path.display());
    let server = "trusted_proxies = [\"127.0.0.1\"]\n";
    let gateway = Gateway::start_full(&config(server, &store));
    assert_eq!(guess_beyond_the_limit(&gateway), 0);
}

/// What Redis says of an address is known for a second.
#[test]
fn address_without_tokens_costs_one_look_up_a_second_in_redis() {
    let redis = Redis::start();
    let server = format!("trusted_proxies = [\"127.0.0.1\"]\n{}", redis.table());
    let store = format!("{PER_ADDRESS}{IN_REDIS}");
    let gateway = Gateway::start_full(&config(&server, &store));
    gateway.wait_for_redis();
    let began = Stopwatch::start();
    let look_ups = guess_beyond_the_limit(&gateway);
    let most = began.elapsed().as_secs() + 1;
    assert!(look_ups <= most, "{look_ups}");
}

#[test]
fn client_of_the_file_with_the_same_id_is_another_one() {
    let redis = Redis::start();
    let [gateway] = gateways(&redis);
    let secret = create(&gateway, &json!({ "id": "acme", "plan": "pro" }));
    wait_for(std::slice::from_ref(&gateway), &secret, 200);
    let text = gateway.config().strip_prefix(&full_config("")).unwrap().to_owned();
    gateway.apply(&format!("{text}{}", key("acme", "of-the-file", "pro")));
    let refused = gateway.send(&with(&secret));
    assert_eq!(refused.status, 503, "{}", refused.text());
    let log = "the key store and the file have a client of the same id";
    eventually(log, || gateway.log().contains(log).then_some(()));
    assert_eq!(status(&gateway, "of-the-file"), 200);
    gateway.apply(&text);
    assert_eq!(status(&gateway, &secret), 200);
}

#[test]
fn bad_bodies_are_refused_without_repeating_a_key() {
    let (_folder, gateway) = with_file();
    let secret = "tg_0123456789abcdef";
    for body in [
        json!([secret, "pro"]),
        json!({ "id": "a", "plan": "pro", "secrets": [secret] }),
        json!({ "id": "a", "plan": "pro", "secrets": secret }),
        json!({ "id": "a", "plan": "pro", "secrets": [{ "sha256": secret }] }),
    ] {
        let refused = call(&gateway, "POST", "", &body);
        assert_eq!(refused.status, 400, "{}", refused.text());
        assert!(!refused.text().contains(secret), "{}", refused.text());
        let imported = call(&gateway, "POST", "/import", &body);
        assert!(!imported.text().contains(secret), "{}", imported.text());
    }
    // A control character takes six bytes in JSON.
    let metadata = json!({ "text": "\u{1}".repeat(3_000) });
    let body = json!({ "id": "a", "plan": "pro", "metadata": metadata });
    let refused = call(&gateway, "POST", "", &body);
    assert_eq!(refused.status, 400);
    assert!(refused.text().contains("larger than 12288 bytes"), "{}", refused.text());
}

#[test]
fn row_216_record_that_cannot_be_read_blocks_no_call() {
    let redis = Redis::start();
    let [gateway] = gateways(&redis);
    for id in ["a", "b", "c"] {
        create(&gateway, &json!({ "id": id, "plan": "pro" }));
    }
    redis.query::<u64>(&["HSET", "tollgate:{keys}:records", "b", "{\"id\":\"b\"}"]);
    let listed = done(&call(&gateway, "GET", "", &Value::Null));
    let ids: Vec<_> = listed["keys"].as_array().unwrap().iter().map(|it| &it["id"]).collect();
    assert_eq!((json!(ids), &listed["damaged"][0]["id"]), (json!(["a", "c"]), &json!("b")));
    let url = format!("http://{}", gateway.admin);
    let exported = tollgate(&["keys", "export", "--admin", &url], "");
    assert_eq!((exported.code, exported.stdout.lines().count()), (Some(1), 2));
    assert!(exported.stderr.contains("the record of b cannot be read"), "{}", exported.stderr);
    let shown = call(&gateway, "GET", "/b", &Value::Null);
    assert!(shown.status == 409 && shown.text().contains("DELETE removes it"), "{}", shown.text());
    assert_eq!(call(&gateway, "POST", "", &json!({ "id": "b", "plan": "pro" })).status, 409);
    let removed = tollgate(&["keys", "delete", "b", "--admin", &url], "");
    assert_eq!(removed.stdout, "b is removed.\n", "{removed:?}");
    create(&gateway, &json!({ "id": "b", "plan": "pro" }));
}

#[test]
fn each_change_of_a_key_is_in_the_audit_of_all_gateways() {
    let redis = Redis::start();
    let text = config(&redis.table(), IN_REDIS) + "[audit]\nstream = true\n";
    let all: [Gateway; 2] = std::array::from_fn(|_| Gateway::start_full(&text));
    all.iter().for_each(Gateway::wait_for_redis);
    let secret = create(&all[0], &json!({ "id": "acme", "plan": "pro" }));
    let rotated = done(&call(&all[1], "POST", "/acme/rotate", &json!({ "overlap": "1h" })));
    done(&call(&all[0], "PATCH", "/acme", &json!({ "plan": "free" })));
    let lines = "{\"id\":\"x\",\"plan\":\"pro\",\"secrets\":[]}\n{\"id\":\"y\",\"plan\":\"pro\",\"secrets\":[]}\n";
    let import = Request::new("POST", "/api/keys/import").body(lines);
    assert_eq!(all[0].send_admin(&import).status, 200);
    done(&call(&all[1], "DELETE", "/acme", &Value::Null));
    // A call that changes nothing is none.
    assert_eq!(call(&all[1], "DELETE", "/acme", &Value::Null).status, 404);
    let what = |gateway: &Gateway, query: &str| {
        let answer = gateway.admin(&format!("/api/audit?{query}"));
        let changes = done(&answer)["changes"].as_array().unwrap().clone();
        changes.iter().map(|it| it["what"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    let made = [
        "client acme removed",
        "client acme changed: plan free",
        "client acme got a new key; the others are valid for 3600 s",
        "client acme created with the plan pro",
    ];
    for gateway in &all {
        eventually("all changes of the client", || {
            (what(gateway, "key=acme&all=true&kind=change") == made).then_some(())
        });
        assert_eq!(what(gateway, "key=y&all=true"), ["2 clients imported, 0 unchanged, 0 failed"]);
        assert!(what(gateway, "all=true&kind=limit").is_empty());
    }
    assert_eq!(what(&all[1], "key=acme").len(), 2, "those of the gateway itself");
    let shown = all[0].admin("/api/audit?kind=change&all=true").json();
    let first = &shown["changes"][4];
    assert_eq!(
        (&first["by"], &first["call"], &first["status"], &first["clients"]),
        (&json!("loopback"), &json!("POST /api/keys"), &json!(201), &json!(["acme"]))
    );
    for secret in [secret.as_str(), rotated["key"].as_str().unwrap()] {
        assert!(!shown.to_string().contains(secret), "{shown}");
        assert!(!shown.to_string().contains(&digest(secret)), "{shown}");
    }
    let url = format!("http://{}", all[1].admin);
    let listed = tollgate(
        &["audit", "--key-id", "acme", "--kind", "change", "--all-gateways", "--admin", &url],
        "",
    );
    assert_eq!(listed.code, Some(0), "{listed:?}");
    assert!(listed.stdout.contains("loopback  acme    201"), "{}", listed.stdout);
}

#[test]
fn client_of_a_plan_that_is_removed_gets_503_and_no_other_plan() {
    let redis = Redis::start();
    let [gateway] = gateways(&redis);
    let secret = create(&gateway, &json!({ "id": "acme", "plan": "pro" }));
    wait_for(std::slice::from_ref(&gateway), &secret, 200);
    let text = gateway.config().strip_prefix(&full_config("")).unwrap().to_owned();
    gateway.apply(
        &text.replace("[plans.pro]\n", "").replace("plans.pro = { rate = \"2000000/365d\" }\n", ""),
    );
    let refused = gateway.send(&with(&secret));
    assert_eq!(refused.status, 503, "{}", refused.text());
    let log = "the key store names a plan that the file does not have";
    eventually(log, || gateway.log().contains(log).then_some(()));
    gateway.apply(&text);
    assert_eq!(status(&gateway, &secret), 200);
}

#[test]
fn commands_create_list_rotate_and_transfer_clients() {
    let (folder, gateway) = with_file();
    let url = format!("http://{}", gateway.admin);
    let run = |arguments: &[&str]| {
        let all: Vec<&str> =
            ["keys"].iter().chain(arguments).chain(&["--admin", &url]).copied().collect();
        tollgate(&all, "")
    };
    let created = run(&["create", "--id", "acme", "--plan", "pro", "--metadata", "owner=anna"]);
    assert_eq!(created.code, Some(0), "{created:?}");
    wait_for(std::slice::from_ref(&gateway), created.stdout.trim(), 200);
    let rotated = run(&["rotate", "acme", "--overlap", "0s"]);
    wait_for(std::slice::from_ref(&gateway), rotated.stdout.trim(), 200);
    wait_for(std::slice::from_ref(&gateway), created.stdout.trim(), 401);
    let listed = run(&["list"]);
    assert!(listed.stdout.contains("acme  pro   -       enabled  1"), "{}", listed.stdout);
    assert_eq!(run(&["disable", "acme"]).stdout, "acme is disabled.\n");
    assert_eq!(run(&["get", "nobody"]).code, Some(64));

    let row = |at| format!("c{at},free,{}", digest(format!("secret-{at}")));
    let rows = (0..3_000).map(row).collect::<Vec<_>>().join("\n") + "\n";
    let csv = folder.path().join("clients.csv");
    std::fs::write(&csv, format!("id,plan,sha256\n{rows}bad,gold,\n")).unwrap();
    let imported = run(&["import", csv.to_str().unwrap()]);
    assert_eq!(imported.code, Some(1), "{imported:?}");
    assert!(
        imported.stderr.contains("clients.csv:3002: the file has no plan `gold`"),
        "{}",
        imported.stderr
    );
    assert!(
        imported.stderr.contains("3000 created, 0 already there, 1 failed"),
        "{}",
        imported.stderr
    );
    wait_for(std::slice::from_ref(&gateway), "secret-2999", 200);
    let jsonl = folder.path().join("clients.jsonl");
    let exported = run(&["export", "-o", jsonl.to_str().unwrap()]);
    assert_eq!(exported.code, Some(0), "{exported:?}");
    assert_eq!(std::fs::read_to_string(&jsonl).unwrap().lines().count(), 3_001);
    let again = run(&["import", jsonl.to_str().unwrap()]);
    assert_eq!(again.stdout, "0 created, 3001 already there, 0 failed\n", "{again:?}");
    assert_eq!(run(&["delete", "acme"]).stdout, "acme is removed.\n");
}

fn filters_and_last_uses(gateway: &Gateway) {
    let create = |id: &str, tenant: &str, metadata: Value| {
        let tenant = (!tenant.is_empty()).then_some(tenant);
        let body = json!({ "id": id, "plan": "pro", "tenant": tenant, "metadata": metadata });
        create(gateway, &body)
    };
    let used = create("a", "north", json!({ "owner": "anna", "team": "x=y" }));
    create("b", "south", json!({ "owner": "bert" }));
    create("c", "north", json!({ "owner": "bert" }));
    create("d", "", json!({}));
    let ids = |query: &str| {
        let listed = done(&call(gateway, "GET", query, &Value::Null));
        let keys = listed["keys"].as_array().unwrap().clone();
        keys.iter().map(|it| it["id"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(ids("?metadata=owner"), ["a", "b", "c"]);
    assert_eq!(ids("?metadata=owner=bert"), ["b", "c"]);
    assert_eq!(ids("?metadata=owner%3Dbert&tenant=north&plan=pro"), ["c"]);
    assert_eq!(ids("?metadata=owner=anna&metadata=team=x=y"), ["a"]);
    assert_eq!(ids("?metadata=owner=anna&metadata=team=x"), Vec::<String>::new());
    assert_eq!(ids("?tenant=north&limit=1"), ["a"]);
    assert_eq!(ids("?tenant=north&cursor=a"), ["c"]);
    let client = |id: &str| done(&call(gateway, "GET", &format!("/{id}"), &Value::Null));
    assert!(client("a")["last_used"].is_null());
    wait_for(std::slice::from_ref(gateway), &used, 200);
    eventually("the use", || client("a")["last_used"].is_string().then_some(()));
    assert!(client("b")["last_used"].is_null());
    let listed = done(&call(gateway, "GET", "", &Value::Null));
    assert_eq!(listed["keys"][0]["last_used"], client("a")["last_used"]);
    done(&call(gateway, "DELETE", "/a", &Value::Null));
    create("a", "", json!({}));
    assert!(client("a")["last_used"].is_null(), "another client");
}

#[test]
fn clients_are_filtered_and_their_last_use_is_shown_in_redis() {
    let redis = Redis::start();
    let [gateway] = gateways(&redis);
    filters_and_last_uses(&gateway);
}

#[test]
fn clients_are_filtered_and_their_last_use_is_shown_in_a_file() {
    let (_folder, gateway) = with_file();
    filters_and_last_uses(&gateway);
}

#[test]
fn overrides_of_a_client_are_in_force_on_all_gateways_within_a_second() {
    let redis = Redis::start();
    let all: [Gateway; 2] = gateways(&redis);
    let overrides = json!({ "per-key": { "rate": "70/365d" } });
    let body = json!({ "id": "acme", "plan": "pro", "overrides": overrides });
    let secret = create(&all[0], &body);
    let limit = |gateway: &Gateway| {
        gateway.send(&with(&secret)).header("x-ratelimit-limit").map(str::to_owned)
    };
    let wait = |expected: &str| {
        let is_there = || all.iter().all(|it| limit(it).as_deref() == Some(expected)).then_some(());
        timed_below(SOON, || eventually(expected, is_there));
    };
    wait("70");
    // Its bucket is its own, in Redis and without it.
    let remaining = |gateway: &Gateway| gateway.send(&with(&secret)).remaining();
    assert_eq!(remaining(&all[0]), remaining(&all[1]) + 1);
    for (overrides, expected) in [
        (json!({ "per-key": { "rate": "7/365d", "burst": 90 } }), "90"),
        (json!({ "per-key": null }), "2000000"),
        (json!({ "per-key": { "rate": "80/365d" } }), "80"),
    ] {
        done(&call(&all[1], "PATCH", "/acme", &json!({ "overrides": overrides })));
        wait(expected);
    }
    let url = format!("http://{}", all[0].admin);
    let shown = tollgate(&["keys", "get", "acme", "--admin", &url], "");
    assert!(shown.stdout.contains("80/365d"), "{}", shown.stdout);
    let buckets = all[0].admin("/api/clients/key/acme/buckets").json();
    assert_eq!(buckets["rules"][0]["rate"], "80/365d", "{buckets}");
    redis.pause();
    eventually("the limit without Redis", || {
        (limit(&all[0]).as_deref() == Some("80")).then_some(())
    });
    redis.resume();
    all[0].wait_for_redis();

    for (overrides, expected) in [
        (json!({ "per-kee": { "rate": "1/s" } }), "the file has no rule `per-kee`"),
        (json!({ "per-key": { "rate": "fast" } }), "`overrides.per-key`: "),
        (json!({ "per-key": {} }), "`overrides.per-key`: "),
        (json!({ "per-key": { "limit": 3 } }), "`overrides.per-key`: "),
        (json!({ "per-key": { "speed": 3 } }), "unknown field `speed`"),
        (
            json!({ "per-key": { "rate": "1/s", "overage": "count" } }),
            "`overage` is for rules with",
        ),
    ] {
        let refused = call(&all[0], "PATCH", "/acme", &json!({ "overrides": overrides }));
        assert_eq!(refused.status, 400, "{}", refused.text());
        assert!(refused.text().contains(expected), "{expected}: {}", refused.text());
    }
    // A rule that is gone, and comes back.
    let text = all[0].config().strip_prefix(&full_config("")).unwrap().to_owned();
    all[0].apply(&text.replace("rules.per-key", "rules.other"));
    assert_eq!(limit(&all[0]).as_deref(), Some("2000000"));
    done(&call(&all[0], "POST", "/acme/rotate", &json!({ "overlap": "1h" })));
    all[0].apply(&text);
    assert_eq!(limit(&all[0]).as_deref(), Some("80"));
}

#[test]
fn calls_need_a_key_store() {
    let gateway = Gateway::start(DEMO);
    for (method, path) in [("GET", ""), ("POST", ""), ("GET", "/a"), ("DELETE", "/a")] {
        assert_eq!(call(&gateway, method, path, &Value::Null).status, 409, "{method} {path}");
    }
}
