//! Four nested rules with costs on two gateways with a reload half-way. The test evaluates only the
//! requests that arrived at the upstream.
//!
//! Every request has the time at which its client sent it; the upstream records the time of
//! arrival. Redis decided in between. So for two times a < b, the requests that were sent after a
//! and arrived before b took their tokens within b - a, on any machine.

use std::collections::{BTreeSet, HashMap};
use std::io::Write as _;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::Mutex;

use crate::shared::{TIMEOUT_OF_CALLS, decided_by};
use crate::support::{
    CpuWaits, Gateway, Redis, Request, Stopwatch, Upstream, eventually, inconclusive_if_stalled,
    inconclusive_if_waited, key, proxy_to, sleep_for,
};

/// Tolerance for a bucket below zero in the upstream's order: what its rate adds in this time.
const TOLERANCE: Duration = Duration::from_millis(20);

/// Duration of the load under each configuration.
const HALF: Duration = Duration::from_secs(3);

/// Cost of a search; other requests cost 1.
const SEARCH_COST: u32 = 5;

const KEYS: [&str; 3] = ["ant", "bee", "cat"];

/// Rate and burst in whole tokens.
#[derive(Clone, Copy)]
struct Limit {
    rate: u32,
    burst: u32,
}

/// The limits of one configuration.
#[derive(Clone, Copy)]
struct Rules {
    ip: Limit,
    key: Limit,
    search: Limit,
    everyone: Limit,
}

/// First the limits per key, per address and on searches are exhausted. The reload keeps rate /
/// burst, so that a client's fraction of its bucket refills equally under both configurations.
const BEFORE: Rules = Rules {
    ip: Limit { rate: 60, burst: 90 },
    key: Limit { rate: 40, burst: 80 },
    search: Limit { rate: 25, burst: 50 },
    everyone: Limit { rate: 200, burst: 250 },
};

/// After the reload, the global limit is exhausted.
const AFTER: Rules =
    Rules { key: Limit { rate: 20, burst: 40 }, everyone: Limit { rate: 40, burst: 50 }, ..BEFORE };

/// A request that arrived at the upstream. Times are since the start of the test.
#[derive(Clone, Debug)]
struct Arrival {
    sent: Duration,
    arrived: Duration,
    key: String,
    ip: String,
    is_search: bool,
}

impl Arrival {
    fn cost(&self) -> u32 {
        if self.is_search { SEARCH_COST } else { 1 }
    }
}

fn file(redis: &Redis, upstream: &Upstream, rules: &Rules) -> String {
    let limit = |Limit { rate, burst }: Limit| format!("rate = \"{rate}/s\"\nburst = {burst}\n");
    let keys: String = KEYS.iter().map(|id| key(id, format!("secret of {id}"), "free")).collect();
    format!(
        "trusted_proxies = [\"127.0.0.1\"]\n{}{}\
         [routes.search]\npath = \"/search\"\nupstream = \"api\"\ncost = {SEARCH_COST}\n\
         [rules.per-ip]\nper = [\"ip\"]\n{}\
         [rules.per-key]\nper = [\"key\"]\n{}\
         [rules.search]\nper = [\"key\", \"route\"]\nroutes = [\"search\"]\n{}\
         [rules.everyone]\nper = []\n{}{keys}",
        proxy_to(&[upstream.address]),
        redis.table(),
        limit(rules.ip),
        limit(rules.key),
        limit(rules.search),
        limit(rules.everyone),
    )
}

/// An upstream that records requests and their time of arrival.
fn recorder(clock: Stopwatch) -> (Upstream, Arc<Mutex<Vec<Arrival>>>) {
    let arrivals = Arc::new(Mutex::new(Vec::new()));
    let noted = Arc::clone(&arrivals);
    let upstream = Upstream::start(move |seen, stream| {
        let header = |name| seen.header(name).unwrap().to_string();
        let ip = header("x-forwarded-for").split(',').next().unwrap().to_string();
        noted.lock().push(Arrival {
            sent: Duration::from_micros(header("x-sent").parse().unwrap()),
            arrived: clock.elapsed(),
            key: header("x-api-key"),
            ip,
            is_search: seen.line().starts_with("GET /search "),
        });
        stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n").is_ok()
    });
    (upstream, arrivals)
}

