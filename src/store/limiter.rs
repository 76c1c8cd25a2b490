//! [`Limiter`]: decides a request in Redis, in the deny cache, or locally.
//!
//! The limiter is infallible: if Redis is unavailable, it decides locally, so callers have no error
//! branch.
//!
//! Reading order: this file (taking tokens), `parts` (requests whose buckets are in several slots
//! of a cluster), `unreadable` (requests with a bucket that Redis cannot read), `leasing` (requests
//! with tokens that were borrowed), `refund` (tokens of requests that failed), `settle` (what
//! requests cost by their responses), `peek` (reading without taking).

mod leasing;
mod parts;
mod peek;
mod refund;
mod settle;
mod unreadable;

use std::sync::Arc;
use std::time::Duration;

use super::adjusted::Adjusted;
use super::bans::Bans;
use super::deny_cache::DenyCache;
use super::fallback::Fallback;
use super::held::{Holds, Reservation};
use super::lapsed::LapsedDebt;
use super::leases::Leases;
use super::memory::MemoryStore;
use super::peek_cache::PeekCache;
use super::redis::batch::Undecided;
use super::redis::batch::adjust::{LevelChange, NotAdjusted};
use super::redis::batch::settle::{Settlement, Sum};
use super::redis::node::Node;
use super::redis::nodes::Nodes;
use super::rule::StoredRule;
use crate::base::clock;
use crate::limit::adjust::Adjustment;
use crate::limit::charge::{self, Answer, Charge, Charges, Mode, Outcome};
use crate::limit::reading::Reading;
use crate::limit::share::Share;
use crate::limit::top_up::{ChangedTopUps, TopUpChange, TopUpError};
use crate::limit::verdict::Standing;
use crate::policy::OnFailure;
use crate::policy::limits_hash::LimitsHash;
pub use peek::Levels;
pub use refund::{Allowed, Refund, TakenAt};
pub use settle::Owed;

/// Decides requests, each over all of its buckets atomically.
pub struct Limiter {
    memory: Arc<MemoryStore>,
    shared: Option<Shared>,
    /// Buckets that an operator has adjusted by this gateway.
    adjusted: Adjusted,
    /// Clients that are refused for longer.
    bans: Arc<Bans>,
}

/// Everything that a limiter with Redis has.
struct Shared {
    memory: Arc<MemoryStore>,
    nodes: Arc<Nodes>,
    denied: Arc<DenyCache>,
    fallback: Arc<Fallback>,
    leases: Arc<Leases>,
    peek_cache: PeekCache,
    /// Number of gateways, if it is configured.
    instances: Option<u32>,
}

/// Decision on a request, and the store that made it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Taken {
    /// Charges that were decided on: those of the request, without the waived ones.
    pub charges: Charges,
    /// Decision on these charges.
    pub answer: Answer,
    /// Store that decided, except on the charges in `local`.
    pub source: Source,
    /// Charges that Redis could not decide on and whose rules have `on_failure = "allow"`.
    pub waived: Vec<Charge>,
    /// Indexes of charges that were decided locally, since Redis cannot read their buckets.
    pub local: Vec<usize>,
    /// Indexes of charges that were taken from leases, if others were not.
    pub leased: Vec<usize>,
    /// When the tokens were taken.
    pub taken_at: TakenAt,
    /// The ban that refuses the request; `None` if none does.
    pub banned: Option<Banned>,
}

/// A ban that refuses a request, without a look at a bucket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Banned {
    /// Index of the charge whose rule has banned the client.
    pub index: usize,
    /// Microseconds that are left of the ban.
    pub left_us: u64,
}

/// Where a decision was made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Source {
    /// The buckets in Redis.
    Redis,
    /// The deny cache, from an earlier answer of Redis.
    Cache,
    /// Buckets in this process: without `[redis]`, or while Redis is unavailable.
    Local,
    /// No store: the file decides, by `on_failure` or by `on_missing = "deny"`.
    Policy,
    /// Tokens that this gateway has borrowed from Redis.
    Lease,
    /// A ban of the client.
    Ban,
}

impl Source {
    /// Number of variants, for arrays with one entry each.
    pub const COUNT: usize = 6;

    /// All sources, in the order of their numbers.
    pub const ALL: [Self; Self::COUNT] =
        [Self::Redis, Self::Cache, Self::Local, Self::Policy, Self::Lease, Self::Ban];
}

