//! For any stored value, the script adjusts a bucket as the core does, and a check then finds the
//! result.

use std::cell::RefCell;

use proptest::prelude::*;
use proptest::test_runner::TestRunner;

use super::*;
use crate::base::cases::with_cases;
use crate::base::now::Now;
use crate::limit::Limit;
use crate::limit::bucket::Bucket;
use crate::limit::charge::{BucketId, Mode};
use crate::limit::concurrency::Statement;
use crate::store::redis::batch::peek;
use crate::store::redis::class::{ErrorClass, classify};
use crate::store::redis::fixture::RedisServer;
use crate::store::redis::parity::invocation;
use crate::store::redis::script::Batch;
use crate::store::rule::rule;

const NOW: u64 = 1_800_000_000_000_000;

fn charge(id: u128) -> Charge {
    let limit = Limit::token_bucket(10, crate::base::duration::MICROS_PER_SECOND, 50).unwrap();
    let bucket = BucketId(id);
    Charge { bucket, rule: 0, limit_index: 0, limit, cost: 1, mode: Mode::Enforce }
}

fn rules() -> [StoredRule; 1] {
    [rule()]
}

fn run(
    connection: &mut redis::Connection,
    charges: &[Charge],
    owed: i64,
    adjustment: Adjustment,
) -> redis::RedisResult<Vec<i64>> {
    let keys: Vec<String> =
        charges.iter().map(|charge| script::key("t:", charge.bucket, &rules()[0])).collect();
    let debts = (0..).zip(charges).map(|(index, _)| (index, owed)).filter(|(_, owed)| *owed > 0);
    let mut call = invocation();
    call.key(&keys).arg(NOW);
    call.arg(script::encode_adjust(charges, adjustment, NOW, |_| Statement::NONE, false));
    call.arg(script::encode_debts(debts)).invoke(connection)
}

#[test]
fn script_adjusts_any_stored_value_as_the_core_does() {
    let server = RedisServer::start(&[]);
    let connection = RefCell::new(server.client().get_connection().unwrap());
    let (charge, rules) = (charge(7), rules());
    let key = script::key("t:", charge.bucket, &rules[0]);
    let mut batch = Batch::default();
    batch.add(&[charge], &rules, "t:");
    let adjustments = prop_oneof![
        1 => Just(Adjustment::Reset),
        3 => (1..100_u64).prop_map(Adjustment::Grant),
        1 => Just(Adjustment::Grant(u64::MAX)),
    ];
    let owed = prop_oneof![Just(0), 1..20_000_000_i64, Just(1_i64 << 53)];
    let mut runner = TestRunner::new(with_cases(1_000));
    let ran = runner.run(&(peek::tests::kept(), adjustments, owed), |(kept, adjustment, owed)| {
        let connection = &mut *connection.borrow_mut();
        redis::cmd("SET").arg(&key).arg(&kept).query::<()>(connection).unwrap();
        let before = charge.limit.decode(&kept, Now::unix(NOW)).less_debt(&charge.limit, owed);
        let after = adjustment.apply(before, &charge.limit);
        let reply = run(connection, &[charge], owed, adjustment).unwrap();
        prop_assert_eq!(read(&[charge], &reply).unwrap(), vec![(before.level, after.level)]);
        prop_assert!((charge.limit.lowest()..=charge.limit.full()).contains(&after.level));

        // A check then takes from that level.
        let mut call = invocation();
        call.key(&key).arg(NOW).arg(batch.encode(NOW));
        let reply: Vec<i64> = call.invoke(connection).unwrap();
        let mut bucket = [Bucket { level: after.level, at: NOW }];
        let charges = [charge];
        let expected =
            crate::limit::charge::take(&charges, &mut bucket, crate::limit::share::Share::WHOLE);
        prop_assert_eq!(batch.read(&reply).unwrap().answers, [Some(expected)]);
        let ttl: i64 = redis::cmd("PTTL").arg(&key).query(connection).unwrap();
        prop_assert!(ttl > 0, "{}", ttl);
        Ok(())
    });
    ran.unwrap();
}

#[test]
fn unreadable_bucket_leaves_all_buckets_unchanged() {
    let server = RedisServer::start(&[]);
    let mut connection = server.client().get_connection().unwrap();
    let charges = [charge(1), charge(2)];
    let key = |charge: &Charge| script::key("t:", charge.bucket, &rules()[0]);
    redis::cmd("LPUSH").arg(key(&charges[1])).arg("x").query::<()>(&mut connection).unwrap();
    let reply = run(&mut connection, &charges, 0, Adjustment::Reset).unwrap();
    assert_eq!(read(&charges, &reply), Err(NotAdjusted::Unreadable(1)));
    let there: bool = redis::cmd("EXISTS").arg(key(&charges[0])).query(&mut connection).unwrap();
    assert!(!there);
    redis::cmd("DEL").arg(key(&charges[1])).query::<()>(&mut connection).unwrap();
    let reply = run(&mut connection, &charges, 100_000, Adjustment::Grant(2));
    let full = charges[0].limit.full();
    assert_eq!(read(&charges, &reply.unwrap()).unwrap(), [(full - 100_000, full); 2]);
}

/// The call fails, since the value is unknown.
#[test]
fn adjust_fails_without_the_permission_to_read() {
    let server = RedisServer::start(&[]);
    let mut connection = server.client().get_connection().unwrap();
    let rights = ["ACL", "SETUSER", "default", "-get"];
    redis::cmd(rights[0]).arg(&rights[1..]).query::<()>(&mut connection).unwrap();
    let charges = [charge(1)];
    let error = run(&mut connection, &charges, 0, Adjustment::Reset).unwrap_err();
    assert_eq!(classify(&error), ErrorClass::NoPermission, "{error}");
}
