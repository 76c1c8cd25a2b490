//! Requests in flight: the script and [`Entries`] agree for any calls of several gateways, beside
//! other kinds.

use std::cell::RefCell;
use std::collections::HashMap;

use proptest::prelude::*;
use proptest::test_runner::TestRunner;
use redis::Connection;

use super::{PREFIX, Reference, call, cases, charges, in_groups, rules, run_script, token_bucket};
use crate::limit::Limit;
use crate::limit::adjust::Adjustment;
use crate::limit::bucket::Bucket;
use crate::limit::charge::{Answer, BucketId, Charge, Charges, take};
use crate::limit::concurrency::entries::Entries;
use crate::limit::concurrency::{Concurrency, LEASE_US, Statement};
use crate::limit::share::Share;
use crate::store::redis::fixture::RedisServer;
use crate::store::redis::script::{self, Added, Batch};

/// Checks over rules: (rule, client, cost, is shadow).
type Checks = Vec<Vec<(u32, u128, u64, bool)>>;

/// One call of a gateway.
#[derive(Clone, Debug)]
struct Step {
    clock: i64,
    gateway: u64,
    /// Of the statement: usually later than all before, sometimes earlier.
    number: u64,
    units: Option<i64>,
    limit: u64,
    checks: Checks,
    adjustment: Option<Adjustment>,
    /// Put into Redis before, in place of a bucket.
    corrupt: Option<Vec<u8>>,
}

fn step() -> impl Strategy<Value = Step> {
    let lease = LEASE_US.cast_signed();
    let clock = prop_oneof![
        5 => 0..300_000_i64,
        2 => 0..2 * lease,
        1 => -900_000..0_i64,
        1 => -3 * lease..0,
    ];
    let check =
        prop::collection::vec((0..4_u32, 0..2_u128, 1..4_u64, prop::bool::weighted(0.2)), 1..4);
    let adjustment = prop_oneof![
        5 => Just(None),
        1 => Just(Some(Adjustment::Reset)),
        1 => (1..9_u64).prop_map(|tokens| Some(Adjustment::Grant(tokens))),
    ];
    let corrupt = prop_oneof![
        12 => Just(None),
        1 => prop::collection::vec(any::<u8>(), 0..60).prop_map(Some),
        1 => prop::collection::vec(any::<u8>(), 24).prop_map(Some),
        1 => prop::collection::vec(any::<u8>(), 48).prop_map(|tail| Some([b"cc1", &tail[..]].concat())),
    ];
    let statement = (
        0..3_u64,
        prop_oneof![4 => Just(0), 1 => 0..5_u64],
        prop_oneof![4 => (0..9_000_i64).prop_map(Some), 1 => Just(None)],
    );
    (clock, statement, 1..12_u64, prop::collection::vec(check, 1..8), adjustment, corrupt).prop_map(
        |(clock, (gateway, number, units), limit, checks, adjustment, corrupt)| Step {
            clock,
            gateway: gateway.wrapping_mul(0x9e37_79b9_7f4a_7c15),
            number,
            units,
            limit,
            checks,
            adjustment,
            corrupt,
        },
    )
}

/// What Redis must have.
#[derive(Default)]
struct World {
    stored: HashMap<BucketId, Vec<u8>>,
    others: Reference,
    number: u64,
    now: u64,
}

/// A bucket in one call.
struct Asked {
    entries: Entries,
    limit: Limit,
    taken: i64,
    is_written: bool,
}

impl World {
    fn asked(&self, charge: &Charge, statement: Statement) -> Asked {
        let stored = self.stored.get(&charge.bucket).map(Vec::as_slice);
        Asked {
            entries: Entries::read(stored, statement, self.now),
            limit: charge.limit,
            taken: 0,
            is_written: statement.units.is_some() && !Entries::is_foreign(stored),
        }
    }

    fn write(&mut self, bucket: BucketId, mut asked: Asked, gateway: u64) {
        if asked.is_written && !asked.entries.is_late() {
            asked.entries.add(asked.taken);
            self.stored.insert(bucket, asked.entries.write(gateway, self.now));
        }
    }

