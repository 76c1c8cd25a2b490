use super::*;
use crate::limit::Limit;
use crate::limit::calendar::{Calendar, Period};
use crate::limit::charge::{BucketId, Mode};
use crate::limit::fixed_window::FixedWindow;
use crate::store::memory::MemoryStore;
use crate::store::redis::fixture::{RedisServer, connected};
use crate::store::redis::nodes::fixture::cluster;
use crate::store::rule::rule;
use crate::usage::record::{Owner, Record};

const BUCKETS: u128 = 600;

fn limit() -> Limit {
    let calendar = Calendar::new(Period::Year, "UTC", 1).unwrap();
    Limit::FixedWindow(FixedWindow::new(50, calendar).unwrap())
}

fn unread(bucket: u128, unix_us: u64) -> UnreadRecord {
    let (limit, bucket) = (limit(), BucketId(bucket));
    let bounds = limit.usage_period(unix_us).unwrap();
    let record = Record {
        place: Place { end_us: bounds.end_us, bucket },
        start_us: bounds.start_us,
        rule: "r".into(),
        owner: Owner { kind: "key", id: String::new() },
        plan: "free".into(),
        limit,
        used: 0,
        counted_at_us: unix_us,
    };
    let charge = Charge { bucket, rule: 0, limit_index: 0, limit, cost: 1, mode: Mode::Enforce };
    let (is_read_again, is_changed, has_lapsed) = (true, true, false);
    UnreadRecord { record, charge, rule: rule(), is_read_again, is_changed, has_lapsed }
}

/// A ledger with many buckets that have to be read, and the time by the clock of this server.
fn ledger(server: &RedisServer) -> (Ledger, u64) {
    let mut connection = server.client().get_connection().unwrap();
    let (second, us): (u64, u64) = redis::cmd("TIME").query(&mut connection).unwrap();
    let now = second * MICROS_PER_SECOND + us;
    let ledger = Ledger::shared();
    let all = (0..BUCKETS).map(|bucket| unread(bucket, now));
    ledger.put_back_unread(all.map(|one| (one.record.place, one)).collect());
    (ledger, now)
}

/// Asserts that the buckets of the master with the even slots are read, and no others.
fn assert_read(nodes: &Nodes, found: &Found, ledger: &Ledger) {
    let is_even = |bucket: BucketId| {
        let slots = nodes.by_slot(vec![(bucket, rule())], |(bucket, rule)| (*bucket, rule));
        slots.into_keys().all(|slot| slot % 2 == 0)
    };
    let left = ledger.take_unread();
    assert!(found.changes.keys().all(|place| is_even(place.bucket)));
    assert!(left.keys().all(|place| !is_even(place.bucket)));
    assert_eq!(found.changes.len() + left.len(), 600);
    assert!(left.len() > 200 && found.changes.len() > 200, "{}", left.len());
    assert_eq!(found.dropped, 0);
}

#[tokio::test]
async fn master_that_is_away_keeps_no_bucket_of_another_from_being_read() {
    let server = RedisServer::start(&[]);
    let nodes = cluster(&server.settings(), [connected(&server.settings()).await, Arc::default()]);
    let memory = Arc::new(MemoryStore::new(1_000, &[limit()]));
    let limiter = Limiter::shared(memory, Arc::clone(&nodes), None);
    let (ledger, now) = ledger(&server);
    let found = read(&ledger, &limiter, now, || 0).await;
    assert_read(&nodes, &found, &ledger);
}

/// What it has waits for the next write.
#[tokio::test]
async fn master_that_refuses_a_call_is_not_called_again_and_keeps_no_other_from_being_read() {
    let (server, other) = (RedisServer::start(&[]), RedisServer::start(&[]));
    let links = [connected(&server.settings()).await, connected(&other.settings()).await];
    let nodes = cluster(&server.settings(), links);
    let memory = Arc::new(MemoryStore::new(1_000, &[limit()]));
    let limiter = Limiter::shared(memory, Arc::clone(&nodes), None);
    let mut connection = other.client().get_connection().unwrap();
    let refuse = ["SETUSER", "default", "-evalsha", "-eval"];
    redis::cmd("ACL").arg(&refuse).exec(&mut connection).unwrap();
    let (ledger, now) = ledger(&server);
    let found = read(&ledger, &limiter, now, || 0).await;
    assert_read(&nodes, &found, &ledger);
    let refused = other.evalsha("rejected_calls");
    assert!((1..=SLOTS_AT_ONCE).contains(&refused), "{refused}");
}

/// Debts that have lapsed are in the record of the period; what else has changed was never read.
#[test]
fn records_that_were_not_read_in_time_are_counted_unless_lapsed_debts_were_all() {
    let now = 1_800_000_000_000_000;
    // (changed, lapsed) -> may lack something
    let table = [((false, false), 1), ((false, true), 0), ((true, false), 1), ((true, true), 1)];
    for ((is_changed, has_lapsed), lacking) in table {
        let one = UnreadRecord { is_changed, has_lapsed, ..unread(1, now) };
        let end_us = one.record.place.end_us;
        let mut all: Unread = [(one.record.place, one)].into_iter().collect();
        assert_eq!((remove_ended(&mut all, end_us + LATE_US - 1), all.len()), (0, 1));
        let removed = remove_ended(&mut all, end_us + LATE_US);
        assert_eq!((removed, all.len()), (lacking, 0), "{is_changed} {has_lapsed}");
    }
}

#[test]
fn lapsed_debt_is_added_to_the_record_of_its_period() {
    let one = unread(1, 1_800_000_000_000_000);
    let Place { end_us, bucket } = one.record.place;
    let mut all: Unread = [(one.record.place, one)].into_iter().collect();
    let lapsed = |bucket| LapsedDebt { bucket, limit: limit(), units: 7, ended_us: end_us };
    let mut found = Found::default();
    found.add_lapsed(vec![lapsed(bucket), lapsed(BucketId(2))], &mut all, || 9);
    assert_eq!((found.grants.len(), found.grants[0].units, found.dropped), (1, 7, 1));
    assert!(all.values().all(|one| one.has_lapsed));
}
