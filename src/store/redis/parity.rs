//! `take.lua` in a real server and the core in `limit` agree: any schedule of clock steps, batches,
//! adjustments and peeks gives the same answers, levels and times to live.

mod concurrency;
mod giveback;
mod lapsed;
mod leases;
mod malformed;
mod schedules;
mod top_ups;

use std::cell::RefCell;
use std::collections::HashMap;
use std::sync::{Arc, LazyLock};

use proptest::prelude::*;
use proptest::test_runner::TestRunner;
use redis::{Connection, Script, ScriptInvocation};

use super::fixture::RedisServer;
use super::script::{self, Added, Batch};
use crate::base::cases::with_cases;
use crate::base::now::Now;
use crate::limit::adjust::Adjustment;
use crate::limit::bucket::Bucket;
use crate::limit::calendar::{Calendar, Period};
use crate::limit::charge::{Answer, BucketId, Charge, Charges, Mode, take};
use crate::limit::concurrency::Statement;
use crate::limit::fixed_window::{FixedWindow, Overage};
use crate::limit::reading::{Reading, Times};
use crate::limit::share::Share;
use crate::limit::sliding_window::SlidingWindow;
use crate::limit::stamp_log::StampLog;
use crate::limit::{Limit, MAX_UNITS};
use crate::policy::{Lease, OnFailure};
use crate::store::rule::StoredRule;

const PREFIX: &str = "tollgate:";

/// More than there are checks in a call.
const MAX_GROUP: u8 = 12;

/// One call: change of the clock since the previous one, limits, and checks.
#[derive(Clone, Debug)]
struct Step {
    clock: i64,
    limits: Vec<Limit>,
    checks: Vec<Charges>,
    /// Debts: the bucket, as an index into the charges of all checks, and units.
    owed: Vec<(prop::sample::Index, i64)>,
    /// Applied to all of these buckets after the checks.
    adjustment: Option<Adjustment>,
}

/// A bucket of the core, its limit, and the time at which it was written.
#[derive(Clone)]
struct Kept {
    bucket: Bucket,
    limit: Limit,
    written_at: u64,
    /// Of a sliding window.
    log: StampLog,
}

/// Buckets of the core.
#[derive(Default)]
struct Reference(HashMap<BucketId, Kept>);

impl Reference {
    fn peek(&self, charge: &Charge, now: u64) -> Bucket {
        let limit = &charge.limit;
        if let Some(window) = limit.log() {
            return self.log(charge).bucket(&window, now);
        }
        let kept = self.0.get(&charge.bucket);
        kept.map_or(Bucket::full(limit, Now::unix(now)), |kept| {
            limit.converted(kept.bucket, &kept.limit).refilled(limit, Now::unix(now))
        })
    }

    /// Log of a charge's bucket; empty if it was not written by a sliding window.
    fn log(&self, charge: &Charge) -> StampLog {
        let kept = self.0.get(&charge.bucket).filter(|kept| kept.limit.log().is_some());
        kept.map_or_else(StampLog::default, |kept| kept.log.clone())
    }

    fn reading(&self, charge: &Charge, now: u64) -> Reading {
        let level = self.peek(charge, now).level;
        Reading::new(level, self.times(charge, level, now))
    }

    fn times(&self, charge: &Charge, level: i64, now: u64) -> Times {
        match charge.limit.log() {
            Some(window) => {
                let needed = charge.limit.units(charge.cost);
                self.log(charge).times(&window, level, needed, now)
            }
            None => Times::period(charge.limit.left_us_at(Now::unix(now))),
        }
    }

    /// Writes a bucket after a change of its level.
    fn write(&mut self, charge: &Charge, bucket: Bucket, now: u64) {
        let mut log = self.log(charge);
        if let Some(window) = charge.limit.log() {
            log.record(&window, bucket.level, now);
        }
        let kept = Kept { bucket, limit: charge.limit, written_at: now, log };
        self.0.insert(charge.bucket, kept);
    }

