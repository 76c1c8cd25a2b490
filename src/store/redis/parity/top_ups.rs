//! Top-ups of a quota that are added, used, given back, revoked, and that expire, in random
//! schedules over the ends of periods and changes of the limit: the script and the core in memory
//! agree on each decision, each level, and what is left of each top-up. So they do on those that
//! are added again with an id that was given before.

use std::cell::Cell;

use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};

use super::*;
use crate::limit::returned::Returned;
use crate::limit::top_up::{TopUp, TopUpChange};
use crate::store::memory::MemoryStore;
use crate::store::redis::script::Claim;

/// What happens, after microseconds.
#[derive(Clone, Debug)]
enum Event {
    /// Requests of this cost, and whether the next call gives back what one took.
    Take {
        cost: u64,
        number: u8,
        is_refunded: bool,
    },
    /// Units that a response costs beyond what was taken.
    Settle(i64),
    Add {
        units: i64,
        for_us: u64,
    },
    /// One of those that were added, by a number, with other values.
    Repeat(prop::sample::Index),
    /// One of those that were added, by a number.
    Revoke(prop::sample::Index),
    Adjust(Adjustment),
    /// The other limit, after a reload.
    Reload,
}

fn event() -> impl Strategy<Value = Event> {
    let take = (1..5_u64, 1..4_u8, prop::bool::weighted(0.3));
    let take =
        take.prop_map(|(cost, number, is_refunded)| Event::Take { cost, number, is_refunded });
    let add = (prop_oneof![9 => 1..20_000_i64, 1 => Just(MAX_UNITS)], 1..4_000_000_u64);
    let add = add.prop_map(|(units, for_us)| Event::Add { units, for_us });
    let adjustment = prop_oneof![
        1 => Just(Adjustment::Reset),
        2 => (1..9_u64).prop_map(Adjustment::Grant),
        1 => (1..9_u64).prop_map(Adjustment::GrantAbove),
    ];
    prop_oneof![
        14 => take,
        2 => (1..4_000_i64).prop_map(Event::Settle),
        5 => add,
        2 => any::<prop::sample::Index>().prop_map(Event::Repeat),
        1 => any::<prop::sample::Index>().prop_map(Event::Revoke),
        1 => adjustment.prop_map(Event::Adjust),
        1 => Just(Event::Reload),
    ]
}

/// The same client in both stores.
struct World<'a> {
    connection: &'a mut Connection,
    memory: MemoryStore,
    charge: Charge,
    limits: [Limit; 2],
    returned: Option<Returned>,
    /// When each of the top-ups that were added expires; of those with the same id, the last.
    added: Vec<u64>,
    /// How often one was added with an id that was given before.
    repeated: u64,
}

