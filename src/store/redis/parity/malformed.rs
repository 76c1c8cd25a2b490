//! Invalid values in Redis, and clocks that jump.

use std::cell::RefCell;

use proptest::prelude::*;
use proptest::test_runner::TestRunner;

use super::{PREFIX, call, cases, charges, rules, try_call};
use crate::limit::Limit;
use crate::limit::calendar::{Calendar, Period};
use crate::limit::charge::Answer;
use crate::limit::fixed_window::FixedWindow;
use crate::limit::reading::Reading;
use crate::limit::sliding_window::SlidingWindow;
use crate::limit::stamp_log::StampLog;
use crate::store::redis::class::{ErrorClass, classify};
use crate::store::redis::fixture::RedisServer;
use crate::store::redis::script::{self, Added, Batch};

/// For any stored value, the script does not fail and grants at most a full bucket. Unless the
/// value says that an operator has granted more.
#[test]
fn row_14_no_stored_value_breaks_the_script() {
    let server = RedisServer::start(&[]);
    let connection = RefCell::new(server.client().get_connection().unwrap());
    let number = prop_oneof![
        Just(f64::NAN),
        Just(f64::INFINITY),
        Just(f64::NEG_INFINITY),
        Just(-1.0),
        Just(0.0),
        Just(1e308),
        Just(9.1e15),
        Just(0.5),
        any::<f64>(),
        (0..10_000_000_i32).prop_map(f64::from),
    ];
    let bucket = [number.clone(), number.clone(), number]
        .prop_map(|numbers| numbers.iter().flat_map(|number| number.to_le_bytes()).collect());
    let log = (prop::collection::vec(log_number(), 5..14), 0..16_usize).prop_map(|(log, cut)| {
        let bytes: Vec<u8> = log.iter().flat_map(|number| number.to_le_bytes()).collect();
        bytes[..bytes.len() - cut].to_vec()
    });
    let value = prop_oneof![bucket, log, prop::collection::vec(any::<u8>(), 0..90)];
    let calendar = Calendar::new(Period::Day, "UTC", 1).unwrap();
    let window = FixedWindow::new(5, calendar).unwrap();
    let sliding = Limit::SlidingWindow(SlidingWindow::new(5, 1_000_000).unwrap());
    let limits =
        [Limit::token_bucket(10, 1_000_000, 5).unwrap(), Limit::FixedWindow(window), sliding];
    let limit = prop::sample::select(limits.to_vec());
    TestRunner::new(cases())
        .run(&(value, 0..20_000_000_000_u64, limit), |(value, now, limit): (Vec<u8>, u64, _)| {
            prop_assume!(!(limit.calendar().is_some() && value.len() == 25));
            let check = charges(&[(0, 1, 1, false)], &[limit]);
            let mut connection = connection.borrow_mut();
            let key = script::key(PREFIX, check[0].bucket, &rules()[0]);
            redis::cmd("SET").arg(&key).arg(value).query::<()>(&mut *connection).unwrap();
            let mut batch = Batch::default();
            (0..8).for_each(|_| assert_eq!(batch.add(&check, &rules(), PREFIX), Added::In));
            let reply = call(&mut connection, &batch, now);
            let answers = batch.read(&reply).unwrap().answers;
            let passed = answers.iter().flatten().filter(|answer| answer.allowed()).count();
            prop_assert!(passed <= 5);
            prop_assert!(answers.iter().flatten().all(|a| a.outcomes[0].level <= limit.full()));
            Ok(())
        })
        .unwrap();
}

