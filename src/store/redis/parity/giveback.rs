//! What refused requests took is given back, and no bucket ever has more than if they had never
//! been sent.

use proptest::prelude::*;
use proptest::test_runner::TestRunner;

use super::*;
use crate::limit::returned::Returned;
use crate::store::memory::MemoryStore;
use crate::store::redis::script::Claim;

#[derive(Clone, Debug)]
struct Call {
    /// Microseconds since the previous one.
    later_us: u64,
    /// Cost of a request that is allowed; 0 for none.
    allowed: u64,
    /// Cost of a request that another slot refuses; 0 for none.
    refused: u64,
    /// Which of the refused requests are given back before: every n-th of the pending ones.
    every: usize,
}

fn calls() -> impl Strategy<Value = Vec<Call>> {
    let later = prop_oneof![3 => 0..2_000_u64, 2 => 0..200_000_u64, 1 => 0..3_000_000_u64];
    let cost = || prop_oneof![1 => Just(0_u64), 2 => 1..6_u64];
    let call = (later, cost(), cost(), 1..4_usize);
    let call = call.prop_map(|(later_us, allowed, refused, every)| Call {
        later_us,
        allowed,
        refused,
        every,
    });
    prop::collection::vec(call, 1..40)
}

/// A number of tokens in each second.
fn seconds() -> Limit {
    let calendar = Calendar::new(Period::Second, "UTC", 1).unwrap();
    Limit::FixedWindow(FixedWindow::new(9, calendar).unwrap())
}

fn limits() -> [Limit; 5] {
    [
        Limit::token_bucket(20, 1_000_000, 5).unwrap(),
        Limit::token_bucket(3, 1_000_000, 12).unwrap(),
        Limit::token_bucket(5_000, 1_000_000, 40).unwrap(),
        Limit::SlidingWindow(SlidingWindow::new(9, 1_000_000).unwrap()),
        seconds(),
    ]
}

/// Without Redis, buckets have the same levels.
#[test]
fn memory_gives_back_what_the_script_does() {
    let server = RedisServer::start(&[]);
    let leaky = limits().into_iter().filter(|limit| matches!(limit, Limit::TokenBucket(_)));
    let each = limits().map(|limit| (limit, false));
    for (limit, is_leaky) in each.into_iter().chain(leaky.map(|limit| (limit, true))) {
        let connection = RefCell::new(server.client().get_connection().unwrap());
        let mut runner = TestRunner::new(with_cases(40));
        let ran = runner.run(&calls(), |calls| {
            redis::cmd("FLUSHALL").query::<()>(&mut *connection.borrow_mut()).unwrap();
            let connection = server.client().get_connection().unwrap();
            let mut pair = Pair { connection, limit, now: 1_800_000_000_000_000 };
            let memory = MemoryStore::new(1_000, &[limit]);
            let mut pending: Vec<Returned> = Vec::new();
            for call in &calls {
                pair.now += call.later_us;
                let now = pair.now;
                let returned = std::mem::take(&mut pending);
                for one in &returned {
                    let here = Returned::here(&limit, one.units, Now::unix(one.taken_at));
                    prop_assert_eq!(here.of_leaky(is_leaky), *one);
                    memory.give_back(&pair.charge(WITH_REFUSED, 1), one, now);
                }
                for (cost, is_kept) in [(call.allowed, true), (call.refused, false)] {
                    let cost = cost.min(limit.capacity());
                    let charge = pair.charge(WITH_REFUSED, cost);
                    let returned = if is_kept { &returned[..] } else { &[] };
                    let passed = pair.take(WITH_REFUSED, cost, returned);
                    let here = cost > 0 && memory.take(&[charge], now, Share::WHOLE).allowed();
                    prop_assert_eq!(passed, here);
                    if passed && !is_kept {
                        let units = limit.units(cost * limit.parts());
                        pending.push(Returned::new(&limit, units, now).of_leaky(is_leaky));
                    }
                }
                let level = memory.bucket(&pair.charge(WITH_REFUSED, 1), now).level;
                prop_assert_eq!(pair.level(WITH_REFUSED, now), level);
            }
            Ok(())
        });
        ran.unwrap();
    }
}