impl Limiter {
    /// A limiter without Redis, over buckets in this process.
    pub fn local(memory: Arc<MemoryStore>) -> Self {
        let bans = Arc::new(Bans::new(false));
        Self { memory, shared: None, adjusted: Adjusted::default(), bans }
    }

    /// A limiter over the shared buckets of `nodes`. While one of them is unavailable, it decides
    /// on its buckets in `memory`: it grants the share of one of `instances` gateways, or of as
    /// many as were counted, and adds what it grants to their debts.
    pub fn shared(memory: Arc<MemoryStore>, nodes: Arc<Nodes>, instances: Option<u32>) -> Self {
        let fallback = Fallback::new(Arc::clone(&memory), Arc::clone(nodes.debts()));
        let fallback = Arc::new(fallback);
        let (denied, peek_cache) = (Arc::default(), PeekCache::default());
        let own = Arc::clone(&memory);
        let leases = Arc::new(Leases::default());
        let shared = Shared { memory: own, nodes, denied, fallback, leases, peek_cache, instances };
        let bans = Arc::new(Bans::new(true));
        Self { memory, shared: Some(shared), adjusted: Adjusted::default(), bans }
    }

    /// Decides a request and takes its tokens: from all of its buckets or from none. `rules` are
    /// those of the policy that the charges come from, by index; `now` is in microseconds of the
    /// monotonic clock. Also returns what the request holds: to be dropped when it ends.
    pub async fn take(
        &self,
        charges: Charges,
        rules: &Arc<[StoredRule]>,
        now: u64,
    ) -> (Taken, Holds) {
        if self.bans.are_used()
            && let Some(taken) = self.refusal_by_ban(&charges, rules, now)
        {
            return (taken, Holds::new());
        }
        let Some(shared) = &self.shared else {
            let (answer, holds) = self.memory.hold(&charges, rules, now, Share::WHOLE);
            return (Taken::all(charges, answer, Source::Local), holds);
        };
        if leasing::has_leases(&charges, rules) {
            return Box::pin(shared.take_with_leases(charges, rules, now)).await;
        }
        shared.check(charges, rules, now).await
    }

    /// The refusal of a request, if [`take`](Self::take) would certainly refuse it at `now`
    /// (microseconds) without a call of Redis. Takes no tokens.
    pub fn known_refusal(
        &self,
        charges: &Charges,
        rules: &[StoredRule],
        now: u64,
    ) -> Option<Taken> {
        if self.bans.are_used()
            && let Some(taken) = self.refusal_by_ban(charges, rules, now)
        {
            return Some(taken);
        }
        let (answer, source) = match &self.shared {
            None => (self.memory.peek(charges, now, Share::WHOLE), Source::Local),
            // A lease may have tokens when the bucket has none.
            Some(_) if leasing::has_leases(charges, rules) => return None,
            Some(shared) => (shared.denied.refusal(charges, now)?, Source::Cache),
        };
        (!answer.allowed()).then(|| Taken::all(charges.clone(), answer, source))
    }

    /// The clients that are refused for longer.
    pub fn bans(&self) -> &Arc<Bans> {
        &self.bans
    }

    /// The refusal of a request whose client is banned; `None` if it is not.
    #[cold]
    fn refusal_by_ban(&self, charges: &[Charge], rules: &[StoredRule], now: u64) -> Option<Taken> {
        let (index, left_us) = self.bans.refusal(charges, rules, now)?;
        Some(Taken::banned(charges.to_vec(), Banned { index, left_us }))
    }

    /// Adjusts buckets for an operator, all of them or none: in Redis, or in this process without
    /// Redis. Takes effect at once on this gateway, and within a second on others.
    ///
    /// # Errors
    /// See [`NotAdjusted`].
    pub async fn adjust(
        &self,
        charges: &[Charge],
        rules: &[StoredRule],
        adjustment: Adjustment,
    ) -> Result<(Vec<LevelChange>, Source), NotAdjusted> {
        let buckets = || charges.iter().map(|charge| charge.bucket);
        // Also before: meanwhile, a request may fail that was allowed earlier.
        self.adjusted.note(buckets(), clock::now());
        let adjusted = self.adjust_now(charges, rules, adjustment).await;
        self.adjusted.note(buckets(), clock::now());
        adjusted
    }

