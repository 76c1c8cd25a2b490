//! What is in buckets in Redis, for people who ask. Only `GET` and `TIME` are sent, so that nothing
//! there can change; `lua/take.lua` would write the level of a bucket whose rule has changed. The
//! answers of one call, one behind the other, are not quite of one instant: what others take
//! meanwhile may be seen in one bucket and not in another.

use std::time::Duration;

use redis::{RedisResult, Value};

use super::{Batcher, Undecided};
use crate::clock;
use crate::limit::MICROS_PER_SECOND;
use crate::limit::bucket::Bucket;
use crate::limit::charge::Charge;
use crate::store::redis::class::{ErrorClass, classify};
use crate::store::redis::script::{self, RuleName};

/// How long a person waits.
pub const PATIENCE: Duration = Duration::from_secs(1);

impl Batcher {
    /// The buckets as they are, what this process owes them taken off; none where a key of another
    /// type stands in a bucket's place. Takes nothing, and tells the breaker nothing: it is there
    /// for requests. `rules` are those of the policy that the charges come from, by index.
    ///
    /// # Errors
    /// Redis does not answer, or not within `patience`.
    pub async fn look(
        &self,
        charges: &[Charge],
        rules: &[RuleName],
        patience: Duration,
    ) -> Result<Vec<Option<Bucket>>, Undecided> {
        let mut line = self.link.current().ok_or(Undecided::NotAsked)?;
        let mut commands = redis::pipe();
        // One key's error is that bucket's own.
        commands.ignore_errors().cmd("TIME");
        for charge in charges {
            let rule = rules.get(charge.rule as usize).ok_or(Undecided::NotAsked)?;
            commands.cmd("GET").arg(script::key(&self.prefix, charge.bucket, rule));
        }
        let asked = commands.query_async::<Vec<Value>>(&mut line.redis);
        let replies = tokio::time::timeout(patience, asked).await;
        let Ok(Ok((now, kept))) = replies.map(|replies| replies.and_then(read)) else {
            return Err(Undecided::NotAsked);
        };
        let each = charges.iter().zip(kept).map(|(charge, kept)| {
            // As the next call would: what is owed goes off first.
            let owed = self.debts.owed(charge.bucket, &charge.limit, clock::now());
            let bucket = bucket(charge, kept?.as_deref(), now);
            Some(if owed > 0 { bucket.owing(&charge.limit, owed) } else { bucket })
        });
        Ok(each.collect())
    }
}

/// What is kept in a bucket's place, if anything; none where it is of another type.
type Kept = Option<Option<Vec<u8>>>;

/// The time in ticks, and what is kept of each bucket.
fn read(replies: Vec<Value>) -> RedisResult<(u64, Vec<Kept>)> {
    let mut replies = replies.into_iter();
    let time = replies.next().unwrap_or(Value::Nil).extract_error()?;
    let (seconds, micros): (u64, u64) = redis::from_redis_value(time)?;
    let kept: RedisResult<Vec<Kept>> = replies.map(read_one).collect();
    Ok((seconds.saturating_mul(MICROS_PER_SECOND).saturating_add(micros), kept?))
}

fn read_one(reply: Value) -> RedisResult<Kept> {
    match reply.extract_error() {
        Ok(kept) => Ok(Some(redis::from_redis_value(kept)?)),
        Err(error) if classify(&error) == ErrorClass::WrongType => Ok(None),
        Err(error) => Err(error),
    }
}

/// A bucket at `now`, as `lua/take.lua` reads it: a missing one is full.
pub(super) fn bucket(charge: &Charge, kept: Option<&[u8]>, now: u64) -> Bucket {
    let limit = &charge.limit;
    kept.map_or_else(|| Bucket::full(limit, now), |kept| limit.decode(kept, now))
}

#[cfg(test)]
pub(super) mod tests {
    use std::cell::RefCell;
    use std::sync::Arc;

    use proptest::prelude::*;
    use proptest::test_runner::{Config, TestRunner};

    use super::*;
    use crate::limit::Limit;
    use crate::limit::charge::{self, BucketId, Mode};
    use crate::limit::share::Share;
    use crate::policy::OnFailure;
    use crate::store::redis::fixture::RedisServer;
    use crate::store::redis::script::Batch;

    const NOW: u64 = 1_800_000_000_000_000;

    /// What may stand in a bucket's place: buckets of this limit and of others, of times around
    /// now, and what no gateway ever wrote.
    pub(in crate::store::redis::batch) fn kept() -> impl Strategy<Value = Vec<u8>> {
        let number = prop_oneof![
            4 => (-10_000_000..20_000_000_i32).prop_map(f64::from),
            1 => any::<f64>(),
            1 => Just(f64::NAN),
            1 => Just(-1e12),
            1 => -4_000.0..4.0_f64,
        ];
        let at = prop_oneof![
            4 => (-3_000_000..3_000_000_i32).prop_map(|ticks| 1.8e15 + f64::from(ticks)),
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

    /// Whatever stands in Redis, what is told of it is what the script would say.
    #[test]
    fn a_bucket_is_read_as_the_script_reads_it() {
        let server = RedisServer::start(&[]);
        let connection = RefCell::new(server.client().get_connection().unwrap());
        let limit = Limit::token_bucket(10, MICROS_PER_SECOND, 50).unwrap();
        let (bucket_id, mode) = (BucketId(7), Mode::Enforce);
        let charge = Charge { bucket: bucket_id, rule: 0, limit_index: 0, limit, cost: 1, mode };
        let on_failure = OnFailure::Local;
        let rules = [RuleName { name: Arc::from("r"), salt: 0, on_failure }];
        let key = script::key("t:", bucket_id, &rules[0]);
        let mut batch = Batch::default();
        batch.add(&[charge], &rules, "t:");
        let mut runner = TestRunner::new(Config { cases: 2_000, ..Config::default() });
        let ran = runner.run(&kept(), |kept| {
            let connection = &mut *connection.borrow_mut();
            redis::cmd("SET").arg(&key).arg(&kept).query::<()>(connection).unwrap();
            let mut buckets = [bucket(&charge, Some(&kept), NOW)];
            let told = charge::take(&[charge], &mut buckets, Share::WHOLE);
            let mut call = redis::cmd("EVAL");
            call.arg(script::SOURCE).arg(1).arg(&key).arg(NOW).arg(batch.asked().as_slice());
            let reply: Vec<i64> = call.query(connection).unwrap();
            prop_assert_eq!(batch.read(&reply).unwrap().answers, [Some(told)]);
            Ok(())
        });
        ran.unwrap();
    }
}
