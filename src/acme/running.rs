//! The work for one `[acme]` table: it ends when the table changes.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use sha2::{Digest as _, Sha256};
use tokio::task::{JoinError, JoinSet};
use tokio::time::timeout;
use tracing::{error, info, warn};

use super::AcmeHandles;
use super::account::Accounts;
use super::board::Board;
use super::domain::{Domain, Kept, RunningOrder};
use super::error::{AcmeError, readable};
use super::order::{Failed, Issued, Orders, usable};
use super::storage::folder::Folder;
use super::storage::shared::{LOCK_LIFETIME, Shared};
use super::storage::{Item, Storage, StorageError, server_name};
use crate::base::clock;
use crate::base::duration::MICROS_PER_SECOND;
use crate::base::time::UtcTime;
use crate::policy::Policy;
use crate::policy::acme::{Acme, AcmeStorage};
use crate::policy::redis::Redis;
use crate::tls::failures::Failing;
use crate::tls::store::CertificateStore;

/// Maximum number of orders that run at the same time. A domain whose challenge fails only after
/// minutes does not delay the others.
const MAX_ORDERS: usize = 4;

/// The lock in Redis is extended after a third of its lifetime, in microseconds.
const EXTEND_AFTER_US: u64 = LOCK_LIFETIME.as_secs() * MICROS_PER_SECOND / 3;

/// Pause before the storage is read again after an error, in microseconds.
const RETRY_STORAGE_US: u64 = 5 * MICROS_PER_SECOND;

/// Time limit for reading the stored certificates before the first handshake.
const START_TIMEOUT: Duration = Duration::from_secs(2);

/// Time limit for the last calls to Redis when the work ends.
const STOP_TIMEOUT: Duration = Duration::from_secs(2);

/// The work for one `[acme]` table.
pub struct Running {
    settings: Acme,
    redis: Option<Redis>,
    orders: Arc<Orders>,
    handles: AcmeHandles,
    domains: BTreeMap<String, Domain>,
    jobs: JoinSet<(String, Result<Issued, Failed>)>,
    /// Whether the records have been read for the first time.
    is_started: bool,
    /// The version of the certificates in Redis that was read last.
    version: Vec<u8>,
    /// When this gateway last took or extended the lock in Redis, in microseconds; `None`: it has
    /// none.
    locked_at: Option<u64>,
    storage_problem: Option<Problem>,
}

/// The storage cannot be used.
struct Problem {
    text: String,
    /// When it is tried again, in microseconds.
    retry_at: u64,
}

/// The certificates of a table that is not in force any more.
pub struct Previous {
    directory: String,
    domains: BTreeMap<String, Kept>,
}

/// Puts the stored certificates in force, before the first handshake. What cannot be read in time
/// is left to the service, which reports it.
pub async fn present_stored(policy: &Policy, certificates: &CertificateStore) {
    let Some(settings) = &policy.acme else { return };
    let Ok(storage) = open_storage(settings, policy.redis.as_ref()) else { return };
    let mut found = Vec::new();
    let read = async {
        for name in &settings.domains {
            let Ok(stored) = storage.load(Item::Certificate(name)).await else { continue };
            let certificate = stored.map(|pem| usable(name, &pem, clock::unix_seconds()));
            found.extend(certificate.and_then(Result::ok).map(Arc::new));
        }
    };
    // A timeout is not an error here.
    let _ = timeout(START_TIMEOUT, read).await;
    certificates.set_acme(found);
}

// === impl Running ===

