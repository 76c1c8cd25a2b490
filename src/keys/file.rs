//! [`KeyFile`]: records in a file of redb, which only this process uses.

use std::collections::VecDeque;
use std::fs::{File, OpenOptions};
use std::ops::Bound;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::Mutex;
use redb::backends::FileBackend;
use redb::{
    Builder, Database, DatabaseError, ReadableDatabase as _, ReadableTable as _,
    ReadableTableMetadata as _, TableDefinition, WriteTransaction,
};

use super::changes::{Change, Position};
use super::kept::{KeptError, Replaced, Replacement, Stored};
use super::record::Record;
use crate::base::hash::Digest;

/// Records by the id of the client.
const RECORDS: TableDefinition<'_, &str, &[u8]> = TableDefinition::new("records");

/// Ids by the SHA-256 of a key.
const DIGESTS: TableDefinition<'_, &[u8], &str> = TableDefinition::new("digests");

/// Ids by tenant.
const TENANTS: TableDefinition<'_, (&str, &str), ()> = TableDefinition::new("tenants");

/// When clients were last used, in microseconds of Unix time.
const USED: TableDefinition<'_, &str, u64> = TableDefinition::new("used");

/// `version` is that of this layout.
const ABOUT: TableDefinition<'_, &str, u64> = TableDefinition::new("about");

const VERSION: u64 = 1;

/// Memory for pages that were read or written.
const CACHE_BYTES: usize = 16 << 20;

/// Number of changes that are kept in memory until look-ups follow them.
const MAX_CHANGES: usize = 10_000;

/// A file of records. It is opened when it is first used.
#[derive(Debug)]
pub struct KeyFile {
    path: PathBuf,
    open: Mutex<Handle>,
    changes: Mutex<Changes>,
}

/// Whether the file is open.
#[derive(Debug, Default)]
enum Handle {
    #[default]
    Closed,
    Open(Arc<Database>),
    /// Another process has it from now on.
    Released,
}

/// Changes of this process.
#[derive(Debug, Default)]
struct Changes {
    last: u64,
    list: VecDeque<Change>,
}

impl<E: Into<redb::Error>> From<E> for KeptError {
    fn from(error: E) -> Self {
        Self::File(error.into().to_string())
    }
}