/// Runs one client that sends more requests than any rule allows, until `done`. Clients of one key
/// send searches. Each key has clients on both gateways, one key has clients at both addresses.
/// Returns the numbers of allowed and denied requests.
fn client(gateway: &Gateway, number: usize, clock: Stopwatch, done: &AtomicBool) -> (u64, u64) {
    let (key, ip, path) = match number / 2 % 4 {
        0 => ("ant", "192.0.2.1", "/"),
        1 => ("ant", "192.0.2.2", "/"),
        2 => ("bee", "192.0.2.1", "/"),
        _ => ("cat", "192.0.2.2", "/search"),
    };
    let key = format!("secret of {key}");
    let request = Request::get(path).header("X-Api-Key", key).header("X-Forwarded-For", ip);
    let mut connection = gateway.connect();
    let (mut allowed, mut denied) = (0, 0);
    while !done.load(Ordering::Relaxed) {
        let sent = clock.elapsed().as_micros().to_string();
        match connection.send(&request.clone().header("X-Sent", sent)).status {
            200 => allowed += 1,
            429 => denied += 1,
            other => panic!("answered {other}"),
        }
        sleep_for(Duration::from_millis(15));
    }
    (allowed, denied)
}

/// Tokens granted by one bucket, as fractions of a full bucket.
struct Bucket {
    /// Refill per second; equal under both configurations.
    rate: f64,
    /// Sending time, arrival time and cost of each request.
    taken: Vec<(Duration, Duration, f64)>,
}

impl Bucket {
    /// The maximum that was granted beyond a full bucket plus the refill, over all spans from the
    /// sending of one request to the arrival of another.
    fn excess(&self) -> f64 {
        let from = |start: Duration| {
            let mut sum = 0.0;
            let later = self.taken.iter().filter(|(sent, ..)| *sent >= start);
            let beyond = later.map(|(_, arrived, taken)| {
                sum += taken;
                sum - 1.0 - self.rate * arrived.saturating_sub(start).as_secs_f64()
            });
            beyond.fold(f64::MIN, f64::max)
        };
        self.taken.iter().map(|(sent, ..)| from(*sent)).fold(f64::MIN, f64::max)
    }

    /// The lowest level, if every request is charged at its arrival.
    fn lowest_level(&self) -> f64 {
        let (mut level, mut at, mut lowest) = (1.0, Duration::ZERO, 1.0);
        for (_, arrived, taken) in &self.taken {
            let added = self.rate * arrived.saturating_sub(at).as_secs_f64();
            level = f64::min(level + added, 1.0) - taken;
            at = *arrived;
            lowest = f64::min(lowest, level);
        }
        lowest
    }
}

/// All buckets by rule and client, from the requests in order of arrival. During the reload either
/// configuration may have counted a request: `choose` selects one of both bursts.
fn buckets(
    arrivals: &[Arrival],
    reload: &Range<Duration>,
    choose: fn(u32, u32) -> u32,
) -> HashMap<(&'static str, String), Bucket> {
    let mut buckets = HashMap::new();
    for one in arrivals {
        let burst = |before: Limit, after: Limit| {
            if one.arrived < reload.start {
                before.burst
            } else if one.sent > reload.end {
                after.burst
            } else {
                choose(before.burst, after.burst)
            }
        };
        let mut note = |rule, client: &str, limit: fn(&Rules) -> Limit| {
            let (before, after) = (limit(&BEFORE), limit(&AFTER));
            let rate = f64::from(before.rate) / f64::from(before.burst);
            let bucket = buckets
                .entry((rule, client.to_string()))
                .or_insert_with(|| Bucket { rate, taken: Vec::new() });
            let taken = f64::from(one.cost()) / f64::from(burst(before, after));
            bucket.taken.push((one.sent, one.arrived, taken));
        };
        note("per-ip", &one.ip, |rules| rules.ip);
        note("per-key", &one.key, |rules| rules.key);
        note("everyone", "", |rules| rules.everyone);
        if one.is_search {
            note("search", &one.key, |rules| rules.search);
        }
    }
    buckets
}