impl World<'_> {
    fn key(&self) -> String {
        script::key(PREFIX, self.charge.bucket, &rules()[0])
    }

    fn run(&mut self, event: &Event, now: u64) {
        self.expire_texts(now);
        match event {
            Event::Take { cost, number, is_refunded } => {
                self.take(*cost, *number, *is_refunded, now);
            }
            Event::Settle(units) => {
                let mut batch = Batch::default();
                batch.settle(self.charge.bucket, self.charge.limit, &rules()[0], *units, PREFIX);
                call(self.connection, &batch, now);
                self.memory.debit(&self.charge, *units, now);
            }
            Event::Add { units, for_us } => {
                self.added.push(0);
                self.add(self.added.len() - 1, *units, now + for_us, now);
            }
            Event::Repeat(index) if !self.added.is_empty() => {
                let place = index.index(self.added.len());
                self.repeated += u64::from(self.added[place] > now);
                self.add(place, 500, now + 1_500_000, now);
            }
            Event::Repeat(_) => {}
            Event::Revoke(index) => {
                let id = index.index(self.added.len() + 1) as u64;
                self.change(&TopUpChange::Revoke(id), now);
            }
            Event::Adjust(adjustment) => self.adjust(*adjustment, now),
            Event::Reload => {
                self.limits.swap(0, 1);
                let numbers = self.memory.adopt(&self.limits[..1], now);
                (self.charge.limit, self.charge.limit_index) = (self.limits[0], numbers[0]);
                // Both write the bucket under the new limit: if its period ends before that, the
                // old one counts.
                self.adjust(Adjustment::GiveBack(0), now);
            }
        }
        self.change(&TopUpChange::List, now);
        self.peek(now);
    }

    /// Reads the bucket in both, as clients that read their limits do.
    fn peek(&mut self, now: u64) {
        let charges = [self.charge];
        let call = (script::encode_peek(&charges, now), Vec::new());
        let key = self.key();
        let reply = run_script(self.connection, &[&key], now, call).unwrap();
        let there = script::read_peek(&charges, &reply).unwrap()[0].unwrap();
        let here = self.memory.reading(&self.charge, Share::WHOLE, now);
        assert_eq!((there.level, there.top_ups), (here.level, here.top_ups), "at {now}");
    }

    /// Adds the one with the id `place`.
    fn add(&mut self, place: usize, units: i64, expires_us: u64, now: u64) {
        let (id, text) = (place as u64, format!("top-up {place} until {expires_us}"));
        let one = TopUp { id, units, expires_us };
        if self.change(&TopUpChange::Add(one, text), now) {
            self.added[place] = expires_us;
        }
    }

    /// The server's clock is not that of the schedule: ends the time to live of texts.
    fn expire_texts(&mut self, now: u64) {
        for id in 0..self.added.len() {
            if self.added[id] <= now {
                let text = format!("{}:~top-up:{id}", self.key());
                redis::cmd("DEL").arg(text).query::<()>(self.connection).unwrap();
            }
        }
    }

    fn adjust(&mut self, adjustment: Adjustment, now: u64) {
        let charges = [self.charge];
        let call = script::encode_adjust(&charges, adjustment, now, |_| Statement::NONE, false);
        let key = self.key();
        let reply = run_script(self.connection, &[&key], now, (call, Vec::new())).unwrap();
        let here = self.memory.adjust(&charges, adjustment, now);
        let expected = here.into_iter().map(Some).collect();
        assert_eq!(script::read_adjust(&charges, &reply), Ok(expected), "{adjustment:?} at {now}");
    }

    fn take(&mut self, cost: u64, number: u8, is_refunded: bool, now: u64) {
        let limit = self.charge.limit;
        self.charge.cost = cost.min(limit.capacity()) * limit.parts();
        let charges = vec![self.charge];
        let mut batch = Batch::default();
        for _ in 0..number {
            batch.add(&charges, &rules(), PREFIX);
        }
        if let Some(returned) = self.returned.take() {
            batch.give_back(self.charge.bucket, limit, &rules()[0], returned, PREFIX);
            self.memory.give_back(&self.charge, &returned, now);
        }
        let key = self.key();
        let mut script = invocation();
        script.key(&key).arg(now).arg(batch.encode(now));
        script.arg(batch.encode_debts()).arg(batch.encode_returned());
        let reply: Vec<i64> = script.invoke(self.connection).unwrap();
        for answer in batch.read(&reply).unwrap().answers {
            let here = self.memory.take(&charges, now, Share::WHOLE);
            let answer = answer.unwrap();
            assert_eq!(answer.allowed(), here.allowed(), "at {now}");
            assert_eq!(answer.outcomes[0].level, here.outcomes[0].level, "at {now}");
            if answer.allowed() && is_refunded {
                self.returned = Some(Returned::new(&limit, limit.units(self.charge.cost), now));
            }
        }
    }

    /// Changes or reads the top-ups in both. Returns whether they changed.
    fn change(&mut self, change: &TopUpChange, now: u64) -> bool {
        let call = (script::encode_top_up(&self.charge, change, now), Vec::new());
        let key = self.key();
        let reply = run_script(self.connection, &[&key], now, call).unwrap();
        let there = script::read_top_up(&self.charge, &reply).unwrap().unwrap();
        let here = self.memory.top_up(&self.charge, change, now);
        assert_eq!(there, here, "{change:?} at {now}");
        let is_changed = here.is_ok_and(|here| here.repeated.is_none());
        is_changed && *change != TopUpChange::List
    }
}

#[test]
fn schedules_with_top_ups_agree() {
    let server = RedisServer::start(&[]);
    let connection = RefCell::new(server.client().get_connection().unwrap());
    let calendar = Calendar::new(Period::Second, "UTC", 1).unwrap();
    let window = |limit| FixedWindow::new(limit, calendar).unwrap();
    let later = prop_oneof![5 => 0..100_000_u64, 2 => 0..700_000_u64, 1 => 0..4_000_000_u64];
    let schedule = prop::collection::vec((later, event()), 1..80);
    let repeated = Cell::new(0);
    for overage in [Overage::Refuse, Overage::Count] {
        let config = Config { failure_persistence: None, ..with_cases(150) };
        let ran = TestRunner::new(config).run(&schedule, |schedule| {
            let connection = &mut *connection.borrow_mut();
            redis::cmd("FLUSHALL").query::<()>(connection).unwrap();
            let limits = [9, 5].map(|limit| Limit::FixedWindow(window(limit).with(overage, 0)));
            let charge = Charge {
                bucket: BucketId(7),
                rule: 0,
                limit_index: 0,
                limit: limits[0],
                cost: 1,
                mode: Mode::Enforce,
            };
            let memory = MemoryStore::new(1_000, &limits[..1]);
            let (returned, added) = (None, Vec::new());
            let mut world =
                World { connection, memory, charge, limits, returned, added, repeated: 0 };
            let mut now = 1_800_000_000_000_000;
            for (later_us, event) in &schedule {
                now += later_us;
                world.run(event, now);
            }
            repeated.set(repeated.get() + world.repeated);
            Ok(())
        });
        ran.unwrap();
    }
    assert!(repeated.get() > 100, "{} repetitions", repeated.get());
}

