//! Leases in a real server: gateways never exceed the limit, and the script and its reference
//! agree.

use std::cell::RefCell;

use proptest::prelude::*;
use proptest::test_runner::TestRunner;
use redis::Connection;

use super::{PREFIX, call, charges, invocation, rules, run_script};
use crate::base::cases::with_cases;
use crate::base::duration::MICROS_PER_SECOND;
use crate::limit::Limit;
use crate::limit::adjust::Adjustment;
use crate::limit::bucket::{Bucket, CLOCK_SLACK_US};
use crate::limit::charge::{Charge, Charges};
use crate::limit::concurrency::Statement;
use crate::limit::lease::reference::{LentBucket, Refill};
use crate::limit::lease::schedule::{SharedBucket, excess, schedule};
use crate::limit::lease::{Account, EPOCH_US, Loan, Request};
use crate::limit::returned::Returned;
use crate::limit::token_bucket::TokenBucket;
use crate::store::redis::fixture::RedisServer;
use crate::store::redis::script::{self, Batch};

/// A bucket in a server.
struct InRedis<'a> {
    connection: &'a mut Connection,
    charge: Charge,
}

impl<'a> InRedis<'a> {
    fn new(connection: &'a mut Connection, limit: TokenBucket) -> Self {
        let charge = charges(&[(0, 1, 1, false)], &[Limit::TokenBucket(limit)])[0];
        Self { connection, charge }
    }

    fn key(&self) -> String {
        script::key(PREFIX, self.charge.bucket, &rules()[0])
    }

    fn run(&mut self, call: Vec<u8>, now: u64) -> Vec<i64> {
        let key = self.key();
        run_script(self.connection, &[&key], now, (call, Vec::new())).unwrap()
    }

    fn stored(&mut self) -> Option<Vec<u8>> {
        let key = self.key();
        redis::cmd("GET").arg(key).query(self.connection).unwrap()
    }
}

impl SharedBucket for InRedis<'_> {
    fn take(&mut self, units: i64, count: u64, now: u64) -> u64 {
        let charge =
            Charge { cost: (units / self.charge.limit.units(1)).unsigned_abs(), ..self.charge };
        let checks: Vec<Charges> = (0..count).map(|_| vec![charge]).collect();
        let mut batch = Batch::default();
        for check in &checks {
            batch.add(check, &rules(), PREFIX);
        }
        let reply = call(self.connection, &batch, now);
        let answers = batch.read(&reply).unwrap().answers;
        answers.iter().flatten().filter(|answer| answer.allowed()).count() as u64
    }

    fn lend(&mut self, request: &Request, divisor: i64, now: u64) -> Loan {
        let reply = self.run(script::encode_lease(&self.charge, request, divisor, now), now);
        script::read_lease(&self.charge, request, &reply).unwrap().unwrap()
    }

    fn give_back(&mut self, units: i64, taken_at: u64, now: u64) {
        let mut batch = Batch::default();
        let returned = Returned::new(&self.charge.limit, units, taken_at);
        batch.give_back(self.charge.bucket, self.charge.limit, &rules()[0], returned, PREFIX);
        let mut script = invocation();
        script.key(self.key()).arg(now);
        script.arg(batch.encode(now)).arg("").arg(batch.encode_returned());
        script.invoke::<Vec<i64>>(self.connection).unwrap();
    }
}

#[test]
fn gateways_with_leases_in_redis_never_exceed_the_limit() {
    let server = RedisServer::start(&[]);
    let connection = RefCell::new(server.client().get_connection().unwrap());
    let mut runner = TestRunner::new(with_cases(300));
    let ran = runner.run(&schedule(120), |schedule| {
        let connection = &mut *connection.borrow_mut();
        redis::cmd("FLUSHALL").query::<()>(connection).unwrap();
        let mut bucket = InRedis::new(connection, schedule.limit);
        prop_assert_eq!(excess(&schedule, &mut bucket), 0);
        Ok(())
    });
    ran.unwrap();
}

/// One call.
#[derive(Clone, Copy, Debug)]
enum Step {
    Take(u64),
    Lend { request: Request, divisor: i64 },
    Adjust(Adjustment),
    Settle(i64),
    GiveBack { units: i64, us: u64 },
}

fn step() -> impl Strategy<Value = Step> {
    let units = || prop_oneof![2 => Just(0), 3 => 0..20_000_000_i64, 1 => 0..200_000_000_i64];
    let account = (0..3_u64, units(), units()).prop_map(|(epoch, spent, returned)| Account {
        epoch,
        spent,
        returned,
    });
    let request = (units(), units(), [account.clone(), account])
        .prop_map(|(wanted, least, accounts)| Request { wanted, least, accounts });
    prop_oneof![
        3 => (1..40_u64).prop_map(Step::Take),
        5 => (request, 1..8_i64).prop_map(|(request, divisor)| Step::Lend { request, divisor }),
        1 => prop_oneof![Just(Adjustment::Reset), (1..40_u64).prop_map(Adjustment::Grant)]
            .prop_map(Step::Adjust),
        1 => (0..50_000_000_i64).prop_map(Step::Settle),
        1 => (0..50_000_000_i64, 0..1_000_000_u64)
            .prop_map(|(units, us)| Step::GiveBack { units, us }),
    ]
}

