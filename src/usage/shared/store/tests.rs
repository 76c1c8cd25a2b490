use std::cell::RefCell;
use std::collections::HashMap;

use proptest::prelude::*;
use proptest::test_runner::TestRunner;

use super::*;
use crate::base::cases::with_cases;
use crate::limit::Limit;
use crate::limit::calendar::{Calendar, Period};
use crate::limit::fixed_window::FixedWindow;
use crate::store::redis::fixture::RedisServer;
use crate::usage::record::{Owner, Place};

const HOUR_US: u64 = 3_600 * MICROS_PER_SECOND;

/// A time long after the tests ran.
const END_US: u64 = 4_000_000_000 * MICROS_PER_SECOND;

const BOUNDS: Bounds = Bounds { keep: Duration::from_secs(100 * 86_400), max_records: 1_000_000 };

fn store(server: &RedisServer) -> Store {
    Store::new(server.settings())
}

fn limit(period: Period) -> Limit {
    let calendar = Calendar::new(period, "Europe/Berlin", 1).unwrap();
    Limit::FixedWindow(FixedWindow::new(100, calendar).unwrap())
}

fn record(rule: &str, bucket: u128, (start_us, end_us): (u64, u64), used: i64) -> Record {
    Record {
        place: Place { end_us, bucket: BucketId(bucket) },
        start_us,
        rule: rule.into(),
        owner: Owner { kind: "key", id: format!("client {bucket}") },
        plan: "free".into(),
        limit: limit(Period::Day),
        used,
        counted_at_us: start_us + 7,
    }
}

fn change(record: Record, answered_at_us: u64) -> Change {
    Change { record, set: None, answered_at_us }
}

fn day(rule: &str, bucket: u128, used: i64) -> Change {
    change(record(rule, bucket, (END_US - 24 * HOUR_US, END_US), used), 5)
}

fn changes(each: impl IntoIterator<Item = Change>) -> Changes {
    each.into_iter().map(|change| (change.record.place, change)).collect()
}

/// A bucket in any of the hashes.
fn spread(number: u128) -> u128 {
    number.wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835)
}

/// Writes everything.
async fn write(store: &Store, each: Vec<Change>, grants: Vec<Grant>) -> Index {
    let mut index = store.index(BOUNDS).await.unwrap();
    // A place is that of one rule.
    for change in each {
        let change = changes([change]);
        let written = store.write(&mut index, change, Vec::new(), BOUNDS, 0).await;
        assert!(written.error.is_none(), "{written:?}");
    }
    let written = store.write(&mut index, Changes::default(), grants, BOUNDS, 0).await;
    assert!(written.error.is_none() && written.without_room == 0, "{written:?}");
    store.index(BOUNDS).await.unwrap()
}

/// All records, in pages of `limit`.
async fn all(store: &Store, limit: usize) -> Vec<Record> {
    let (mut found, mut from) = (Vec::new(), None);
    loop {
        let index = store.index(BOUNDS).await.unwrap();
        let (page, next) = store.read(index, from, |_| true, limit, u64::MAX).await.unwrap();
        assert!(page.len() <= limit);
        found.extend(page);
        from = next;
        if from.is_none() {
            return found;
        }
    }
}

#[tokio::test]
async fn records_are_read_as_they_were_written_by_period_rule_and_bucket() {
    let server = RedisServer::start(&[]);
    let store = store(&server);
    let hour = record("a.b-c", u128::MAX, (END_US - HOUR_US, END_US), 1 << 53);
    let shared = Owner { kind: "shared", id: String::new() };
    let earlier = (END_US - 48 * HOUR_US, END_US - 24 * HOUR_US);
    let each = vec![
        change(Record { owner: shared, ..record("quota", 9, earlier, 3) }, 1),
        day("quota", 1, 5),
        day("quota", spread(2), 7),
        day("each", 1, 0),
        change(Record { limit: limit(Period::Hour), ..hour }, END_US),
    ];
    let mut expected: Vec<Record> = each.iter().map(|change| change.record.clone()).collect();
    expected.sort_by_key(|record| (RulePeriod::of(record), record.place.bucket));
    let index = write(&store, each, Vec::new()).await;
    let mut counts: Vec<u64> = index.values().copied().collect();
    counts.sort_unstable();
    assert_eq!(counts, [1, 1, 1, 2]);
    for limit in [1, 2, 3, 100] {
        assert_eq!(all(&store, limit).await, expected, "{limit}");
    }
}

