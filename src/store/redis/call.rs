//! Commands that are sent to Redis: the script of checks, probes, and records for a stream.

use std::borrow::Cow;
use std::sync::Arc;

use redis::aio::ConnectionLike;
use redis::{Cmd, ErrorKind, RedisResult, ServerErrorKind};

use super::append::StreamEntry;
use super::class::{ErrorClass, classify};
use super::script::{self, BadReply, Batch};
use super::server_clock::ServerClock;
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

/// Until when the script may run a call, in microseconds of the monotonic clock.
#[derive(Clone, Copy)]
pub enum Until<'a> {
    /// Whenever the server gets to it.
    Ever,
    /// The call is not sent after this time. A server that does not respond for a while runs later
    /// what was sent.
    SentBy(u64),
    /// The server, which has this clock, does not run the call after this time: what it asks for
    /// has been decided without it then.
    RunBy(u64, &'a ServerClock),
}

impl Until<'_> {
    fn is_over(self) -> bool {
        match self {
            Self::Ever => false,
            Self::SentBy(ends) | Self::RunBy(ends, _) => clock::now() >= ends,
        }
    }

    /// If a call that was sent at `sent_at` was refused in time for having come too late, the clock
    /// of Redis is not as it was known. Corrects it then, and returns true: the call can be sent
    /// again.
    fn correct_clock(self, reply: &RedisResult<Vec<i64>>, sent_at: u64) -> bool {
        match (expired_at(reply), self) {
            (Some(ran_at), Self::RunBy(_, server)) if !self.is_over() => {
                server.here(ran_at, sent_at..clock::now());
                true
            }
            _ => false,
        }
    }

    /// `ARGV[1]` of a call.
    fn encode(self) -> String {
        let latest = match self {
            Self::Ever | Self::SentBy(_) => None,
            Self::RunBy(ends, server) => server.there(ends),
        };
        latest.map_or_else(String::new, |latest| format!("<{latest}"))
    }
}

/// Takes the tokens of a batch.
///
/// # Errors
/// Any error of the server or the connection.
pub async fn take(
    connection: &mut impl ConnectionLike,
    batch: &Batch,
    until: Until<'_>,
) -> RedisResult<Vec<i64>> {
    take_claiming(connection, batch, batch.encode_claims(), until).await
}

/// Like [`take`], with these claims (`ARGV[5]`) instead of those of the batch.
///
/// # Errors
/// Any error of the server or the connection.
pub async fn take_claiming(
    connection: &mut impl ConnectionLike,
    batch: &Batch,
    claims: Vec<u8>,
    until: Until<'_>,
) -> RedisResult<Vec<i64>> {
    run(connection, batch.keys(), Arguments::of(batch, claims), until).await
}

/// Adjusts or reads buckets. `call` and `debts` are the arguments of the script.
///
/// # Errors
/// Any error of the server or the connection.
pub async fn on_buckets(
    connection: &mut impl ConnectionLike,
    keys: &[String],
    (call, debts): (&[u8], &[u8]),
    until: Until<'_>,
) -> RedisResult<Vec<i64>> {
    let (call, debts) = (Cow::Borrowed(call), Cow::Borrowed(debts));
    let arguments = Arguments { call, debts, ..Arguments::default() };
    run(connection, keys.iter().map(String::as_str), arguments, until).await
}

/// Arguments of the script, after the first one.
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
        until: Until<'_>,
    ) -> Cmd {
        let mut command = redis::cmd(name);
        command.arg(script).arg(keys.len());
        for key in keys {
            command.arg(key);
        }
        command.arg(until.encode()).arg(&*self.call);
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
    until: Until<'_>,
) -> RedisResult<Vec<i64>> {
    // By its source: a second round trip would need the permission again.
    let arguments = Arguments::of(batch, claims);
    let sent_at = clock::now();
    let mut reply =
        ask(connection, arguments.command(("EVAL", script::SOURCE), batch.keys(), until)).await;
    if until.correct_clock(&reply, sent_at) {
        reply =
            ask(connection, arguments.command(("EVAL", script::SOURCE), batch.keys(), until)).await;
    }
    reply
}