impl Running {
    /// Begins the work for the `[acme]` table of `policy`; `None` without one. Domains that
    /// `previous` has are served from its certificates until the storage has been read.
    pub fn start(
        policy: &Policy,
        handles: &AcmeHandles,
        previous: Option<Previous>,
    ) -> Option<Self> {
        let Some(settings) = policy.acme.clone() else {
            handles.tls.store().set_acme(Vec::new());
            return None;
        };
        let storage = match open_storage(&settings, policy.redis.as_ref()) {
            Ok(storage) => storage,
            Err(problem) => {
                error!("automatic certificates cannot be stored: {problem}");
                return None;
            }
        };
        let board = Board::new(
            settings.challenge,
            Arc::clone(&handles.challenges),
            Arc::clone(handles.tls.store()),
        );
        let is_same = |previous: &Previous| previous.directory == settings.directory;
        let is_same_directory = previous.as_ref().is_some_and(is_same);
        let mut kept = previous.map(|previous| previous.domains).unwrap_or_default();
        let domain = |name: &String| {
            let seed = seed(&settings.directory, name);
            (name.clone(), Domain::new(seed, kept.remove(name), is_same_directory))
        };
        let domains = settings.domains.iter().map(domain).collect();
        let orders = Orders {
            settings: settings.clone(),
            storage,
            accounts: Accounts::default(),
            board: Arc::new(board),
        };
        Some(Self {
            settings,
            redis: policy.redis.clone(),
            orders: Arc::new(orders),
            handles: handles.clone(),
            domains,
            jobs: JoinSet::new(),
            is_started: false,
            version: Vec::new(),
            locked_at: None,
            storage_problem: None,
        })
    }

    /// Whether it works for the `[acme]` table of `policy`.
    pub fn is_of(&self, policy: &Policy) -> bool {
        let same_redis = match self.settings.storage {
            AcmeStorage::Folder(_) => true,
            AcmeStorage::Redis { .. } => self.redis == policy.redis,
        };
        policy.acme.as_ref() == Some(&self.settings) && same_redis
    }

    /// Ends the work: orders are abandoned, and another gateway may take the lock.
    pub async fn stop(mut self) -> Previous {
        // The lock expires within a minute if Redis does not answer.
        let _ = timeout(STOP_TIMEOUT, self.end_orders()).await;
        for name in self.domains.keys() {
            self.handles.tls.failures().clear(&Failing::acme(name));
        }
        let kept = |(name, domain): (String, Domain)| Some((name, domain.kept()?));
        let domains = self.domains.into_iter().filter_map(kept).collect();
        Previous { directory: self.settings.directory, domains }
    }

    /// Abandons all orders: they are as if they had not begun.
    async fn end_orders(&mut self) -> Result<(), StorageError> {
        self.finish_jobs().await;
        self.jobs.abort_all();
        // What fails is kept for the next table.
        let _ = self.save_unsaved().await;
        for (name, domain) in &mut self.domains {
            if let Some(RunningOrder { before, .. }) = domain.order.take() {
                self.orders.storage.save_attempts(name, &before).await?;
            }
        }
        if let (Storage::Redis(shared), true) = (&self.orders.storage, self.locked_at.is_some()) {
            shared.publish(Vec::new()).await?;
            shared.unlock().await?;
        }
        Ok(())
    }

    /// Does what is due. Called every second.
    pub async fn tick(&mut self) {
        self.finish_jobs().await;
        let now = clock::now();
        if self.storage_problem.as_ref().is_some_and(|problem| now < problem.retry_at) {
            return;
        }
        match self.work().await {
            Ok(()) => {
                if self.storage_problem.take().is_some() {
                    info!("the storage of automatic certificates can be used again");
                    self.show_failures();
                }
            }
            Err(error) => self.note_problem(&error),
        }
    }

    async fn work(&mut self) -> Result<(), StorageError> {
        let loaded = self.load_missing().await;
        if matches!(self.orders.storage, Storage::Redis(_)) && loaded.is_err() {
            return loaded;
        }
        self.follow_others().await?;
        self.save_unsaved().await?;
        // A file that cannot be used does not delay other domains.
        let ordered = self.begin_due_orders().await;
        self.release_when_done().await?;
        loaded.and(ordered)
    }

    /// Reads the stored records that have not been read. Returns the first error.
    async fn load_missing(&mut self) -> Result<(), StorageError> {
        if self.domains.values().all(|domain| domain.is_loaded) {
            return Ok(());
        }
        match &self.orders.storage {
            Storage::Folder(folder) if !self.is_started => warn_of_permissions(folder).await,
            Storage::Folder(_) => {}
            Storage::Redis(shared) => self.version = shared.version().await?,
        }
        self.is_started = true;
        let mut result = Ok(());
        for name in self.settings.domains.clone() {
            if self.domains.get(&name).is_none_or(|domain| domain.is_loaded) {
                continue;
            }
            let loaded = self.load(&name).await;
            if loaded.is_ok() {
                self.count_restart(&name);
            } else if result.is_ok() {
                result = loaded;
            }
        }
        self.present();
        self.show_failures();
        result
    }

