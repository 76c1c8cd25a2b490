//! [`Kept`]: where records are, and what both places have in common.

use thiserror::Error;

use super::changes::{Change, Position};
use super::file::KeyFile;
use super::record::Record;
use super::shared::SharedRecords;
use crate::base::hash::Digest;
use crate::policy::Policy;
use crate::policy::key_store::Place;

/// Where records are.
pub enum Kept {
    Redis(Box<SharedRecords>),
    /// In a file, which only this process uses.
    File(KeyFile),
}

/// A record, and its text, by which a later change of it is noticed.
#[derive(Debug, Clone)]
pub struct Stored {
    pub record: Record,
    pub json: Vec<u8>,
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
    #[error("a record is not one of this version of tollgate: {0}")]
    Record(String),
    #[error("the system has no random numbers: {0}")]
    Random(String),
}

impl Replacement {
    /// The digests that the client has no longer.
    pub fn removed(&self) -> Vec<Digest> {
        let before = self.before.iter().flat_map(|before| before.record.digests());
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
            (Place::File(path), _) => Self::File(KeyFile::new(path.clone())),
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
                Ok(LookedUp { records: file.find(digests)?, changes, may_have_more: false })
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
                let changes = shared.changes(position).await?;
                let may_have_more = SharedRecords::may_have_more(changes.len());
                Ok((changes, may_have_more))
            }
            Self::File(file) => Ok((file.changes(position), false)),
        }
    }

    /// The records of these clients, in the same order.
    ///
    /// # Errors
    /// See [`KeptError`].
    pub async fn get(&self, ids: &[&str]) -> Result<Vec<Option<Stored>>, KeptError> {
        match self {
            Self::Redis(shared) => shared.get(ids).await,
            Self::File(file) => file.get(ids),
        }
    }

    /// Records in the order of their ids, after the id `after`: at most `limit`, and fewer only at
    /// the end or if that is many.
    ///
    /// # Errors
    /// See [`KeptError`].
    pub async fn list(&self, after: &str, limit: usize) -> Result<Vec<Record>, KeptError> {
        match self {
            Self::Redis(shared) => shared.list(after, limit).await,
            Self::File(file) => file.list(after, limit),
        }
    }

    /// Number of clients.
    ///
    /// # Errors
    /// See [`KeptError`].
    pub async fn count(&self) -> Result<u64, KeptError> {
        match self {
            Self::Redis(shared) => shared.count().await,
            Self::File(file) => file.count(),
        }
    }

    /// Replaces records, each or not.
    ///
    /// # Errors
    /// See [`KeptError`]: each of them may be replaced, or not.
    pub async fn replace(&self, all: &[Replacement]) -> Result<Vec<Replaced>, KeptError> {
        match self {
            Self::Redis(shared) => shared.replace(all).await,
            Self::File(file) => file.replace(all),
        }
    }

    /// Closes the file, if there is one, for the process that replaces this one.
    pub fn release(&self) {
        if let Self::File(file) = self {
            file.release();
        }
    }

    /// Uses the file again, after a failed replacement.
    pub fn resume(&self) {
        if let Self::File(file) = self {
            file.resume();
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

#[cfg(test)]
mod tests;
