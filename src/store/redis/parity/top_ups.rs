//! Top-ups of a quota that are added, used, given back, revoked, and that expire, in random
//! schedules over the ends of periods and changes of the limit: the script and the core in memory
//! agree on each decision, each level, and what is left of each top-up.

use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};

use super::*;
use crate::limit::returned::Returned;
use crate::limit::top_up::{TopUp, TopUpChange};
use crate::store::memory::MemoryStore;

/// What happens, after microseconds.
#[derive(Clone, Debug)]
enum Event {
    /// Requests of this cost, and whether the next call gives back what one took.
    Take {
        cost: u64,
        number: u8,
        is_refunded: bool,
    },
    /// Units that a response costs beyond what was taken.
    Settle(i64),
    Add {
        units: i64,
        for_us: u64,
    },
    /// One of those that were added, by a number.
    Revoke(prop::sample::Index),
    Adjust(Adjustment),
    /// The other limit, after a reload.
    Reload,
}

fn event() -> impl Strategy<Value = Event> {
    let take = (1..5_u64, 1..4_u8, prop::bool::weighted(0.3));
    let take =
        take.prop_map(|(cost, number, is_refunded)| Event::Take { cost, number, is_refunded });
    let add = (prop_oneof![9 => 1..20_000_i64, 1 => Just(MAX_UNITS)], 1..4_000_000_u64);
    let add = add.prop_map(|(units, for_us)| Event::Add { units, for_us });
    let adjustment = prop_oneof![
        1 => Just(Adjustment::Reset),
        2 => (1..9_u64).prop_map(Adjustment::Grant),
        1 => (1..9_u64).prop_map(Adjustment::GrantAbove),
    ];
    prop_oneof![
        14 => take,
        2 => (1..4_000_i64).prop_map(Event::Settle),
        5 => add,
        1 => any::<prop::sample::Index>().prop_map(Event::Revoke),
        1 => adjustment.prop_map(Event::Adjust),
        1 => Just(Event::Reload),
    ]
}

/// The same client in both stores.
struct World<'a> {
    connection: &'a mut Connection,
    memory: MemoryStore,
    charge: Charge,
    limits: [Limit; 2],
    returned: Option<Returned>,
    /// Number of top-ups that were added.
    added: u64,
}

impl World<'_> {
    fn key(&self) -> String {
        script::key(PREFIX, self.charge.bucket, &rules()[0])
    }

    fn run(&mut self, event: &Event, now: u64) {
        match event {
            Event::Take { cost, number, is_refunded } => {
                self.take(*cost, *number, *is_refunded, now);
            }
            Event::Settle(units) => {
                let mut batch = Batch::default();
                batch.settle(self.charge.bucket, self.charge.limit, &rules()[0], *units, PREFIX);
                call(self.connection, &batch, now);
                self.memory.debit(&self.charge, *units, now);
            }
            Event::Add { units, for_us } => {
                self.added += 1;
                let (id, expires_us) = (self.added, now + for_us);
                let one = TopUp { id, units: *units, expires_us };
                self.change(&TopUpChange::Add(one, format!("top-up {id}")), now);
            }
            Event::Revoke(index) => {
                let id = index.index(usize::try_from(self.added).unwrap() + 1) as u64;
                self.change(&TopUpChange::Revoke(id), now);
            }
            Event::Adjust(adjustment) => self.adjust(*adjustment, now),
            Event::Reload => {
                self.limits.swap(0, 1);
                let numbers = self.memory.adopt(&self.limits[..1], now);
                (self.charge.limit, self.charge.limit_index) = (self.limits[0], numbers[0]);
                // Both write the bucket under the new limit: if its period ends before that, the
                // old one counts.
                self.adjust(Adjustment::GiveBack(0), now);
            }
        }
        self.change(&TopUpChange::List, now);
    }

    fn adjust(&mut self, adjustment: Adjustment, now: u64) {
        let charges = [self.charge];
        let call = script::encode_adjust(&charges, adjustment, now, |_| Statement::NONE, false);
        let key = self.key();
        let reply = run_script(self.connection, &[&key], now, (call, Vec::new())).unwrap();
        let here = self.memory.adjust(&charges, adjustment, now);
        let expected = here.into_iter().map(Some).collect();
        assert_eq!(script::read_adjust(&charges, &reply), Ok(expected), "{adjustment:?} at {now}");
    }

    fn take(&mut self, cost: u64, number: u8, is_refunded: bool, now: u64) {
        let limit = self.charge.limit;
        self.charge.cost = cost.min(limit.capacity()) * limit.parts();
        let charges = vec![self.charge];
        let mut batch = Batch::default();
        for _ in 0..number {
            batch.add(&charges, &rules(), PREFIX);
        }
        if let Some(returned) = self.returned.take() {
            batch.give_back(self.charge.bucket, limit, &rules()[0], returned, PREFIX);
            self.memory.give_back(&self.charge, &returned, now);
        }
        let key = self.key();
        let mut script = invocation();
        script.key(&key).arg(now).arg(batch.encode(now));
        script.arg(batch.encode_debts()).arg(batch.encode_returned());
        let reply: Vec<i64> = script.invoke(self.connection).unwrap();
        for answer in batch.read(&reply).unwrap().answers {
            let here = self.memory.take(&charges, now, Share::WHOLE);
            let answer = answer.unwrap();
            assert_eq!(answer.allowed(), here.allowed(), "at {now}");
            assert_eq!(answer.outcomes[0].level, here.outcomes[0].level, "at {now}");
            if answer.allowed() && is_refunded {
                self.returned = Some(Returned::new(&limit, limit.units(self.charge.cost), now));
            }
        }
    }

    /// Changes or reads the top-ups in both.
    fn change(&mut self, change: &TopUpChange, now: u64) {
        let call = (script::encode_top_up(&self.charge, change, now), Vec::new());
        let key = self.key();
        let reply = run_script(self.connection, &[&key], now, call).unwrap();
        let there = script::read_top_up(&self.charge, &reply).unwrap().unwrap();
        let here = self.memory.top_up(&self.charge, change, now);
        assert_eq!(there, here, "{change:?} at {now}");
    }
}

#[test]
fn schedules_with_top_ups_agree() {
    let server = RedisServer::start(&[]);
    let connection = RefCell::new(server.client().get_connection().unwrap());
    let calendar = Calendar::new(Period::Second, "UTC", 1).unwrap();
    let window = |limit| FixedWindow::new(limit, calendar).unwrap();
    let later = prop_oneof![5 => 0..100_000_u64, 2 => 0..700_000_u64, 1 => 0..4_000_000_u64];
    let schedule = prop::collection::vec((later, event()), 1..80);
    for overage in [Overage::Refuse, Overage::Count] {
        let config = Config { cases: 150, failure_persistence: None, ..Config::default() };
        let ran = TestRunner::new(config).run(&schedule, |schedule| {
            let connection = &mut *connection.borrow_mut();
            redis::cmd("FLUSHALL").query::<()>(connection).unwrap();
            let limits = [9, 5].map(|limit| Limit::FixedWindow(window(limit).with(overage, 0)));
            let charge = Charge {
                bucket: BucketId(7),
                rule: 0,
                limit_index: 0,
                limit: limits[0],
                cost: 1,
                mode: Mode::Enforce,
            };
            let memory = MemoryStore::new(1_000, &limits[..1]);
            let returned = None;
            let mut world = World { connection, memory, charge, limits, returned, added: 0 };
            let mut now = 1_800_000_000_000_000;
            for (later_us, event) in &schedule {
                now += later_us;
                world.run(event, now);
            }
            Ok(())
        });
        ran.unwrap();
    }
}
