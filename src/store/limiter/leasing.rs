//! Requests with charges whose buckets have a lease: these take their tokens from it, the others as
//! usual.
//!
//! All or nothing: tokens of leases are taken first, and put back if the others are refused. A
//! lease that lacks the tokens refuses nothing: its charge is checked in Redis, too. So a refusal
//! always comes from the store. A lease is also used while Redis is unavailable: the bucket has
//! already counted its tokens.

use std::sync::Arc;
use std::time::Duration;

use smallvec::SmallVec;

use super::{Shared, Source, Taken};
use crate::base::clock;
use crate::base::failure;
use crate::limit::charge::{Answer, BucketId, Charge, Charges, Mode, Outcome, Outcomes};
use crate::limit::lease::{Means, Request, STEP_US, Step};
use crate::limit::reading::{Reading, Times};
use crate::limit::share::Share;
use crate::policy::Lease;
use crate::store::deny_cache::DenyCache;
use crate::store::fallback::Fallback;
use crate::store::held::Holds;
use crate::store::leases::Leases;
use crate::store::redis::batch::Batcher;
use crate::store::redis::batch::lease::LeaseEvent;
use crate::store::redis::nodes::Nodes;
use crate::store::rule::StoredRule;

/// Longest time to wait until leases are returned.
const RETURN_TIMEOUT: Duration = Duration::from_secs(1);

/// Time between two looks at whether leases are returned.
const RETURN_POLL: Duration = Duration::from_millis(5);

/// Charges that were taken from leases, and the units that are available afterwards.
type Leased = SmallVec<[(Charge, i64); 2]>;

/// Whether tokens of the charge's bucket can be borrowed. Rules in shadow mode never borrow.
fn can_borrow(charge: &Charge, rules: &[StoredRule]) -> bool {
    let rule = rules.get(charge.rule as usize);
    charge.mode == Mode::Enforce && rule.is_some_and(|rule| rule.lease != Lease::Off)
}

/// Whether tokens of the bucket of any of these charges can be borrowed.
pub(super) fn has_leases(charges: &[Charge], rules: &[StoredRule]) -> bool {
    charges.iter().any(|charge| can_borrow(charge, rules))
}

impl Shared {
    /// Decides a request as [`check`](Self::check), and takes what it can from leases.
    pub(super) async fn take_with_leases(
        &self,
        charges: Charges,
        rules: &Arc<[StoredRule]>,
        now: u64,
    ) -> (Taken, Holds) {
        let (mut leased, mut rest) = (Leased::new(), Charges::new());
        for charge in &charges {
            let taken = can_borrow(charge, rules).then(|| self.leases.take(charge, now)).flatten();
            match taken {
                Some(available) => leased.push((*charge, available)),
                None => rest.push(*charge),
            }
        }
        if rest.is_empty() && !leased.is_empty() {
            let outcomes = leased.iter().map(|(_, available)| outcome(*available)).collect();
            let answer = Answer::of(&charges, outcomes);
            return (Taken::all(charges, answer, Source::Lease), Holds::new());
        }
        let (taken, holds) = self.check(rest, rules, now).await;
        if taken.answer.allowed() {
            self.note(&taken, rules);
        } else {
            for (charge, available) in &mut leased {
                *available = self.leases.put_back(charge, clock::now()).unwrap_or(*available);
            }
        }
        if leased.is_empty() || taken.source == Source::Policy {
            return (taken, holds);
        }
        (with_leased(taken, &charges, &leased), holds)
    }

    /// Counts what Redis allowed, and starts leases.
    fn note(&self, taken: &Taken, rules: &[StoredRule]) {
        for (index, (charge, outcome)) in
            taken.charges.iter().zip(&taken.answer.outcomes).enumerate()
        {
            if !can_borrow(charge, rules) || taken.source_of(index) != Source::Redis {
                continue;
            }
            let starts = self.leases.note(charge, outcome.level, clock::now());
            let rule = rules.get(charge.rule as usize);
            if let (true, Some(rule)) = (starts, rule) {
                let keeper = Keeper {
                    charge: *charge,
                    rule: rule.clone(),
                    leases: Arc::clone(&self.leases),
                    denied: Arc::clone(&self.denied),
                    fallback: Arc::clone(&self.fallback),
                    nodes: Arc::clone(&self.nodes),
                    instances: self.instances,
                };
                tokio::spawn(failure::watch_task("lease keeper", keeper.run()));
            }
        }
    }

    /// Adds what is left of a lease to the state of its bucket.
    pub(super) fn with_lease(&self, charge: &Charge, reading: Reading, now: u64) -> Reading {
        let unspent = self.leases.unspent(charge, now);
        let level = reading.level.saturating_add(unspent).min(charge.limit.full());
        // A fixed window may have more than its limit.
        Reading { level: level.max(reading.level), ..reading }
    }