/// What happens to a bucket before its master fails, or on the replica that takes over.
#[derive(Clone, Debug)]
enum Step {
    Take(u64),
    Add(i64),
    Revoke(u64),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        3 => (1..4_u64).prop_map(Step::Take),
        2 => (1..9_000_i64).prop_map(Step::Add),
        2 => (0..6_u64).prop_map(Step::Revoke),
    ]
}

/// A bucket in Redis.
pub(super) struct Server<'a> {
    pub(super) connection: &'a mut Connection,
    pub(super) key: String,
    pub(super) charge: Charge,
    /// How many top-ups were added.
    pub(super) added: u64,
    pub(super) now: u64,
}

impl Server<'_> {
    fn run(&mut self, step: &Step) {
        self.now += 1_000;
        match *step {
            Step::Take(cost) => {
                self.charge.cost = cost * 1_000;
                self.call(None);
            }
            Step::Add(units) => {
                let (id, expires_us) = (self.added, self.now + 60_000_000 + self.added % 3);
                self.added += 1;
                let one = TopUp { id, units, expires_us };
                self.change(&TopUpChange::Add(one, String::new()));
            }
            Step::Revoke(id) => drop(self.change(&TopUpChange::Revoke(id))),
        }
    }

    /// A request. Returns the level after it.
    pub(super) fn call(&mut self, claim: Option<Claim>) -> i64 {
        let mut batch = Batch::default();
        batch.add(&[self.charge], &rules(), PREFIX);
        batch.claim(|_, _| claim);
        let mut script = invocation();
        script.key(&self.key).arg(self.now).arg(batch.encode(self.now));
        script.arg("").arg("").arg(batch.encode_claims());
        let reply: Vec<i64> = script.invoke(self.connection).unwrap();
        batch.read(&reply).unwrap().answers[0].as_ref().unwrap().outcomes[0].level
    }

    /// Changes or reads the top-ups. Returns the id of each of which something is left, and how
    /// much.
    pub(super) fn change(&mut self, change: &TopUpChange) -> Vec<(u64, i64)> {
        let call = (script::encode_top_up(&self.charge, change, self.now), Vec::new());
        let reply = run_script(self.connection, &[&self.key], self.now, call).unwrap();
        let changed = script::read_top_up(&self.charge, &reply).unwrap().unwrap();
        let all = changed.map(|changed| changed.all).unwrap_or_default();
        all.into_iter().filter(|one| one.left > 0).map(|one| (one.id, one.left)).collect()
    }
}

/// A replica takes over that lacks the last requests, and top-ups are added and revoked before a
/// gateway claims what it saw of the master: then the bucket is as if the replica had lacked
/// nothing.
#[test]
fn top_up_after_a_failover_keeps_what_gateways_saw() {
    let server = RedisServer::start(&[]);
    let connection = RefCell::new(server.client().get_connection().unwrap());
    let calendar = Calendar::new(Period::Year, "UTC", 1).unwrap();
    let limit = Limit::FixedWindow(FixedWindow::new(9, calendar).unwrap());
    let steps = |most| prop::collection::vec(step(), 0..most);
    let schedule = (steps(10), prop::collection::vec(1..4_u64, 1..5), steps(6));
    let config = Config { failure_persistence: None, ..with_cases(300) };
    let repaired = Cell::new(0);
    let ran = TestRunner::new(config).run(&schedule, |(replicated, lost, later)| {
        let connection = &mut *connection.borrow_mut();
        redis::cmd("FLUSHALL").query::<()>(connection).unwrap();
        let (bucket, mode) = (BucketId(7), Mode::Enforce);
        let charge = Charge { bucket, rule: 0, limit_index: 0, limit, cost: 1_000, mode };
        let start = 1_800_000_000_000_000;
        let mut seen = None;
        let mut levels = Vec::new();
        for bucket in [7, 8] {
            let key = script::key(PREFIX, BucketId(bucket), &rules()[0]);
            let mut server =
                Server { connection: &mut *connection, key, charge, added: 0, now: start };
            for step in &replicated {
                server.run(step);
            }
            server.now = start + 100_000;
            let claim = seen;
            if claim.is_none() {
                for cost in &lost {
                    server.charge.cost = cost * 1_000;
                    let period_end = start + limit.left_us(start);
                    let level = server.call(None);
                    seen = Some(Claim { level, period_end, seen_at: server.now });
                }
            }
            server.now += 1_000;
            for step in later.iter().filter(|one| !matches!(one, Step::Take(_))) {
                server.run(step);
            }
            let before = server.change(&TopUpChange::List);
            // A request that is always refused: it takes nothing.
            server.charge.cost = 1_000_000_000;
            let level = server.call(claim);
            let lefts = server.change(&TopUpChange::List);
            repaired.set(repaired.get() + u64::from(before != lefts));
            levels.push((level, lefts));
        }
        prop_assert_eq!(&levels[0], &levels[1]);
        Ok(())
    });
    ran.unwrap();
    assert!(repaired.get() > 20, "{} repairs", repaired.get());
}

