//! Borrows tokens of a bucket for this gateway, and returns them. Each is one call, for which no
//! request waits and which has no effect on the circuit breaker.

use std::time::Duration;

use super::Batcher;
use super::flight::tokens;
use crate::base::clock;
use crate::base::duration::micros;
use crate::limit::Limit;
use crate::limit::charge::Charge;
use crate::limit::lease::{Loan, Request};
use crate::store::redis::class::{ErrorClass, classify};
use crate::store::redis::script;
use crate::store::rule::StoredRule;

/// Time after which a reply is no longer awaited. Borrowed units could hardly be spent after it.
const REPLY_TIMEOUT: Duration = Duration::from_millis(500);

/// What happens to tokens of a lease, as the label of a metric.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LeaseEvent {
    /// This gateway borrowed them.
    Lent,
    /// This gateway gave them back to the bucket.
    Returned,
    /// They were not spent in time, and are lost.
    Expired,
}

impl LeaseEvent {
    /// Value of the label.
    const fn label(self) -> &'static str {
        match self {
            Self::Lent => "lent",
            Self::Returned => "returned",
            Self::Expired => "expired",
        }
    }
}

impl Batcher {
    /// Whether gateways can borrow: there is a connection, and the breaker is closed.
    pub fn can_lend(&self) -> bool {
        self.link.admits_all()
    }

    /// Borrows units of the charge's bucket, at most the `divisor`-th part of its level. `None` if
    /// Redis does not answer in time, or cannot read the bucket.
    pub async fn borrow(
        &self,
        charge: &Charge,
        rule: &StoredRule,
        request: &Request,
        divisor: i64,
    ) -> Option<Loan> {
        let mut connection = self.link.current()?;
        let returned = request.accounts.iter().map(|account| account.returned).sum();
        self.count_leased(rule, &charge.limit, LeaseEvent::Returned, returned);
        let keys = [self.keys.keys().bucket(charge.bucket, rule)];
        let now = clock::now();
        let call = script::encode_lease(charge, request, divisor, now);
        let ends = now.saturating_add(micros(REPLY_TIMEOUT));
        // What is only returned, Redis can take later, too.
        let ends = (request.wanted > 0).then_some(ends);
        let reply = self.on_buckets(&mut connection, &keys, (&call, &[]), ends);
        let (label, loan) = match tokio::time::timeout(REPLY_TIMEOUT, reply).await {
            Err(_) => ("timeout", None),
            Ok(Err(error)) => (classify(&error).label(), None),
            Ok(Ok(numbers)) => match script::read_lease(charge, request, &numbers) {
                Ok(loan) => ("ok", loan),
                Err(_) => (ErrorClass::Parse.label(), None),
            },
        };
        self.series.calls.with_label_values(&[label]).inc();
        if let Some(loan) = &loan {
            self.count_leased(rule, &charge.limit, LeaseEvent::Lent, loan.units);
        }
        loan
    }

    /// Counts what happened to units of a lease.
    pub fn count_leased(&self, rule: &StoredRule, limit: &Limit, event: LeaseEvent, units: i64) {
        if units > 0 {
            let labels = [&*rule.name, event.label()];
            self.series.leased.with_label_values(&labels).inc_by(tokens(units, limit));
        }
    }
}
