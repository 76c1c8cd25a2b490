//! What is in buckets in Redis, for people who ask. Only `GET` and `TIME` are sent, so that nothing
//! there can change; `lua/take.lua` would write the level of a bucket whose rule has changed. The
//! answers of one call, one behind the other, are not quite of one instant: what others take
//! meanwhile may be seen in one bucket and not in another.

use std::time::Duration;

use redis::{RedisResult, Value};

use super::{Batcher, Undecided};
use crate::limit::TICKS_PER_SECOND;
use crate::limit::bucket::Bucket;
use crate::limit::charge::{self, Answer, Charge};
use crate::limit::quota::MAX_UNITS;
use crate::store::redis::link::watch::Outcome;
use crate::store::redis::script::{self, RuleName};

/// How long a person waits.
const PATIENCE: Duration = Duration::from_secs(1);

impl Batcher {
    /// What Redis would answer to a check now. Takes nothing. `rules` are those of the policy that
    /// the charges come from, by index.
    ///
    /// # Errors
    /// Redis does not answer.
    pub async fn peek(&self, charges: &[Charge], rules: &[RuleName]) -> Result<Answer, Undecided> {
        let mut line = self.link.current().ok_or(Undecided)?;
        let mut commands = redis::pipe();
        commands.cmd("TIME");
        for charge in charges {
            let rule = rules.get(charge.rule as usize).ok_or(Undecided)?;
            commands.cmd("GET").arg(script::key(&self.prefix, charge.bucket, rule));
        }
        let asked = commands.query_async::<Vec<Value>>(&mut line.redis);
        let replies = tokio::time::timeout(PATIENCE, asked).await;
        match replies.map(|replies| replies.and_then(read)) {
            Ok(Ok((now, kept))) => {
                line.note(Outcome::Answered);
                let each = charges.iter().zip(kept);
                let mut buckets: Vec<Bucket> =
                    each.map(|(charge, kept)| bucket(charge, kept.as_deref(), now)).collect();
                Ok(charge::take(charges, &mut buckets))
            }
            Ok(Err(error)) => {
                self.link.failed(&line, &error);
                Err(Undecided)
            }
            Err(_) => {
                line.note(Outcome::TimedOut);
                Err(Undecided)
            }
        }
    }
}

/// The time in ticks, and what is kept of each bucket.
fn read(replies: Vec<Value>) -> RedisResult<(u64, Vec<Option<Vec<u8>>>)> {
    let mut replies = replies.into_iter();
    let time = replies.next().unwrap_or(Value::Nil);
    let (seconds, micros): (u64, u64) = redis::from_redis_value(time)?;
    let kept: Result<Vec<_>, _> = replies.map(redis::from_redis_value).collect();
    Ok((seconds.saturating_mul(TICKS_PER_SECOND).saturating_add(micros), kept?))
}

/// A bucket at `now`, as `lua/take.lua` reads it: what is none is full.
fn bucket(charge: &Charge, kept: Option<&[u8]>, now: u64) -> Bucket {
    let quota = &charge.quota;
    let Some((kept, was_full)) = kept.and_then(unpacked) else { return Bucket::full(quota, now) };
    kept.rescaled(was_full, quota).refilled(quota, now)
}

/// The bucket that 24 bytes hold, and the level of a full one when they were written.
#[allow(
    clippy::cast_possible_truncation,
    clippy::cast_precision_loss,
    clippy::cast_sign_loss,
    reason = "levels are at most 2^53, which doubles have exactly, and ticks fit for 285 years"
)]
fn unpacked(kept: &[u8]) -> Option<(Bucket, u64)> {
    let kept: &[u8; 24] = kept.try_into().ok()?;
    let double = |at: usize| -> Option<f64> {
        Some(f64::from_le_bytes(kept.get(at..at + 8)?.try_into().ok()?))
    };
    let (level, at, full) = (double(0)?, double(8)?, double(16)?);
    // NaN fails every comparison.
    let is_bucket =
        level >= 0.0 && level <= full && full >= 1.0 && full <= MAX_UNITS as f64 && at >= 0.0;
    is_bucket.then(|| (Bucket { level: level as u64, at: at as u64 }, full as u64))
}
