//! Leaky buckets on busy cores: when requests reach a server in another process, while processes
//! beside use each core.

use std::collections::HashMap;
use std::path::PathBuf;
use std::time::Duration;

use serde_json::Value;

use crate::support::{
    BackgroundShell, CpuWaits, Gateway, Redis, Timestamp, eventually, inconclusive, proxy_to,
};

const CLIENTS: usize = 200;

/// The distance of requests at 100 a second.
const GAP: Duration = Duration::from_millis(10);

/// Processes beside that never wait, for each core.
const BUSY_PER_CORE: usize = 2;

/// Resolution of the timer of a wait.
const TIMER: Duration = Duration::from_millis(1);

/// A server in a process of its own, which notes when requests arrive.
struct Recorder {
    server: Gateway,
    folder: tempfile::TempDir,
}

/// Gateways that forward to the recorder.
struct Gateways<const N: usize> {
    gateways: [Gateway; N],
    /// Their access logs.
    logs: [PathBuf; N],
}

/// A request that passed. Times from the first request of all.
struct Passed {
    /// When the gateway had read its head.
    read: Duration,
    /// How long it was to wait.
    wait: Duration,
    /// When it arrived at the server.
    arrived: Duration,
}

impl Recorder {
    fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let log = folder.path().join("arrivals");
        let server = Gateway::start(&format!(
            "[plans.free]\n[routes.all]\npath = \"/*\"\nrespond = {{ status = 200, body = \"ok\" }}\n\
             [access_log]\noutput = \"{}\"\nfields = [\"time\", \"path\"]\n",
            log.display()
        ));
        Self { server, folder }
    }

    fn log(&self) -> PathBuf {
        self.folder.path().join("arrivals")
    }
}

/// The lines of access logs by path, once there are that many.
fn lines(logs: &[PathBuf], count: usize) -> HashMap<String, Value> {
    let each = eventually("the lines of access logs", || {
        let texts = logs.iter().map(|log| std::fs::read_to_string(log).unwrap());
        let texts: Vec<String> = texts.collect();
        let is_whole = texts.iter().all(|text| text.is_empty() || text.ends_with('\n'));
        let all: Vec<String> =
            texts.iter().flat_map(|text| text.lines().map(str::to_owned)).collect();
        (is_whole && all.len() >= count).then_some(all)
    });
    let each = each.iter().map(|line| {
        let line: Value = serde_json::from_str(line).unwrap();
        (line["path"].as_str().unwrap().to_owned(), line)
    });
    each.collect()
}

/// The time of a line, from `began` on.
fn time(line: &Value, began: Timestamp) -> Duration {
    Timestamp::of_line(line["time"].as_str().unwrap()).since(began)
}

impl<const N: usize> Gateways<N> {
    /// Each with a leaky bucket, and a quota whose remaining tokens number the decisions.
    fn start(recorder: &Recorder, redis: &str, max_delay: &str) -> Self {
        let logs = std::array::from_fn(|index| recorder.folder.path().join(format!("log-{index}")));
        let start = |log: &PathBuf| {
            Gateway::start(&format!(
                "{}{redis}\n[headers]\npolicies = \"all\"\n\
                 [access_log]\noutput = \"{}\"\nfields = [\"time\", \"path\", \"wait_ms\"]\n\
                 [rules.count]\nper = []\nkind = \"fixed_window\"\nlimit = \"1000000/year\"\n\
                 [rules.shape]\nper = []\nkind = \"leaky_bucket\"\nrate = \"100/s\"\nmax_delay = \"{max_delay}\"\n",
                proxy_to(&[recorder.server.address]),
                log.display()
            ))
        };
        let gateways = logs.each_ref().map(start);
        if !redis.is_empty() {
            gateways.iter().for_each(Gateway::wait_for_redis);
        }
        Self { gateways, logs }
    }
}

/// Processes that use each core, until they are dropped.
fn busy_processes(folder: &std::path::Path) -> Vec<BackgroundShell> {
    let cores = std::thread::available_parallelism().unwrap().get();
    let busy = |_| BackgroundShell::start("while :; do :; done", folder);
    (0..BUSY_PER_CORE * cores).map(busy).collect()
}

