//! The files that `${file:…}` names, those of networks, of bodies of errors and of users. Each is
//! read once per load, so that two settings with the same file have the same value. Errors never
//! contain the content of a secret.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use sha2::{Digest as _, Sha256};
use thiserror::Error;

use crate::base::hash::Digest;
use crate::config::reference::{FileContent, Piece, Reference, pieces};
use crate::policy::build::{Lookup, Missing, variable};
use crate::policy::errors::template::MAX_BYTES as MAX_BODY_BYTES;
use crate::policy::redis::Secret;

/// Maximum size of a secret, in bytes.
const MAX_SECRET_BYTES: u64 = 64 << 10;

/// Maximum size of a file of networks, in bytes.
const MAX_NETWORKS_BYTES: u64 = 16 << 20;

/// Maximum size of a file with the body of an error, in bytes.
const MAX_ERROR_BODY_BYTES: u64 = MAX_BODY_BYTES as u64;

/// Maximum size of a file of users, in bytes.
const MAX_USERS_BYTES: u64 = 1 << 20;

/// The files that one configuration file names, read on demand.
#[derive(Debug)]
pub(super) struct SecretFiles {
    /// Folder of the configuration file, at which relative paths begin.
    folder: PathBuf,
    /// By what they have, and the path as written.
    read: RefCell<BTreeMap<(FileContent, String), Read>>,
}

/// A file that a configuration file names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SecretFile {
    /// Its path as written in the configuration file.
    pub written: String,
    pub path: PathBuf,
    /// SHA-256 of its value; `None` if it could not be read.
    pub digest: Option<Digest>,
    content: FileContent,
}

/// Why a file has no value.
#[derive(Debug, Error)]
pub(super) enum FileError {
    #[error("cannot read {0}: {1}")]
    Unreadable(String, io::Error),
    #[error("{0} is a directory; name the file in it")]
    Directory(String),
    #[error("{0} is no regular file, so it cannot be read again")]
    NotAFile(String),
    #[error("{0} is empty")]
    Empty(String),
    #[error("{path} is larger than {} KiB; it was not read", .max_bytes >> 10)]
    TooLarge { path: String, max_bytes: u64 },
    #[error("{0} is not UTF-8")]
    NotText(String),
    #[error("{0} contains a NUL; was it written to the end?")]
    Nul(String),
    #[error("{path}:{line} is not UTF-8")]
    LineNotText { path: String, line: usize },
    #[error("{path}:{line} contains a NUL; was the file written to the end?")]
    LineNul { path: String, line: usize },
    /// A variable in its path is not set.
    #[error("{}", .0.message)]
    Path(Missing),
}

#[derive(Debug)]
struct Read {
    path: PathBuf,
    value: Result<Secret, FileError>,
}

// === impl SecretFiles ===

impl SecretFiles {
    /// The files that the configuration file at `path` names.
    pub(super) fn of(path: &Path) -> Self {
        let folder = path.parent().map_or_else(PathBuf::new, Path::to_owned);
        Self { folder, read: RefCell::default() }
    }

    /// The folder at which relative paths begin.
    pub(super) fn folder(&self) -> &Path {
        &self.folder
    }

    /// The value of a file, by its path as written.
    pub(super) fn value<T>(
        &self,
        content: FileContent,
        written: &str,
        use_it: impl FnOnce(Result<&str, &FileError>) -> T,
    ) -> T {
        let mut read = self.read.borrow_mut();
        let read = read
            .entry((content, written.to_owned()))
            .or_insert_with(|| self.open(content, written));
        use_it(read.value.as_ref().map(Secret::reveal))
    }

    /// The files that have been read, or could not be.
    pub(super) fn list(&self) -> Vec<SecretFile> {
        let read = self.read.borrow();
        let file = |((content, written), read): (&(FileContent, String), &Read)| SecretFile {
            written: written.clone(),
            path: read.path.clone(),
            digest: read.value.as_ref().ok().map(digest),
            content: *content,
        };
        read.iter().map(file).collect()
    }