/// The full level is an integer. Rounding it could make the level lower than any valid one.
#[test]
fn row_14_bucket_with_a_fractional_full_level_counts_as_missing() {
    let server = RedisServer::start(&[]);
    let mut connection = server.client().get_connection().unwrap();
    let limit = Limit::token_bucket(10, 1_000_000, 5).unwrap();
    let check = charges(&[(0, 1, 1, false)], &[limit]);
    let key = script::key(PREFIX, check[0].bucket, &rules()[0]);
    let mut batch = Batch::default();
    assert_eq!(batch.add(&check, &rules(), PREFIX), Added::In);
    // (level, level of a full bucket)
    for (level, full) in [(-1_999.5, 1.999_9), (0.0, 1.5), (0.0, 500_000.5)] {
        let kept: Vec<u8> = [level, 1e6, full].iter().flat_map(|n: &f64| n.to_le_bytes()).collect();
        redis::cmd("SET").arg(&key).arg(&kept).query::<()>(&mut connection).unwrap();
        let reply = batch.read(&call(&mut connection, &batch, 1_000_000));
        let answer = reply.map(|reply| reply.answers[0].clone());
        let level = answer.map(|answer| answer.map(|answer| answer.outcomes[0].level));
        assert_eq!(level, Ok(Some(400_000)), "{level:?} of {full}");
    }
}

#[test]
fn row_13_key_of_another_type_affects_only_its_bucket() {
    let server = RedisServer::start(&[]);
    let mut connection = server.client().get_connection().unwrap();
    let limit = Limit::token_bucket(10, 1_000_000, 5).unwrap();
    let [bad, good] = [1, 2].map(|client| charges(&[(0, client, 1, false)], &[limit]));
    let both = charges(&[(0, 2, 1, false), (1, 2, 1, false)], &[limit, limit]);
    let shadow = charges(&[(1, 2, 1, false), (0, 1, 1, true)], &[limit, limit]);
    let key = script::key(PREFIX, bad[0].bucket, &rules()[0]);
    redis::cmd("LPUSH").arg(&key).arg("x").query::<()>(&mut connection).unwrap();
    let mut batch = Batch::default();
    for check in [&bad, &good, &both, &shadow] {
        assert_eq!(batch.add(check, &rules(), PREFIX), Added::In);
    }
    let reply = call(&mut connection, &batch, 1_000_000);
    let answers = batch.read(&reply).unwrap().answers;
    assert_eq!(answers[0], None);
    let allowed: Vec<bool> = answers.iter().flatten().map(Answer::allowed).collect();
    assert_eq!(allowed, [true, true, true]);
    assert_eq!(answers[2].as_ref().unwrap().outcomes[0].level, 300_000);
}

const HOUR: u64 = 3_600_000_000;

/// A clock that jumps forward fills a bucket at most. One that jumps back neither takes tokens nor
/// keeps the bucket from refilling.
#[test]
fn row_24_clock_jump_does_not_block_a_client() {
    let server = RedisServer::start(&[]);
    let mut connection = server.client().get_connection().unwrap();
    let limit = Limit::token_bucket(1, 1_000_000, 5).unwrap();
    let check = charges(&[(0, 1, 1, false)], &[limit]);
    let mut passed = |now: u64, sent: usize| {
        let mut batch = Batch::default();
        (0..sent).for_each(|_| assert_eq!(batch.add(&check, &rules(), PREFIX), Added::In));
        let answers = batch.read(&call(&mut connection, &batch, now)).unwrap().answers;
        answers.iter().flatten().filter(|answer| answer.allowed()).count()
    };
    assert_eq!(passed(2 * HOUR, 9), 5, "a full bucket");
    assert_eq!(passed(3 * HOUR, 9), 5, "an hour forward: a full bucket, no more");
    assert_eq!(passed(2 * HOUR, 9), 0, "an hour back: nothing is given");
    assert_eq!(passed(2 * HOUR + 1_000_000, 9), 1, "and a second later the bucket fills");
    assert_eq!(passed(2 * HOUR + 3_000_000, 9), 2);
}

