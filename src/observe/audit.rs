//! Audit of refusals: which client was refused by which rule, and when. It answers "why was I
//! blocked?" for a while after the refusals.
//!
//! The refusals of one client by one rule under one configuration, each within 10 s of the one
//! before, are one *refusal run*. When a run ends, it is written to the log and, if `[audit]
//! stream` is set, to a stream in Redis.
//!
//! It also has the changes that callers of the admin API make.
//!
//! Reading order: `changes` (of the admin API), `kind`, `refusal` (the refusals of one decision),
//! `tallies` (from the threads of requests to the audit), `runs` (which refusals form a run, and
//! which runs are kept; pure), `view` (how a run is shown), `stored` (how it is read from the
//! stream).

mod changes;
mod kind;
mod refusal;
mod runs;
mod stored;
mod tallies;
mod view;

#[cfg(test)]
mod tests;

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};
use tracing::info;

use super::address::ShownAddress;
use super::failures::{FailedRequest, FailureLog};
use super::run_span::Times;
use crate::base::clock;
use crate::base::failure;
use crate::client::Client;
use crate::client::address::counted_address;
use crate::client::identifier::Identifier;
use crate::client::principal::KeyRefusal;
use crate::decide::decision::Decision;
use crate::limit::cost::Cost;
use crate::policy::Policy;
use crate::policy::settings;
use crate::store::redis::append::{Appender, StreamEntry};
pub use changes::{CLIENT as CHANGED_BY_CLIENT, ChangeQuery, ChangeView, STREAM as CHANGES_STREAM};
use changes::{CLIENTS_AT_ONCE, Changes};
pub use kind::Kind;
use refusal::Refusal;
use runs::{ClientId, Pending, RefusalRuns, Refused, RunId, Start};
pub use runs::{Matches, Query};
use tallies::{Tallies, Tally};
pub use view::RefusalRunView;

/// Interval between two searches for runs that have ended.
const INTERVAL: Duration = Duration::from_secs(1);

/// How long [`Audit::close`] waits for the last records to reach Redis.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(1);

/// Records refusals and reports refusal runs.
pub struct Audit {
    /// Written by requests.
    tallies: Tallies,
    /// Written from `tallies`, once a second and before a search.
    runs: Mutex<RefusalRuns>,
    /// What callers of the admin API have changed.
    changes: Mutex<Changes>,
    /// Failed requests, which are reported in runs, too.
    failures: FailureLog,
    /// When the audit started, in microseconds since 1970.
    started_us: u64,
    /// Sends records to the streams; `None` without Redis.
    stream: Option<Appender>,
    /// Approximate number of records that each stream keeps; 0: no streams.
    stream_length: AtomicU64,
}

/// A request whose refusal is recorded.
#[derive(Clone, Copy, Debug)]
pub struct AuditedRequest<'a> {
    /// The configuration that decided on it.
    pub policy: &'a Arc<Policy>,
    /// Generation of that configuration.
    pub generation: u64,
    pub client: &'a Client,
    /// Index of its route.
    pub route: Option<u32>,
    /// Where its API key was, as an index into the sources of keys; `None` without a key.
    pub key_from: Option<usize>,
    /// Why its API key cannot be used; `None` if it can, or is unknown.
    pub key_refusal: Option<KeyRefusal>,
    /// Name of its API key, if the key is known and has one.
    pub key_name: Option<&'a Arc<str>>,
}

impl Audit {
    /// Starts the thread that reports ended runs once a second. Runs are sent to `stream` only if
    /// [`configure_stream`](Self::configure_stream) enables it.
    ///
    /// # Errors
    /// The kernel cannot start a thread.
    pub fn start(stream: Option<Appender>) -> io::Result<Arc<Self>> {
        let audit = Arc::new(Self {
            tallies: Tallies::default(),
            runs: Mutex::default(),
            changes: Mutex::default(),
            failures: FailureLog::default(),
            started_us: clock::unix_us(),
            stream,
            stream_length: AtomicU64::new(0),
        });
        let weak = Arc::downgrade(&audit);
        let thread = std::thread::Builder::new().name("audit".to_owned());
        let run = move || {
            while let Some(audit) = weak.upgrade() {
                audit.collected().end_expired(clock::now());
                audit.report();
                audit.failures.end_expired(clock::now());
                drop(audit);
                std::thread::park_timeout(INTERVAL);
            }
        };
        thread.spawn(move || failure::watch_thread("audit", run))?;
        Ok(audit)
    }

