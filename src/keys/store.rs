//! [`KeyStore`]: what requests use of the key store: the cache, and the queue of look-ups.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use tokio::sync::{Notify, mpsc, oneshot};
use tokio::time::timeout;
use tracing::warn;

use super::cache::{self, Cache, Cached, StoredKey};
use super::kept::{Kept, KeptError};
use super::own_rotation::OwnRotations;
use super::uses::Uses;
use crate::base::clock;
use crate::base::duration::micros;
use crate::base::hash::Digest;
use crate::base::log_interval::LogInterval;
use crate::base::text::cut;
use crate::base::unix_time;
use crate::client::principal::{Found, Principal};
use crate::observe::metrics::KeySeries;
use crate::policy::Policy;
use crate::policy::key_store::{KeyStore as Settings, OnStoreFailure};
use crate::store::memory::MemoryStore;

/// How long a request waits for a look-up.
const LOOKUP_TIMEOUT: Duration = Duration::from_millis(250);

/// Maximum number of requests that wait for a look-up.
const MAX_WAITING: usize = 4_096;

/// Minimum time between two log lines of one kind, in seconds.
const LOG_INTERVAL_S: u64 = 60;

/// The key store of a gateway.
pub struct KeyStore {
    /// Where records are.
    pub kept: Kept,
    /// The buckets in this process, whose limits have numbers.
    buckets: Arc<MemoryStore>,
    pub(super) cache: Cache,
    /// When changes were last read, in microseconds; 0: never.
    pub(super) synced_at: AtomicU64,
    /// Whether the last attempt to read the store failed.
    pub(super) is_failing: AtomicBool,
    /// Wakes the task that reads changes.
    pub(super) has_changed: Notify,
    pub(super) series: KeySeries,
    /// Clients that have sent requests lately.
    pub(super) uses: Uses,
    /// Clients that have replaced their own keys lately.
    pub(super) own_rotations: OwnRotations,
    queue: mpsc::Sender<LookUp>,
    unusable: LogInterval,
    /// Overrides that had no place, as far as they are logged.
    overrides_beyond: AtomicU64,
    beyond: LogInterval,
}

/// A look-up that a request waits for.
#[derive(Debug)]
pub struct LookUp {
    pub(super) digest: Digest,
    /// Gets the result; nothing if the store cannot be read.
    pub(super) answer: oneshot::Sender<Cached>,
}

impl LookUp {
    /// Whether the request has not given up.
    pub(super) fn is_waited_for(&self) -> bool {
        !self.answer.is_closed()
    }

    /// Hands over the result. The request may have given up.
    pub(super) fn answer(self, found: Cached) {
        let _ = self.answer.send(found);
    }
}

/// The look-ups of all requests, for the task that makes them.
pub type LookUps = mpsc::Receiver<LookUp>;

impl KeyStore {
    /// Creates a store with an empty cache, and the queue of its look-ups. Does no I/O.
    pub fn new(
        settings: &Settings,
        kept: Kept,
        buckets: Arc<MemoryStore>,
        series: KeySeries,
    ) -> (Arc<Self>, LookUps) {
        let (queue, look_ups) = mpsc::channel(MAX_WAITING);
        let store = Self {
            kept,
            buckets,
            cache: Cache::new(settings.cache),
            synced_at: AtomicU64::new(0),
            is_failing: AtomicBool::new(false),
            has_changed: Notify::new(),
            series,
            uses: Uses::default(),
            own_rotations: OwnRotations::default(),
            queue,
            unusable: LogInterval::new(LOG_INTERVAL_S),
            overrides_beyond: AtomicU64::new(0),
            beyond: LogInterval::new(LOG_INTERVAL_S),
        };
        (Arc::new(store), look_ups)
    }

    /// Finds whose key this is, which the configuration file does not have. `policy` is in force as
    /// that `generation`; `now` is in microseconds.
    pub async fn find(
        &self,
        policy: &Policy,
        generation: u64,
        key: (Digest, usize),
        now: u64,
    ) -> Found {
        let cached = match self.kept(policy, &key.0, now) {
            Some(cached) => Some(cached),
            None => Box::pin(self.fetch(key.0)).await,
        };
        self.found(policy, generation, key, cached, now)
    }

