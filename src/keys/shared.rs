//! [`SharedRecords`]: records in Redis, on a connection that no check uses. All keys have one hash
//! tag, so that a change is one step in a cluster, too.

use std::collections::HashMap;
use std::sync::Arc;

use redis::{Cmd, FromRedisValue, Value};
use tracing::warn;

use super::changes::{Change, Position};
use super::kept::{KeptError, LookedUp, Replaced, Replacement, Stored};
use super::record::Record;
use crate::base::hash::Digest;
use crate::policy::redis::Redis;
use crate::store::redis::link::records::{Records, RecordsError};

/// Source of `lua/keys.lua`.
const CHANGE: &str = include_str!("../../lua/keys.lua");

/// Source of `lua/find_keys.lua`.
const FIND: &str = include_str!("../../lua/find_keys.lua");

/// Ids in their order, and the record of each.
const LIST: &str = "local ids = redis.call('ZRANGEBYLEX', KEYS[1], ARGV[1], '+', 'LIMIT', 0, ARGV[2]) \
    if #ids == 0 then return { ids, ids } end \
    return { ids, redis.call('HMGET', KEYS[2], unpack(ids)) }";

/// Notes when clients were last used, unless they are removed.
const NOTE_USES: &str = "for at = 2, #ARGV do \
        if redis.call('HGET', KEYS[1], ARGV[at]) then \
            redis.call('HSET', KEYS[2], ARGV[at], ARGV[1]) \
        end \
    end";

/// Number of changes that the stream keeps, about: 50 MB at most, some 10 MB usually.
const MAX_CHANGES: u64 = 50_000;

/// Number of changes in one reply.
const CHANGES_AT_ONCE: usize = 256;

/// Number of changes in one call: its reply, and the time that it takes, are small.
const REPLACED_AT_ONCE: usize = 64;

/// Names of keys in Redis, after the prefix. The part in braces is their hash tag in a cluster.
const DIGESTS: &str = "{keys}:digests";
const RECORDS: &str = "{keys}:records";
const IDS: &str = "{keys}:ids";
const CHANGES: &str = "{keys}:changes";

const USED: &str = "{keys}:used";

/// The same of the ids of one tenant, before its name.
const TENANT: &str = "{keys}:tenant:";

/// Entries of a stream: their ids and fields.
type Entries = Vec<(String, HashMap<String, Vec<u8>>)>;

/// Records in the Redis of the settings.
pub struct SharedRecords {
    /// For look-ups and changes that are read.
    reads: Records,
    /// For operators, who do not make look-ups wait.
    operator: Records,
}

impl From<RecordsError> for KeptError {
    fn from(error: RecordsError) -> Self {
        let help = if error.lacks_right {
            "; the gateway's user lacks a right: see docs/redis.md"
        } else {
            ""
        };
        Self::Redis(format!("{error}{help}"))
    }
}

impl SharedRecords {
    /// Creates it without a connection. Does no I/O.
    pub fn new(redis: &Redis) -> Self {
        Self { reads: Records::new(redis.clone()), operator: Records::new(redis.clone()) }
    }

    /// The records that have these keys, in the same order, and the changes from `position` on.
    ///
    /// # Errors
    /// See [`KeptError`].
    pub async fn look_up(
        &self,
        digests: &[Digest],
        position: Position,
    ) -> Result<LookedUp, KeptError> {
        let mut command = self.script(FIND, &[CHANGES, DIGESTS, RECORDS]);
        let (first, most) = match position {
            Position::Unknown => (String::new(), 1),
            known => (format!("{}-0", known.first_wanted()), CHANGES_AT_ONCE),
        };
        command.arg(first).arg(most);
        command.arg(digests.iter().map(<[u8; 32]>::as_slice).collect::<Vec<_>>());
        let (entries, texts): (Entries, Vec<Vec<u8>>) = call(&self.reads, command).await?;
        if texts.len() != digests.len() {
            return Err(RecordsError::malformed().into());
        }
        let read = |text: Vec<u8>| if text.is_empty() { None } else { readable(&text) };
        let records = texts.into_iter().map(read).collect();
        let may_have_more = entries.len() == CHANGES_AT_ONCE;
        Ok(LookedUp { records, changes: changes(&entries)?, may_have_more })
    }

    /// The records of these clients, in the same order.
    ///
    /// # Errors
    /// See [`KeptError`].
    pub async fn get(&self, ids: &[&str]) -> Result<Vec<Option<Stored>>, KeptError> {
        let mut found = Vec::with_capacity(ids.len());
        for ids in ids.chunks(REPLACED_AT_ONCE) {
            let mut command = redis::cmd("HMGET");
            command.arg(self.operator.key(RECORDS)).arg(ids);
            let texts: Vec<Option<Vec<u8>>> = call(&self.operator, command).await?;
            let texts = texts.into_iter().zip(ids);
            found.extend(texts.map(|(text, id)| text.map(|json| Stored::read(id, json))));
        }
        Ok(found)
    }

    /// Records in the order of their ids, after the id `after`: at most `limit`. Only those of a
    /// tenant, if one is given.
    ///
    /// # Errors
    /// See [`KeptError`].
    pub async fn list(
        &self,
        tenant: Option<&str>,
        after: &str,
        limit: usize,
    ) -> Result<Vec<Stored>, KeptError> {
        let set = tenant.map_or(IDS.to_owned(), set_of_tenant);
        let mut after = after.to_owned();
        loop {
            let mut command = self.script(LIST, &[&set, RECORDS]);
            command.arg(if after.is_empty() { "-".to_owned() } else { format!("({after}") });
            command.arg(limit.min(REPLACED_AT_ONCE));
            let (ids, texts): (Vec<String>, Vec<Option<Vec<u8>>>) =
                call(&self.operator, command).await?;
            let Some(last) = ids.last() else { return Ok(Vec::new()) };
            after.clone_from(last);
            let found = ids.into_iter().zip(texts);
            let found: Vec<Stored> =
                found.filter_map(|(id, json)| Some(Stored::read(&id, json?))).collect();
            if !found.is_empty() {
                return Ok(found);
            }
        }
    }