/// The bucket in the units of another limit.
fn rescaled(mut stored: LentBucket, limit: &TokenBucket, was_full: i64) -> LentBucket {
    stored.bucket = limit.rescaled(stored.bucket, was_full);
    if was_full != limit.full() {
        #[allow(clippy::cast_precision_loss, clippy::cast_possible_truncation)]
        let scaled =
            |lent: i64| (lent as f64 / was_full as f64 * limit.full() as f64).ceil() as i64;
        stored.lent = stored.lent.map(scaled);
    }
    stored
}

/// The bucket as it is stored.
#[allow(clippy::cast_precision_loss)]
fn encode(kept: &LentBucket, limit: &TokenBucket) -> Vec<u8> {
    let Bucket { level, at } = kept.bucket;
    let mut numbers = vec![level as f64, at as f64, limit.full() as f64];
    if kept.lent != [0, 0] {
        numbers.extend(kept.lent.map(|lent| lent as f64));
    }
    numbers.iter().flat_map(|number| number.to_le_bytes()).collect()
}

/// The reference of what is stored: the bucket and its limit.
struct Expected(Option<(LentBucket, TokenBucket)>);

impl Expected {
    /// The bucket at `now`, and whether it is written in any case.
    fn read(&self, limit: &TokenBucket, now: u64) -> (LentBucket, bool) {
        let Some((stored, was)) = self.0 else { return (LentBucket::full(limit, now), false) };
        let is_changed = was.full() != limit.full() || stored.bucket.at > now + CLOCK_SLACK_US;
        (rescaled(stored, limit, was.full()).refilled(limit, now, Refill::Exact), is_changed)
    }
}

fn run_step(bucket: &mut InRedis<'_>, expected: &mut Expected, step: Step, now: u64) {
    let charge = bucket.charge;
    let Limit::TokenBucket(limit) = charge.limit else { panic!() };
    let (mut kept, mut is_written) = expected.read(&limit, now);
    match step {
        Step::Take(count) => {
            let one = limit.units(1);
            let took = (0..count).take_while(|_| kept.take(one)).count() as u64;
            assert_eq!(bucket.take(one, count, now), took, "{step:?} at {now}");
            is_written |= took > 0;
        }
        Step::Lend { mut request, divisor } => {
            // Accounts of this epoch, of the one before, and of one that is over.
            let epoch = kept.bucket.at / EPOCH_US;
            for account in &mut request.accounts {
                account.epoch = epoch - account.epoch;
            }
            let is_known = request.accounts.iter().any(|one| epoch - one.epoch < 2);
            let loan = kept.lend(&limit, &request, divisor);
            assert_eq!(bucket.lend(&request, divisor, now), loan, "{step:?} at {now}");
            is_written |= is_known || loan.units > 0;
        }
        Step::Adjust(adjustment) => {
            let call =
                script::encode_adjust(&[charge], adjustment, now, |_| Statement::NONE, false);
            let before = kept.bucket.level;
            let room = limit.full() - kept.lent[0] - kept.lent[1];
            kept.bucket.level = before.saturating_add(adjustment.units(&charge.limit)).min(room);
            let reply = bucket.run(call, now);
            let levels = Some((before, kept.bucket.level));
            assert_eq!(script::read_adjust(&[charge], &reply), Ok(vec![levels]));
            is_written = true;
        }
        Step::GiveBack { units, us } => {
            let before = kept;
            kept.give_back(&limit, units, now - us);
            is_written |= units > limit.units_in(us);
            assert!(kept.bucket.level >= before.bucket.level.min(limit.full()), "{before:?}");
            bucket.give_back(units, now - us, now);
        }
        Step::Settle(units) => {
            let mut batch = Batch::default();
            batch.settle(charge.bucket, charge.limit, &rules()[0], units, PREFIX);
            call(bucket.connection, &batch, now);
            kept.bucket = kept.bucket.less_debt(&charge.limit, units);
            is_written = true;
        }
    }
    if is_written {
        expected.0 = Some((kept, limit));
    }
    let peeked = bucket.run(script::encode_peek(&[charge], now), now);
    let level = script::read_peek(&[charge], &peeked).unwrap()[0].map(|read| read.level);
    assert_eq!(level, Some(expected.read(&limit, now).0.bucket.level), "{step:?} at {now}");
    let bytes = expected.0.map(|(kept, limit)| encode(&kept, &limit));
    assert_eq!(bucket.stored(), bytes, "{step:?} at {now}");
}

