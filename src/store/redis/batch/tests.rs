mod hang;
mod holding;
mod unreadable;

use std::path::PathBuf;
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;

use super::*;
use crate::limit::Limit;
use crate::limit::adjust::Adjustment;
use crate::limit::breaker::Settings;
use crate::limit::charge::{BucketId, Charge, Mode};
use crate::limit::share::Share;
use crate::observe::metrics::Metrics;
use crate::policy::OnFailure;
use crate::policy::redis::{Address, Colocate, Login, Ready, Redis, StartWithout};
use crate::store::limiter::{Limiter, Source};
use crate::store::memory::MemoryStore;
use crate::store::redis::batch::adjust::NotAdjusted;
use crate::store::redis::fixture::{self, RedisServer, Timer};
use crate::store::rule::rule;

/// A breaker that closes at once: a probe may be late while other tests run.
fn quick() -> Settings {
    let (open_us, ramp_step_us) = (1_000, 1);
    Settings { open_us, open_max_us: 5_000, ramp: vec![100], ramp_step_us, ..Settings::default() }
}

/// A link to the server, connected until the runtime of the test ends.
pub(super) async fn connected(server: &RedisServer) -> Arc<Link> {
    fixture::connected(&settings(server.socket())).await
}

fn settings(socket: PathBuf) -> Redis {
    Redis {
        address: Address::Socket(socket),
        tls: None,
        login: Login::default(),
        database: 0,
        timeout: Duration::from_millis(10),
        on_failure: OnFailure::Local,
        prefix: "t:".to_string(),
        ready: Ready::default(),
        lanes: None,
        colocate: Colocate::Off,
        repair: true,
        start_without: StartWithout::default(),
        breaker: quick(),
    }
}

/// The one server that is reached through `batcher`.
pub(super) fn one_node(batcher: &Arc<Batcher>) -> Arc<Nodes> {
    let series = Metrics::new("test").unwrap().redis();
    Nodes::over(&settings(PathBuf::new()), Arc::clone(batcher), series)
}

pub(super) fn series() -> CallSeries {
    Metrics::new("test").unwrap().redis().calls
}

pub(super) fn rules() -> Arc<[StoredRule]> {
    [rule()].into()
}

/// One token of a bucket of `burst` that refills in days.
pub(super) fn charges(bucket: u128, burst: u64) -> Charges {
    let limit = Limit::token_bucket(1, 86_400_000_000, burst).unwrap();
    let bucket = BucketId(bucket);
    [Charge { bucket, rule: 0, limit_index: 0, limit, cost: 1, mode: Mode::Enforce }]
        .into_iter()
        .collect()
}

pub(super) fn batcher(link: Arc<Link>, budget_ms: u64, series: CallSeries) -> Arc<Batcher> {
    let (debts, held) = (Arc::new(Debts::new(1_000)), Arc::new(Held::new(true)));
    let target = Target::server(link, "t:", debts, held);
    Batcher::new(target, Duration::from_millis(budget_ms), series)
}

/// Sends `count` checks concurrently. Returns their results.
async fn at_once(
    batcher: &Arc<Batcher>,
    count: usize,
    charges: impl Fn(usize) -> Charges,
) -> Vec<Result<Answered, Undecided>> {
    let mut tasks = Vec::new();
    for number in 0..count {
        let (batcher, charges) = (Arc::clone(batcher), charges(number));
        tasks.push(tokio::spawn(async move { batcher.take(charges, rules()).await }));
    }
    let mut answers = Vec::new();
    for task in tasks {
        answers.push(task.await.unwrap());
    }
    answers
}

fn passed(answers: &[Result<Answered, Undecided>]) -> usize {
    answers.iter().flatten().filter(|answered| answered.answer.allowed()).count()
}