    fn open(&self, content: FileContent, written: &str) -> Read {
        match path(written) {
            Ok(path) => {
                let path = self.folder.join(path);
                // The value of a variable is not shown.
                let has_variable = written.contains("${");
                let shown =
                    if has_variable { written.to_owned() } else { path.display().to_string() };
                Read { value: read(content, &path, shown), path }
            }
            Err(missing) => {
                Read { path: self.folder.join(written), value: Err(FileError::Path(missing)) }
            }
        }
    }
}

// === impl SecretFile ===

impl SecretFile {
    /// Whether the file still has the value that was read. Blocks as long as the file system does.
    pub fn is_unchanged(&self) -> bool {
        let value = read(self.content, &self.path, String::new());
        self.digest.is_some() && value.ok().as_ref().map(digest) == self.digest
    }
}

// === impl FileError ===

impl FileError {
    /// Whether the file may exist elsewhere: it is not that the file has a wrong content.
    pub(super) fn is_absence(&self) -> bool {
        matches!(self, Self::Unreadable(..) | Self::Path(_))
    }

    /// What to do about a file that should have this.
    pub(super) fn missing(&self, content: FileContent) -> Missing {
        let help = match self {
            Self::Path(missing) => return missing.clone(),
            Self::Unreadable(_, error) if error.kind() == io::ErrorKind::PermissionDenied => {
                "the user that the gateway runs as needs to read it"
            }
            Self::Unreadable(..) => {
                "a relative path begins at the folder of the configuration file"
            }
            Self::Empty(_) if content == FileContent::Secret => {
                "write the secret to it; one line break at its end is ignored"
            }
            Self::Empty(_)
            | Self::Directory(_)
            | Self::NotAFile(_)
            | Self::NotText(_)
            | Self::Nul(_)
            | Self::TooLarge { .. }
            | Self::LineNotText { .. }
            | Self::LineNul { .. } => match content {
                FileContent::Secret => "a file has one secret, as text, of up to 64 KiB",
                FileContent::Networks => {
                    "a file has networks, one a line, as text, of up to 16 MiB"
                }
                FileContent::Users => "a file has users, one a line, as text, of up to 1 MiB",
                FileContent::ErrorBody => {
                    "a file has the body of an error, as text, of up to 64 KiB"
                }
            },
        };
        Missing { message: self.to_string(), help: help.to_owned() }
    }
}

/// The path with its variables replaced.
fn path(written: &str) -> Result<PathBuf, Missing> {
    let mut path = String::new();
    for piece in pieces(written).unwrap_or_default() {
        match piece {
            Piece::Text(text) => path.push_str(text),
            Piece::Reference(Reference::Variable(name)) => {
                match variable(name, std::env::var(name).ok()) {
                    Lookup::Value(value) => path.push_str(&value),
                    Lookup::Missing(missing) => return Err(missing),
                    Lookup::Assumed => {}
                }
            }
            // Rejected when the setting was parsed.
            Piece::Reference(Reference::File(..)) => {}
        }
    }
    Ok(path.into())
}

/// Reads a file. `shown` is its path for errors.
fn read(content: FileContent, path: &Path, shown: String) -> Result<Secret, FileError> {
    let unreadable = |error| FileError::Unreadable(shown.clone(), error);
    // Before it is opened: opening a pipe would block.
    let about = std::fs::metadata(path).map_err(unreadable)?;
    if about.is_dir() {
        return Err(FileError::Directory(shown));
    }
    if !about.is_file() {
        return Err(FileError::NotAFile(shown));
    }
    let max_bytes = match content {
        FileContent::Secret => MAX_SECRET_BYTES,
        FileContent::Networks => MAX_NETWORKS_BYTES,
        FileContent::ErrorBody => MAX_ERROR_BODY_BYTES,
        FileContent::Users => MAX_USERS_BYTES,
    };
    let mut bytes = Vec::new();
    let file = File::open(path).map_err(unreadable)?;
    file.take(max_bytes + 1).read_to_end(&mut bytes).map_err(unreadable)?;
    if bytes.len() as u64 > max_bytes {
        return Err(FileError::TooLarge { path: shown, max_bytes });
    }
    if content == FileContent::ErrorBody && bytes.is_empty() {
        return Err(FileError::Empty(shown));
    }
    if content != FileContent::Secret {
        return lines(bytes, shown);
    }
    if bytes.contains(&0) {
        return Err(FileError::Nul(shown));
    }
    let Ok(mut text) = String::from_utf8(bytes) else {
        return Err(FileError::NotText(shown));
    };
    if text.ends_with('\n') {
        text.pop();
        if text.ends_with('\r') {
            text.pop();
        }
    }
    if text.is_empty() { Err(FileError::Empty(shown)) } else { Ok(Secret::new(text)) }
}

