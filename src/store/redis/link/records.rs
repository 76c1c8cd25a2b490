//! Named records and a lock in Redis, on a connection that no check uses. Gateways that share Redis share
//! their automatic certificates by them.
//!
//! They need no more rights of the user than checks do: a record is removed by a lifetime of 1 ms.

use std::time::Duration;

use futures_util::future::join_all;
use redis::{Cmd, FromRedisValue, Value};
use tokio::sync::Mutex;
use tokio::time::timeout;

use super::connect::{self, NewConnection, STEP_TIMEOUT};
use super::error::ConnectError;
use super::watch::CallResult;
use crate::blocking::BlockingCalls;
use crate::net::lookup::{Resolver, system_resolver};
use crate::policy::redis::Redis;
use crate::store::redis::class::{ErrorClass, classify};

/// Extends the lock for its holder: sets the lifetime of the key (milliseconds) if its value is the
/// holder's. Returns 1 if it did.
const EXTEND: &str = "if redis.call('GET', KEYS[1]) == ARGV[1] then \
                      return redis.call('PEXPIRE', KEYS[1], ARGV[2]) else return 0 end";

/// Reads and writes records. Calls run one after the other.
pub struct Records {
    settings: Redis,
    resolver: Resolver,
    /// Threads that read certificates.
    reads: BlockingCalls,
    /// The connection that the next call uses, if there is one.
    connection: Mutex<Option<NewConnection>>,
}

/// Redis cannot be reached, or refuses the command.
#[derive(Debug, thiserror::Error)]
#[error("{text}")]
pub struct RecordsError {
    text: String,
    /// Whether the gateway's user lacks a right.
    pub lacks_right: bool,
}

impl RecordsError {
    /// The reply is not one of the command.
    pub fn malformed() -> Self {
        Self { text: "the reply is not one of the command".to_owned(), lacks_right: false }
    }
}

impl From<ConnectError> for RecordsError {
    fn from(error: ConnectError) -> Self {
        let lacks_right =
            matches!(&error, ConnectError::Refused { class: ErrorClass::NoPermission, .. });
        Self { text: error.to_string(), lacks_right }
    }
}

impl Records {
    /// Creates a reader and writer of the Redis of `settings`. Does no I/O.
    pub fn new(settings: Redis) -> Self {
        let resolver = system_resolver();
        Self { settings, resolver, reads: BlockingCalls::default(), connection: Mutex::default() }
    }

    /// Reads a record; `None` if there is none.
    ///
    /// # Errors
    /// See [`RecordsError`].
    pub async fn get(&self, name: &str) -> Result<Option<Vec<u8>>, RecordsError> {
        self.call(redis::cmd("GET").arg(self.key(name))).await
    }

    /// Writes a record, which expires after `lifetime`; never without one.
    ///
    /// # Errors
    /// See [`RecordsError`].
    pub async fn set(
        &self,
        name: &str,
        content: &[u8],
        lifetime: Option<Duration>,
    ) -> Result<(), RecordsError> {
        let mut command = redis::cmd("SET");
        command.arg(self.key(name)).arg(content);
        if let Some(lifetime) = lifetime {
            command.arg("PX").arg(milliseconds(lifetime));
        }
        self.call::<redis::Value>(&command).await.map(drop)
    }

    /// Takes the lock for `holder` until `lifetime` is over. Returns whether it was free.
    ///
    /// # Errors
    /// See [`RecordsError`]. The lock may be taken.
    pub async fn lock(
        &self,
        name: &str,
        holder: &str,
        lifetime: Duration,
    ) -> Result<bool, RecordsError> {
        let mut command = redis::cmd("SET");
        command.arg(self.key(name)).arg(holder).arg("NX").arg("PX").arg(milliseconds(lifetime));
        let reply: Option<String> = self.call(&command).await?;
        Ok(reply.is_some())
    }

