//! [`Kept`]: where records are, and what both places have in common.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use thiserror::Error;
use tokio::task::spawn_blocking;

use super::changes::{Change, Position};
use super::file::KeyFile;
use super::record::{HexDigest, Record};
use super::shared::SharedRecords;
use crate::base::hash::Digest;
use crate::policy::Policy;
use crate::policy::key_store::Place;

/// Where records are.
pub enum Kept {
    Redis(Box<SharedRecords>),
    /// In a file, which only this process uses.
    File(Arc<KeyFile>),
}

/// What is stored of a client, and its text, by which a later change is noticed.
#[derive(Debug, Clone)]
pub struct Stored {
    pub id: String,
    pub record: Result<Record, Damage>,
    pub json: Vec<u8>,
}

/// A record that cannot be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Damage {
    pub why: String,
    /// Its keys and its tenant, as far as they can be read.
    digests: Vec<Digest>,
    tenant: Option<String>,
}

/// What a look-up finds.
#[derive(Debug)]
pub struct LookedUp {
    pub records: Vec<Option<Record>>,
    pub changes: Vec<Change>,
    /// Whether there may be more changes: the records may be newer than these.
    pub may_have_more: bool,
}

/// A change of a record.
#[derive(Debug, Clone)]
pub struct Replacement {
    /// Id of the client.
    pub id: String,
    /// The record as it was read; `None`: there was none.
    pub before: Option<Stored>,
    /// The new record; `None`: it is removed.
    pub after: Option<Record>,
}

/// What has become of a [`Replacement`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Replaced {
    Done,
    /// The record is not as it was read: nothing is changed.
    Changed,
    /// Another client has one of the keys: nothing is changed.
    KeyOfAnother,
}

/// Records cannot be read or written.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum KeptError {
    #[error("{0}")]
    Redis(String),
    #[error("{0}")]
    File(String),
    #[error("the process that replaces this one has the file")]
    Released,
    #[error("the reply has no result")]
    NoResult,
    #[error("the system has no random numbers: {0}")]
    Random(String),
}

impl Stored {
    /// Reads what is stored of a client.
    pub fn read(id: &str, json: Vec<u8>) -> Self {
        let record = Record::decode(&json).map_err(|error| Damage::of(&json, error.to_string()));
        Self { id: id.to_owned(), record, json }
    }

    /// The digests of its keys.
    fn digests(&self) -> Vec<Digest> {
        match &self.record {
            Ok(record) => record.digests().collect(),
            Err(damage) => damage.digests.clone(),
        }
    }

    /// Name of its tenant.
    fn tenant(&self) -> Option<&str> {
        match &self.record {
            Ok(record) => record.tenant.as_deref(),
            Err(damage) => damage.tenant.as_deref(),
        }
    }
}

impl Damage {
    /// What can be read of a text that is no record.
    fn of(json: &[u8], why: String) -> Self {
        let value: Value = serde_json::from_slice(json).unwrap_or_default();
        let secrets = value.get("secrets").and_then(Value::as_array);
        let digest = |secret: &Value| HexDigest::parse(secret.get("sha256")?.as_str()?);
        let digests = secrets.into_iter().flatten().filter_map(digest);
        let tenant = value.get("tenant").and_then(Value::as_str).map(str::to_owned);
        Self { why, digests: digests.map(|digest| digest.0).collect(), tenant }
    }
}

impl Replacement {
    /// The tenant that the client has no longer.
    pub fn tenant_left(&self) -> Option<&str> {
        let before = self.before.as_ref().and_then(Stored::tenant);
        before.filter(|before| Some(*before) != self.tenant_joined())
    }

    /// The tenant that the client has now.
    pub fn tenant_joined(&self) -> Option<&str> {
        self.after.as_ref().and_then(|after| after.tenant.as_deref())
    }

    /// The digests that the client has no longer.
    pub fn removed(&self) -> Vec<Digest> {
        let before = self.before.iter().flat_map(Stored::digests);
        let is_kept = |digest: &Digest| {
            self.after.as_ref().is_some_and(|after| after.secret(digest).is_some())
        };
        before.filter(|digest| !is_kept(digest)).collect()
    }

    /// The digests that the client has now.
    pub fn present(&self) -> Vec<Digest> {
        self.after.iter().flat_map(Record::digests).collect()
    }
}

impl Kept {
    /// The place of `policy`; `None` if it has no key store. Does no I/O.
    pub fn of(policy: &Policy) -> Option<Self> {
        Some(match (&policy.key_store.as_ref()?.place, &policy.redis) {
            (Place::Redis, redis) => Self::Redis(Box::new(SharedRecords::new(redis.as_ref()?))),
            (Place::File(path), _) => Self::File(Arc::new(KeyFile::new(path.clone()))),
        })
    }

    /// The records that have these keys, in the same order, and the changes from `position` on,
    /// beginning with the last one that was seen. The records are not newer than these changes,
    /// unless later changes will show it.
    ///
    /// # Errors
    /// See [`KeptError`].
    pub async fn look_up(
        &self,
        digests: &[Digest],
        position: Position,
    ) -> Result<LookedUp, KeptError> {
        match self {
            Self::Redis(shared) => shared.look_up(digests, position).await,
            Self::File(file) => {
                // Changes of a file are never taken back: those that come now are read later.
                let changes = file.changes(position);
                let digests = digests.to_vec();
                let records = on_thread(file, move |file| file.find(&digests)).await?;
                Ok(LookedUp { records, changes, may_have_more: false })
            }
        }
    }