#[tokio::test]
async fn concurrent_checks_share_a_call_and_get_their_own_answers() {
    let server = RedisServer::start(&[]);
    let series = series();
    let batcher = batcher(connected(&server).await, 5_000, series.clone());
    let answers = at_once(&batcher, 400, |_| charges(1, 100)).await;
    assert_eq!(passed(&answers), 100);
    let mut levels: Vec<i64> = answers
        .iter()
        .flatten()
        .filter(|answered| answered.answer.allowed())
        .map(|answered| answered.answer.outcomes[0].level / 86_400_000_000)
        .collect();
    levels.sort_unstable();
    assert_eq!(levels, (0..100).collect::<Vec<i64>>(), "each check has the level after it");
    assert!(series.checks.get_sample_count() < 40, "{} calls", series.checks.get_sample_count());
    assert_eq!(series.calls.with_label_values(&["ok"]).get(), series.checks.get_sample_count());
}

/// More buckets than a call can have.
#[tokio::test]
async fn tokens_of_many_buckets_are_given_back_over_several_calls() {
    let server = RedisServer::start(&[]);
    let batcher = batcher(connected(&server).await, 20_000, series());
    let of = |number| charges(number as u128, 1);
    let answers = at_once(&batcher, 3_000, of).await;
    assert_eq!(passed(&answers), 3_000);
    let (done, mut all_done) = tokio::sync::mpsc::channel(3_000);
    for (number, answered) in answers.iter().flatten().enumerate() {
        let (taken_at, done) = (answered.decided_at, Some(done.clone()));
        batcher.give_back(0, of(number), &rules(), taken_at, done);
    }
    drop(done);
    let mut given = 0;
    while let Some((_, one)) = all_done.recv().await {
        assert!(one.units > 0);
        given += 1;
    }
    assert_eq!(given, 3_000);
    assert_eq!(passed(&at_once(&batcher, 3_000, of).await), 3_000);
}

#[tokio::test]
async fn check_is_sent_at_once_if_no_call_is_in_flight() {
    let server = RedisServer::start(&[]);
    let series = series();
    let batcher = batcher(connected(&server).await, 5_000, series.clone());
    for _ in 0..10 {
        assert!(batcher.take(charges(1, 100), rules()).await.is_ok());
    }
    assert_eq!(series.checks.get_sample_count(), 10);
}

#[tokio::test]
async fn check_with_more_charges_than_a_call_can_hold_is_never_sent() {
    let server = RedisServer::start(&[]);
    let series = series();
    let batcher = batcher(connected(&server).await, 5_000, series.clone());
    for charge_count in [256, 2_000] {
        let many: Charges = (0..charge_count).flat_map(|bucket| charges(bucket, 5)).collect();
        assert_eq!(batcher.take(many, rules()).await.err(), Some(Undecided::NotTaken));
        assert_eq!(series.checks.get_sample_count(), 0, "{charge_count} charges were sent");
        assert!(batcher.link().admits(), "the breaker opened at {charge_count} charges");
    }
    let most: Charges = (0..255).flat_map(|bucket| charges(bucket, 5)).collect();
    let answered = batcher.take(most, rules()).await.unwrap();
    assert!(answered.answer.allowed());
    assert_eq!(answered.answer.outcomes.len(), 255);
}

#[tokio::test]
async fn row_20_late_reply_answers_no_other_check() {
    let server = RedisServer::start(&["--enable-debug-command", "yes"]);
    let link = connected(&server).await;
    let patient = batcher(Arc::clone(&link), 5_000, series());
    assert!(patient.take(charges(1, 1_000), rules()).await.is_ok());
    let impatient = batcher(Arc::clone(&link), 50, series());
    let mut sleeper = server.client().get_connection().unwrap();
    let sleep = std::thread::spawn(move || {
        redis::cmd("DEBUG").arg("SLEEP").arg("0.5").query::<()>(&mut sleeper).unwrap();
    });
    // While Redis sleeps, checks of another bucket time out; their answers arrive later. Few enough
    // that the connection is not replaced: a new one could not confuse answers.
    let mut late = 0;
    while late < 3 {
        late += usize::from(impatient.take(charges(2, 7), rules()).await.is_err());
    }
    sleep.join().unwrap();
    assert_eq!(link.connections(), 1);
    for number in 0..50 {
        let answered = patient.take(charges(1, 1_000), rules()).await.unwrap();
        let left = answered.answer.outcomes[0].level / 86_400_000_000;
        assert_eq!(left, 998 - number, "the answer of another bucket");
    }
}