/// The text of a file whose lines are no secrets.
fn lines(bytes: Vec<u8>, path: String) -> Result<Secret, FileError> {
    let line_at =
        |bytes: &[u8], at: usize| 1 + bytes.iter().take(at).filter(|byte| **byte == b'\n').count();
    if let Some(at) = bytes.iter().position(|byte| *byte == 0) {
        return Err(FileError::LineNul { line: line_at(&bytes, at), path });
    }
    String::from_utf8(bytes).map(Secret::new).map_err(|error| FileError::LineNotText {
        line: line_at(error.as_bytes(), error.utf8_error().valid_up_to()),
        path,
    })
}

fn digest(value: &Secret) -> Digest {
    Sha256::digest(value.reveal()).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn value_is_the_content_without_one_line_break() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("secret");
        let value = |bytes: &[u8]| {
            std::fs::write(&path, bytes).unwrap();
            let files = SecretFiles::of(&folder.path().join("gateway.toml"));
            files.value(FileContent::Secret, "secret", |value| {
                value
                    .map(str::to_owned)
                    .map_err(|error| error.to_string().replace(&path.display().to_string(), "FILE"))
            })
        };
        let large = vec![b'a'; (64 << 10) + 1];
        let table: [(&[u8], Result<&str, &str>); 9] = [
            (b"hunter2", Ok("hunter2")),
            (b"hunter2\n", Ok("hunter2")),
            (b"hunter2\r\n", Ok("hunter2")),
            (b"hunter2\n\n", Ok("hunter2\n")),
            (b" hunter2 ", Ok(" hunter2 ")),
            (b"\n", Err("FILE is empty")),
            (b"hunter2\0", Err("FILE contains a NUL; was it written to the end?")),
            (b"hunter2\xff", Err("FILE is not UTF-8")),
            (&large, Err("FILE is larger than 64 KiB; it was not read")),
        ];
        for (bytes, expected) in table {
            assert_eq!(value(bytes), expected.map(str::to_owned).map_err(str::to_owned));
        }
        assert_eq!(value(&large[1..]).map(|value| value.len()), Ok(64 << 10));
    }

    #[test]
    fn wrong_byte_in_a_file_of_networks_is_reported_with_its_line() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("blocked.txt");
        let error = |bytes: &[u8]| {
            std::fs::write(&path, bytes).unwrap();
            let error = read(FileContent::Networks, &path, "FILE".to_owned()).err().unwrap();
            format!("{error}: {}", error.missing(FileContent::Networks).help)
        };
        let help = "a file has networks, one a line, as text, of up to 16 MiB";
        assert_eq!(
            error(b"192.0.2.1\n\n192.0.2.2\0\n"),
            format!("FILE:3 contains a NUL; was the file written to the end?: {help}")
        );
        assert_eq!(error(b"\xff\n"), format!("FILE:1 is not UTF-8: {help}"));
        assert_eq!(error(b"192.0.2.1\n# \xfc\n"), format!("FILE:2 is not UTF-8: {help}"));
    }

    #[test]
    fn file_is_read_once_and_its_change_is_noticed() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("secret");
        std::fs::write(&path, "one").unwrap();
        let files = SecretFiles::of(&folder.path().join("gateway.toml"));
        let value =
            || files.value(FileContent::Secret, "secret", |value| value.map(str::to_owned).ok());
        assert_eq!(value().as_deref(), Some("one"));
        let [read] = &files.list()[..] else { panic!("{files:?}") };
        assert!(read.is_unchanged() && read.path == path && read.written == "secret");
        std::fs::write(&path, "one\n").unwrap();
        assert!(read.is_unchanged());
        std::fs::write(&path, "two").unwrap();
        assert!(!read.is_unchanged());
        assert_eq!(value().as_deref(), Some("one"));
        std::fs::remove_file(&path).unwrap();
        assert!(!read.is_unchanged());
        assert!(!format!("{files:?}").contains("one"), "{files:?}");
    }
}
