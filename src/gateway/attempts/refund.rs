//! Tokens of a request that failed before it reached a server, or before its server has answered:
//! they are given back to the buckets of the rules whose `refund_on` has its reason.

use http::StatusCode;
use pingora::prelude::Error;

use crate::base::clock;
use crate::decide::decision::{Decision, LimitCheck};
use crate::decide::reason::Failure;
use crate::gateway::Gateway;
use crate::gateway::exchange::Exchange;
use crate::gateway::judge::counted;
use crate::gateway::respond::failure;
use crate::policy::Rule;
use crate::policy::refund::RefundReason;
use crate::store::limiter::{Allowed, Refund};
use crate::usage::days::row::Counts;

impl Gateway {
    /// Gives back the tokens of a request that failed, if it got no response of a server. Its
    /// response reports the limits without what it took. Takes about as long as a check, so that a
    /// client which has the response has its tokens, too.
    pub(in crate::gateway) async fn refund(
        &self,
        exchange: &mut Exchange,
        failure: Failure,
        error: &Error,
    ) {
        let (reason, status) = (reason(exchange, failure, error), status(exchange, failure, error));
        if reason.is_none() && status.is_none() {
            return;
        }
        let is_listed = |rule: &Rule| {
            let reason = reason.filter(|reason| rule.refund_on.has(*reason));
            reason.or_else(|| rule.refund_on.of_status(status?))
        };
        let (snapshot, Some(judged)) = (&exchange.snapshot, &mut exchange.judged) else { return };
        let (Some(identity), Some(check)) = (&judged.identity, judged.check) else { return };
        let Decision::Allowed { check: Some(limits), .. } = &mut judged.decision else { return };
        let rule = |index: usize| {
            let charge = limits.taken.charges.get(index)?;
            snapshot.policy.rules.get(charge.rule as usize)
        };
        let parts = |index| if rule(index).and_then(is_listed).is_some() { u64::MAX } else { 0 };
        let allowed = Allowed {
            taken: &limits.taken,
            rules: &snapshot.stored_rules,
            checked_at: check.started,
        };
        // Also those whose buckets get nothing back, since they have refilled: they cost nothing.
        let is_refunded = |index: &usize| parts(*index) > 0;
        exchange.refunded.extend((0..limits.taken.charges.len()).filter(is_refunded));
        // The buckets may be of other limits now.
        let is_in_force = self.current.load().generation == snapshot.generation;
        let refund = if is_in_force {
            let mut refund = self.limiter.refund(allowed, parts, clock::now());
            self.limiter.refunded_in_time(&mut refund, &limits.taken).await;
            refund
        } else {
            Refund::lost(allowed, parts)
        };
        if refund.levels.is_empty() && refund.lost.is_empty() {
            return;
        }
        let series = &self.metrics.refunds;
        let given = refund.levels.iter().map(|(index, _)| (*index, &series.given));
        let lost = refund.lost.iter().map(|index| (*index, &series.lost));
        for (index, series) in given.chain(lost) {
            if let Some(rule) = rule(index)
                && let Some(reason) = is_listed(rule)
            {
                series.with_label_values(&[&*rule.name, reason.name()]).inc();
            }
        }
        if let Some(usage) = &self.usage {
            let request = counted(snapshot, &identity.client, judged.route);
            let given = refund.levels.iter().map(|(index, _)| *index);
            let taken = &limits.taken;
            let changes = given.chain(refund.lost.iter().copied()).filter_map(|index| {
                let charge = taken.charges.get(index)?;
                let outcome = taken.answer.outcomes.get(index)?;
                Some((index, Counts::of_refund(charge, outcome, None)))
            });
            usage.ledger().note_changed(request, taken, changes, check.started);
        }
        let after = without_taken(limits, &refund);
        if is_in_force {
            self.note_refund(snapshot, &identity.client, &limits.taken, check.started, refund);
        }
        *limits = after;
    }
}

/// Why a request reached no server; `None` if it may have, or if its client can fail it at will.
fn reason(exchange: &Exchange, failure: Failure, error: &Error) -> Option<RefundReason> {
    let reason = match failure {
        Failure::NoServer => RefundReason::NoServer,
        Failure::UpstreamConnect => RefundReason::UpstreamConnect,
        Failure::UpstreamOverflow => RefundReason::Shed,
        Failure::UpstreamTls => RefundReason::UpstreamTls,
        Failure::UpstreamConnectTimeout => RefundReason::UpstreamConnectTimeout,
        Failure::ClientClosed
        | Failure::BodyTooLarge
        | Failure::SlowBody
        | Failure::SlowReader
        | Failure::ClientTimeout
        | Failure::UnreadableRequest
        | Failure::UpstreamTimeout
        | Failure::RequestTimeout
        | Failure::UpstreamBroken
        | Failure::Internal => return None,
    };
    // An earlier attempt may have sent it.
    let may_have_arrived = exchange.attempts.any_connected() || failure::is_at_will(error);
    (!may_have_arrived).then_some(reason)
}

/// The status of a failed request that got no response of a server; `None` if its client can fail
/// it at will.
fn status(exchange: &Exchange, failure: Failure, error: &Error) -> Option<StatusCode> {
    if exchange.attempts.answer.is_some() || failure::is_at_will(error) {
        return None;
    }
    failure::response(failure).map(|(status, _)| status)
}

/// The limits with the levels after a refund.
fn without_taken(limits: &LimitCheck, refund: &Refund) -> LimitCheck {
    let mut taken = limits.taken.clone();
    for (index, level) in &refund.levels {
        if let Some(outcome) = taken.answer.outcomes.get_mut(*index) {
            outcome.level = *level;
        }
    }
    LimitCheck::of(taken)
}
