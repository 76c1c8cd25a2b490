//! Several processes that share a limit through the script's rules, under any order of calls, lost
//! replies, late calls, outages and ends of processes.

use std::sync::Arc;

use proptest::prelude::*;

use super::*;
use crate::base::cases::with_cases;
use crate::limit::charge::{Charges, Mode};
use crate::limit::concurrency::entries::Entries;
use crate::limit::concurrency::{Concurrency, LEASE_US, Statement};
use crate::store::memory::MemoryStore;
use crate::store::rule::rule;

const BUCKET: BucketId = BucketId(7);
/// Time of the first step, in microseconds.
const START: u64 = 1_000_000_000;

fn charge(limit: u64, units: u64) -> Charge {
    let limit = Limit::Concurrency(Concurrency::new(limit).unwrap());
    let cost = units * limit.parts();
    Charge { bucket: BUCKET, rule: 0, limit_index: 0, limit, cost, mode: Mode::Enforce }
}

/// One step of a schedule.
#[derive(Clone, Debug)]
enum Step {
    /// A gateway sends checks of these costs in one call. `Lost`: without a reply; `Late`: and
    /// Redis runs it afterwards.
    Ask { gateway: usize, costs: Vec<u64>, fate: Fate },
    /// A request of a gateway ends.
    End { gateway: usize, which: prop::sample::Index },
    /// A gateway makes its statements that are due.
    State { gateway: usize, fate: Fate },
    /// Redis runs a call that it got before.
    RunLate(prop::sample::Index),
    /// Microseconds pass, less than a lease, and all gateways renew.
    Wait(u64),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    Answered,
    Lost,
    Unsent,
    Late,
}

fn fate() -> impl Strategy<Value = Fate> {
    prop_oneof![
        6 => Just(Fate::Answered),
        1 => Just(Fate::Lost),
        1 => Just(Fate::Unsent),
        1 => Just(Fate::Late),
    ]
}

fn step(gateways: usize) -> impl Strategy<Value = Step> {
    let costs = prop::collection::vec(1..4_u64, 1..4);
    prop_oneof![
        5 => (0..gateways, costs, fate())
            .prop_map(|(gateway, costs, fate)| Step::Ask { gateway, costs, fate }),
        4 => (0..gateways, any::<prop::sample::Index>())
            .prop_map(|(gateway, which)| Step::End { gateway, which }),
        2 => (0..gateways, fate()).prop_map(|(gateway, fate)| Step::State { gateway, fate }),
        1 => any::<prop::sample::Index>().prop_map(Step::RunLate),
        1 => (0..LEASE_US / 4).prop_map(Step::Wait),
    ]
}

/// Redis with one bucket.
#[derive(Default)]
struct Shared {
    stored: Option<Vec<u8>>,
    /// Calls that were sent and have not run, and when they were sent.
    late: Vec<(Statement, Vec<u64>, u64)>,
}

impl Shared {
    /// Runs a call with checks of these costs. Returns which pass.
    fn run(&mut self, limit: u64, statement: Statement, costs: &[u64], now: u64) -> Vec<Answer> {
        let mut entries = Entries::read(self.stored.as_deref(), statement, now);
        let full = charge(limit, 1).limit.full();
        let answers = costs.iter().map(|cost| {
            let charges = [charge(limit, *cost)];
            let mut bucket = [Bucket { level: full - entries.held(), at: now }];
            let answer = charge::take(&charges, &mut bucket, Share::WHOLE);
            entries.add(full - entries.held() - bucket[0].level);
            answer
        });
        let answers = answers.collect();
        if !entries.is_late() {
            self.stored = Some(entries.write(statement.gateway, now));
        }
        answers
    }
}

/// Gateways, what their requests hold, and Redis.
struct World {
    limit: u64,
    gateways: Vec<Arc<Held>>,
    requests: Vec<Vec<(Holds, u64)>>,
    shared: Shared,
    now: u64,
}

impl World {
    fn new(limit: u64, gateways: usize) -> Self {
        Self {
            limit,
            gateways: (0..gateways).map(|_| Arc::new(Held::new(true))).collect(),
            requests: (0..gateways).map(|_| Vec::new()).collect(),
            shared: Shared::default(),
            now: START,
        }
    }

