//! The names of a pool's servers: when they are looked up, and the endpoints that follow from that.

use std::collections::{HashMap, HashSet};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use parking_lot::Mutex;
use tokio::task::JoinSet;
use tracing::{info, warn};

use super::{LOOKUP_TIMEOUT, LOOKUPS, Listed, Pool};
use crate::base::clock;
use crate::net::address::Origin;
use crate::net::lookup::{Answer, Family, Found, LookupError};
use crate::policy::servers::Server;
use crate::upstream::endpoint::EndpointState;
use crate::upstream::lookup::{Lookup, LookupState, LookupView};
use crate::upstream::services::{self, Share};
use crate::upstream::sticky;

/// A server as configured, and what is known of its name.
pub(super) struct Named {
    pub(super) server: Server,
    /// Its addresses as of the last successful look-up, or its address in the file.
    pub(super) found: Mutex<Vec<Found>>,
    lookup: Mutex<Lookup>,
}

/// A look-up in progress. The next one can begin after it is dropped.
struct Turn<'a>(&'a Mutex<Lookup>);

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.0.lock().cancelled(clock::now());
    }
}

impl Named {
    pub(super) fn new(server: &Server) -> Self {
        let named =
            Self { server: server.clone(), found: Mutex::default(), lookup: Mutex::default() };
        named.begin_with(Vec::new());
        named
    }

    /// Whether it is written as a name.
    pub(super) fn is_name(&self) -> bool {
        self.server.origin.address().is_none()
    }

    pub(super) fn addresses(&self) -> Vec<SocketAddr> {
        self.found.lock().iter().map(|found| found.address).collect()
    }

    /// Whether it has this address.
    pub(super) fn has(&self, address: SocketAddr) -> bool {
        self.found.lock().iter().any(|found| found.address == address)
    }

    /// Begins with its address in the file, or with the known addresses of its name.
    pub(super) fn begin_with(&self, known: Vec<Found>) {
        let Server { origin, .. } = &self.server;
        let own = origin.address().map(|address| Found {
            address,
            host: origin.host().into(),
            priority: 0,
            weight: 0,
        });
        *self.found.lock() = own.map_or(known, |own| vec![own]);
    }

    /// Puts the addresses of a look-up in place of those before. Those of which it is not known
    /// whether they are still valid stay.
    fn replace(&self, answer: Answer) {
        let Answer { found: mut next, failed, .. } = answer;
        let mut found = self.found.lock();
        let is_kept = |before: &&Found| {
            let family = Family::of(before.address);
            failed.iter().any(|(host, of)| *host == before.host && *of == family)
        };
        next.extend(found.iter().filter(is_kept).cloned());
        next.sort_by_key(|one| (one.priority, one.address));
        next.dedup_by_key(|one| one.address);
        *found = next;
    }

    /// The priority and the weight of each of `found`.
    fn shares(&self, found: &[Found]) -> Vec<Share> {
        let Server { origin, weight, priority } = &self.server;
        match origin {
            Origin::Host(_) => {
                vec![Share { priority: *priority, weight: *weight }; found.len()]
            }
            Origin::Service(_) => services::shares(found, *priority),
        }
    }
}

impl Pool {
    /// The servers whose names have no known address.
    pub fn names_without_address(&self) -> impl Iterator<Item = &Origin> {
        let without = self.servers.iter().filter(|named| named.found.lock().is_empty());
        without.map(|named| &named.server.origin)
    }

    /// Whether each of its names has been looked up once, with or without success.
    #[cfg(test)]
    pub(super) fn is_looked_up(&self) -> bool {
        self.servers.iter().all(|named| !named.is_name() || !named.lookup.lock().is_pending())
    }

    /// The look-ups of its names, by the server as configured.
    pub fn lookups(&self) -> impl Iterator<Item = (&Origin, LookupView)> {
        let names = self.servers.iter().filter(|named| named.is_name());
        names.map(|named| (&named.server.origin, named.lookup.lock().show()))
    }

    /// When the next look-up of one of its names begins, in microseconds; `u64::MAX` if none does.
    pub(crate) fn next_lookup(&self) -> u64 {
        let names = self.servers.iter().filter(|named| named.is_name());
        names.map(|named| named.lookup.lock().due()).min().unwrap_or(u64::MAX)
    }

    /// Looks up all names in parallel. See [`look_up_due`](Self::look_up_due).
    pub async fn look_up(self: &Arc<Self>) {
        self.update();
        self.look_up_due(u64::MAX - 1).await;
    }

