//! Named records and a lock in Redis, on a connection that no check uses. Gateways that share Redis share
//! their automatic certificates by them.
//!
//! They need no more rights of the user than checks do: a record is removed by a lifetime of 1 ms.

use std::time::Duration;

use redis::{Cmd, FromRedisValue};
use tokio::sync::Mutex;

use super::connect::{self, NewConnection};
use super::error::ConnectError;
use super::watch::CallResult;
use crate::blocking::BlockingCalls;
use crate::net::lookup::{Resolver, system_resolver};
use crate::policy::redis::Redis;

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
#[error("{0}")]
pub struct RecordsError(String);

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

    fn key(&self, name: &str) -> String {
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
        let (value, fresh) = result.map_err(|error| RecordsError(error.to_string()))?;
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

/// At least 1: Redis refuses 0.
fn milliseconds(lifetime: Duration) -> u64 {
    u64::try_from(lifetime.as_millis()).unwrap_or(u64::MAX).max(1)
}