impl KeyFile {
    /// Creates it without opening the file.
    pub fn new(path: PathBuf) -> Self {
        Self { path, open: Mutex::default(), changes: Mutex::default() }
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Closes the file, for the process that replaces this one.
    pub fn release(&self) {
        *self.open.lock() = Handle::Released;
    }

    /// Opens the file again when it is next used, after a failed replacement.
    pub fn resume(&self) {
        *self.open.lock() = Handle::Closed;
    }

    /// The records that have these keys, in the same order.
    ///
    /// # Errors
    /// See [`KeptError`].
    pub fn find(&self, digests: &[Digest]) -> Result<Vec<Option<Record>>, KeptError> {
        let reading = self.database()?.begin_read()?;
        let (by_digest, records) = (reading.open_table(DIGESTS)?, reading.open_table(RECORDS)?);
        let find = |digest: &Digest| {
            let Some(id) = by_digest.get(&digest[..])? else { return Ok(None) };
            let Some(json) = records.get(id.value())? else { return Ok(None) };
            Ok(super::shared::readable(json.value()))
        };
        digests.iter().map(find).collect()
    }

    /// The changes from `position` on, in order.
    pub fn changes(&self, position: Position) -> Vec<Change> {
        let changes = self.changes.lock();
        if position == Position::Unknown {
            return changes.list.back().cloned().into_iter().collect();
        }
        let first = position.first_wanted();
        changes.list.iter().filter(|change| change.number >= first).cloned().collect()
    }

    /// The records of these clients, in the same order.
    ///
    /// # Errors
    /// See [`KeptError`].
    pub fn get(&self, ids: &[&str]) -> Result<Vec<Option<Stored>>, KeptError> {
        let reading = self.database()?.begin_read()?;
        let records = reading.open_table(RECORDS)?;
        let get = |id: &&str| {
            let json = records.get(*id)?;
            Ok(json.map(|json| Stored::read(id, json.value().to_vec())))
        };
        ids.iter().map(get).collect()
    }

    /// Records in the order of their ids, after the id `after`: at most `limit`. Only those of a
    /// tenant, if one is given.
    ///
    /// # Errors
    /// See [`KeptError`].
    pub fn list(
        &self,
        tenant: Option<&str>,
        after: &str,
        limit: usize,
    ) -> Result<Vec<Stored>, KeptError> {
        let reading = self.database()?.begin_read()?;
        let records = reading.open_table(RECORDS)?;
        let Some(tenant) = tenant else {
            let after = (Bound::Excluded(after), Bound::Unbounded);
            let entries = records.range::<&str>(after)?.take(limit);
            return entries
                .map(|entry| {
                    let (id, json) = entry?;
                    Ok(Stored::read(id.value(), json.value().to_vec()))
                })
                .collect();
        };
        let tenants = reading.open_table(TENANTS)?;
        let after = (Bound::Excluded((tenant, after)), Bound::Unbounded);
        let mut found = Vec::new();
        for entry in tenants.range::<(&str, &str)>(after)?.take(limit) {
            let (key, _) = entry?;
            let (own, id) = key.value();
            if own != tenant {
                break;
            }
            found.extend(records.get(id)?.map(|json| Stored::read(id, json.value().to_vec())));
        }
        Ok(found)
    }

    /// Number of clients.
    ///
    /// # Errors
    /// See [`KeptError`].
    pub fn count(&self) -> Result<u64, KeptError> {
        let reading = self.database()?.begin_read()?;
        Ok(reading.open_table(RECORDS)?.len()?)
    }

    /// When these clients were last used, about, in microseconds of Unix time.
    ///
    /// # Errors
    /// See [`KeptError`].
    pub fn last_uses(&self, ids: &[&str]) -> Result<Vec<Option<u64>>, KeptError> {
        let reading = self.database()?.begin_read()?;
        let used = reading.open_table(USED)?;
        ids.iter().map(|id| Ok(used.get(*id)?.map(|at| at.value()))).collect()
    }

    /// Notes that these clients are used until `unix_us`.
    ///
    /// # Errors
    /// See [`KeptError`].
    pub fn note_uses(&self, ids: &[Arc<str>], unix_us: u64) -> Result<(), KeptError> {
        let writing = self.database()?.begin_write()?;
        {
            let (records, mut used) = (writing.open_table(RECORDS)?, writing.open_table(USED)?);
            for id in ids {
                if records.get(&**id)?.is_some() {
                    used.insert(&**id, unix_us)?;
                }
            }
        }
        writing.commit()?;
        Ok(())
    }

    /// Replaces records, each or not.
    ///
    /// # Errors
    /// See [`KeptError`]: none of them is replaced.
    pub fn replace(&self, all: &[Replacement]) -> Result<Vec<Replaced>, KeptError> {
        let writing = self.database()?.begin_write()?;
        let replaced: Result<Vec<Replaced>, KeptError> =
            all.iter().map(|one| replace(&writing, one)).collect();
        let replaced = replaced?;
        writing.commit()?;
        let mut changes = self.changes.lock();
        for (one, _) in all.iter().zip(&replaced).filter(|(_, done)| **done == Replaced::Done) {
            changes.add([one.removed(), one.present()].concat());
        }
        Ok(replaced)
    }

    /// The open file.
    fn database(&self) -> Result<Arc<Database>, KeptError> {
        let mut handle = self.open.lock();
        match &*handle {
            Handle::Open(database) => return Ok(Arc::clone(database)),
            Handle::Released => {
                let message = "the process that replaces this one has the file";
                return Err(KeptError::File(message.to_owned()));
            }
            Handle::Closed => {}
        }
        let database = Arc::new(open(&self.path)?);
        *handle = Handle::Open(Arc::clone(&database));
        Ok(database)
    }
}

impl Changes {
    fn add(&mut self, digests: Vec<Digest>) {
        self.last += 1;
        self.list.push_back(Change { number: self.last, nonce: 0, digests });
        if self.list.len() > MAX_CHANGES {
            self.list.pop_front();
        }
    }
}

/// Opens the file, which is created with mode 0600 if there is none.
fn open(path: &Path) -> Result<Database, KeptError> {
    let mut options = OpenOptions::new();
    let file: File = options
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .open(path)
        .map_err(|error| KeptError::File(error.to_string()))?;
    let backend = FileBackend::new(file).map_err(opening)?;
    let mut builder = Builder::new();
    let database = builder.set_cache_size(CACHE_BYTES).create_with_backend(backend);
    let database = database.map_err(opening)?;
    let writing = database.begin_write()?;
    let version = {
        let mut about = writing.open_table(ABOUT)?;
        let known = about.get("version")?.map(|version| version.value());
        if known.is_none() {
            about.insert("version", VERSION)?;
        }
        known.unwrap_or(VERSION)
    };
    if version > VERSION {
        let message = format!("a newer version of tollgate has written it (layout {version})");
        return Err(KeptError::File(message));
    }
    writing.open_table(RECORDS)?;
    writing.open_table(DIGESTS)?;
    writing.open_table(TENANTS)?;
    writing.open_table(USED)?;
    writing.commit()?;
    Ok(database)
}

fn opening(error: DatabaseError) -> KeptError {
    KeptError::File(match error {
        DatabaseError::DatabaseAlreadyOpen | DatabaseError::LockProtocolMismatch => {
            "another process uses it; each gateway needs its own file, or `url = \"redis\"`".into()
        }
        other => other.to_string(),
    })
}

fn replace(writing: &WriteTransaction, one: &Replacement) -> Result<Replaced, KeptError> {
    let mut records = writing.open_table(RECORDS)?;
    let mut digests = writing.open_table(DIGESTS)?;
    let mut tenants = writing.open_table(TENANTS)?;
    let before = records.get(&*one.id)?.map(|json| json.value().to_vec());
    if before.as_deref() != one.before.as_ref().map(|stored| &stored.json[..]) {
        return Ok(Replaced::Changed);
    }
    let present = one.present();
    for digest in &present {
        let owner = digests.get(&digest[..])?.map(|owner| owner.value().to_owned());
        let other = owner.filter(|owner| *owner != one.id);
        // A record that could not be read may have left its digests when it was removed.
        if let Some(other) = other
            && records.get(&*other)?.is_some()
        {
            return Ok(Replaced::KeyOfAnother);
        }
    }
    for digest in one.removed() {
        digests.remove(&digest[..])?;
    }
    for digest in present {
        digests.insert(&digest[..], &*one.id)?;
    }
    if let Some(tenant) = one.tenant_left() {
        tenants.remove((tenant, &*one.id))?;
    }
    if let Some(tenant) = one.tenant_joined() {
        tenants.insert((tenant, &*one.id), ())?;
    }
    if let Some(record) = &one.after {
        records.insert(&*one.id, &record.encode()[..])?;
    } else {
        records.remove(&*one.id)?;
        writing.open_table(USED)?.remove(&*one.id)?;
    }
    Ok(Replaced::Done)
}