#[tokio::test]
async fn no_check_in_a_call_waits_longer_than_the_budget() {
    let server = RedisServer::start(&["--enable-debug-command", "yes"]);
    let batcher = batcher(connected(&server).await, 20, series());
    // A busy machine may take longer than this budget.
    while batcher.take(charges(1, 1_000), rules()).await.is_err() {
        // Without a connection, a check ends without a wait. The link needs the thread to connect.
        tokio::task::yield_now().await;
    }
    let mut sleeper = server.client().get_connection().unwrap();
    let sleep = std::thread::spawn(move || {
        redis::cmd("DEBUG").arg("SLEEP").arg("1").query::<()>(&mut sleeper).unwrap();
    });
    let mut undecided = 0;
    while !sleep.is_finished() {
        let timer = Timer::start();
        let answers = at_once(&batcher, 200, |number| charges(number as u128, 9)).await;
        undecided += answers.iter().filter(|answer| answer.is_err()).count();
        timer.assert_below(Duration::from_millis(500));
    }
    assert!(undecided >= 200, "{undecided}");
}

/// More checks than calls in flight can carry.
#[tokio::test]
async fn no_queued_check_waits_longer_than_the_budget() {
    let server = RedisServer::start(&[]);
    let batcher = batcher(connected(&server).await, 1_000, series());
    assert!(batcher.take(charges(1, 1_000), rules()).await.is_ok());
    server.signal(Signal::SIGSTOP);
    let mut tasks = Vec::new();
    let all = Timer::start();
    for number in 0..4_000 {
        let batcher = Arc::clone(&batcher);
        let timer = all.restarted();
        tasks.push(tokio::spawn(async move {
            let undecided = batcher.take(charges(number, 9), rules()).await.is_err();
            timer.assert_below(Duration::from_millis(1_500));
            undecided
        }));
        if number % 100 == 99 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }
    for task in tasks {
        assert!(task.await.unwrap());
    }
}

/// Lets the server run calls for an hour longer, by what is known of its clock until the next
/// reply.
fn run_late(link: &Link) {
    let now = clock::now();
    link.clock().here(clock::unix_us() + 3_600 * MICROS_PER_SECOND, now..now);
}

/// Whether Redis runs the call late, or refuses it.
#[tokio::test]
async fn debt_is_settled_once_if_the_reply_is_late() {
    for runs_late in [false, true] {
        let server = RedisServer::start(&[]);
        let link = connected(&server).await;
        let series = series();
        let batcher = batcher(Arc::clone(&link), 200, series.clone());
        let charge = charges(1, 1_000);
        assert!(batcher.take(charge.clone(), rules()).await.is_ok());
        let units = charge[0].limit.units(100);
        batcher.debts.add(&charge[0], &rule(), units, Share::WHOLE, clock::now());
        server.signal(Signal::SIGSTOP);
        if runs_late {
            run_late(&link);
        }
        // Only one: a connection without a reply for a second would be replaced.
        assert!(batcher.take(charge.clone(), rules()).await.is_err());
        server.signal(Signal::SIGCONT);
        let settled = || series.settled.with_label_values(&["r"]).get();
        let mut answered = batcher.take(charge.clone(), rules()).await;
        while answered.is_err() || settled() < 100.0 {
            assert_eq!(link.connections(), 1, "too few timeouts for another connection");
            tokio::task::yield_now().await;
            answered = batcher.take(charge.clone(), rules()).await;
        }
        assert!((99.9..100.1).contains(&settled()), "{}", settled());
        let level = answered.unwrap().answer.outcomes[0].level / 86_400_000_000;
        assert!((880..900).contains(&level), "{level}, {runs_late}");
    }
}