    /// Decides checks group by group.
    fn take(&mut self, checks: &[Charges], statement: Statement) -> Vec<Answer> {
        let mut asked: HashMap<BucketId, Asked> = HashMap::new();
        for charge in checks.iter().flatten().filter(|charge| charge.limit.is_held()) {
            asked.entry(charge.bucket).or_insert_with(|| self.asked(charge, statement));
        }
        let mut answers: Vec<Option<Answer>> = vec![None; checks.len()];
        for index in in_groups(checks) {
            let charges = &checks[index];
            let bucket = |charge: &Charge| match asked.get(&charge.bucket) {
                Some(asked) => {
                    let level = asked.limit.full() - asked.entries.held() - asked.taken;
                    Bucket { level, at: self.now }
                }
                None => self.others.bucket(charge, self.now),
            };
            let mut buckets: Vec<Bucket> = charges.iter().map(bucket).collect();
            let answer = take(charges, &mut buckets, Share::WHOLE);
            for ((charge, bucket), outcome) in charges.iter().zip(buckets).zip(&answer.outcomes) {
                if !(answer.allowed() && outcome.enough) {
                    continue;
                }
                match asked.get_mut(&charge.bucket) {
                    Some(asked) => {
                        asked.taken += charge.limit.units(charge.cost);
                        asked.is_written = true;
                    }
                    None => {
                        self.others.write(charge, bucket, self.now);
                    }
                }
            }
            answers[index] = Some(answer);
        }
        for (bucket, asked) in asked {
            self.write(bucket, asked, statement.gateway);
        }
        answers.into_iter().flatten().collect()
    }

    fn adjust(
        &mut self,
        charge: &Charge,
        adjustment: Adjustment,
        statement: Statement,
    ) -> (i64, i64) {
        if !charge.limit.is_held() {
            return self.others.adjust(charge, adjustment, self.now);
        }
        let mut asked = self.asked(charge, statement);
        let before = charge.limit.full() - asked.entries.held();
        let after = adjustment.apply(Bucket { level: before, at: 0 }, &charge.limit).level;
        (asked.taken, asked.is_written) = (before - after, true);
        self.write(charge.bucket, asked, statement.gateway);
        (before, after)
    }

    fn step(&mut self, connection: &mut Connection, step: &Step, token: [Limit; 2]) {
        self.now = self.now.saturating_add_signed(step.clock);
        self.number += 1;
        let number = if step.number == 0 { self.number } else { step.number };
        let statement = Statement { gateway: step.gateway, number, units: step.units };
        let held = Limit::Concurrency(Concurrency::new(step.limit).unwrap());
        let limits = [held, token[0], held, token[1]];
        let checks: Vec<Charges> =
            step.checks.iter().map(|check| charges(check, &limits)).collect();
        let key =
            |charge: &Charge| script::key(PREFIX, charge.bucket, &rules()[charge.rule as usize]);
        let mut all: Vec<Charge> = checks.iter().flatten().copied().collect();
        all.sort_by_key(|charge| charge.bucket);
        all.dedup_by_key(|charge| charge.bucket);
        let first_held = all.iter().find(|charge| charge.limit.is_held());
        if let (Some(value), Some(charge)) = (&step.corrupt, first_held) {
            redis::cmd("SET").arg(key(charge)).arg(value).query::<()>(connection).unwrap();
            self.stored.insert(charge.bucket, value.clone());
        }
        let mut batch = Batch::default();
        for check in &checks {
            assert_eq!(batch.add(check, &rules(), PREFIX), Added::In);
        }
        batch.state(|_| statement);
        let reply = call(connection, &batch, self.now);
        let reply = batch.read(&reply).unwrap();
        let expected = self.take(&checks, statement);
        let plain = |answer: &Answer| {
            let outcomes = answer.outcomes.iter().map(|outcome| (outcome.level, outcome.enough));
            (answer.denied_by(), outcomes.collect::<Vec<_>>())
        };
        let answers: Vec<_> = reply.answers.iter().flatten().map(plain).collect();
        assert_eq!(answers, expected.iter().map(plain).collect::<Vec<_>>(), "at {}", self.now);
        self.compare(connection, &all, key);
        let keys: Vec<String> = all.iter().map(key).collect();
        let keys: Vec<&str> = keys.iter().map(String::as_str).collect();
        if let Some(adjustment) = step.adjustment {
            self.number += 1;
            let statement = Statement { number: self.number, ..statement };
            let call = script::encode_adjust(&all, adjustment, self.now, |_| statement, false);
            let reply = run_script(connection, &keys, self.now, (call, Vec::new())).unwrap();
            let expected: Vec<Option<(i64, i64)>> =
                all.iter().map(|charge| Some(self.adjust(charge, adjustment, statement))).collect();
            assert_eq!(script::read_adjust(&all, &reply), Ok(expected), "{adjustment:?}");
            self.compare(connection, &all, key);
        }
        let call = script::encode_peek(&all, self.now);
        let reply = run_script(connection, &keys, self.now, (call, Vec::new())).unwrap();
        let level = |charge: &Charge| {
            if charge.limit.is_held() {
                let asked = self.asked(charge, Statement::NONE);
                charge.limit.full() - asked.entries.held()
            } else {
                self.others.peek(charge, self.now).level
            }
        };
        let expected: Vec<Option<i64>> = all.iter().map(|charge| Some(level(charge))).collect();
        let read = script::read_peek(&all, &reply).unwrap();
        let levels: Vec<Option<i64>> =
            read.iter().map(|read| read.map(|reading| reading.level)).collect();
        assert_eq!(levels, expected, "peek at {}", self.now);
        self.compare(connection, &all, key);
    }

