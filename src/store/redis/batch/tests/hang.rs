//! A server that hangs for a while. Afterwards it must not run what it was sent before.

use super::*;
use crate::limit::lease::Request;
use crate::store::limiter::{Allowed, Taken};

const DAY_US: i64 = 86_400_000_000;

/// Tokens that are left of the bucket, once the server answers again.
async fn tokens_left(batcher: &Arc<Batcher>, charge: &Charges) -> i64 {
    loop {
        let left = batcher.peek(charge, &rules(), Duration::from_secs(5)).await;
        if let Ok([Some(reading)]) = left.as_deref() {
            return reading.level.div_euclid(DAY_US);
        }
        tokio::task::yield_now().await;
    }
}

/// A batcher that has had a reply.
async fn informed(link: &Arc<Link>, budget_ms: u64, series: CallSeries) -> Arc<Batcher> {
    let batcher = batcher(Arc::clone(link), budget_ms, series);
    while batcher.take(charges(2, 1_000), rules()).await.is_err() {
        tokio::task::yield_now().await;
    }
    batcher
}

/// Ends the hang when the time of all calls is over, of which each check has waited for
/// `budget_ms`: a busy machine may have sent the last one some time after its check began to wait.
async fn go_on(server: &RedisServer, budget_ms: u64) {
    tokio::time::sleep(Duration::from_millis(budget_ms)).await;
    server.signal(Signal::SIGCONT);
}

/// Too few timeouts for another connection, and enough for one: the server reads the requests of a
/// connection that was closed.
#[tokio::test]
async fn row_02_checks_that_timed_out_take_no_tokens_after_the_hang() {
    for timeouts in [3, 6] {
        let server = RedisServer::start(&[]);
        let link = connected(&server).await;
        let batcher = informed(&link, 100, series()).await;
        let charge = charges(1, 1_000);
        server.signal(Signal::SIGSTOP);
        for _ in 0..timeouts {
            let undecided = batcher.take(charge.clone(), rules()).await.err();
            assert!(undecided.is_some(), "the server hangs");
        }
        go_on(&server, 100).await;
        assert_eq!(tokens_left(&batcher, &charge).await, 1_000);
        let mut watching = server.client().get_connection().unwrap();
        let mut closed = || {
            let clients: String = redis::cmd("CLIENT").arg("LIST").query(&mut watching).unwrap();
            clients.lines().count() <= 2
        };
        while !closed() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        assert_eq!(tokens_left(&batcher, &charge).await, 1_000, "{timeouts} timeouts");
    }
}

#[tokio::test]
async fn grant_that_timed_out_is_not_made_after_the_hang() {
    let server = RedisServer::start(&[]);
    let batcher = informed(&connected(&server).await, 1_000, series()).await;
    let charge = charges(2, 1_000);
    let before = tokens_left(&batcher, &charge).await;
    server.signal(Signal::SIGSTOP);
    let granted = batcher.adjust(&charge, &rules(), Adjustment::Grant(1)).await;
    assert_eq!(granted, Err(NotAdjusted::Unknown));
    server.signal(Signal::SIGCONT);
    assert_eq!(tokens_left(&batcher, &charge).await, before);
}

#[tokio::test]
async fn lease_that_timed_out_is_not_lent_after_the_hang() {
    let server = RedisServer::start(&[]);
    let batcher = informed(&connected(&server).await, 1_000, series()).await;
    let charge = charges(1, 1_000);
    let request = Request { wanted: 100 * DAY_US, least: DAY_US, ..Request::default() };
    server.signal(Signal::SIGSTOP);
    assert_eq!(batcher.borrow(&charge[0], &rule(), &request, 4).await, None);
    server.signal(Signal::SIGCONT);
    assert_eq!(tokens_left(&batcher, &charge).await, 1_000);
    let lent = batcher.borrow(&charge[0], &rule(), &request, 4).await.unwrap();
    assert_eq!(lent.units, 100 * DAY_US);
}