#[tokio::test]
async fn pages_of_large_periods_are_complete_and_cut_in_time() {
    let server = RedisServer::start(&[]);
    let store = store(&server);
    let mut index = store.index(BOUNDS).await.unwrap();
    let each = changes((0..20_000).map(|number| day("quota", spread(number), 1)));
    let written = store.write(&mut index, each, Vec::new(), BOUNDS, 0).await;
    assert!(written.error.is_none() && written.changes.is_empty(), "{:?}", written.error);
    assert_eq!(store.index(BOUNDS).await.unwrap().into_values().collect::<Vec<_>>(), [20_000]);
    let mut expected: Vec<u128> = (0..20_000).map(spread).collect();
    expected.sort_unstable();
    for limit in [997, 10_000] {
        let found = all(&store, limit).await;
        let found: Vec<u128> = found.iter().map(|record| record.place.bucket.0).collect();
        assert_eq!(found, expected, "{limit}");
    }
    // Without time, a page has one group of hashes, and the next one begins after it.
    let (mut pages, mut found, mut from) = (0, 0, None);
    loop {
        let (page, next) = store.read(index.clone(), from, |_| true, 10_000, 0).await.unwrap();
        (pages, found) = (pages + 1, found + page.len());
        from = next;
        if from.is_none() {
            break;
        }
    }
    assert_eq!((pages, found), (SLICES / CALLS_AT_ONCE, 20_000));
}

#[tokio::test]
async fn grants_of_ended_periods_are_added_once() {
    let server = RedisServer::start(&[]);
    let store = store(&server);
    let place = (END_US - 24 * HOUR_US, END_US);
    let grant = |bucket, units, id| Grant { record: record("quota", bucket, place, 0), units, id };
    let grants = || vec![grant(1, 10, 7), grant(1, 20, 8), grant(2, 5, 7)];
    write(&store, vec![day("quota", 1, 100)], grants()).await;
    // Again, as after a call without a reply.
    write(&store, vec![day("quota", 1, 100), day("quota", 2, 1)], grants()).await;
    let used: Vec<i64> = all(&store, 9).await.iter().map(|record| record.used).collect();
    assert_eq!(used, [130, 6]);
}

#[tokio::test]
async fn known_records_are_written_and_new_ones_refused_when_there_is_no_room() {
    let server = RedisServer::start(&[]);
    let store = store(&server);
    let bounds = Bounds { max_records: 3, ..BOUNDS };
    let mut index = Index::new();
    let mut without_room = Vec::new();
    let hour = (END_US - HOUR_US, END_US);
    for each in [
        vec![day("quota", 1, 1), day("quota", 2, 1)],
        vec![day("quota", 3, 1)],
        vec![day("quota", 3, 2), day("quota", 4, 1), day("quota", spread(5), 1)],
        // Hours have a number of their own.
        vec![change(record("hourly", 6, hour, 1), 1)],
    ] {
        let written = store.write(&mut index, changes(each), Vec::new(), bounds, 0).await;
        assert!(written.error.is_none());
        without_room.push(written.without_room);
    }
    assert_eq!(without_room, [0, 0, 2, 0]);
    let used: Vec<i64> = all(&store, 9).await.iter().map(|record| record.used).collect();
    assert_eq!(used, [1, 1, 2, 1]);
}

/// A key of another program keeps only its own records from being written.
#[tokio::test]
async fn key_of_another_type_keeps_no_other_record_from_being_written() {
    let server = RedisServer::start(&[]);
    let store = store(&server);
    let mut connection = server.client().get_connection().unwrap();
    let key = "t:usage:quota:3999913600-4000000000:00";
    redis::cmd("SET").arg(key).arg("x").query::<()>(&mut connection).unwrap();
    let mut index = Index::new();
    let each = changes((0..=255).map(|slice| day("quota", (slice << 120) + 7, 1)));
    let written = store.write(&mut index, each, Vec::new(), BOUNDS, 0).await;
    assert!(written.error.unwrap().to_string().contains("WRONGTYPE"));
    assert_eq!(written.changes.keys().map(|place| place.bucket.0).collect::<Vec<_>>(), [7]);
    redis::cmd("DEL").arg(key).query::<()>(&mut connection).unwrap();
    assert!(store.write(&mut index, written.changes, Vec::new(), BOUNDS, 0).await.error.is_none());
    assert_eq!(all(&store, 1_000).await.len(), 256);
}

