//! Tokens that gateways borrow from Redis: what passes is what the upstream counts.

use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::cluster::wait_until_connected;
use crate::support::{
    ClientGroup, CpuWaits, DEMO, Data, Fleet, Gateway, Load, Redis, RedisCluster, Report, Request,
    StatusCounts, Stopwatch, Upstream, eventually, inconclusive, inconclusive_if_stalled, key,
    proxy_to, send_many, sleep_for,
};

const OK: &str = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";

/// A rule for all clients, with leases, and a client.
fn rule(limit: &str) -> String {
    let rule = format!("[rules.all]\nper = []\nlease = \"auto\"\n{limit}\n");
    format!("{rule}{}", key("acme", "secret", "free"))
}

/// Gateways with one configuration, each connected to Redis.
fn gateways<const N: usize>(config: &str) -> [Gateway; N] {
    let gateways: [Gateway; N] = std::array::from_fn(|_| Gateway::start(config));
    gateways.iter().for_each(Gateway::wait_for_redis);
    gateways
}

/// Sends requests in turn to each gateway. Returns how many pass.
fn passed(gateways: &[&Gateway], count: usize) -> usize {
    let urls: Vec<String> = gateways.iter().map(|gateway| gateway.url("/")).collect();
    let counts: StatusCounts = send_many(count, |client, number| {
        client.get(&urls[number % urls.len()]).header("X-Api-Key", "secret")
    });
    assert!(counts.keys().all(|status| [200, 429].contains(status)), "{counts:?}");
    counts.get(&200).copied().unwrap_or(0)
}

/// Requests that were decided by a lease.
fn by_lease(gateway: &Gateway) -> u64 {
    gateway.count("tollgate_decisions_total", &[("source", "lease"), ("rule", "all")])
}

/// The value of a series with one label besides the rule `all`, in a page of metrics; 0 if there is
/// none.
fn value(metrics: &str, name: &str, label: &str) -> f64 {
    let of_label = |line: &&str| {
        line.starts_with(name) && line.contains(label) && line.contains("rule=\"all\"")
    };
    let values = metrics.lines().filter(of_label);
    values.map(|line| line.rsplit_once(' ').unwrap().1.parse::<f64>().unwrap()).sum()
}

/// Tokens of leases with this event, in a page of metrics.
fn tokens(metrics: &str, event: &str) -> f64 {
    value(metrics, "tollgate_lease_tokens_total{", &format!("event=\"{event}\""))
}

/// Lost tokens of a test in which gateways return all that they can: those of requests that were
/// refused elsewhere while a call counted them as spent.
const FEW: usize = 50;

/// Tokens of leases that are lost, rounded up.
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a small number")]
fn lost(gateway: &Gateway) -> usize {
    tokens(&gateway.metrics(), "expired").ceil() as usize
}

/// A gateway or a Redis that waits longer for a CPU may return tokens too late. Gateways return
/// what they do not spend 0.15 s before it expires.
const IN_ADVANCE: Duration = Duration::from_millis(100);

/// Asserts that few tokens were lost since `waits`: more only if a gateway or Redis waited for a
/// CPU.
#[track_caller]
fn assert_few_lost(lost: usize, waits: &CpuWaits) {
    assert!(lost <= 5 * FEW, "{lost} tokens of leases are lost");
    if lost > FEW {
        let what = format!("{lost} tokens of leases are lost");
        inconclusive_if_stalled(&what, waits.stall_of_servers(), IN_ADVANCE);
    }
}

/// Bytes of the bucket in Redis: 40 while units are lent.
fn stored_bytes(redis: &Redis) -> usize {
    let keys: Vec<String> = redis.query(&["KEYS", "*:all"]);
    assert_eq!(keys.len(), 1, "{keys:?}");
    redis.query::<usize>(&["STRLEN", &keys[0]])
}

/// Waits until gateways have returned what they borrowed.
fn wait_for_returns(gateways: &[&Gateway]) {
    for gateway in gateways {
        eventually("the return of the lease", || {
            // One page, since a return between two would be in one of them only.
            let metrics = gateway.metrics();
            let out = tokens(&metrics, "lent")
                - tokens(&metrics, "returned")
                - tokens(&metrics, "expired");
            let spent = value(&metrics, "tollgate_decisions_total{", "source=\"lease\"");
            // Fractions of a token may be lent, too.
            (out < spent + 1.0).then_some(())
        });
    }
}

