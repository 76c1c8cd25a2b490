//! Checks one request against several buckets: it takes tokens from all of them or from none.

use serde::{Deserialize, Serialize};
use smallvec::SmallVec;

use super::Limit;
use super::bucket::Bucket;
use super::cost::Cost;
use super::reading::{Reading, Times};
use super::share::Share;
use crate::base::now::Now;

/// Number of outcomes that an answer stores without an allocation.
const INLINE_OUTCOMES: usize = 6;

/// Charges of one request, one for each rule that applies, in the order of the configuration file.
/// On the heap, because several nested futures hold it and would each reserve space for it.
pub type Charges = Vec<Charge>;

/// Outcomes of the charges of one request, in the same order.
pub type Outcomes = SmallVec<[Outcome; INLINE_OUTCOMES]>;

/// Tokens that one rule takes from one bucket for a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Charge {
    /// The bucket. The charges of a request all have different buckets.
    pub bucket: BucketId,
    /// Index of the rule in the policy's rules.
    pub rule: u32,
    /// Index of the limit in the policy's limits, for stores that keep it with the level.
    pub limit_index: u32,
    /// Limit that the bucket is counted under.
    pub limit: Limit,
    /// [`Parts`](Limit::parts) of a token that the request takes, 1 to the capacity of the limit.
    pub cost: u64,
    /// Whether the rule can deny the request.
    pub mode: Mode,
}

impl Charge {
    /// The tokens that the request takes.
    pub const fn cost_in_tokens(&self) -> Cost {
        Cost::of_parts(self.cost, self.limit.parts())
    }

    /// Whether what the bucket does not hold is taken from it all the same.
    pub fn counts_overage(&self) -> bool {
        self.limit.counts_overage() && self.mode == Mode::Enforce
    }

    /// Whether a bucket at `level` grants `needed` units.
    pub fn is_granted_at(&self, level: i64, needed: i64) -> bool {
        level >= needed || self.counts_overage()
    }

    /// The bucket without the units that it grants.
    pub fn taken_from(&self, bucket: Bucket, units: i64) -> Bucket {
        let after = bucket.less(units);
        // Only with overage can it be so low.
        if after.level < self.limit.lowest() { bucket.less_debt(&self.limit, units) } else { after }
    }

    /// Outcome without a call of the shared store. `level` returns an upper bound of the level, and
    /// its times; `None` if it is not known. The outcome is that of a full bucket where nothing
    /// refuses the request for longer than a moment: of a shadow rule, and of units that are free
    /// as soon as a request ends.
    pub fn outcome_at_most(&self, level: impl FnOnce() -> Option<(i64, Times)>) -> Option<Outcome> {
        if self.mode == Mode::Shadow || self.limit.is_held() {
            return Some(Outcome::full(self));
        }
        let (level, times) = level()?;
        let enough = self.is_granted_at(level, self.limit.units(self.cost));
        Some(Outcome { level, enough, share: Share::WHOLE, times })
    }
}

/// Identifies a bucket: a 128-bit hash of the rule and the client. No text from a client is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct BucketId(pub u128);

/// Whether a rule can deny requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    /// A request without enough tokens is denied.
    #[default]
    Enforce,
    /// A request without enough tokens is counted, and allowed.
    Shadow,
}

impl Mode {
    /// The word of the file.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Enforce => "enforce",
            Self::Shadow => "shadow",
        }
    }
}

/// A store's result for one charge.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// Level of the bucket after the decision, in the limit's units. Below zero while the bucket is
    /// in debt.
    pub level: i64,
    /// Whether the bucket held the cost before the decision.
    pub enough: bool,
    /// The share of the bucket that the deciding store could grant.
    pub share: Share,
    /// Times from the decision on.
    pub times: Times,
}

/// A store's result for one request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// Index of the first enforced charge whose bucket did not hold the cost.
    denied_by: Option<usize>,
    /// Outcomes of the charges, in the same order.
    pub outcomes: Outcomes,
}

impl Outcome {
    /// Outcome of a full bucket, for a shadow charge whose bucket is not known.
    pub fn full(charge: &Charge) -> Self {
        Self { level: charge.limit.full(), enough: true, share: Share::WHOLE, times: Times::NONE }
    }

