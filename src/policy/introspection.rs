//! [`Introspection`]: tokens that their issuer is asked about.

use std::path::PathBuf;
use std::time::Duration;

use super::redis::Secret;
use crate::client::jwt::settings::Issuer;
pub use crate::config::words::OnStoreFailure;
use crate::net::url::HttpUrl;

/// `[clients.introspection]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Introspection {
    /// Where the issuer is asked.
    pub url: HttpUrl,
    /// Certificate authorities of the issuer; `None`: the public ones.
    pub ca: Option<PathBuf>,
    /// The gateway's name and secret at the issuer, as `Authorization: Basic` has them.
    pub login: Secret,
    /// What the members of an answer mean. Its keys verify no token.
    pub claims: Issuer,
    /// Scopes that a token must have.
    pub scopes: Vec<Box<str>>,
    /// Time limit for an answer, and for the wait before.
    pub timeout: Duration,
    /// How many tokens the issuer is asked about at the same time.
    pub max_in_flight: usize,
    /// How long an answer is used, in microseconds.
    pub kept_us: u64,
    pub on_failure: OnStoreFailure,
}
