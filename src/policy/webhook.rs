//! [`Webhook`]: a server that is sent events.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

pub use crate::config::words::WebhookEvent;
use crate::net::url::HttpUrl;

/// `[webhooks.<name>]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Webhook {
    /// Its name in the file.
    pub name: Arc<str>,
    /// Where events are sent.
    pub url: HttpUrl,
    /// Key of the signatures.
    pub key: SigningKey,
    /// The events that are sent.
    pub events: Vec<WebhookEvent>,
    /// Time limit for an answer.
    pub timeout: Duration,
    /// Certificate authorities of the server; `None`: the public ones.
    pub ca: Option<PathBuf>,
}

/// Key of signatures, which is not logged.
#[derive(Clone, PartialEq, Eq)]
pub struct SigningKey(Box<[u8]>);

impl SigningKey {
    /// Wraps the bytes of a key.
    pub fn new(bytes: Vec<u8>) -> Self {
        Self(bytes.into())
    }

    /// The bytes, to sign with only.
    pub fn reveal(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Debug for SigningKey {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("***")
    }
}