    /// Compares the stored values, and bounds their times to live.
    fn compare(
        &self,
        connection: &mut Connection,
        all: &[Charge],
        key: impl Fn(&Charge) -> String,
    ) {
        for charge in all.iter().filter(|charge| charge.limit.is_held()) {
            let stored: Option<Vec<u8>> =
                redis::cmd("GET").arg(key(charge)).query(connection).unwrap();
            let expected = self.stored.get(&charge.bucket);
            assert_eq!(stored.as_ref(), expected, "{}", charge.bucket.0);
            let left: i64 = redis::cmd("PTTL").arg(key(charge)).query(connection).unwrap();
            let most = i64::try_from(LEASE_US / 1_000).unwrap() + 2_000;
            let is_foreign = Entries::is_foreign(stored.as_deref());
            assert!(is_foreign || left <= most, "{left}");
        }
    }
}

#[test]
fn script_and_core_agree_on_requests_in_flight() {
    let server = RedisServer::start(&[]);
    let connection = RefCell::new(server.client().get_connection().unwrap());
    TestRunner::new(cases())
        .run(
            &(prop::collection::vec(step(), 1..12), [token_bucket(), token_bucket()]),
            |(steps, token)| {
                let connection = &mut *connection.borrow_mut();
                redis::cmd("FLUSHALL").query::<()>(connection).unwrap();
                let mut world = World { now: 1_774_738_800_000_000, ..World::default() };
                for step in &steps {
                    world.step(connection, step, token);
                }
                Ok(())
            },
        )
        .unwrap();
}

/// Commands that a call of a token bucket makes, as Redis counts them: as without the kind.
#[test]
fn token_bucket_needs_one_read_and_one_write() {
    let server = RedisServer::start(&[]);
    let mut connection = server.client().get_connection().unwrap();
    let limit = Limit::token_bucket(10, 1_000_000, 50).unwrap();
    let check = charges(&[(0, 1, 1, false)], &[limit]);
    let mut batch = Batch::default();
    (0..8).for_each(|_| assert_eq!(batch.add(&check, &rules(), PREFIX), Added::In));
    redis::cmd("CONFIG").arg("RESETSTAT").query::<()>(&mut connection).unwrap();
    call(&mut connection, &batch, 1_000_000);
    let stats: String = redis::cmd("INFO").arg("commandstats").query(&mut connection).unwrap();
    let calls: Vec<&str> = stats
        .lines()
        .filter_map(|line| line.strip_prefix("cmdstat_")?.split(",usec").next())
        .filter(|line| !["eval", "config", "script"].iter().any(|name| line.starts_with(name)))
        .collect();
    let mut calls = calls;
    calls.sort_unstable();
    assert_eq!(calls, ["get:calls=1", "set:calls=1"]);
}