#[tokio::test]
async fn debt_is_settled_once_if_a_grant_is_late() {
    for runs_late in [false, true] {
        let server = RedisServer::start(&[]);
        let link = connected(&server).await;
        let batcher = batcher(Arc::clone(&link), 200, series());
        let charge = charges(1, 1_000);
        let units = charge[0].limit.units(100);
        batcher.debts.add(&charge[0], &rule(), units, Share::WHOLE, clock::now());
        server.signal(Signal::SIGSTOP);
        if runs_late {
            run_late(&link);
        }
        let granted = batcher.adjust(&charge, &rules(), Adjustment::Grant(1)).await;
        assert_eq!(granted, Err(NotAdjusted::Unknown));
        server.signal(Signal::SIGCONT);
        let (mut level, mut checks_after) = (1_000, 0);
        // Some more: debts that were put back would be settled once more.
        while level >= 900 || checks_after < 10 {
            if let Ok(answered) = batcher.take(charge.clone(), rules()).await {
                level = answered.answer.outcomes[0].level / 86_400_000_000;
                checks_after += usize::from(level < 900);
            }
            tokio::task::yield_now().await;
        }
        assert_eq!(link.connections(), 1, "a new connection would not have the grant");
        assert!(level >= 850, "{level}, {runs_late}");
        let settled = batcher.series.settled.with_label_values(&["r"]).get();
        assert_eq!(settled > 99.0, !runs_late, "a grant that is late counts nothing");
    }
}

#[tokio::test]
async fn checks_beyond_the_queue_bound_are_rejected_at_once() {
    let server = RedisServer::start(&["--enable-debug-command", "yes"]);
    let batcher = batcher(connected(&server).await, 20_000, series());
    let answers = at_once(&batcher, 9_000, |number| charges(number as u128, 9)).await;
    // All checks that were accepted are decided.
    assert!(answers.iter().flatten().all(|answered| answered.answer.allowed()));
    assert!(answers.iter().flatten().count() >= MAX_WAITING);
}

#[tokio::test]
async fn check_without_a_connection_does_not_wait() {
    let batcher = batcher(Arc::new(Link::default()), 1_000, series());
    assert_eq!(batcher.take(charges(1, 1), rules()).await.err(), Some(Undecided::NotTaken));
}

/// An exhausted client costs Redis one call per second, however many requests it sends.
#[tokio::test]
async fn exhausted_client_costs_one_call_per_second() {
    // With one rule, and with further rules that are far from exhausted.
    for rules in [&[5][..], &[100_000, 5, 50_000]] {
        let charges: Charges =
            (1..).zip(rules).map(|(bucket, burst)| charges(bucket, *burst)[0]).collect();
        costs_one_call_a_second(&charges).await;
    }
}

/// Five requests are allowed; then Redis gets one call per second.
async fn costs_one_call_a_second(charges: &Charges) {
    let server = RedisServer::start(&[]);
    let series = series();
    let batcher = batcher(connected(&server).await, 5_000, series.clone());
    let limits: Vec<Limit> = charges.iter().map(|charge| charge.limit).collect();
    let memory = Arc::new(MemoryStore::new(1_000, &limits));
    let limiter = Limiter::shared(memory, one_node(&batcher), None);
    let mut sources = [0_u64; Source::COUNT];
    #[allow(clippy::disallowed_methods, reason = "measures how long it takes")]
    let started = Instant::now();
    for number in 0..100_000 {
        let taken = limiter.take(charges.clone(), &rules(), clock::now()).await.0;
        assert_eq!(taken.answer.allowed(), number < 5);
        sources[taken.source as usize] += 1;
    }
    let calls = series.checks.get_sample_count();
    assert!(calls <= 6 + started.elapsed().as_secs(), "{calls} calls");
    assert_eq!(sources[Source::Local as usize], 0);
    assert_eq!(sources[Source::Redis as usize], calls);
}
