//! Requests that are settled, refunded and refused, a candidate beside the limit, and bans, in
//! random schedules: the scripts and the core in memory agree on each decision, each level and each
//! ban.

use proptest::prelude::*;
use proptest::test_runner::TestRunner;

use super::*;
use crate::limit::ban::{BanRule, BanState};
use crate::limit::returned::Returned;
use crate::store::bans::about::About;
use crate::store::bans::script::{self as bans, Position, Reply, Update, What};
use crate::store::memory::MemoryStore;

const BAN: BanRule =
    BanRule { after: 6, within_us: 4_000_000, for_us: 1_500_000, grow: 2, max_us: 5_000_000 };

/// A request.
#[derive(Clone, Debug)]
struct Sent {
    /// Microseconds since the previous one.
    later_us: u64,
    cost: u64,
    /// Tokens that the response costs beyond, which the next call settles.
    settled: u64,
    /// Whether the next call gives back what it took.
    is_refunded: bool,
}

fn schedule() -> impl Strategy<Value = Vec<Sent>> {
    let later = prop_oneof![5 => 0..20_000_u64, 2 => 0..400_000_u64, 1 => 0..4_000_000_u64];
    let settled = prop_oneof![3 => Just(0_u64), 1 => 1..8_u64];
    let sent = (later, 1..5_u64, settled, prop::bool::weighted(0.2));
    let sent = sent.prop_map(|(later_us, cost, settled, is_refunded)| Sent {
        later_us,
        cost,
        settled,
        is_refunded,
    });
    prop::collection::vec(sent, 1..60)
}

fn limits() -> [Limit; 6] {
    let calendar = Calendar::new(Period::Second, "UTC", 1).unwrap();
    let period = FixedWindow::new(9, calendar).unwrap();
    [
        Limit::token_bucket(20, 1_000_000, 5).unwrap(),
        Limit::token_bucket(3, 1_000_000, 12).unwrap(),
        Limit::FixedWindow(period),
        Limit::FixedWindow(period.with(Overage::Count, 700)),
        Limit::SlidingWindow(SlidingWindow::new(9, 1_000_000).unwrap()),
        Limit::SlidingWindow(SlidingWindow::new(30, 200_000).unwrap()),
    ]
}

/// A client of the two stores.
struct World<'a> {
    connection: &'a mut Connection,
    memory: MemoryStore,
    charges: Charges,
    state: BanState,
    /// Units to settle, and what to give back, with the next call.
    owed: i64,
    returned: Option<Returned>,
}

impl World<'_> {
    /// Sends a request to both stores. Returns whether it is allowed.
    fn send(&mut self, sent: &Sent, now: u64) -> bool {
        for charge in &mut self.charges {
            charge.cost = sent.cost.min(charge.limit.capacity()) * charge.limit.parts();
        }
        let [own, _] = self.charges[..] else { unreachable!("two charges") };
        let mut batch = Batch::default();
        batch.add(&self.charges, &rules(), PREFIX);
        if self.owed > 0 {
            batch.add_debt(own.bucket, self.owed);
            self.memory.debit(&own, self.owed, now);
        }
        if let Some(returned) = self.returned.take() {
            batch.give_back(own.bucket, own.limit, &rules()[0], returned, PREFIX);
            self.memory.give_back(&own, &returned, now);
        }
        self.owed = 0;
        let mut script = invocation();
        batch.keys().for_each(|key| _ = script.key(key));
        script
            .arg(now)
            .arg(batch.encode(now))
            .arg(batch.encode_debts())
            .arg(batch.encode_returned());
        let reply: Vec<i64> = script.invoke(self.connection).unwrap();
        let answer = batch.read(&reply).unwrap().answers[0].clone().unwrap();
        let here = self.memory.take(&self.charges, now, Share::WHOLE);
        assert_eq!(answer.allowed(), here.allowed(), "{sent:?} at {now}");
        for (charge, outcome) in self.charges.iter().zip(&answer.outcomes) {
            assert_eq!(outcome.level, self.memory.bucket(charge, now).level, "{sent:?} at {now}");
        }
        let units = own.limit.units(own.cost);
        if answer.allowed() {
            self.owed = own.limit.units(sent.settled * own.limit.parts());
            // A window forgets what a debt takes beyond its limit: in memory at once, in the script
            // at the end of the call, so not before tokens that the same call gives back.
            let is_sliding = matches!(own.limit, Limit::SlidingWindow(_));
            let is_refunded = sent.is_refunded && !(is_sliding && self.owed > 0);
            self.returned = is_refunded.then(|| Returned::new(&own.limit, units, now));
        }
        answer.allowed()
    }

    /// Counts a refusal in both, and compares what is left of the ban.
    fn refuse(&mut self, now: u64) {
        if self.state.count(&BAN, 1, now) {
            self.state.begin(&BAN, now);
        }
        let about = About {
            rule: "r0".to_owned(),
            kind: "ip".to_owned(),
            id: "10.0.0.1".to_owned(),
            tenant: None,
            by: None,
            reason: None,
        };
        let what = What::Refusals { number: 1, rule: BAN };
        let update = Update { bucket: self.charges[0].bucket, about: Arc::new(about), what };
        let mut command = redis::cmd("EVAL");
        command.arg(bans::SOURCE).arg(4);
        command.arg(bans::RECORDS).arg(bans::CHANGES).arg(bans::ENDS).arg(update.key());
        let known = Position::default();
        command.arg(now).arg(known.epoch).arg(known.number).arg(9).arg(9);
        command.arg(bans::encode(&[update]));
        let reply = Reply::read(command.query(self.connection).unwrap()).unwrap();
        let left = reply.changes.first().and_then(|change| u64::try_from(change.left_us).ok());
        assert_eq!(left.filter(|left| *left > 0), self.state.left_us(now), "at {now}");
    }
}

#[test]
fn schedules_with_settlements_refunds_bans_and_candidates_agree() {
    let server = RedisServer::start(&[]);
    let candidate = Limit::token_bucket(7, 1_000_000, 4).unwrap();
    let mut banned = 0;
    for limit in limits() {
        let connection = RefCell::new(server.client().get_connection().unwrap());
        let count = RefCell::new(0);
        let mut runner = TestRunner::new(with_cases(60));
        let ran = runner.run(&schedule(), |schedule| {
            let connection = &mut *connection.borrow_mut();
            redis::cmd("FLUSHALL").query::<()>(connection).unwrap();
            let charge = |number: u32, limit, mode| Charge {
                bucket: BucketId(number.into()),
                rule: number,
                limit_index: number,
                limit,
                cost: 1,
                mode,
            };
            let charges = vec![charge(0, limit, Mode::Enforce), charge(1, candidate, Mode::Shadow)];
            let memory = MemoryStore::new(1_000, &[limit, candidate]);
            let state = BanState::default();
            let mut world = World { connection, memory, charges, state, owed: 0, returned: None };
            let mut now = 1_800_000_000_000_000;
            for sent in &schedule {
                now += sent.later_us;
                if world.state.left_us(now).is_some() {
                    *count.borrow_mut() += 1;
                } else if !world.send(sent, now) {
                    world.refuse(now);
                }
            }
            Ok(())
        });
        ran.unwrap();
        banned += count.into_inner();
    }
    assert!(banned > 100, "{banned} requests of banned clients");
}
