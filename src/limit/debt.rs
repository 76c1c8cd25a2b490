//! What a gateway granted alone and still has to take from the bucket that all share.
//!
//! The shared bucket fills on while nobody can ask it. Until it is full, all that was granted alone
//! is owed. From then on it fills no more, while a bucket that had been asked would have: so from
//! then on the debt shrinks by this gateway's part of the rate. When that is, a gateway alone cannot
//! know: others may have drained the bucket. It waits for as long as an empty one takes.

use super::quota::Quota;
use super::share::Share;

/// Units owed to a bucket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Debt {
    units: i64,
    /// The tick at which that was owed.
    at: u64,
    /// The tick from which the shared bucket is full if nobody takes from it.
    full_at: u64,
    share: Share,
    quota: Quota,
}

impl Debt {
    /// No debt yet, to a bucket of `quota` that this gateway cannot ask from `now` on.
    pub const fn none(quota: Quota, share: Share, now: u64) -> Self {
        let full_at = now.saturating_add(quota.time_to_fill_us());
        Self { units: 0, at: now, full_at, share, quota }
    }

    /// The quota that its units are of.
    pub const fn quota(&self) -> Quota {
        self.quota
    }

    /// Units owed at `now`.
    pub fn left(&self, now: u64) -> i64 {
        let since = self.at.max(self.full_at);
        let filled = self.quota.units_in(now.saturating_sub(since));
        (self.units - filled / i64::from(self.share.gateways())).max(0)
    }

    /// The same debt with so many units more.
    #[must_use]
    pub fn more(self, units: i64, now: u64) -> Self {
        let at = now.max(self.at);
        Self { units: self.left(at).saturating_add(units), at, ..self }
    }

    /// The same debt with another one to the same bucket, whose rule may have changed in between.
    #[must_use]
    pub fn joined(self, other: &Self, now: u64) -> Self {
        self.more(other.left_under(&self.quota, now), now)
    }

    /// Units owed at `now` to a bucket of another quota, in proportion, where the rule has changed.
    #[allow(
        clippy::cast_precision_loss,
        clippy::cast_possible_truncation,
        reason = "units are at most some full buckets, which doubles hold"
    )]
    pub fn left_under(&self, quota: &Quota, now: u64) -> i64 {
        if self.quota == *quota {
            return self.left(now);
        }
        let fraction = self.left(now) as f64 / self.quota.full() as f64;
        (fraction * quota.full() as f64).ceil() as i64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A tick adds a unit; a token is worth 100 units; 10 tokens deep.
    fn quota() -> Quota {
        Quota::new(1, 100, 10).unwrap()
    }

    #[test]
    fn a_debt_shrinks_only_while_the_shared_bucket_is_full() {
        let debt = Debt::none(quota(), Share::one_of(2), 0).more(500, 100);
        // (now, left)
        let table = [(100, 500), (1_000, 500), (1_002, 499), (2_000, 0), (9_000, 0)];
        for (now, left) in table {
            assert_eq!(debt.left(now), left, "at {now}");
        }
        assert_eq!(debt.more(500, 1_500).left(1_500), 750);
        assert_eq!(debt.more(500, 50).left(100), 1_000, "a clock that goes back");
    }

    #[test]
    fn debts_under_two_rules_are_joined_under_one() {
        let debt = Debt::none(quota(), Share::WHOLE, 0).more(500, 0);
        let coarse = Quota::new(1, 1_000_000, 10).unwrap();
        let joined = Debt::none(coarse, Share::WHOLE, 0).more(1_000_000, 0).joined(&debt, 0);
        assert_eq!(joined.left_under(&coarse, 0), 6_000_000, "one token and five");
        assert_eq!(joined.left_under(&quota(), 0), 600);
    }

    #[test]
    fn a_debt_follows_the_rule() {
        let debt = Debt::none(quota(), Share::WHOLE, 0).more(500, 0);
        assert_eq!(debt.left_under(&Quota::new(1, 200, 5).unwrap(), 0), 500, "as full");
        assert_eq!(debt.left_under(&Quota::new(1, 100, 20).unwrap(), 0), 1_000, "twice as deep");
    }
}