/// Of a bucket whose period is a year, with nothing taken.
fn yearly(connection: &mut Connection) -> Server<'_> {
    let calendar = Calendar::new(Period::Year, "UTC", 1).unwrap();
    let limit = Limit::FixedWindow(FixedWindow::new(9, calendar).unwrap());
    let (bucket, mode) = (BucketId(7), Mode::Enforce);
    let charge = Charge { bucket, rule: 0, limit_index: 0, limit, cost: 1_000, mode };
    let key = script::key(PREFIX, bucket, &rules()[0]);
    Server { connection, key, charge, added: 0, now: 1_800_000_000_000_000 }
}

impl Server<'_> {
    /// A level that was seen now.
    fn seen(&self, level: i64) -> Claim {
        let period_end = self.now + self.charge.limit.left_us(self.now);
        Claim { level, period_end, seen_at: self.now }
    }

    /// The level after a request that is always refused, and claims a level that was seen.
    fn claimed(&mut self, claim: Claim) -> i64 {
        self.charge.cost = 1_000_000_000;
        self.call(Some(claim))
    }
}

/// Each addition and each revocation is one.
#[test]
fn level_that_was_seen_before_more_changes_than_are_kept_does_not_count() {
    let redis = RedisServer::start(&[]);
    let mut connection = redis.client().get_connection().unwrap();
    for (changes, expected) in [(31, 3_100), (32, 9_000), (33, 9_100)] {
        redis::cmd("FLUSHALL").query::<()>(&mut connection).unwrap();
        let mut server = yearly(&mut connection);
        let seen = server.seen(3_000);
        server.now += 1;
        for change in 0..changes {
            server.run(&if change % 2 == 0 { Step::Add(100) } else { Step::Revoke(change / 2) });
        }
        assert_eq!(server.claimed(seen), expected, "{changes} changes");
        server.now += 1;
        let recent = server.seen(2_000);
        assert_eq!(server.claimed(recent), 2_000, "seen after {changes} changes");
    }
}

/// It has the time of the last change.
#[test]
fn level_that_was_seen_before_a_change_by_version_0_2_0_does_not_count() {
    let redis = RedisServer::start(&[]);
    let mut connection = redis.client().get_connection().unwrap();
    let mut server = yearly(&mut connection);
    let seen = server.seen(3_000);
    server.now += 7;
    redis::cmd("SET")
        .arg(format!("{}:~topped", server.key))
        .arg(server.now)
        .exec(server.connection)
        .unwrap();
    assert_eq!(server.claimed(seen), 9_000);
    server.now += 1;
    let recent = server.seen(2_000);
    assert_eq!(server.claimed(recent), 2_000);
}

/// A server with too little memory drops the text of a top-up, but not the bucket.
#[test]
fn top_up_whose_text_was_evicted_is_not_added_again() {
    let redis = RedisServer::start(&[]);
    let mut connection = redis.client().get_connection().unwrap();
    let server = yearly(&mut connection);
    let one = TopUp { id: 7, units: 500, expires_us: server.now + 60_000_000 };
    let add = TopUpChange::Add(one, "why".to_owned());
    for (expected, is_evicted) in [(None, false), (Some("why"), true), (Some(""), false)] {
        let call = (script::encode_top_up(&server.charge, &add, server.now), Vec::new());
        let reply = run_script(server.connection, &[&server.key], server.now, call).unwrap();
        let changed = script::read_top_up(&server.charge, &reply).unwrap().unwrap().unwrap();
        assert_eq!((changed.after, changed.repeated.as_deref()), (9_500, expected));
        if is_evicted {
            let text = format!("{}:~top-up:7", server.key);
            assert_eq!(redis::cmd("DEL").arg(text).query::<u8>(server.connection), Ok(1));
        }
    }
}
