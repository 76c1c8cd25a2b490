//! Sends events, on a thread that no request uses.

use std::collections::HashMap;
use std::hash::{BuildHasher as _, RandomState};
use std::sync::Arc;
use std::time::Duration;

use http::header::CONTENT_TYPE;
use http::{HeaderName, HeaderValue, Method};
use tokio::sync::Semaphore;
use tokio::sync::mpsc::{Receiver, channel};
use tokio::time::sleep;
use tracing::{info, warn};

use super::claims::{CLAIM, Claim, Claims};
use super::event::Event;
use super::notices::{Delivery, Notices};
use super::{retry, sign};
use crate::base::failure;
use crate::base::log_interval::LogInterval;
use crate::base::{clock, unix_time};
use crate::net::http::{FileReads, HttpClient, Request};
use crate::net::tls::{self, ClientTls};
use crate::observe::metrics::WebhookSeries;
use crate::policy::webhook::Webhook;

/// Maximum number of deliveries that wait for the thread.
const MAX_WAITING: usize = 1_000;

/// Maximum number of deliveries to one webhook at the same time, those that wait for another
/// attempt included.
const MAX_DELIVERIES: usize = 1_000;

/// Shortest time between two log lines about too many of them, in seconds.
const LOG_INTERVAL_S: u64 = 60;

/// Maximum length of an answer, which is not read.
const MAX_ANSWER_BYTES: usize = 65_536;

/// Time until a claim is tried again while Redis does not respond.
const CLAIM_AGAIN: Duration = Duration::from_secs(5);

/// What each delivery needs.
struct Sending {
    notices: Arc<Notices>,
    claims: Claims,
    series: WebhookSeries,
}

/// What deliveries to one webhook have in common.
struct Shared {
    slots: Arc<Semaphore>,
    /// Reads the file `ca` for each attempt.
    reads: FileReads,
}

/// Starts the thread that sends events which `notices` hand over.
///
/// # Errors
/// The thread cannot be started.
pub fn start(notices: Arc<Notices>, claims: Claims, series: WebhookSeries) -> std::io::Result<()> {
    let (sender, events) = channel(MAX_WAITING);
    notices.connect(sender);
    let sending = Arc::new(Sending { notices, claims, series });
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let run = move || runtime.block_on(run(sending, events));
    let thread = std::thread::Builder::new().name("webhooks".to_owned());
    thread.spawn(move || failure::watch_thread("webhooks", run))?;
    Ok(())
}

async fn run(sending: Arc<Sending>, mut deliveries: Receiver<Delivery>) {
    let mut webhooks: HashMap<Arc<str>, Shared> = HashMap::new();
    let without_room = LogInterval::new(LOG_INTERVAL_S);
    while let Some(delivery) = deliveries.recv().await {
        let shared = webhooks.entry(Arc::clone(&delivery.webhook)).or_default();
        let Ok(slot) = Arc::clone(&shared.slots).try_acquire_owned() else {
            sending.notices.forget(&delivery);
            if let Some(others) = without_room.count(clock::now()) {
                let webhook = &*delivery.webhook;
                warn!(webhook, others, "webhook has no room for more events");
            }
            continue;
        };
        let (sending, reads) = (Arc::clone(&sending), shared.reads.clone());
        tokio::spawn(async move {
            sending.deliver(&delivery, &reads).await;
            drop(slot);
        });
    }
}

impl Default for Shared {
    fn default() -> Self {
        let slots = Arc::new(Semaphore::new(MAX_DELIVERIES));
        Self { slots, reads: FileReads::default() }
    }
}

