//! Debts of periods that have ended are taken from top-ups.

use std::cell::Cell;

use proptest::test_runner::{Config, TestRunner};

use super::top_ups::Server;
use super::*;
use crate::limit::top_up::{TopUp, TopUpChange};
use crate::store::lapsed::{LapsedDebt, QueuedDebt};

/// The beginning of a period of a second.
const START: u64 = 1_800_000_000_000_000;

/// A second.
const PERIOD: u64 = 1_000_000;

impl Server<'_> {
    /// Takes what a gateway granted in the period that ended at `ended_us`. Returns how much was
    /// taken from the top-ups.
    fn settle_lapsed(&mut self, units: i64, ended_us: u64, number: u64) -> i64 {
        let Charge { bucket, limit, .. } = self.charge;
        let debt = LapsedDebt { bucket, limit, units, ended_us };
        let debts = [QueuedDebt { debt, rule: rules()[0].clone(), number, sent_at: None }];
        let mut script = invocation();
        script.key(&self.key).arg(self.now).arg(script::encode_lapsed(&debts, self.now));
        let reply: Vec<i64> = script.invoke(self.connection).unwrap();
        script::read_lapsed(1, &reply).unwrap()[0]
    }

    /// Requests of these costs, each after microseconds.
    fn take_each(&mut self, takes: impl Iterator<Item = (u64, u64)>) {
        for (cost, later_us) in takes {
            self.now += later_us;
            self.charge.cost = cost * 1_000;
            self.call(None);
        }
    }

    /// Revokes a top-up. Returns whether something is left of one that is used before it.
    fn revoke(&mut self, id: u64) -> bool {
        let all = self.change(&TopUpChange::List);
        self.change(&TopUpChange::Revoke(id));
        all.iter().position(|(one, _)| *one == id).is_some_and(|place| place > 0)
    }

    /// A debt that is settled in its period.
    fn settle(&mut self, units: i64) {
        let mut batch = Batch::default();
        batch.settle(self.charge.bucket, self.charge.limit, &rules()[0], units, PREFIX);
        let mut script = invocation();
        script.key(&self.key).arg(self.now).arg(batch.encode(self.now)).arg(batch.encode_debts());
        script.invoke::<Vec<i64>>(self.connection).unwrap();
    }
}

/// What gateways granted in a period is taken from the top-ups as if it had been settled before the
/// period ended: the same is left of each, whatever was used, has expired or was revoked since. If
/// one was revoked before which another one is used, never more is left.
#[test]
fn debt_of_an_ended_period_is_taken_from_top_ups_as_if_it_had_been_settled_in_time() {
    let server = RedisServer::start(&[]);
    let connection = RefCell::new(server.client().get_connection().unwrap());
    let calendar = Calendar::new(Period::Second, "UTC", 1).unwrap();
    let window = FixedWindow::new(9, calendar).unwrap().with(Overage::Count, 0);
    let limit = Limit::FixedWindow(window);
    let start = 1_800_000_000_000_000;
    let top_up = (1..9_000_i64, 500_000..3_500_000_u64);
    let takes = |most| prop::collection::vec((1..5_u64, 0..600_000_u64), 0..most);
    let schedule = (
        prop::collection::vec(top_up, 1..5),
        takes(4),
        prop::collection::vec(1..9_000_i64, 1..4),
        takes(5),
        prop::option::of((0..4_u64, 0..5_usize)),
    );
    let config = Config { failure_persistence: None, ..with_cases(600) };
    let (known, behind) = (Cell::new(0), Cell::new(0));
    let ran = TestRunner::new(config).run(&schedule, |(top_ups, before, debts, after, revoked)| {
        let connection = &mut *connection.borrow_mut();
        redis::cmd("FLUSHALL").query::<()>(connection).unwrap();
        let (bucket, mode) = (BucketId(7), Mode::Enforce);
        let charge = Charge { bucket, rule: 0, limit_index: 0, limit, cost: 1_000, mode };
        let (mut lefts, mut settled, mut is_behind) = (Vec::new(), 0, false);
        for (id, has_lapsed) in [(7, false), (8, true)] {
            let key = script::key(PREFIX, BucketId(id), &rules()[0]);
            let mut server =
                Server { connection: &mut *connection, key, charge, added: 0, now: start };
            for (id, (units, for_us)) in (0..).zip(&top_ups) {
                let one = TopUp { id, units: *units, expires_us: start + for_us };
                server.change(&TopUpChange::Add(one, String::new()));
            }
            server.take_each(before.iter().map(|(cost, later_us)| (*cost, later_us / 3)));
            server.now = start + 999_999;
            for units in debts.iter().filter(|_| !has_lapsed) {
                server.settle(*units);
            }
            server.now += 1;
            // Within the two periods that follow.
            let revoked_at = revoked.map_or(0, |(_, place)| place.min(after.len()));
            let mut takes = after.iter().map(|(cost, later_us)| (*cost, later_us / 2));
            server.take_each(takes.by_ref().take(revoked_at));
            if let Some((id, _)) = revoked {
                is_behind = server.revoke(id);
            }
            server.take_each(takes);
            for (number, units) in (0..).zip(&debts).filter(|_| has_lapsed) {
                settled += server.settle_lapsed(*units, start + 1_000_000, number);
                assert_eq!(server.settle_lapsed(*units, start + 1_000_000, number), 0, "once");
            }
            lefts.push(server.change(&TopUpChange::List));
        }
        // After the end of another period, it is not known what was used in the one before.
        let is_known = after.iter().map(|(_, later_us)| later_us / 2).sum::<u64>() < 1_000_000;
        if is_known && is_behind {
            let sum = |of: &Vec<(u64, i64)>| of.iter().map(|(_, left)| left).sum::<i64>();
            prop_assert!(sum(&lefts[1]) <= sum(&lefts[0]), "{lefts:?}");
            behind.set(behind.get() + u64::from(settled > 0));
        } else if is_known {
            prop_assert_eq!(&lefts[0], &lefts[1]);
            known.set(known.get() + u64::from(settled > 0));
        }
        Ok(())
    });
    ran.unwrap();
    assert!(known.get() > 40 && behind.get() > 5, "{} and {}", known.get(), behind.get());
}