/// Sends requests to the gateways, which have passed `sum`, until at least `tokens` have passed or
/// are lost: a gateway that was refused refuses without Redis for a second, whatever has been
/// returned since. Returns how many have passed, and how many are lost beside `lost_before`.
fn drain(
    gateways: &[&Gateway],
    mut sum: usize,
    lost_before: usize,
    tokens: usize,
) -> (usize, usize) {
    let lost = eventually("the last tokens", || {
        sum += passed(gateways, 60);
        let lost = lost_before + gateways.iter().map(|gateway| lost(gateway)).sum::<usize>();
        (sum + lost >= tokens).then_some(lost)
    });
    (sum, lost)
}

#[test]
fn three_gateways_with_leases_allow_exactly_the_limit() {
    let redis = Redis::start();
    let limit = rule("rate = \"3000/365d\"");
    let gateways: [Gateway; 3] =
        gateways(&format!("instances = 3\n{DEMO}{}{limit}", redis.table()));
    let all = gateways.each_ref();
    let before = redis.script_calls();
    let waits = CpuWaits::now();
    let mut sum = passed(&all, 2_000);
    assert_eq!(sum, 2_000);
    let leased: u64 = gateways.iter().map(by_lease).sum();
    let calls = redis.script_calls() - before;
    eprintln!("{leased} of 2000 requests by leases, {calls} calls");
    assert!(leased > 500, "{leased}");
    while stored_bytes(&redis) == 40 || sum == 2_000 {
        sum += passed(&all, 500);
        wait_for_returns(&all);
        assert!(sum <= 3_000, "{sum}");
        if sum == 3_000 {
            break;
        }
    }
    let (sum, lost) = drain(&all, sum, 0, 3_000);
    assert!(sum <= 3_000, "{sum} passed, {lost} expired");
    assert_few_lost(lost, &waits);
    // Of a refusal, Redis or an earlier reply of it is the source.
    for gateway in &gateways {
        let denied = [("decision", "deny"), ("source", "lease")];
        assert_eq!(gateway.count("tollgate_decisions_total", &denied), 0);
    }
}

#[test]
fn idle_bucket_is_stored_as_without_leases() {
    let redis = Redis::start();
    let limit = rule("rate = \"100000/365d\"");
    let [gateway]: [Gateway; 1] = gateways(&format!("{DEMO}{}{limit}", redis.table()));
    // An idle lease is returned after 200 ms: on a busy machine, before Redis is asked.
    eventually("a lease", || {
        assert_eq!(passed(&[&gateway], 1_000), 1_000);
        (stored_bytes(&redis) == 40).then_some(())
    });
    wait_for_returns(&[&gateway]);
    sleep_for(Duration::from_secs(4));
    assert_eq!(passed(&[&gateway], 1), 1);
    assert_eq!(stored_bytes(&redis), 24);
}

#[test]
fn remaining_tokens_count_down_by_the_requests() {
    let redis = Redis::start();
    let limit = rule("rate = \"100000/365d\"");
    let [gateway]: [Gateway; 1] = gateways(&format!("{DEMO}{}{limit}", redis.table()));
    let waits = CpuWaits::now();
    assert_eq!(passed(&[&gateway], 1_000), 1_000);
    let connection = &mut gateway.connect();
    let shown: Vec<u64> =
        (0..500).map(|_| connection.send(&Request::get("/")).remaining()).collect();
    // No token is added meanwhile: one takes five minutes.
    for (sent, shown) in (1..).zip(&shown) {
        assert!(*shown <= 99_000 - sent + 1, "{shown} after {sent} requests");
    }
    // Tokens that are on their way between the gateway and Redis are in no response. On a busy
    // machine, that is several responses each time.
    let steps = shown.windows(2).filter(|pair| (pair[0] - 1).abs_diff(pair[1]) <= 1).count();
    assert!(steps > 400, "{steps} of 499 steps are of one token: {shown:?}");
    assert!(by_lease(&gateway) > 0);
    wait_for_returns(&[&gateway]);
    let left = connection.send(&Request::get("/")).remaining();
    let lost = lost(&gateway);
    assert!(left.abs_diff(98_499 - lost as u64) <= 1, "{left} left, {lost} lost");
    assert_few_lost(lost, &waits);
}