    fn ask(&mut self, gateway: usize, costs: &[u64], fate: Fate) {
        let held = Arc::clone(&self.gateways[gateway]);
        assert!(!held.is_asked(BUCKET));
        held.begin(BUCKET, charge(self.limit, 1).limit, &rule());
        let statement = held.statement(BUCKET, self.now);
        // A request that ends while the call is in flight.
        if let Some((holds, _)) = self.requests[gateway].pop() {
            drop(holds);
        }
        match fate {
            Fate::Answered => {
                let answers = self.shared.run(self.limit, statement, costs, self.now);
                let mut units = statement.units.unwrap();
                for (cost, answer) in costs.iter().zip(&answers) {
                    let charges: Charges = vec![charge(self.limit, *cost)];
                    let holds = held.hold(&charges, &[rule()], answer);
                    if answer.allowed() {
                        units += charges[0].limit.units(charges[0].cost);
                        self.requests[gateway].push((holds, *cost));
                    }
                }
                return held.answered(BUCKET, Some(units));
            }
            Fate::Lost => drop(self.shared.run(self.limit, statement, costs, self.now)),
            Fate::Late => self.shared.late.push((statement, costs.to_vec(), self.now)),
            Fate::Unsent => {}
        }
        held.answered(BUCKET, None);
    }

    fn state(&mut self, gateway: usize, fate: Fate) {
        let held = Arc::clone(&self.gateways[gateway]);
        for due in held.take_due(9, self.now, |_, _| true) {
            match fate {
                Fate::Answered | Fate::Lost => {
                    self.shared.run(self.limit, due.statement, &[], self.now);
                }
                Fate::Late => self.shared.late.push((due.statement, Vec::new(), self.now)),
                Fate::Unsent => {}
            }
            held.stated(due.bucket, due.statement, fate == Fate::Answered);
        }
    }

    fn step(&mut self, step: &Step) {
        match step {
            Step::Ask { gateway, costs, fate } => self.ask(*gateway, costs, *fate),
            Step::End { gateway, which } => {
                let requests = &mut self.requests[*gateway];
                if !requests.is_empty() {
                    drop(requests.swap_remove(which.index(requests.len())));
                }
            }
            Step::State { gateway, fate } => self.state(*gateway, *fate),
            Step::RunLate(which) => {
                if !self.shared.late.is_empty() {
                    let (statement, costs, _) =
                        self.shared.late.swap_remove(which.index(self.shared.late.len()));
                    self.shared.run(self.limit, statement, &costs, self.now);
                }
            }
            Step::Wait(us) => {
                self.now += us;
                // A connection is given up long before.
                self.shared.late.retain(|(.., sent_at)| self.now < sent_at + LEASE_US);
                for gateway in 0..self.gateways.len() {
                    self.gateways[gateway].renew(false, self.now);
                    self.state(gateway, Fate::Answered);
                }
            }
        }
    }

    fn in_flight(&self) -> u64 {
        self.requests.iter().flatten().map(|(_, cost)| cost).sum()
    }
}

fn run(limit: u64, steps: &[Step]) -> Result<(), TestCaseError> {
    let mut world = World::new(limit, 3);
    for step in steps {
        world.step(step);
        prop_assert!(world.in_flight() <= limit, "{} of {limit}", world.in_flight());
    }
    // All end, and what is due is stated: everything is free again, with late calls in any order.
    world.requests.iter_mut().for_each(Vec::clear);
    for gateway in 0..3 {
        world.state(gateway, Fate::Answered);
        prop_assert!(world.gateways[gateway].is_empty(), "{:?}", world.gateways[gateway]);
    }
    for (statement, costs, _) in std::mem::take(&mut world.shared.late) {
        world.shared.run(limit, statement, &costs, world.now);
    }
    let stored = world.shared.stored.as_deref();
    prop_assert_eq!(Entries::read(stored, Statement::NONE, world.now).held(), 0);
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..with_cases(2_000) })]

    /// While leases are renewed, the requests in flight at all gateways never exceed the limit, and
    /// nothing leaks.
    #[test]
    fn limit_holds_over_all_gateways_and_nothing_leaks(
        limit in 1..12_u64,
        steps in prop::collection::vec(step(3), 1..60),
    ) {
        run(limit, &steps)?;
    }
}

#[test]
fn units_of_a_dead_gateway_are_free_after_its_lease() {
    let mut world = World::new(10, 3);
    world.ask(0, &[3, 3, 3], Fate::Answered);
    world.requests[0].drain(..).for_each(std::mem::forget);
    world.now += LEASE_US - 1;
    world.ask(1, &[1, 1], Fate::Answered);
    assert_eq!(world.in_flight(), 1);
    world.requests[1].clear();
    world.now += 1_000;
    world.ask(1, &[4, 4, 2], Fate::Answered);
    assert_eq!(world.in_flight(), 10);
}

#[test]
fn each_gateway_holds_at_most_its_share_without_redis() {
    // (limit, gateways, cost) -> requests in flight
    let table =
        [((20, 2, 1), 10), ((20, 3, 1), 6), ((1, 5, 1), 1), ((20, 1, 3), 6), ((9, 4, 3), 1)];
    for ((limit, gateways, cost), expected) in table {
        let store = MemoryStore::new(100, &[]).holding(Arc::new(Held::new(true)));
        let take = |cost| {
            let charges = [charge(limit, cost)];
            store.hold(&charges, &[rule()], START, Share::one_of(gateways))
        };
        let mut holds = Vec::new();
        loop {
            let (answer, hold) = take(cost);
            if !answer.allowed() {
                break;
            }
            holds.push(hold);
        }
        assert_eq!(holds.len(), expected, "{limit} {gateways} {cost}");
        holds.pop();
        assert!(take(cost).0.allowed(), "a unit that is released is free at once");
    }
}

