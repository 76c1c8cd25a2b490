//! The clients that are known by a credential, and the look-up of one.

use std::collections::HashMap;
use std::sync::Arc;

use super::ClientKey;
use super::credential::Credential;
use crate::base::hash::{Digest, hash};

/// A client that is known by its API key.
#[derive(Debug, PartialEq, Eq)]
pub struct Principal {
    /// Its name in the file, which logs and the admin API show. Rules refer to it by this.
    pub id: Arc<str>,
    /// Index of its plan.
    pub plan: u32,
    /// Hash of the id, the same on all gateways and after a reload.
    pub hash: u64,
}

/// Whose key a request has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Found {
    pub key: ClientKey,
    /// Where the key was, as an index into the sources of keys; `None` without a key.
    pub source: Option<usize>,
}

/// All known clients, in the order of the file.
#[derive(Debug, Default)]
pub struct Keys {
    all: Vec<Arc<Principal>>,
    by_digest: HashMap<Digest, Arc<Principal>>,
}

impl Principal {
    /// The client with this id, which no other has.
    pub fn new(id: Arc<str>, plan: u32) -> Self {
        let hash = hash(id.as_bytes());
        Self { id, plan, hash }
    }
}

impl Keys {
    /// Adds a client, and the digest of its key.
    pub fn add(&mut self, principal: Principal, digest: Option<Digest>) {
        let principal = Arc::new(principal);
        if let Some(digest) = digest {
            self.by_digest.insert(digest, Arc::clone(&principal));
        }
        self.all.push(principal);
    }

    /// Finds whose credential a request has.
    pub fn look_up(&self, credential: Option<Credential>) -> Found {
        let Some(Credential { digest, source }) = credential else {
            return Found { key: ClientKey::Missing, source: None };
        };
        let known = self.with_digest(&digest).map(|known| ClientKey::Known(Arc::clone(known)));
        Found { key: known.unwrap_or(ClientKey::Unknown(digest)), source: Some(source) }
    }

    /// The client whose key has this digest.
    pub fn with_digest(&self, digest: &Digest) -> Option<&Arc<Principal>> {
        self.by_digest.get(digest)
    }

    /// The client with this id. Compares all of them: for operators, not for requests.
    pub fn named(&self, id: &str) -> Option<&Arc<Principal>> {
        self.all.iter().find(|principal| *principal.id == *id)
    }

    /// All clients, in the order of the file.
    pub fn all(&self) -> &[Arc<Principal>] {
        &self.all
    }

    /// The digest of each key, and the client that has it, in no order.
    pub fn digests(&self) -> impl Iterator<Item = (&Digest, &Arc<Principal>)> {
        self.by_digest.iter()
    }
}