    /// The changes from `position` on, in order, beginning with the last one that was seen; and
    /// whether there may be more.
    ///
    /// # Errors
    /// See [`KeptError`].
    pub async fn changes(&self, position: Position) -> Result<(Vec<Change>, bool), KeptError> {
        match self {
            Self::Redis(shared) => {
                let LookedUp { changes, may_have_more, .. } = shared.look_up(&[], position).await?;
                Ok((changes, may_have_more))
            }
            Self::File(file) => {
                // The changes are in memory, but keys there are old if the file cannot be read.
                on_thread(file, KeyFile::check).await?;
                Ok((file.changes(position), false))
            }
        }
    }

    /// The records of these clients, in the same order.
    ///
    /// # Errors
    /// See [`KeptError`].
    pub async fn get(&self, ids: &[&str]) -> Result<Vec<Option<Stored>>, KeptError> {
        match self {
            Self::Redis(shared) => shared.get(ids).await,
            Self::File(file) => {
                let ids = owned(ids);
                on_thread(file, move |file| file.get(&ids)).await
            }
        }
    }

    /// Records in the order of their ids, after the id `after`: at most `limit`, and none only at
    /// the end. Only those of a tenant, if one is given.
    ///
    /// # Errors
    /// See [`KeptError`].
    pub async fn list(
        &self,
        tenant: Option<&str>,
        after: &str,
        limit: usize,
    ) -> Result<Vec<Stored>, KeptError> {
        match self {
            Self::Redis(shared) => shared.list(tenant, after, limit).await,
            Self::File(file) => {
                let (tenant, after) = (tenant.map(str::to_owned), after.to_owned());
                on_thread(file, move |file| file.list(tenant.as_deref(), &after, limit)).await
            }
        }
    }

    /// Number of clients.
    ///
    /// # Errors
    /// See [`KeptError`].
    pub async fn count(&self) -> Result<u64, KeptError> {
        match self {
            Self::Redis(shared) => shared.count().await,
            Self::File(file) => on_thread(file, KeyFile::count).await,
        }
    }

    /// When these clients last sent requests, about, in microseconds of Unix time; `None`: never.
    ///
    /// # Errors
    /// See [`KeptError`].
    pub async fn last_uses(&self, ids: &[&str]) -> Result<Vec<Option<u64>>, KeptError> {
        match self {
            Self::Redis(shared) => shared.last_uses(ids).await,
            Self::File(file) => {
                let ids = owned(ids);
                on_thread(file, move |file| file.last_uses(&ids)).await
            }
        }
    }

    /// Notes that these clients have sent requests until `unix_us`. Clients that are removed are
    /// left out.
    ///
    /// # Errors
    /// See [`KeptError`].
    pub async fn note_uses(&self, ids: &[Arc<str>], unix_us: u64) -> Result<(), KeptError> {
        match self {
            Self::Redis(shared) => shared.note_uses(ids, unix_us).await,
            Self::File(file) => {
                let ids = ids.to_vec();
                on_thread(file, move |file| file.note_uses(&ids, unix_us)).await
            }
        }
    }

    /// Replaces records, each or not.
    ///
    /// # Errors
    /// See [`KeptError`]: each of them may be replaced, or not.
    pub async fn replace(&self, all: &[Replacement]) -> Result<Vec<Replaced>, KeptError> {
        match self {
            Self::Redis(shared) => shared.replace(all).await,
            Self::File(file) => {
                let all = all.to_vec();
                on_thread(file, move |file| file.replace(&all)).await
            }
        }
    }

    /// Closes the file, if there is one, for the process that replaces this one. Returns whether
    /// that has been done within `timeout`.
    pub fn release(&self, timeout: Duration) -> bool {
        match self {
            Self::File(file) => file.release(timeout),
            Self::Redis(_) => true,
        }
    }

    /// Uses the file again, after a failed replacement.
    pub fn resume(&self) {
        if let Self::File(file) = self {
            file.resume();
        }
    }

    /// The file; `None` if there is none.
    pub fn path(&self) -> Option<&Path> {
        match self {
            Self::File(file) => Some(file.path()),
            Self::Redis(_) => None,
        }
    }

    /// What it is, for people.
    pub fn place(&self) -> String {
        match self {
            Self::Redis(_) => "redis".to_owned(),
            Self::File(file) => format!("file:{}", file.path().display()),
        }
    }
}

/// Calls `run` on another thread: it waits for the disk, and threads of requests do not.
async fn on_thread<T: Send + 'static>(
    file: &Arc<KeyFile>,
    run: impl FnOnce(&KeyFile) -> Result<T, KeptError> + Send + 'static,
) -> Result<T, KeptError> {
    let file = Arc::clone(file);
    let done = spawn_blocking(move || run(&file)).await;
    done.unwrap_or_else(|error| Err(KeptError::File(error.to_string())))
}

fn owned(ids: &[&str]) -> Vec<String> {
    ids.iter().map(|id| (*id).to_owned()).collect()
}

#[cfg(test)]
mod tests;