#[test]
fn request_that_another_rule_denies_holds_nothing() {
    let bucket = Limit::token_bucket(1, 1_000_000, 1).unwrap();
    let store = MemoryStore::new(100, &[bucket]);
    let other = Charge { bucket: BucketId(8), limit: bucket, cost: 1, ..charge(5, 1) };
    let take = || store.hold(&[charge(5, 1), other], &[rule()], START, Share::WHOLE);
    let first = take();
    assert!(first.0.allowed());
    assert_eq!(store.reading(&charge(5, 1), Share::WHOLE, START).level, 4_000);
    assert!(!take().0.allowed());
    assert_eq!(store.reading(&charge(5, 1), Share::WHOLE, START).level, 4_000);
    drop(first);
    assert!(store.held().is_empty());
    // Nor does a full limit take a token.
    let all: Vec<_> =
        (0..5).map(|_| store.hold(&[charge(5, 1)], &[rule()], START, Share::WHOLE)).collect();
    assert!(
        !store.hold(&[charge(5, 1), other], &[rule()], START + 2_000_000, Share::WHOLE).0.allowed()
    );
    assert_eq!(bucket.tokens(store.bucket(&other, START + 2_000_000).level), 1);
    drop(all);
}

#[test]
fn changed_limit_keeps_what_is_held() {
    let store = MemoryStore::new(100, &[]);
    let holds: Vec<_> =
        (0..4).map(|_| store.hold(&[charge(5, 1)], &[rule()], START, Share::WHOLE).1).collect();
    let level = |limit| store.reading(&charge(limit, 1), Share::WHOLE, START).level;
    assert_eq!((level(5), level(8), level(2)), (1_000, 4_000, -2_000));
    assert!(!store.hold(&[charge(2, 1)], &[rule()], START, Share::WHOLE).0.allowed());
    drop(holds);
    assert_eq!(level(2), 2_000);
}

#[test]
fn reset_frees_units_once() {
    let store = MemoryStore::new(100, &[]);
    let take = || store.hold(&[charge(3, 1)], &[rule()], START, Share::WHOLE);
    let old: Vec<_> = (0..3).map(|_| take().1).collect();
    assert_eq!(store.adjust(&[charge(3, 1)], Adjustment::Reset, START), [(0, 3_000)]);
    let new: Vec<_> = (0..3).map(|_| take()).collect();
    assert!(new.iter().all(|(answer, _)| answer.allowed()));
    drop(old);
    assert!(!take().0.allowed());
    drop(new);
    assert_eq!(store.adjust(&[charge(3, 1)], Adjustment::Grant(1), START), [(3_000, 3_000)]);
    assert!(store.held().is_empty());
}

#[test]
fn shadow_rule_holds_at_most_its_limit_and_refuses_nothing() {
    let store = MemoryStore::new(100, &[]);
    let shadow = Charge { mode: Mode::Shadow, ..charge(2, 1) };
    let all: Vec<_> =
        (0..5).map(|_| store.hold(&[shadow], &[rule()], START, Share::WHOLE)).collect();
    assert!(all.iter().all(|(answer, _)| answer.allowed()));
    assert_eq!(all.iter().map(|(_, holds)| holds.len()).sum::<usize>(), 2);
    drop(all);
    assert!(store.held().is_empty());
}

#[test]
fn reserved_units_count_until_the_reservation_is_dropped() {
    let held = Arc::new(Held::new(true));
    let share = Share::one_of(2);
    let reserve = || held.reserve(&[charge(6, 1)], &[rule()], share, START);
    let level = || held.level(&charge(6, 1), Share::WHOLE).unwrap();
    let held_by_a_request = granted(&held, charge(6, 1));
    let reserved = [reserve().unwrap(), reserve().unwrap()];
    assert_eq!((held.len(), held.is_empty(), level()), (1, false, 3_000));
    let refused = reserve().unwrap_err();
    assert!(!refused.allowed(), "the share is three units");
    drop(held_by_a_request);
    assert_eq!((held.len(), level()), (1, 4_000));
    drop(reserve().unwrap());
    drop(reserved);
    assert_eq!((held.len(), held.is_empty(), level()), (0, true, 6_000));
}

