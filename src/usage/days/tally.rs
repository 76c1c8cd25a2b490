//! [`Tallies`]: what the requests of one thread used, until it is written.

use std::collections::HashMap;
use std::sync::Arc;

use foldhash::fast::RandomState;

use super::row::{Counts, Day, Row, Rows, add_all};
use crate::base::duration::MICROS_PER_SECOND;
use crate::client::Client;
use crate::limit::calendar::Calendar;
use crate::limit::charge::{Charge, Outcome};
use crate::policy::Policy;
use crate::policy::settings::Detail;
use crate::usage::record::Owner;

/// Requests of a quarter of an hour are counted together: in every time zone, a day begins at the
/// start of one. So no request needs a date.
const QUARTER_US: u64 = 900 * MICROS_PER_SECOND;

/// Counts by what requests of one client have in common.
#[derive(Debug, Default)]
pub struct Tallies(HashMap<Key, Tally, RandomState>);

/// A request that quotas count.
#[derive(Clone, Copy)]
pub struct Counted<'a> {
    /// The configuration that it was decided by.
    pub policy: &'a Policy,
    /// Number of the configuration, which gives indexes their meaning.
    pub generation: u64,
    /// Whose request it is.
    pub client: &'a Client,
    /// Index of its route; `None` if no route matched.
    pub route: Option<u32>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Key {
    bucket: u128,
    generation: u64,
    plan: u32,
    route: Option<u32>,
    quarter: u64,
}

#[derive(Debug)]
struct Tally {
    /// Of the first day of this calendar.
    row: RowWithoutDay,
    calendar: Calendar,
    counts: Counts,
}

#[derive(Debug)]
struct RowWithoutDay {
    rule: Arc<str>,
    owner: Owner,
    plan: Arc<str>,
    route: Arc<str>,
}

impl Counts {
    /// Those of an allowed request, which has taken the cost of `charge`.
    pub fn of_request(charge: &Charge, outcome: &Outcome) -> Self {
        let units = charge.limit.units(charge.cost);
        Self { requests: 1, units, overage: overage(units, outcome.level) }
    }

    /// What is taken back of [`of_request`](Self::of_request) if the request gets `parts` of a
    /// token back; all of them if it is not counted.
    pub fn of_refund(charge: &Charge, outcome: &Outcome, parts: Option<u64>) -> Self {
        let units = charge.limit.units(parts.unwrap_or(charge.cost).min(charge.cost));
        // The units that the quota did not hold are given back first.
        let overage = overage(charge.limit.units(charge.cost), outcome.level).min(units);
        let requests = if parts.is_none() { -1 } else { 0 };
        Self { requests, units: -units, overage: -overage }
    }

    /// What is added if a request has cost this many units more, after which the bucket had
    /// `level`, as far as its check said.
    pub fn of_debit(units: i64, level: i64) -> Self {
        Self { requests: 0, units, overage: overage(units, level) }
    }
}

/// Those of the units taken from a bucket, which has `level` afterwards, that it did not hold.
fn overage(units: i64, level: i64) -> i64 {
    level.saturating_neg().clamp(0, units.max(0))
}

impl Tallies {
    /// Adds to what a request used of the bucket of a charge at `unix_us` (Unix time). Returns
    /// whether there was room: at most `max` tallies.
    pub fn note(
        &mut self,
        counted: Counted<'_>,
        charge: &Charge,
        counts: Counts,
        unix_us: u64,
        max: usize,
    ) -> bool {
        let Counted { policy, generation, client, route } = counted;
        let route = route.filter(|_| policy.usage.detail == Detail::Route);
        let key = Key {
            bucket: charge.bucket.0,
            generation,
            plan: client.plan,
            route,
            quarter: unix_us / QUARTER_US,
        };
        if let Some(tally) = self.0.get_mut(&key) {
            tally.counts.add(counts);
            return true;
        }
        let rule = policy.rules.get(charge.rule as usize);
        let has_room = self.0.len() < max;
        if has_room && let Some((rule, calendar)) = rule.zip(charge.limit.quota_calendar()) {
            let route = route.and_then(|route| policy.routes.get(route as usize));
            let row = RowWithoutDay {
                rule: Arc::clone(&rule.name),
                owner: Owner::of(policy, rule, client),
                plan: policy.plan_name(client.plan).into(),
                route: route.map_or_else(|| "".into(), |route| Arc::clone(&route.name)),
            };
            self.0.insert(key, Tally { row, calendar, counts });
        }
        has_room
    }

    /// Adds all counts to `rows`.
    pub fn add_to(self, rows: &mut Rows) {
        let each = self.0.into_iter().filter(|(_, tally)| !tally.counts.is_zero());
        add_all(
            rows,
            each.map(|(key, Tally { row, calendar, counts })| {
                let RowWithoutDay { rule, owner, plan, route } = row;
                let day = Day::of(calendar.day(key.quarter.saturating_mul(QUARTER_US)));
                let zone = calendar.zone().into();
                (Row { day, rule, zone, owner, plan, route }, counts)
            }),
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limit::Limit;
    use crate::limit::calendar::Period;
    use crate::limit::charge::{BucketId, Mode};
    use crate::limit::fixed_window::FixedWindow;
    use crate::limit::reading::Times;
    use crate::limit::share::Share;

    fn charge(tokens: u64) -> (Charge, Limit) {
        let calendar = Calendar::new(Period::Month, "UTC", 1).unwrap();
        let limit = Limit::FixedWindow(FixedWindow::new(100, calendar).unwrap());
        let bucket = BucketId(1);
        let cost = tokens * limit.parts();
        let charge = Charge { bucket, rule: 0, limit_index: 0, limit, cost, mode: Mode::Enforce };
        (charge, limit)
    }

    fn outcome(level: i64) -> Outcome {
        Outcome { level, enough: true, share: Share::WHOLE, times: Times::period(1) }
    }

    #[test]
    fn overage_is_what_the_bucket_did_not_hold() {
        // (tokens of the request, level afterwards, tokens of overage)
        let table = [(5, 3, 0), (5, 0, 0), (5, -2, 2), (5, -5, 5), (5, -90, 5)];
        for (tokens, level, expected) in table {
            let (charge, _) = charge(tokens);
            let counts = Counts::of_request(&charge, &outcome(level * 1_000));
            assert_eq!(counts.overage, expected * 1_000, "{tokens} {level}");
            let mut sum = counts;
            sum.add(Counts::of_refund(&charge, &outcome(level * 1_000), None));
            assert!(sum.is_zero(), "{sum:?}");
        }
    }

    #[test]
    fn part_of_a_request_is_refunded_from_the_overage_first() {
        let (charge, limit) = charge(5);
        let part = Counts::of_refund(&charge, &outcome(-2_000), Some(3 * limit.parts()));
        assert_eq!(part, Counts { requests: 0, units: -3_000, overage: -2_000 });
        assert_eq!(
            Counts::of_debit(4_000, 1_000),
            Counts { requests: 0, units: 4_000, overage: 0 }
        );
        assert_eq!(Counts::of_debit(4_000, -1_000).overage, 1_000);
    }
}
