//! What a request costs by its response (`count`), and tokens that it gets back because of the
//! status of its response (`refund_on`). Both are settled when the response ends.

mod given_back;

use std::borrow::Cow;
use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, StatusCode, header};
use pingora::prelude::{RequestHeader, ResponseHeader, Result};
use smallvec::SmallVec;

use super::Gateway;
use super::exchange::Exchange;
use super::judge::counted;
use crate::base::clock;
use crate::client::Client;
use crate::decide::decision::Decision;
use crate::limit::charge::{Charge, Outcome};
use crate::limit::cost::Amount;
use crate::meter::{Meter, Totals};
use crate::net::framing;
use crate::observe::metrics::{Metrics, Settled};
use crate::policy::refund::RefundReason;
use crate::policy::{Policy, Rule};
use crate::runtime::Snapshot;
use crate::store::limiter::{Allowed, Owed, Refund, Taken};
use crate::usage::days::row::Counts;
use crate::usage::kept::Kept;
use given_back::GivenBack;

/// What is read of one response.
pub(super) struct Metering {
    meters: SmallVec<[Metered; 1]>,
    /// `None`: there is no response.
    status: Option<StatusCode>,
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
    refunded: Refunded,
}

/// Charges, by index, that are given back because of the status, with the names of their rules.
type Refunded = SmallVec<[(usize, Arc<str>, RefundReason); 1]>;

/// Asks the upstream for a body that can be read, if the request's cost is in it.
///
/// # Errors
/// Never: the value is valid.
pub(super) fn prepare_request(request: &mut RequestHeader, exchange: &Exchange) -> Result<()> {
    let mut sources = charged(exchange).filter_map(|charged| charged.rule.count.as_ref());
    if sources.any(|source| source.reads_body()) {
        request.insert_header(header::ACCEPT_ENCODING, HeaderValue::from_static("identity"))?;
        // A part of the body may end within the cost.
        request.remove_header(&header::RANGE);
        request.remove_header(&header::IF_RANGE);
    }
    Ok(())
}

/// Begins to read a final response of the upstream, before its head is changed.
pub(super) fn begin(request: &RequestHeader, response: &ResponseHeader, exchange: &mut Exchange) {
    let has_ended = || {
        let length = response.headers.get(header::CONTENT_LENGTH);
        !framing::has_body(&request.method, response.status)
            || length.is_some_and(|length| length.as_bytes() == b"0")
    };
    let status = Some(response.status);
    exchange.metering = metering(exchange, &response.headers, status, has_ended);
}

/// Begins for a request that a server got, and whose response has no head.
fn begin_without_response(exchange: &mut Exchange) {
    let is_sent = exchange.attempts.any_connected() && exchange.attempts.answer.is_none();
    if is_sent && !exchange.is_settled {
        exchange.metering = metering(exchange, &HeaderMap::new(), None, || false);
    }
}

/// What is read of a response; `None` if no rule that applies settles what it took.
fn metering(
    exchange: &Exchange,
    head: &HeaderMap,
    status: Option<StatusCode>,
    has_ended: impl FnOnce() -> bool,
) -> Option<Box<Metering>> {
    let mut charged = charged(exchange).peekable();
    charged.peek()?;
    let meters = charged.filter_map(|Charged { index, rule, .. }| {
        let source = Arc::clone(rule.count.as_ref()?);
        Some(Metered { index, meter: Meter::new(source, head) })
    });
    Some(Box::new(Metering { meters: meters.collect(), status, has_ended: has_ended() }))
}

/// A charge of an allowed request that has taken tokens, which its rule settles, unless they are
/// given back already.
struct Charged<'a> {
    index: usize,
    charge: &'a Charge,
    outcome: &'a Outcome,
    rule: &'a Rule,
}

fn charged(exchange: &Exchange) -> impl Iterator<Item = Charged<'_>> {
    let policy = &exchange.snapshot.policy;
    let taken = match exchange.decision() {
        Some(Decision::Allowed { check: Some(check), .. }) => Some(&check.taken),
        _ => None,
    };
    let taken = taken.filter(|_| !policy.settled_rules.is_empty());
    let each = taken.into_iter().flat_map(|taken| taken.charges.iter().zip(&taken.answer.outcomes));
    let each = each.enumerate().filter_map(|(index, (charge, outcome))| {
        let rule = policy.rules.get(charge.rule as usize)?;
        Some(Charged { index, charge, outcome, rule })
    });
    each.filter(|charged| {
        charged.outcome.spent(charged.charge) > 0
            && charged.rule.settles()
            && !exchange.refunded.contains(&charged.index)
    })
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

