use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::{Config, RngSeed, TestRunner};

use super::reference::{LentBucket, Refill};
use super::schedule::{Event, Schedule, SharedBucket, excess, schedule};
use super::{Loan, Request};
use crate::base::cases::with_cases;
use crate::limit::token_bucket::TokenBucket;

/// The bucket in this process.
struct Modelled {
    bucket: Option<LentBucket>,
    limit: TokenBucket,
    how: Refill,
}

impl Modelled {
    fn at(&mut self, now: u64) -> &mut LentBucket {
        let bucket = self.bucket.unwrap_or(LentBucket::full(&self.limit, now));
        self.bucket.insert(bucket.refilled(&self.limit, now, self.how))
    }
}

impl SharedBucket for Modelled {
    fn take(&mut self, units: i64, count: u64, now: u64) -> u64 {
        let bucket = self.at(now);
        (0..count).take_while(|_| bucket.take(units)).count() as u64
    }

    fn lend(&mut self, request: &Request, divisor: i64, now: u64) -> Loan {
        let limit = self.limit;
        self.at(now).lend(&limit, request, divisor)
    }

    fn give_back(&mut self, units: i64, taken_at: u64, now: u64) {
        let limit = self.limit;
        self.at(now).give_back(&limit, units, taken_at);
    }
}

fn excess_of(schedule: &Schedule, how: Refill) -> i64 {
    excess(schedule, &mut Modelled { bucket: None, limit: schedule.limit, how })
}

#[test]
fn gateways_with_leases_never_exceed_the_limit_in_any_span_of_time() {
    let mut runner = TestRunner::new(with_cases(1_500));
    let ran = runner.run(&schedule(120), |schedule| {
        prop_assert_eq!(excess_of(&schedule, Refill::Exact), 0);
        Ok(())
    });
    ran.unwrap();
}

/// The judge finds a bucket that refills as if nothing were lent.
#[test]
fn limit_is_exceeded_where_units_lent_leave_room_for_others() {
    let config =
        Config { rng_seed: RngSeed::Fixed(1), failure_persistence: None, ..Config::default() };
    let mut runner = TestRunner::new(config);
    let (mut exceeded, all) = (0, 600);
    for _ in 0..all {
        let schedule = schedule(250).new_tree(&mut runner).unwrap().current();
        exceeded += i32::from(excess_of(&schedule, Refill::Uncapped) > 0);
    }
    println!("exceeded in {exceeded} of {all} schedules");
    assert!(exceeded * 10 > all, "{exceeded} of {all}");
}

/// A lease that is spent shortly before its end, and a bucket that is not used meanwhile: the units
/// leave no room until then.
#[test]
fn limit_is_exceeded_where_the_cap_ends_before_the_refill() {
    // Of 80 tokens, 20 are borrowed, and spent 1.1 s before Redis no longer counts them as lent.
    let events = vec![
        Event::Borrow { gateway: 0, wanted: 0.3 },
        Event::Pass(2_900_000),
        Event::Requests { gateway: 0, count: 20 },
        Event::Pass(1_100_000),
        Event::Requests { gateway: 1, count: 100 },
    ];
    let schedule = Schedule { limit: TokenBucket::new(10, 1_000_000, 80).unwrap(), events };
    let one = schedule.limit.units(1);
    assert_eq!(excess_of(&schedule, Refill::Exact), 0);
    assert_eq!(excess_of(&schedule, Refill::AtOnce), 9 * one);
    assert_eq!(excess_of(&schedule, Refill::Uncapped), 9 * one);
}

/// The bucket has refilled since the token was taken, though by its clock no time has passed.
#[test]
fn token_given_back_after_the_clock_went_back_grants_no_other() {
    let token = any::<prop::sample::Index>().new_tree(&mut TestRunner::deterministic());
    let token = token.unwrap().current();
    let events = vec![
        Event::Refused,
        Event::Pass(500_000),
        Event::Requests { gateway: 0, count: 60 },
        Event::SetClock(500_000),
        Event::GiveBack { token },
        Event::Requests { gateway: 2, count: 60 },
    ];
    let limit = TokenBucket::new(2, 1_000_000, 8).unwrap();
    assert_eq!(excess_of(&Schedule { limit, events }, Refill::Exact), 0);
}
