//! Property tests of the memory store, against a model that never drops a bucket.

use std::collections::HashMap;

use proptest::prelude::*;

use super::*;
use crate::base::duration::MICROS_PER_SECOND;
use crate::limit::calendar::{Calendar, Period};
use crate::limit::charge::Mode;
use crate::limit::fixed_window::FixedWindow;
use crate::limit::sliding_window::SlidingWindow;

/// One request of a schedule.
#[derive(Clone, Debug)]
struct Request {
    /// Added to the clock, which may go back.
    step: i64,
    /// Client, cost and mode of each charge. No client twice.
    charges: Vec<(usize, u64, Mode)>,
}

#[derive(Clone, Debug)]
struct Schedule {
    limits: Vec<Limit>,
    requests: Vec<Request>,
    seed: u64,
}

fn limits() -> impl Strategy<Value = Vec<Limit>> {
    // Limits that fill within some tens of microseconds, so that the steps below drain and fill
    // them. Some rates exceed a token per microsecond, and some do not divide evenly.
    let limit = (1..8_u64, 1..20_u64, 1..8_u64)
        .prop_map(|(tokens, period, burst)| Limit::token_bucket(tokens, period, burst).unwrap());
    let calendar = Calendar::new(Period::Second, "UTC", 1).unwrap();
    let window = (1..8_u64)
        .prop_map(move |limit| Limit::FixedWindow(FixedWindow::new(limit, calendar).unwrap()));
    let sliding = (1..8_u64, 1..20_u64).prop_map(|(limit, window_us)| {
        Limit::SlidingWindow(SlidingWindow::new(limit, window_us).unwrap())
    });
    prop::collection::vec(prop_oneof![2 => limit, 1 => window, 2 => sliding], 1..4)
}

fn schedules(clients: usize, steps: std::ops::Range<i64>) -> impl Strategy<Value = Schedule> {
    let mode = prop_oneof![4 => Just(Mode::Enforce), 1 => Just(Mode::Shadow)];
    let charges = prop::collection::vec((0..clients, 1..4_u64, mode), 1..4).prop_map(|mut all| {
        all.sort_by_key(|(client, ..)| *client);
        all.dedup_by_key(|(client, ..)| *client);
        all
    });
    // Rarely, into the next period of a window.
    let step = prop_oneof![
        30 => Just(0),
        30 => steps.start.max(-3)..4,
        10 => steps,
        1 => 100_000..1_200_000_i64
    ];
    let request =
        (step, charges.prop_shuffle()).prop_map(|(step, charges)| Request { step, charges });
    let requests = prop::collection::vec(request, 1..150);
    (limits(), requests, any::<u64>()).prop_map(|(limits, requests, seed)| Schedule {
        limits,
        requests,
        seed,
    })
}

impl Schedule {
    fn store(&self, max_buckets: usize) -> MemoryStore {
        MemoryStore::with_seed(max_buckets, &self.limits, self.seed)
    }

    /// Times and charges of all requests.
    fn play(&self) -> impl Iterator<Item = (u64, Vec<Charge>)> {
        let mut now = 1_000_u64;
        self.requests.iter().map(move |request| {
            now = now.saturating_add_signed(request.step);
            let charges = request
                .charges
                .iter()
                .map(|(client, cost, mode)| self.charge(*client, *cost, *mode));
            (now, charges.collect())
        })
    }

    fn charge(&self, client: usize, cost: u64, mode: Mode) -> Charge {
        let index = client % self.limits.len();
        let limit = self.limits[index];
        // Differs in all parts of the ID.
        let bucket =
            BucketId((client as u128 + 1).wrapping_mul(0x2360_ed05_1fc6_5da4_4385_df64_9fcc_f645));
        let limit_index = u32::try_from(index).unwrap();
        let cost = cost.min(limit.capacity()) * limit.parts();
        Charge { bucket, rule: 0, limit_index, limit, cost, mode }
    }
}

/// All buckets, none ever dropped.
#[derive(Default)]
struct Model {
    buckets: HashMap<BucketId, Bucket>,
    logs: HashMap<BucketId, StampLog>,
}

impl Model {
    fn buckets(&self, charges: &[Charge], now: u64) -> Vec<Bucket> {
        charges
            .iter()
            .map(|charge| {
                if let Some(window) = charge.limit.log() {
                    return self.log(charge).bucket(&window, now);
                }
                let kept = self.buckets.get(&charge.bucket).copied();
                kept.unwrap_or(Bucket::full(&charge.limit, Now::unix(now)))
                    .refilled(&charge.limit, Now::unix(now))
            })
            .collect()
    }

    fn log(&self, charge: &Charge) -> StampLog {
        self.logs.get(&charge.bucket).cloned().unwrap_or_default()
    }

    /// The answer to a request.
    fn answer(&self, charges: &[Charge], now: u64) -> Answer {
        let answer = charge::take(charges, &mut self.buckets(charges, now), Share::WHOLE);
        answer.with_times(|index, outcome| match charges[index].limit.log() {
            Some(window) => {
                let needed = charges[index].limit.units(charges[index].cost);
                self.log(&charges[index]).times(&window, outcome.level, needed, now)
            }
            None => Times::period(charges[index].limit.left_us_at(Now::unix(now))),
        })
    }