/// The index, as it is read at a time.
async fn index_at(store: &Store, unix_us: u64) -> Index {
    let fields = store.scan(INDEX, 0).await.unwrap().0;
    store.kept(fields, BOUNDS, unix_us).await.unwrap()
}

/// The clock of Redis counts. Its index may have fields of a later version.
#[tokio::test]
async fn periods_that_are_over_by_the_clock_of_redis_leave_the_index() {
    let server = RedisServer::start(&[]);
    let store = store(&server);
    let mut connection = server.client().get_connection().unwrap();
    let periods =
        ["quota:1000000000-1000086400", "quota:3999913600-4000000000", "quota:2:1000000000-x"];
    for period in periods {
        redis::cmd("HSET").arg("t:usage").arg(period).arg(7).exec(&mut connection).unwrap();
    }
    let current = RulePeriod::of_field(periods[1]).unwrap();
    assert_eq!(store.index(BOUNDS).await.unwrap(), [(current, 7)].into());
    let mut left: Vec<String> = redis::cmd("HKEYS").arg("t:usage").query(&mut connection).unwrap();
    left.sort();
    assert_eq!(left, [periods[2], periods[1]]);
}

#[tokio::test]
async fn old_periods_leave_the_index_and_hashes_expire() {
    let server = RedisServer::start(&[]);
    let store = store(&server);
    write(&store, vec![day("quota", 1, 1)], Vec::new()).await;
    let keep_us = micros(BOUNDS.keep);
    assert_eq!(index_at(&store, END_US + keep_us - 1).await.len(), 1);
    let mut connection = server.client().get_connection().unwrap();
    let key = "t:usage:quota:3999913600-4000000000:00";
    let left_ms: u64 = redis::cmd("PTTL").arg(key).query(&mut connection).unwrap();
    let (second, _): (u64, u64) = redis::cmd("TIME").query(&mut connection).unwrap();
    let expires_ms = 1_000 * second + left_ms;
    assert!(expires_ms.abs_diff((END_US + keep_us) / 1_000) <= 2_000, "{expires_ms}");
    assert!(index_at(&store, END_US + keep_us).await.is_empty());
    assert!(store.index(BOUNDS).await.unwrap().is_empty());
}

#[test]
fn malformed_values_are_no_records() {
    let period = RulePeriod { end_us: 2_000_000, start_us: 1_000_000, rule: "quota".into() };
    let field = codec::field(BucketId(7));
    let value = |head: &[u8], count: u8, text: &[u8]| [&[1], head, &[count], text].concat();
    let numbers = [5.0_f64, 1.0, 3.0].map(f64::to_le_bytes).concat();
    let text = codec::text(&record("quota", 7, (1_000_000, 2_000_000), 0));
    let read = |field: &str, value: &[u8]| codec::read(&period, field.as_bytes(), value);
    let whole = value(&numbers, 0, &text);
    assert_eq!(read(&field, &whole).unwrap().used, 5);
    assert!(read("7", &whole).is_none());
    assert!(read(&field.replace('0', "é"), &whole).is_none());
    for length in 0..whole.len() {
        assert!(read(&field, &whole[..length]).is_none(), "{length}");
    }
    assert!(read(&field, &value(&numbers, 9, &text)).is_none());
    for wrong in [f64::NAN, f64::INFINITY, 1e300, 0.5] {
        let numbers = [wrong, 1.0, 3.0].map(f64::to_le_bytes).concat();
        assert!(read(&field, &value(&numbers, 0, &text)).is_none(), "{wrong}");
    }
    for field in
        ["", "quota", "quota:1", "quota:2-1", "quota:1-1", "q:x-2", "q:1-99999999999999999"]
    {
        assert!(RulePeriod::of_field(field).is_none(), "{field}");
    }
    assert_eq!(RulePeriod::of_field(&period.field()), Some(period));
}

/// What gateways write of a bucket: an answer of Redis, (used, time), or a grant, (units, id).
#[derive(Debug, Clone, Copy, PartialEq)]
enum Step {
    Answer(i64, u64),
    Grant(i64, u64),
}

const NOW: u64 = 1_800_000_000_000_000;

