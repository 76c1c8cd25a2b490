//! Commands that are sent to Redis: the script of checks, probes, and records for a stream.

use std::borrow::Cow;
use std::sync::Arc;

use redis::aio::ConnectionLike;
use redis::{Cmd, ErrorKind, RedisResult, ServerErrorKind};

use super::append::StreamEntry;
use super::class::ErrorClass;
use super::script::{self, BadReply, Batch};
use crate::base::clock;
use crate::base::duration::MICROS_PER_SECOND;
use crate::limit::Limit;
use crate::limit::charge::{BucketId, Charge, Mode};
use crate::policy::{Lease, OnFailure};
use crate::store::rule::StoredRule;

/// Rate and burst of the bucket of probes, per second: more than there can be probes.
const PROBES_PER_SECOND: u64 = 1_000_000;

/// Rule name of the bucket of probes, which no configured rule can have.
const PROBE: &str = "~probe";

/// Why checks would not work although Redis has answered the probe.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ProbeError {
    /// The script does not return this reply.
    #[error("{BadReply}")]
    Malformed,
    /// The key of the probe's bucket holds a value of another type.
    #[error("the key of its bucket holds another type of value")]
    Unreadable,
    /// The probe's bucket was short, so nothing was written.
    #[error("its bucket is empty, and was not written")]
    Unwritten,
}

impl ProbeError {
    /// Class of error that it counts as.
    pub fn class(self) -> ErrorClass {
        match self {
            Self::Malformed => ErrorClass::Parse,
            Self::Unreadable => ErrorClass::WrongType,
            Self::Unwritten => ErrorClass::Script,
        }
    }
}

/// Takes the tokens of a batch. If Redis does not know the script, it is sent with a second call,
/// but not after `ends` (microseconds): the checks may have been decided locally since.
///
/// # Errors
/// Any error of the server or the connection.
pub async fn take(
    connection: &mut impl ConnectionLike,
    batch: &Batch,
    ends: u64,
) -> RedisResult<Vec<i64>> {
    take_claiming(connection, batch, batch.encode_claims(), ends).await
}

/// Like [`take`], with these claims (`ARGV[5]`) instead of those of the batch.
///
/// # Errors
/// Any error of the server or the connection.
pub async fn take_claiming(
    connection: &mut impl ConnectionLike,
    batch: &Batch,
    claims: Vec<u8>,
    ends: u64,
) -> RedisResult<Vec<i64>> {
    run(connection, batch.keys(), Arguments::of(batch, claims), ends).await
}

/// Adjusts or reads buckets. `call` and `debts` are the arguments of the script.
///
/// # Errors
/// Any error of the server or the connection.
pub async fn on_buckets(
    connection: &mut impl ConnectionLike,
    keys: &[String],
    call: &[u8],
    debts: &[u8],
) -> RedisResult<Vec<i64>> {
    let (call, debts) = (Cow::Borrowed(call), Cow::Borrowed(debts));
    let arguments = Arguments { call, debts, ..Arguments::default() };
    run(connection, keys.iter().map(String::as_str), arguments, u64::MAX).await
}

/// Arguments of the script, after the current time.
#[derive(Default)]
struct Arguments<'a> {
    call: Cow<'a, [u8]>,
    debts: Cow<'a, [u8]>,
    returned: Vec<u8>,
    claims: Vec<u8>,
}

impl Arguments<'_> {
    /// Those that take the tokens of a batch now, with these claims.
    fn of(batch: &Batch, claims: Vec<u8>) -> Self {
        Self {
            call: Cow::Owned(batch.encode(clock::now())),
            debts: Cow::Owned(batch.encode_debts()),
            returned: batch.encode_returned(),
            claims,
        }
    }

    /// A call of the script by `name` (`EVALSHA` or `EVAL`).
    fn command<'a>(
        &self,
        (name, script): (&str, &str),
        keys: impl ExactSizeIterator<Item = &'a str>,
    ) -> Cmd {
        let mut command = redis::cmd(name);
        command.arg(script).arg(keys.len());
        for key in keys {
            command.arg(key);
        }
        command.arg("").arg(&*self.call);
        // Arguments at the end may be absent.
        let more = [&*self.debts, &*self.returned, &*self.claims];
        let last = more.iter().rposition(|argument| !argument.is_empty());
        for argument in more.iter().take(last.map_or(0, |last| last + 1)) {
            command.arg(*argument);
        }
        command
    }
}

/// Takes the tokens of a batch at a node that imports its slot, with these claims: the first of a
/// call to it has to say that the cluster sent it there.
///
/// # Errors
/// Any error of the server or the connection.
pub async fn take_asking(
    connection: &mut impl ConnectionLike,
    batch: &Batch,
    claims: Vec<u8>,
) -> RedisResult<Vec<i64>> {
    // By its source: a second round trip would need the permission again.
    let command = Arguments::of(batch, claims).command(("EVAL", script::SOURCE), batch.keys());
    let mut asking = redis::pipe();
    asking.cmd("ASKING").ignore().add_command(command);
    // Each reply with its own error: the error of a pipeline lacks the address of a redirection.
    let replies: Vec<RedisResult<Vec<i64>>> =
        asking.ignore_errors().query_async(connection).await?;
    replies.into_iter().next_back().unwrap_or_else(|| Ok(Vec::new()))
}