    /// Units that an allowed request with this outcome has taken from the bucket; 0 if it took
    /// none, or holds them until it ends.
    pub const fn spent(&self, charge: &Charge) -> i64 {
        if self.enough && !charge.limit.is_held() {
            self.share.taken(&charge.limit, charge.cost)
        } else {
            0
        }
    }

    /// Level of the bucket before the decision. `allowed` is the decision on the whole request.
    pub fn level_before(&self, charge: &Charge, allowed: bool) -> i64 {
        let took = allowed && self.enough;
        let units = if took { self.share.taken(&charge.limit, charge.cost) } else { 0 };
        self.level.saturating_add(units)
    }
}

impl Answer {
    /// Derives the decision from the outcomes, one for each charge, in the same order. A request is
    /// denied only if the bucket of an enforced charge did not hold the cost.
    pub fn of(charges: &[Charge], outcomes: Outcomes) -> Self {
        debug_assert_eq!(charges.len(), outcomes.len());
        let denies = |(charge, outcome): (&Charge, &Outcome)| {
            charge.mode == Mode::Enforce && !outcome.enough
        };
        let denied_by = charges.iter().zip(&outcomes).position(denies);
        Self { denied_by, outcomes }
    }

    /// Sets [`Outcome::times`]. `times` returns those of a charge by its index.
    #[must_use]
    pub fn with_times(mut self, times: impl Fn(usize, &Outcome) -> Times) -> Self {
        for (index, outcome) in self.outcomes.iter_mut().enumerate() {
            outcome.times = times(index, outcome);
        }
        self
    }

    /// Sets [`Outcome::times`] of a decision at `now`. Not of sliding
    /// windows, whose times follow from their logs.
    #[must_use]
    pub fn decided_at(self, charges: &[Charge], now: Now) -> Self {
        self.with_times(|index, outcome| match charges.get(index) {
            Some(charge) if charge.limit.log().is_none() => {
                Times::period(charge.limit.left_us_at(now))
            }
            _ => outcome.times,
        })
    }

    /// Sets [`Outcome::times`] to those of the buckets before the decision.
    #[must_use]
    pub fn read_as(self, readings: &[Reading]) -> Self {
        self.with_times(|index, _| readings.get(index).map_or(Times::NONE, |one| one.times))
    }

    /// Sets [`Outcome::times`] of a decision without effect on buckets with these readings.
    #[must_use]
    pub fn of_readings(self, charges: &[Charge], readings: &[Reading]) -> Self {
        let allowed = self.allowed();
        self.with_times(|index, outcome| {
            let read = readings.get(index).map_or(Times::NONE, |reading| reading.times);
            match charges.get(index).and_then(|charge| charge.limit.log()) {
                Some(window) if allowed && outcome.enough => Times::period(window.window_us()),
                _ => read,
            }
        })
    }

    /// Whether the bucket of every enforced charge held the cost. Tokens are taken only if so.
    pub const fn allowed(&self) -> bool {
        self.denied_by.is_none()
    }

    /// Index of the first charge that denied the request; `None` if it is allowed.
    pub const fn denied_by(&self) -> Option<usize> {
        self.denied_by
    }
}

/// The charges whose units a request holds until it ends.
pub fn held(charges: &[Charge]) -> impl Iterator<Item = &Charge> {
    charges.iter().filter(|charge| charge.limit.is_held())
}

/// The other charges, and their outcomes. Their levels follow from what is charged and from the
/// time that passes, so that a level says something about later ones.
pub fn not_held<'a>(
    charges: &'a [Charge],
    answer: &'a Answer,
) -> impl Iterator<Item = (&'a Charge, &'a Outcome)> {
    charges.iter().zip(&answer.outcomes).filter(|(charge, _)| !charge.limit.is_held())
}

/// The charges whose units a request with this answer holds until it ends, and the units.
pub fn held_units<'a>(
    charges: &'a [Charge],
    answer: &'a Answer,
) -> impl Iterator<Item = (&'a Charge, i64)> {
    let each = charges.iter().zip(&answer.outcomes);
    let held = each
        .filter(|(charge, outcome)| answer.allowed() && outcome.enough && charge.limit.is_held());
    held.map(|(charge, _)| (charge, charge.limit.units(charge.cost)))
}