/// What the script leaves of these writes at `now`: used, with grants.
fn run(connection: &mut redis::Connection, steps: &[(Step, u64)]) -> i64 {
    let template = record("quota", 7, (0, END_US), 0);
    redis::cmd("DEL").arg("k").query::<()>(connection).unwrap();
    for (step, now) in steps {
        let change = match *step {
            Step::Answer(used, at) => codec::answer(&Record { used, ..template.clone() }, at),
            Step::Grant(units, id) => codec::grant(units, id, 9),
        };
        let mut command = redis::cmd("EVAL");
        command.arg(SCRIPT).arg(1).arg("k").arg(*now).arg(END_US / 1_000).arg(9);
        command.arg(codec::field(BucketId(7))).arg(change).arg(codec::text(&template));
        let reply: (u64, u64) = command.query(connection).unwrap();
        assert_eq!(reply.1, 0);
    }
    let fields: HashMap<Vec<u8>, Vec<u8>> =
        redis::cmd("HGETALL").arg("k").query(connection).unwrap();
    let (field, value) = fields.into_iter().next().unwrap();
    let period = RulePeriod::of(&template);
    codec::read(&period, &field, &value).unwrap().used
}

/// In any order and with repetitions, the latest answer counts, and each grant once.
#[test]
fn order_and_repetition_of_writes_do_not_matter() {
    let server = RedisServer::start(&[]);
    let connection = RefCell::new(server.client().get_connection().unwrap());
    let step = prop_oneof![
        4 => (0..100_i64, 1..9_u64).prop_map(|(used, at)| Step::Answer(used, NOW - at)),
        1 => (1..50_u64).prop_map(|id| Step::Grant(id.cast_signed() * 100, id)),
    ];
    let writes = prop::collection::vec(step, 1..12).prop_flat_map(|steps| {
        let repeated = [steps.clone(), steps.clone()].concat();
        (Just(steps), Just(repeated).prop_shuffle())
    });
    // The clock of the server that answers may be ahead.
    let ahead = prop_oneof![Just(0), Just(30 * MICROS_PER_SECOND)];
    let mut runner = TestRunner::new(with_cases(300));
    let ran = runner.run(&(writes, ahead), |((steps, shuffled), ahead)| {
        let latest = steps.iter().filter_map(|step| match step {
            Step::Answer(used, at) => Some((*at, *used)),
            Step::Grant(..) => None,
        });
        // Of the same time, the larger one is the later one of its call.
        let used = latest.max().map_or(0, |(_, used)| used);
        let grants: HashMap<u64, i64> = steps
            .iter()
            .filter_map(|step| match step {
                Step::Grant(units, id) => Some((*id, *units)),
                Step::Answer(..) => None,
            })
            .collect();
        let expected = used + grants.values().sum::<i64>();
        let by_server = |step| match step {
            Step::Answer(used, at) => Step::Answer(used, at + ahead),
            Step::Grant(..) => step,
        };
        let shuffled: Vec<(Step, u64)> =
            shuffled.into_iter().map(|step| (by_server(step), NOW)).collect();
        prop_assert_eq!(run(&mut connection.borrow_mut(), &shuffled), expected);
        Ok(())
    });
    ran.unwrap();
}

#[test]
fn clock_of_redis_that_goes_back_does_not_freeze_a_record() {
    let server = RedisServer::start(&[]);
    let mut connection = server.client().get_connection().unwrap();
    let second = MICROS_PER_SECOND;
    // (writes: used, time of the answer, time of the write) -> used
    let table = [
        // By up to a second: the larger number, until the clock has caught up.
        (vec![(9, NOW, NOW), (10, NOW - 500_000, NOW - 500_000)], 10),
        (vec![(9, NOW, NOW), (3, NOW - 500_000, NOW - 500_000)], 9),
        (vec![(9, NOW, NOW), (3, NOW - 500_000, NOW - 500_000), (4, NOW + 1, NOW + 1)], 4),
        // By more: what is written next, also after a reset.
        (vec![(9, NOW, NOW), (3, NOW - 9 * second, NOW - 9 * second)], 3),
        // An answer of a server whose clock is ahead.
        (vec![(9, NOW + second, NOW), (10, NOW + 5, NOW + 5)], 10),
        // By far: what is written next, also if the clock is still ahead then, by less.
        (vec![(9, NOW + 3_600 * second, NOW), (3, NOW + 5, NOW + 5)], 3),
        (vec![(9, NOW + 3_600 * second, NOW), (3, NOW + second, NOW + 5)], 3),
    ];
    for (writes, expected) in table {
        let steps: Vec<(Step, u64)> =
            writes.iter().map(|(used, at, now)| (Step::Answer(*used, *at), *now)).collect();
        assert_eq!(run(&mut connection, &steps), expected, "{writes:?}");
    }
}

