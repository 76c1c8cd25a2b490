//! Limits shared by several gateways through Redis.

use std::time::Duration;

use tollgate::store::redis::script;

use crate::support::{
    CpuWaits, DEMO, Gateway, Redis, Request, StatusCounts, Stopwatch, eventually, inconclusive,
    inconclusive_if_stalled, key, send_concurrently, send_many, timed,
};

const PER_KEY: &str = "[rules.per-key]\nper = [\"key\"]\n";

fn with_rate(redis: &Redis, rate: &str) -> String {
    format!("{DEMO}{}{PER_KEY}{rate}\n{}", redis.table(), key("acme", "secret", "free"))
}

/// Gateways with one configuration, each connected to Redis.
fn gateways<const N: usize>(config: &str) -> [Gateway; N] {
    let gateways: [Gateway; N] = std::array::from_fn(|_| Gateway::start(config));
    gateways.iter().for_each(wait_until_connected);
    gateways
}

/// Waits until the gateway is connected to Redis.
pub(crate) fn wait_until_connected(gateway: &Gateway) {
    eventually("a connection to Redis", || {
        let connected = gateway.log().contains("connected to Redis");
        (connected && gateway.count("tollgate_breaker_state", &[]) == 0).then_some(())
    });
}

fn get(gateway: &Gateway) -> u16 {
    gateway.send(&Request::get("/").header("X-Api-Key", "secret")).status
}

/// Sends `count` requests with the key, in turn to each gateway.
fn flood(gateways: &[Gateway], count: usize) -> StatusCounts {
    let urls: Vec<String> = gateways.iter().map(|gateway| gateway.url("/")).collect();
    send_many(count, |client, number| {
        client.get(&urls[number % urls.len()]).header("X-Api-Key", "secret")
    })
}

/// Decisions by a source of all gateways.
pub(crate) fn decided_by(gateways: &[Gateway], source: &str) -> u64 {
    let of_one =
        |gateway: &Gateway| gateway.count("tollgate_decisions_total", &[("source", source)]);
    gateways.iter().map(of_one).sum()
}

/// Checks to which Redis has not replied in time, and which it may have counted nevertheless.
pub(crate) fn late_checks(gateways: &[Gateway]) -> u64 {
    let of_one = |gateway: &Gateway| gateway.count("tollgate_redis_ambiguous_checks_total", &[]);
    gateways.iter().map(of_one).sum()
}

/// Timeout of calls to Redis in tests of exact numbers.
pub(crate) const TIMEOUT_OF_CALLS: Duration = Duration::from_secs(1);

/// Whether gateways have decided without Redis, for the first time since `waits`. One call that
/// takes longer than the timeout of a second is enough, and does so only if a busy machine adds as
/// much to it: the test is then inconclusive, else it fails. Waits of the process of the test delay
/// no call.
#[track_caller]
pub(crate) fn is_decided_locally(gateways: &[Gateway], waits: &CpuWaits) -> bool {
    is_decided_locally_since(0, gateways, waits)
}

/// As [`is_decided_locally`], for local decisions beyond the first `before`.
#[track_caller]
fn is_decided_locally_since(before: u64, gateways: &[Gateway], waits: &CpuWaits) -> bool {
    let local = decided_by(gateways, "local").saturating_sub(before);
    if local > 0 {
        let what = format!("{local} local decisions");
        inconclusive_if_stalled(&what, waits.stall_of_servers(), TIMEOUT_OF_CALLS);
    }
    local > 0
}

/// The begin of a phase in which Redis decides, of gateways that have decided without it before.
pub(crate) struct Phase {
    waits: CpuWaits,
    /// Local decisions before it.
    local: u64,
}

impl Phase {
    /// Begins a phase, also under load: unlike [`decided_by`], this waits for no request in flight.
    pub(crate) fn begin(gateways: &[Gateway]) -> Self {
        let labels = [("source", "local")];
        let of_one = |gateway: &Gateway| gateway.existing("tollgate_decisions_total", &labels);
        let local: u64 = gateways.iter().filter_map(of_one).sum();
        Self { waits: CpuWaits::now(), local }
    }

