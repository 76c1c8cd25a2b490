//! Settlement at the end of the process, with a real server.

use std::sync::Arc;

use nix::sys::signal::Signal;

use super::super::tests::{batcher, charges, connected, one_node, rules, series};
use super::*;
use crate::limit::charge::BucketId;
use crate::limit::share::Share;
use crate::store::redis::fixture::RedisServer;
use crate::store::redis::script::key;
use crate::store::rule::rule;

/// A debt of `tokens` to the bucket.
fn add_debt(batcher: &Batcher, bucket: u128, tokens: u64) {
    let charge = charges(bucket, 100)[0];
    batcher.debts.add(&charge, &rule(), charge.limit.units(tokens), Share::WHOLE, clock::now());
}

#[tokio::test]
async fn settlement_of_many_debts_uses_several_calls() {
    let server = RedisServer::start(&[]);
    let series = series();
    let batcher = batcher(connected(&server).await, 5_000, series.clone());
    (0..300).for_each(|bucket| add_debt(&batcher, bucket, 7));
    let settlement = one_node(&batcher).settle_all(Duration::from_secs(60)).await;
    assert_eq!((settlement.settled.buckets, settlement.settled.whole_tokens()), (300, 2_100));
    assert_eq!((settlement.lost, settlement.why), (Sum::default(), None));
    assert!(batcher.debts.is_empty());
    assert!((2_099.0..=2_100.0).contains(&series.settled.with_label_values(&["r"]).get()));
    let answered = batcher.take(charges(299, 100), rules()).await.unwrap();
    let left = answered.answer.outcomes[0].level / charges(299, 100)[0].limit.units(1);
    assert_eq!(left, 92, "100 less the debt and the request");
}

#[tokio::test]
async fn only_the_debt_to_a_key_of_another_type_is_lost() {
    let server = RedisServer::start(&[]);
    let batcher = batcher(connected(&server).await, 5_000, series());
    (0..3).for_each(|bucket| add_debt(&batcher, bucket, 7));
    let mut connection = server.client().get_connection().unwrap();
    let taken = key("t:", BucketId(1), &rule());
    redis::cmd("RPUSH").arg(&taken).arg("x").exec(&mut connection).unwrap();
    let settlement = one_node(&batcher).settle_all(Duration::from_secs(60)).await;
    assert_eq!((settlement.settled.buckets, settlement.lost.buckets), (2, 1));
    assert_eq!(settlement.why.unwrap(), "a key holds another type of value than a bucket");
}

/// Redis may settle the debt later: once, since it is not sent again.
#[tokio::test]
async fn unanswered_settlement_is_not_repeated() {
    let server = RedisServer::start(&[]);
    let link = connected(&server).await;
    let batcher = batcher(link, 5_000, series());
    assert!(batcher.take(charges(1, 100), rules()).await.is_ok());
    add_debt(&batcher, 1, 7);
    server.signal(Signal::SIGSTOP);
    let settlement = one_node(&batcher).settle_all(Duration::from_millis(200)).await;
    assert_eq!((settlement.settled.buckets, settlement.lost.buckets), (0, 1));
    assert_eq!(settlement.why.unwrap(), "Redis does not answer");
    assert!(batcher.debts.is_empty());
    server.signal(Signal::SIGCONT);
    let mut answered = batcher.take(charges(1, 100), rules()).await;
    while answered.is_err() {
        tokio::task::yield_now().await;
        answered = batcher.take(charges(1, 100), rules()).await;
    }
    let level = answered.unwrap().answer.outcomes[0].level;
    let left = level / charges(1, 100)[0].limit.units(1);
    assert!((80..=91).contains(&left), "{left}: the debt once, and some requests");
}

#[tokio::test]
async fn debts_are_kept_if_redis_is_unavailable() {
    let batcher = batcher(Arc::default(), 1_000, series());
    add_debt(&batcher, 1, 7);
    let settlement = one_node(&batcher).settle_all(Duration::from_millis(10)).await;
    assert_eq!(settlement.why.unwrap(), "Redis is unavailable");
    assert_eq!((Sum::of(&batcher.debts).whole_tokens(), batcher.debts.len()), (7, 1));
}

#[tokio::test]
async fn debt_in_a_call_that_timed_out_is_settled_once() {
    let server = RedisServer::start(&[]);
    let batcher = batcher(connected(&server).await, 50, series());
    let nodes = one_node(&batcher);
    while batcher.take(charges(1, 100), rules()).await.is_err() {}
    add_debt(&batcher, 1, 7);
    server.signal(Signal::SIGSTOP);
    assert!(batcher.take(charges(1, 100), rules()).await.is_err(), "the server hangs");
    assert!(batcher.debts.is_empty() && nodes.has_debts());
    assert_eq!((nodes.unsettled().buckets, nodes.unsettled().whole_tokens()), (1, 7));
    let settlement = nodes.settle_all(Duration::from_millis(10)).await;
    assert_eq!(settlement.why.unwrap(), "Redis does not answer");
    assert_eq!(nodes.unsettled().buckets, 1);
    server.signal(Signal::SIGCONT);
    let settlement = nodes.settle_all(Duration::from_secs(60)).await;
    assert_eq!((settlement.why, nodes.has_debts()), (None, false));
    let level = batcher.peek(&charges(1, 100), &rules(), Duration::from_secs(60)).await;
    let level = level.unwrap()[0].unwrap().level / charges(1, 100)[0].limit.units(1);
    assert!((80..=92).contains(&level), "{level}: the debt once, and some requests");
}