impl Sending {
    /// Sends an event until the server accepts it, or for the last time. The file `ca` is read by
    /// `reads`.
    async fn deliver(&self, delivery: &Delivery, reads: &FileReads) {
        let Delivery { webhook: name, event } = delivery;
        let name = &**name;
        let mut attempts = 0;
        loop {
            let unix_us = unix_time::of(clock::now());
            if unix_us >= event.record.place.end_us.saturating_add(86_400_000_000) {
                return;
            }
            // A reload may have changed its URL or its secret.
            let Some(webhook) = self.notices.webhook(delivery) else {
                return self.notices.forget(delivery);
            };
            self.notices.is_sent(delivery, unix_us);
            match self.claims.claim(name, event).await {
                Ok(Claim::Ours) => {}
                Ok(Claim::Done) => return self.notices.ended(delivery),
                // Its client's next request shows whether it was accepted.
                Ok(Claim::Others) => return,
                Err(_) => {
                    sleep(CLAIM_AGAIN).await;
                    continue;
                }
            }
            attempts += 1;
            match send(&webhook, event, unix_us / 1_000_000, reads).await {
                Ok(()) => {
                    self.series.count(name, "ok");
                    let (event, id) = (event.kind.name(), event.id());
                    info!(webhook = name, event, id, "webhook sent");
                    return self.note_end(delivery).await;
                }
                Err(error) => {
                    self.series.count(name, "error");
                    let random = RandomState::new().hash_one(attempts);
                    let Some(wait_ms) = retry::wait_ms(attempts, random) else {
                        self.series.count(name, "given_up");
                        warn!(webhook = name, id = event.id(), error, "webhook given up");
                        return self.note_end(delivery).await;
                    };
                    let id = event.id();
                    warn!(
                        webhook = name,
                        id, error, wait_ms, "webhook not accepted; it is sent again"
                    );
                    self.wait(delivery, Duration::from_millis(wait_ms)).await;
                }
            }
        }
    }

    /// Waits, and holds the claim meanwhile.
    async fn wait(&self, delivery: &Delivery, mut left: Duration) {
        while !left.is_zero() {
            let part = left.min(CLAIM / 3);
            sleep(part).await;
            left = left.saturating_sub(part);
            self.notices.is_sent(delivery, unix_time::of(clock::now()));
            // An error shows at the next attempt.
            let _ = self.claims.claim(&delivery.webhook, &delivery.event).await;
        }
    }

    /// Notes, in Redis as well, that the event was accepted or given up. While that fails, another
    /// gateway may send it again, with the same id.
    async fn note_end(&self, delivery: &Delivery) {
        self.notices.ended(delivery);
        let Delivery { webhook, event } = delivery;
        for _ in 0..60 {
            if self.claims.done(webhook, event, unix_time::of(clock::now())).await.is_ok() {
                return;
            }
            sleep(CLAIM_AGAIN).await;
        }
    }
}

/// Sends an event once, at `unix_s` (seconds).
async fn send(
    webhook: &Webhook,
    event: &Event,
    unix_s: u64,
    reads: &FileReads,
) -> Result<(), String> {
    let (id, body) = (event.id(), event.body());
    let signature = sign::signature(&webhook.key, &id, unix_s, &body);
    let header = |name: &'static str, value: &str| {
        let value = HeaderValue::from_str(value).map_err(|error| error.to_string())?;
        Ok::<_, String>((HeaderName::from_static(name), value))
    };
    let headers = vec![
        (CONTENT_TYPE, HeaderValue::from_static("application/json")),
        header("webhook-id", &id)?,
        header("webhook-timestamp", &unix_s.to_string())?,
        header("webhook-signature", &signature)?,
    ];
    let url = &webhook.url;
    let tls = ClientTls { ca: webhook.ca.clone(), certificate: None };
    // A client of its own: there are few events.
    let tls = url.is_tls.then_some((tls::WEBHOOKS, tls));
    let client = HttpClient::new(url.server.clone(), tls).with_reads(reads);
    let request = Request { method: Method::POST, path: &url.path, headers, body: &body };
    let response = client.fetch(&request, webhook.timeout, MAX_ANSWER_BYTES).await;
    let status = response.map_err(|error| error.to_string())?.status;
    if status.is_success() { Ok(()) } else { Err(format!("status {}", status.as_u16())) }
}
