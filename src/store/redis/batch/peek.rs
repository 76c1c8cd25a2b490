//! Peek: reads buckets in Redis without taking tokens. The script sends only `GET`, `GETRANGE` and
//! `TIME` for it, so nothing can change.

use std::sync::Weak;
use std::time::Duration;

use redis::RedisResult;
use redis::aio::MultiplexedConnection;

use super::{Batcher, Undecided};
use crate::base::clock;
use crate::limit::charge::Charge;
use crate::limit::reading::Reading;
use crate::store::redis::call::{self, Until};
use crate::store::redis::link::Connection;
use crate::store::redis::script;
use crate::store::redis::server_clock::ServerClock;
use crate::store::rule::StoredRule;

/// Timeout of operations that a person waits for.
pub const OPERATOR_TIMEOUT: Duration = Duration::from_secs(1);

impl Batcher {
    /// State of the charges' buckets, less the debts of this process; `None` for a bucket whose key
    /// holds another type. Takes no tokens and has no effect on the circuit breaker. `rules` are
    /// those of the policy that the charges come from, by index.
    ///
    /// # Errors
    /// Redis does not answer, or not within `timeout`.
    pub async fn peek(
        &self,
        charges: &[Charge],
        rules: &[StoredRule],
        timeout: Duration,
    ) -> Result<Vec<Option<Reading>>, Undecided> {
        let mut connection = self.link.current().ok_or(Undecided::NotTaken)?;
        let keys = self.keys_of(charges, rules).ok_or(Undecided::NotTaken)?;
        let owed = |charge: &Charge| self.debts.owed(charge.bucket, &charge.limit, clock::now());
        let debts = (0..u16::MAX).zip(charges).map(|(index, charge)| (index, owed(charge)));
        let debts = script::encode_debts(debts.filter(|(_, units)| *units > 0));
        let call = script::encode_peek(charges, clock::now());
        let reply = self.on_buckets(&mut connection, &keys, (&call, &debts), None);
        match tokio::time::timeout(timeout, reply).await {
            Ok(Ok(numbers)) => {
                script::read_peek(charges, &numbers).map_err(|_| Undecided::NotTaken)
            }
            Ok(Err(_)) | Err(_) => Err(Undecided::NotTaken),
        }
    }

    /// Adjusts or reads buckets: see [`call::on_buckets`]. In a cluster, also at the master that
    /// their slot has moved to. Redis does not run the call after `ends` (microseconds).
    pub(super) async fn on_buckets(
        &self,
        connection: &mut Connection,
        keys: &[String],
        (call, debts): (&[u8], &[u8]),
        ends: Option<u64>,
    ) -> RedisResult<Vec<i64>> {
        let on = async |redis: &mut MultiplexedConnection, clock: &ServerClock| {
            let until = ends.map_or(Until::Ever, |ends| Until::RunBy(ends, clock));
            call::on_buckets(redis, keys, (call, debts), until).await
        };
        let reply = on(&mut connection.redis, self.link.clock()).await;
        let Err(error) = &reply else { return reply };
        let cluster = self.cluster.as_ref().and_then(Weak::upgrade);
        match cluster.and_then(|cluster| cluster.moved_to(error)) {
            Some(mut other) => on(&mut other.connection.redis, other.node.link().clock()).await,
            None => reply,
        }
    }

    /// Keys of the charges' buckets; `None` if a rule is not among `rules`.
    pub(super) fn keys_of(&self, charges: &[Charge], rules: &[StoredRule]) -> Option<Vec<String>> {
        let key = |charge: &Charge| {
            let rule = rules.get(charge.rule as usize)?;
            Some(script::key(self.keys(), charge.bucket, rule))
        };
        charges.iter().map(key).collect()
    }
}

#[cfg(test)]
pub(super) mod tests {
    use std::cell::RefCell;
    use std::sync::Arc;

    use proptest::prelude::*;
    use proptest::test_runner::TestRunner;

