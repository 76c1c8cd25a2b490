//! [`TopUps`]: what an operator has added to a fixed window beyond its limit, each until a time,
//! whatever periods end before.
//!
//! A request takes tokens of the period first, then those of the top-up that expires first. The
//! bucket has one level for all of them: what is left of the period, and of the top-ups. From the
//! level alone follows what is left of each, as long as it is known how many units each had when
//! the period began: what the level lacks was taken from the period and from the first top-ups. So
//! nothing but the end of a period and an expiry changes the list, and units that a request gives
//! back are those that were taken last.
//!
//! `lua/take.lua` has the same arithmetic, for buckets in Redis.

use super::MAX_UNITS;
use super::reading::LeftOfTopUps;

/// Maximum number of top-ups of one bucket, with those that are used up or have expired in the
/// current period.
pub const MAX_TOP_UPS: usize = 16;

/// Units beyond the limit, until a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TopUp {
    /// Number that no other top-up of the bucket has.
    pub id: u64,
    /// Units that were left when the period began, or that were added in it.
    pub units: i64,
    /// Unix time in microseconds from which on it cannot be used.
    pub expires_us: u64,
}

/// The top-ups of a bucket, in the order in which they are used.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TopUps(Vec<TopUp>);

/// A change of the top-ups of a bucket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TopUpChange {
    /// None: they are read.
    List,
    /// One is added, unless one with its id was added before. The text is kept with it until it
    /// expires, whatever is left of it.
    Add(TopUp, String),
    /// What is left of the one with this id is taken away.
    Revoke(u64),
}

/// Why top-ups were not changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TopUpError {
    /// See [`MAX_TOP_UPS`].
    #[error("the client has {MAX_TOP_UPS} top-ups under this rule in the current period")]
    TooMany,
    /// With it, the level could exceed what can be counted exactly.
    #[error("the limit and the top-ups together are too large to be counted exactly")]
    TooLarge,
    /// Too many in the memory of this process.
    #[error("too many top-ups, also used up and revoked ones that have not expired")]
    NoRoom,
    /// There is none with this id of which something is left.
    #[error("the client has no such top-up")]
    Unknown,
}

/// A top-up that can be used, and what is left of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeftTopUp {
    /// See [`TopUp::id`].
    pub id: u64,
    /// Units.
    pub left: i64,
    /// Unix time in microseconds.
    pub expires_us: u64,
    /// The text that was given with it.
    pub text: String,
}

/// The top-ups of a bucket after a change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChangedTopUps {
    /// Level of the bucket before, in units.
    pub before: i64,
    /// Level of the bucket afterwards.
    pub after: i64,
    /// Those that can be used.
    pub all: Vec<LeftTopUp>,
    /// None was added, since one with this id was added before: its text.
    pub repeated: Option<String>,
}

impl TopUps {
    /// Those that [`all`](Self::all) has returned earlier; `None` if it can have returned no such
    /// list.
    pub fn restored(all: Vec<TopUp>) -> Option<Self> {
        let is_valid = |one: &TopUp| (1..=MAX_UNITS).contains(&one.units);
        (all.len() <= MAX_TOP_UPS && all.iter().all(is_valid)).then_some(Self(all))
    }

    /// Whether there are none.
    pub const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// All of them.
    pub fn all(&self) -> &[TopUp] {
        &self.0
    }

    /// Units that all had when the period began: how far above the limit the level can be.
    pub fn sum(&self) -> i64 {
        self.0.iter().map(|one| one.units).sum()
    }

    /// Each of them, and what is left of it in a bucket at `level`.
    pub fn left(&self, level: i64) -> impl Iterator<Item = (TopUp, i64)> {
        let mut later = self.sum();
        self.0.iter().map(move |one| {
            later -= one.units;
            (*one, level.saturating_sub(later).clamp(0, one.units))
        })
    }

    /// Units that are left of all in a bucket at `level`.
    pub fn left_of_all(&self, level: i64) -> i64 {
        self.left(level).map(|(_, left)| left).sum()
    }