/// Without the right to read or to write there is no bucket that cannot be read: the call fails.
#[test]
fn script_fails_without_the_permission_to_read_or_write() {
    let server = RedisServer::start(&[]);
    let mut connection = server.client().get_connection().unwrap();
    let limit = Limit::token_bucket(10, 1_000_000, 5).unwrap();
    let mut batch = Batch::default();
    assert_eq!(batch.add(&charges(&[(0, 1, 1, false)], &[limit]), &rules(), PREFIX), Added::In);
    for right in ["get", "set"] {
        let mut set_right = |sign: &str| {
            let mut command = redis::cmd("ACL");
            command.arg("SETUSER").arg("default").arg(format!("{sign}{right}"));
            command.query::<()>(&mut connection).unwrap();
        };
        set_right("-");
        let mut other = server.client().get_connection().unwrap();
        let error = try_call(&mut other, &batch, 1_000_000).unwrap_err();
        assert_eq!(classify(&error), ErrorClass::NoPermission, "{right}: {error}");
        set_right("+");
        assert!(try_call(&mut other, &batch, 1_000_000).is_ok(), "{right}");
    }
}

/// The window is then written as a whole.
#[test]
fn row_16_sliding_windows_are_exact_without_the_right_to_write_parts() {
    let server = RedisServer::start(&[]);
    let mut admin = server.client().get_connection().unwrap();
    let mut user = server.client().get_connection().unwrap();
    let mut set_rights = |rights: &[&str]| {
        let mut command = redis::cmd("ACL");
        command.arg("SETUSER").arg("default").arg(rights).query::<()>(&mut admin).unwrap();
    };
    let limit = Limit::SlidingWindow(SlidingWindow::new(100, 1_000_000).unwrap());
    for (client, missing) in
        [&["-setrange"][..], &["-pexpire"], &["-setrange", "-pexpire"], &[]].into_iter().enumerate()
    {
        set_rights(missing);
        let mut window = vec![];
        for turn in 0..60_usize {
            let now = 10_000_000 + turn as u64 * 33_333;
            window.retain(|at| at + 1_000_000 > now);
            let mut batch = Batch::default();
            let check = charges(&[(0, client as u128, 1, false)], &[limit]);
            (0..=turn % 9).for_each(|_| assert_eq!(batch.add(&check, &rules(), PREFIX), Added::In));
            let reply = batch.read(&call(&mut user, &batch, now)).unwrap();
            assert!(!reply.lacks_right && reply.unreadable.is_empty());
            let passed = reply.answers.iter().flatten().filter(|answer| answer.allowed()).count();
            let room = 100 - window.len();
            assert_eq!(passed, room.min(1 + turn % 9), "turn {turn} {missing:?}");
            window.extend(std::iter::repeat_n(now, passed));
        }
        set_rights(&["+setrange", "+pexpire"]);
    }
}

/// Other buckets of the call are decided in Redis.
#[test]
fn sliding_window_without_the_right_to_read_it_is_unreadable() {
    let server = RedisServer::start(&[]);
    let mut connection = server.client().get_connection().unwrap();
    let window = Limit::SlidingWindow(SlidingWindow::new(5, 1_000_000).unwrap());
    let bucket = Limit::token_bucket(10, 1_000_000, 5).unwrap();
    let mut rights = redis::cmd("ACL");
    rights.arg("SETUSER").arg("default").arg("-getrange").query::<()>(&mut connection).unwrap();
    let limits = [window, bucket];
    let mut batch = Batch::default();
    for check in [
        charges(&[(0, 1, 1, false)], &limits),
        charges(&[(1, 1, 1, false)], &limits),
        charges(&[(0, 1, 1, false), (1, 1, 1, false)], &limits),
    ] {
        assert_eq!(batch.add(&check, &rules(), PREFIX), Added::In);
    }
    let reply = batch.read(&call(&mut connection, &batch, 1_000_000)).unwrap();
    let allowed: Vec<_> =
        reply.answers.iter().map(|answer| answer.as_ref().map(Answer::allowed)).collect();
    assert_eq!(allowed, [None, Some(true), None]);
    assert!(reply.lacks_right);
}

/// A number of a log: a count, a time, or one that no gateway writes.
fn log_number() -> impl Strategy<Value = f64> {
    prop_oneof![
        4 => (-9..9_i32).prop_map(f64::from),
        2 => (0..2_000_000_000_i32).prop_map(|us| f64::from(us) * 10.0),
        1 => any::<f64>(),
        1 => Just(0.5),
    ]
}

