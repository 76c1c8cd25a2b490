//! Storage in Redis, shared by all gateways with the same `[redis]` and `storage_key`. Every record
//! is encrypted. One lock makes one of the gateways order certificates; the others take over what
//! it stores.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::seal::Seal;
use super::{Item, StorageError};
use crate::acme::challenges::PendingChallenge;
use crate::policy::redis::{Redis, Secret};
use crate::store::redis::link::records::Records;

/// How long a gateway holds the lock without extending it.
pub const LOCK_LIFETIME: Duration = Duration::from_secs(60);

/// How long challenges are kept whose gateway has stopped within an order.
const CHALLENGES_LIFETIME: Duration = Duration::from_secs(600);

/// Storage of one ACME server in Redis.
pub struct Shared {
    records: Records,
    seal: Seal,
    /// Begins the names of all records.
    server: String,
    /// Random name of this gateway as the holder of the lock.
    holder: String,
}

/// What other gateways have to answer: the challenges of the gateway that holds the lock.
#[derive(Serialize, Deserialize)]
struct Published {
    challenges: Vec<PendingChallenge>,
}

impl Shared {
    /// Storage of the server `server` in the Redis of `settings`. Does no I/O.
    ///
    /// # Errors
    /// The operating system gives no random numbers.
    pub fn new(settings: Redis, key: &Secret, server: String) -> Result<Self, StorageError> {
        let mut random = [0; 16];
        getrandom::fill(&mut random).map_err(|error| StorageError::Random(error.to_string()))?;
        let holder = format!("{:032x}", u128::from_ne_bytes(random));
        let records = Records::new(settings);
        Ok(Self { records, seal: Seal::new(key.reveal()), server, holder })
    }

    /// Reads a record; `None` if there is none.
    pub(super) async fn load(&self, item: Item<'_>) -> Result<Option<Vec<u8>>, StorageError> {
        self.load_named(&self.name(item)).await
    }

    /// Writes a record. Other gateways notice a certificate by its version.
    pub(super) async fn save(&self, item: Item<'_>, content: Vec<u8>) -> Result<(), StorageError> {
        self.save_named(&self.name(item), &content, None).await?;
        if let Item::Certificate(_) = item {
            let mut version = [0; 8];
            getrandom::fill(&mut version)
                .map_err(|error| StorageError::Random(error.to_string()))?;
            self.records.set(&self.named("version"), &version, None).await?;
        }
        Ok(())
    }

    /// A value that changes whenever a certificate is written.
    ///
    /// # Errors
    /// See [`StorageError`].
    pub async fn version(&self) -> Result<Vec<u8>, StorageError> {
        Ok(self.records.get(&self.named("version")).await?.unwrap_or_default())
    }

    /// Replaces the challenges that all gateways answer.
    ///
    /// # Errors
    /// See [`StorageError`].
    pub async fn publish(&self, challenges: Vec<PendingChallenge>) -> Result<(), StorageError> {
        let lifetime = if challenges.is_empty() { Duration::ZERO } else { CHALLENGES_LIFETIME };
        let json = serde_json::to_vec(&Published { challenges }).unwrap_or_default();
        self.save_named(&self.named("challenges"), &json, Some(lifetime)).await
    }

    /// Reads the challenges that all gateways answer.
    ///
    /// # Errors
    /// See [`StorageError`].
    pub async fn published(&self) -> Result<Vec<PendingChallenge>, StorageError> {
        let json = self.load_named(&self.named("challenges")).await?;
        let published = json.and_then(|json| serde_json::from_slice::<Published>(&json).ok());
        Ok(published.map_or_else(Vec::new, |published| published.challenges))
    }

    /// Takes the lock. Returns whether it was free.
    ///
    /// # Errors
    /// See [`StorageError`].
    pub async fn lock(&self) -> Result<bool, StorageError> {
        Ok(self.records.lock(&self.named("lock"), &self.holder, LOCK_LIFETIME).await?)
    }

    /// Extends the lock. Returns whether this gateway still had it.
    ///
    /// # Errors
    /// See [`StorageError`].
    pub async fn extend(&self) -> Result<bool, StorageError> {
        Ok(self.records.extend(&self.named("lock"), &self.holder, LOCK_LIFETIME).await?)
    }

    /// Releases the lock, if this gateway has it.
    ///
    /// # Errors
    /// See [`StorageError`].
    pub async fn unlock(&self) -> Result<(), StorageError> {
        self.records.extend(&self.named("lock"), &self.holder, Duration::ZERO).await?;
        Ok(())
    }

    async fn load_named(&self, name: &str) -> Result<Option<Vec<u8>>, StorageError> {
        let sealed = self.records.get(name).await?;
        sealed.map(|sealed| self.seal.open(name, &sealed)).transpose()
    }

    async fn save_named(
        &self,
        name: &str,
        content: &[u8],
        lifetime: Option<Duration>,
    ) -> Result<(), StorageError> {
        let sealed = self.seal.close(name, content)?;
        Ok(self.records.set(name, &sealed, lifetime).await?)
    }

    fn name(&self, item: Item<'_>) -> String {
        match item {
            Item::Account => self.named("account"),
            Item::Certificate(domain) => self.named(&format!("certificate:{domain}")),
            Item::Attempts(domain) => self.named(&format!("orders:{domain}")),
        }
    }

    fn named(&self, name: &str) -> String {
        format!("acme:{}:{name}", self.server)
    }
}