    /// Begins another part of the phase. The stall that explains a local decision may have been in
    /// an earlier part, which can have opened a breaker, but does not add up over several.
    pub(crate) fn next_part(&mut self) {
        self.waits.next_phase();
    }

    /// As [`is_decided_locally`], since the begin of the phase.
    #[track_caller]
    pub(crate) fn is_decided_locally(&self, gateways: &[Gateway]) -> bool {
        is_decided_locally_since(self.local, gateways, &self.waits)
    }
}

#[test]
fn four_gateways_allow_exactly_the_limit() {
    let redis = Redis::start();
    let gateways: [Gateway; 4] = gateways(&with_rate(&redis, "rate = \"1000/d\""));
    let waits = CpuWaits::now();
    let counts = flood(&gateways, 3_000);
    if is_decided_locally(&gateways, &waits) {
        return;
    }
    assert_eq!((counts.get(&200), counts.get(&429)), (Some(&1_000), Some(&2_000)), "{counts:?}");
}

/// Whether the breaker has been open: then few of the next requests are decided by Redis.
fn has_opened(gateway: &Gateway) -> bool {
    gateway.count("tollgate_breaker_transitions_total", &[("to", "open")]) > 0
}

#[test]
fn thousands_of_requests_are_all_decided_by_redis() {
    const COUNT: usize = 3_000;
    let redis = Redis::start();
    let [gateway]: [Gateway; 1] = gateways(&with_rate(&redis, "rate = \"100000/d\""));
    let waits = CpuWaits::now();
    assert_eq!(flood(std::slice::from_ref(&gateway), COUNT), [(200, COUNT)].into());
    let decided = |source| gateway.count("tollgate_decisions_total", &[("source", source)]);
    let (by_redis, local) = (decided("redis"), decided("local"));
    let late = gateway.count("tollgate_redis_calls_total", &[("result", "timeout")]);
    // A call takes longer than the timeout of a second only if a busy machine adds as much.
    if late > 0 {
        let what = format!("{late} late calls, {local} local decisions");
        assert!(has_opened(&gateway) || by_redis > COUNT as u64 / 4, "{what}, {by_redis} by Redis");
        return inconclusive_if_stalled(&what, waits.stall_of_servers(), TIMEOUT_OF_CALLS);
    }
    assert_eq!((by_redis, local), (COUNT as u64, 0));
}

#[test]
fn two_gateways_allow_exactly_twice_the_limit_at_half_a_token_each() {
    let redis = Redis::start();
    let half = "[routes.half]\npath = \"/half\"\nupstream = \"api\"\ncost = 0.5\n";
    let rule = "[rules.r]\nper = []\nlimit = \"400/d\"\nburst = 30\n";
    let gateways: [Gateway; 2] = gateways(&format!("{DEMO}{half}{}{rule}", redis.table()));
    let urls = gateways.each_ref().map(|gateway| gateway.url("/half"));
    let waits = CpuWaits::now();
    let counts = send_many(200, |client, number| client.get(&urls[number % urls.len()]));
    if is_decided_locally(&gateways, &waits) {
        return;
    }
    assert_eq!((counts.get(&200), counts.get(&429)), (Some(&60), Some(&140)), "{counts:?}");
}

/// With burst 10 and 10/s for 3 s, 40 requests are allowed, plus the refill beyond 3 s.
#[test]
fn four_gateways_allow_exactly_the_rate_while_the_bucket_refills() {
    let redis = Redis::start();
    let gateways: [Gateway; 4] = gateways(&with_rate(&redis, "rate = \"10/s\"\nburst = 10"));
    let (waits, clock) = (CpuWaits::now(), Stopwatch::start());
    let (mut passed, mut floods) = (0, Vec::new());
    while clock.elapsed() < Duration::from_secs(3) {
        let begun = clock.elapsed();
        passed += flood(&gateways, 256).get(&200).copied().unwrap_or(0);
        floods.push((begun, clock.elapsed()));
    }
    if is_decided_locally(&gateways, &waits) {
        return;
    }
    // The burst, and the whole tokens refilled in this time.
    let tokens = |time: Duration| 10 + usize::try_from(time.as_millis() / 100).unwrap();
    let ((_, first_ended), (last_begun, ended)) = (floods[0], floods[floods.len() - 1]);
    // At least the refill between the first response of the first round and the requests of the
    // last one, which take all tokens.
    let must = tokens(last_begun.saturating_sub(first_ended)) - 1;
    assert!((must..=tokens(ended)).contains(&passed), "{passed} of {must} at {floods:?}");
}