    async fn adjust_now(
        &self,
        charges: &[Charge],
        rules: &[StoredRule],
        adjustment: Adjustment,
    ) -> Result<(Vec<LevelChange>, Source), NotAdjusted> {
        let Some(shared) = &self.shared else {
            let moved = self.memory.adjust(charges, adjustment, clock::now());
            return Ok((moved, Source::Local));
        };
        shared.return_leases(charges.iter().map(|charge| charge.bucket)).await;
        let moved = shared.nodes.adjust(charges, rules, adjustment).await?;
        let now = clock::now();
        shared.denied.forget(charges.iter().map(|charge| charge.bucket), now);
        for (charge, (_, after)) in charges.iter().zip(&moved) {
            if self.memory.held().adjust(charge, adjustment).is_none() {
                self.memory.put(charge, *after, now);
            }
        }
        Ok((moved, Source::Redis))
    }

    /// Changes the top-ups of a charge's bucket for an operator, or reads them: in Redis, or in
    /// this process without Redis. Its limit is a fixed window. Takes effect at once on this
    /// gateway, and within a second on others.
    ///
    /// # Errors
    /// Of the call, see [`NotAdjusted`]; of the change, [`TopUpError`].
    pub async fn top_up(
        &self,
        charge: &Charge,
        rules: &[StoredRule],
        wanted: &TopUpChange,
    ) -> Result<Result<ChangedTopUps, TopUpError>, NotAdjusted> {
        let Some(shared) = &self.shared else {
            return Ok(self.memory.top_up(charge, wanted, clock::now()));
        };
        let changed = shared.nodes.top_up(charge, rules, wanted).await?;
        if let (Ok(changed), true) = (&changed, *wanted != TopUpChange::List) {
            let now = clock::now();
            shared.denied.forget(std::iter::once(charge.bucket), now);
            self.memory.put(charge, changed.after, now);
        }
        Ok(changed)
    }

    /// Settles the debts of this process to buckets in Redis, and reads the buckets.
    ///
    /// # Errors
    /// See [`NotAdjusted`].
    pub async fn settle_and_read(
        &self,
        charges: &[Charge],
        rules: &[StoredRule],
    ) -> Result<Vec<Reading>, NotAdjusted> {
        if let Some(nodes) = self.redis() {
            nodes.settle_debts(charges, rules).await?;
        }
        let levels = self.peek_levels(charges, rules).await;
        if levels.source == Source::Redis {
            Ok(levels.readings)
        } else {
            Err(NotAdjusted::Unchanged)
        }
    }

    /// Debts to quotas whose periods have ended at `now` (microseconds) before they were settled.
    /// Each is returned once.
    pub fn take_lapsed(&self, now: u64) -> Vec<LapsedDebt> {
        self.redis().map_or_else(Vec::new, |nodes| nodes.debts().take_lapsed(now))
    }

    /// Whether Redis has to get a debt, the number of units that requests hold, or what is left of
    /// a lease.
    pub fn has_unsettled(&self) -> bool {
        self.shared.as_ref().is_some_and(|Shared { nodes, leases, .. }| {
            nodes.has_debts() || nodes.has_statements() || !leases.is_empty()
        })
    }

    /// Settles all debts in Redis, states what requests hold, and returns leases, within about
    /// `timeout`. No lease begins afterwards. Without Redis there is nothing to settle.
    pub async fn settle(&self, timeout: Duration) -> Settlement {
        match &self.shared {
            Some(shared) => {
                shared.end_leases(timeout).await;
                shared.nodes.settle(timeout).await
            }
            None => Settlement::default(),
        }
    }

    /// Sum of the debts that are not settled.
    pub fn unsettled(&self) -> Sum {
        self.shared.as_ref().map_or_else(Sum::default, |shared| shared.nodes.unsettled())
    }

    /// Whether buckets are in Redis.
    pub fn is_shared(&self) -> bool {
        self.shared.is_some()
    }

    /// The servers of Redis; `None` without `[redis]`.
    pub fn redis(&self) -> Option<&Arc<Nodes>> {
        self.shared.as_ref().map(|shared| &shared.nodes)
    }

    /// The nodes of Redis at this time: none without `[redis]`, the masters of a cluster.
    pub fn nodes(&self) -> Vec<Arc<Node>> {
        self.redis().map_or_else(Vec::new, |nodes| nodes.all())
    }

