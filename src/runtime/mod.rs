//! The snapshot of the configuration in force, its replacement, and the services that outlive it.
//!
//! Reading order: `snapshot`, this file (how a policy is put in force), `lookups` (addresses of
//! upstream servers), `checks` (their health), `orders` (of operators, for all gateways), `rates`
//! (that adapt to upstreams), `acme` (automatic certificates), `token_keys` (keys of token
//! issuers), `drain` (whether the process ends).

pub mod acme;
pub mod checks;
pub mod drain;
pub mod lookups;
pub mod orders;
pub mod rates;
mod snapshot;
pub mod token_keys;

use std::sync::Arc;

use tracing::error;

use crate::acme::AcmeHandles;
use crate::base::clock;
use crate::keys::store::KeyStore;
use crate::observe::access_log::AccessLog;
use crate::observe::audit::Audit;
use crate::observe::metrics::Metrics;
use crate::observe::traces::Traces;
use crate::policy::Policy;
use crate::store::limiter::Limiter;
use crate::store::memory::MemoryStore;
use crate::tls::files::TlsFiles;
use crate::tls::listeners::TlsListeners;
use crate::tokens::Tokens;
use crate::upstream::pool::Pool;
use crate::usage::kept::Kept;
use orders::OrderBoard;
pub use snapshot::{CurrentSnapshot, Snapshot};

/// Number of generations between two removals of series whose labels are no longer configured.
const TIDY_EVERY: u64 = 16;

/// The current snapshot, and everything else that a new policy changes. Clones share all of it.
#[derive(Clone)]
pub struct Runtime {
    /// The snapshot that new requests load.
    pub current: Arc<CurrentSnapshot>,
    /// Takes tokens, from Redis or from `store`.
    pub limiter: Arc<Limiter>,
    /// The buckets in this process.
    pub store: Arc<MemoryStore>,
    /// Keeps what clients used of their quotas; `None`: there is neither a file nor Redis.
    pub usage: Option<Kept>,
    /// Clients with API keys beside those of the file; `None`: there is no key store.
    pub keys: Option<Arc<KeyStore>>,
    /// The Prometheus series of the process, which `/metrics` returns.
    pub metrics: Arc<Metrics>,
    /// Writes one line for each request.
    pub access_log: Arc<AccessLog>,
    /// The audit of refusals.
    pub audit: Arc<Audit>,
    /// Exports spans of sampled requests to an OpenTelemetry collector.
    pub traces: Arc<Traces>,
    /// Automatic certificates.
    pub acme: AcmeHandles,
    pub tls: Arc<TlsListeners>,
    /// Orders for endpoints that apply to all gateways with the same Redis.
    pub orders: OrderBoard,
}

impl Runtime {
    /// Returns the number of configurations that have been in force.
    pub fn generation(&self) -> u64 {
        self.current.load().generation
    }

    /// Shows which limits are in force, to operators and to the gateways that share Redis.
    pub fn publish_limits(&self, snapshot: &Snapshot) {
        self.metrics.config.show_limits(snapshot.limits);
        self.limiter.publish_limits(snapshot.limits);
        self.limiter.bans().use_rules(&snapshot.stored_rules);
    }

    /// Puts a policy in force, with the files of its listeners, and returns its snapshot. New
    /// requests use it; requests in flight keep theirs. Names without a known address are looked up
    /// first, and keys of new token issuers fetched, for 5 s at most each. Calls must not overlap.
    pub(crate) async fn apply(&self, mut policy: Policy, files: TlsFiles) -> Arc<Snapshot> {
        let Self {
            current, limiter, store, metrics, access_log, audit, traces, tls, usage, ..
        } = self;
        let previous = current.load_full();
        let known = Pool::known(&previous.pools);
        let pools = Pool::for_all(&policy.upstreams, &previous.pools, &known).await;
        let numbers = store.adopt(&policy.limits, clock::now());
        policy.number_limits(&numbers);
        access_log.redirect(&policy.access_log.output);
        audit.configure_stream(&policy.audit);
        traces.set_endpoint(policy.tracing.as_ref());
        if let Some(usage) = usage {
            usage.configure(&policy.usage);
        }
        let tokens = Tokens::new(&policy.clients, Some(&previous.tokens));
        tokens.fetch_missing().await;
        let next = Arc::new(Snapshot::following(&previous, policy, pools, tokens));
        if let Err(problem) = tls.apply(&next.policy.listeners, files) {
            error!(detail = %problem, "TLS of the listeners cannot be changed; the previous settings stay in use");
        }
        current.store(Arc::clone(&next));
        self.publish_limits(&next);
        // A request that began before may keep the previous snapshot for hours, with its pools.
        for pool in &previous.pools {
            if !next.pools.iter().any(|kept| Arc::ptr_eq(kept, pool)) {
                pool.close_unless_shared(&next.pools);
            }
        }
        limiter.forget_refusals();
        limiter.return_leases();
        if next.generation.is_multiple_of(TIDY_EVERY) {
            metrics.remove_stale(&next.policy);
        }
        next
    }
}