/// A leaky bucket gets tokens back only if no request waits because of them.
#[test]
fn leaky_bucket_gets_nothing_back_while_later_requests_wait() {
    let server = RedisServer::start(&[]);
    let connection = server.client().get_connection().unwrap();
    let limit = Limit::token_bucket(1, 1_000_000, 5).unwrap();
    let mut pair = Pair { connection, limit, now: 1_800_000_000_000_000 };
    let one = limit.units(limit.parts());
    let now = pair.now;
    let returned = Returned::new(&limit, one, now).of_leaky(true);
    assert!(pair.take(WITH_REFUSED, 1, &[]));
    pair.take(WITH_REFUSED, 0, &[returned]);
    assert_eq!(pair.level(WITH_REFUSED, now), limit.full());
    assert!(pair.take(WITH_REFUSED, 1, &[]) && pair.take(WITH_REFUSED, 1, &[]));
    pair.take(WITH_REFUSED, 0, &[returned]);
    assert_eq!(pair.level(WITH_REFUSED, now), limit.full() - 2 * one);
}

/// An operator fills the bucket, which then is as full as without the requests before.
#[test]
fn nothing_is_given_back_that_was_taken_before_a_reset() {
    let server = RedisServer::start(&[]);
    for limit in limits() {
        redis::cmd("FLUSHALL").query::<()>(&mut server.client().get_connection().unwrap()).unwrap();
        let connection = server.client().get_connection().unwrap();
        let mut pair = Pair { connection, limit, now: 1_800_000_000_000_000 };
        let one = limit.units(limit.parts());
        let returned = |at| Returned::new(&limit, one, at);
        let before = pair.now;
        assert!(pair.take(WITH_REFUSED, 1, &[]));
        pair.now += 1;
        pair.reset(WITH_REFUSED);
        assert!(pair.take(WITH_REFUSED, 2, &[]));
        let now = pair.now;
        let level = pair.level(WITH_REFUSED, now);
        pair.take(WITH_REFUSED, 0, &[returned(before), returned(now)]);
        assert_eq!(pair.level(WITH_REFUSED, now), level, "{limit:?}");
        pair.now += 1;
        assert!(pair.take(WITH_REFUSED, 1, &[]));
        let now = pair.now;
        let level = pair.level(WITH_REFUSED, now);
        pair.take(WITH_REFUSED, 0, &[returned(now)]);
        assert_eq!(pair.level(WITH_REFUSED, now), level + one, "{limit:?}");
    }
}

/// A bucket with refused requests, and one without them.
struct Pair {
    connection: Connection,
    limit: Limit,
    now: u64,
}

impl Pair {
    fn charge(&self, bucket: u128, cost: u64) -> Charge {
        let (bucket, mode) = (BucketId(bucket), Mode::Enforce);
        let cost = cost * self.limit.parts();
        Charge { bucket, rule: 0, limit_index: 0, limit: self.limit, cost, mode }
    }

    /// Takes from a bucket, after this was given back. Returns whether it had enough.
    fn take(&mut self, bucket: u128, cost: u64, returned: &[Returned]) -> bool {
        let mut batch = Batch::default();
        let charge = self.charge(bucket, cost);
        for one in returned {
            batch.give_back(charge.bucket, self.limit, &rules()[0], *one, PREFIX);
        }
        if cost > 0 {
            batch.add(&[charge], &rules(), PREFIX);
        }
        if !batch.has_buckets() {
            return false;
        }
        let mut script = invocation();
        batch.keys().for_each(|key| _ = script.key(key));
        script.arg(self.now).arg(batch.encode(self.now)).arg("").arg(batch.encode_returned());
        let before = (cost == 0).then(|| self.level(bucket, self.now));
        let reply: Vec<i64> = script.invoke(&mut self.connection).unwrap();
        let reply = batch.read(&reply).unwrap();
        if let (Some(before), Some(last)) = (before, reply.given.last()) {
            let given = reply.given.iter().map(|given| given.units).sum::<i64>();
            let level = self.level(bucket, self.now);
            assert_eq!(
                (level, last.level),
                (before + given, level),
                "the reply says what is given"
            );
        }
        reply.answers.first().is_some_and(|answer| answer.as_ref().unwrap().allowed())
    }

    fn reset(&mut self, bucket: u128) {
        let charge = self.charge(bucket, 1);
        let key = script::key(PREFIX, charge.bucket, &rules()[0]);
        let none = |_| Statement::NONE;
        let call = script::encode_adjust(&[charge], Adjustment::Reset, self.now, none, true);
        run_script(&mut self.connection, &[&key], self.now, (call, Vec::new())).unwrap();
    }

    fn level(&mut self, bucket: u128, now: u64) -> i64 {
        let charges = [self.charge(bucket, 1)];
        let key = script::key(PREFIX, charges[0].bucket, &rules()[0]);
        let call = script::encode_peek(&charges, now);
        let reply = run_script(&mut self.connection, &[&key], now, (call, Vec::new())).unwrap();
        script::read_peek(&charges, &reply).unwrap()[0].unwrap().level
    }