    /// What is left at `unix_us` (Unix time) of those that can be used in a bucket at `level`.
    pub fn left_of_usable(&self, level: i64, unix_us: u64) -> LeftOfTopUps {
        let mut found = LeftOfTopUps::default();
        for (one, left) in self.left(level) {
            if one.expires_us > unix_us && left > 0 {
                if found.units == 0 {
                    found.expires_us = one.expires_us;
                }
                found.units += left;
            }
        }
        found
    }

    /// Takes away what has expired at `unix_us` (Unix time) of a bucket at `level`. Returns its
    /// level then. What was used stays, until the period ends: a request may give it back.
    pub fn expire(&mut self, level: i64, unix_us: u64) -> i64 {
        let mut now_at = level;
        let left: Vec<(TopUp, i64)> = self.left(level).collect();
        self.0 = left
            .into_iter()
            .map(|(one, left)| {
                let lost = if one.expires_us <= unix_us { left } else { 0 };
                now_at -= lost;
                TopUp { units: one.units - lost, ..one }
            })
            .filter(|one| one.units > 0)
            .collect();
        now_at
    }

    /// Forgets what was used of those that have expired at `unix_us` (Unix time), of which nothing
    /// is left.
    pub fn forget_expired(&mut self, unix_us: u64) {
        self.0.retain(|one| one.expires_us > unix_us);
    }

    /// Begins a period after one that has ended at `level`. Returns the units that the new one has
    /// beyond the limit.
    pub fn renew(&mut self, level: i64) -> i64 {
        let left = self.left(level).map(|(one, left)| TopUp { units: left, ..one });
        self.0 = left.filter(|one| one.units > 0).collect();
        self.sum()
    }

    /// Adds one to a bucket at `level` whose limit has `full` units. Returns its level then.
    ///
    /// # Errors
    /// There are too many, or too many units.
    pub fn add(&mut self, level: i64, top_up: TopUp, full: i64) -> Result<i64, TopUpError> {
        if self.0.len() >= MAX_TOP_UPS {
            return Err(TopUpError::TooMany);
        }
        let most = full.max(level - self.sum()) + self.sum();
        if top_up.units > MAX_UNITS - most {
            return Err(TopUpError::TooLarge);
        }
        let place = self.0.iter().take_while(|one| one.expires_us <= top_up.expires_us).count();
        self.0.insert(place, top_up);
        Ok(level + top_up.units)
    }