/// Makes a call for which the cluster sent it there.
async fn ask(connection: &mut impl ConnectionLike, call: Cmd) -> RedisResult<Vec<i64>> {
    let mut asking = redis::pipe();
    asking.cmd("ASKING").ignore().add_command(call);
    // Each reply with its own error: the error of a pipeline lacks the address of a redirection.
    let replies: Vec<RedisResult<Vec<i64>>> =
        asking.ignore_errors().query_async(connection).await?;
    replies.into_iter().next_back().unwrap_or_else(|| Ok(Vec::new()))
}

/// Runs the script by its SHA-1, or if Redis does not have it, by its source.
async fn run<'a>(
    connection: &mut impl ConnectionLike,
    keys: impl ExactSizeIterator<Item = &'a str> + Clone,
    arguments: Arguments<'_>,
    until: Until<'_>,
) -> RedisResult<Vec<i64>> {
    let command = |name, script| arguments.command((name, script), keys.clone(), until);
    let sent_at = clock::now();
    let mut reply = command("EVALSHA", &script::SHA).query_async(connection).await;
    if reply.as_ref().is_err_and(is_unknown) && !until.is_over() {
        reply = command("EVAL", script::SOURCE).query_async(connection).await;
    }
    if until.correct_clock(&reply, sent_at) {
        reply = command("EVALSHA", &script::SHA).query_async(connection).await;
    }
    reply
}

/// The time by the clock of the server at which it refused the call, since that was too late.
fn expired_at(reply: &RedisResult<Vec<i64>>) -> Option<u64> {
    let error = reply.as_ref().err().filter(|error| classify(error) == ErrorClass::Expired)?;
    error.detail()?.parse().ok()
}

/// Sends a probe: takes a token from this process' probe bucket, which always holds one, so that
/// the script reads and writes as for a check. Returns the Unix time at which Redis ran it, in
/// microseconds by its clock. `Ok(Err(_))` means that Redis answered, but a check would fail.
///
/// # Errors
/// Any error of the server or the connection.
pub async fn probe(
    connection: &mut impl ConnectionLike,
    prefix: &str,
    process: u64,
) -> RedisResult<Result<u64, ProbeError>> {
    let limit = Limit::token_bucket(PROBES_PER_SECOND, MICROS_PER_SECOND, PROBES_PER_SECOND);
    let Ok(limit) = limit else { return Ok(Err(ProbeError::Unwritten)) };
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
    let reply = take(connection, &batch, Until::Ever).await?;
    let Ok(reply) = batch.read(&reply) else { return Ok(Err(ProbeError::Malformed)) };
    Ok(match reply.answers.first() {
        Some(Some(answer)) if answer.allowed() => Ok(reply.decided_at),
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
    use crate::store::redis::fixture::RedisServer;
    use crate::store::rule::rule;

    #[tokio::test]
    async fn call_that_is_run_after_its_time_takes_nothing() {
        let server = RedisServer::start(&[]);
        let mut connection = server.client().get_multiplexed_async_connection().await.unwrap();
        let limit = Limit::token_bucket(1, 86_400_000_000, 5).unwrap();
        let (bucket, mode) = (BucketId(7), Mode::Enforce);
        let charge = Charge { bucket, rule: 0, limit_index: 0, limit, cost: 1, mode };
        let mut batch = Batch::default();
        batch.add(&[charge], &[rule()], "t:");
        let clock = ServerClock::default();
        // The difference of the clocks, exactly: the test runs beside the server.
        let (now, unix_us) = (clock::now(), clock::unix_us());
        clock.here(unix_us, now..now);
        for (ends, is_run) in [(now + 60 * MICROS_PER_SECOND, true), (now.saturating_sub(1), false)]
        {
            let reply = take(&mut connection, &batch, Until::RunBy(ends, &clock)).await;
            let class = reply.as_ref().map_err(classify).err();
            assert_eq!(class, (!is_run).then_some(ErrorClass::Expired));
            let (call, debts) = (script::encode_peek(&[charge], now), []);
            let keys = [script::key("t:", bucket, &rule())];
            let peek = on_buckets(&mut connection, &keys, (&call, &debts), Until::Ever);
            let readings = script::read_peek(&[charge], &peek.await.unwrap()).unwrap();
            assert_eq!(readings[0].unwrap().level.div_euclid(86_400_000_000), 4);
        }
    }

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
            let ran_at = probe(&mut connection, "t:", 7).await.unwrap().unwrap();
            assert!(ran_at.abs_diff(clock::unix_us()) < 60 * MICROS_PER_SECOND, "{probes}");
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