#[test]
fn exhausted_client_causes_no_redis_calls() {
    let redis = Redis::start();
    let [gateway]: [Gateway; 1] = gateways(&with_rate(&redis, "rate = \"5/d\""));
    let waits = CpuWaits::now();
    let counts = flood(std::slice::from_ref(&gateway), 100);
    if is_decided_locally(std::slice::from_ref(&gateway), &waits) {
        return;
    }
    assert_eq!(counts.get(&200), Some(&5), "{counts:?}");
    let before = redis.script_calls();
    let (counts, took) = timed(|| flood(std::slice::from_ref(&gateway), 5_000));
    assert_eq!(counts.get(&429), Some(&5_000));
    let calls = redis.script_calls() - before;
    // One call per second for the expired entry, and those concurrent with its renewal.
    assert!(calls <= 20 * (took.as_secs() + 1), "{calls} calls in {took:?}");
    // Most requests need no call; those concurrent with the renewal share a few.
    assert!(gateway.count("tollgate_decisions_total", &[("source", "cache")]) > 1_000);
}

#[test]
fn concurrent_requests_share_a_redis_call() {
    let redis = Redis::start();
    let [gateway]: [Gateway; 1] = gateways(&with_rate(&redis, "rate = \"1000000/s\""));
    // The first call loads the script.
    assert_eq!(get(&gateway), 200);
    let before = redis.script_calls();
    assert_eq!(flood(std::slice::from_ref(&gateway), 5_000).get(&200), Some(&5_000));
    let calls = redis.script_calls() - before;
    assert!(calls < 1_500, "{calls} calls for 5,000 requests");
    let view = gateway.count("tollgate_redis_calls_total", &[("result", "ok")]);
    // Redis also runs the heartbeat script every few seconds.
    assert!((calls - 20..=calls + 1).contains(&view), "{view} counted, {calls} made");
    // Independent of their results.
    let all = gateway.count("tollgate_redis_calls_total", &[]);
    assert_eq!(gateway.count("tollgate_redis_batch_checks_count", &[]), all);
}

#[test]
fn row_04_flushed_script_is_sent_again() {
    let redis = Redis::start();
    let [gateway]: [Gateway; 1] = gateways(&with_rate(&redis, "rate = \"300/d\""));
    let mut forgotten = 0;
    let waits = CpuWaits::now();
    let counts = std::thread::scope(|scope| {
        let flood = scope.spawn(|| flood(std::slice::from_ref(&gateway), 1_500));
        let knows = || redis.query::<Vec<bool>>(&["SCRIPT", "EXISTS", &script::SHA]) == [true];
        // As soon as the script is loaded again.
        while !flood.is_finished() {
            eventually("the script", || (flood.is_finished() || knows()).then_some(()));
            redis.query::<String>(&["SCRIPT", "FLUSH"]);
            forgotten += u32::from(!flood.is_finished());
        }
        flood.join().unwrap()
    });
    let local = gateway.count("tollgate_decisions_total", &[("source", "local")]);
    assert!(has_opened(&gateway) || local < 750, "{local} local decisions");
    if is_decided_locally(std::slice::from_ref(&gateway), &waits) {
        return;
    }
    assert_eq!((counts.get(&200), counts.get(&429)), (Some(&300), Some(&1_200)));
    if forgotten < 2 {
        inconclusive("the requests ended before the script was forgotten for the second time");
    }
}