/// A bucket of nine tokens a second with these top-ups: units and microseconds until each expires.
fn with_top_ups<'a>(connection: &'a mut Connection, top_ups: &[(i64, u64)]) -> Server<'a> {
    let calendar = Calendar::new(Period::Second, "UTC", 1).unwrap();
    let window = FixedWindow::new(9, calendar).unwrap().with(Overage::Count, 0);
    let (bucket, mode) = (BucketId(7), Mode::Enforce);
    let limit = Limit::FixedWindow(window);
    let charge = Charge { bucket, rule: 0, limit_index: 0, limit, cost: 1_000, mode };
    let key = script::key(PREFIX, bucket, &rules()[0]);
    let mut server = Server { connection, key, charge, added: 0, now: START };
    for one in top_ups {
        server.top_up(*one);
    }
    server
}

impl Server<'_> {
    fn top_up(&mut self, (units, for_us): (i64, u64)) {
        let one = TopUp { id: self.added, units, expires_us: self.now + for_us };
        self.added += 1;
        self.change(&TopUpChange::Add(one, String::new()));
    }

    fn lefts(&mut self) -> Vec<(u64, i64)> {
        self.change(&TopUpChange::List)
    }
}

/// All of its quota was left.
#[test]
fn debt_of_a_period_in_which_the_bucket_was_not_used_takes_the_quota_first() {
    let redis = RedisServer::start(&[]);
    let mut connection = redis.client().get_connection().unwrap();
    let mut server = with_top_ups(&mut connection, &[(5_000, 60 * PERIOD)]);
    server.take_each([(3, 0)].into_iter());
    // Nothing has read the bucket since.
    server.now = START + 2 * PERIOD + 7;
    assert_eq!(server.settle_lapsed(11_000, START + 2 * PERIOD, 1), 2_000);
    assert_eq!(server.lefts(), [(0, 3_000)]);
    assert_eq!(server.settle_lapsed(1_000, START + 2 * PERIOD, 2), 1_000, "the quota is used up");
    // It is not known any more what was used in the period before.
    assert_eq!(server.settle_lapsed(20_000, START + PERIOD, 3), 0);
    assert_eq!(server.lefts(), [(0, 2_000)]);
}

/// The clock of the gateway is ahead of that of Redis.
#[test]
fn debt_of_a_period_that_has_not_ended_in_redis_is_taken_from_the_bucket() {
    let redis = RedisServer::start(&[]);
    let mut connection = redis.client().get_connection().unwrap();
    let mut server = with_top_ups(&mut connection, &[(5_000, 60 * PERIOD)]);
    server.now = START + PERIOD - 1;
    assert_eq!(server.settle_lapsed(4_000, START + PERIOD, 1), 4_000);
    assert_eq!(server.lefts(), [(0, 5_000)], "the quota has five tokens left");
    assert_eq!(server.settle_lapsed(7_000, START + PERIOD, 2), 7_000);
    assert_eq!(server.lefts(), [(0, 3_000)]);
    // Not of a period that has not begun.
    assert_eq!(server.settle_lapsed(7_000, START + 2 * PERIOD, 3), 0);
    server.now = START + PERIOD;
    assert_eq!(server.settle_lapsed(1_000, START + PERIOD, 4), 1_000, "its quota is used up");
    assert_eq!(server.lefts(), [(0, 2_000)]);
}

#[test]
fn debt_of_a_period_without_top_ups_takes_none_that_was_added_later() {
    let redis = RedisServer::start(&[]);
    let mut connection = redis.client().get_connection().unwrap();
    let mut server = with_top_ups(&mut connection, &[]);
    server.take_each([(3, 0)].into_iter());
    server.now = START + PERIOD;
    server.top_up((5_000, 60 * PERIOD));
    assert_eq!(server.settle_lapsed(20_000, START + PERIOD, 1), 0);
    assert_eq!(server.lefts(), [(0, 5_000)]);
}

/// It is not stored which of them the period had.
#[test]
fn debt_is_also_taken_from_top_ups_that_were_added_after_its_period() {
    let redis = RedisServer::start(&[]);
    let mut connection = redis.client().get_connection().unwrap();
    let mut server = with_top_ups(&mut connection, &[(2_000, 60 * PERIOD)]);
    server.take_each([(9, 0)].into_iter());
    server.now = START + PERIOD;
    server.top_up((5_000, 30 * PERIOD));
    assert_eq!(server.settle_lapsed(1_500, START + PERIOD, 1), 1_500);
    assert_eq!(server.lefts(), [(1, 3_500), (0, 2_000)], "the one that expires first");
}
