//! Named records and a lock in Redis, on a connection that no check uses. Gateways that share Redis
//! share their automatic certificates by them.
//!
//! They need no more rights of the user than checks do: a record is removed by a lifetime of 1 ms.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures_util::future::join_all;
use redis::{Cmd, FromRedisValue, Value};
use tokio::sync::Mutex;
use tokio::time::timeout;

use super::cluster::topology;
use super::connect::{self, NewConnection, STEP_TIMEOUT};
use super::error::ConnectError;
use super::watch::CallResult;
use crate::base::blocking::BlockingCalls;
use crate::net::address::HostPort;
use crate::net::lookup::{Resolver, system_resolver};
use crate::policy::redis::{Address, Redis};
use crate::store::redis::class::{ErrorClass, classify};
use crate::store::redis::cluster::slots::slot_of_key;
use crate::store::redis::cluster::topology::Topology;

/// Extends the lock for its holder: sets the lifetime of the key (milliseconds) if its value is the
/// holder's. Returns 1 if it did.
const EXTEND: &str = "if redis.call('GET', KEYS[1]) == ARGV[1] then \
                      return redis.call('PEXPIRE', KEYS[1], ARGV[2]) else return 0 end";

/// Writes a record if it is still as it was read; one that is missing is empty. Returns 1 if it
/// did.
const REPLACE: &str = "if (redis.call('GET', KEYS[1]) or '') == ARGV[1] then \
                       redis.call('SET', KEYS[1], ARGV[2]) return 1 else return 0 end";

/// Reads and writes records. Calls run one after the other.
pub struct Records {
    settings: Redis,
    resolver: Resolver,
    /// Threads that read certificates.
    reads: BlockingCalls,
    /// The connections that the next calls use.
    connections: Mutex<Connections>,
    /// How many connections have been opened.
    opened: AtomicU64,
}