impl Changes {
    /// What they change of the usage by day, by index of the charge.
    fn counts(&self, taken: &Taken) -> impl Iterator<Item = (usize, Counts)> {
        let each = taken.charges.iter().zip(&taken.answer.outcomes).enumerate();
        each.filter_map(|(index, (charge, outcome))| {
            if let Some(owed) = self.owed.iter().find(|owed| owed.charge.bucket == charge.bucket) {
                // A reload since may have changed the limit, not the unit of a quota.
                let units = owed.charge.limit.units(owed.charge.cost);
                let level = outcome.level.saturating_sub(units);
                return Some((index, Counts::of_debit(units, level)));
            }
            let (_, parts) = self.returned.iter().find(|(own, _)| *own == index)?;
            let is_refunded = self.refunded.iter().any(|(own, ..)| *own == index);
            let parts = (!is_refunded).then_some(*parts);
            Some((index, Counts::of_refund(charge, outcome, parts)))
        })
    }
}

impl Gateway {
    /// Settles what a request took, once.
    pub(super) fn settle(&self, exchange: &mut Exchange, end: End) {
        let Some(metering) = exchange.metering.take() else { return };
        exchange.is_settled = true;
        let end = if metering.has_ended { End::Complete } else { end };
        exchange.costs = self.settle_metered(exchange, metering, end).unwrap_or_default();
    }

    /// Settles what a request took that has ended, if nothing has before.
    pub(super) fn settle_at_end(&self, exchange: &mut Exchange) {
        if exchange.metering.is_none() {
            begin_without_response(exchange);
        }
        self.settle(exchange, End::Early);
    }

    fn settle_metered(
        &self,
        exchange: &Exchange,
        mut metering: Box<Metering>,
        end: End,
    ) -> Option<SmallVec<[(u32, Amount); 1]>> {
        let judged = exchange.judged.as_ref()?;
        let (client, check) = (&judged.identity.as_ref()?.client, judged.check?);
        let Decision::Allowed { check: Some(limits), .. } = &judged.decision else { return None };
        let (taken, snapshot) = (&limits.taken, &exchange.snapshot);
        let current = self.current.load();
        let is_in_force = current.generation == snapshot.generation;
        let changes = self.changes(exchange, &mut metering, end);
        let now = clock::now();

        // The limits in force may be others than those that it took from.
        let is_known = |owed: &Owed| {
            if is_in_force { Some(*owed) } else { moved(owed, snapshot, &current.policy, client) }
        };
        let owed: SmallVec<[Owed; 1]> = changes.owed.iter().filter_map(is_known).collect();
        self.limiter.debit(&owed, &current.stored_rules, now);
        let allowed = Allowed { taken, rules: &snapshot.stored_rules, checked_at: check.started };
        let parts = |index: usize| {
            let own = changes.returned.iter().find(|(own, _)| *own == index);
            own.map_or(0, |(_, parts)| *parts)
        };
        let refund = if is_in_force {
            self.limiter.refund(allowed, parts, now)
        } else {
            Refund::lost(allowed, parts)
        };
        if let Some(usage) = &self.usage {
            let debited = owed.iter().map(|owed| &owed.charge);
            usage.ledger().note_debited(&current.policy, client, debited, now);
            let request = counted(snapshot, client, judged.route);
            usage.ledger().note_changed(request, taken, changes.counts(taken), check.started);
        }
        let returned = changes.returned.iter().map(|(index, _)| *index).filter(|_| is_in_force);
        let given_back = GivenBack {
            policy: Arc::clone(&snapshot.policy),
            client: Cow::Borrowed(client),
            taken: Cow::Borrowed(taken),
            indexes: returned.collect(),
            checked_at: check.started,
        };
        self.finish(refund, given_back, changes.refunded);
        Some(changes.costs)
    }