    /// A gateway that has just started orders soon after a failure.
    fn count_restart(&mut self, name: &str) {
        let Some(domain) = self.domains.get_mut(name) else { return };
        domain.attempts = std::mem::take(&mut domain.attempts).after_restart();
        if domain.certificate.is_some() {
            return;
        }
        let now = clock::unix_seconds();
        match domain.next_order(now) {
            next if next > now => {
                let next = shown(next);
                info!(domain = name, "no certificate yet; the next order is at {next}");
            }
            _ => info!(domain = name, "no certificate yet; ordering one"),
        }
    }

    /// Reads the stored records of one domain.
    async fn load(&mut self, name: &str) -> Result<(), StorageError> {
        let storage = &self.orders.storage;
        let attempts = storage.attempts(name).await?;
        let stored = storage.load(Item::Certificate(name)).await?;
        let certificate = match stored.map(|pem| usable(name, &pem, clock::unix_seconds())) {
            Some(Ok(certificate)) => Some(Arc::new(certificate)),
            Some(Err(error)) => {
                warn!(domain = name, "a stored certificate is not used: {error}");
                storage.set_aside(Item::Certificate(name)).await?;
                None
            }
            None => None,
        };
        let Some(domain) = self.domains.get_mut(name) else { return Ok(()) };
        let is_first = !domain.is_loaded;
        if domain.loaded(attempts, certificate)
            && !is_first
            && let Some(certificate) = &domain.certificate
        {
            let expires = shown(certificate.not_after());
            info!(domain = name, %expires, "took over a certificate from another gateway");
        }
        Ok(())
    }

    /// Stores the issued certificates that could not be stored before.
    async fn save_unsaved(&mut self) -> Result<(), StorageError> {
        for (name, domain) in &mut self.domains {
            let Some(pem) = &domain.unsaved else { continue };
            let storage = &self.orders.storage;
            storage.save(Item::Certificate(name), pem.clone()).await?;
            domain.unsaved = None;
            storage.save_attempts(name, &domain.attempts).await?;
            info!(domain = name, "the issued certificate is stored now");
        }
        Ok(())
    }

    /// Takes over certificates that other gateways have stored, and answers their challenges.
    async fn follow_others(&mut self) -> Result<(), StorageError> {
        let Storage::Redis(shared) = &self.orders.storage else { return Ok(()) };
        self.orders.board.set_shared(shared.published().await?);
        let version = shared.version().await?;
        if version != self.version {
            for name in self.settings.domains.clone() {
                self.load(&name).await?;
            }
            self.version = version;
            self.present();
            self.show_failures();
        }
        if self.locked_at.is_some_and(|at| clock::now().saturating_sub(at) >= EXTEND_AFTER_US) {
            let Storage::Redis(shared) = &self.orders.storage else { return Ok(()) };
            if shared.extend().await? {
                self.locked_at = Some(clock::now());
            } else {
                warn!("another gateway has taken the lock of automatic certificates; orders stop");
                self.locked_at = None;
                self.jobs.abort_all();
            }
        }
        Ok(())
    }

    /// Begins the orders that are due. Returns the first error.
    async fn begin_due_orders(&mut self) -> Result<(), StorageError> {
        let mut result = Ok(());
        for name in self.due() {
            if self.jobs.len() >= MAX_ORDERS {
                break;
            }
            if let Storage::Redis(shared) = &self.orders.storage {
                if self.locked_at.is_none() {
                    if !shared.lock().await? {
                        return Ok(());
                    }
                    self.locked_at = Some(clock::now());
                }
                // Another gateway may have ordered it before it released the lock.
                self.load(&name).await?;
                if !self.due().contains(&name) {
                    continue;
                }
            }
            let begun = self.begin_order(&name).await;
            if result.is_ok() {
                result = begun;
            }
        }
        result
    }