    /// Asserts it of the levels now and later. The script must be loaded.
    fn assert_has_at_most(&mut self, when: &str) {
        const LATER_US: [u64; 5] = [0, 1_000, 300_000, 999_999, 1_000_000];
        let charges = [WITH_REFUSED, WITHOUT].map(|bucket| self.charge(bucket, 1));
        let keys = charges.map(|charge| script::key(PREFIX, charge.bucket, &rules()[0]));
        let mut peeks = redis::pipe();
        for later_us in LATER_US {
            let now = self.now + later_us;
            peeks.cmd("EVALSHA").arg(script::SHA.as_str()).arg(keys.len()).arg(&keys);
            peeks.arg(now).arg(script::encode_peek(&charges, now));
        }
        let replies: Vec<Vec<i64>> = peeks.query(&mut self.connection).unwrap();
        for (later_us, reply) in LATER_US.into_iter().zip(replies) {
            let read = script::read_peek(&charges, &reply).unwrap();
            let [level, ideal] = [0, 1].map(|index| read[index].unwrap().level);
            assert!(level <= ideal, "{level} of {ideal} {later_us} us after {when}");
        }
    }
}

const WITH_REFUSED: u128 = 1;
const WITHOUT: u128 = 2;

/// For any schedule: every request that is allowed is also allowed without the refused ones, and
/// afterwards the bucket has at most what it has without them.
#[test]
fn bucket_never_has_more_than_without_the_refused_requests() {
    let server = RedisServer::start(&[]);
    invocation().load(&mut server.client().get_connection().unwrap()).unwrap();
    for limit in limits() {
        let connection = RefCell::new(server.client().get_connection().unwrap());
        let mut runner = TestRunner::new(with_cases(80));
        let ran = runner.run(&calls(), |calls| {
            let connection = &mut *connection.borrow_mut();
            redis::cmd("FLUSHALL").query::<()>(connection).unwrap();
            let connection = server.client().get_connection().unwrap();
            let mut pair = Pair { connection, limit, now: 1_800_000_000_000_000 };
            let mut pending: Vec<Returned> = Vec::new();
            for (number, call) in calls.iter().enumerate() {
                pair.now += call.later_us;
                let mut turn = 0;
                let (returned, kept) = pending.drain(..).partition(|_| {
                    turn += 1;
                    turn % call.every == 0
                });
                pending = kept;
                let returned: Vec<Returned> = returned;
                let cost = call.allowed.min(limit.capacity());
                if pair.take(WITH_REFUSED, cost, &returned) {
                    prop_assert!(pair.take(WITHOUT, cost, &[]), "call {}", number);
                }
                let cost = call.refused.min(limit.capacity());
                if pair.take(WITH_REFUSED, cost, &[]) {
                    let units = limit.units(cost * limit.parts());
                    pending.push(Returned::new(&limit, units, pair.now));
                }
                pair.assert_has_at_most(&format!("call {number}"));
            }
            Ok(())
        });
        ran.unwrap();
    }
}

/// What is given back at once is all there again.
#[test]
fn tokens_that_are_given_back_at_once_are_not_lost() {
    let server = RedisServer::start(&[]);
    for limit in limits() {
        redis::cmd("FLUSHALL").query::<()>(&mut server.client().get_connection().unwrap()).unwrap();
        let connection = server.client().get_connection().unwrap();
        let mut pair = Pair { connection, limit, now: 1_800_000_000_000_000 };
        assert!(pair.take(WITH_REFUSED, 2, &[]) && pair.take(WITH_REFUSED, 3, &[]));
        let units = limit.units(3 * limit.parts());
        let returned = Returned::new(&limit, units, pair.now);
        pair.take(WITH_REFUSED, 0, &[returned]);
        let now = pair.now;
        assert_eq!(pair.level(WITH_REFUSED, now), limit.full() - limit.units(2 * limit.parts()));
    }
}

