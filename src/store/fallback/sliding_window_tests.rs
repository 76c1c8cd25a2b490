//! The bound of `docs/outages.md` on sliding windows: tokens that all gateways grant together in any window, under any
//! schedule of outages.

use proptest::prelude::*;

use super::*;
use crate::limit::Limit;
use crate::limit::charge::{BucketId, Mode, take};
use crate::limit::reading::Times;
use crate::limit::sliding_window::SlidingWindow;
use crate::limit::stamp_log::StampLog;
use crate::store::redis::fixture::rule;

/// One step of a schedule.
#[derive(Clone, Debug)]
enum Step {
    /// This many microseconds pass.
    Wait(u64),
    /// The shared store becomes unavailable to a gateway, or available again.
    Turn(usize),
    /// A gateway gets requests of this cost, all at once.
    Ask { gateway: usize, requests: u64, cost: u64 },
    /// A gateway gets a request and no answer of the store in time. `taken`: the store took the tokens.
    AskTimedOut { gateway: usize, cost: u64, taken: bool },
}

/// Gateways over one sliding window.
struct World {
    window: SlidingWindow,
    share: Share,
    shared: StampLog,
    gateways: Vec<Fallback>,
    is_up: Vec<bool>,
    now: u64,
    /// Times of grants, and tokens.
    granted: Vec<(u64, i64)>,
}

impl World {
    fn new(count: usize, window: SlidingWindow) -> Self {
        let gateway = |_| {
            let memory = MemoryStore::new(1_000, &[Limit::SlidingWindow(window)]);
            Fallback::new(Arc::new(memory), Arc::new(Debts::new(1_000)))
        };
        Self {
            window,
            share: Share::one_of(u32::try_from(count).unwrap()),
            shared: StampLog::default(),
            gateways: (0..count).map(gateway).collect(),
            is_up: vec![true; count],
            now: 1_000,
            granted: Vec::new(),
        }
    }

    fn charge(&self, cost: u64) -> Charge {
        let limit = Limit::SlidingWindow(self.window);
        let (bucket, mode) = (BucketId(7), Mode::Enforce);
        let cost = cost.min(limit.capacity());
        Charge { bucket, rule: 0, limit_index: 0, limit, cost, mode }
    }

    /// Does what the script does for a call with this charge and the gateway's debts.
    fn call(&mut self, gateway: usize, charge: Charge) -> Answer {
        let debts = &self.gateways[gateway].debts;
        if let Some((_, units)) = debts.remove(charge.bucket, &charge.limit, self.now) {
            self.shared.settle(&self.window, units, self.now);
        }
        let mut bucket = [self.shared.bucket(&self.window, self.now)];
        let answer = take(&[charge], &mut bucket, Share::WHOLE).with_times(|_, _| Times::NONE);
        if answer.allowed() {
            self.shared.record(&self.window, bucket[0].level, self.now);
        }
        answer
    }

    fn ask(&mut self, gateway: usize, cost: u64) {
        let charge = self.charge(cost);
        let answer = if self.is_up[gateway] {
            let answer = self.call(gateway, charge);
            self.gateways[gateway].learn(&[charge], &answer, self.now, self.now);
            answer
        } else {
            self.gateways[gateway].take(&[charge], &[rule()], self.now, self.share).0
        };
        self.note(&answer, charge);
    }

    fn ask_timed_out(&mut self, gateway: usize, cost: u64, taken: bool) {
        let charge = self.charge(cost);
        let debts = Arc::clone(&self.gateways[gateway].debts);
        let owed = debts.remove(charge.bucket, &charge.limit, self.now);
        if taken {
            if let Some((_, units)) = &owed {
                self.shared.settle(&self.window, *units, self.now);
            }
            self.call(gateway, charge);
        }
        if let Some((debt, _)) = owed {
            debts.put_back(charge.bucket, debt, self.now);
        }
        let answer = self.gateways[gateway].take(&[charge], &[rule()], self.now, self.share).0;
        self.note(&answer, charge);
    }

    fn note(&mut self, answer: &Answer, charge: Charge) {
        if answer.allowed() {
            self.granted.push((self.now, charge.limit.units(charge.cost)));
        }
    }

    fn play(&mut self, step: &Step) {
        let count = self.gateways.len();
        match *step {
            Step::Wait(us) => self.now += us,
            Step::Turn(gateway) => self.is_up[gateway % count] ^= true,
            Step::Ask { gateway, requests, cost } => {
                (0..requests).for_each(|_| self.ask(gateway % count, cost));
            }
            Step::AskTimedOut { gateway, cost, taken } => {
                self.ask_timed_out(gateway % count, cost, taken);
            }
        }
    }

    /// The most tokens in a window that begins at `from` or later.
    fn most_in_a_window(&self, from: u64) -> i64 {
        let later = self.granted.iter().filter(|(at, _)| *at >= from);
        let inside = |(first, _): &(u64, i64)| {
            let window = *first..first + self.window.window_us();
            let inside = self.granted.iter().filter(|(at, _)| window.contains(at));
            inside.map(|(_, tokens)| tokens).sum::<i64>()
        };
        later.map(inside).max().unwrap_or(0)
    }
}

fn windows() -> impl Strategy<Value = SlidingWindow> {
    (1..30_u64, 1..200_u64).prop_map(|(limit, us)| SlidingWindow::new(limit, us).unwrap())
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let wait = prop_oneof![4 => 0..60_u64, 1 => 0..500_u64];
    let step = prop_oneof![
        3 => wait.prop_map(Step::Wait),
        2 => (0..5_usize).prop_map(Step::Turn),
        6 => (0..5_usize, 1..30_u64, 1..5_u64)
            .prop_map(|(gateway, requests, cost)| Step::Ask { gateway, requests, cost }),
        1 => (0..5_usize, 1..5_u64, any::<bool>())
            .prop_map(|(gateway, cost, taken)| Step::AskTimedOut { gateway, cost, taken }),
    ];
    prop::collection::vec(step, 1..120)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1_000))]

    #[test]
    fn no_window_has_more_than_the_bound_under_any_outages(
        window in windows(),
        gateways in 1..5_usize,
        steps in steps(),
    ) {
        let mut world = World::new(gateways, window);
        for step in &steps {
            world.play(step);
        }
        // The largest cost is 4.
        let dearest = i64::try_from(gateways).unwrap() * window.full().min(4);
        let bound = window.full() + window.full().max(dearest);
        let most = world.most_in_a_window(0);
        prop_assert!(most <= bound, "{} of {}", most, bound);
    }

    /// Without Redis, the shares of all gateways together.
    #[test]
    fn no_window_has_more_than_the_shares_while_redis_is_away(
        window in windows(),
        gateways in 1..5_usize,
        steps in steps(),
    ) {
        let mut world = World::new(gateways, window);
        world.is_up.fill(false);
        let steps = steps.iter().filter(|step| !matches!(step, Step::Turn(_)));
        for step in steps {
            world.play(step);
        }
        let dearest = i64::try_from(gateways).unwrap() * window.full().min(4);
        let most = world.most_in_a_window(0);
        prop_assert!(most <= window.full().max(dearest), "{}", most);
    }

    #[test]
    fn no_window_has_more_than_the_limit_once_debts_are_settled(
        window in windows(),
        gateways in 1..5_usize,
        (before, after) in (steps(), steps()),
    ) {
        let mut world = World::new(gateways, window);
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
}