#[test]
fn row_05_flushed_redis_starts_with_full_buckets() {
    let redis = Redis::start();
    let [gateway]: [Gateway; 1] = gateways(&with_rate(&redis, "rate = \"5/d\""));
    let take_all = || (0..9).map(|_| get(&gateway)).filter(|status| *status == 200).count();
    assert_eq!(take_all(), 5);
    redis.query::<String>(&["FLUSHALL"]);
    // A cached denial is valid for a second.
    eventually("a full bucket", || (get(&gateway) == 200).then_some(()));
    assert_eq!(take_all(), 4);
}

#[test]
fn row_13_key_of_another_type_affects_only_its_own_bucket() {
    let redis = Redis::start();
    let [gateway]: [Gateway; 1] = gateways(&with_rate(&redis, "rate = \"5/d\""));
    assert_eq!(get(&gateway), 200);
    let keys: Vec<String> = redis.query(&["KEYS", "tollgate:*per-key"]);
    assert_eq!(keys.len(), 1);
    redis.query::<u64>(&["DEL", &keys[0]]);
    redis.query::<u64>(&["LPUSH", &keys[0], "x"]);
    assert_eq!(get(&gateway), 200);
    assert_eq!(gateway.count("tollgate_decisions_total", &[("source", "local")]), 1);
    // The bucket per address of clients without a key is another one.
    assert_eq!(gateway.get("/").status, 200);
    assert_eq!(gateway.count("tollgate_decisions_total", &[("source", "local")]), 1);
}

#[test]
fn row_22_gateway_starts_without_redis_and_connects_later() {
    let mut redis = Redis::stopped();
    let full = format!("{}start_without = \"full\"\n", redis.table());
    let text = with_rate(&redis, "rate = \"5/d\"").replace(&redis.table(), &full);
    let gateway = Gateway::start(&text);
    assert_eq!(get(&gateway), 200);
    assert_eq!(gateway.count("tollgate_decisions_total", &[("source", "local")]), 1);
    redis.launch();
    wait_until_connected(&gateway);
    assert_eq!(get(&gateway), 200);
    assert_eq!(gateway.count("tollgate_decisions_total", &[("source", "redis")]), 1);
}

#[test]
fn row_01_killed_redis_fails_no_request_and_is_reconnected() {
    let mut redis = Redis::start();
    let [gateway]: [Gateway; 1] = gateways(&with_rate(&redis, "rate = \"1000000/s\""));
    let counts = std::thread::scope(|scope| {
        let flood = scope.spawn(|| flood(std::slice::from_ref(&gateway), 4_000));
        redis.kill();
        redis.launch();
        flood.join().unwrap()
    });
    assert_eq!(counts.get(&200), Some(&4_000), "{counts:?}");
    eventually("Redis to decide again", || {
        let decided = || gateway.count("tollgate_decisions_total", &[("source", "redis")]);
        let before = decided();
        get(&gateway);
        (decided() > before).then_some(())
    });
}

#[test]
fn row_30_no_client_text_is_in_redis() {
    let redis = Redis::start();
    let config = with_rate(&redis, "rate = \"1000/d\"")
        .replace("[plans.free]", "[clients]\non_unknown_key = \"accept\"\n[plans.free]");
    let [gateway]: [Gateway; 1] = gateways(&config);
    for malformed in ["{}", "{x}:y", "a b*?[", "k\u{fc}", &"k".repeat(1_000)] {
        assert_eq!(gateway.send(&Request::get("/").header("X-Api-Key", malformed)).status, 200);
    }
    let mut keys: Vec<String> = redis.query(&["KEYS", "*"]);
    keys.retain(|key| {
        key != "tollgate:gateways" && !key.starts_with("tollgate:{tollgate:gateways}:")
    });
    let mut buckets = 0;
    for key in keys {
        let (part, rule) = key.strip_prefix("tollgate:{").unwrap().split_once("}:").unwrap();
        assert!(part.len() == 32 && part.bytes().all(|byte| byte.is_ascii_hexdigit()), "{key}");
        assert!(rule == "per-key" || rule == "~probe", "{key}");
        buckets += usize::from(rule == "per-key");
    }
    assert_eq!(buckets, 5);
}