    /// Begins an order. It is stored first: a gateway that is killed meanwhile, again and again,
    /// must not order each time that it starts, and a certificate that cannot be stored is not
    /// ordered.
    async fn begin_order(&mut self, name: &str) -> Result<(), StorageError> {
        let Some(domain) = self.domains.get_mut(name) else { return Ok(()) };
        let begun = domain.attempts.begun(clock::unix_seconds());
        self.orders.storage.save_attempts(name, &begun).await?;
        let (orders, ordered) = (Arc::clone(&self.orders), name.to_owned());
        let job = self.jobs.spawn(async move {
            let result = orders.issue(&ordered).await;
            (ordered, result)
        });
        let before = std::mem::replace(&mut domain.attempts, begun);
        domain.order = Some(RunningOrder { id: job.id(), before });
        Ok(())
    }

    /// The domains whose order is due.
    fn due(&self) -> Vec<String> {
        let now = clock::unix_seconds();
        let due = self.domains.iter().filter(|(_, domain)| domain.is_due(now));
        due.map(|(name, _)| name.clone()).collect()
    }

    /// Releases the lock in Redis when no order runs.
    async fn release_when_done(&mut self) -> Result<(), StorageError> {
        let Storage::Redis(shared) = &self.orders.storage else { return Ok(()) };
        if self.locked_at.is_some() && self.jobs.is_empty() {
            shared.publish(Vec::new()).await?;
            shared.unlock().await?;
            self.locked_at = None;
        }
        Ok(())
    }

    /// Stores, counts and logs the results of orders.
    async fn finish_jobs(&mut self) {
        while let Some(finished) = self.jobs.try_join_next_with_id() {
            match finished {
                Ok((_, (name, Ok(issued)))) => self.issued(&name, issued).await,
                Ok((_, (name, Err(failed)))) => self.failed(&name, failed).await,
                Err(ended) => self.forget_job(&ended),
            }
        }
    }

    async fn issued(&mut self, name: &str, issued: Issued) {
        let Issued { pem, certificate } = issued;
        let expires = shown(certificate.not_after());
        let Some(domain) = self.domains.get_mut(name) else { return };
        let is_over = domain.issued(certificate, clock::unix_seconds());
        domain.unsaved = Some(pem.clone());
        self.present();
        // In force even if it cannot be stored now.
        match self.orders.storage.save(Item::Certificate(name), pem).await {
            Ok(()) => {
                if let Some(domain) = self.domains.get_mut(name) {
                    domain.unsaved = None;
                }
                self.store_attempts(name).await;
            }
            Err(error) => {
                error!(domain = name, "an issued certificate is not stored: {error}");
                self.note_problem(&error);
            }
        }
        info!(domain = name, %expires, "certificate issued");
        self.handles.metrics.acme_orders.with_label_values(&["ok"]).inc();
        if is_over {
            warn!(
                domain = name,
                "the issued certificate must be renewed already: is the clock right?"
            );
        }
        self.show_failures();
    }

    async fn failed(&mut self, name: &str, failed: Failed) {
        let Failed { error, retry_after } = failed;
        let now = clock::unix_seconds();
        let text = readable(&error.to_string());
        let Some(domain) = self.domains.get_mut(name) else { return };
        domain.order = None;
        domain.attempts = domain.attempts.failed(now, retry_after, text.clone());
        let (failures, next) = (domain.attempts.failures, shown(domain.next_order(now)));
        self.store_attempts(name).await;
        self.show_failures();
        let hint = hint(&error, &self.settings);
        warn!(domain = name, failures, %next, "no certificate: {text}{hint}");
        let metrics = &self.handles.metrics;
        metrics.tls.failed(name);
        metrics.acme_orders.with_label_values(&[error.label()]).inc();
    }

    async fn store_attempts(&self, name: &str) {
        let Some(domain) = self.domains.get(name) else { return };
        let stored = self.orders.storage.save_attempts(name, &domain.attempts).await;
        if let Err(error) = stored {
            warn!(domain = name, "the state of an order is not stored: {error}");
        }
    }