    /// Number of buckets with a debt.
    pub fn debts(&self) -> usize {
        self.redis().map_or(0, |nodes| nodes.debts().len())
    }

    /// Clears the deny cache, after a reload that may have raised limits.
    pub fn forget_refusals(&self) {
        if let Some(shared) = &self.shared {
            shared.denied.clear(clock::now());
        }
    }

    /// Ends all leases, after a reload that may have changed limits. What is left of them is
    /// returned.
    pub fn return_leases(&self) {
        if let Some(shared) = &self.shared {
            shared.leases.close_all();
        }
    }

    /// Microseconds until all nodes of Redis have been probed again; 0 while all breakers are
    /// closed, and without Redis.
    pub fn retry_after_us(&self) -> u64 {
        self.nodes().iter().map(|node| node.retry_after_us()).max().unwrap_or(0)
    }

    /// Number of live gateways that share Redis, as far as it was counted; 1 without Redis.
    pub fn gateways(&self) -> u32 {
        self.redis().map_or(1, |nodes| nodes.peers().gateways())
    }

    /// Number of live gateways that share Redis and have other limits than this one, as far as it
    /// was counted.
    pub fn gateways_with_other_limits(&self) -> u32 {
        self.redis().map_or(0, |nodes| nodes.peers().others())
    }

    /// Publishes the hash of the limits in force to the gateways that share Redis.
    pub fn publish_limits(&self, limits: LimitsHash) {
        if let Some(nodes) = self.redis() {
            nodes.peers().set_limits(limits);
        }
    }
}

impl Shared {
    /// Decides a request and takes its tokens, none of them from leases.
    async fn check(&self, charges: Charges, rules: &Arc<[StoredRule]>, now: u64) -> (Taken, Holds) {
        if let Some(answer) = self.denied.refusal(&charges, now) {
            return (Taken::all(charges, answer, Source::Cache), Holds::new());
        }
        let reserved = match self.reserve_share(&charges, rules, now) {
            Ok(reserved) => reserved,
            Err(refused) => return (*refused, Holds::new()),
        };
        let Some(node) = self.nodes.one() else {
            return Box::pin(self.take_parts(charges, rules, now, reserved)).await;
        };
        let decided = node.batcher().take(charges.clone(), Arc::clone(rules)).await;
        // Before a local decision, which would count it beside what the request holds then.
        drop(reserved);
        match decided {
            Ok(answered) => {
                self.denied.remember(&charges, &answered.answer, answered.sent_at);
                self.fallback.learn(&charges, &answered.answer, answered.sent_at, clock::now());
                let taken_at = TakenAt::by_redis(&answered);
                let taken = Taken::all(charges, answered.answer, Source::Redis);
                (Taken { taken_at, ..taken }, answered.holds)
            }
            Err(Undecided::Unreadable(buckets)) => {
                let taken = Box::pin(self.take_split(&node, &charges, rules, &buckets, now)).await;
                taken.unwrap_or_else(|| self.take_locally(&charges, rules))
            }
            Err(Undecided::NotTaken | Undecided::Ambiguous) => self.take_locally(&charges, rules),
        }
    }

    /// Share of each bucket that this gateway grants locally.
    fn share(&self) -> Share {
        Share::one_of(self.instances.unwrap_or_else(|| self.nodes.peers().gateways()))
    }

    /// Decides locally and takes the tokens.
    fn take_locally(&self, charges: &[Charge], rules: &[StoredRule]) -> (Taken, Holds) {
        // The clock is read again: the check may have waited for the whole budget.
        let (now, removals) = (clock::now(), self.fallback.removals());
        let take = |local: &[Charge], share| self.fallback.take(local, rules, now, share);
        let (taken, holds) = self.decide_locally(charges, rules, take);
        (taken.locally_at(now, removals), holds)
    }

    /// Reserves what a request would hold within the local share, after an outage of Redis: until
    /// all gateways have stated there what they hold, Redis may allow too much. `None` otherwise.
    ///
    /// # Errors
    /// The refusal, if the request would hold more than the share.
    fn reserve_share(
        &self,
        charges: &[Charge],
        rules: &[StoredRule],
        now: u64,
    ) -> Result<Option<Reservation>, Box<Taken>> {
        let mut held = charge::held(charges).peekable();
        if held.peek().is_none() || !self.nodes.is_settling(charges, rules, now) {
            return Ok(None);
        }
        // Other rules grant nothing locally.
        let is_local = |charge: &&Charge| {
            let rule = rules.get(charge.rule as usize);
            rule.is_some_and(|rule| rule.on_failure == OnFailure::Local)
        };
        let held: Charges = held.filter(is_local).copied().collect();
        let reserved = self.memory.held().reserve(&held, rules, self.share(), now);
        reserved.map(Some).map_err(|answer| Box::new(Taken::all(held, *answer, Source::Local)))
    }

