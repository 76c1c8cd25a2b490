//! What a request costs by its response (`count`), and tokens that it gets back because of the
//! status of its response (`refund_on`). Both are settled when the response ends.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, StatusCode, header};
use pingora::prelude::{RequestHeader, ResponseHeader, Result};
use smallvec::SmallVec;

use super::Gateway;
use super::exchange::Exchange;
use crate::base::clock;
use crate::decide::decision::Decision;
use crate::limit::charge::Charge;
use crate::limit::cost::Amount;
use crate::meter::{Meter, Totals};
use crate::net::framing;
use crate::observe::metrics::Settled;
use crate::policy::Rule;
use crate::policy::refund::RefundReason;
use crate::store::limiter::{Allowed, Owed, Refund};

/// Longest time that Redis is waited for until it has given back tokens. A call is given up long
/// before.
const TIMEOUT: Duration = Duration::from_secs(1);

/// What is read of one response.
pub(super) struct Metering {
    meters: SmallVec<[Metered; 1]>,
    status: StatusCode,
    /// It has no body, so that it has ended.
    has_ended: bool,
}

/// A charge whose cost is read.
struct Metered {
    /// Its index.
    index: usize,
    meter: Meter,
}

/// How a response ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    /// All of it has come from the upstream.
    Complete,
    /// The client has left, or the upstream has broken off.
    Early,
}

/// What is changed of what a request took.
#[derive(Default)]
struct Changes {
    owed: SmallVec<[Owed; 1]>,
    /// By index of the charge, in parts of a token.
    returned: SmallVec<[(usize, u64); 1]>,
    /// Rules, by index, and what it has cost for them.
    costs: SmallVec<[(u32, Amount); 1]>,
    /// Charges that are given back because of the status.
    refunded: SmallVec<[(usize, RefundReason); 1]>,
}

/// Asks the upstream for a body that can be read, if the request's cost is in it.
///
/// # Errors
/// Never: the value is valid.
pub(super) fn prepare_request(request: &mut RequestHeader, exchange: &Exchange) -> Result<()> {
    let reads_body =
        |(_, rule): (&Charge, &Rule)| rule.count.as_ref().is_some_and(|count| count.reads_body());
    if !exchange.snapshot.policy.settled_rules.is_empty() && charged(exchange).any(reads_body) {
        request.insert_header(header::ACCEPT_ENCODING, HeaderValue::from_static("identity"))?;
    }
    Ok(())
}

/// Begins to read a final response of the upstream, before its head is changed.
pub(super) fn begin(request: &RequestHeader, response: &ResponseHeader, exchange: &mut Exchange) {
    if exchange.snapshot.policy.settled_rules.is_empty() {
        return;
    }
    let (mut meters, mut settles) = (SmallVec::new(), false);
    for (index, (_, rule)) in charged(exchange).enumerate() {
        settles |= rule.settles();
        if let Some(source) = rule.count.as_ref().filter(|_| rule.enabled) {
            let meter = Meter::new(Arc::clone(source), &response.headers);
            meters.push(Metered { index, meter });
        }
    }
    let length = response.headers.get(header::CONTENT_LENGTH);
    let has_ended = !framing::has_body(&request.method, response.status)
        || length.is_some_and(|length| length.as_bytes() == b"0");
    let metering = || Box::new(Metering { meters, status: response.status, has_ended });
    exchange.metering = settles.then(metering);
}

/// The charges of an allowed request, and their rules.
fn charged(exchange: &Exchange) -> impl Iterator<Item = (&Charge, &Rule)> {
    let check = match exchange.decision() {
        Some(Decision::Allowed { check, .. }) => check.as_ref(),
        _ => None,
    };
    let charges = check.map_or(&[][..], |check| &check.taken.charges);
    let rules = &exchange.snapshot.policy.rules;
    charges.iter().filter_map(|charge| Some((charge, rules.get(charge.rule as usize)?)))
}

impl Metering {
    /// Reads the next part of the body.
    pub(super) fn read_body(&mut self, part: Option<&Bytes>) {
        if let Some(part) = part {
            self.meters.iter_mut().for_each(|metered| metered.meter.read_body(part));
        }
    }

    /// Reads the trailers.
    pub(super) fn read_trailers(&mut self, trailers: &HeaderMap) {
        self.meters.iter_mut().for_each(|metered| metered.meter.read_trailers(trailers));
    }