    /// An order was abandoned.
    fn forget_job(&mut self, ended: &JoinError) {
        for domain in self.domains.values_mut() {
            if domain.order.as_ref().is_some_and(|order| order.id == ended.id()) {
                domain.order = None;
                // Not a hot loop, if it has panicked.
                domain.attempts.last = clock::unix_seconds();
            }
        }
    }

    /// Puts all certificates in force.
    fn present(&self) {
        let certificates = self.settings.domains.iter();
        let certificates = certificates.filter_map(|name| self.domains.get(name));
        let certificates = certificates.filter_map(|domain| domain.presented().cloned());
        self.handles.tls.store().set_acme(certificates.collect());
    }

    fn note_problem(&mut self, error: &StorageError) {
        let text = readable(&error.to_string());
        let is_new = self.storage_problem.as_ref().is_none_or(|problem| problem.text != text);
        if is_new {
            error!("the storage of automatic certificates cannot be used: {text}");
        }
        let retry_at = clock::now().saturating_add(RETRY_STORAGE_US);
        self.storage_problem = Some(Problem { text, retry_at });
        self.show_failures();
    }

    /// Shows on the admin port which domains have no certificate, or no renewed one, and why.
    fn show_failures(&self) {
        let now = clock::unix_seconds();
        let failures = self.handles.tls.failures();
        for (name, domain) in &self.domains {
            let is_affected = |_: &&Problem| match self.orders.storage {
                Storage::Folder(_) => {
                    !domain.is_loaded || domain.unsaved.is_some() || domain.is_due(now)
                }
                Storage::Redis(_) => true,
            };
            let problem = self.storage_problem.as_ref().filter(is_affected);
            let message = match (problem, &domain.attempts.error) {
                (Some(problem), _) => format!("the storage cannot be used: {}", problem.text),
                (None, Some(error)) => {
                    let next = shown(domain.next_order(now));
                    format!("{error}; the next order is at {next}")
                }
                (None, None) => {
                    failures.clear(&Failing::acme(name));
                    continue;
                }
            };
            failures.record(Failing::acme(name), message, now);
        }
    }
}

async fn warn_of_permissions(folder: &Folder) {
    if folder.permissions_of_others().await != 0 {
        let path = folder.path().display();
        warn!("others than the owner can use the folder of automatic certificates, {path}");
    }
}

fn open_storage(settings: &Acme, redis: Option<&Redis>) -> Result<Storage, String> {
    let server = server_name(&settings.directory);
    match (&settings.storage, redis) {
        (AcmeStorage::Folder(path), _) => Ok(Storage::Folder(Folder::new(path.join(server)))),
        (AcmeStorage::Redis { key }, Some(redis)) => {
            let shared = Shared::new(redis.clone(), key, server).map_err(|error| error.to_string());
            Ok(Storage::Redis(Box::new(shared?)))
        }
        (AcmeStorage::Redis { .. }, None) => Err("there is no [redis]".to_owned()),
    }
}

/// A number that is the same after a restart, and different for each domain.
fn seed(directory: &str, domain: &str) -> u64 {
    let digest = Sha256::new().chain_update(directory).chain_update(domain).finalize();
    digest.iter().take(8).fold(0, |seed, byte| seed << 8 | u64::from(*byte))
}

/// A time in seconds, for logs.
fn shown(unix_seconds: u64) -> String {
    format!("{:.0}", UtcTime::of_seconds(unix_seconds))
}

/// What the operator can look at after a failure.
fn hint(error: &AcmeError, settings: &Acme) -> &'static str {
    use crate::policy::acme::Challenge;

    match (error, settings.challenge) {
        (AcmeError::ChallengeFailed(_), Challenge::Http01) => {
            "; the server must reach a listener in clear through port 80 of the domain"
        }
        (AcmeError::ChallengeFailed(_), Challenge::TlsAlpn01) => {
            "; the server must reach a listener with \"acme\" through port 443 of the domain, \
             without a TLS proxy between"
        }
        _ => "",
    }
}
