//! [`KeyFile`]: records in a file of redb, which only this process uses.

use std::collections::VecDeque;
use std::fs::{File, OpenOptions};
use std::mem;
use std::ops::Bound;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::thread;
use std::time::Duration;

use parking_lot::Mutex;
use redb::backends::FileBackend;
use redb::{
    Builder, Database, DatabaseError, ReadTransaction, ReadableDatabase as _, ReadableTable as _,
    ReadableTableMetadata as _, StorageBackend, TableDefinition, TableHandle as _,
    WriteTransaction,
};

use super::changes::{Change, Position};
use super::kept::{KeptError, Replaced, Replacement, Stored};
use super::record::Record;
use crate::base::duration::micros;
use crate::base::hash::Digest;
use crate::base::{blocking, clock};

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

/// Longest wait for a call that uses the handle, after a failed replacement.
const RESUME_TIMEOUT: Duration = Duration::from_secs(1);

/// Time between two looks whether the file is closed.
const CLOSED_POLL: Duration = Duration::from_millis(2);

/// Number of changes that are kept in memory until look-ups follow them.
const MAX_CHANGES: usize = 10_000;

/// A file of records. It is opened when it is first used, and again after each error: redb reads
/// and writes nothing more with a handle that has failed.
#[derive(Debug)]
pub struct KeyFile {
    path: PathBuf,
    open: Mutex<Handle>,
    /// Whether there was a file. If it is missing later, its volume may be: a new one there would
    /// have no keys, and be hidden by the volume that returns.
    has_existed: AtomicBool,
    changes: Mutex<Changes>,
}

/// Whether the file is open.
#[derive(Debug)]
enum Handle {
    /// It has not been used yet, or not since another process had it. Calls that have begun before
    /// that may still use this handle.
    Unopened(Weak<OpenToken>),
    Open(Arc<OpenFile>),
    /// It has failed. Calls that have begun before may still use this handle, and the file cannot
    /// be opened until they have ended.
    Failed(Weak<OpenToken>),
    /// Another process has it from now on. Calls that have begun before may still use this handle.
    Released(Weak<OpenToken>),
}

/// An open file. It is closed when no call uses it any more.
#[derive(Debug)]
struct OpenFile {
    database: Database,
    /// After `database`: Rust drops fields in this order.
    token: Arc<OpenToken>,
}

/// Exists until a file has been closed, which may wait for the disk.
#[derive(Debug)]
struct OpenToken;

impl From<Database> for OpenFile {
    fn from(database: Database) -> Self {
        Self { database, token: Arc::new(OpenToken) }
    }
}

impl Default for Handle {
    fn default() -> Self {
        Self::Unopened(Weak::new())
    }
}

/// Changes of this process.
#[derive(Debug, Default)]
struct Changes {
    last: u64,
    list: VecDeque<Change>,
}

impl From<redb::Error> for KeptError {
    fn from(error: redb::Error) -> Self {
        Self::File(error.to_string())
    }
}

