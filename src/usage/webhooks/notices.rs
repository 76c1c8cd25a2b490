//! [`Notices`]: finds events in what is written of usage, and hands each over once to each webhook.

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

/// Maximum number of deliveries that are remembered.
const MAX_KNOWN: usize = 200_000;

/// Shortest time between two searches of all of them for those whose period is over.
const SEARCH_INTERVAL_US: u64 = 60_000_000;

/// An event for one webhook.
#[derive(Debug, Clone)]
pub struct Delivery {
    /// Name of the webhook.
    pub webhook: Arc<str>,
    pub event: Event,
}

/// Hands deliveries over to the thread that makes them.
#[derive(Debug, Default)]
pub struct Notices {
    webhooks: ArcSwap<Vec<Webhook>>,
    queue: OnceLock<Sender<Delivery>>,
    known: Mutex<Known>,
}

/// Name of the webhook, client and period, and what has happened.
type Id = (Arc<str>, Place, WebhookEvent);

/// The deliveries that were handed over.
#[derive(Debug, Default)]
struct Known {
    states: HashMap<Id, State>,
    /// Earliest time of the next search, if they are too many.
    search_at: u64,
}

/// How far a delivery is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// It is being made until this time (Unix time in microseconds), then it is handed over again.
    Until(u64),
    /// The event was accepted, or given up.
    Ended,
}

/// Whether a delivery is to be handed over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Due {
    Yes,
    /// It was.
    No,
    /// Too many are remembered.
    NoRoom,
}

impl Delivery {
    fn id(&self) -> Id {
        (Arc::clone(&self.webhook), self.event.record.place, self.event.kind)
    }
}

impl Notices {
    /// Sets the webhooks in force.
    pub fn configure(&self, webhooks: &[Webhook]) {
        self.webhooks.store(Arc::new(webhooks.to_vec()));
    }

    /// Sets where deliveries are handed over, once.
    pub fn connect(&self, queue: Sender<Delivery>) {
        // A second call changes nothing.
        let _ = self.queue.set(queue);
    }

    /// The webhook of a delivery as it is now; `None` if a reload has removed it, or the event from
    /// it.
    pub fn webhook(&self, delivery: &Delivery) -> Option<Webhook> {
        let webhooks = self.webhooks.load();
        let mut named = webhooks.iter().filter(|webhook| webhook.name == delivery.webhook);
        named.find(|webhook| webhook.events.contains(&delivery.event.kind)).cloned()
    }

    /// Hands over the events of a record that is written at `unix_us` (Unix time), unless they
    /// were. Returns the number of deliveries for which there is no room: they are tried again with
    /// the next request of the client.
    pub fn look_at(&self, record: &Record, unix_us: u64) -> u64 {
        let webhooks = self.webhooks.load();
        let Some(queue) = self.queue.get().filter(|_| !webhooks.is_empty()) else { return 0 };
        let mut without_room = 0;
        for kind in Event::of(record) {
            for webhook in webhooks.iter().filter(|webhook| webhook.events.contains(&kind)) {
                let id = (Arc::clone(&webhook.name), record.place, kind);
                match self.known.lock().begin(&id, unix_us, MAX_KNOWN) {
                    Due::No => continue,
                    Due::NoRoom => {
                        without_room += 1;
                        continue;
                    }
                    Due::Yes => {}
                }
                let counted_at_us =
                    if record.counted_at_us == 0 { unix_us } else { record.counted_at_us };
                let event = Event { kind, record: Record { counted_at_us, ..record.clone() } };
                let delivery = Delivery { webhook: Arc::clone(&webhook.name), event };
                if queue.try_send(delivery).is_err() {
                    without_room += 1;
                    self.known.lock().states.remove(&id);
                }
            }
        }
        without_room
    }

    /// Notes that a delivery is being made, at `unix_us` (Unix time).
    pub fn is_sent(&self, delivery: &Delivery, unix_us: u64) {
        self.note(delivery, State::Until(unix_us.saturating_add(micros(CLAIM))));
    }

    /// Notes that the webhook has accepted the event, or that it was given up.
    pub fn ended(&self, delivery: &Delivery) {
        self.note(delivery, State::Ended);
    }

    /// Forgets a delivery that is not made: the next request of the client hands it over again.
    pub fn forget(&self, delivery: &Delivery) {
        self.known.lock().states.remove(&delivery.id());
    }

    fn note(&self, delivery: &Delivery, now: State) {
        if let Some(state) = self.known.lock().states.get_mut(&delivery.id()) {
            *state = now;
        }
    }
}

impl Known {
    /// Whether a delivery is to be handed over, and from now on not again for a while. At most
    /// `most` are remembered.
    fn begin(&mut self, id: &Id, unix_us: u64, most: usize) -> Due {
        let until = State::Until(unix_us.saturating_add(micros(CLAIM)));
        if let Some(state) = self.states.get_mut(id) {
            return match *state {
                State::Until(time) if time <= unix_us => {
                    *state = until;
                    Due::Yes
                }
                State::Until(_) | State::Ended => Due::No,
            };
        }
        if self.states.len() >= most && unix_us >= self.search_at {
            self.search_at = unix_us.saturating_add(SEARCH_INTERVAL_US);
            self.states.retain(|(_, place, _), _| place.end_us > unix_us);
        }
        if self.states.len() >= most {
            return Due::NoRoom;
        }
        self.states.insert(id.clone(), until);
        Due::Yes
    }
}

#[cfg(test)]
mod tests {
    use tokio::sync::mpsc::{Receiver, channel};