#[test]
fn tokens_of_a_lease_are_put_back_if_another_rule_refuses() {
    let redis = Redis::start();
    let per_key = "[rules.per-key]\nper = [\"key\"]\nrate = \"700/365d\"\n";
    let config = format!("{DEMO}{}{}{per_key}", redis.table(), rule("rate = \"5000/365d\""));
    let [gateway]: [Gateway; 1] = gateways(&config);
    let waits = CpuWaits::now();
    assert_eq!(passed(&[&gateway], 2_000), 700);
    assert!(by_lease(&gateway) > 100);
    let calls = redis.script_calls();
    assert_eq!(passed(&[&gateway], 1_000), 0);
    assert!(redis.script_calls() - calls < 100, "the deny cache refuses");
    wait_for_returns(&[&gateway]);
    let view = gateway.admin("/api/clients/key/acme/buckets").json();
    let lost = lost(&gateway);
    let rules = view["rules"].as_array().unwrap();
    let left = rules.iter().find(|rule| rule["rule"] == "all").unwrap()["tokens"].as_u64().unwrap();
    let left = usize::try_from(left).unwrap();
    assert!((4_300 - lost..=4_300).contains(&left), "{left} left, {lost} lost: {view}");
    assert_few_lost(lost, &waits);
}

/// The limit of all clients is in another slot than that of the client, which refuses.
#[test]
fn leases_of_a_bucket_in_a_cluster_are_exact_over_three_gateways() {
    let redis = RedisCluster::steady(0);
    let table = redis.table_with("timeout = \"1s\"\n");
    let per_key = "[rules.per-key]\nper = [\"key\"]\nrate = \"1500/365d\"\n";
    let config = format!("instances = 3\n{DEMO}{table}{}{per_key}", rule("rate = \"5000/365d\""));
    let gateways: [Gateway; 3] = std::array::from_fn(|_| Gateway::start(&config));
    gateways.iter().for_each(wait_until_connected);
    let all = gateways.each_ref();
    let waits = CpuWaits::now();
    assert_eq!(passed(&all, 3_000), 1_500);
    let leased: u64 = gateways.iter().map(by_lease).sum();
    assert!(leased > 300, "{leased}");
    wait_for_returns(&all);
    let view = gateways[0].admin("/api/clients/key/acme/buckets").json();
    let rules = view["rules"].as_array().unwrap();
    let left = rules.iter().find(|rule| rule["rule"] == "all").unwrap()["tokens"].as_u64().unwrap();
    let left = usize::try_from(left).unwrap();
    let lost: usize = gateways.iter().map(lost).sum();
    // What another slot refuses is given back less what was refilled meanwhile: a fraction of a
    // token, rounded down.
    assert!((3_499 - lost..=3_500).contains(&left), "{left} left, {lost} lost: {view}");
    assert_few_lost(lost, &waits);
}

#[test]
fn gateway_returns_its_lease_when_it_ends() {
    let redis = Redis::start();
    let limit = rule("rate = \"2000/365d\"");
    let mut gateways: [Gateway; 2] =
        gateways(&format!("instances = 2\n{DEMO}{}{limit}", redis.table()));
    let waits = CpuWaits::now();
    assert_eq!(passed(&[&gateways[0]], 800), 800);
    let lost_before = lost(&gateways[0]);
    gateways[0].terminate();
    assert_eq!(gateways[0].exit().0, Some(0));
    let sum = 800 + passed(&[&gateways[1]], 1_000);
    wait_for_returns(&[&gateways[1]]);
    let (sum, lost) = drain(&[&gateways[1]], sum, lost_before, 2_000);
    assert!(sum <= 2_000, "{sum}, {lost} lost");
    assert_few_lost(lost, &waits);
}

