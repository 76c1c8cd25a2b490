//! The keys of one issuer: part of the configuration, or fetched in the background.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use arc_swap::ArcSwapOption;
use parking_lot::Mutex;
use tokio::sync::watch;
use tracing::{info, warn};

use super::fetch::fetch;
use super::schedule::Schedule;
use crate::base::clock;
use crate::base::duration::micros;
use crate::client::jwt::key_set::KeySet;
use crate::client::jwt::settings::{Fetched, Issuer, KeySource};
use crate::net::http::FileReads;
use crate::observe::metrics::TokenKeys;

/// The keys of one issuer. They change in the background only.
pub struct IssuerKeys {
    issuer: Arc<str>,
    source: KeySource,
    /// Reads the file `ca` for each fetch.
    reads: FileReads,
    /// How often they are fetched, in microseconds. Reloads change it.
    refresh_us: AtomicU64,
    /// `None` until they have been fetched once.
    current: ArcSwapOption<Current>,
    schedule: Mutex<Schedule>,
    /// Whether a token has a key that is not among them.
    is_wanted: AtomicBool,
    /// Whether a fetch has ended, or none is needed.
    is_tried: watch::Sender<bool>,
    fetches: AtomicU64,
    failures: AtomicU64,
    /// Whether the log has the failure of the last fetch that has ended.
    is_logged: AtomicBool,
}

/// Keys, and their version, which no other keys of the issuer have.
#[derive(Debug)]
pub(super) struct Current {
    pub(super) keys: Arc<KeySet>,
    pub(super) version: u64,
}

impl IssuerKeys {
    pub(super) fn new(issuer: &Issuer) -> Self {
        let fixed = match &issuer.keys {
            KeySource::Fixed(keys) => {
                Some(Arc::new(Current { keys: Arc::clone(keys), version: 0 }))
            }
            KeySource::Fetched(_) => None,
        };
        Self {
            issuer: Arc::clone(&issuer.issuer),
            source: issuer.keys.clone(),
            reads: FileReads::default(),
            refresh_us: AtomicU64::new(refresh_us(&issuer.keys)),
            current: ArcSwapOption::new(fixed),
            schedule: Mutex::default(),
            is_wanted: AtomicBool::new(false),
            is_tried: watch::Sender::new(matches!(issuer.keys, KeySource::Fixed(_))),
            fetches: AtomicU64::new(0),
            failures: AtomicU64::new(0),
            is_logged: AtomicBool::new(false),
        }
    }

    /// Whether these are the keys of the issuer, from the same place.
    pub(super) fn is_of(&self, issuer: &Issuer) -> bool {
        let is_same_place = match (&self.source, &issuer.keys) {
            (KeySource::Fetched(own), KeySource::Fetched(other)) => {
                (&own.from, &own.ca) == (&other.from, &other.ca)
            }
            (own, other) => own == other,
        };
        self.issuer == issuer.issuer && is_same_place
    }

    /// Adopts the settings of an issuer of whom these are the keys, at `now`, in microseconds.
    pub(super) fn follow(&self, issuer: &Issuer, now: u64) {
        let refresh_us = refresh_us(&issuer.keys);
        if self.refresh_us.swap(refresh_us, Ordering::Relaxed) != refresh_us {
            self.schedule.lock().fetch_within(now, refresh_us);
        }
    }

    pub(super) fn current(&self) -> Option<Arc<Current>> {
        self.current.load_full()
    }

    /// Demands a fetch as soon as the schedule allows one.
    pub(super) fn request(&self) {
        // A read first: requests with made-up keys must not write to a shared line each.
        if !self.is_wanted.load(Ordering::Relaxed) {
            self.is_wanted.store(true, Ordering::Relaxed);
        }
    }

    /// The state for metrics; `None` for keys of the configuration.
    pub fn view(&self) -> Option<TokenKeys<'_>> {
        matches!(self.source, KeySource::Fetched(_)).then(|| TokenKeys {
            issuer: &self.issuer,
            keys: self.current().map_or(0, |current| current.keys.count()),
            fetched: self.fetches.load(Ordering::Relaxed),
            failed: self.failures.load(Ordering::Relaxed),
        })
    }

    #[cfg(test)]
    pub(super) fn is_failure_logged(&self) -> bool {
        self.is_logged.load(Ordering::Relaxed)
    }

    /// Completes when the first fetch has ended.
    pub(super) async fn until_tried(&self) {
        let mut is_tried = self.is_tried.subscribe();
        // An error means that the keys are not needed any more.
        let _ = is_tried.wait_for(|is_true| *is_true).await;
    }

    /// Fetches the keys if that is due at `now`, in microseconds. Keys that have been fetched are
    /// kept if it fails.
    pub async fn fetch(&self, now: u64) {
        let KeySource::Fetched(from) = &self.source else { return };
        let is_wanted = self.is_wanted.load(Ordering::Relaxed);
        if !self.schedule.lock().begin(now, is_wanted) {
            return;
        }
        self.is_wanted.store(false, Ordering::Relaxed);
        let fetching = Fetching { keys: self, from, is_success: false };
        fetching.run().await;
    }

    fn adopt(&self, keys: KeySet) {
        self.fetches.fetch_add(1, Ordering::Relaxed);
        let previous = self.current.load();
        if previous.as_ref().is_some_and(|current| *current.keys == keys) {
            return;
        }
        let version = previous.as_ref().map_or(1, |current| current.version + 1);
        info!(issuer = %self.issuer, keys = keys.count(), "keys of a token issuer fetched");
        self.current.store(Some(Arc::new(Current { keys: Arc::new(keys), version })));
    }
}

/// How often keys are fetched, in microseconds; 0 for those of the configuration.
fn refresh_us(source: &KeySource) -> u64 {
    match source {
        KeySource::Fixed(_) => 0,
        KeySource::Fetched(from) => micros(from.refresh),
    }
}

/// A fetch that ends also if it is dropped, as at the end of the start.
struct Fetching<'a> {
    keys: &'a IssuerKeys,
    from: &'a Fetched,
    is_success: bool,
}

impl Fetching<'_> {
    async fn run(mut self) {
        match fetch(self.from, &self.keys.issuer, &self.keys.reads).await {
            Ok(keys) => {
                self.is_success = true;
                self.keys.is_logged.store(false, Ordering::Relaxed);
                self.keys.adopt(keys);
            }
            Err(error) => {
                self.keys.failures.fetch_add(1, Ordering::Relaxed);
                // A fetch that the start did not wait for is not logged: the next one is.
                if !self.keys.is_logged.swap(true, Ordering::Relaxed) {
                    let kept = self.keys.current().is_some();
                    warn!(issuer = %self.keys.issuer, detail = %error, kept, "keys of a token issuer cannot be fetched");
                }
            }
        }
    }
}

impl Drop for Fetching<'_> {
    fn drop(&mut self) {
        let refresh_us = self.keys.refresh_us.load(Ordering::Relaxed);
        let mut jitter = [0];
        // Without randomness, gateways may fetch at once.
        let _ = getrandom::fill(&mut jitter);
        let mut schedule = self.keys.schedule.lock();
        schedule.end(clock::now(), self.is_success, refresh_us, jitter[0]);
        self.keys.is_tried.send_replace(true);
    }
}
