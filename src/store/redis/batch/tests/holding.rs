//! Checks of units that requests hold, in calls to a server that hangs for a while.

use std::time::Duration;

use nix::sys::signal::Signal;

use super::*;
use crate::limit::concurrency::Concurrency;
use crate::store::redis::script;

/// One unit of a limit of `limit`.
fn unit(bucket: u128, limit: u64) -> Charges {
    let limit = Limit::Concurrency(Concurrency::new(limit).unwrap());
    let cost = limit.parts();
    let (bucket, mode) = (BucketId(bucket), Mode::Enforce);
    vec![Charge { bucket, rule: 0, limit_index: 0, limit, cost, mode }]
}

/// Free units that Redis knows of.
fn free(server: &RedisServer, charges: &Charges) -> i64 {
    let mut connection = server.client().get_connection().unwrap();
    let key = script::key("t:", charges[0].bucket, &rules()[0]);
    let mut command = redis::cmd("EVAL");
    command.arg(script::SOURCE).arg(1).arg(key).arg("").arg(script::encode_peek(charges, 0));
    let reply: Vec<i64> = command.query(&mut connection).unwrap();
    script::read_peek(charges, &reply).unwrap()[0].unwrap().level / 1_000
}

/// A statement lacks the units of an unanswered call, so the next call waits for its reply.
#[tokio::test]
async fn bucket_is_in_one_unanswered_call_at_a_time() {
    let server = RedisServer::start(&[]);
    let batcher = batcher(connected(&server).await, 2_000, series());
    let take = |charges: Charges| {
        let batcher = Arc::clone(&batcher);
        tokio::spawn(async move { batcher.take(charges, rules()).await })
    };
    assert!(take(unit(9, 1)).await.unwrap().unwrap().answer.allowed());
    server.signal(Signal::SIGSTOP);
    let first = take(unit(7, 1));
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert!(batcher.held().is_asked(BucketId(7)));
    // After a quarter of the budget, another call starts: with the check of another bucket only.
    let (second, other) = (take(unit(7, 1)), take(unit(8, 1)));
    tokio::time::sleep(Duration::from_millis(700)).await;
    assert!(batcher.held().is_asked(BucketId(8)));
    server.signal(Signal::SIGCONT);
    let first = first.await.unwrap().unwrap();
    let second = second.await.unwrap().unwrap();
    assert!(first.answer.allowed() && !second.answer.allowed());
    assert!(other.await.unwrap().unwrap().answer.allowed());
    assert_eq!(free(&server, &unit(7, 1)), 0);
    drop(first);
    let third = take(unit(7, 1)).await.unwrap().unwrap();
    assert!(third.answer.allowed(), "the check states that the unit is free");
}

/// The slot has moved, and the call is one to the master that had it.
#[tokio::test]
async fn check_that_waits_for_a_call_of_another_master_is_sent_after_it() {
    let server = RedisServer::start(&[]);
    let batcher = batcher(connected(&server).await, 60_000, series());
    let charges = unit(7, 1);
    batcher.held().begin(charges[0].bucket, charges[0].limit, &rules()[0]);
    let waiting = {
        let (batcher, charges) = (Arc::clone(&batcher), charges.clone());
        tokio::spawn(async move { batcher.take(charges, rules()).await })
    };
    while batcher.queue.lock().front().is_none() {
        tokio::task::yield_now().await;
    }
    // The check has been looked at, and waits.
    tokio::time::sleep(Duration::from_millis(20)).await;
    batcher.held().answered(charges[0].bucket, Some(0));
    assert!(waiting.await.unwrap().unwrap().answer.allowed());
}

/// Units that a call without a reply has taken are stated again, and so are those of requests that
/// left.
#[tokio::test]
async fn lost_reply_and_client_that_left_leave_nothing_in_redis() {
    let server = RedisServer::start(&[]);
    let link = connected(&server).await;
    let batcher = batcher(Arc::clone(&link), 50, series());
    let charges = unit(7, 5);
    for round in 0..3 {
        server.signal(Signal::SIGSTOP);
        let lost = batcher.take(charges.clone(), rules()).await;
        assert_eq!(lost.err(), Some(Undecided::Ambiguous), "{round}");
        // A client leaves before the reply.
        let leaves = batcher.take(charges.clone(), rules());
        let _ = tokio::time::timeout(Duration::from_millis(5), leaves).await;
        server.signal(Signal::SIGCONT);
        while link.current().is_none() || !batcher.held().is_empty() {
            one_node(&batcher).state_all(Duration::from_secs(1)).await;
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        assert_eq!(free(&server, &charges), 5, "{round}");
    }
}

#[tokio::test]
async fn adjustment_of_an_operator_frees_units_of_all_gateways() {
    let server = RedisServer::start(&[]);
    let link = connected(&server).await;
    let gateways = [(); 2].map(|()| batcher(Arc::clone(&link), 1_000, series()));
    let charges = unit(7, 5);
    let mut holds = Vec::new();
    for gateway in [0, 0, 1, 1, 1] {
        holds.push(gateways[gateway].take(charges.clone(), rules()).await.unwrap());
    }
    assert!(!gateways[0].take(charges.clone(), rules()).await.unwrap().answer.allowed());
    let moved = gateways[0].adjust(&charges, &rules(), Adjustment::Grant(1)).await.unwrap();
    assert_eq!(moved, [(0, 1_000)]);
    gateways[0].held().adjust(&charges[0], Adjustment::Grant(1));
    let moved = gateways[0].adjust(&charges, &rules(), Adjustment::Reset).await.unwrap();
    assert_eq!(moved, [(1_000, 5_000)]);
    gateways[0].held().adjust(&charges[0], Adjustment::Reset);
    // The other gateway states what its requests hold with its next check.
    assert!(gateways[0].take(charges.clone(), rules()).await.unwrap().answer.allowed());
    let answered = gateways[1].take(charges.clone(), rules()).await.unwrap();
    assert!(answered.answer.allowed());
    assert_eq!(answered.answer.outcomes[0].level, 0);
    drop((holds, answered));
    for gateway in &gateways {
        one_node(gateway).state_all(Duration::from_secs(1)).await;
        assert!(gateway.held().is_empty());
    }
    assert_eq!(free(&server, &charges), 5);
}