#[test]
fn units_are_shown_by_rule_until_they_are_released() {
    let gauge = GaugeVec::new(prometheus::Opts::new("held", "units"), &["rule"]).unwrap();
    let held = Arc::new(Held::new(false).shown_in(gauge.clone()));
    let shown = || gauge.with_label_values(&[&rule().name]).get();
    let holds = [granted(&held, charge(6, 3)), granted(&held, charge(6, 1))];
    assert!((shown() - 4.0).abs() < 1e-9, "{}", shown());
    drop(holds);
    assert!(shown().abs() < 1e-9, "{}", shown());
}

#[test]
fn units_are_due_for_a_statement_if_redis_has_another_number_of_them() {
    let held = Arc::new(Held::new(true));
    let first = charge(6, 1);
    held.begin(first.bucket, first.limit, &rule());
    assert_eq!(held.statement(first.bucket, START).units, Some(0));
    let holds = granted(&held, first);
    assert_eq!(held.due_len(), 0, "the reply to the call may say that Redis has them");
    held.answered(first.bucket, Some(1_000));
    assert_eq!(held.due_len(), 0, "Redis has them");
    drop(holds);
    assert_eq!(held.due_len(), 1, "Redis has them still");
}

#[test]
fn statements_that_are_not_accepted_do_not_keep_others_from_being_made() {
    let held = Arc::new(Held::new(true));
    let in_flight = |bucket| granted(&held, Charge { bucket: BucketId(bucket), ..charge(5, 1) });
    let other = BucketId(1);
    let of_one_shard = (0..600).map(|number| in_flight(number * SHARDS as u128));
    let _requests: Vec<Holds> = of_one_shard.chain([in_flight(1)]).collect();
    let mut is_made = false;
    for _ in 0..20 {
        for due in held.take_due(512, START, |_, _| true) {
            is_made |= due.bucket == other;
            held.stated(due.bucket, due.statement, due.bucket == other);
        }
    }
    assert!(is_made);
}

/// The master of their slots cannot be called.
#[test]
fn statements_that_cannot_be_made_wait_for_a_renewal_and_end_with_their_leases() {
    let held = Arc::new(Held::new(true));
    let [away, other] = [7, 8].map(|bucket| Charge { bucket: BucketId(bucket), ..charge(6, 1) });
    let requests = [away, other].map(|charge| granted(&held, charge));
    let state = |now, can_be_made: fn(BucketId) -> bool| {
        let due = held.take_due(9, now, |bucket, _| can_be_made(bucket));
        for due in &due {
            held.stated(due.bucket, due.statement, true);
        }
        due.iter().map(|due| due.bucket).collect::<Vec<_>>()
    };
    assert_eq!(state(START, |_| true).len(), 2, "Redis has the units");
    drop(requests);
    let is_not_away = |bucket| bucket != BucketId(7);
    assert_eq!(state(START, is_not_away), [other.bucket]);
    assert_eq!(state(START, |_| true), [], "it is not due again at once");
    for now in (1..LEASE_US / 1_000_000).map(|seconds| START + seconds * 1_000_000) {
        held.renew(false, now);
        assert_eq!((held.len(), held.due_len()), (1, 1), "{now}");
        assert_eq!(state(now, is_not_away), []);
    }
    held.renew(false, START + LEASE_US);
    assert!(held.is_empty(), "the lease has ended in Redis");
}

/// Redis is away, or was never reached: statements are due that are never made.
#[test]
fn buckets_that_are_due_are_forgotten_with_their_requests() {
    let held = Arc::new(Held::new(true));
    for turn in 0..20_000_u128 {
        let charge = Charge { bucket: BucketId(turn % 1_000), ..charge(5, 1) };
        let request = granted(&held, charge);
        assert_eq!((held.len(), held.due_len()), (1, 1), "{turn}");
        drop(request);
    }
    assert_eq!((held.len(), held.due_len()), (0, 0));
}

#[test]
fn memory_of_a_peak_is_given_back() {
    let held = Arc::new(Held::new(true));
    let holds: Vec<Holds> = (0..50_000)
        .map(|bucket| granted(&held, Charge { bucket: BucketId(bucket), ..charge(5, 1) }))
        .collect();
    drop(holds);
    let room = |shard: &Mutex<Shard>| {
        let shard = shard.lock();
        shard.entries.capacity() + shard.due.capacity()
    };
    let kept: usize = held.shards.iter().map(room).sum();
    assert!(kept <= 4 * MIN_CAPACITY * SHARDS, "room for {kept}");
}

/// What a request with this charge holds, as without Redis.
fn granted(held: &Arc<Held>, charge: Charge) -> Holds {
    let charges = [charge];
    let mut buckets = [Bucket { level: held.level(&charge, Share::WHOLE).unwrap(), at: START }];
    let answer = charge::take(&charges, &mut buckets, Share::WHOLE);
    held.hold(&charges, &[rule()], &answer)
}