    fn adjust(&mut self, charge: &Charge, adjustment: Adjustment, now: u64) -> (i64, i64) {
        let before = self.peek(charge, now);
        let after = adjustment.apply(before, &charge.limit);
        self.write(charge, after, now);
        (before.level, after.level)
    }

    fn bucket(&mut self, charge: &Charge, now: u64) -> Bucket {
        let limit = &charge.limit;
        let bucket = self.peek(charge, now);
        let Some(kept) = self.0.get(&charge.bucket).cloned() else { return bucket };
        let was = kept.limit;
        let is_full_changed = was.full() != limit.full();
        // The clock went back by more than the slack, or the rule has changed: written even if no
        // tokens are taken.
        let is_written = match (limit, was) {
            (Limit::TokenBucket(_), Limit::TokenBucket(_)) => {
                bucket.at < kept.bucket.at || is_full_changed
            }
            (Limit::FixedWindow(_), Limit::FixedWindow(_)) => {
                now < kept.bucket.at && (bucket.at != kept.bucket.at || is_full_changed)
            }
            (Limit::SlidingWindow(_), Limit::SlidingWindow(_)) => kept.log.is_ahead(now),
            _ => false,
        };
        if is_written {
            self.write(charge, bucket, now);
        }
        bucket
    }

    fn add_debt(&mut self, charge: &Charge, units: i64, now: u64) {
        let bucket = self.bucket(charge, now).less_debt(&charge.limit, units);
        let Some(window) = charge.limit.log() else { return self.write(charge, bucket, now) };
        let mut log = self.log(charge);
        log.settle(&window, units, now);
        let bucket = log.bucket(&window, now);
        let kept = Kept { bucket, limit: charge.limit, written_at: now, log };
        self.0.insert(charge.bucket, kept);
    }

    fn take(&mut self, charges: &Charges, now: u64) -> Answer {
        let mut buckets: Vec<Bucket> =
            charges.iter().map(|charge| self.bucket(charge, now)).collect();
        let answer = take(charges, &mut buckets, Share::WHOLE);
        let answer =
            answer.with_times(|index, outcome| self.times(&charges[index], outcome.level, now));
        if answer.allowed() {
            for ((charge, bucket), outcome) in charges.iter().zip(buckets).zip(&answer.outcomes) {
                if outcome.enough {
                    self.write(charge, bucket, now);
                }
            }
        }
        answer
    }
}

fn rules() -> Vec<StoredRule> {
    let rule = |rule| {
        let name = Arc::from(format!("r{rule}"));
        StoredRule {
            name,
            salt: 0,
            on_failure: OnFailure::Local,
            lease: Lease::Off,
            is_leaky: false,
            ban: None,
        }
    };
    (0..4_u8).map(rule).collect()
}

fn limit() -> impl Strategy<Value = Limit> {
    prop_oneof![2 => token_bucket(), 1 => fixed_window(), 2 => sliding_window()]
}

fn sliding_window() -> impl Strategy<Value = Limit> {
    let limit = prop_oneof![9 => 1..40_u64, 1 => 1..=SlidingWindow::MAX_LIMIT];
    let window_us = prop_oneof![
        4 => 1..2_000_000_u64,
        2 => Just(60_000_000),
        1 => Just(SlidingWindow::MAX_WINDOW_US)
    ];
    (limit, window_us).prop_map(|(limit, window_us)| {
        Limit::SlidingWindow(SlidingWindow::new(limit, window_us).unwrap())
    })
}