/// Sends all requests at once, in turn to each gateway. Returns those that passed, in the order in
/// which they were decided.
fn burst<const N: usize>(gateways: &Gateways<N>, recorder: &Recorder) -> Vec<Passed> {
    let connect = |client: usize| gateways.gateways[client % N].connect();
    let mut clients: Vec<_> = (0..CLIENTS).map(connect).collect();
    let began = Timestamp::now();
    for (number, client) in clients.iter_mut().enumerate() {
        client.write(format!("GET /{number} HTTP/1.1\r\nHost: a\r\n\r\n").as_bytes());
    }
    let mut passed = Vec::new();
    for (number, client) in clients.iter_mut().enumerate() {
        let response = client.read_response("GET");
        if response.status == 429 {
            continue;
        }
        assert_eq!(response.status, 200, "{}", response.text());
        let limits = response.header("RateLimit").unwrap();
        let (_, rest) = limits.split_once("\"count\";r=").unwrap();
        let left: u64 = rest.split([';', ',']).next().unwrap().parse().unwrap();
        passed.push((left, number));
    }
    // The last decision leaves the fewest tokens.
    passed.sort_unstable_by_key(|(left, _)| std::cmp::Reverse(*left));
    let here = lines(&gateways.logs, CLIENTS);
    let there = lines(&[recorder.log()], passed.len());
    let of = |(_, number): &(u64, usize)| {
        let path = format!("/{number}");
        let wait_ms = here[&path]["wait_ms"].as_f64().unwrap_or_default();
        Passed {
            read: time(&here[&path], began),
            wait: Duration::from_secs_f64(wait_ms / 1_000.0),
            arrived: time(&there[&path], began),
        }
    };
    passed.iter().map(of).collect()
}

/// The given thousandth of these times.
fn quantile(times: &[Duration], permille: usize) -> Duration {
    let mut times = times.to_vec();
    times.sort_unstable();
    times[(times.len() - 1) * permille / 1_000]
}

/// How much later than its turn each request arrives, if the one that is the least late is in time.
fn lateness(passed: &[Passed]) -> Vec<Duration> {
    let own = |(turn, passed): (u32, &Passed)| passed.arrived.saturating_sub(GAP * turn);
    let each: Vec<Duration> = (0..).zip(passed).map(own).collect();
    let least = *each.iter().min().unwrap();
    each.into_iter().map(|late| late.saturating_sub(least)).collect()
}

/// Judges times, of which those of a busy machine are inconclusive.
fn judge(what: &str, waits: &CpuWaits, took: Duration, limit: Duration) {
    if let Some(reason) = waits.judge(took, limit) {
        inconclusive(&format!("{what}: {reason}"));
    }
}

/// 200 requests at once, of which 200 have room.
fn assert_even<const N: usize>(name: &str, redis: &str) {
    let recorder = Recorder::start();
    let gateways = Gateways::<N>::start(&recorder, redis, "2s");
    let _busy = busy_processes(recorder.folder.path());
    let waits = CpuWaits::now();
    let passed = burst(&gateways, &recorder);
    assert_eq!(passed.len(), CLIENTS);
    for (turn, passed) in (0..).zip(&passed) {
        let due = (GAP * turn).saturating_sub(TIMER);
        assert!(passed.arrived >= due, "{turn} is early: {:?} instead of {due:?}", passed.arrived);
    }
    // While the gateway still reads the requests, no turn can be kept.
    let late = lateness(&passed).split_off(CLIENTS / 2);
    let overtaken = passed.windows(2).filter(|pair| pair[1].arrived < pair[0].arrived).count();
    let [half, most] = [500, 990].map(|permille| quantile(&late, permille));
    println!("{name}: late by {half:?} (half), {most:?} (99 %); {overtaken} overtaken");
    judge("half", &waits, half, GAP);
    judge("99 %", &waits, most, GAP * 5);
}

/// 200 requests at once, of which 51 have room, and those whose turn comes while they are decided.
fn assert_bounded<const N: usize>(name: &str, redis: &str) {
    const MAX_DELAY: Duration = Duration::from_millis(500);
    let recorder = Recorder::start();
    let gateways = Gateways::<N>::start(&recorder, redis, "500ms");
    let _busy = busy_processes(recorder.folder.path());
    let waits = CpuWaits::now();
    let passed = burst(&gateways, &recorder);
    let last = passed.iter().map(|passed| passed.arrived).max().unwrap();
    let most = 2 + usize::try_from(last.as_millis() / GAP.as_millis()).unwrap();
    assert!((51..=most).contains(&passed.len()), "{} of {most}", passed.len());
    let longest = passed.iter().map(|passed| passed.wait).max().unwrap();
    assert!(longest <= MAX_DELAY, "{longest:?}");
    let waited = passed.iter().map(|passed| passed.arrived.saturating_sub(passed.read));
    let waited: Vec<Duration> = waited.collect();
    let longest = quantile(&waited, 990);
    println!("{name}: {} passed, after {longest:?} (99 %)", passed.len());
    judge("99 %", &waits, longest, MAX_DELAY + GAP * 5);
}

#[test]
#[ignore = "measures times on busy cores: `make test-long`"]
fn requests_pass_in_turn_on_busy_cores() {
    let redis = Redis::start();
    assert_even::<1>("in memory", "");
    assert_even::<1>("Redis", &redis.table());
    redis.query::<String>(&["FLUSHALL"]);
    assert_even::<2>("two gateways", &redis.table());
}

#[test]
#[ignore = "measures times on busy cores: `make test-long`"]
fn requests_wait_for_at_most_the_maximum_on_busy_cores() {
    let redis = Redis::start();
    assert_bounded::<1>("in memory", "");
    assert_bounded::<1>("Redis", &redis.table());
    redis.query::<String>(&["FLUSHALL"]);
    assert_bounded::<2>("two gateways", &redis.table());
}