/// A bucket from which nothing is lent is stored as it was before there were leases.
#[test]
fn script_and_reference_agree_on_buckets_from_which_gateways_borrow() {
    let server = RedisServer::start(&[]);
    let connection = RefCell::new(server.client().get_connection().unwrap());
    let clock = prop_oneof![
        4 => 0..900_000_i64,
        2 => 0..6_000_000_i64,
        1 => -900_000..0_i64,
        1 => -30_000_000..-1_100_000_i64,
    ];
    let limit = (1..50_u64, 300_000..3_000_000_u64, 4..200_u64);
    let limit = limit.prop_map(|(tokens, us, burst)| TokenBucket::new(tokens, us, burst).unwrap());
    let limits = prop::collection::vec(limit, 2);
    let steps = prop::collection::vec((clock, step(), prop::bool::weighted(0.1)), 1..40);
    let mut runner = TestRunner::new(with_cases(400));
    let ran = runner.run(&(limits, steps), |(limits, steps)| {
        let connection = &mut *connection.borrow_mut();
        redis::cmd("FLUSHALL").query::<()>(connection).unwrap();
        let mut expected = Expected(None);
        let (mut now, mut current) = (1_000 * MICROS_PER_SECOND, 0);
        for (clock, step, changes) in steps {
            now = now.saturating_add_signed(clock);
            current = (current + usize::from(changes)) % 2;
            let mut bucket = InRedis::new(connection, limits[current]);
            run_step(&mut bucket, &mut expected, step, now);
        }
        Ok(())
    });
    ran.unwrap();
}

/// The key outlives what is lent, and the refill afterwards.
#[test]
fn key_of_a_bucket_expires_after_what_is_lent() {
    let server = RedisServer::start(&[]);
    let connection = &mut server.client().get_connection().unwrap();
    let mut bucket = InRedis::new(connection, TokenBucket::new(100, 1_000_000, 100).unwrap());
    let request = Request { wanted: 250_000, ..Request::default() };
    let loan = bucket.lend(&request, 1, 7 * MICROS_PER_SECOND);
    assert_eq!((loan.units, loan.epoch, loan.valid_us), (250_000, 3, 3_000_000));
    assert_eq!(bucket.stored().unwrap().len(), 40);
    let key = bucket.key();
    let left: u64 = redis::cmd("PTTL").arg(key).query(bucket.connection).unwrap();
    // Two epochs, a second by which clocks may differ, 250 ms of refill, and a second.
    assert!((6_000..=6_250).contains(&left), "{left} ms");
}

/// Replies stay within what gateways accept, and a call repairs what it writes.
#[test]
fn no_stored_value_of_a_bucket_with_units_lent_breaks_the_script() {
    let server = RedisServer::start(&[]);
    let connection = RefCell::new(server.client().get_connection().unwrap());
    let now = 1_000 * MICROS_PER_SECOND;
    let number = || {
        prop_oneof![
            3 => (-10_000_000..10_000_000_i32).prop_map(f64::from),
            1 => -4.0..4.0_f64,
            1 => any::<f64>(),
            1 => prop::sample::select(&[f64::NAN, f64::INFINITY, -1e300, 9e15, 1e300][..]),
        ]
    };
    let at = prop_oneof![3 => 990e6..1_010e6_f64, 1 => any::<f64>(), 1 => Just(f64::NAN)];
    let full = prop_oneof![3 => Just(5_000_000.0), 1 => 1.0..9e6_f64, 1 => number()];
    let units = 0..3_000_000_i64;
    let case = ((number(), at, full), (number(), number()), units);
    let mut runner = TestRunner::new(with_cases(1_000));
    let ran = runner.run(&case, |((level, at, full), (lent, before), units)| {
        let connection = &mut *connection.borrow_mut();
        let numbers = [level, at, full, lent, before];
        let stored: Vec<u8> = numbers.iter().flat_map(|one| one.to_le_bytes()).collect();
        let limit = TokenBucket::new(10, 1_000_000, 50).unwrap();
        let mut bucket = InRedis::new(connection, limit);
        let (key, charge) = (bucket.key(), bucket.charge);
        redis::cmd("SET").arg(&key).arg(&stored).query::<()>(bucket.connection).unwrap();
        let peeked = bucket.run(script::encode_peek(&[charge], now), now);
        let level = script::read_peek(&[charge], &peeked).unwrap()[0].unwrap().level;
        let account = Account { epoch: now / EPOCH_US, spent: units, returned: units };
        let request = Request { wanted: units, least: 1, accounts: [account, account] };
        let loan = bucket.lend(&request, 2, now);
        prop_assert!(loan.level + loan.units <= limit.full());
        prop_assert!(loan.units <= (level + 2 * units).max(0) / 2);
        bucket.take(limit.units(1), 9, now);
        prop_assert!([24, 40].contains(&bucket.stored().unwrap().len()));
        Ok(())
    });
    ran.unwrap();
}
