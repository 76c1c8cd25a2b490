//! `bans.lua` in a real server and the core in `limit::ban` agree: any schedule of refusals, bans
//! by operators and clock steps, by two gateways, gives the same bans.

use std::cell::RefCell;
use std::collections::HashMap;
use std::sync::Arc;

use proptest::prelude::*;
use proptest::test_runner::TestRunner;
use redis::{Connection, Value};

use super::about::About;
use super::script::{self, CHANGES, Changed, ENDS, Position, RECORDS, Reply, Update, What};
use crate::base::cases::with_cases;
use crate::base::duration::MICROS_PER_SECOND;
use crate::limit::ban::{BanRule, BanState};
use crate::limit::charge::BucketId;
use crate::store::redis::fixture::RedisServer;

const DAY_US: u64 = 86_400 * MICROS_PER_SECOND;

/// Most records: far more than there are clients.
const MOST: u64 = 1_000;

/// One call of one of two gateways.
#[derive(Debug, Clone)]
struct Step {
    clock: i64,
    gateway: usize,
    updates: Vec<(u128, What)>,
}

/// A client of the core.
#[derive(Debug, Clone, Copy, Default)]
struct Client {
    state: BanState,
    forgotten_at: u64,
}

#[derive(Debug, Default)]
struct Reference(HashMap<u128, Client>);

impl Reference {
    fn apply(&mut self, client: u128, what: What, now: u64) {
        let client = self.0.entry(client).or_default();
        // A record that is forgotten is removed by the next call, which reads it once more.
        match what {
            What::Refusals { number, rule } => {
                if client.state.count(&rule, number, now) {
                    client.state.begin(&rule, now);
                    client.forgotten_at = client.state.ends_at + rule.max_us;
                }
            }
            What::Restore { left_us, number, max_us } => {
                if now + left_us > client.state.ends_at {
                    client.state.bans = client.state.bans.max(number);
                    client.state.ends_at = now + left_us;
                    client.forgotten_at = now + left_us + max_us;
                }
            }
            What::Set { left_us, max_us } => {
                let bans = client.state.bans.max(1);
                client.state.lift();
                client.state.bans = bans;
                client.state.ends_at = now + left_us;
                client.forgotten_at = now + left_us + max_us;
            }
            What::Lift => {
                client.state.lift();
                client.state.ends_at = now;
                client.forgotten_at = now + DAY_US;
            }
        }
    }
}

fn rule() -> impl Strategy<Value = BanRule> {
    let time = |most: u64| 10..most * MICROS_PER_SECOND;
    (1..30_u32, time(100), time(300), 1..4_u32, time(900)).prop_map(
        |(after, within_us, for_us, grow, max_us)| BanRule {
            after,
            within_us,
            for_us,
            grow,
            max_us: max_us.max(for_us),
        },
    )
}

fn what(rule: BanRule) -> impl Strategy<Value = What> {
    let max_us = rule.max_us;
    prop_oneof![
        12 => (1..12_u32).prop_map(move |number| What::Refusals { number, rule }),
        1 => (1..100_000_000_u64, 1..5_u32)
            .prop_map(move |(left_us, number)| What::Restore { left_us, number, max_us }),
        1 => (1..100_000_000_u64).prop_map(move |left_us| What::Set { left_us, max_us }),
        1 => Just(What::Lift),
    ]
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    rule().prop_flat_map(|rule| {
        let clock = prop_oneof![
            6 => 0..3_000_000_i64,
            3 => 0..60_000_000_i64,
            1 => 0..2_000_000_000_i64,
            1 => -2_000_000..0_i64,
        ];
        let updates = prop::collection::vec((0..4_u128, what(rule)), 0..6);
        let step = (clock, 0..2_usize, updates).prop_map(|(clock, gateway, updates)| Step {
            clock,
            gateway,
            updates,
        });
        prop::collection::vec(step, 1..40)
    })
}

fn about() -> Arc<About> {
    let text = |text: &str| text.to_owned();
    Arc::new(About {
        rule: text("r"),
        kind: text("ip"),
        id: text("10.0.0.1"),
        tenant: None,
        by: None,
        reason: Some(text("\"quoted\" \u{fc}")),
    })
}

/// Calls the script as a gateway would.
fn call(
    redis: &mut Connection,
    updates: &[(u128, What)],
    position: Position,
    now: u64,
    most: (usize, u64),
) -> Reply {
    let update = |(client, what): &(u128, What)| Update {
        bucket: BucketId(*client),
        about: about(),
        what: *what,
    };
    let updates: Vec<Update> = updates.iter().map(update).collect();
    let mut command = redis::cmd("EVAL");
    command.arg(script::SOURCE).arg(3 + updates.len()).arg(RECORDS).arg(CHANGES).arg(ENDS);
    for update in &updates {
        command.arg(update.key());
    }
    command.arg(now).arg(position.epoch).arg(position.number).arg(most.0).arg(most.1);
    command.arg(script::encode(&updates));
    Reply::read(command.query::<Value>(redis).unwrap()).unwrap()
}

/// What a gateway knows by the replies that it got.
#[derive(Default)]
struct Gateway {
    position: Position,
    /// End and number of bans by client.
    known: HashMap<u128, (u64, u32)>,
}

