//! [`Event`]: what a webhook is sent.

use serde::Serialize;
use sha2::{Digest as _, Sha256};

use crate::base::time::UtcTime;
use crate::policy::webhook::WebhookEvent;
use crate::usage::record::Record;

/// A client that has used a share of its quota in a period, or all of it.
#[derive(Debug, Clone)]
pub struct Event {
    /// What has happened.
    pub kind: WebhookEvent,
    /// What the client used.
    pub record: Record,
}

/// The body of a request.
#[derive(Debug, Serialize)]
struct Body<'a> {
    #[serde(rename = "type")]
    kind: &'static str,
    timestamp: UtcTime,
    data: Data<'a>,
}

#[derive(Debug, Serialize)]
struct Data<'a> {
    rule: &'a str,
    client_kind: &'a str,
    client: &'a str,
    plan: &'a str,
    period_start: UtcTime,
    period_end: UtcTime,
    zone: &'a str,
    limit: u64,
    used: f64,
    bucket: String,
}

impl Event {
    /// The events of a record.
    pub fn of(record: &Record) -> impl Iterator<Item = WebhookEvent> {
        let level = record.limit.full().saturating_sub(record.used);
        let is_warned = record.limit.is_soft_exceeded(level);
        let is_over = record.limit.counts_overage() && level < 0;
        let soft = is_warned.then_some(WebhookEvent::QuotaSoft);
        soft.into_iter().chain(is_over.then_some(WebhookEvent::QuotaOverage))
    }

    /// Identifies the event: the same at all gateways, and after a restart.
    pub fn id(&self) -> String {
        let Record { place, rule, .. } = &self.record;
        let hash = Sha256::new()
            .chain_update(self.kind.name())
            .chain_update([0])
            .chain_update(rule.as_bytes())
            .chain_update([0])
            .chain_update(place.bucket.0.to_be_bytes())
            .chain_update(place.end_us.to_be_bytes())
            .finalize();
        let hash = hash.iter().take(16).fold(0_u128, |sum, byte| sum << 8 | u128::from(*byte));
        format!("evt_{hash:032x}")
    }

    /// The body, as JSON.
    #[allow(clippy::cast_precision_loss, reason = "units are at most 2^53")]
    pub fn body(&self) -> Vec<u8> {
        let Record { place, start_us, rule, owner, plan, limit, used, counted_at_us } =
            &self.record;
        let data = Data {
            rule,
            client_kind: owner.kind,
            client: &owner.id,
            plan,
            period_start: UtcTime(*start_us),
            period_end: UtcTime(place.end_us),
            zone: limit.usage_zone(),
            limit: limit.capacity(),
            used: *used as f64 / 1_000.0,
            bucket: format!("{:032x}", place.bucket.0),
        };
        let body = Body { kind: self.kind.name(), timestamp: UtcTime(*counted_at_us), data };
        serde_json::to_vec(&body).unwrap_or_default()
    }
}