/// A fixed window gets back what was taken in its period, and nothing of an earlier one.
#[test]
fn fixed_window_gets_back_only_what_its_period_counted() {
    let server = RedisServer::start(&[]);
    let connection = server.client().get_connection().unwrap();
    let limit = seconds();
    let mut pair = Pair { connection, limit, now: 1_800_000_000_000_000 };
    assert!(pair.take(WITH_REFUSED, 2, &[]));
    let units = limit.units(2 * limit.parts());
    let returned = Returned::new(&limit, units, pair.now);
    let now = pair.now;
    pair.take(WITH_REFUSED, 0, &[returned]);
    assert_eq!(pair.level(WITH_REFUSED, now), limit.full());
    // Taken before the boundary, given back after it.
    assert!(pair.take(WITH_REFUSED, 2, &[]));
    pair.now += limit.left_us(pair.now) + 1;
    assert!(pair.take(WITH_REFUSED, 1, &[]));
    let now = pair.now;
    let before = pair.level(WITH_REFUSED, now);
    pair.take(WITH_REFUSED, 0, &[returned]);
    assert_eq!(pair.level(WITH_REFUSED, now), before);
}

/// A claim lowers a level to what was seen, and never raises one.
#[test]
fn claimed_level_is_kept_if_it_is_lower() {
    let server = RedisServer::start(&[]);
    for limit in limits() {
        redis::cmd("FLUSHALL").query::<()>(&mut server.client().get_connection().unwrap()).unwrap();
        let mut connection = server.client().get_connection().unwrap();
        let now = 1_800_000_000_000_000_u64;
        let charge = {
            let (bucket, mode) = (BucketId(3), Mode::Enforce);
            Charge { bucket, rule: 0, limit_index: 0, limit, cost: limit.parts(), mode }
        };
        let period_end = if limit.calendar().is_some() { now + limit.left_us(now) } else { 0 };
        let one = limit.units(charge.cost);
        let mut take = |claimed: i64, period_end: u64| {
            let mut batch = Batch::default();
            batch.add(&[charge], &rules(), PREFIX);
            batch.claim(|_, _| Some(Claim { level: claimed, period_end, seen_at: now }));
            let mut script = invocation();
            batch.keys().for_each(|key| _ = script.key(key));
            script.arg(now).arg(batch.encode(now)).arg("").arg("").arg(batch.encode_claims());
            let reply: Vec<i64> = script.invoke(&mut connection).unwrap();
            batch.read(&reply).unwrap().answers[0].as_ref().unwrap().outcomes[0].level
        };
        assert_eq!(take(2 * one, period_end), one, "{limit:?}");
        assert_eq!(take(3 * one, period_end), 0, "a higher level was seen earlier: {limit:?}");
        if limit.calendar().is_some() {
            assert_eq!(take(-one, period_end + 1), 0, "of another period");
        }
    }
}

/// An operator fills a bucket that a gateway saw empty before. What is seen afterwards counts
/// again.
#[test]
fn level_that_was_seen_before_a_reset_is_not_claimed() {
    let server = RedisServer::start(&[]);
    for limit in limits() {
        redis::cmd("FLUSHALL").query::<()>(&mut server.client().get_connection().unwrap()).unwrap();
        let mut connection = server.client().get_connection().unwrap();
        let start = 1_800_000_000_000_000_u64;
        let (bucket, mode) = (BucketId(3), Mode::Enforce);
        let charge = Charge { bucket, rule: 0, limit_index: 0, limit, cost: limit.parts(), mode };
        let period_end = if limit.calendar().is_some() { start + limit.left_us(start) } else { 0 };
        let one = limit.units(charge.cost);
        let mut call = |now: u64, claim: Option<Claim>| {
            let mut batch = Batch::default();
            batch.add(&[charge], &rules(), PREFIX);
            batch.claim(|_, _| claim);
            let key: Vec<String> = batch.keys().map(str::to_owned).collect();
            let mut script = invocation();
            script.key(&key).arg(now).arg(batch.encode(now));
            script.arg("").arg("").arg(batch.encode_claims());
            let reply: Vec<i64> = script.invoke(&mut connection).unwrap();
            let level = batch.read(&reply).unwrap().answers[0].as_ref().unwrap().outcomes[0].level;
            let mut adjust = invocation();
            adjust.key(&key).arg(now + 1);
            let reset = Adjustment::Reset;
            let none = |_| Statement::NONE;
            adjust.arg(script::encode_adjust(&[charge], reset, now + 1, none, true));
            adjust.invoke::<Vec<i64>>(&mut connection).unwrap();
            level
        };
        let claim = |seen_at| Some(Claim { level: one, period_end, seen_at });
        assert_eq!(call(start, None), limit.full() - one, "{limit:?}");
        // Seen before the reset at `start + 1`, also at the same time.
        assert_eq!(call(start + 10, claim(start)), limit.full() - one, "{limit:?}");
        assert_eq!(call(start + 20, claim(start + 11)), limit.full() - one, "{limit:?}");
        assert_eq!(call(start + 30, claim(start + 22)), 0, "seen after the last one: {limit:?}");
    }
}
