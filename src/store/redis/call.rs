//! The scripts as calls: what is sent for them, and how a probe and a headcount are made of them.

use std::sync::{Arc, LazyLock};

use redis::aio::ConnectionLike;
use redis::{ErrorKind, RedisResult, ServerErrorKind};

use super::append::Entry;
use super::script::{self, BadReply, Batch, RuleName};
use crate::clock;
use crate::limit::TICKS_PER_SECOND;
use crate::limit::charge::{BucketId, Charge, Mode};
use crate::limit::quota::Quota;
use crate::policy::OnFailure;

/// Counts gateways; its head says how.
const ANNOUNCE: &str = include_str!("../../../lua/announce.lua");

/// The name that Redis knows it by.
static ANNOUNCE_SHA: LazyLock<String> =
    LazyLock::new(|| redis::Script::new(ANNOUNCE).get_hash().to_string());

/// Changes buckets by hand; its head says how.
pub(super) const ADJUST: &str = include_str!("../../../lua/adjust.lua");

/// A gateway that was not heard of for so long counts no more.
const SILENT_MS: u64 = 10_000;

/// The name of the bucket that probes take from. No rule of a file can be called so.
const PROBE: &str = "~probe";

/// Runs the script on a batch. Where Redis does not know it, it is sent along up to the tick
/// `ends`: nobody may take for those who have been answered otherwise since.
///
/// # Errors
/// Whatever the server or the connection says.
pub async fn take(
    connection: &mut impl ConnectionLike,
    batch: &Batch,
    ends: u64,
) -> RedisResult<Vec<i64>> {
    let asked = batch.asked();
    let owed = batch.owed();
    let command = |name: &str, script: &str| {
        let mut command = redis::cmd(name);
        command.arg(script).arg(batch.keys().len());
        for key in batch.keys() {
            command.arg(key);
        }
        command.arg("").arg(asked.as_slice());
        if let Some(owed) = &owed {
            command.arg(owed.as_slice());
        }
        command
    };
    match command("EVALSHA", &script::SHA).query_async(connection).await {
        Err(error) if is_unknown(&error) && clock::now() < ends => {
            command("EVAL", script::SOURCE).query_async(connection).await
        }
        reply => reply,
    }
}

/// Takes a token from a bucket that is this process' own: what every check needs works, if this
/// does. Whether there was a token is of no interest. `Ok(Err(_))`: the reply is not the script's.
///
/// # Errors
/// Whatever the server or the connection says.
pub async fn probe(
    connection: &mut impl ConnectionLike,
    prefix: &str,
    process: u64,
) -> RedisResult<Result<(), BadReply>> {
    let Ok(quota) = Quota::new(1, TICKS_PER_SECOND, 1_000) else { return Ok(Ok(())) };
    let (bucket, mode) = (BucketId(u128::from(process)), Mode::Enforce);
    let charge = Charge { bucket, rule: 0, quota_index: 0, quota, cost: 1, mode };
    let rule = RuleName { name: Arc::from(PROBE), salt: 0, on_failure: OnFailure::Local };
    let mut batch = Batch::default();
    batch.add(&[charge], &[rule], prefix);
    let reply = take(connection, &batch, u64::MAX).await?;
    Ok(batch.read(&reply).map(drop))
}

/// Says that this process is there. Returns how many there are.
///
/// # Errors
/// Whatever the server or the connection says.
pub async fn announce(
    connection: &mut impl ConnectionLike,
    prefix: &str,
    process: u64,
) -> RedisResult<u32> {
    let command = |name: &str, script: &str| {
        let mut command = redis::cmd(name);
        command.arg(script).arg(1).arg(format!("{prefix}gateways"));
        command.arg(format!("{process:016x}")).arg(SILENT_MS);
        command
    };
    match command("EVALSHA", &ANNOUNCE_SHA).query_async(connection).await {
        Err(error) if is_unknown(&error) => command("EVAL", ANNOUNCE).query_async(connection).await,
        reply => reply,
    }
}

/// Changes buckets by hand. `asked` is the script's second argument. Sent whole: nobody does this
/// often.
///
/// # Errors
/// Whatever the server or the connection says.
pub async fn adjust(
    connection: &mut impl ConnectionLike,
    keys: &[String],
    asked: &[u8],
) -> RedisResult<Vec<i64>> {
    let mut command = redis::cmd("EVAL");
    command.arg(ADJUST).arg(keys.len()).arg(keys).arg("").arg(asked);
    command.query_async(connection).await
}

/// Appends a record to the stream at `key`, and has the oldest go where there are too many: some
/// more than are to be kept may stay, since they go in blocks.
///
/// # Errors
/// Whatever the server or the connection says.
pub async fn append(
    connection: &mut impl ConnectionLike,
    key: &str,
    entry: &Entry,
) -> RedisResult<()> {
    let mut command = redis::cmd("XADD");
    command.arg(key).arg("MAXLEN").arg("~").arg(entry.keep).arg("*");
    for (name, value) in &entry.fields {
        command.arg(name).arg(value);
    }
    command.query_async(connection).await
}

/// Whether Redis does not know the script (a restart, `SCRIPT FLUSH`). Then it is sent along: one
/// more round trip, once, and no other command than the one that the next master needs too.
fn is_unknown(error: &redis::RedisError) -> bool {
    error.kind() == ErrorKind::Server(ServerErrorKind::NoScript)
}