impl Gateway {
    fn call(&mut self, redis: &mut Connection, updates: &[(u128, What)], now: u64) {
        let mut updates = updates;
        loop {
            let reply = call(redis, updates, self.position, now, (3, MOST));
            updates = &[];
            self.position = reply.position;
            for Changed { bucket, left_us, number, about, .. } in reply.changes {
                assert_eq!(about, *self::about());
                self.known.insert(bucket.0, (now.saturating_add_signed(left_us), number));
            }
            if !reply.has_more {
                return;
            }
        }
    }
}

#[test]
fn script_and_core_agree_on_any_schedule_of_refusals_and_bans() {
    let server = RedisServer::start(&[]);
    let redis = RefCell::new(server.client().get_connection().unwrap());
    let mut runner = TestRunner::new(with_cases(96));
    let result = runner.run(&steps(), |steps| {
        let redis = &mut *redis.borrow_mut();
        redis::cmd("FLUSHALL").query::<()>(redis).unwrap();
        let (mut gateways, mut reference) =
            ([Gateway::default(), Gateway::default()], Reference::default());
        let mut now = 1_000_000 * MICROS_PER_SECOND;
        for Step { clock, gateway, updates } in steps {
            now = now.saturating_add_signed(clock);
            gateways[gateway].call(redis, &updates, now);
            for (client, what) in updates {
                reference.apply(client, what, now);
            }
            // Both know all bans once they have asked.
            gateways[1 - gateway].call(redis, &[], now);
            for (client, state) in &reference.0 {
                let expected = state.state.left_us(now).map(|left| (now + left, state.state.bans));
                for gateway in &gateways {
                    let known = gateway.known.get(client).copied();
                    prop_assert_eq!(known.filter(|(ends, _)| *ends > now), expected);
                }
            }
            // The script forgets a record, and with it how many bans there were.
            reference.0.retain(|_, client| {
                if client.forgotten_at > 0 && now / 1_000 > client.forgotten_at / 1_000 {
                    client.state.bans = 0;
                    client.state.ends_at = 0;
                }
                true
            });
        }
        Ok(())
    });
    result.unwrap();
}

/// A gateway that was away for long, or whose Redis has lost its records, learns all of them.
#[test]
fn parity_of_positions_after_the_records_were_lost() {
    let server = RedisServer::start(&[]);
    let redis = &mut server.client().get_connection().unwrap();
    let ban = What::Set { left_us: 60 * MICROS_PER_SECOND, max_us: DAY_US };
    let now = 5_000 * MICROS_PER_SECOND;
    let mut gateway = Gateway::default();
    gateway.call(redis, &[(1, ban), (2, ban), (3, ban), (4, ban), (5, What::Lift)], now);
    assert_eq!(gateway.known.len(), 5);
    assert_eq!(gateway.position.number, 5);
    let idle = call(redis, &[], gateway.position, now, (100, MOST));
    assert!(!idle.is_other && idle.changes.is_empty());
    redis::cmd("FLUSHALL").query::<()>(redis).unwrap();
    let other = call(redis, &[(7, ban)], gateway.position, now + 1, (100, MOST));
    assert!(other.is_other);
    assert_eq!((other.position.number, other.changes.len()), (1, 1));
    // The same epoch, but earlier: a replica that lacks the last changes took over.
    let late = Position { number: 9, ..other.position };
    let after = call(redis, &[], late, now + 2, (100, MOST));
    assert!(after.is_other);
    // So does every other gateway notice, also one for which there are as many changes again.
    assert!(call(redis, &[], other.position, now + 3, (100, MOST)).is_other);
    assert!(!call(redis, &[], after.position, now + 3, (100, MOST)).is_other);
}

#[test]
fn parity_of_records_is_bounded_and_they_are_forgotten() {
    let server = RedisServer::start(&[]);
    let redis = &mut server.client().get_connection().unwrap();
    let ban = |left_us| What::Set { left_us, max_us: MICROS_PER_SECOND };
    let now = 5_000 * MICROS_PER_SECOND;
    let updates: Vec<(u128, What)> =
        (0..100_u64).map(|client| (client.into(), ban((client + 1) * MICROS_PER_SECOND))).collect();
    call(redis, &updates, Position::default(), now, (10, 60));
    let all = call(redis, &[], Position::default(), now, (1_000, 60));
    let mut left: Vec<u128> = all.changes.iter().map(|change| change.bucket.0).collect();
    left.sort_unstable();
    assert_eq!(left, (40..100).collect::<Vec<u128>>());
    let later = now + 110 * MICROS_PER_SECOND;
    call(redis, &[], Position::default(), later, (10, 60));
    let none = call(redis, &[], Position::default(), later, (10, 60));
    assert!(none.changes.is_empty());
    let fields: Vec<String> = redis::cmd("HKEYS").arg(RECORDS).query(redis).unwrap();
    assert_eq!(fields.len(), 2, "{fields:?}");
    for set in [CHANGES, ENDS] {
        assert_eq!(redis::cmd("ZCARD").arg(set).query::<u64>(redis).unwrap(), 0);
    }
}