    /// Finds whose key this is, by what
    /// [`kept`](Self::kept) or [`fetch`](Self::fetch) has returned. `policy` is in force as that
    /// `generation`; `now` is in microseconds.
    pub fn found(
        &self,
        policy: &Policy,
        generation: u64,
        (digest, source): (Digest, usize),
        cached: Option<Cached>,
        now: u64,
    ) -> Found {
        let is_anonymous = policy
            .key_store
            .as_ref()
            .is_some_and(|settings| settings.on_store_failure == OnStoreFailure::Anonymous);
        match cached {
            Some(Cached::Unknown) => Found::unknown(digest, source),
            Some(Cached::Known(key)) => {
                let known = key.under(policy, generation, &self.buckets);
                match known {
                    Some(_) => key.note_use(&self.uses, now),
                    None => self.note_unusable(policy, &key, now),
                }
                let found = known.map(|it| Found::known(&it, source, || unix_time::of(now)));
                found.unwrap_or_else(|| Found::unverified(source, false))
            }
            None => Found::unverified(source, is_anonymous),
        }
    }

    /// What the cache has at `now` (microseconds), unless it is too old.
    pub fn kept(&self, policy: &Policy, digest: &Digest, now: u64) -> Option<Cached> {
        // The policy of a request has the table: adding or removing it needs a restart.
        let max_stale = policy.key_store.as_ref()?.max_stale;
        let age_us = now.saturating_sub(self.synced_at.load(Ordering::Relaxed));
        if age_us > micros(max_stale) {
            return None;
        }
        let cached = self.cache.get(digest)?;
        match &cached {
            Cached::Known(_) => self.series.hits.inc(),
            Cached::Unknown => self.series.unknown_hits.inc(),
        }
        Some(cached)
    }

    /// Waits for a look-up; `None` if the store cannot be read now.
    pub async fn fetch(&self, digest: Digest) -> Option<Cached> {
        let found = self.answer(digest).await;
        match &found {
            Some(Cached::Known(_)) => self.series.found.inc(),
            Some(Cached::Unknown) => self.series.unknown.inc(),
            None => self.series.failed.inc(),
        }
        found
    }

    async fn answer(&self, digest: Digest) -> Option<Cached> {
        if self.is_failing.load(Ordering::Relaxed) {
            return None;
        }
        let (answer, answered) = oneshot::channel();
        self.queue.try_send(LookUp { digest, answer }).ok()?;
        timeout(LOOKUP_TIMEOUT, answered).await.ok()?.ok()
    }

    /// Logs why a key that the store has is not one under `policy`.
    fn note_unusable(&self, policy: &Policy, key: &StoredKey, now: u64) {
        if let Some(suppressed) = self.unusable.count(now) {
            let (client, plan) = (cut(key.id(), 64), cut(key.plan(), 64));
            if policy.keys.named(key.id()).is_some() {
                warn!(
                    client,
                    suppressed, "the key store and the file have a client of the same id"
                );
                return;
            }
            warn!(
                client,
                plan, suppressed, "the key store names a plan that the file does not have"
            );
        }
    }

    /// Logs that clients have got the limits of their plans because the overrides of all clients
    /// have too many different ones. `now` is in microseconds.
    pub(super) fn note_overrides(&self, now: u64) {
        let beyond = self.buckets.limits_beyond();
        let logged = self.overrides_beyond.load(Ordering::Relaxed);
        if beyond > logged && self.beyond.count(now).is_some() {
            self.overrides_beyond.store(beyond, Ordering::Relaxed);
            warn!(
                overrides = beyond - logged,
                "overrides of stored clients have too many different limits: the clients have those of their plans"
            );
        }
    }

    /// The client with this id; `None` if the store has none, or the policy not its plan.
    ///
    /// # Errors
    /// See [`KeptError`].
    pub async fn client(
        &self,
        policy: &Policy,
        id: &str,
    ) -> Result<Option<Arc<Principal>>, KeptError> {
        let stored = self.kept.get(&[id]).await?.pop().flatten();
        Ok(stored.and_then(|stored| cache::client(&stored.record.ok()?, policy, &self.buckets)))
    }

    /// Reads changes at once: this gateway has made one.
    pub fn note_change(&self) {
        self.has_changed.notify_one();
    }

    /// Numbers of known and of unknown keys in memory.
    pub fn cached_keys(&self) -> (usize, usize) {
        self.cache.len()
    }

    /// Whether the store can be read, as far as is known.
    pub fn is_available(&self) -> bool {
        !self.is_failing.load(Ordering::Relaxed)
    }

    /// Seconds since changes were last read; `None`: never.
    pub fn synced_before_s(&self) -> Option<u64> {
        let at = self.synced_at.load(Ordering::Relaxed);
        (at > 0).then(|| clock::now().saturating_sub(at) / 1_000_000)
    }
}