    /// What the charge with this index has cost, in parts of a token; `None` if it is not known.
    fn parts(&mut self, index: usize, charge: &Charge, totals: Totals, end: End) -> Option<u64> {
        let metered = self.meters.iter_mut().find(|metered| metered.index == index)?;
        let parts = metered.meter.cost(totals)?.in_parts(charge.limit.parts());
        // What has not come may be the larger part of it.
        Some(if end == End::Early { parts.max(charge.cost) } else { parts })
    }
}

impl Gateway {
    /// Settles what a request took, once.
    pub(super) fn settle(&self, exchange: &mut Exchange, end: End) {
        let Some(mut metering) = exchange.metering.take() else { return };
        let end = if metering.has_ended { End::Complete } else { end };
        let changes = self.changes(exchange, &mut metering, end);
        let snapshot = &exchange.snapshot;
        let Some(judged) = &exchange.judged else { return };
        let (Some(identity), Some(check)) = (&judged.identity, judged.check) else { return };
        let Decision::Allowed { check: Some(limits), .. } = &judged.decision else { return };
        let allowed = Allowed {
            taken: &limits.taken,
            rules: &snapshot.stored_rules,
            checked_at: check.started,
        };
        // The buckets may be of other limits now.
        let is_in_force = self.current.load().generation == snapshot.generation;
        self.limiter.debit(allowed, &changes.owed, is_in_force, clock::now());
        let parts = |index: usize| {
            let own = changes.returned.iter().find(|(own, _)| *own == index);
            own.map_or(0, |(_, parts)| *parts)
        };
        let refund = if is_in_force {
            self.limiter.refund(allowed, parts, clock::now())
        } else {
            Refund::lost(allowed, parts)
        };
        if let Some(usage) = self.usage.as_ref().filter(|_| is_in_force) {
            let (policy, taken) = (&snapshot.policy, &limits.taken);
            let owed = changes.owed.iter().map(|owed| owed.index);
            let indexes = owed.chain(changes.returned.iter().map(|(index, _)| *index));
            let started = check.started;
            usage.ledger().note_refunded(policy, &identity.client, taken, indexes, started);
        }
        for (index, reason) in &changes.refunded {
            let rule = limits.taken.charges.get(*index).map(|charge| charge.rule as usize);
            let Some(rule) = rule.and_then(|rule| snapshot.policy.rules.get(rule)) else {
                continue;
            };
            let is_lost = refund.lost.contains(index);
            let series = &self.metrics.refunds;
            let series = if is_lost { &series.lost } else { &series.given };
            series.with_label_values(&[&*rule.name, reason.name()]).inc();
        }
        if refund.is_pending() {
            let (limiter, taken) = (Arc::clone(&self.limiter), limits.taken.clone());
            let mut refund = refund;
            tokio::spawn(async move {
                limiter.refunded(&mut refund, &taken, TIMEOUT, clock::now).await;
            });
        }
        exchange.costs = changes.costs;
    }

    fn changes(&self, exchange: &Exchange, metering: &mut Metering, end: End) -> Changes {
        let took_us = clock::now().saturating_sub(exchange.started);
        let totals =
            Totals { request_bytes: exchange.attempts.body_bytes, duration_ms: took_us / 1_000 };
        let mut changes = Changes::default();
        for (index, (charge, rule)) in charged(exchange).enumerate() {
            if !rule.settles() {
                continue;
            }
            let refunded = rule.refund_on.of_status(metering.status);
            let parts = match refunded {
                Some(_) => Some(0),
                None => metering.parts(index, charge, totals, end),
            };
            changes.refunded.extend(refunded.map(|reason| (index, reason)));
            if rule.count.is_some() {
                let settled = match (parts, end) {
                    (None, _) => Settled::Unknown,
                    (Some(_), End::Early) => Settled::Early,
                    (Some(_), End::Complete) => Settled::Known,
                };
                self.metrics.settlements.count(&rule.name, settled);
            }
            let Some(parts) = parts else { continue };
            let of_token = charge.limit.parts();
            let cost = Amount::of_parts(parts, of_token);
            changes.costs.push((charge.rule, cost));
            if rule.count.is_some() {
                self.metrics.settlements.add(&rule.name, cost);
            }
            if parts > charge.cost {
                changes.owed.push(Owed { index, parts: parts - charge.cost });
            } else if parts < charge.cost {
                changes.returned.push((index, charge.cost - parts));
            }
        }
        changes
    }
}