impl KeyFile {
    /// Creates it without opening the file.
    pub fn new(path: PathBuf) -> Self {
        let has_existed = AtomicBool::new(false);
        Self { path, open: Mutex::default(), has_existed, changes: Mutex::default() }
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Closes the file, for the process that replaces this one. Returns whether that has been done
    /// within `timeout`: closing waits for the disk, and for calls that open or use the file.
    /// Blocks.
    pub fn release(&self, timeout: Duration) -> bool {
        let ends = clock::now().saturating_add(micros(timeout));
        let left = || Duration::from_micros(ends.saturating_sub(clock::now()));
        let Some(mut handle) = self.open.try_lock_for(timeout) else { return false };
        let used = match &*handle {
            Handle::Open(file) => Arc::downgrade(&file.token),
            Handle::Unopened(used) | Handle::Failed(used) | Handle::Released(used) => used.clone(),
        };
        let before = mem::replace(&mut *handle, Handle::Released(used.clone()));
        drop(handle);
        // Also if it goes on closing: it is used no more. Whether it is closed shows below.
        let _ = blocking::run_sync(left(), move || drop(before));
        is_dropped(&used, ends)
    }

    /// Opens the file again when it is next used, after a failed replacement. A file that was not
    /// released is used as before.
    pub fn resume(&self) {
        // While a call opens it, which may wait for the disk, it is not released.
        let Some(mut handle) = self.open.try_lock_for(RESUME_TIMEOUT) else { return };
        if let Handle::Released(used) = &*handle {
            *handle = Handle::Unopened(used.clone());
        }
    }

    /// Reads from the file, if it has been used. A process that takes it over opens it when its
    /// predecessor has closed it, and that one reads it no more.
    ///
    /// # Errors
    /// See [`KeptError`]: the last call has failed, and so does this one.
    pub fn check(&self) -> Result<(), KeptError> {
        if matches!(*self.open.lock(), Handle::Unopened(_) | Handle::Released(_)) {
            return Ok(());
        }
        self.with(|database| {
            database.begin_read()?.open_table(DIGESTS)?.first()?;
            Ok(())
        })
    }

    /// The records that have these keys, in the same order.
    ///
    /// # Errors
    /// See [`KeptError`].
    pub fn find(&self, digests: &[Digest]) -> Result<Vec<Option<Record>>, KeptError> {
        self.with(|database| {
            let reading = database.begin_read()?;
            let (by_digest, records) = (reading.open_table(DIGESTS)?, reading.open_table(RECORDS)?);
            let find = |digest: &Digest| {
                let Some(id) = by_digest.get(&digest[..])? else { return Ok(None) };
                let Some(json) = records.get(id.value())? else { return Ok(None) };
                Ok(super::shared::readable(json.value()))
            };
            digests.iter().map(find).collect()
        })
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
    pub fn get(&self, ids: &[impl AsRef<str>]) -> Result<Vec<Option<Stored>>, KeptError> {
        self.with(|database| {
            let records = database.begin_read()?.open_table(RECORDS)?;
            let get = |id: &str| {
                let json = records.get(id)?;
                Ok(json.map(|json| Stored::read(id, json.value().to_vec())))
            };
            ids.iter().map(|id| get(id.as_ref())).collect()
        })
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
        self.with(|database| {
            let reading = database.begin_read()?;
            match tenant {
                Some(tenant) => list_of_tenant(&reading, tenant, after, limit),
                None => list(&reading, after, limit),
            }
        })
    }

    /// Number of clients.
    ///
    /// # Errors
    /// See [`KeptError`].
    pub fn count(&self) -> Result<u64, KeptError> {
        self.with(|database| Ok(database.begin_read()?.open_table(RECORDS)?.len()?))
    }

    /// When these clients were last used, about, in microseconds of Unix time.
    ///
    /// # Errors
    /// See [`KeptError`].
    pub fn last_uses(&self, ids: &[impl AsRef<str>]) -> Result<Vec<Option<u64>>, KeptError> {
        self.with(|database| {
            let used = database.begin_read()?.open_table(USED)?;
            ids.iter().map(|id| Ok(used.get(id.as_ref())?.map(|at| at.value()))).collect()
        })
    }

    /// Notes that these clients are used until `unix_us`.
    ///
    /// # Errors
    /// See [`KeptError`].
    pub fn note_uses(&self, ids: &[Arc<str>], unix_us: u64) -> Result<(), KeptError> {
        self.with(|database| {
            let writing = begin_write(database)?;
            {
                let (records, mut used) = (writing.open_table(RECORDS)?, writing.open_table(USED)?);
                for id in ids {
                    if records.get(&**id)?.is_some() {
                        used.insert(&**id, unix_us)?;
                    }
                }
            }
            Ok(writing.commit()?)
        })
    }

    /// Replaces records, each or not.
    ///
    /// # Errors
    /// See [`KeptError`]: all of them may be replaced, or none.
    pub fn replace(&self, all: &[Replacement]) -> Result<Vec<Replaced>, KeptError> {
        let mut replaced = Vec::new();
        let written = self.with(|database| {
            let writing = begin_write(database)?;
            let each = all.iter().map(|one| replace(&writing, one));
            replaced = each.collect::<Result<Vec<Replaced>, redb::Error>>()?;
            Ok(writing.commit()?)
        });
        // Also if the commit has failed: the file may have it when it is opened again.
        let mut changes = self.changes.lock();
        for (one, _) in all.iter().zip(&replaced).filter(|(_, done)| **done == Replaced::Done) {
            changes.add([one.removed(), one.present()].concat());
        }
        written.map(|()| replaced)
    }

    /// Calls `run` with the open file. If that fails, the next call opens the file again.
    fn with<T>(
        &self,
        run: impl FnOnce(&Database) -> Result<T, redb::Error>,
    ) -> Result<T, KeptError> {
        let file = self.file()?;
        run(&file.database).map_err(|error| {
            self.note_failure(&file);
            error.into()
        })
    }

    /// As a call that uses the file.
    #[cfg(test)]
    pub(crate) fn in_use(&self) -> Result<Arc<dyn Send + Sync>, KeptError> {
        Ok(self.file()?)
    }

    /// Notes that the file cannot be used by `failed` any more.
    fn note_failure(&self, failed: &Arc<OpenFile>) {
        let mut handle = self.open.lock();
        // Another call may have opened it again.
        if matches!(&*handle, Handle::Open(file) if Arc::ptr_eq(file, failed)) {
            *handle = Handle::Failed(Arc::downgrade(&failed.token));
        }
    }

    /// The open file.
    fn file(&self) -> Result<Arc<OpenFile>, KeptError> {
        let mut handle = self.open.lock();
        match &*handle {
            Handle::Open(file) => return Ok(Arc::clone(file)),
            Handle::Released(_) => return Err(KeptError::Released),
            Handle::Failed(failed) if failed.strong_count() > 0 => {
                let message =
                    "it has failed, and is opened again when calls that use it have ended";
                return Err(KeptError::File(message.to_owned()));
            }
            Handle::Unopened(used) if used.strong_count() > 0 => {
                let message = "it is opened again when calls that use it have ended";
                return Err(KeptError::File(message.to_owned()));
            }
            Handle::Failed(_) | Handle::Unopened(_) => {}
        }
        let creates = !self.has_existed.load(Ordering::Relaxed);
        let opened = open(&self.path, creates).map(|database| Arc::new(OpenFile::from(database)));
        *handle = match &opened {
            Ok(file) => {
                self.has_existed.store(true, Ordering::Relaxed);
                Handle::Open(Arc::clone(file))
            }
            Err(_) => Handle::Failed(Weak::new()),
        };
        opened
    }
}

/// Waits until a file has been closed, or until `ends` (microseconds). Returns whether it has been.
#[allow(clippy::disallowed_methods, reason = "on the thread of the upgrade, which serves nothing")]
fn is_dropped(token: &Weak<OpenToken>, ends: u64) -> bool {
    while token.strong_count() > 0 {
        let left = Duration::from_micros(ends.saturating_sub(clock::now()));
        if left.is_zero() {
            return false;
        }
        thread::sleep(left.min(CLOSED_POLL));
    }
    true
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

/// Opens the file. With `creates`, it is created with mode 0600 if there is none.
fn open(path: &Path, creates: bool) -> Result<Database, KeptError> {
    let mut options = OpenOptions::new();
    let file: File = options
        .read(true)
        .write(true)
        .create(creates)
        .truncate(false)
        .mode(0o600)
        .open(path)
        .map_err(|error| KeptError::File(error.to_string()))?;
    opened(FileBackend::new(file).map_err(opening)?, CACHE_BYTES)
}

/// Opens the file that `backend` has, with this memory for pages.
fn opened(backend: impl StorageBackend, cache_bytes: usize) -> Result<Database, KeptError> {
    let mut builder = Builder::new();
    let database = builder.set_cache_size(cache_bytes).create_with_backend(backend);
    let database = database.map_err(opening)?;
    // A disk without room for a write does not keep the keys from being read.
    let version = match version(&database)? {
        Some(version) => version,
        None => create(&database)?,
    };
    if version > VERSION {
        let message = format!("a newer version of tollgate has written it (layout {version})");
        return Err(KeptError::File(message));
    }
    Ok(database)
}

/// The version of the layout; `None` if the file lacks a table.
fn version(database: &Database) -> Result<Option<u64>, redb::Error> {
    let reading = database.begin_read()?;
    let present: Vec<String> =
        reading.list_tables()?.map(|table| table.name().to_owned()).collect();
    let needed = [RECORDS.name(), DIGESTS.name(), TENANTS.name(), USED.name(), ABOUT.name()];
    if needed.iter().any(|name| !present.iter().any(|it| it == name)) {
        return Ok(None);
    }
    Ok(reading.open_table(ABOUT)?.get("version")?.map(|version| version.value()))
}

/// Creates the tables that are not there. Returns the version of the layout.
fn create(database: &Database) -> Result<u64, redb::Error> {
    let writing = begin_write(database)?;
    let version = {
        let mut about = writing.open_table(ABOUT)?;
        let known = about.get("version")?.map(|version| version.value());
        if known.is_none() {
            about.insert("version", VERSION)?;
        }
        known.unwrap_or(VERSION)
    };
    if version <= VERSION {
        writing.open_table(RECORDS)?;
        writing.open_table(DIGESTS)?;
        writing.open_table(TENANTS)?;
        writing.open_table(USED)?;
        writing.commit()?;
    }
    Ok(version)
}

/// Begins a change, which also writes what redb needs to open the file after an error or a crash.
/// Without that it would read the whole file first, and look-ups would wait.
fn begin_write(database: &Database) -> Result<WriteTransaction, redb::Error> {
    let mut writing = database.begin_write()?;
    writing.set_quick_repair(true);
    Ok(writing)
}

fn opening(error: DatabaseError) -> KeptError {
    KeptError::File(match error {
        DatabaseError::DatabaseAlreadyOpen | DatabaseError::LockProtocolMismatch => {
            "another process uses it; each gateway needs its own file, or `url = \"redis\"`".into()
        }
        other => other.to_string(),
    })
}

/// See [`KeyFile::list`].
fn list(reading: &ReadTransaction, after: &str, limit: usize) -> Result<Vec<Stored>, redb::Error> {
    let records = reading.open_table(RECORDS)?;
    let after = (Bound::Excluded(after), Bound::Unbounded);
    let entries = records.range::<&str>(after)?.take(limit);
    entries
        .map(|entry| {
            let (id, json) = entry?;
            Ok(Stored::read(id.value(), json.value().to_vec()))
        })
        .collect()
}

/// See [`KeyFile::list`].
fn list_of_tenant(
    reading: &ReadTransaction,
    tenant: &str,
    after: &str,
    limit: usize,
) -> Result<Vec<Stored>, redb::Error> {
    let (records, tenants) = (reading.open_table(RECORDS)?, reading.open_table(TENANTS)?);
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

fn replace(writing: &WriteTransaction, one: &Replacement) -> Result<Replaced, redb::Error> {
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

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;
    use crate::base::faulty_file::{Fault, Faults, FaultyFile};
    use crate::keys::changes::Advance;
    use crate::keys::kept::Kept;
    use crate::keys::record::tests::{record, secret};

    const LONG: Duration = Duration::from_secs(60);

    /// A file with the clients `a` and `b`, with the keys 1 and 2.
    fn file() -> (tempfile::TempDir, KeyFile) {
        let folder = tempfile::tempdir().unwrap();
        let file = KeyFile::new(folder.path().join("keys.redb"));
        let created = |id: &str, byte| {
            let after = Some(record(id, byte));
            Replacement { id: id.to_owned(), before: None, after }
        };
        file.replace(&[created("a", 1), created("b", 2)]).unwrap();
        (folder, file)
    }

    /// Opens the file on a disk that fails from then on, once it is read again.
    fn fail(file: &KeyFile, fault: Fault) {
        assert!(file.release(LONG));
        let faults = Faults::default();
        let database = opened(FaultyFile::open(file.path(), &faults), 0).unwrap();
        *file.open.lock() = Handle::Open(Arc::new(database.into()));
        faults.set(fault);
    }

    fn found(file: &KeyFile, byte: u8) -> Result<Option<String>, KeptError> {
        Ok(file.find(&[[byte; 32]])?.remove(0).map(|record| record.id))
    }

    /// `a` with the key 3 in place of 1.
    fn rotated(file: &KeyFile) -> Replacement {
        let before = file.get(&["a"]).unwrap().remove(0);
        let after = Record { version: 2, secrets: vec![secret(3)], ..record("a", 0) };
        Replacement { id: "a".to_owned(), before, after: Some(after) }
    }

    #[test]
    fn file_is_opened_again_after_an_error() {
        let (_folder, file) = file();
        fail(&file, Fault::Disk);
        assert!(found(&file, 1).is_err());
        assert_eq!(found(&file, 1).unwrap().as_deref(), Some("a"));
        fail(&file, Fault::Room);
        assert!(file.note_uses(&["a".into()], 7).is_err());
        assert_eq!(found(&file, 2).unwrap().as_deref(), Some("b"));
        file.note_uses(&["a".into()], 7).unwrap();
        assert_eq!(file.last_uses(&["a"]).unwrap(), [Some(7)]);
        let one = rotated(&file);
        fail(&file, Fault::Room);
        assert!(file.replace(std::slice::from_ref(&one)).is_err());
        assert_eq!(file.replace(&[one]).unwrap(), [Replaced::Done]);
        assert_eq!(found(&file, 3).unwrap().as_deref(), Some("a"));
    }

    /// As when its volume is gone: an empty file in its place would make all keys unknown.
    #[test]
    fn file_that_has_failed_and_is_missing_is_not_created_again() {
        let (_folder, file) = file();
        fail(&file, Fault::Disk);
        assert!(found(&file, 1).is_err());
        let moved = file.path().with_extension("moved");
        std::fs::rename(file.path(), &moved).unwrap();
        assert!(found(&file, 1).is_err() && file.check().is_err() && !file.path().exists());
        std::fs::rename(moved, file.path()).unwrap();
        assert_eq!(found(&file, 1).unwrap().as_deref(), Some("a"));
    }

    #[test]
    fn file_that_has_failed_is_opened_when_calls_that_use_it_have_ended() {
        let (_folder, file) = file();
        let used = file.file().unwrap();
        file.note_failure(&used);
        for _ in 0..2 {
            let error = found(&file, 1).unwrap_err().to_string();
            assert!(error.contains("it has failed"), "{error}");
        }
        // The call that has it can still end well.
        used.database.begin_read().unwrap();
        drop(used);
        assert_eq!(found(&file, 1).unwrap().as_deref(), Some("a"));
    }

    /// An upgrade may fail before or after the file is released.
    #[test]
    fn file_is_used_again_after_a_failed_replacement() {
        let (_folder, file) = file();
        let used = file.file().unwrap();
        file.resume();
        assert_eq!(found(&file, 1).unwrap().as_deref(), Some("a"), "it was not released");
        assert!(!file.release(Duration::from_millis(1)), "a call uses it");
        file.resume();
        let error = found(&file, 1).unwrap_err().to_string();
        assert!(error.contains("when calls that use it have ended"), "{error}");
        let open = Arc::downgrade(&used.token);
        drop(used);
        // The thread that closes it may not have begun.
        assert!(is_dropped(&open, u64::MAX));
        assert_eq!(found(&file, 1).unwrap().as_deref(), Some("a"));
    }

    #[test]
    fn file_that_waits_for_the_disk_is_not_released() {
        let (_folder, file) = file();
        // As a call that opens the file.
        let opening = file.open.lock();
        assert!(!file.release(Duration::from_millis(1)));
        drop(opening);
        assert_eq!(found(&file, 1).unwrap().as_deref(), Some("a"));
    }

    /// A call that goes on keeps the file open.
    #[test]
    fn file_is_released_when_calls_that_use_it_have_ended() {
        let (_folder, file) = &file();
        thread::scope(|scope| {
            let (start, begun) = mpsc::channel();
            let (end, ended) = mpsc::channel::<()>();
            let call = scope.spawn(move || {
                file.with(|_| {
                    start.send(()).unwrap();
                    let _ = ended.recv();
                    Ok(())
                })
            });
            begun.recv().unwrap();
            assert!(!file.release(Duration::from_millis(1)));
            assert!(open(file.path(), false).is_err(), "another process cannot open it");
            let release = scope.spawn(|| file.release(LONG));
            drop(end);
            assert!(release.join().unwrap());
            open(file.path(), false).unwrap();
            call.join().unwrap().unwrap();
        });
    }

    /// Each of these calls would wait on the thread that runs all tasks.
    #[tokio::test]
    async fn file_that_waits_for_the_disk_stops_no_other_task() {
        let (_folder, file) = file();
        let file = Arc::new(file);
        let (start, begun) = mpsc::channel();
        let (end, ended) = mpsc::channel::<()>();
        let opening = thread::spawn({
            let file = Arc::clone(&file);
            move || {
                // As a call that opens the file.
                let _opening = file.open.lock();
                start.send(()).unwrap();
                let _ = ended.recv();
            }
        });
        begun.recv().unwrap();
        let kept = Kept::File(Arc::clone(&file));
        let ids: [Arc<str>; 1] = ["a".into()];
        let (noted, changes, found, stored, ()) = tokio::join!(
            kept.note_uses(&ids, 7),
            kept.changes(Position::Unknown),
            kept.look_up(&[[1; 32]], Position::Unknown),
            kept.get(&["a"]),
            async { drop(end) },
        );
        noted.unwrap();
        assert_eq!(changes.unwrap().0.len(), 1);
        assert!(found.unwrap().records.remove(0).is_some());
        assert!(stored.unwrap().remove(0).is_some());
        opening.join().unwrap();
    }

    /// A full disk has no room for a change, but the keys on it are needed.
    #[test]
    fn file_on_a_full_disk_is_opened_to_be_read() {
        let (_folder, file) = file();
        assert!(file.release(LONG));
        let faults = Faults::default();
        faults.set(Fault::Room);
        let database = opened(FaultyFile::open(file.path(), &faults), 0).unwrap();
        *file.open.lock() = Handle::Open(Arc::new(database.into()));
        assert_eq!(found(&file, 1).unwrap().as_deref(), Some("a"));
        assert!(file.note_uses(&["a".into()], 7).is_err());
    }

    /// Of a change that fails, the file may have all when it is opened again.
    #[test]
    fn keys_of_a_change_that_may_be_made_are_looked_up_again() {
        let mut is_ever_made = false;
        for synced in 0.. {
            let (_folder, file) = file();
            let mut position = Position::Unknown;
            position.advance(file.changes(position));
            let one = rotated(&file);
            fail(&file, Fault::Sync(synced));
            if file.replace(&[one]).is_ok() {
                break;
            }
            let changed = position.advance(file.changes(position));
            let is_made = found(&file, 3).unwrap().is_some();
            assert_eq!(found(&file, 1).unwrap().is_none(), is_made);
            if is_made {
                is_ever_made = true;
                assert_eq!(changed, Advance::Changed(vec![[1; 32], [3; 32]]));
            }
        }
        assert!(is_ever_made);
    }
}