/// After a restart with another rate, a client keeps the fraction of its bucket.
#[test]
fn client_keeps_its_fraction_across_a_reload() {
    let redis = Redis::start();
    let [before]: [Gateway; 1] = gateways(&with_rate(&redis, "rate = \"100/d\""));
    for _ in 0..40 {
        assert_eq!(get(&before), 200);
    }
    drop(before);
    let [after]: [Gateway; 1] = gateways(&with_rate(&redis, "rate = \"50/d\""));
    let answer = after.send(&Request::get("/").header("X-Api-Key", "secret"));
    assert_eq!(answer.header("x-ratelimit-remaining"), Some("29"), "60 % of 50, less one");
}

/// A rule of each kind, with everything else of a configuration that uses Redis.
pub(crate) const EVERYTHING: &str = r#"
[audit]
stream = true

[routes.leased]
path = "/leased"
upstream = "api"

[rules.bucket]
per = ["key"]
routes = ["all"]
rate = "100/d"

[rules.window]
per = ["key"]
routes = ["all"]
kind = "fixed_window"
limit = "100/month"

[rules.log]
per = ["key"]
routes = ["all"]
kind = "sliding_window"
limit = "50/h"

[rules.held]
per = ["key"]
routes = ["all"]
kind = "concurrency"
limit = 20

[rules.smooth]
per = ["key"]
routes = ["all"]
kind = "leaky_bucket"
rate = "100/s"
max_delay = "1s"

[rules.leased]
routes = ["leased"]
per = []
rate = "10000/s"
lease = "auto"
"#;

/// The line of rights in README.md, as words.
pub(crate) fn documented_rights() -> Vec<&'static str> {
    let line = |page: &'static str| {
        let mut lines = page.lines().map(str::trim);
        lines.find(|line| line.starts_with("ACL SETUSER tollgate")).unwrap()
    };
    let rights = line(include_str!("../../README.md"));
    assert_eq!(rights, line(include_str!("../../docs/redis.md")));
    rights.split_whitespace().collect()
}

/// The `[redis]` table with the user that the documentation creates.
pub(crate) fn as_documented_user(table: &str) -> String {
    format!("{table}username = \"tollgate\"\npassword = \"PASSWORD\"\n")
}

/// Uses everything of [`EVERYTHING`], and asserts that no right was missing.
pub(crate) fn use_everything(gateway: &Gateway) {
    let decided_by = |source| gateway.count("tollgate_decisions_total", &[("source", source)]);
    let send = |path| gateway.send(&Request::get(path).header("X-Api-Key", "secret"));
    // What a missing right causes is no fault of the machine.
    let assert_permitted = || {
        assert_eq!(gateway.count("tollgate_redis_calls_total", &[("result", "noperm")]), 0);
    };
    let waits = CpuWaits::now();
    let passed = (0..80).filter(|_| send("/").status == 200).count();
    assert_permitted();
    if is_decided_locally(std::slice::from_ref(gateway), &waits) {
        return;
    }
    assert_eq!(passed, 50, "the sliding window has the smallest limit");
    let lends = || {
        // Many at once, so that a busy machine reaches the rate from which tokens are lent.
        let url = gateway.url("/leased");
        send_concurrently(16, 400, |client, _| client.get(&url));
        (decided_by("lease") > 0).then_some(())
    };
    let waits = CpuWaits::now();
    eventually("a lease", lends);
    for path in ["/api/usage", "/api/clients/key/acme/buckets"] {
        let answer = gateway.admin(path);
        assert_eq!(answer.status, 200, "{path}: {}", answer.text());
    }
    assert_permitted();
    if is_decided_locally(std::slice::from_ref(gateway), &waits) {
        return;
    }
    let log = gateway.log().to_ascii_lowercase();
    for text in ["noperm", "permission", "may not run", "does not count", "cannot"] {
        assert!(!log.contains(text), "{log}");
    }
}

