//! Storage in a folder: one file for each record, readable by the owner only, replaced atomically.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::{Item, StorageError};
use crate::base::blocking::BlockingCalls;

/// Time limit for reading or writing a file: on a network mount whose server is gone it may never
/// end.
const DEADLINE: Duration = Duration::from_secs(10);

/// Maximum number of bytes of a file. A certificate with its chain has about 5 KB.
const MAX_FILE_BYTES: u64 = 1 << 20;

/// Permissions of everyone but the owner.
const OTHERS: u32 = 0o077;

/// A folder with the account and the certificates of one ACME server.
pub struct Folder {
    path: PathBuf,
    calls: BlockingCalls,
}

impl Folder {
    /// Stores in `path`, which is created when something is saved.
    pub fn new(path: PathBuf) -> Self {
        Self { path, calls: BlockingCalls::default() }
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Permissions of the folder that others than the owner have; 0 if it does not exist yet.
    pub async fn permissions_of_others(&self) -> u32 {
        let path = self.path.clone();
        let mode =
            self.calls.run(DEADLINE, move || fs::metadata(path).map(|about| about.mode())).await;
        mode.ok().and_then(Result::ok).unwrap_or_default() & OTHERS
    }

    /// Reads a record; `None` if there is none.
    pub(super) async fn load(&self, item: Item<'_>) -> Result<Option<Vec<u8>>, StorageError> {
        let path = self.file(item);
        let read = path.clone();
        self.run(&path, move || match read_file(&read) {
            Ok(content) => Ok(Some(content)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        })
        .await
    }

    /// Writes a record.
    pub(super) async fn save(&self, item: Item<'_>, content: Vec<u8>) -> Result<(), StorageError> {
        let path = self.file(item);
        let (folder, target) = (self.path.clone(), path.clone());
        self.run(&path, move || replace(&folder, &target, &content)).await
    }

    /// Renames a record that cannot be read, so that its replacement does not destroy it.
    pub(super) async fn set_aside(&self, item: Item<'_>) -> Result<(), StorageError> {
        let path = self.file(item);
        let (from, to) = (path.clone(), beside(&path, ".corrupt"));
        self.run(&path, move || fs::rename(from, to)).await
    }

    /// Path of a record. Names of domains are checked with the file: they contain no slash.
    pub fn file(&self, item: Item<'_>) -> PathBuf {
        self.path.join(match item {
            Item::Account => "account.json".to_owned(),
            Item::Certificate(domain) => format!("{domain}.pem"),
            Item::Attempts(domain) => format!("{domain}.orders.json"),
        })
    }

    async fn run<T: Send + 'static>(
        &self,
        path: &Path,
        call: impl FnOnce() -> io::Result<T> + Send + 'static,
    ) -> Result<T, StorageError> {
        let error = |reason: String| StorageError::File { path: path.to_owned(), reason };
        match self.calls.run(DEADLINE, call).await {
            Ok(result) => result.map_err(|source| error(source.to_string())),
            Err(no_result) => Err(error(no_result.to_string())),
        }
    }
}

/// The path with `suffix` appended to the name of the file.
fn beside(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}

fn read_file(path: &Path) -> io::Result<Vec<u8>> {
    // Before it is opened: opening a pipe would block.
    if !fs::metadata(path)?.is_file() {
        return Err(io::Error::other("it is no regular file"));
    }
    let mut content = Vec::new();
    File::open(path)?.take(MAX_FILE_BYTES + 1).read_to_end(&mut content)?;
    if content.len() as u64 > MAX_FILE_BYTES {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "larger than 1 MiB"));
    }
    Ok(content)
}

/// Writes a new file beside the old one and renames it: a reader sees either, never a part, also
/// after a loss of power.
fn replace(folder: &Path, target: &Path, content: &[u8]) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
    let temporary = beside(target, ".new");
    // Left over from a process that was killed; it may have other permissions.
    match fs::remove_file(&temporary) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&temporary)?;
    file.write_all(content)?;
    file.sync_all()?;
    fs::rename(&temporary, target)?;
    File::open(folder)?.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    const DOMAIN: Item<'static> = Item::Certificate("a.example");

    #[tokio::test]
    async fn files_are_private_and_replaced_atomically() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("acme/ca.example");
        let storage = Folder::new(path.clone());
        assert_eq!(storage.load(DOMAIN).await.unwrap(), None);
        assert_eq!(storage.permissions_of_others().await, 0);
        storage.save(DOMAIN, b"one".to_vec()).await.unwrap();
        // What a killed process has left does not matter.
        fs::write(path.join("a.example.pem.new"), "half").unwrap();
        storage.save(DOMAIN, b"two".to_vec()).await.unwrap();
        assert_eq!(storage.load(DOMAIN).await.unwrap().unwrap(), b"two");
        let mode = |path: &Path| fs::metadata(path).unwrap().mode() & 0o777;
        assert_eq!((mode(&path), mode(&storage.file(DOMAIN))), (0o700, 0o600));
        assert_eq!(fs::read_dir(&path).unwrap().count(), 1, "no temporary file is left");
    }

    #[tokio::test]
    async fn unreadable_record_is_set_aside() {
        let folder = tempfile::tempdir().unwrap();
        let storage = Folder::new(folder.path().to_owned());
        storage.save(Item::Account, b"garbage".to_vec()).await.unwrap();
        storage.set_aside(Item::Account).await.unwrap();
        assert_eq!(storage.load(Item::Account).await.unwrap(), None);
        let kept = fs::read(folder.path().join("account.json.corrupt")).unwrap();
        assert_eq!(kept, b"garbage");
    }

    #[tokio::test]
    async fn error_names_the_file() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("acme"), "a file").unwrap();
        let storage = Folder::new(folder.path().join("acme"));
        let error = storage.save(Item::Account, Vec::new()).await.unwrap_err().to_string();
        assert!(error.contains("/acme/account.json: "), "{error}");
        fs::create_dir(folder.path().join("a.example.pem")).unwrap();
        let storage = Folder::new(folder.path().to_owned());
        let error = storage.load(DOMAIN).await.unwrap_err().to_string();
        assert!(error.ends_with("/a.example.pem: it is no regular file"), "{error}");
    }
}