    /// Number of clients.
    ///
    /// # Errors
    /// See [`KeptError`].
    pub async fn count(&self) -> Result<u64, KeptError> {
        let mut command = redis::cmd("ZCARD");
        command.arg(self.operator.key(IDS));
        call(&self.operator, command).await
    }

    /// When these clients last sent requests, about, in microseconds of Unix time.
    ///
    /// # Errors
    /// See [`KeptError`].
    pub async fn last_uses(&self, ids: &[&str]) -> Result<Vec<Option<u64>>, KeptError> {
        if ids.is_empty() {
            return Ok(Vec::new());
        }
        let mut command = redis::cmd("HMGET");
        command.arg(self.operator.key(USED)).arg(ids);
        let seconds: Vec<Option<u64>> = call(&self.operator, command).await?;
        let us = |seconds: Option<u64>| seconds.map(|seconds| seconds.saturating_mul(1_000_000));
        Ok(seconds.into_iter().map(us).collect())
    }

    /// Notes that these clients have sent requests until `unix_us`.
    ///
    /// # Errors
    /// See [`KeptError`].
    pub async fn note_uses(&self, ids: &[Arc<str>], unix_us: u64) -> Result<(), KeptError> {
        let mut command = self.script(NOTE_USES, &[RECORDS, USED]);
        command.arg(unix_us / 1_000_000);
        for id in ids {
            command.arg(&**id);
        }
        call::<Value>(&self.reads, command).await.map(drop)
    }

    /// Replaces records, each or not.
    ///
    /// # Errors
    /// See [`KeptError`]: each of them may be replaced, or not.
    pub async fn replace(&self, all: &[Replacement]) -> Result<Vec<Replaced>, KeptError> {
        let mut replaced = Vec::with_capacity(all.len());
        for some in all.chunks(REPLACED_AT_ONCE) {
            let commands = some.iter().map(|one| self.replacement(one));
            let commands = commands.collect::<Result<Vec<Cmd>, KeptError>>()?;
            for reply in self.operator.call_all(&commands).await? {
                let reply = i64::from_redis_value(reply?).map_err(|_| RecordsError::malformed())?;
                replaced.push(match reply {
                    1 => Replaced::Done,
                    0 => Replaced::Changed,
                    -1 => Replaced::KeyOfAnother,
                    _ => return Err(RecordsError::malformed().into()),
                });
            }
        }
        Ok(replaced)
    }

    fn replacement(&self, one: &Replacement) -> Result<Cmd, KeptError> {
        let before = one.before.as_ref().map_or(&[][..], |before| &before.json);
        let after = one.after.as_ref().map(Record::encode).unwrap_or_default();
        let nonce = getrandom::u64().map_err(|error| KeptError::Random(error.to_string()))?;
        let mut keys = [DIGESTS, RECORDS, IDS, CHANGES, USED].map(str::to_owned).to_vec();
        let mut index_of = |tenant: Option<&str>| {
            tenant.map_or(0, |tenant| {
                keys.push(set_of_tenant(tenant));
                keys.len()
            })
        };
        let tenants = (index_of(one.tenant_left()), index_of(one.tenant_joined()));
        let keys: Vec<&str> = keys.iter().map(String::as_str).collect();
        let mut command = self.script(CHANGE, &keys);
        command.arg(&one.id).arg(before).arg(after).arg(nonce).arg(MAX_CHANGES);
        command.arg(one.removed().concat()).arg(one.present().concat());
        command.arg(tenants.0).arg(tenants.1);
        Ok(command)
    }

    fn script(&self, source: &str, keys: &[&str]) -> Cmd {
        let mut command = redis::cmd("EVAL");
        command.arg(source).arg(keys.len());
        for key in keys {
            command.arg(self.reads.key(key));
        }
        command
    }
}

/// Calls one command.
async fn call<T: FromRedisValue>(records: &Records, command: Cmd) -> Result<T, KeptError> {
    let reply = records.call_all(&[command]).await?.pop();
    let reply: Value = reply.unwrap_or_else(|| Err(RecordsError::malformed()))?;
    T::from_redis_value(reply).map_err(|_| RecordsError::malformed().into())
}

/// A record that a request needs; `None` if it cannot be read, so that its keys are unknown. That
/// is logged once, as long as the cache has the key.
pub(super) fn readable(json: &[u8]) -> Option<Record> {
    Record::decode(json)
        .inspect_err(|error| warn!(%error, "a record of the key store is not one of this version"))
        .ok()
}

/// Name of the sorted set of the ids of a tenant.
fn set_of_tenant(tenant: &str) -> String {
    format!("{TENANT}{tenant}")
}

fn changes(entries: &Entries) -> Result<Vec<Change>, KeptError> {
    let changes = entries.iter().map(|(id, fields)| change(id, fields));
    changes.collect::<Option<Vec<_>>>().ok_or_else(|| RecordsError::malformed().into())
}

fn change(id: &str, fields: &HashMap<String, Vec<u8>>) -> Option<Change> {
    let (number, _) = id.split_once('-')?;
    let nonce = std::str::from_utf8(fields.get("nonce")?).ok()?;
    let digests = fields.get("digests")?.chunks(32);
    Some(Change {
        number: number.parse().ok()?,
        nonce: nonce.parse().ok()?,
        digests: digests.filter_map(|digest| Digest::try_from(digest).ok()).collect(),
    })
}