#[test]
fn documented_acl_rights_suffice() {
    let redis = Redis::start();
    redis.query::<String>(&documented_rights());
    let acme = key("acme", "secret", "free");
    let table = as_documented_user(&redis.table());
    let config = format!("{DEMO}{table}database = 1\n{EVERYTHING}{acme}");
    let [gateway]: [Gateway; 1] = gateways(&config);
    redis.query::<String>(&["SCRIPT", "FLUSH"]);
    use_everything(&gateway);
    let found = gateway.admin("/api/audit?all=true").json();
    assert!(found["incomplete"].is_null(), "{found}");
    assert!(redis.query::<Vec<redis::Value>>(&["ACL", "LOG"]).is_empty());
}

/// Without a right that only one kind of limit needs.
#[test]
fn row_16_right_of_sliding_windows_concerns_only_their_rules() {
    let redis = Redis::start();
    redis.query::<String>(&documented_rights());
    redis.query::<String>(&["ACL", "SETUSER", "tollgate", "-getrange"]);
    let table = as_documented_user(&redis.table());
    let acme = key("acme", "secret", "free");
    let log = "[rules.log]\nper = [\"key\"]\nkind = \"sliding_window\"\nlimit = \"5/h\"\n";
    let config = format!("{DEMO}{table}{PER_KEY}rate = \"100/d\"\n{log}{acme}");
    let [gateway]: [Gateway; 1] = gateways(&config);
    let passed = (0..20).filter(|_| get(&gateway) == 200).count();
    assert_eq!(passed, 5, "the window is decided locally");
    let decided = |rule, source| {
        gateway.count("tollgate_decisions_total", &[("rule", rule), ("source", source)])
    };
    assert!(decided("per-key", "redis") >= 5, "{}", gateway.metrics());
    assert_eq!(gateway.count("tollgate_breaker_state", &[]), 0);
    let logged = gateway.log().matches("may not run GETRANGE").count();
    assert_eq!(logged, 1, "{}", gateway.log());
    let again = || gateway.log().matches("may run GETRANGE again").count();
    assert_eq!(again(), 0, "{}", gateway.log());
    redis.query::<String>(&["ACL", "SETUSER", "tollgate", "+getrange"]);
    eventually("Redis to decide on the window", || {
        get(&gateway);
        (decided("log", "redis") > 0).then_some(())
    });
    get(&gateway);
    assert_eq!(again(), 1, "{}", gateway.log());
    assert!(!gateway.log().contains("breaker open"), "{}", gateway.log());
}

#[test]
fn row_16_revoked_acl_rights_fail_no_request_and_are_logged_once() {
    let redis = Redis::start();
    redis.query::<String>(&["ACL", "SETUSER", "tollgate", "on", ">hunter2", "~*", "+@all"]);
    let login = format!("{}username = \"tollgate\"\npassword = \"hunter2\"\n", redis.table());
    let config =
        format!("{DEMO}{login}{PER_KEY}rate = \"100/d\"\n{}", key("acme", "secret", "free"));
    let [gateway]: [Gateway; 1] = gateways(&config);
    assert_eq!(get(&gateway), 200);
    redis.query::<String>(&["ACL", "SETUSER", "tollgate", "-evalsha", "-eval", "-set"]);
    for _ in 0..5 {
        assert_eq!(get(&gateway), 200);
    }
    assert_eq!(gateway.count("tollgate_decisions_total", &[("source", "local")]), 5);
    let named = |log: &str| log.matches("breaker open: Redis says: NOPERM").count();
    assert_eq!(named(&gateway.log()), 1, "{}", gateway.log());
    assert!(!gateway.log().contains("hunter2"), "{}", gateway.log());
    redis.query::<String>(&["ACL", "SETUSER", "tollgate", "+evalsha", "+eval", "+set"]);
    eventually("Redis to decide again", || {
        assert_eq!(get(&gateway), 200);
        (gateway.count("tollgate_decisions_total", &[("source", "redis")]) > 1).then_some(())
    });
}