/// The clock of the master that has the bucket is half a second ahead of that of the record's.
#[test]
fn latest_answer_of_a_server_whose_clock_is_ahead_counts_in_any_order() {
    let server = RedisServer::start(&[]);
    let mut connection = server.client().get_connection().unwrap();
    let ms = |number: u64| NOW + number * 1_000;
    // (writes: used, time of the answer, time of the write) -> used
    let table = [
        (vec![(11, ms(500), ms(10)), (10, ms(450), ms(310))], 11),
        (vec![(10, ms(450), ms(10)), (11, ms(500), ms(310))], 11),
        // A reset between them.
        (vec![(0, ms(500), ms(10)), (10, ms(450), ms(310))], 0),
        (vec![(0, ms(500), ms(10)), (10, ms(450), ms(800))], 0),
    ];
    for (writes, expected) in table {
        let steps: Vec<(Step, u64)> =
            writes.iter().map(|(used, at, now)| (Step::Answer(*used, *at), *now)).collect();
        assert_eq!(run(&mut connection, &steps), expected, "{writes:?}");
    }
}

/// After a change of the plan, a gateway may write later what was answered before.
#[tokio::test]
async fn plan_and_limit_are_those_of_the_latest_answer() {
    let server = RedisServer::start(&[]);
    let store = store(&server);
    let calendar = Calendar::new(Period::Day, "UTC", 1).unwrap();
    let large = Limit::FixedWindow(FixedWindow::new(5_000_000, calendar).unwrap());
    for bucket in [1, 2] {
        let before = day("quota", bucket, 199);
        let Change { record, .. } = day("quota", bucket, 200);
        let after = change(Record { plan: "pro".into(), limit: large, ..record }, 9);
        let each = if bucket == 1 { vec![before, after] } else { vec![after, before] };
        write(&store, each, Vec::new()).await;
    }
    for record in all(&store, 9).await {
        let found = (&*record.plan, record.limit, record.used);
        assert_eq!(found, ("pro", large, 200), "{}", record.place.bucket.0);
    }
}

/// `cargo test --release --lib hundred_thousand_records_in_redis -- --ignored --nocapture`
#[tokio::test]
#[ignore = "a measurement"]
async fn hundred_thousand_records_in_redis() {
    let server = RedisServer::start(&[]);
    let store = store(&server);
    let mut connection = server.client().get_connection().unwrap();
    let mut memory = || -> u64 {
        let info: String = redis::cmd("INFO").arg("memory").query(&mut connection).unwrap();
        let line = info.lines().find_map(|line| line.strip_prefix("used_memory:")).unwrap();
        line.trim().parse().unwrap()
    };
    let (before, count, mut index) = (memory(), 100_000_u128, Index::new());
    let mut took = [0; 2];
    for (round, took) in took.iter_mut().enumerate() {
        let begun = clock::now();
        for first in (0..count).step_by(10_000) {
            let used = i64::try_from(round).unwrap() + 1;
            let at = used.unsigned_abs();
            let each = (first..first + 10_000).map(|number| {
                let Change { record, .. } = day("quota", spread(number), used);
                change(record, at)
            });
            let written = store.write(&mut index, changes(each), Vec::new(), BOUNDS, 0).await;
            assert!(written.error.is_none());
        }
        *took = (clock::now() - begun) / 1_000;
    }
    let bytes = (memory() - before) / 100_000;
    let begun = clock::now();
    assert_eq!(all(&store, 1_000).await.len(), 100_000);
    let read = (clock::now() - begun) / 1_000;
    let stats: String = redis::cmd("INFO").arg("commandstats").query(&mut connection).unwrap();
    let eval = stats.lines().find(|line| line.starts_with("cmdstat_eval:")).unwrap();
    eprintln!(
        "{bytes} bytes a record; {} ms to write, {} ms to count again, {read} ms to read; {eval}",
        took[0], took[1]
    );
}