fn fixed_window() -> impl Strategy<Value = Limit> {
    let limit = prop_oneof![9 => 1..40_u64, 1 => 1..=MAX_UNITS.unsigned_abs() / FixedWindow::PARTS];
    let calendar = prop_oneof![
        prop::sample::select(&[Period::Second, Period::Minute, Period::Hour][..])
            .prop_map(|period| Calendar::new(period, "UTC", 1)),
        Just(Calendar::new(Period::Day, "Europe/Berlin", 1)),
        (1..=31_u8).prop_map(|anchor| Calendar::new(Period::Month, "America/New_York", anchor)),
    ];
    let overage = prop::sample::select(&[Overage::Refuse, Overage::Refuse, Overage::Count][..]);
    (limit, calendar, overage).prop_map(|(limit, calendar, overage)| {
        let window = FixedWindow::new(limit, calendar.unwrap()).unwrap();
        Limit::FixedWindow(window.with(overage, 0))
    })
}

fn token_bucket() -> impl Strategy<Value = Limit> {
    let usual = (1..50_u64, prop_oneof![Just(1_000_000_u64), Just(60_000_000), 1..5_000_000_u64]);
    let odd = (1..u64::MAX, 1..u64::MAX);
    let rate = prop_oneof![6 => usual, 1 => odd];
    let parts = prop::sample::select(&[1, 1, 2, 25, 1_000][..]);
    (rate, 1..200_u64, any::<bool>(), parts).prop_filter_map(
        "too large",
        |((tokens, period), burst, most, parts)| {
            let limit = match Limit::token_bucket(tokens, period, burst) {
                Ok(limit) if most => {
                    let largest = (MAX_UNITS / limit.units(1)).unsigned_abs();
                    Limit::token_bucket(tokens, period, largest.max(burst))
                }
                other => other,
            };
            let limit = limit.ok()?;
            Some(limit.with_parts(parts).unwrap_or(limit))
        },
    )
}

/// A check over some of the four rules, each with one of three buckets.
fn check() -> impl Strategy<Value = Vec<(u32, u128, u64, bool)>> {
    prop::collection::vec((0..4_u32, 0..3_u128, 1..4_u64, prop::bool::weighted(0.2)), 1..4)
}

fn step() -> impl Strategy<Value = Step> {
    let clock = prop_oneof![
        4 => 0..300_000_i64,
        2 => 0..100_000_000_i64,
        1 => -900_000..0_i64,
        1 => -4_000_000_000..-1_100_000_i64,
        1 => Just(3_600_000_000_i64),
    ];
    let checks = prop::collection::vec(check(), 1..usize::from(MAX_GROUP));
    let units = prop_oneof![4 => 1..30_000_000_i64, 1 => 1..=MAX_UNITS];
    let owed = prop::collection::vec((any::<prop::sample::Index>(), units), 0..3);
    let adjustment = prop_oneof![
        6 => Just(None),
        1 => Just(Some(Adjustment::Reset)),
        2 => (1..100_u64).prop_map(|tokens| Some(Adjustment::Grant(tokens))),
        1 => (1..100_u64).prop_map(|tokens| Some(Adjustment::GrantAbove(tokens))),
    ];
    (clock, prop::collection::vec(limit(), 4), checks, owed, adjustment).prop_map(
        |(clock, limits, checks, owed, adjustment)| {
            let checks = checks.iter().map(|check| charges(check, &limits)).collect();
            Step { clock, limits, checks, owed, adjustment }
        },
    )
}

/// Charges of one request: each rule once, with costs within the burst.
fn charges(check: &[(u32, u128, u64, bool)], limits: &[Limit]) -> Charges {
    let mut charges = Charges::new();
    for (rule, client, cost, shadow) in check {
        if charges.iter().any(|charge| charge.rule == *rule) {
            continue;
        }
        let limit = limits[*rule as usize];
        charges.push(Charge {
            bucket: BucketId(u128::from(*rule) << 8 | client),
            rule: *rule,
            limit_index: *rule,
            limit,
            cost: (*cost).min(limit.capacity()) * limit.parts(),
            mode: if *shadow { Mode::Shadow } else { Mode::Enforce },
        });
    }
    charges
}