    /// Takes the tokens that the answer took. Returns whether the buckets held them.
    fn follow(&mut self, charges: &[Charge], answer: &Answer, now: u64) -> bool {
        let buckets = self.buckets(charges, now);
        let mut all_there = true;
        for ((charge, bucket), outcome) in charges.iter().zip(buckets).zip(&answer.outcomes) {
            if answer.allowed() && outcome.enough {
                all_there &= bucket.holds(&charge.limit, charge.cost);
                let bucket = bucket.less(charge.limit.units(charge.cost));
                if let Some(window) = charge.limit.log() {
                    let mut log = self.log(charge);
                    log.record(&window, bucket.level, now);
                    self.logs.insert(charge.bucket, log);
                }
                self.buckets.insert(charge.bucket, bucket);
            }
        }
        all_there
    }
}

proptest! {
    #![proptest_config(crate::base::cases::with_cases(256))]

    #[test]
    fn bounded_store_never_grants_more_than_an_unbounded_one(
        schedule in schedules(12, -60..60),
        max_buckets in 1..8_usize,
    ) {
        let store = schedule.store(max_buckets);
        let mut model = Model::default();
        for (now, charges) in schedule.play() {
            let answer = store.take(&charges, now, Share::WHOLE);
            let mut buckets = model.buckets(&charges, now);
            let allowed_by_model = charge::take(&charges, &mut buckets, Share::WHOLE);
            for (got, most) in answer.outcomes.iter().zip(&allowed_by_model.outcomes) {
                prop_assert!(!got.enough || most.enough, "{got:?} where {most:?} is right, at {now}");
            }
            prop_assert!(model.follow(&charges, &answer, now));
            prop_assert!(store.len() <= max_buckets);
        }
    }

    #[test]
    fn granted_tokens_are_within_burst_and_rate_over_any_span(
        schedule in schedules(12, -60..60),
        max_buckets in 1..8_usize,
    ) {
        let store = schedule.store(max_buckets);
        let mut passed: HashMap<BucketId, Vec<(u64, Charge)>> = HashMap::new();
        for (now, charges) in schedule.play() {
            let answer = store.take(&charges, now, Share::WHOLE);
            for (charge, outcome) in charges.iter().zip(&answer.outcomes) {
                if answer.allowed() && outcome.enough {
                    let passed = passed.entry(charge.bucket).or_default();
                    let at = match (charge.limit.log(), passed.last()) {
                        // In a sliding window, no stamp is before an older one.
                        (Some(_), Some((newest, _))) => now.max(*newest),
                        _ => now,
                    };
                    passed.push((at, *charge));
                }
            }
        }
        for passed in passed.values() {
            for start in 0..passed.len() {
                let (mut first, mut last, mut units) = (u64::MAX, 0, 0);
                for (now, charge) in &passed[start..] {
                    (first, last) = (first.min(*now), last.max(*now));
                    units += charge.limit.units(charge.cost);
                    let periods = (last / MICROS_PER_SECOND - first / MICROS_PER_SECOND) + 1;
                    let most = match charge.limit {
                        Limit::TokenBucket(limit) => limit.full() + limit.units_in(last - first),
                        Limit::FixedWindow(limit) => limit.full() * periods.cast_signed(),
                        // See `store::held`.
                        Limit::Concurrency(_) => continue,
                        // Any span of a window: the span from `first` on is divided into these.
                        Limit::SlidingWindow(limit) => {
                            limit.full() * ((last - first) / limit.window_us() + 1).cast_signed()
                        }
                    };
                    prop_assert!(units <= most, "{units} of {most} from {first} to {last}");
                }
            }
        }
    }

    /// Covers requests of one charge and of several, which have separate code paths.
    #[test]
    fn store_below_its_bound_is_exact(
        schedule in prop_oneof![schedules(6, -60..60), schedules(300, 0..60)],
    ) {
        let store = schedule.store(16 * 300);
        let mut model = Model::default();
        for (now, charges) in schedule.play() {
            let expected = model.answer(&charges, now);
            prop_assert_eq!(&store.peek(&charges, now, Share::WHOLE), &expected);
            prop_assert_eq!(&store.take(&charges, now, Share::WHOLE), &expected);
            model.follow(&charges, &expected, now);
        }
        prop_assert_eq!(store.evictions(), 0);
    }

    #[test]
    fn denied_request_changes_nothing_after_evictions(
        schedule in schedules(12, -60..60),
        max_buckets in 1..8_usize,
    ) {
        let store = schedule.store(max_buckets);
        for (now, charges) in schedule.play() {
            let before = store.len();
            let peeked = store.peek(&charges, now, Share::WHOLE);
            let taken = store.take(&charges, now, Share::WHOLE);
            prop_assert_eq!(&taken, &peeked);
            if !taken.allowed() {
                prop_assert_eq!(store.len(), before);
                prop_assert_eq!(store.peek(&charges, now, Share::WHOLE), taken);
            }
        }
    }
}