/// Heads of any numbers, and rings whose stamps are in order but may be cut off.
#[test]
fn script_and_core_read_the_same_log_from_any_head() {
    let server = RedisServer::start(&[]);
    let connection = RefCell::new(server.client().get_connection().unwrap());
    let head = (1..14_u32, 0..14_u32, 0..14_u32, log_number(), log_number(), any::<bool>());
    let stamps = prop::collection::vec(0..3_000_000_u64, 13);
    let limit = (1..20_u64, 1..4_000_000_u64);
    let case = (head, stamps, 0..60_usize, limit, 0..5_000_000_u64, 1..5_u64);
    TestRunner::new(cases())
        .run(&case, |(head, mut stamps, cut, (limit, window_us), now, cost)| {
            let (slots, first, count, oldest, newest, is_valid) = head;
            stamps.sort_unstable();
            // The stamps in the order of their slots.
            let mut ring = vec![0.0; 13];
            for place in 0..count.min(13) {
                let slot = (first + place) % slots;
                #[allow(clippy::cast_precision_loss)]
                let stamp = stamps[place as usize] as f64;
                ring[slot as usize] = stamp;
            }
            let ends = if is_valid && count > 0 {
                #[allow(clippy::cast_precision_loss)]
                [stamps[0] as f64, stamps[(count.min(13) - 1) as usize] as f64]
            } else {
                [oldest, newest]
            };
            let head = [-f64::from(slots), f64::from(first), f64::from(count), ends[0], ends[1]];
            let numbers = head.iter().chain(&ring);
            let mut value: Vec<u8> = numbers.flat_map(|number| number.to_le_bytes()).collect();
            value.truncate(value.len() - cut);
            let window = SlidingWindow::new(limit, window_us).unwrap();
            let check = charges(&[(0, 1, cost, false)], &[Limit::SlidingWindow(window)]);
            let mut connection = connection.borrow_mut();
            let key = script::key(PREFIX, check[0].bucket, &rules()[0]);
            redis::cmd("SET").arg(&key).arg(&value).query::<()>(&mut *connection).unwrap();
            let call = script::encode_peek(&check, now);
            let reply =
                super::run_script(&mut connection, &[&key], now, (call, Vec::new())).unwrap();
            let log = StampLog::decode(&value);
            let level = log.bucket(&window, now).level;
            let needed = check[0].limit.units(check[0].cost);
            let reading = Reading::new(level, log.times(&window, level, needed, now));
            let read = script::read_peek(&check, &reply);
            if cut <= 8 * (13 - slots as usize) {
                prop_assert_eq!(read, Ok(vec![Some(reading)]));
            } else {
                // Stamps that are cut off count as the newest, which is not their place.
                prop_assert!(read.is_ok());
            }
            Ok(())
        })
        .unwrap();
}

/// The search for the oldest stamp in the window ends at a stamp that is cut off; one after it has
/// left the window.
#[test]
fn log_that_is_cut_off_and_out_of_order_has_no_time_below_zero() {
    let server = RedisServer::start(&[]);
    let mut connection = server.client().get_connection().unwrap();
    let mut numbers = vec![-13.0, 10.0, 13.0, 0.0, 857_200.0];
    numbers.extend([0.0; 13]);
    let mut value: Vec<u8> = numbers.iter().flat_map(|number: &f64| number.to_le_bytes()).collect();
    value.truncate(value.len() - 9);
    let (now, window) = (1_981_449, SlidingWindow::new(2, 1_981_448).unwrap());
    let check = charges(&[(0, 1, 1, false)], &[Limit::SlidingWindow(window)]);
    let key = script::key(PREFIX, check[0].bucket, &rules()[0]);
    redis::cmd("SET").arg(&key).arg(&value).query::<()>(&mut connection).unwrap();
    let call = script::encode_peek(&check, now);
    let reply = super::run_script(&mut connection, &[&key], now, (call, Vec::new())).unwrap();
    let read = script::read_peek(&check, &reply).unwrap();
    assert_eq!(read[0].unwrap().times.wait_us, 0);
}