fn call(connection: &mut Connection, batch: &Batch, now: u64) -> Vec<i64> {
    try_call(connection, batch, now).unwrap()
}

fn try_call(connection: &mut Connection, batch: &Batch, now: u64) -> redis::RedisResult<Vec<i64>> {
    let keys: Vec<&str> = batch.keys().collect();
    run_script(connection, &keys, now, (batch.encode(now), batch.encode_debts()))
}

fn run_script(
    connection: &mut Connection,
    keys: &[&str],
    now: u64,
    (call, debts): (Vec<u8>, Vec<u8>),
) -> redis::RedisResult<Vec<i64>> {
    let mut script = invocation();
    script.key(keys).arg(now).arg(call);
    if !debts.is_empty() {
        script.arg(debts);
    }
    script.invoke(connection)
}

/// A call of the script by its hash, which is faster than sending the text with each call.
pub(super) fn invocation() -> ScriptInvocation<'static> {
    static SCRIPT: LazyLock<Script> = LazyLock::new(|| Script::new(script::SOURCE));
    SCRIPT.prepare_invoke()
}

/// Adjusts and peeks the buckets of all checks, each once.
fn adjust_and_peek(
    connection: &mut Connection,
    reference: &mut Reference,
    (step, checks): (&Step, &[Charges]),
    now: u64,
) {
    let mut charges: Charges = checks.iter().flatten().copied().collect();
    charges.sort_by_key(|charge| charge.bucket);
    charges.dedup_by_key(|charge| charge.bucket);
    let key = |charge: &Charge| script::key(PREFIX, charge.bucket, &rules()[charge.rule as usize]);
    let keys: Vec<String> = charges.iter().map(key).collect();
    let keys: Vec<&str> = keys.iter().map(String::as_str).collect();
    if let Some(adjustment) = step.adjustment {
        let call = script::encode_adjust(&charges, adjustment, now, |_| Statement::NONE, false);
        let reply = run_script(connection, &keys, now, (call, Vec::new())).unwrap();
        let expected: Vec<Option<(i64, i64)>> =
            charges.iter().map(|charge| Some(reference.adjust(charge, adjustment, now))).collect();
        assert_eq!(script::read_adjust(&charges, &reply), Ok(expected), "{adjustment:?} at {now}");
    }
    let call = script::encode_peek(&charges, now);
    let reply = run_script(connection, &keys, now, (call, Vec::new())).unwrap();
    let expected: Vec<Option<Reading>> =
        charges.iter().map(|charge| Some(reference.reading(charge, now))).collect();
    assert_eq!(script::read_peek(&charges, &reply), Ok(expected), "peek at {now}");
}

/// Order in which a batch decides its checks: group by group.
fn in_groups(checks: &[Charges]) -> Vec<usize> {
    let first = |check: &Charges| checks.iter().position(|other| other == check).unwrap();
    let mut order: Vec<usize> = (0..checks.len()).collect();
    order.sort_by_key(|index| (first(&checks[*index]), *index));
    order
}

fn run(connection: &mut Connection, steps: &[Step], limits_change: bool) {
    redis::cmd("FLUSHALL").query::<()>(connection).unwrap();
    let mut reference = Reference::default();
    let mut now = 10_000_000_000_u64;
    let first_limits = &steps[0].limits;
    for step in steps {
        now = now.saturating_add_signed(step.clock);
        let checks: Vec<Charges> = step
            .checks
            .iter()
            .map(|check| {
                let mut check = check.clone();
                if !limits_change {
                    for charge in &mut check {
                        let tokens = charge.cost / charge.limit.parts();
                        charge.limit = first_limits[charge.rule as usize];
                        charge.cost = tokens.min(charge.limit.capacity()) * charge.limit.parts();
                    }
                }
                check
            })
            .collect();
        let mut batch = Batch::default();
        for check in &checks {
            assert_eq!(batch.add(check, &rules(), PREFIX), Added::In);
        }
        let all: Vec<Charge> = checks.iter().flatten().copied().collect();
        for (at, units) in &step.owed {
            let charge = at.get(&all);
            batch.add_debt(charge.bucket, *units);
            reference.add_debt(charge, *units, now);
        }
        let reply = call(connection, &batch, now);
        let answers = batch.read(&reply).unwrap().answers;
        for index in in_groups(&checks) {
            let check = &checks[index];
            let expected = above_lowest(reference.take(check, now), check);
            let answer = answers[index].clone().map(|answer| above_lowest(answer, check));
            assert_eq!(answer, Some(expected), "check {index} at {now}");
        }
        adjust_and_peek(connection, &mut reference, (step, &checks), now);
        compare_stored(connection, &reference, &checks);
    }
}

