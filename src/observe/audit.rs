//! Audit of refusals: which client was refused by which rule, and when. It answers "why was I
//! blocked?" for a while after the refusals.
//!
//! The refusals of one client by one rule, each within 10 s of the one before, are one *refusal
//! run*. When a run ends, it is written to the log and, if `[audit] stream` is set, to a stream in
//! Redis. `runs` has the pure part: which refusals form a run, and which runs are kept.

mod runs;

use std::io;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tracing::info;

use super::address::ShownAddress;
use crate::clock;
use crate::policy::Policy;
use crate::policy::client::{Client, ClientKey, counted_address};
use crate::policy::settings;
use crate::store::redis::append::{Appender, StreamEntry};
use runs::{Bounds, ClientId, RefusalRuns, Refused, Times};
pub use runs::{Matches, Query, RefusalRunView};

/// Interval between two searches for runs that have ended.
const INTERVAL: Duration = Duration::from_secs(1);

/// How long [`Audit::close`] waits for the last records to reach Redis.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(1);

/// Records refusals and reports refusal runs.
pub struct Audit {
    /// Each refusal locks this for one look-up; [`Audit::find`] locks it for a search.
    runs: Mutex<RefusalRuns>,
    /// Sends records to the stream; `None` without Redis.
    stream: Option<Appender>,
    /// Approximate number of records that the stream keeps; 0: no stream.
    stream_length: AtomicU64,
}

impl Audit {
    /// Starts the thread that reports ended runs once a second. Runs are sent to `stream` only if
    /// [`configure_stream`](Self::configure_stream) enables it.
    ///
    /// # Errors
    /// The kernel cannot start a thread.
    pub fn start(stream: Option<Appender>) -> io::Result<Arc<Self>> {
        let runs = Mutex::new(RefusalRuns::new(Bounds::default()));
        let audit = Arc::new(Self { runs, stream, stream_length: AtomicU64::new(0) });
        let weak = Arc::downgrade(&audit);
        let thread = std::thread::Builder::new().name("audit".to_owned());
        thread.spawn(move || {
            while let Some(audit) = weak.upgrade() {
                audit.runs.lock().end_expired(clock::now());
                audit.report();
                drop(audit);
                std::thread::park_timeout(INTERVAL);
            }
        })?;
        Ok(audit)
    }

    /// Enables or disables the stream, and sets its length, for runs that end from now on.
    pub fn configure_stream(&self, settings: &settings::Audit) {
        self.stream_length.store(settings.stream.unwrap_or_default(), Ordering::Relaxed);
    }

    /// Records that a rule refused a request of `client`. `rule` is an index into `policy.rules`;
    /// `tokens` are the whole tokens left, `None` if no bucket was read.
    pub fn record(&self, policy: &Policy, client: &Client, rule: u32, tokens: Option<u64>) {
        let Some(rule) = policy.rules.get(rule as usize) else { return };
        let Some(plan) = policy.plans.get(client.plan as usize) else { return };
        let (rule, plan) = (Arc::clone(&rule.name), Arc::clone(plan));
        let refused = Refused { client: client_id(policy, client), rule, plan, tokens };
        let times = Times { monotonic_us: clock::now(), unix_us: clock::unix_us() };
        let shown = || shown_address(policy, client.ip?);
        self.runs.lock().add(refused, times, shown);
    }

    /// The refusal runs that match `query`, the latest first.
    pub fn find(&self, query: &Query) -> Matches {
        let selection = self.runs.lock().select(query);
        selection.into_matches()
    }

    /// Reports all runs, including those that continue, and waits up to a second for Redis. Called
    /// when the process exits.
    pub fn close(&self) {
        self.runs.lock().end_all();
        self.report();
        if let Some(stream) = &self.stream {
            stream.flush(FLUSH_TIMEOUT);
        }
    }

    fn report(&self) {
        // Written without the lock: a slow reader of the log must not delay requests.
        let (runs, more) = self.runs.lock().take_pending();
        let keep = self.stream_length.load(Ordering::Relaxed);
        let stream = self.stream.as_ref().filter(|_| keep > 0);
        for run in runs {
            let view = run.view(false);
            if let Some(stream) = stream {
                stream.append(StreamEntry { fields: view.fields(), keep });
            }
            let RefusalRunView { first, last, count, key, ip, rule, plan, tokens, .. } = view;
            let (key, ip) = (key.as_deref(), ip.as_deref());
            info!(rule, plan, key, ip, count, tokens, %first, %last, "refused");
        }
        if more > 0 {
            if let Some(stream) = stream {
                stream.lost(more);
            }
            info!(more_runs = more, "refused");
        }
    }
}

fn client_id(policy: &Policy, client: &Client) -> ClientId {
    if let ClientKey::Known(key) = client.key
        && let Some(key) = policy.keys.get(key as usize)
    {
        return ClientId::Key(Arc::clone(&key.id));
    }
    let counted = |ip| counted_address(ip, policy.clients.ipv6_prefix);
    client.ip.map_or(ClientId::Unknown, |ip| ClientId::Address(counted(ip)))
}

/// The address that limits count the client by: for IPv6, its network.
fn shown_address(policy: &Policy, ip: IpAddr) -> Option<ShownAddress> {
    ShownAddress::of(counted_address(ip, policy.clients.ipv6_prefix), policy)
}