    use super::*;
    use crate::base::cases::with_cases;
    use crate::base::duration::MICROS_PER_SECOND;
    use crate::base::now::Now;
    use crate::limit::Limit;
    use crate::limit::charge::{self, BucketId, Mode};
    use crate::limit::reading::Times;
    use crate::limit::share::Share;
    use crate::policy::{Lease, OnFailure};
    use crate::store::redis::fixture::RedisServer;
    use crate::store::redis::parity::invocation;
    use crate::store::redis::script::Batch;

    const NOW: u64 = 1_800_000_000_000_000;

    /// Stored values: buckets of this limit and of others, of times around now, and values that no
    /// gateway writes.
    pub(in crate::store::redis::batch) fn kept() -> impl Strategy<Value = Vec<u8>> {
        let number = prop_oneof![
            4 => (-10_000_000..20_000_000_i32).prop_map(f64::from),
            1 => any::<f64>(),
            1 => Just(f64::NAN),
            1 => Just(-1e12),
            1 => -4_000.0..4.0_f64,
        ];
        let at = prop_oneof![
            4 => (-3_000_000..3_000_000_i32).prop_map(|us| 1.8e15 + f64::from(us)),
            1 => any::<f64>(),
        ];
        let full = prop_oneof![
            3 => Just(5_000_000.0),
            1 => number.clone(),
            1 => 1.0..9e6_f64,
            1 => 1.0..4.0_f64,
            1 => 4_999_999.0..5_000_001.0_f64,
        ];
        let bucket = (number, at, full).prop_map(|(level, at, full)| {
            [level, at, full].iter().flat_map(|number| number.to_le_bytes()).collect()
        });
        prop_oneof![6 => bucket, 1 => prop::collection::vec(any::<u8>(), 0..30)]
    }

    fn run(connection: &mut redis::Connection, key: &str, call: &[u8], debts: &[u8]) -> Vec<i64> {
        invocation().key(key).arg(NOW).arg(call).arg(debts).invoke(connection).unwrap()
    }

    /// For any stored value: a peek equals the reference and writes nothing, and a check then takes
    /// from that level.
    #[test]
    fn peek_returns_the_level_that_a_check_finds_and_writes_nothing() {
        let server = RedisServer::start(&[]);
        let connection = RefCell::new(server.client().get_connection().unwrap());
        let limit = Limit::token_bucket(10, MICROS_PER_SECOND, 50).unwrap();
        let (bucket_id, mode) = (BucketId(7), Mode::Enforce);
        let charge = Charge { bucket: bucket_id, rule: 0, limit_index: 0, limit, cost: 1, mode };
        let on_failure = OnFailure::Local;
        let rules = [StoredRule {
            name: Arc::from("r"),
            salt: 0,
            on_failure,
            lease: Lease::Off,
            is_leaky: false,
            ban: None,
        }];
        let key = script::key("t:", bucket_id, &rules[0]);
        let mut batch = Batch::default();
        batch.add(&[charge], &rules, "t:");
        let mut runner = TestRunner::new(with_cases(2_000));
        let ran = runner.run(&(kept(), prop_oneof![Just(0), 1..20_000_000_i64]), |(kept, owed)| {
            let connection = &mut *connection.borrow_mut();
            redis::cmd("SET").arg(&key).arg(&kept).query::<()>(connection).unwrap();
            let debts = script::encode_debts((owed > 0).then_some((0, owed)).into_iter());
            let mut buckets = [limit.decode(&kept, Now::unix(NOW)).less_debt(&limit, owed)];
            let reply = run(connection, &key, &script::encode_peek(&[charge], 0), &debts);
            let level = buckets[0].level;
            let reading = Reading::new(level, Times::NONE);
            prop_assert_eq!(script::read_peek(&[charge], &reply), Ok(vec![Some(reading)]));
            let stored: Vec<u8> = redis::cmd("GET").arg(&key).query(connection).unwrap();
            let ttl: i64 = redis::cmd("PTTL").arg(&key).query(connection).unwrap();
            prop_assert_eq!((stored, ttl), (kept, -1));
            let expected = charge::take(&[charge], &mut buckets, Share::WHOLE);
            let reply = run(connection, &key, &batch.encode(0), &debts);
            prop_assert_eq!(batch.read(&reply).unwrap().answers, [Some(expected)]);
            Ok(())
        });
        ran.unwrap();
    }
}
