//! Where account, certificates and the state of orders are kept: in a folder of this machine, or in
//! Redis for all gateways that share it.
//!
//! Reading order: this file, `folder`, `seal` (encryption), `shared` (Redis).

pub mod folder;
pub mod seal;
pub mod shared;

use std::path::PathBuf;

use thiserror::Error;

use super::plan::Attempts;
use crate::store::redis::link::records::RecordsError;
use folder::Folder;
use shared::Shared;

/// Account, certificates and orders of one ACME server.
pub enum Storage {
    Folder(Folder),
    /// In Redis, encrypted.
    Redis(Box<Shared>),
}

/// A record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Item<'a> {
    /// The account with its private key.
    Account,
    /// Private key and certificate chain of a domain, in PEM.
    Certificate(&'a str),
    /// The orders for a domain so far.
    Attempts(&'a str),
}

/// Why a record cannot be read or written.
#[derive(Debug, Error)]
pub enum StorageError {
    /// A file or its folder.
    #[error("{}: {reason}", path.display())]
    File {
        /// Path of the file.
        path: PathBuf,
        /// The error of the system.
        reason: String,
    },
    #[error("Redis: {0}")]
    Redis(#[from] RecordsError),
    /// A record in Redis cannot be decrypted.
    #[error(
        "a record in Redis cannot be decrypted; `storage_key` of [acme] must be that of the gateway that \
         wrote it"
    )]
    WrongKey,
    /// The operating system gives no random numbers.
    #[error("no random numbers: {0}")]
    Random(String),
}

impl Storage {
    /// Reads a record; `None` if there is none.
    ///
    /// # Errors
    /// See [`StorageError`].
    pub async fn load(&self, item: Item<'_>) -> Result<Option<Vec<u8>>, StorageError> {
        match self {
            Self::Folder(folder) => folder.load(item).await,
            Self::Redis(shared) => shared.load(item).await,
        }
    }

    /// Writes a record, in full or not at all.
    ///
    /// # Errors
    /// See [`StorageError`].
    pub async fn save(&self, item: Item<'_>, content: Vec<u8>) -> Result<(), StorageError> {
        match self {
            Self::Folder(folder) => folder.save(item, content).await,
            Self::Redis(shared) => shared.save(item, content).await,
        }
    }

    /// Keeps a malformed record under another name, so that a new one can replace it. In Redis
    /// there is nothing to keep: a record that decrypts was written by a gateway.
    ///
    /// # Errors
    /// See [`StorageError`].
    pub async fn set_aside(&self, item: Item<'_>) -> Result<(), StorageError> {
        match self {
            Self::Folder(folder) => folder.set_aside(item).await,
            Self::Redis(_) => Ok(()),
        }
    }

    /// Reads the orders for a domain so far. A malformed record counts as none.
    ///
    /// # Errors
    /// See [`StorageError`].
    pub async fn attempts(&self, domain: &str) -> Result<Attempts, StorageError> {
        let stored = self.load(Item::Attempts(domain)).await?;
        Ok(stored.and_then(|json| serde_json::from_slice(&json).ok()).unwrap_or_default())
    }

    /// Writes the orders for a domain so far.
    ///
    /// # Errors
    /// See [`StorageError`].
    pub async fn save_attempts(
        &self,
        domain: &str,
        attempts: &Attempts,
    ) -> Result<(), StorageError> {
        let json = serde_json::to_vec(attempts).unwrap_or_default();
        self.save(Item::Attempts(domain), json).await
    }
}

/// Name of the part of the storage that belongs to one ACME server: the host and path of its
/// directory. Certificates of a test server are then never used as those of another.
pub fn server_name(directory: &str) -> String {
    let rest = directory.split_once("://").map_or(directory, |(_, rest)| rest);
    let safe = |byte: char| {
        if byte.is_ascii_alphanumeric() || byte == '.' || byte == '-' {
            byte.to_ascii_lowercase()
        } else {
            '-'
        }
    };
    let name: String = rest.trim_end_matches('/').chars().map(safe).take(200).collect();
    // Neither hidden nor the parent folder.
    name.trim_start_matches('.').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_directory_has_a_safe_name() {
        let table = [
            (
                "https://acme-v02.api.letsencrypt.org/directory",
                "acme-v02.api.letsencrypt.org-directory",
            ),
            ("https://127.0.0.1:14000/dir", "127.0.0.1-14000-dir"),
            ("https://CA.example/a/../b/", "ca.example-a-..-b"),
            ("https://../x", "-x"),
        ];
        for (directory, expected) in table {
            assert_eq!(server_name(directory), expected);
        }
    }
}