#[test]
fn lease_ends_with_a_reload_that_changes_the_limit() {
    let redis = Redis::start();
    let config = |limit: &str| format!("{DEMO}{}{}", redis.table(), rule(limit));
    let [gateway]: [Gateway; 1] = gateways(&config("rate = \"4000/365d\""));
    let waits = CpuWaits::now();
    assert_eq!(passed(&[&gateway], 1_000), 1_000);
    // Three quarters of the bucket are left.
    gateway.apply(&config("rate = \"2000/365d\""));
    let sum = passed(&[&gateway], 1_400);
    wait_for_returns(&[&gateway]);
    let (sum, lost) = drain(&[&gateway], sum, 0, 1_499);
    let sum = sum + passed(&[&gateway], 100);
    assert!(sum <= 1_501, "{sum}, {lost} lost");
    assert_few_lost(lost, &waits);
}

#[test]
fn reset_fills_a_bucket_from_which_the_gateway_has_borrowed() {
    let redis = Redis::start();
    let limit = "[rules.all]\nper = [\"key\"]\nlease = \"auto\"\nrate = \"2000/365d\"\n";
    let config = format!("{DEMO}{}{limit}{}", redis.table(), key("acme", "secret", "free"));
    let [gateway]: [Gateway; 1] = gateways(&config);
    let waits = CpuWaits::now();
    assert_eq!(passed(&[&gateway], 1_000), 1_000);
    let reset = Request::new("POST", "/api/clients/key/acme/reset");
    let view = gateway.send_admin(&reset).json();
    // Less what is still lent: the gateway returns it before, if it gets a CPU in time.
    let lacking = 2_000 - view["buckets"][0]["to"].as_u64().unwrap();
    assert!(lacking <= 250, "{view}");
    if lacking > 0 {
        let found = format!("{lacking} tokens were not returned before the reset");
        inconclusive_if_stalled(&found, waits.stall_of_servers(), IN_ADVANCE);
    }
    let sum = passed(&[&gateway], 2_400);
    wait_for_returns(&[&gateway]);
    let (sum, lost) = drain(&[&gateway], sum, 0, 2_000);
    assert!(sum <= 2_000, "{sum}, {lost} lost");
    assert_few_lost(lost, &waits);
}

/// Three gateways with a limit that their clients exceed, and an upstream that counts.
struct Counted {
    fleet: Fleet,
    upstream: Upstream,
    watch: Stopwatch,
}

const RATE: usize = 100;
const BURST: usize = 400;

impl Counted {
    fn start() -> Self {
        let upstream = Upstream::responding(OK);
        let routes = proxy_to(&[upstream.address]);
        let limit = rule(&format!("rate = \"{RATE}/s\"\nburst = {BURST}"));
        let fleet = Fleet::start(Data::Kept, None, |redis| format!("{routes}{redis}{limit}"));
        Self { fleet, upstream, watch: Stopwatch::start() }
    }

    fn count(&self) -> usize {
        self.upstream.requests().len()
    }

    /// The burst, and what the rate has yielded until now.
    fn bound(&self) -> usize {
        BURST + RATE * usize::try_from(self.watch.elapsed().as_millis()).unwrap() / 1_000
    }

    fn load(&self) -> Load {
        let group = |gateway: &Gateway| {
            ClientGroup::new(gateway, &Request::get("/"), 8, Duration::from_millis(60))
        };
        Load::start(self.fleet.gateways.iter().map(group).collect())
    }
}

/// Responses to a load.
fn answers(reports: &[Report]) -> usize {
    reports.iter().map(|report| report.counts().values().sum::<usize>()).sum()
}

/// Asserts that the limit was used but for half of the burst. Inconclusive if the load was less
/// than one and a half times the limit.
#[track_caller]
fn assert_used(passed: usize, most: usize, answers: usize) {
    if passed + BURST / 2 >= most {
        return;
    }
    assert!(answers < most * 3 / 2, "{passed} of {most}, though {answers} requests were sent");
    // As far as they are asked for, most tokens are granted on any machine.
    assert!(passed > answers.min(most) / 2, "{passed} of {most}, by {answers} requests");
    inconclusive(&format!("only {answers} requests were sent for a limit of {most}"));
}

