//! The work for one `[acme]` table: it ends when the table changes.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use sha2::{Digest as _, Sha256};
use tokio::task::{Id, JoinError, JoinSet};
use tokio::time::timeout;
use tracing::{error, info, warn};

use super::AcmeHandles;
use super::account::Accounts;
use super::board::Board;
use super::error::{AcmeError, readable};
use super::order::{Failed, Issued, Orders, usable};
use super::plan::{Attempts, Lifetime, next_order};
use super::storage::folder::Folder;
use super::storage::shared::{LOCK_LIFETIME, Shared};
use super::storage::{Item, Storage, StorageError, server_name};
use crate::clock;
use crate::limit::MICROS_PER_SECOND;
use crate::observe::time::UtcTime;
use crate::policy::Policy;
use crate::policy::acme::{Acme, AcmeStorage};
use crate::policy::redis::Redis;
use crate::tls::certificate::Certificate;
use crate::tls::failures::Failing;
use crate::tls::store::CertificateStore;

/// Maximum number of orders that run at the same time. A domain whose challenge fails only after minutes
/// does not delay the others.
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
    /// Whether the stored records have been read.
    is_loaded: bool,
    /// The version of the certificates in Redis that was read last.
    version: Vec<u8>,
    /// When this gateway last took or extended the lock in Redis, in microseconds; `None`: it has none.
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
pub type Previous = BTreeMap<String, Arc<Certificate>>;

/// One domain.
#[derive(Default)]
struct Domain {
    certificate: Option<Arc<Certificate>>,
    attempts: Attempts,
    seed: u64,
    /// The order that runs.
    job: Option<Id>,
}

/// Puts the stored certificates in force, before the first handshake. What cannot be read in time is left
/// to the service, which reports it.
pub async fn present_stored(policy: &Policy, certificates: &CertificateStore) {
    let Some(settings) = &policy.acme else { return };
    let Ok(storage) = open_storage(settings, policy.redis.as_ref()) else { return };
    let read = async {
        let mut found = Vec::new();
        for name in &settings.domains {
            let Ok(stored) = storage.load(Item::Certificate(name)).await else { break };
            let certificate = stored.map(|pem| usable(name, &pem, clock::unix_seconds()));
            found.extend(certificate.and_then(Result::ok).map(Arc::new));
        }
        certificates.set_acme(found);
    };
    // A timeout is not an error here.
    let _ = timeout(START_TIMEOUT, read).await;
}

// === impl Running ===

impl Running {
    /// Begins the work for the `[acme]` table of `policy`; `None` without one. Domains that `previous` has
    /// are served from its certificates until the storage has been read.
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
        let mut previous = previous.unwrap_or_default();
        let domain = |name: &String| {
            let seed = seed(&settings.directory, name);
            let certificate = previous.remove(name);
            (name.clone(), Domain { certificate, seed, ..Domain::default() })
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
            is_loaded: false,
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
        self.jobs.abort_all();
        for name in self.domains.keys() {
            self.handles.tls.failures().clear(&Failing::acme(name));
        }
        let release = async {
            if let (Storage::Redis(shared), true) = (&self.orders.storage, self.locked_at.is_some())
            {
                shared.publish(Vec::new()).await?;
                shared.unlock().await?;
            }
            Ok::<(), StorageError>(())
        };
        // The lock expires within a minute if Redis does not answer.
        let _ = timeout(STOP_TIMEOUT, release).await;
        let kept = |(name, domain): (String, Domain)| Some((name, domain.certificate?));
        std::mem::take(&mut self.domains).into_iter().filter_map(kept).collect()
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
        if !self.is_loaded {
            self.load_all().await?;
            self.is_loaded = true;
        }
        self.follow_others().await?;
        self.begin_due_orders().await?;
        self.release_when_done().await
    }

    /// Reads all stored records.
    async fn load_all(&mut self) -> Result<(), StorageError> {
        if let Storage::Folder(folder) = &self.orders.storage
            && folder.permissions_of_others().await != 0
        {
            let path = folder.path().display();
            warn!("others than the owner can use the folder of automatic certificates, {path}");
        }
        if let Storage::Redis(shared) = &self.orders.storage {
            self.version = shared.version().await?;
        }
        for name in self.settings.domains.clone() {
            self.load(&name).await?;
            if let Some(domain) = self.domains.get_mut(&name) {
                domain.attempts = std::mem::take(&mut domain.attempts).after_restart();
                if domain.certificate.is_none() {
                    info!(domain = name, "no certificate yet; ordering one");
                }
            }
        }
        self.present();
        self.show_failures();
        Ok(())
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
        domain.attempts = attempts;
        if let Some(certificate) = certificate {
            let previous = domain.certificate.as_ref();
            let is_new = previous.is_none_or(|previous| !previous.is_same(&certificate));
            if is_new && self.is_loaded {
                let expires = shown(certificate.not_after());
                info!(domain = name, %expires, "took over a certificate from another gateway");
            }
            domain.certificate = Some(certificate);
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

    async fn begin_due_orders(&mut self) -> Result<(), StorageError> {
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
            let (orders, domain) = (Arc::clone(&self.orders), name.clone());
            let job = self.jobs.spawn(async move {
                let result = orders.issue(&domain).await;
                (domain, result)
            });
            if let Some(domain) = self.domains.get_mut(&name) {
                domain.job = Some(job.id());
            }
        }
        Ok(())
    }

    /// The domains whose order is due.
    fn due(&self) -> Vec<String> {
        let now = clock::unix_seconds();
        let is_due = |domain: &Domain| domain.job.is_none() && domain.next_order(now) <= now;
        let due = self.domains.iter().filter(|(_, domain)| is_due(domain));
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
        if let Some(domain) = self.domains.get_mut(name) {
            domain.job = None;
            domain.attempts = Attempts::succeeded(clock::unix_seconds());
            domain.certificate = Some(certificate);
        }
        self.present();
        // In force even if it cannot be stored: then a restart orders another.
        if let Err(error) = self.orders.storage.save(Item::Certificate(name), pem).await {
            error!(domain = name, "an issued certificate is not stored: {error}");
        }
        self.store_attempts(name).await;
        self.handles.tls.failures().clear(&Failing::acme(name));
        info!(domain = name, %expires, "certificate issued");
        self.handles.metrics.acme_orders.with_label_values(&["ok"]).inc();
    }

    async fn failed(&mut self, name: &str, failed: Failed) {
        let Failed { error, retry_after } = failed;
        let now = clock::unix_seconds();
        let text = readable(&error.to_string());
        let Some(domain) = self.domains.get_mut(name) else { return };
        domain.job = None;
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
            if domain.job == Some(ended.id()) {
                domain.job = None;
                // Not a hot loop, if it has panicked.
                domain.attempts.last = clock::unix_seconds();
            }
        }
    }

    /// Puts all certificates in force.
    fn present(&self) {
        let certificates = self.settings.domains.iter();
        let certificates = certificates.filter_map(|name| self.domains.get(name));
        let certificates = certificates.filter_map(|domain| domain.certificate.clone());
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
            let message = match (&self.storage_problem, &domain.attempts.error) {
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

// === impl Domain ===

impl Domain {
    /// Unix time of the next order, in seconds; not in the past.
    fn next_order(&self, now: u64) -> u64 {
        let lifetime = self.certificate.as_ref().map(|certificate| Lifetime {
            not_before: certificate.not_before(),
            not_after: certificate.not_after(),
        });
        next_order(lifetime, &self.attempts, self.seed, now).max(now)
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