/// The answer with the lowest level wherever its group may have reached it. The script returns the
/// level after the last request of a group. If a window counts what exceeds it, requests are
/// allowed at the lowest level, too, and those before the last one had less than this level shows.
fn above_lowest(mut answer: Answer, check: &[Charge]) -> Answer {
    for (charge, outcome) in check.iter().zip(&mut answer.outcomes) {
        let (units, lowest) = (charge.limit.units(charge.cost), charge.limit.lowest());
        let of_group = units.saturating_mul(i64::from(MAX_GROUP));
        if charge.is_granted_at(lowest, units) && outcome.level < lowest.saturating_add(of_group) {
            outcome.level = lowest;
        }
    }
    answer
}

/// Compares the stored buckets and their times to live with the reference.
fn compare_stored(connection: &mut Connection, reference: &Reference, checks: &[Charges]) {
    for charge in checks.iter().flatten() {
        let key = script::key(PREFIX, charge.bucket, &rules()[charge.rule as usize]);
        let stored: Option<Vec<u8>> = redis::cmd("GET").arg(&key).query(connection).unwrap();
        let kept = reference.0.get(&charge.bucket);
        assert_eq!(stored.is_some(), kept.is_some(), "{key}");
        let (Some(stored), Some(kept)) = (stored, kept) else { continue };
        let Kept { bucket, limit, written_at, log } = kept;
        let left: u64 = redis::cmd("PTTL").arg(&key).query(connection).unwrap();
        if let Some(window) = limit.log() {
            assert_eq!(StampLog::decode(&stored), *log, "{key}");
            // At most eight times what is in use, and eight stamps.
            let slots = (stored.len() - 40) / 8;
            assert!(slots <= (8 * log.stamps().len()).max(8), "{key}: {slots} slots");
            let newest = log.stamps().last();
            let until_left = newest.map_or(0, |at| {
                (at - written_at.cast_signed() + window.window_us().cast_signed()).cast_unsigned()
            });
            let expected = until_left.div_ceil(1_000) + 1_000;
            assert!(left <= expected + 1 && left + 20_000 > expected, "{left} of {expected} ms");
            continue;
        }
        let number = |at: usize| f64::from_le_bytes(stored[at..at + 8].try_into().unwrap());
        #[allow(clippy::cast_possible_truncation)]
        let stored = [number(0) as i64, number(8) as i64, number(16) as i64];
        let (mark, until_full) = match limit {
            Limit::TokenBucket(limit) => {
                (limit.full(), limit.time_to_add_us(limit.full() - bucket.level))
            }
            Limit::FixedWindow(limit) => (-limit.full(), bucket.at - written_at),
            Limit::SlidingWindow(_) | Limit::Concurrency(_) => continue,
        };
        assert_eq!(stored, [bucket.level, bucket.at.cast_signed(), mark], "{key}");
        let expected = until_full.div_ceil(1_000) + 1_000;
        // At least until full, less the time that has passed since.
        assert!(left <= expected + 1 && left + 20_000 > expected, "{left} of {expected} ms");
    }
}