/// Asserts that no bucket exceeded its limit. `waits` began with the load.
#[track_caller]
fn judge(arrivals: &[Arrival], reload: &Range<Duration>, waits: &CpuWaits) {
    let delay = arrivals.iter().map(|one| one.arrived.saturating_sub(one.sent)).max().unwrap();
    for ((rule, client), bucket) in buckets(arrivals, reload, u32::max) {
        let tolerated = bucket.rate * TOLERANCE.as_secs_f64();
        let (excess, lowest) = (bucket.excess(), bucket.lowest_level());
        let name = format!("bucket {client:?} of {rule} ({} requests)", bucket.taken.len());
        eprintln!("{name}: excess {excess:.4}, lowest level {lowest:.4} of a full bucket");
        assert!(excess <= tolerated, "{name}: {excess} of a bucket beyond its limit");
        if lowest < -tolerated {
            // In order of arrival, a level may be too low by the refill during the delay.
            assert!(delay > TOLERANCE, "{name}: down to {lowest} of a full bucket");
            let found = format!("{name}: down to {lowest:.4}, but a request took {delay:?}");
            inconclusive_if_stalled(&found, waits.stall(), TOLERANCE);
        }
    }
}

/// The rules with an exhausted bucket.
fn exhausted(arrivals: &[Arrival], reload: &Range<Duration>) -> BTreeSet<&'static str> {
    let buckets = buckets(arrivals, reload, u32::min).into_iter();
    buckets.filter(|(_, bucket)| bucket.excess() > -0.1).map(|((rule, _), _)| rule).collect()
}

#[test]
fn two_gateways_enforce_four_nested_rules_with_costs_across_a_reload() {
    let clock = Stopwatch::start();
    let redis = Redis::start();
    let (upstream, arrivals) = recorder(clock);
    let [before, after] = [BEFORE, AFTER].map(|rules| file(&redis, &upstream, &rules));
    let gateways: [Gateway; 2] = std::array::from_fn(|_| Gateway::start(&before));
    for gateway in &gateways {
        eventually("a connection to Redis", || {
            gateway.log().contains("connected to Redis").then_some(())
        });
    }
    let waits = CpuWaits::now();
    let (reload, counts) = load(&gateways, clock, &after);
    let arrivals = arrivals.lock().clone();
    let (allowed, denied) = counts;
    assert_eq!(arrivals.len() as u64, allowed, "the upstream sees what was allowed");
    if denied <= allowed / 2 {
        let what = format!("{denied} denied, {allowed} allowed: the limits were hardly reached");
        return inconclusive_if_waited(&what, &waits, HALF);
    }
    let local = decided_by(&gateways, "local");
    // Up to four rules decide on a request. A breaker that opens stays open for half a second at
    // least: that is more.
    let decisions = 4 * (allowed + denied);
    assert!(100 * local <= decisions, "{local} of {decisions} decided locally");
    if local > 0 {
        let what = format!("Redis did not answer {local} decisions within a second");
        return inconclusive_if_stalled(&what, waits.stall_of_servers(), TIMEOUT_OF_CALLS);
    }
    judge(&arrivals, &reload, &waits);
    // The clients were greedy, so every rule was exhausted.
    let rules = BTreeSet::from(["per-ip", "per-key", "search", "everyone"]);
    let exhausted = exhausted(&arrivals, &reload);
    if exhausted != rules {
        inconclusive_if_waited(&format!("exhausted: {exhausted:?}"), &waits, HALF);
    }
}

/// Runs load on both gateways, with a reload of `after` half-way. Returns the span of the reload,
/// and the numbers of allowed and denied requests.
fn load(gateways: &[Gateway; 2], clock: Stopwatch, after: &str) -> (Range<Duration>, (u64, u64)) {
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let done = &done;
        let start =
            |number| scope.spawn(move || client(&gateways[number % 2], number, clock, done));
        let clients: Vec<_> = (0..16).map(start).collect();
        sleep_for(HALF);
        let begun = clock.elapsed();
        for gateway in gateways {
            gateway.apply(after);
        }
        let reload = begun..clock.elapsed();
        sleep_for(HALF);
        done.store(true, Ordering::Relaxed);
        let sum = |(allowed, denied), (more, others)| (allowed + more, denied + others);
        (reload, clients.into_iter().map(|client| client.join().unwrap()).fold((0, 0), sum))
    })
}
