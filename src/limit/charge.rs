//! Several buckets at once: a request takes from all of them or from none.

use smallvec::SmallVec;

use super::bucket::Bucket;
use super::quota::Quota;
use super::share::Share;

/// How many outcomes an answer carries without an allocation. More are possible.
const INLINE_OUTCOMES: usize = 6;

/// What one request owes, rule by rule, in the order of the file. On the heap: it is handed through
/// half a dozen futures, each of which would have room for it otherwise.
pub type Charges = Vec<Charge>;

/// What became of each charge: the same order, the same length.
pub type Outcomes = SmallVec<[Outcome; INLINE_OUTCOMES]>;

/// One rule's share of a request: so many tokens from that bucket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Charge {
    /// Which bucket. No two charges of a request name the same one.
    pub bucket: BucketId,
    /// The rule, as an index into the policy's rules.
    pub rule: u32,
    /// The quota, as an index into the policy's quotas, for stores that keep it beside the level.
    pub quota_index: u32,
    /// The quota itself.
    pub quota: Quota,
    /// Tokens that the request takes, at least 1 and at most the quota's burst.
    pub cost: u64,
    /// Whether the rule may refuse.
    pub mode: Mode,
}

/// A bucket's name: 128 bits of a hash over the rule and the client, so that no text from a
/// client is ever stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct BucketId(pub u128);

/// What a rule may do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Mode {
    /// A request without the tokens is refused.
    #[default]
    Enforce,
    /// A request without the tokens is counted, and passes.
    Shadow,
}

/// What a store says of one charge.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// The bucket's level after the decision, at its instant, in the quota's units. Below zero
    /// where a debt is still to be paid off.
    pub level: i64,
    /// Whether the bucket held the cost before the decision.
    pub enough: bool,
    /// What part of the bucket could be granted by what decided.
    pub share: Share,
}

/// What a store says of one request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// The first enforced charge whose bucket did not hold the cost.
    denied_by: Option<usize>,
    /// One for each charge, in the same order.
    pub outcomes: Outcomes,
}

impl Outcome {
    /// That of a shadow charge whose bucket is not known.
    pub fn full(charge: &Charge) -> Self {
        Self { level: charge.quota.full(), enough: true, share: Share::WHOLE }
    }

    /// The bucket's level before the decision, on a request that was allowed or not.
    pub fn level_before(&self, charge: &Charge, allowed: bool) -> i64 {
        let took = allowed && self.enough;
        let units = if took { self.share.taken(&charge.quota, charge.cost) } else { 0 };
        self.level.saturating_add(units)
    }
}

impl Answer {
    /// The answer that follows from the outcomes, one for each charge, in the same order: a request
    /// is denied by an enforced rule whose bucket did not hold the cost, and by nothing else.
    pub fn of(charges: &[Charge], outcomes: Outcomes) -> Self {
        debug_assert_eq!(charges.len(), outcomes.len());
        let denies = |(charge, outcome): (&Charge, &Outcome)| {
            charge.mode == Mode::Enforce && !outcome.enough
        };
        let denied_by = charges.iter().zip(&outcomes).position(denies);
        Self { denied_by, outcomes }
    }

    /// Whether every enforced bucket held the cost; then, and only then, tokens were taken.
    pub const fn allowed(&self) -> bool {
        self.denied_by.is_none()
    }

    /// The first of the charges that denied the request, by its index; none where it is allowed.
    pub const fn denied_by(&self) -> Option<usize> {
        self.denied_by
    }
}

/// Decides one request over its buckets, which are already refilled to the instant of the
/// decision, and takes the tokens. `buckets[i]` belongs to `charges[i]`.
///
/// - Enforced charges are all or nothing: where one bucket lacks the tokens, no bucket changes.
/// - A shadow charge takes from its own bucket only, only where the tokens are there, and only
///   when the request passes: it stands for what would be left had the rule been enforced alone.
/// - A gateway that decides alone takes for all who may do the same: see [`Share`].
pub fn take(charges: &[Charge], buckets: &mut [Bucket], share: Share) -> Answer {
    debug_assert_eq!(charges.len(), buckets.len());
    let mut answer = Answer::of(charges, outcomes(charges, buckets, share));
    if answer.allowed() {
        for ((charge, bucket), outcome) in charges.iter().zip(buckets).zip(&mut answer.outcomes) {
            if outcome.enough {
                *bucket = bucket.less(share.taken(&charge.quota, charge.cost));
                outcome.level = bucket.level;
            }
        }
    }
    answer
}

/// What there is of each charge's bucket, before anything is taken.
pub fn outcomes(charges: &[Charge], buckets: &[Bucket], share: Share) -> Outcomes {
    let mut outcomes = Outcomes::new();
    for (charge, bucket) in charges.iter().zip(buckets) {
        let enough = bucket.level >= share.needed(&charge.quota, charge.cost);
        outcomes.push(Outcome { level: bucket.level, enough, share });
    }
    outcomes
}

#[cfg(test)]
mod tests {
    use super::*;

    fn charge(bucket: u128, burst: u64, cost: u64, mode: Mode) -> Charge {
        let quota = Quota::new(1, 1, burst).unwrap();
        Charge { bucket: BucketId(bucket), rule: 0, quota_index: 0, quota, cost, mode }
    }

    fn levels(buckets: &[Bucket]) -> Vec<i64> {
        buckets.iter().map(|bucket| bucket.level).collect()
    }

    fn at_zero<const N: usize>(levels: [i64; N]) -> [Bucket; N] {
        levels.map(|level| Bucket { level, at: 0 })
    }

    #[test]
    fn a_refusal_takes_from_nobody() {
        let charges = [charge(1, 9, 1, Mode::Enforce), charge(2, 9, 3, Mode::Enforce)];
        let mut buckets = at_zero([5, 2]);
        let answer = take(&charges, &mut buckets, Share::WHOLE);
        assert!(!answer.allowed());
        assert_eq!(levels(&buckets), [5, 2]);
        assert_eq!(answer.outcomes[0], Outcome { level: 5, enough: true, share: Share::WHOLE });
        assert_eq!(answer.outcomes[1], Outcome { level: 2, enough: false, share: Share::WHOLE });
    }

    #[test]
    fn every_bucket_pays_its_own_cost() {
        let charges = [charge(1, 9, 1, Mode::Enforce), charge(2, 9, 3, Mode::Enforce)];
        let mut buckets = at_zero([1, 9]);
        assert!(take(&charges, &mut buckets, Share::WHOLE).allowed());
        assert_eq!(levels(&buckets), [0, 6]);
    }

    #[test]
    fn a_shadow_rule_neither_refuses_nor_takes_from_an_enforced_one() {
        let charges = [charge(1, 9, 1, Mode::Enforce), charge(2, 9, 1, Mode::Shadow)];
        let mut buckets = at_zero([5, 0]);
        let answer = take(&charges, &mut buckets, Share::WHOLE);
        assert!(answer.allowed());
        assert!(!answer.outcomes[1].enough);
        assert_eq!(levels(&buckets), [4, 0]);
    }

    #[test]
    fn a_refused_request_leaves_shadow_buckets_alone() {
        let charges = [charge(1, 9, 1, Mode::Enforce), charge(2, 9, 1, Mode::Shadow)];
        let mut buckets = at_zero([0, 5]);
        assert!(!take(&charges, &mut buckets, Share::WHOLE).allowed());
        assert_eq!(levels(&buckets), [0, 5]);
    }

    #[test]
    fn a_request_without_charges_passes() {
        assert!(take(&[], &mut [], Share::WHOLE).allowed());
    }
}
