//! The bounds of `docs/outages.md` on sliding and fixed windows: tokens that all gateways grant
//! together in any window or period, under any schedule of outages.

use std::collections::BTreeMap;
use std::ops::Range;

use proptest::prelude::*;

use super::world::{Step, World};
use crate::limit::Limit;
use crate::limit::calendar::{Calendar, Period};
use crate::limit::fixed_window::FixedWindow;
use crate::limit::sliding_window::SlidingWindow;

/// The largest cost of a request, in tokens.
const DEAREST: u64 = 4;

/// Length of the periods of fixed windows, in microseconds.
const PERIOD_US: u64 = 1_000_000;

impl World {
    fn start(gateways: usize, limit: Limit) -> Self {
        let mut world = Self::new(gateways, limit);
        world.now = 1_000;
        world
    }

    /// Units that gateways may have granted locally and not settled: their shares, or a request
    /// each.
    fn shares(&self) -> i64 {
        let limit = &self.limit;
        let gateways = i64::try_from(self.gateways.len()).unwrap();
        limit.full().max(gateways * limit.token_units(DEAREST.min(limit.capacity())))
    }

    /// Units granted in the windows of this length that begin with a grant at `from` or later. The
    /// most of them.
    fn most_in_a_window(&self, from: u64) -> i64 {
        let length_us = self.limit.window_us();
        // Grants are in the order of their times.
        let later = &self.granted[self.granted.partition_point(|(at, _)| *at < from)..];
        let (mut first, mut inside, mut most) = (0, 0, 0);
        for (at, units) in later {
            inside += units;
            while later[first].0 + length_us <= *at {
                inside -= later[first].1;
                first += 1;
            }
            most = most.max(inside);
        }
        most
    }

    /// Checks the documented bound in each period of a fixed window.
    fn check_periods(&self) -> Result<(), TestCaseError> {
        let gateways = i64::try_from(self.gateways.len()).unwrap();
        let by_period = |list: &[(u64, i64)]| {
            let mut sums = BTreeMap::<u64, i64>::new();
            for (at, units) in list {
                *sums.entry(at / PERIOD_US).or_default() += units;
            }
            sums
        };
        let lost = by_period(&self.lost);
        for (period, granted) in by_period(&self.granted) {
            let restarts = self.restarts.iter().filter(|at| **at / PERIOD_US == period).count();
            let restarts =
                i64::try_from(restarts).unwrap() * (self.shares() + gateways - 1) / gateways;
            let lost = lost.get(&period).copied().unwrap_or_default();
            let bound = self.limit.full() + self.shares() + restarts + lost;
            prop_assert!(granted <= bound, "{granted} of {bound} in period {period}");
        }
        Ok(())
    }
}

fn windows() -> impl Strategy<Value = Limit> {
    (1..30_u64, 1..200_u64)
        .prop_map(|(limit, us)| Limit::SlidingWindow(SlidingWindow::new(limit, us).unwrap()))
}

fn fixed_windows() -> impl Strategy<Value = Limit> {
    (1..30_u64).prop_map(|limit| {
        let calendar = Calendar::new(Period::Second, "UTC", 1).unwrap();
        Limit::FixedWindow(FixedWindow::new(limit, calendar).unwrap())
    })
}

/// `count` steps, in which waits are multiples of `unit_us` microseconds.
fn steps(unit_us: u64, count: Range<usize>) -> impl Strategy<Value = Vec<Step>> {
    let wait = prop_oneof![4 => 0..60_u64, 1 => 0..500_u64];
    prop::collection::vec(
        prop_oneof![
            3 => wait.prop_map(move |waits| Step::Wait(waits * unit_us)),
            2 => (0..5_usize).prop_map(Step::Turn),
            6 => (0..5_usize, 1..30_u64, 1..=DEAREST)
                .prop_map(|(gateway, requests, cost)| Step::Ask { gateway, requests, cost }),
            1 => (0..5_usize, 1..=DEAREST, any::<bool>())
                .prop_map(|(gateway, cost, taken)| Step::AskTimedOut { gateway, cost, taken }),
        ],
        count,
    )
}

proptest! {
    #![proptest_config(crate::base::cases::with_cases(1_000))]

    #[test]
    fn no_window_has_more_than_the_bound_under_any_outages(
        (gateways, window) in (1..5_usize, windows()),
        steps in steps(1, 1..120),
    ) {
        let mut world = World::start(gateways, window);
        for step in &steps {
            world.play(step);
        }
        let bound = window.full() + world.shares();
        let most = world.most_in_a_window(0);
        prop_assert!(most <= bound, "{} of {}", most, bound);
    }

    /// Without Redis, the shares of all gateways together.
    #[test]
    fn no_window_has_more_than_the_shares_while_redis_is_away(
        (gateways, window) in (1..5_usize, windows()),
        steps in steps(1, 1..120),
    ) {
        let mut world = World::start(gateways, window);
        world.is_up.fill(false);
        for step in steps.iter().filter(|step| !matches!(step, Step::Turn(_))) {
            world.play(step);
        }
        let most = world.most_in_a_window(0);
        prop_assert!(most <= world.shares(), "{}", most);
    }

    #[test]
    fn no_window_has_more_than_the_limit_once_debts_are_settled(
        (gateways, window) in (1..5_usize, windows()),
        (before, after) in (steps(1, 1..120), steps(1, 1..120)),
    ) {
        let mut world = World::start(gateways, window);
        for step in &before {
            world.play(step);
        }
        world.is_up.fill(true);
        world.now += 1;
        for gateway in 0..gateways {
            world.ask(gateway, 1);
        }
        world.now += 1;
        let settled = world.now;
        let calm = |step: &&Step| matches!(step, Step::Wait(_) | Step::Ask { .. });
        for step in after.iter().filter(calm) {
            world.play(step);
        }
        prop_assert!(world.most_in_a_window(settled) <= window.full());
    }

    #[test]
    fn no_period_of_a_fixed_window_has_more_than_the_bound_under_any_outages(
        (gateways, window) in (1..5_usize, fixed_windows()),
        steps in steps(PERIOD_US / 200, 1..120),
    ) {
        let mut world = World::start(gateways, window);
        for step in &steps {
            world.play(step);
        }
        world.check_periods()?;
    }

    /// Each restart adds a share, and what the process had granted and not settled.
    #[test]
    fn no_period_of_a_fixed_window_has_more_than_the_bound_with_restarts(
        (gateways, window) in (1..5_usize, fixed_windows()),
        steps in prop::collection::vec(
            prop_oneof![
                4 => steps(PERIOD_US / 200, 6..10),
                1 => (0..5_usize, any::<bool>())
                    .prop_map(|(gateway, settles)| vec![Step::Restart { gateway, settles }]),
            ],
            1..20,
        ),
    ) {
        let mut world = World::start(gateways, window);
        for step in steps.iter().flatten() {
            world.play(step);
        }
        world.check_periods()?;
    }
}