#[tokio::test]
async fn tokens_that_a_call_of_the_hang_gives_back_are_given_back_after_it() {
    let server = RedisServer::start(&[]);
    let batcher = informed(&connected(&server).await, 200, series()).await;
    let charge = charges(1, 1_000);
    let taken = batcher.take(charge.clone(), rules()).await.unwrap();
    assert_eq!(tokens_left(&batcher, &charge).await, 999);
    server.signal(Signal::SIGSTOP);
    let (done, mut given) = tokio::sync::mpsc::channel(1);
    batcher.give_back(0, charge.clone(), &rules(), taken.decided_at, Some(done));
    assert!(batcher.take(charge.clone(), rules()).await.is_err(), "after it");
    go_on(&server, 200).await;
    // Less what the bucket has refilled since.
    let units = given.recv().await.unwrap().1.units;
    assert!((DAY_US - 60_000_000..=DAY_US).contains(&units), "{units}");
    assert_eq!(tokens_left(&batcher, &charge).await, 1_000);
}

/// After a step forward, what is known of the clock is behind: calls seem to be too late, and the
/// first one is made again. After a step back, the first reply shows it.
#[tokio::test]
async fn check_is_decided_after_a_step_of_the_clock_of_the_server() {
    for (step_us, expected) in [(-5_000_000, 2), (5_000_000, 1)] {
        let server = RedisServer::start(&[]);
        let series = series();
        let batcher = informed(&connected(&server).await, 5_000, series.clone()).await;
        let clock = batcher.link.clock();
        let calls_before = server.evalsha("calls");
        let now = clock::now();
        clock.here(clock::unix_us().saturating_add_signed(step_us), now..now);
        let answered = batcher.take(charges(1, 1_000), rules()).await.unwrap();
        assert!(answered.answer.allowed());
        assert_eq!(server.evalsha("calls") - calls_before, expected, "{step_us}");
        assert_eq!(tokens_left(&batcher, &charges(1, 1_000)).await, 999);
        assert_eq!(series.calls.with_label_values(&["ok"]).get(), 2, "one is of the preparation");
        let there = clock.there(clock::now()).unwrap();
        assert!(there.abs_diff(clock::unix_us()) < 1_000_000, "corrected by the reply");
    }
}

/// A limiter over a server that has replied, and hangs from then on. Time is that of the timers.
struct Hung {
    limiter: Limiter,
    charge: Charges,
    /// A decision of the server.
    taken: Taken,
    /// The time that a check has, and a moment.
    longest: Duration,
    began: tokio::time::Instant,
    _server: RedisServer,
}

impl Hung {
    async fn start() -> Self {
        let server = RedisServer::start(&[]);
        let batcher = informed(&connected(&server).await, 1_000, series()).await;
        let (nodes, charge) = (one_node(&batcher), charges(1, 1_000));
        let memory = Arc::new(MemoryStore::new(1_000, &[charge[0].limit]));
        let limiter = Limiter::shared(memory, Arc::clone(&nodes), Some(1));
        let taken = loop {
            let (taken, _holds) = limiter.take(charge.clone(), &rules(), clock::now()).await;
            let peeked = limiter.peek_in_time(&charge, &rules(), clock::now()).await;
            // The time of a check may be too short on a busy machine.
            if (taken.source, peeked.source) == (Source::Redis, Source::Redis) {
                break taken;
            }
            tokio::task::yield_now().await;
        };
        server.signal(Signal::SIGSTOP);
        tokio::time::pause();
        let longest = nodes.budget() + Duration::from_millis(10);
        let began = tokio::time::Instant::now();
        Self { limiter, charge, taken, longest, began, _server: server }
    }
}

/// A request waits for it, and others for its turn.
#[tokio::test]
async fn row_02_peek_of_a_request_takes_no_longer_than_a_check() {
    let hung = Hung::start().await;
    let taken = hung.limiter.peek_in_time(&hung.charge, &rules(), clock::now()).await;
    assert_eq!((taken.source, taken.answer.allowed()), (Source::Local, true));
    let took = hung.began.elapsed();
    assert!(took <= hung.longest, "{took:?}");
}

/// The response of a request that has failed waits for it.
#[tokio::test]
async fn row_02_refund_of_a_request_takes_no_longer_than_a_check() {
    let hung = Hung::start().await;
    let (limiter, taken, checked_at) = (&hung.limiter, &hung.taken, clock::now());
    let allowed = Allowed { taken, rules: &rules(), checked_at };
    let mut refund = limiter.refund(allowed, |_| u64::MAX, checked_at);
    limiter.refunded_in_time(&mut refund, taken).await;
    assert_eq!((refund.levels.as_slice(), refund.lost.as_slice()), (&[][..], &[0][..]));
    let took = hung.began.elapsed();
    assert!(took <= hung.longest, "{took:?}");
}