/// Decides one request and takes its tokens. `buckets[i]` is the bucket of `charges[i]`, already
/// refilled to the time of the decision.
///
/// - Enforced charges are all or nothing: if any bucket is short, no tokens are taken.
/// - A shadow charge takes from its own bucket if that holds the cost and the request is allowed.
///   It never affects the decision or another bucket.
/// - A gateway that decides locally takes a multiple of the cost: see [`Share`].
pub fn take(charges: &[Charge], buckets: &mut [Bucket], share: Share) -> Answer {
    debug_assert_eq!(charges.len(), buckets.len());
    let mut answer = Answer::of(charges, outcomes(charges, buckets, share));
    if answer.allowed() {
        for ((charge, bucket), outcome) in charges.iter().zip(buckets).zip(&mut answer.outcomes) {
            if outcome.enough {
                *bucket = charge.taken_from(*bucket, share.taken(&charge.limit, charge.cost));
                outcome.level = bucket.level;
            }
        }
    }
    answer
}

/// Returns the outcome of each charge before any tokens are taken.
pub fn outcomes(charges: &[Charge], buckets: &[Bucket], share: Share) -> Outcomes {
    let mut outcomes = Outcomes::new();
    for (charge, bucket) in charges.iter().zip(buckets) {
        let needed = share.needed(&charge.limit, charge.cost);
        let enough = charge.is_granted_at(bucket.level, needed);
        outcomes.push(Outcome { level: bucket.level, enough, share, times: Times::NONE });
    }
    outcomes
}

#[cfg(test)]
mod tests {
    use super::*;

    fn charge(bucket: u128, burst: u64, cost: u64, mode: Mode) -> Charge {
        let limit = Limit::token_bucket(1, 1, burst).unwrap();
        Charge { bucket: BucketId(bucket), rule: 0, limit_index: 0, limit, cost, mode }
    }

    fn levels(buckets: &[Bucket]) -> Vec<i64> {
        buckets.iter().map(|bucket| bucket.level).collect()
    }

    fn at_zero<const N: usize>(levels: [i64; N]) -> [Bucket; N] {
        levels.map(|level| Bucket { level, at: 0 })
    }

    #[test]
    fn denied_request_takes_no_tokens() {
        let charges = [charge(1, 9, 1, Mode::Enforce), charge(2, 9, 3, Mode::Enforce)];
        let mut buckets = at_zero([5, 2]);
        let answer = take(&charges, &mut buckets, Share::WHOLE);
        assert!(!answer.allowed());
        assert_eq!(levels(&buckets), [5, 2]);
        assert_eq!(
            answer.outcomes[0],
            Outcome { level: 5, enough: true, share: Share::WHOLE, times: Times::NONE }
        );
        assert_eq!(
            answer.outcomes[1],
            Outcome { level: 2, enough: false, share: Share::WHOLE, times: Times::NONE }
        );
    }

    #[test]
    fn allowed_request_takes_each_cost_from_its_bucket() {
        let charges = [charge(1, 9, 1, Mode::Enforce), charge(2, 9, 3, Mode::Enforce)];
        let mut buckets = at_zero([1, 9]);
        assert!(take(&charges, &mut buckets, Share::WHOLE).allowed());
        assert_eq!(levels(&buckets), [0, 6]);
    }

    #[test]
    fn shadow_charge_without_tokens_neither_denies_nor_takes() {
        let charges = [charge(1, 9, 1, Mode::Enforce), charge(2, 9, 1, Mode::Shadow)];
        let mut buckets = at_zero([5, 0]);
        let answer = take(&charges, &mut buckets, Share::WHOLE);
        assert!(answer.allowed());
        assert!(!answer.outcomes[1].enough);
        assert_eq!(levels(&buckets), [4, 0]);
    }

    #[test]
    fn denied_request_takes_nothing_from_shadow_buckets() {
        let charges = [charge(1, 9, 1, Mode::Enforce), charge(2, 9, 1, Mode::Shadow)];
        let mut buckets = at_zero([0, 5]);
        assert!(!take(&charges, &mut buckets, Share::WHOLE).allowed());
        assert_eq!(levels(&buckets), [0, 5]);
    }

    #[test]
    fn request_without_charges_is_allowed() {
        assert!(take(&[], &mut [], Share::WHOLE).allowed());
    }
}