    /// Enables or disables the stream, and sets its length, for runs that end from now on.
    pub fn configure_stream(&self, settings: &settings::Audit) {
        self.stream_length.store(settings.stream.unwrap_or_default(), Ordering::Relaxed);
    }

    /// Records the refusals that the decision on a request consists of, if any.
    pub fn record(&self, request: &AuditedRequest<'_>, decision: &Decision) {
        Refusal::each(decision, |refusal| self.tallies.add(request, refusal, Times::now()));
    }

    /// Records what a caller of the admin API has changed, in the memory and in the stream. A
    /// change of many clients is several.
    pub fn record_change(&self, change: &ChangeView) {
        let keep = self.stream_length.load(Ordering::Relaxed);
        let stream = self.stream.as_ref().filter(|_| keep > 0);
        let mut parts: Vec<&[String]> = change.clients.chunks(CLIENTS_AT_ONCE).collect();
        if parts.is_empty() {
            parts.push(&[]);
        }
        for clients in parts {
            let part = ChangeView { clients: clients.to_vec(), ..change.clone() };
            if let Some(stream) = stream {
                stream.append(StreamEntry { stream: CHANGES_STREAM, fields: part.fields(), keep });
            }
            self.changes.lock().add(part);
        }
    }

    /// The changes that match, the latest first; the number of those beyond `limit`; and the time
    /// since which all are kept, in microseconds since 1970.
    pub fn find_changes(
        &self,
        query: &ChangeQuery<'_>,
        limit: usize,
    ) -> (Vec<ChangeView>, usize, u64) {
        let changes = self.changes.lock();
        let (found, more) = changes.find(query, limit);
        (found, more, changes.kept_since_us().max(self.started_us))
    }

    /// Logs a request that failed, or counts it to the failures before.
    pub fn record_failure(&self, failed: &FailedRequest) {
        self.failures.add(failed);
    }

    /// The refusal runs that match `query`, the latest first.
    pub fn find(&self, query: &Query) -> Matches {
        let selection = self.collected().select(query);
        selection.into_matches(self.started_us)
    }

    /// Reports all runs, including those that continue, and waits up to a second for Redis. Called
    /// when the process exits.
    pub fn close(&self) {
        self.collected().end_all();
        self.report();
        self.failures.end_all();
        if let Some(stream) = &self.stream {
            stream.flush(FLUSH_TIMEOUT);
        }
    }

    /// All runs, with the refusals up to now.
    fn collected(&self) -> MutexGuard<'_, RefusalRuns> {
        let mut runs = self.runs.lock();
        let mut beyond = [0; Kind::ALL.len()];
        self.tallies.collect(
            |tally| runs.add(tally.kind, tally.refused(), || tally.start()),
            |kind, count| beyond[kind as usize] += count,
        );
        for (kind, count) in Kind::ALL.into_iter().zip(beyond) {
            runs.lose(kind, count, Times::now());
        }
        runs
    }

    fn report(&self) {
        // Written without the lock: a slow reader of the log must not delay a search.
        let pending = self.runs.lock().take_pending();
        let keep = self.stream_length.load(Ordering::Relaxed);
        let stream = self.stream.as_ref().filter(|_| keep > 0);
        for Pending { kind, runs, more } in pending {
            for run in runs {
                let view = run.view(false);
                log(&view);
                if let Some(stream) = stream {
                    let (name, fields) = (kind.stream(), view.fields());
                    stream.append(StreamEntry { stream: name, fields, keep });
                }
            }
            if more > 0 {
                if let Some(stream) = stream {
                    stream.lost(more);
                }
                info!(kind = kind.name(), more_runs = more, "{}", event(kind));
            }
        }
    }
}

