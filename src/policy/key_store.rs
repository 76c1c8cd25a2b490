//! `[key_store]`, resolved.

use std::path::PathBuf;
use std::time::Duration;

pub use crate::config::words::OnStoreFailure;

/// Clients with API keys beside those of the file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyStore {
    pub place: Place,
    /// Maximum number of API keys in memory; and of unknown ones, beside them.
    pub cache: usize,
    /// How long keys in memory are used while the store cannot be read.
    pub max_stale: Duration,
    /// Treatment of a request whose key is not in memory while the store cannot be read.
    pub on_store_failure: OnStoreFailure,
    /// Whether clients can replace their own keys, by POST to `clients.limits_path`.
    pub self_rotation: bool,
}

/// Where records are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Place {
    /// In the Redis of `[redis]`, which the file has.
    Redis,
    /// In a file, which only this process uses.
    File(PathBuf),
}