    /// Waits for what Redis gives back, if it does, and counts requests that got all back.
    fn finish(&self, mut refund: Refund, given_back: GivenBack<'_>, refunded: Refunded) {
        if !refund.is_pending() {
            given_back.note(self.usage.as_ref().map(Kept::ledger));
            count_refunds(&self.metrics, &refund, &refunded);
            return;
        }
        let (limiter, metrics) = (Arc::clone(&self.limiter), Arc::clone(&self.metrics));
        let (usage, given_back) = (self.usage.clone(), given_back.into_owned());
        tokio::spawn(async move {
            let ledger = usage.as_ref().map(Kept::ledger);
            given_back.finish(&limiter, &mut refund, ledger).await;
            count_refunds(&metrics, &refund, &refunded);
        });
    }

    /// Has the buckets read of a failed request that was checked at `checked_at` and got tokens
    /// back. What is lost, Redis may still give back: they are read after that.
    pub(super) fn note_refund(
        &self,
        snapshot: &Snapshot,
        client: &Client,
        taken: &Taken,
        checked_at: u64,
        refund: Refund,
    ) {
        let given = refund.levels.iter().map(|(index, _)| *index);
        let given_back = GivenBack {
            policy: Arc::clone(&snapshot.policy),
            client: Cow::Borrowed(client),
            taken: Cow::Borrowed(taken),
            indexes: given.chain(refund.lost.iter().copied()).collect(),
            checked_at,
        };
        if refund.lost.is_empty() {
            given_back.note(self.usage.as_ref().map(Kept::ledger));
        } else {
            self.finish(refund, given_back, Refunded::new());
        }
    }

    fn changes(&self, exchange: &Exchange, metering: &mut Metering, end: End) -> Changes {
        let took_us = clock::now().saturating_sub(exchange.started);
        let totals =
            Totals { request_bytes: exchange.attempts.body_bytes, duration_ms: took_us / 1_000 };
        let mut changes = Changes::default();
        for Charged { index, charge, outcome, rule } in charged(exchange) {
            let refunded = metering.status.and_then(|status| rule.refund_on.of_status(status));
            let read = match refunded {
                Some(_) => Some(0),
                None => metering.parts(index, charge, totals, end),
            };
            let parts = read.unwrap_or(charge.cost);
            let cost = Amount::of_parts(parts, charge.limit.parts());
            changes.refunded.extend(refunded.map(|reason| (index, Arc::clone(&rule.name), reason)));
            changes.costs.push((charge.rule, cost));
            if rule.count.is_some() {
                let settled = match (read, end) {
                    (None, _) => Settled::Unknown,
                    (Some(_), End::Early) => Settled::Early,
                    (Some(_), End::Complete) => Settled::Known,
                };
                self.metrics.settlements.count(&rule.name, settled, cost);
            }
            if parts > charge.cost {
                let charge = Charge { cost: parts - charge.cost, ..*charge };
                changes.owed.push(Owed { charge, share: outcome.share });
            } else if parts < charge.cost {
                changes.returned.push((index, charge.cost - parts));
            }
        }
        changes
    }
}

/// What a request owes under the limit that is in force after a reload; `None` if its rule does not
/// exist any more, is of another kind, or has no limit for the client.
fn moved(owed: &Owed, snapshot: &Snapshot, current: &Policy, client: &Client) -> Option<Owed> {
    let was = snapshot.policy.rules.get(owed.charge.rule as usize)?;
    let (index, rule) = (0..).zip(&current.rules).find(|(_, rule)| rule.name == was.name)?;
    let grant = rule.limit_of(client).filter(|_| rule.kind == was.kind)?;
    let cost = Amount::of_parts(owed.charge.cost, owed.charge.limit.parts());
    let charge = Charge {
        rule: index,
        limit_index: grant.index,
        limit: grant.limit,
        cost: cost.in_parts(grant.limit.parts()),
        ..owed.charge
    };
    Some(Owed { charge, ..*owed })
}

fn count_refunds(metrics: &Metrics, refund: &Refund, refunded: &Refunded) {
    for (index, rule, reason) in refunded {
        let series = if refund.lost.contains(index) {
            &metrics.refunds.lost
        } else if refund.levels.iter().any(|(own, _)| own == index) {
            &metrics.refunds.given
        } else {
            continue;
        };
        series.with_label_values(&[&**rule, reason.name()]).inc();
    }
}