    use super::*;
    use crate::limit::Limit;
    use crate::limit::calendar::{Calendar, Period};
    use crate::limit::charge::BucketId;
    use crate::limit::fixed_window::{FixedWindow, Overage};
    use crate::net::url::HttpUrl;
    use crate::policy::webhook::SigningKey;
    use crate::usage::record::Owner;

    const NOW_US: u64 = 1_000_000_000;

    const CLAIM_US: u64 = 120_000_000;

    fn webhook(name: &str) -> Webhook {
        Webhook {
            name: name.into(),
            url: HttpUrl::parse("http://127.0.0.1:9/").unwrap(),
            key: SigningKey::new(vec![7; 24]),
            events: vec![WebhookEvent::QuotaSoft, WebhookEvent::QuotaOverage],
            timeout: std::time::Duration::from_secs(1),
            ca: None,
        }
    }

    /// What a client used of a quota of 10 that warns at 5.
    fn record(used: i64) -> Record {
        let window = FixedWindow::new(10, Calendar::new(Period::Month, "UTC", 1).unwrap());
        Record {
            place: Place { end_us: 2 * NOW_US, bucket: BucketId(1) },
            start_us: 0,
            rule: "monthly".into(),
            owner: Owner { kind: "ip", id: "192.0.2.1".to_owned() },
            plan: "free".into(),
            limit: Limit::FixedWindow(window.unwrap().with(Overage::Refuse, 500)),
            used: used * 1_000,
            counted_at_us: NOW_US,
        }
    }

    fn handed_over(queue: &mut Receiver<Delivery>) -> Vec<Delivery> {
        std::iter::from_fn(|| queue.try_recv().ok()).collect()
    }

    #[test]
    fn each_webhook_gets_an_event_until_it_has_accepted_it() {
        let notices = Notices::default();
        let (sender, mut queue) = channel(10);
        notices.connect(sender);
        notices.configure(&[webhook("a"), webhook("b")]);
        let mut names = |used, unix_us| -> Vec<Delivery> {
            assert_eq!(notices.look_at(&record(used), unix_us), 0);
            handed_over(&mut queue)
        };
        assert!(names(4, NOW_US).is_empty());
        let first = names(5, NOW_US);
        let webhooks: Vec<&str> = first.iter().map(|delivery| &*delivery.webhook).collect();
        assert_eq!(webhooks, ["a", "b"]);
        assert!(names(6, NOW_US + CLAIM_US - 1).is_empty());
        notices.ended(&first[0]);
        notices.is_sent(&first[1], NOW_US + CLAIM_US);
        assert!(names(6, NOW_US + CLAIM_US).is_empty());
        let again = names(6, NOW_US + 2 * CLAIM_US);
        assert_eq!(again.len(), 1);
        assert_eq!((&*again[0].webhook, again[0].event.id()), ("b", first[1].event.id()));
        notices.forget(&again[0]);
        assert_eq!(names(6, NOW_US + 2 * CLAIM_US).len(), 1);
    }

    /// As of a grant at a gateway that has got no request of the client.
    #[test]
    fn event_of_a_record_without_a_time_has_that_of_its_discovery() {
        let notices = Notices::default();
        let (sender, mut queue) = channel(10);
        notices.connect(sender);
        notices.configure(&[webhook("a")]);
        let of_unknown_time = Record { counted_at_us: 0, ..record(5) };
        assert_eq!(notices.look_at(&of_unknown_time, NOW_US), 0);
        assert_eq!(handed_over(&mut queue)[0].event.record, record(5));
    }

    #[test]
    fn delivery_is_for_the_webhook_as_the_file_has_it_now() {
        let notices = Notices::default();
        let mut changed = vec![webhook("a")];
        notices.configure(&changed);
        let event = Event { kind: WebhookEvent::QuotaSoft, record: record(5) };
        let delivery = Delivery { webhook: "a".into(), event };
        assert_eq!(notices.webhook(&delivery).as_ref(), changed.first());
        changed[0].url.path = "/new".to_owned();
        notices.configure(&changed);
        assert_eq!(notices.webhook(&delivery).as_ref(), changed.first());
        changed[0].events = vec![WebhookEvent::QuotaOverage];
        notices.configure(&changed);
        assert_eq!(notices.webhook(&delivery), None);
        notices.configure(&[]);
        assert_eq!(notices.webhook(&delivery), None);
    }

    #[test]
    fn what_is_remembered_is_bounded_and_nothing_is_handed_over_twice_beyond_it() {
        let mut known = Known::default();
        let id = |bucket, end_us| {
            let place = Place { end_us, bucket: BucketId(bucket) };
            (Arc::from("a"), place, WebhookEvent::QuotaSoft)
        };
        assert_eq!(known.begin(&id(1, NOW_US + 5), NOW_US, 2), Due::Yes);
        assert_eq!(known.begin(&id(2, 9 * NOW_US), NOW_US, 2), Due::Yes);
        assert_eq!(known.begin(&id(3, 9 * NOW_US), NOW_US, 2), Due::NoRoom);
        assert_eq!(known.begin(&id(2, 9 * NOW_US), NOW_US, 2), Due::No);
        // The first period is over, and is noticed by the next search.
        assert_eq!(known.begin(&id(3, 9 * NOW_US), NOW_US + 5, 2), Due::NoRoom);
        let later = NOW_US + SEARCH_INTERVAL_US;
        assert_eq!(known.begin(&id(3, 9 * NOW_US), later, 2), Due::Yes);
        assert_eq!(known.states.len(), 2);
    }
}