impl AuditedRequest<'_> {
    /// Tokens that a request of the route takes; `None` for a request that is refused for its key.
    fn cost_of_route(&self, kind: Kind) -> Option<Cost> {
        let route = self.policy.routes.get(self.route? as usize)?;
        (kind != Kind::Unauthorized).then_some(route.cost)
    }
}

impl Tally {
    fn refused(&self) -> Refused {
        let Self { policy, first, last, count, other_routes, cost, tokens, .. } = self;
        let rule = self.rule.and_then(|rule| policy.rules.get(rule as usize));
        let route = self.route.and_then(|route| policy.routes.get(route as usize));
        Refused {
            id: RunId {
                client: self.client_id(),
                tenant: self.client.tenant.as_ref().map(|tenant| Arc::clone(&tenant.id)),
                rule: rule.map(|rule| Arc::clone(&rule.name)),
                reason: self.reason,
                key_from: self.key_from,
                credential: self.credential,
                key_name: self.key_name.clone(),
                generation: self.generation,
            },
            first: *first,
            last: *last,
            count: *count,
            route: route.map(|route| Arc::clone(&route.name)),
            other_routes: *other_routes,
            cost: *cost,
            tokens: *tokens,
        }
    }

    fn client_id(&self) -> ClientId {
        match self.client.known_or_address(self.policy.clients.ipv6_prefix) {
            Identifier::Known(known) => ClientId::Key(Arc::clone(&known.id)),
            Identifier::Address(ip) => ClientId::Address(ip),
            Identifier::Tenant(_) | Identifier::UnknownKey(_) | Identifier::Local => {
                ClientId::Unknown
            }
        }
    }

    fn start(&self) -> Start {
        let Self { policy, client, .. } = self;
        let is_limited = self.kind != Kind::Unauthorized;
        let rule = self.rule.and_then(|rule| policy.rules.get(rule as usize));
        let limit = rule.filter(|_| is_limited).and_then(|rule| rule.limit_of(client));
        // The address that limits count the client by: for IPv6, its network.
        let counted = client.ip.map(|ip| counted_address(ip, policy.clients.ipv6_prefix));
        let source = self.key_from.and_then(|source| policy.clients.key_sources.get(source));
        Start {
            key_from: source.map(ToString::to_string),
            reads_keys: policy.clients.on_unknown_key.is_some(),
            ip: counted.and_then(|ip| ShownAddress::of(ip, policy)),
            plan: policy.plans.get(client.plan as usize).filter(|_| is_limited).map(Arc::clone),
            limit: limit.map(|grant| {
                (grant.written, grant.written.has_burst().then(|| grant.limit.capacity()))
            }),
        }
    }
}

/// Name of the event in the log.
const fn event(kind: Kind) -> &'static str {
    match kind {
        Kind::Limit | Kind::Unavailable | Kind::Unauthorized => "refused",
        Kind::Shadow => "shadow_refused",
    }
}

fn log(view: &RefusalRunView) {
    let RefusalRunView { kind, status, count, cost, tokens, generation, first, last, .. } = view;
    let [key, key_name, tenant, key_from] =
        [&view.key, &view.key_name, &view.tenant, &view.key_from].map(Option::as_deref);
    let [ip, rule, plan, route] =
        [&view.ip, &view.rule, &view.plan, &view.route].map(Option::as_deref);
    let key_state = view.key_state.as_deref();
    let cost = cost.map(Cost::as_f64);
    let (kind, reason, event) = (kind.name(), view.reason.as_deref(), event(*kind));
    info!(
        kind, status, reason, rule, plan, key, key_name, tenant, key_state, key_from, ip, route, cost, count, tokens, generation,
        %first, %last, "{event}"
    );
}
