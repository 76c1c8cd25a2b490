//! A server that hangs for a while. Afterwards it must not run what it was sent before.

use super::*;
use crate::limit::lease::Request;

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

/// A batcher that has had a reply, so that it knows the clock of the server.
async fn informed(link: &Arc<Link>, budget_ms: u64, series: CallSeries) -> Arc<Batcher> {
    let batcher = batcher(Arc::clone(link), budget_ms, series);
    while batcher.take(charges(2, 1_000), rules()).await.is_err() {
        tokio::task::yield_now().await;
    }
    batcher
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
        server.signal(Signal::SIGCONT);
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

/// By a clock that was known wrongly, each call is too late.
#[tokio::test]
async fn check_is_sent_again_after_a_step_of_the_clock_of_the_server() {
    let server = RedisServer::start(&[]);
    let link = connected(&server).await;
    for step_us in [-5_000_000, 5_000_000] {
        let series = series();
        let batcher = informed(&link, 5_000, series.clone()).await;
        let before = tokens_left(&batcher, &charges(1, 1_000)).await;
        let now = clock::now();
        batcher.clock().here(clock::unix_us().saturating_add_signed(step_us), now..now);
        let answered = batcher.take(charges(1, 1_000), rules()).await.unwrap();
        assert!(answered.answer.allowed());
        assert_eq!(tokens_left(&batcher, &charges(1, 1_000)).await, before - 1);
        assert_eq!(series.calls.with_label_values(&["ok"]).get(), 2, "one is of the preparation");
        let there = batcher.clock().there(clock::now()).unwrap();
        assert!(there.abs_diff(clock::unix_us()) < 1_000_000, "corrected by the reply");
    }
}