#[test]
fn gateway_that_is_killed_adds_nothing_to_the_limit() {
    let counted = Counted::start();
    let load = counted.load();
    sleep_for(Duration::from_secs(1));
    let killed = &counted.fleet.gateways[0];
    eventually("a lease", || (by_lease(killed) > 0).then_some(()));
    let metrics = killed.metrics();
    let lent = tokens(&metrics, "lent") - tokens(&metrics, "returned");
    kill(Pid::from_raw(killed.pid().cast_signed()), Signal::SIGKILL).unwrap();
    for _ in 0..5 {
        sleep_for(Duration::from_secs(1));
        // First: what passes later counts less.
        let (passed, most) = (counted.count(), counted.bound());
        assert!(passed <= most, "{passed} of {most}");
    }
    let answers = answers(&load.stop());
    let (passed, most) = (counted.count(), counted.bound());
    eprintln!("{passed} of {most} passed; the killed gateway had borrowed {lent} tokens");
    // What it had borrowed is late for 4 s at most, and then lost.
    assert_used(passed, most, answers);
}

/// The slot of the bucket moves six times while three gateways spend their leases.
#[test]
fn leases_stay_within_the_bound_while_their_slot_moves() {
    let redis = RedisCluster::steady(0);
    let upstream = Upstream::responding(OK);
    let routes = proxy_to(&[upstream.address]);
    let limit = rule(&format!("rate = \"{RATE}/s\"\nburst = {BURST}"));
    let table = redis.table_with("timeout = \"1s\"\n");
    let config = format!("instances = 3\n{routes}{table}{limit}");
    let gateways: [Gateway; 3] = std::array::from_fn(|_| Gateway::start(&config));
    gateways.iter().for_each(wait_until_connected);
    let watch = Stopwatch::start();
    let group = |gateway: &Gateway| {
        ClientGroup::new(gateway, &Request::get("/"), 22, Duration::from_millis(150))
    };
    let load = Load::start(gateways.iter().map(group).collect());
    let found = || {
        redis.masters().into_iter().find_map(|at| {
            let keys: Vec<String> = redis.nodes[at].query(&["KEYS", "*:all"]);
            keys.into_iter().next().map(|key| (at, key))
        })
    };
    let (mut owner, key) = eventually("the bucket", found);
    for _ in 0..6 {
        let next = (owner + 1) % 3;
        redis.move_slot(&key, owner, next);
        owner = next;
        // First: what passes later counts less.
        let passed = upstream.requests().len();
        let most = BURST + RATE * usize::try_from(watch.elapsed().as_millis()).unwrap() / 1_000;
        assert!(passed <= most, "{passed} of {most}");
    }
    let reports = load.stop();
    let (passed, elapsed) = (upstream.requests().len(), watch.elapsed());
    let most = BURST + RATE * usize::try_from(elapsed.as_millis()).unwrap() / 1_000;
    let leased: u64 = gateways.iter().map(by_lease).sum();
    let local: u64 = gateways
        .iter()
        .map(|gateway| {
            gateway.count("tollgate_decisions_total", &[("source", "local"), ("rule", "all")])
        })
        .sum();
    eprintln!("{passed} of {most} passed in {elapsed:?}, {leased} by leases, {local} local");
    let answers = answers(&reports);
    for report in reports {
        assert!(report.counts().keys().all(|status| [200, 429].contains(status)));
    }
    assert!(passed <= most && leased > 0);
    assert_used(passed, most, answers);
}

#[test]
fn gateways_with_leases_stay_within_the_bound_of_an_outage() {
    let counted = Counted::start();
    let load = counted.load();
    sleep_for(Duration::from_secs(1));
    counted.fleet.kill_redis();
    let before = counted.count();
    sleep_for(Duration::from_secs(2));
    let without = counted.count() - before;
    counted.fleet.restart_redis();
    sleep_for(Duration::from_secs(3));
    for report in load.stop() {
        let counts = report.counts();
        assert_eq!(report.broken(), 0, "{counts:?}");
        assert!(counts.keys().all(|status| [200, 429].contains(status)), "{counts:?}");
    }
    let (passed, most) = (counted.count(), counted.bound());
    eprintln!("{passed} passed, {without} of them without Redis; the limit alone is {most}");
    assert!(without > 0);
    assert!(passed <= most + 2 * BURST, "{passed} of {most}");
    let local = counted
        .fleet
        .count("tollgate_decisions_total", &[("source", "local"), ("decision", "allow")]);
    assert!(local > 0);
}