    /// Takes away what is left of one in a bucket at `level`. Returns its level then.
    ///
    /// # Errors
    /// There is none with this id, or nothing is left of it.
    pub fn revoke(&mut self, level: i64, id: u64, unix_us: u64) -> Result<i64, TopUpError> {
        let found = self.left(level).position(|(one, left)| one.id == id && left > 0);
        let one = found.and_then(|place| self.0.get_mut(place)).ok_or(TopUpError::Unknown)?;
        one.expires_us = one.expires_us.min(unix_us);
        Ok(self.expire(level, unix_us))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const FULL: i64 = 100;

    fn top_up(id: u64, units: i64, expires_us: u64) -> TopUp {
        TopUp { id, units, expires_us }
    }

    fn lefts(top_ups: &TopUps, level: i64) -> Vec<i64> {
        top_ups.left(level).map(|(_, left)| left).collect()
    }

    #[test]
    fn period_is_used_first_then_the_top_up_that_expires_first() {
        let mut top_ups = TopUps::default();
        let level = top_ups.add(FULL, top_up(1, 30, 900), FULL).unwrap();
        let level = top_ups.add(level, top_up(2, 20, 500), FULL).unwrap();
        assert_eq!(level, 150);
        // (level, what is left of the one that expires at 500, and at 900)
        for (level, left) in
            [(150, [20, 30]), (50, [20, 30]), (49, [19, 30]), (7, [0, 7]), (-3, [0, 0])]
        {
            assert_eq!(lefts(&top_ups, level), left, "{level}");
        }
    }

    #[test]
    fn top_up_survives_the_end_of_a_period_and_ends_with_its_expiry() {
        let mut top_ups = TopUps::default();
        top_ups.add(0, top_up(1, 30, 900), FULL).unwrap();
        assert_eq!(top_ups.renew(25), 25);
        assert_eq!(top_ups.renew(FULL + 25), 25);
        assert_eq!(top_ups.expire(FULL + 20, 899), FULL + 20);
        assert_eq!(top_ups.expire(10, 900), 0);
        // 15 were used in this period: what is given back of them has expired.
        assert_eq!(top_ups.sum(), 15);
        assert_eq!(top_ups.expire(1, 901), 0);
        assert_eq!((top_ups.renew(0), top_ups.is_empty()), (0, true));
    }

    #[test]
    fn revoked_top_up_leaves_the_others_as_they_are() {
        let mut top_ups = TopUps::default();
        let level = top_ups.add(0, top_up(1, 40, 500), FULL).unwrap();
        let level = top_ups.add(level, top_up(2, 30, 900), FULL).unwrap();
        assert_eq!(top_ups.revoke(level - 10, 3, 7), Err(TopUpError::Unknown));
        assert_eq!(top_ups.revoke(level - 10, 2, 7), Ok(30));
        assert_eq!(lefts(&top_ups, 30), [30]);
        assert_eq!(top_ups.revoke(30, 2, 7), Err(TopUpError::Unknown));
    }

    #[test]
    fn number_and_size_of_top_ups_are_bounded() {
        let mut top_ups = TopUps::default();
        let too_large = top_up(1, MAX_UNITS - FULL + 1, 9);
        assert_eq!(top_ups.add(0, too_large, FULL), Err(TopUpError::TooLarge));
        for id in 0..MAX_TOP_UPS as u64 {
            top_ups.add(0, top_up(id, 1, 9), FULL).unwrap();
        }
        assert_eq!(top_ups.add(0, top_up(99, 1, 9), FULL), Err(TopUpError::TooMany));
    }

    /// What each request has taken is kept apart: the period, then each top-up by its expiry.
    #[derive(Debug, Clone)]
    struct Reference {
        period: i64,
        top_ups: Vec<TopUp>,
    }

    impl Reference {
        fn level(&self) -> i64 {
            self.period + self.top_ups.iter().map(|one| one.units).sum::<i64>()
        }

        fn take(&mut self, units: i64) -> bool {
            if units > self.level() {
                return false;
            }
            let mut left = units;
            for part in std::iter::once(&mut self.period)
                .chain(self.top_ups.iter_mut().map(|one| &mut one.units))
            {
                let taken = left.min(*part);
                *part -= taken;
                left -= taken;
            }
            true
        }
    }

    #[derive(Debug, Clone)]
    enum Step {
        Take(i64),
        Add(i64, u64),
        Later(u64),
        EndPeriod,
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            6 => (1..40_i64).prop_map(Step::Take),
            1 => (1..60_i64, 1..400_u64).prop_map(|(units, until)| Step::Add(units, until)),
            2 => (1..60_u64).prop_map(Step::Later),
            1 => Just(Step::EndPeriod),
        ]
    }

    proptest! {
        #![proptest_config(crate::base::cases::with_cases(256))]

        /// One level for all takes the same requests as a balance for each top-up, if each is added
        /// before those that expire later.
        #[test]
        fn one_level_equals_a_balance_for_each(steps in prop::collection::vec(step(), 1..80)) {
            let (mut now, mut last, mut id) = (0, 0, 0);
            let (mut level, mut top_ups) = (FULL, TopUps::default());
            let mut reference = Reference { period: FULL, top_ups: Vec::new() };
            for step in steps {
                match step {
                    Step::Take(units) => {
                        let is_taken = units <= level;
                        level -= if is_taken { units } else { 0 };
                        prop_assert_eq!(reference.take(units), is_taken);
                    }
                    Step::Add(units, until) => {
                        // In the order of their expiry, so that the reference needs no rule for
                        // what was used before.
                        (last, id) = (last.max(now) + until, id + 1);
                        let top_up = top_up(id, units, last);
                        if let Ok(raised) = top_ups.add(level, top_up, FULL) {
                            level = raised;
                            reference.top_ups.push(top_up);
                        }
                    }
                    Step::Later(us) => now += us,
                    Step::EndPeriod => {
                        level = FULL + top_ups.renew(level);
                        reference.period = FULL;
                    }
                }
                level = top_ups.expire(level, now);
                reference.top_ups.retain(|one| one.expires_us > now);
                prop_assert_eq!(level, reference.level());
                let left = top_ups.left_of_all(level);
                prop_assert_eq!(left, reference.level() - reference.period);
            }
        }
    }
}
