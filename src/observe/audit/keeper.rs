//! Keeps the book of refusals, and says in the log when a burst is over.

use std::io;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tracing::info;

use super::{At, Book, Bounds, Found, Query, Record, Refused, Who};
use crate::clock;
use crate::observe::address::Shown;
use crate::policy::Policy;
use crate::policy::client::{Client, ClientKey, counted_address};

/// How often it is looked for bursts that are over.
const INTERVAL: Duration = Duration::from_secs(1);

/// Who was refused by what.
pub struct Audit {
    /// Held for a look-up by each refusal, and while a query looks through all of it.
    book: Mutex<Book>,
}

impl Audit {
    /// Keeps a book, and has a thread of its own tell of bursts that are over.
    ///
    /// # Errors
    /// The kernel has no thread.
    pub fn start() -> io::Result<Arc<Self>> {
        let audit = Arc::new(Self { book: Mutex::new(Book::new(Bounds::default())) });
        let kept = Arc::downgrade(&audit);
        let thread = std::thread::Builder::new().name("audit".to_owned());
        thread.spawn(move || {
            while let Some(audit) = kept.upgrade() {
                audit.book.lock().end_quiet(clock::now());
                audit.tell();
                drop(audit);
                std::thread::park_timeout(INTERVAL);
            }
        })?;
        Ok(audit)
    }

    /// Notes that `rule` of `policy` refused a request of `client`; both are indexes of it.
    pub fn note(&self, policy: &Policy, client: &Client, rule: u32, tokens: Option<u64>) {
        let Some(rule) = policy.rules.get(rule as usize) else { return };
        let Some(plan) = policy.plans.get(client.plan as usize) else { return };
        let (rule, plan) = (Arc::clone(&rule.name), Arc::clone(plan));
        let refused = Refused { who: who(policy, client), rule, plan, tokens };
        let at = At { tick: clock::now(), unix: clock::unix_ticks() };
        let shown = || shown(policy, client.ip?);
        self.book.lock().note(refused, at, shown);
    }

    /// What is known of refusals, the latest first.
    pub fn find(&self, query: &Query) -> Found {
        let chosen = self.book.lock().choose(query);
        chosen.found()
    }

    /// Tells of all bursts, those that go on too: the process ends.
    pub fn close(&self) {
        self.book.lock().end_all();
        self.tell();
    }

    fn tell(&self) {
        // Told without the lock: whoever reads the log may be slow.
        let (bursts, more) = self.book.lock().take_untold();
        for burst in bursts {
            let Record { first, last, count, key, ip, rule, plan, tokens, .. } =
                burst.record(false);
            let (key, ip) = (key.as_deref(), ip.as_deref());
            info!(rule, plan, key, ip, count, tokens, %first, %last, "refused");
        }
        if more > 0 {
            info!("refused: {more} more bursts, by clients beyond those above");
        }
    }
}

fn who(policy: &Policy, client: &Client) -> Who {
    if let ClientKey::Known(key) = client.key
        && let Some(key) = policy.keys.get(key as usize)
    {
        return Who::Key(Arc::clone(&key.id));
    }
    let counted = |ip| counted_address(ip, policy.clients.ipv6_prefix);
    client.ip.map_or(Who::Unknown, |ip| Who::Address(counted(ip)))
}

/// The address of a client as limits see it: of IPv6, its network.
fn shown(policy: &Policy, ip: IpAddr) -> Option<Shown> {
    Shown::of(counted_address(ip, policy.clients.ipv6_prefix), policy)
}
