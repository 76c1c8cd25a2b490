//! [`GivenBack`]: what a request took too much, and when its buckets are read.

use std::borrow::Cow;
use std::sync::Arc;

use smallvec::SmallVec;

use crate::client::Client;
use crate::policy::Policy;
use crate::store::limiter::{Limiter, Refund, Taken};
use crate::usage::ledger::Ledger;

/// The charges of a request whose buckets get tokens back.
pub(super) struct GivenBack<'a> {
    /// The policy in force.
    pub(super) policy: Arc<Policy>,
    pub(super) client: Cow<'a, Client>,
    pub(super) taken: Cow<'a, Taken>,
    /// Indexes of the charges.
    pub(super) indexes: SmallVec<[usize; 1]>,
    /// When the request was checked, in microseconds.
    pub(super) checked_at: u64,
}

impl GivenBack<'_> {
    pub(super) fn into_owned(self) -> GivenBack<'static> {
        let Self { policy, client, taken, indexes, checked_at } = self;
        let (client, taken) = (Cow::Owned(client.into_owned()), Cow::Owned(taken.into_owned()));
        GivenBack { policy, client, taken, indexes, checked_at }
    }

    /// Waits for what Redis gives back, and has the buckets read then: before, they do not have it.
    pub(super) async fn finish(
        &self,
        limiter: &Limiter,
        refund: &mut Refund,
        ledger: Option<&Ledger>,
    ) {
        limiter.refunded(refund, &self.taken).await;
        self.note(ledger);
    }

    /// Has the buckets read.
    pub(super) fn note(&self, ledger: Option<&Ledger>) {
        if let Some(ledger) = ledger {
            let indexes = self.indexes.iter().copied();
            ledger.note_refunded(&self.policy, &self.client, &self.taken, indexes, self.checked_at);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use http::{HeaderMap, Method};
    use nix::sys::signal::Signal;

    use super::*;
    use crate::base::clock;
    use crate::client::ClientKey;
    use crate::load::from_text;
    use crate::policy::charges::{RequestAttributes, Scope};
    use crate::store::limiter::Allowed;
    use crate::store::memory::MemoryStore;
    use crate::store::redis::fixture::{RedisServer, connected};
    use crate::store::redis::nodes::fixture::cluster;
    use crate::store::rule::StoredRule;

    const FILE: &str = "[upstreams.api]\nservers = [\"demo\"]\n[routes.all]\n[rules.quota]\nper = []\n\
        kind = \"fixed_window\"\nlimit = \"100/year\"\ncount = \"header:x-cost\"\nreserve = 40\n";

    /// A reading meanwhile would miss them, and no later one would follow.
    #[tokio::test]
    async fn buckets_are_read_after_redis_has_given_tokens_back() {
        let policy = Arc::new(from_text("gateway.toml", FILE).unwrap());
        let rules: Arc<[StoredRule]> = policy.rules.iter().map(StoredRule::of).collect();
        let client = Client::new(&policy.clients, ClientKey::Missing);
        let headers = HeaderMap::new();
        let (method, host, path, route) = (&Method::GET, "a.example", "/", 0);
        let attributes = RequestAttributes { route, method, host, path, headers: &headers };
        let charges = policy.charges(&client, &attributes, Scope::All).unwrap();

        let server = RedisServer::start(&[]);
        let link = connected(&server.settings()).await;
        let nodes = cluster(&server.settings(), [Arc::clone(&link), link]);
        let memory = Arc::new(MemoryStore::new(1_000, &policy.limits));
        let limiter = Limiter::shared(memory, nodes, None);
        let checked_at = clock::now();
        let (taken, _holds) = limiter.take(charges, &rules, checked_at).await;
        assert!(taken.answer.allowed());

        let ledger = Ledger::shared();
        server.signal(Signal::SIGSTOP);
        let allowed = Allowed { taken: &taken, rules: &rules, checked_at };
        let mut refund = limiter.refund(allowed, |_| 30_000, clock::now());
        assert!(refund.is_pending());
        let given_back = GivenBack {
            policy,
            client: Cow::Owned(client),
            taken: Cow::Borrowed(&taken),
            indexes: [0].into_iter().collect(),
            checked_at,
        };
        {
            let finished = given_back.finish(&limiter, &mut refund, Some(&ledger));
            tokio::pin!(finished);
            let waited = tokio::time::timeout(Duration::ZERO, &mut finished).await;
            assert!(waited.is_err());
            assert!(ledger.take_unread().is_empty());
            server.signal(Signal::SIGCONT);
            finished.await;
        }
        assert_eq!(ledger.take_unread().len(), 1);
    }
}