fn cases() -> ProptestConfig {
    ProptestConfig { failure_persistence: None, ..with_cases(300) }
}

#[test]
fn script_and_core_agree_on_any_schedule() {
    let server = RedisServer::start(&[]);
    let connection = RefCell::new(server.client().get_connection().unwrap());
    TestRunner::new(cases())
        .run(&prop::collection::vec(step(), 1..12), |steps| {
            run(&mut connection.borrow_mut(), &steps, false);
            Ok(())
        })
        .unwrap();
}

#[test]
fn script_and_core_keep_the_same_fraction_under_a_changed_limit() {
    let server = RedisServer::start(&[]);
    let connection = RefCell::new(server.client().get_connection().unwrap());
    TestRunner::new(cases())
        .run(&prop::collection::vec(step(), 2..8), |steps| {
            run(&mut connection.borrow_mut(), &steps, true);
            Ok(())
        })
        .unwrap();
}

/// Any stored value, read by a gateway whose clock is right or wrong.
#[test]
fn script_and_core_read_the_same_window_with_any_clock() {
    let server = RedisServer::start(&[]);
    let connection = RefCell::new(server.client().get_connection().unwrap());
    let number = prop_oneof![
        4 => (-50_000..50_000_i32).prop_map(f64::from),
        1 => any::<f64>(),
        1 => Just(0.5),
    ];
    let end = prop_oneof![
        4 => 0..8_000_i64,
        1 => -10_000_000_000..10_000_000_000_i64,
    ];
    let skew = prop_oneof![2 => Just(0), 2 => -9_000..9_000_i64, 1 => -90_000_000..90_000_000_i64];
    let case = (fixed_window(), (number.clone(), end, number), skew, 0..4_000_u64);
    TestRunner::new(cases())
        .run(&case, |(limit, (level, end, mark), skew, at)| {
            let Limit::FixedWindow(window) = limit else { return Ok(()) };
            let mut connection = connection.borrow_mut();
            // Around an hour and a day: times are in milliseconds.
            let now = 1_774_738_800_000_000 + (at * 1_000) - 2_000_000;
            let callers_now = now.saturating_add_signed(skew * 1_000);
            // Half of the ends are ends of periods.
            let stored_at = now.saturating_add_signed(end * 1_000);
            let ends = [stored_at, window.calendar().bounds(stored_at).end_us];
            for stored_end in ends {
                #[allow(clippy::cast_precision_loss)]
                let numbers = [level, stored_end as f64, mark];
                let stored: Vec<u8> = numbers.iter().flat_map(|one| one.to_le_bytes()).collect();
                let check = charges(&[(0, 1, 1, false)], &[limit]);
                let key = script::key(PREFIX, check[0].bucket, &rules()[0]);
                redis::cmd("SET").arg(&key).arg(&stored).query::<()>(&mut *connection).unwrap();
                let call = script::encode_peek(&check, callers_now);
                let reply = run_script(&mut connection, &[&key], now, (call, Vec::new())).unwrap();
                let bounds = window.calendar().bounds(callers_now);
                let expected = window.decode(&stored, bounds, now);
                let level = script::read_peek(&check, &reply).unwrap()[0].map(|read| read.level);
                prop_assert_eq!(level, Some(expected.level));
                // A take shows the end of the period.
                let mut batch = Batch::default();
                batch.add(&check, &rules(), PREFIX);
                let call = (batch.encode(callers_now), Vec::new());
                run_script(&mut connection, &[&key], now, call).unwrap();
                if expected.level >= limit.units(check[0].cost) {
                    let kept: Vec<u8> =
                        redis::cmd("GET").arg(&key).query(&mut *connection).unwrap();
                    let end = f64::from_le_bytes(kept[8..16].try_into().unwrap());
                    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
                    let end = end as u64;
                    prop_assert_eq!(end, expected.at);
                }
            }
            Ok(())
        })
        .unwrap();
}