    /// Looks up the names whose look-up is due at `now` (microseconds), in parallel, each within
    /// 5 s. Each server is available as soon as its own look-up has succeeded. A server whose
    /// look-up fails keeps its addresses until one succeeds. A name whose look-up is in progress is
    /// left out.
    pub(crate) async fn look_up_due(self: &Arc<Self>, now: u64) {
        let mut lookups = JoinSet::new();
        for (index, named) in self.servers.iter().enumerate().filter(|(_, named)| named.is_name()) {
            if named.lookup.lock().due() <= now {
                let pool = Arc::clone(self);
                lookups.spawn(async move { pool.look_up_one(index).await });
            }
        }
        if lookups.is_empty() {
            return;
        }
        while lookups.join_next().await.is_some() {}
        let is_unknown = self.has_no_address();
        let was_unknown = self.is_without_address.swap(is_unknown, Ordering::Relaxed);
        if is_unknown && !was_unknown {
            warn!(upstream = &*self.name, "no server of the upstream has a known address");
        }
    }

    /// Looks up the name of a server, by its index, unless that is in progress.
    async fn look_up_one(&self, index: usize) {
        let Some(named) = self.servers.get(index) else { return };
        if !named.lookup.lock().begin() {
            return;
        }
        let turn = Turn(&named.lookup);
        let result = self.ask(&named.server.origin).await;
        let (ttl, error) = match result {
            Ok(answer) => {
                let error = answer.error.clone().map(LookupError::Failed);
                let ttl = answer.ttl;
                named.replace(answer);
                (ttl, error)
            }
            Err(error) => (None, Some(error)),
        };
        let (view, changes) = {
            let mut lookup = named.lookup.lock();
            let was_pending = lookup.is_pending();
            let changes = lookup.ended(ttl, error, clock::now(), self.rounds.random());
            let view = lookup.show();
            (view.clone(), changes && !(was_pending && view.state == LookupState::Ok))
        };
        drop(turn);
        self.update();
        if changes {
            self.log_lookup(&named.server.origin, &view);
        }
    }

    /// Asks for the addresses of a server. The deadline begins when the look-up starts, not while
    /// it waits for others.
    async fn ask(&self, origin: &Origin) -> Result<Answer, LookupError> {
        let failed = |error: &dyn std::fmt::Display| LookupError::Failed(error.to_string());
        let _permit = LOOKUPS.acquire().await.map_err(|error| failed(&error))?;
        let answering = (self.names)(origin, &self.upstream.resolvers);
        let answer = tokio::time::timeout(LOOKUP_TIMEOUT, answering).await;
        answer.unwrap_or_else(|_| Err(failed(&"no answer within 5 s")))
    }

    /// Logs that the state of the look-ups of a name has changed.
    fn log_lookup(&self, server: &Origin, view: &LookupView) {
        let (upstream, reason) = (&*self.name, &*view.reason);
        match view.state {
            LookupState::Ok | LookupState::Pending => {
                info!(upstream, %server, "name look-up works again");
            }
            LookupState::Failed => {
                warn!(upstream, %server, reason, "name look-up failed");
            }
            LookupState::Absent => {
                warn!(upstream, %server, reason, "name has no address");
            }
        }
    }

    /// Makes the addresses of all servers its endpoints, and applies the orders of operators. If
    /// several servers have an address, it is that of the first.
    pub(super) fn update(&self) {
        let now = clock::now();
        let replacing = self.replacing.lock();
        let mut has_changed = false;
        let active = self.active.load_full();
        let mut states: HashMap<SocketAddr, &Arc<EndpointState>> =
            self.inherited.iter().map(|state| (state.address, state)).collect();
        states.extend(active.all.iter().map(|listed| (listed.state.address, &listed.state)));
        // The pool that has replaced this one has other health checks, and looks names up itself.
        let is_replaced = self.successor.lock().upgrade().is_some();
        let mut all: Vec<Listed> = Vec::new();
        let mut seen = HashSet::new();
        for named in &self.servers {
            let found = named.found.lock().clone();
            let lookup = named.lookup.lock();
            let host: Arc<str> = named.server.origin.host().into();
            for (Found { address, host: target, .. }, share) in
                found.iter().zip(named.shares(&found))
            {
                if !seen.insert(*address) {
                    continue;
                }
                let state = states.get(address).map_or_else(
                    || Arc::new(EndpointState::new(*address)),
                    |state| Arc::clone(state),
                );
                let order = self.orders.of(&named.server.origin, *address);
                {
                    let mut health = state.health();
                    has_changed |= health.order(order, now);
                    if !is_replaced {
                        health.set_checked(self.upstream.health.is_some());
                        has_changed |= health.set_absent(lookup.absent(), now);
                    }
                }
                let sticky = self.upstream.sticky.as_ref();
                all.push(Listed {
                    state,
                    host: Arc::clone(&host),
                    target: Arc::clone(target),
                    weight: share.weight,
                    priority: share.priority,
                    cookie: sticky.map(|sticky| sticky::value(sticky, &self.name, *address)),
                });
            }
        }
        let is_same = all.len() == active.all.len()
            && all.iter().zip(&*active.all).all(|(new, old)| new.is_same(old));
        if !is_same {
            self.put(&replacing, Some(all), now);
        }
        drop(replacing);
        if has_changed {
            self.follow_state(now);
        }
    }
}
