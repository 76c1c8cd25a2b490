//! Keeps the book of refusals, and says when a burst is over: in the log, and where the file wants it
//! in a stream in Redis.

use std::io;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tracing::info;

use super::{At, Book, Bounds, Found, Query, Record, Refused, Who};
use crate::clock;
use crate::observe::address::Shown;
use crate::policy::Policy;
use crate::policy::client::{Client, ClientKey, counted_address};
use crate::policy::settings;
use crate::store::redis::append::{Appender, Entry};

/// How often it is looked for bursts that are over.
const INTERVAL: Duration = Duration::from_secs(1);

/// How long the process waits at its end for what is to be told in Redis.
const LAST_WORDS: Duration = Duration::from_secs(1);

/// Who was refused by what.
pub struct Audit {
    /// Held for a look-up by each refusal, and while a query looks through all of it.
    book: Mutex<Book>,
    /// The way to the stream, where there is Redis.
    stream: Option<Appender>,
    /// How many records the stream keeps; 0: none is wanted.
    keep: AtomicU64,
}

impl Audit {
    /// Keeps a book, and has a thread of its own tell of bursts that are over; by way of `stream`,
    /// too, once [`stream_by`](Self::stream_by) wants it.
    ///
    /// # Errors
    /// The kernel has no thread.
    pub fn start(stream: Option<Appender>) -> io::Result<Arc<Self>> {
        let book = Mutex::new(Book::new(Bounds::default()));
        let audit = Arc::new(Self { book, stream, keep: AtomicU64::new(0) });
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

    /// Has bursts that end from now on go to the stream, or not.
    pub fn stream_by(&self, settings: &settings::Audit) {
        self.keep.store(settings.stream.unwrap_or_default(), Ordering::Relaxed);
    }

    /// Notes that `rule` of `policy` refused a request of `client`; both are indexes of it.
    pub fn note(&self, policy: &Policy, client: &Client, rule: u32, tokens: Option<u64>) {
        let Some(rule) = policy.rules.get(rule as usize) else { return };
        let Some(plan) = policy.plans.get(client.plan as usize) else { return };
        let (rule, plan) = (Arc::clone(&rule.name), Arc::clone(plan));
        let refused = Refused { who: who(policy, client), rule, plan, tokens };
        let at = At { tick: clock::now(), unix: clock::unix_us() };
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
        if let Some(stream) = &self.stream {
            stream.flush(LAST_WORDS);
        }
    }

    fn tell(&self) {
        // Told without the lock: whoever reads the log may be slow.
        let (bursts, more) = self.book.lock().take_untold();
        let keep = self.keep.load(Ordering::Relaxed);
        let stream = self.stream.as_ref().filter(|_| keep > 0);
        for burst in bursts {
            let record = burst.record(false);
            if let Some(stream) = stream {
                stream.append(Entry { fields: record.fields(), keep });
            }
            let Record { first, last, count, key, ip, rule, plan, tokens, .. } = record;
            let (key, ip) = (key.as_deref(), ip.as_deref());
            info!(rule, plan, key, ip, count, tokens, %first, %last, "refused");
        }
        if more > 0 {
            if let Some(stream) = stream {
                stream.lost(more);
            }
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