/// Open connections.
#[derive(Default)]
struct Connections {
    /// Masters of a cluster, once they are known.
    topology: Option<Topology>,
    /// The connections and, in a cluster, their masters.
    open: Vec<(Option<HostPort>, NewConnection)>,
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
        Self {
            settings,
            resolver,
            reads: BlockingCalls::default(),
            connections: Mutex::default(),
            opened: AtomicU64::new(0),
        }
    }

    /// How many connections have been opened so far. If it has grown, Redis may have lost records
    /// since the call before.
    pub fn opened(&self) -> u64 {
        self.opened.load(Ordering::Relaxed)
    }

    /// Reads a record; `None` if there is none.
    ///
    /// # Errors
    /// See [`RecordsError`].
    pub async fn get(&self, name: &str) -> Result<Option<Vec<u8>>, RecordsError> {
        self.call(name, redis::cmd("GET").arg(self.key(name))).await
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
        self.call::<redis::Value>(name, &command).await.map(drop)
    }

    /// Writes a record, which never expires, if it still has the content `before`; empty: there is
    /// none. Returns whether it was written.
    ///
    /// # Errors
    /// See [`RecordsError`]. The record may be written.
    pub async fn replace(
        &self,
        name: &str,
        before: &[u8],
        content: &[u8],
    ) -> Result<bool, RecordsError> {
        let mut command = redis::cmd("EVAL");
        command.arg(REPLACE).arg(1).arg(self.key(name)).arg(before).arg(content);
        Ok(self.call::<i64>(name, &command).await? == 1)
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
        let reply: Option<String> = self.call(name, &command).await?;
        Ok(reply.is_some())
    }

    /// Holds the lock until `lifetime` from now is over; with a lifetime of zero, releases it.
    /// Returns whether `holder` still had it.
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
        Ok(self.call::<i64>(name, &command).await? == 1)
    }

    /// Sends commands at once, each of one key, and returns their replies in order. After an error,
    /// it is unknown whether a command was run.
    ///
    /// # Errors
    /// See [`RecordsError`]. Of the whole call: there is no connection.
    pub async fn call_all(
        &self,
        commands: &[Cmd],
    ) -> Result<Vec<Result<Value, RecordsError>>, RecordsError> {
        let mut connections = self.connections.lock().await;
        let mut masters = Vec::with_capacity(commands.len());
        for command in commands {
            masters.push(self.open(&mut connections, &key_of(command)).await?);
        }
        let calls = masters.iter().zip(commands).map(|(master, command)| {
            let found = connections.open.iter().find(|(at, _)| at == master);
            async move {
                match found {
                    Some((_, fresh)) => reply(fresh, command).await,
                    None => (Err(RecordsError::closed()), false),
                }
            }
        });
        let replies = join_all(calls).await;
        for (master, (_, is_usable)) in masters.iter().zip(&replies) {
            if !is_usable {
                connections.close(master.as_ref());
            }
        }
        Ok(replies.into_iter().map(|(reply, _)| reply).collect())
    }

    /// Opens a connection to the server that has a key, unless there is one. Returns its master in
    /// a cluster.
    async fn open(
        &self,
        connections: &mut Connections,
        key: &[u8],
    ) -> Result<Option<HostPort>, ConnectError> {
        let master = match &self.settings.address {
            Address::Cluster(nodes) => {
                if connections.topology.is_none() {
                    let asked =
                        topology(&self.settings, nodes, &self.resolver, &self.reads).await?;
                    connections.topology = Some(asked);
                }
                let slot = slot_of_key(key);
                let known = connections.topology.as_ref();
                let master = known.and_then(|topology| topology.master_of(slot)).cloned();
                if master.is_none() {
                    connections.topology = None;
                    return Err(ConnectError::NoMaster { slot });
                }
                master
            }
            Address::Server(_) | Address::Sentinel(_) | Address::Socket(_) => None,
        };
        connections.open.retain(|(at, fresh)| *at != master || !fresh.is_closed());
        if connections.open.iter().all(|(at, _)| *at != master) {
            let settings = match &master {
                Some(at) => Redis { address: Address::Server(at.clone()), ..self.settings.clone() },
                None => self.settings.clone(),
            };
            let opened = connect::connect(&settings, &self.resolver, &self.reads).await;
            if opened.is_err() {
                connections.topology = None;
            }
            connections.open.push((master.clone(), opened?));
            self.opened.fetch_add(1, Ordering::Relaxed);
        }
        Ok(master)
    }

    /// Key of a record, with the prefix.
    pub fn key(&self, name: &str) -> String {
        format!("{}{name}", self.settings.prefix)
    }

    /// Calls a command on the record `name`.
    async fn call<T: FromRedisValue>(&self, name: &str, command: &Cmd) -> Result<T, RecordsError> {
        let mut connections = self.connections.lock().await;
        let master = self.open(&mut connections, self.key(name).as_bytes()).await?;
        let found = connections.open.iter().position(|(at, _)| *at == master);
        let Some(found) = found else { return Err(RecordsError::closed()) };
        // A connection whose call fails is not kept: it may be that of a server that is gone.
        let (at, mut fresh) = connections.open.swap_remove(found);
        let value = fresh.call("a record", command).await;
        match &value {
            Ok(_) => {
                // Allows the next reply as many bytes as this one.
                fresh.connection.health.note(CallResult::Answered);
                connections.open.push((at, fresh));
            }
            Err(_) => connections.topology = None,
        }
        Ok(value?)
    }
}

impl Connections {
    /// Closes the connection to a master, which may be gone or have lost the slot.
    fn close(&mut self, master: Option<&HostPort>) {
        self.open.retain(|(at, _)| at.as_ref() != master);
        self.topology = None;
    }
}

impl RecordsError {
    fn closed() -> Self {
        Self { text: "the connection was closed".to_owned(), lacks_right: false }
    }
}

fn key_of(command: &Cmd) -> Vec<u8> {
    let mut arguments = command.args_iter().filter_map(|argument| match argument {
        redis::Arg::Simple(bytes) => Some(bytes),
        _ => None,
    });
    let name = arguments.next().unwrap_or_default();
    let before = if name.eq_ignore_ascii_case(b"EVAL") || name.eq_ignore_ascii_case(b"EVALSHA") {
        2
    } else {
        0
    };
    arguments.nth(before).unwrap_or_default().to_vec()
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