    /// Returns what is left of the leases of these buckets, within about a second.
    pub(super) async fn return_leases(&self, buckets: impl Iterator<Item = BucketId> + Clone) {
        buckets.clone().for_each(|bucket| self.leases.close(bucket));
        let is_left = || buckets.clone().any(|bucket| self.leases.has(bucket));
        wait_while(is_left, RETURN_TIMEOUT).await;
    }

    /// Returns what is left of all leases, within about `timeout`. None begins afterwards.
    pub(super) async fn end_leases(&self, timeout: Duration) {
        self.leases.shut();
        wait_while(|| !self.leases.is_empty(), timeout.min(RETURN_TIMEOUT)).await;
    }
}

/// Waits until `is_left` is false, at most for `timeout`.
async fn wait_while(is_left: impl Fn() -> bool, timeout: Duration) {
    let waiting = async {
        while is_left() {
            tokio::time::sleep(RETURN_POLL).await;
        }
    };
    let _ = tokio::time::timeout(timeout, waiting).await;
}

/// Keeps the lease of one bucket until no request uses it.
struct Keeper {
    charge: Charge,
    rule: StoredRule,
    leases: Arc<Leases>,
    denied: Arc<DenyCache>,
    fallback: Arc<Fallback>,
    nodes: Arc<Nodes>,
    /// Number of gateways, if it is configured.
    instances: Option<u32>,
}

impl Keeper {
    async fn run(self) {
        loop {
            let node = self.nodes.node_of(self.charge.bucket, &self.rule);
            let batcher = node.as_ref().map(|node| node.batcher());
            let means = batcher.map_or(Means::Nothing, |batcher| self.means(batcher));
            let (step, expired) = self.leases.step(self.charge.bucket, means, clock::now());
            if let Some(batcher) = batcher {
                let limit = &self.charge.limit;
                batcher.count_leased(&self.rule, limit, LeaseEvent::Expired, expired);
                if let Step::Call(request) = step {
                    self.call(batcher, &request).await;
                }
            }
            if step == Step::End {
                return;
            }
            tokio::time::sleep(Duration::from_micros(STEP_US)).await;
        }
    }

    /// What can be done now, with the calls of this batcher.
    fn means(&self, batcher: &Batcher) -> Means {
        if !batcher.can_lend() {
            Means::Nothing
        } else if batcher.debts().has(self.charge.bucket) {
            // A check of a request settles it first.
            Means::Return
        } else {
            Means::Borrow(match self.rule.lease {
                Lease::UpTo(tokens) => self.charge.limit.token_units(tokens),
                Lease::Auto => i64::MAX,
                Lease::Off => 0,
            })
        }
    }

    async fn call(&self, batcher: &Arc<Batcher>, request: &Request) {
        let bucket = self.charge.bucket;
        let gateways = self.instances.unwrap_or_else(|| self.nodes.peers().gateways());
        let divisor = 2 * i64::from(gateways.max(1));
        let sent_at = clock::now();
        let loan = batcher.borrow(&self.charge, &self.rule, request, divisor).await;
        let now = clock::now();
        if let Some(loan) = &loan {
            // An outage begins from this level.
            self.fallback.learn_level(&self.charge, loan.level, sent_at, now);
        }
        if request.accounts.iter().any(|account| account.returned > 0) {
            self.denied.forget([bucket], now);
        }
        self.leases.lent(bucket, loan, sent_at, now);
    }
}

/// Outcome of a charge that was taken from a lease.
const fn outcome(available: i64) -> Outcome {
    Outcome { level: available, enough: true, share: Share::WHOLE, times: Times::NONE }
}

/// Adds what was taken from leases to a decision on the other charges, in the order of the
/// request's charges.
fn with_leased(taken: Taken, charges: &[Charge], leased: &Leased) -> Taken {
    let (mut all, mut outcomes) = (Charges::new(), Outcomes::new());
    let (mut local, mut of_leases) = (Vec::new(), Vec::new());
    for charge in charges {
        if let Some((_, available)) = leased.iter().find(|(one, _)| one.bucket == charge.bucket) {
            of_leases.push(all.len());
            outcomes.push(outcome(*available));
        } else if let Some(at) = taken.charges.iter().position(|one| one.bucket == charge.bucket)
            && let Some(decided) = taken.answer.outcomes.get(at)
        {
            if taken.local.contains(&at) {
                local.push(all.len());
            }
            outcomes.push(*decided);
        } else {
            // Waived.
            continue;
        }
        all.push(*charge);
    }
    let answer = Answer::of(&all, outcomes);
    Taken {
        waived: taken.waived,
        local,
        leased: of_leases,
        taken_at: taken.taken_at,
        ..Taken::all(all, answer, taken.source)
    }
}
