//! [`Notices`]: finds events in what is written of usage, and hands each over once.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::OnceLock;

use arc_swap::ArcSwap;
use parking_lot::Mutex;
use tokio::sync::mpsc::Sender;

use super::claims::CLAIM;
use super::event::Event;
use crate::base::duration::micros;
use crate::policy::webhook::{Webhook, WebhookEvent};
use crate::usage::record::{Place, Record};

/// Maximum number of events that are remembered.
const MAX_KNOWN: usize = 200_000;

/// Hands events over to the thread that sends them.
#[derive(Debug, Default)]
pub struct Notices {
    webhooks: ArcSwap<Vec<Webhook>>,
    queue: OnceLock<Sender<Event>>,
    known: Mutex<HashMap<(Place, WebhookEvent), Known>>,
}

/// What is known of an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Known {
    /// It is being sent until this time (Unix time in microseconds), then it is handed over again.
    Until(u64),
    /// It was accepted, or given up.
    Ended,
}

impl Notices {
    /// Sets the webhooks in force.
    pub fn configure(&self, webhooks: &[Webhook]) {
        self.webhooks.store(Arc::new(webhooks.to_vec()));
    }

    /// Sets where events are handed over, once.
    pub fn connect(&self, queue: Sender<Event>) {
        // A second call changes nothing.
        let _ = self.queue.set(queue);
    }

    /// The webhooks in force.
    pub fn webhooks(&self) -> Arc<Vec<Webhook>> {
        self.webhooks.load_full()
    }

    /// Hands over the events of a record that is written at `unix_us` (Unix time), unless they
    /// were. Returns the number of those that the queue has no room for: they are tried again with
    /// the next request of the client.
    pub fn look_at(&self, record: &Record, unix_us: u64) -> u64 {
        let webhooks = self.webhooks.load();
        let Some(queue) = self.queue.get().filter(|_| !webhooks.is_empty()) else { return 0 };
        let mut without_room = 0;
        for kind in Event::of(record) {
            let is_wanted = webhooks.iter().any(|webhook| webhook.events.contains(&kind));
            if !is_wanted || !self.is_due((record.place, kind), unix_us) {
                continue;
            }
            if queue.try_send(Event { kind, record: record.clone() }).is_err() {
                without_room += 1;
                self.known.lock().remove(&(record.place, kind));
            }
        }
        without_room
    }

    /// Whether an event is to be handed over, and from now on not again for a while.
    fn is_due(&self, event: (Place, WebhookEvent), unix_us: u64) -> bool {
        let mut known = self.known.lock();
        let is_due = match known.get(&event) {
            None => true,
            Some(Known::Until(time)) => *time <= unix_us,
            Some(Known::Ended) => false,
        };
        if is_due {
            if known.len() >= MAX_KNOWN {
                known.retain(|(place, _), _| place.end_us > unix_us);
            }
            if known.len() < MAX_KNOWN {
                known.insert(event, Known::Until(unix_us.saturating_add(micros(CLAIM))));
            }
        }
        is_due
    }

    /// Notes that an event is being sent, at `unix_us` (Unix time).
    pub fn is_sent(&self, event: &Event, unix_us: u64) {
        let until = unix_us.saturating_add(micros(CLAIM));
        self.note(event, Known::Until(until));
    }

    /// Notes that an event was accepted.
    pub fn ended(&self, event: &Event) {
        self.note(event, Known::Ended);
    }

    fn note(&self, event: &Event, now: Known) {
        if let Some(known) = self.known.lock().get_mut(&(event.record.place, event.kind)) {
            *known = now;
        }
    }
}