    /// Holds the lock until `lifetime` from now is over; with a lifetime of zero, releases it. Returns
    /// whether `holder` still had it.
    ///
    /// # Errors
    /// See [`RecordsError`].
    pub async fn extend(
        &self,
        name: &str,
        holder: &str,
        lifetime: Duration,
    ) -> Result<bool, RecordsError> {
        let mut command = redis::cmd("EVAL");
        command.arg(EXTEND).arg(1).arg(self.key(name)).arg(holder).arg(milliseconds(lifetime));
        Ok(self.call::<i64>(&command).await? == 1)
    }

    /// Sends commands at once, each of one key, and returns their replies in order. After an error, it is unknown whether a
    /// command was run.
    ///
    /// # Errors
    /// See [`RecordsError`]. Of the whole call: there is no connection.
    pub async fn call_all(
        &self,
        commands: &[Cmd],
    ) -> Result<Vec<Result<Value, RecordsError>>, RecordsError> {
        let mut kept = self.connection.lock().await;
        let open = kept.take().filter(|fresh| !fresh.is_closed());
        let fresh = match open {
            Some(fresh) => fresh,
            None => connect::connect(&self.settings, &self.resolver, &self.reads).await?,
        };
        let replies = join_all(commands.iter().map(|command| reply(&fresh, command))).await;
        if replies.iter().all(|(_, is_usable)| *is_usable) {
            *kept = Some(fresh);
        }
        Ok(replies.into_iter().map(|(reply, _)| reply).collect())
    }

    /// Key of a record, with the prefix.
    pub fn key(&self, name: &str) -> String {
        format!("{}{name}", self.settings.prefix)
    }

    async fn call<T: FromRedisValue>(&self, command: &Cmd) -> Result<T, RecordsError> {
        let mut kept = self.connection.lock().await;
        // A connection whose call fails is not kept: it may be that of a server that is gone.
        let result = match kept.take() {
            Some(mut fresh) => match fresh.call("a record", command).await {
                Ok(value) => Ok((value, fresh)),
                Err(error) => Err(error),
            },
            None => self.first_call(command).await,
        };
        let (value, fresh) = result?;
        // Allows the next reply as many bytes as this one.
        fresh.connection.health.note(CallResult::Answered);
        *kept = Some(fresh);
        Ok(value)
    }

    async fn first_call<T: FromRedisValue>(
        &self,
        command: &Cmd,
    ) -> Result<(T, NewConnection), ConnectError> {
        let mut fresh = connect::connect(&self.settings, &self.resolver, &self.reads).await?;
        let value = fresh.call("a record", command).await?;
        Ok((value, fresh))
    }
}

/// The reply to a command, and whether the connection can be used again.
async fn reply(fresh: &NewConnection, command: &Cmd) -> (Result<Value, RecordsError>, bool) {
    let mut redis = fresh.connection.redis.clone();
    match timeout(STEP_TIMEOUT, command.query_async(&mut redis)).await {
        Ok(Ok(value)) => {
            // Allows the next reply as many bytes as this one.
            fresh.connection.health.note(CallResult::Answered);
            (Ok(value), true)
        }
        Ok(Err(error)) => {
            let class = classify(&error);
            let text = format!("{}: {}", fresh.address, fresh.secrets.describe(&error));
            let lacks_right = class == ErrorClass::NoPermission;
            // An error of the command says nothing against the connection.
            let is_usable = matches!(class, ErrorClass::NoPermission | ErrorClass::WrongType);
            (Err(RecordsError { text, lacks_right }), is_usable)
        }
        Err(_) => {
            let text = format!("{}: it did not answer within a second", fresh.address);
            (Err(RecordsError { text, lacks_right: false }), false)
        }
    }
}

/// At least 1: Redis refuses 0.
fn milliseconds(lifetime: Duration) -> u64 {
    u64::try_from(lifetime.as_millis()).unwrap_or(u64::MAX).max(1)
}