/// Runs the script by its SHA-1. If Redis does not have it, sends its source, unless `ends` is
/// over.
async fn run<'a>(
    connection: &mut impl ConnectionLike,
    keys: impl ExactSizeIterator<Item = &'a str> + Clone,
    arguments: Arguments<'_>,
    ends: u64,
) -> RedisResult<Vec<i64>> {
    let command = |name, script| arguments.command((name, script), keys.clone());
    match command("EVALSHA", &script::SHA).query_async(connection).await {
        Err(error) if is_unknown(&error) && clock::now() < ends => {
            command("EVAL", script::SOURCE).query_async(connection).await
        }
        reply => reply,
    }
}

/// Sends a probe: takes a token from this process' probe bucket, which always holds one, so that
/// the script reads and writes as for a check. `Ok(Err(_))` means that Redis answered, but a check
/// would fail.
///
/// # Errors
/// Any error of the server or the connection.
pub async fn probe(
    connection: &mut impl ConnectionLike,
    prefix: &str,
    process: u64,
) -> RedisResult<Result<(), ProbeError>> {
    let limit = Limit::token_bucket(PROBES_PER_SECOND, MICROS_PER_SECOND, PROBES_PER_SECOND);
    let Ok(limit) = limit else { return Ok(Ok(())) };
    let (bucket, mode) = (BucketId(u128::from(process)), Mode::Enforce);
    let charge = Charge { bucket, rule: 0, limit_index: 0, limit, cost: 1, mode };
    let rule = StoredRule {
        name: Arc::from(PROBE),
        salt: 0,
        on_failure: OnFailure::Local,
        lease: Lease::Off,
        is_leaky: false,
        ban: None,
    };
    let mut batch = Batch::default();
    batch.add(&[charge], &[rule], prefix);
    let reply = take(connection, &batch, u64::MAX).await?;
    let Ok(reply) = batch.read(&reply) else { return Ok(Err(ProbeError::Malformed)) };
    Ok(match reply.answers.first() {
        Some(Some(answer)) if answer.allowed() => Ok(()),
        Some(Some(_)) => Err(ProbeError::Unwritten),
        Some(None) | None => Err(ProbeError::Unreadable),
    })
}

/// Appends a record to the stream at `key`, and removes the oldest above the number to keep. Some
/// more may remain, since Redis removes them in blocks.
///
/// # Errors
/// Any error of the server or the connection.
pub async fn append(
    connection: &mut impl ConnectionLike,
    key: &str,
    entry: &StreamEntry,
) -> RedisResult<()> {
    let mut command = redis::cmd("XADD");
    command.arg(key).arg("MAXLEN").arg("~").arg(entry.keep).arg("*");
    for (name, value) in &entry.fields {
        command.arg(name).arg(value);
    }
    command.query_async(connection).await
}

/// Whether Redis does not know the script, after a restart or `SCRIPT FLUSH`. Then it is sent with
/// `EVAL`: one more round trip, once.
pub(super) fn is_unknown(error: &redis::RedisError) -> bool {
    error.kind() == ErrorKind::Server(ServerErrorKind::NoScript)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::redis::class::classify;
    use crate::store::redis::fixture::RedisServer;

    #[tokio::test]
    async fn probe_fails_unless_a_bucket_is_read_and_written() {
        let server = RedisServer::start(&[]);
        let mut connection = server.client().get_multiplexed_async_connection().await.unwrap();
        let right = |right: &str| {
            let mut command = redis::cmd("ACL");
            command.arg("SETUSER").arg("default").arg(right);
            command
        };
        for probes in 0..2_000 {
            assert_eq!(probe(&mut connection, "t:", 7).await.unwrap(), Ok(()), "{probes}");
        }
        for denied in ["get", "set"] {
            right(&format!("-{denied}")).query_async::<()>(&mut connection).await.unwrap();
            let error = probe(&mut connection, "t:", 7).await.unwrap_err();
            assert_eq!(classify(&error), ErrorClass::NoPermission, "{denied}: {error}");
            right(&format!("+{denied}")).query_async::<()>(&mut connection).await.unwrap();
        }
        let mut keys = redis::cmd("KEYS");
        let keys: Vec<String> = keys.arg("t:*").query_async(&mut connection).await.unwrap();
        let [key] = &keys[..] else { panic!("{keys:?}") };
        redis::cmd("DEL").arg(key).query_async::<()>(&mut connection).await.unwrap();
        redis::cmd("LPUSH").arg(key).arg("x").query_async::<()>(&mut connection).await.unwrap();
        let probed = probe(&mut connection, "t:", 7).await.unwrap();
        assert_eq!(probed, Err(ProbeError::Unreadable));
    }
}