    /// Decides without Redis, by the `on_failure` of each rule. `decide` decides on the charges
    /// whose rules have `on_failure = "local"`.
    fn decide_locally(
        &self,
        charges: &[Charge],
        rules: &[StoredRule],
        decide: impl FnOnce(&[Charge], Share) -> (Answer, Holds),
    ) -> (Taken, Holds) {
        let on_failure = |charge: &Charge| {
            let rule = rules.get(charge.rule as usize);
            rule.map_or(OnFailure::Local, |rule| rule.on_failure)
        };
        let of = |wanted| -> Charges {
            charges.iter().filter(|charge| on_failure(charge) == wanted).copied().collect()
        };
        // A shadow rule denies no request; it counts locally.
        let (denied, shadows): (Charges, Charges) =
            of(OnFailure::Deny).into_iter().partition(|charge| charge.mode == Mode::Enforce);
        if !denied.is_empty() {
            let unknown = |charge: &Charge| Outcome { enough: false, ..Outcome::full(charge) };
            let answer = Answer::of(&denied, denied.iter().map(unknown).collect());
            return (Taken::all(denied, answer, Source::Policy), Holds::new());
        }
        let mut local = of(OnFailure::Local);
        local.extend(shadows);
        let (answer, holds) = decide(&local, self.share());
        let waived = of(OnFailure::Allow);
        (Taken { waived, ..Taken::all(local, answer, Source::Local) }, holds)
    }
}

impl Taken {
    /// A decision of `source` on all charges.
    pub fn all(charges: Charges, answer: Answer, source: Source) -> Self {
        let (waived, local, leased) = (Vec::new(), Vec::new(), Vec::new());
        let (taken_at, banned) = (TakenAt::default(), None);
        Self { charges, answer, source, waived, local, leased, taken_at, banned }
    }

    /// The refusal by a ban. The other rules count as ones that would allow the request.
    fn banned(charges: Charges, banned: Banned) -> Self {
        let outcome = |(index, charge): (usize, &Charge)| Outcome {
            level: if index == banned.index { 0 } else { charge.limit.full() },
            enough: index != banned.index,
            ..Outcome::full(charge)
        };
        let answer = Answer::of(&charges, charges.iter().enumerate().map(outcome).collect());
        Self { banned: Some(banned), ..Self::all(charges, answer, Source::Ban) }
    }

    /// State of the limit of the charge at `index`, after the decision.
    pub fn standing(&self, index: usize) -> Option<Standing> {
        let standing = Standing::of(self.charges.get(index)?, self.answer.outcomes.get(index)?);
        Some(match self.banned.filter(|banned| banned.index == index) {
            Some(Banned { left_us, .. }) => Standing {
                remaining: 0,
                retry_after_us: left_us,
                reset_us: standing.reset_us.max(left_us),
                ..standing
            },
            None => standing,
        })
    }

    /// The same, whose local decisions were made at `reserved` (microseconds) and became debts
    /// after `removals` of debts.
    fn locally_at(mut self, reserved: u64, removals: u64) -> Self {
        (self.taken_at.reserved, self.taken_at.removals) = (reserved, removals);
        self
    }

    /// When the request was decided, in microseconds of the monotonic clock; it was known at
    /// `known_at`. Redis decided before its reply was read, which can take long on a busy machine.
    pub fn decided_at(&self, known_at: u64) -> u64 {
        let is_redis =
            self.source == Source::Redis && self.local.is_empty() && self.leased.is_empty();
        self.taken_at.here.filter(|_| is_redis).map_or(known_at, |here| here.min(known_at))
    }

    /// Store that decided on a charge, by its index.
    pub fn source_of(&self, index: usize) -> Source {
        if self.local.contains(&index) {
            Source::Local
        } else if self.leased.contains(&index) {
            Source::Lease
        } else {
            self.source
        }
    }
}
