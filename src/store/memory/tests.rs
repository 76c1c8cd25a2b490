//! Tests of the memory store: bounds, order of eviction, and concurrency.

use std::sync::atomic::{AtomicU64, Ordering};

use super::*;
use crate::base::duration::MICROS_PER_SECOND as SECOND;
use crate::limit::calendar::{Calendar, Period};
use crate::limit::charge::Mode;
use crate::limit::concurrency::Concurrency;
use crate::limit::fixed_window::FixedWindow;
use crate::limit::sliding_window::SlidingWindow;
use crate::limit::top_up::TopUp;
use crate::store::rule::rule;

/// Rate 10 tokens per second, burst 5: half a second from empty to full.
fn limit() -> Limit {
    Limit::token_bucket(10, SECOND, 5).unwrap()
}

fn store(max_buckets: usize) -> MemoryStore {
    MemoryStore::with_seed(max_buckets, &[limit()], 0x9e37_79b9_7f4a_7c15)
}

fn charge(bucket: u128, cost: u64) -> Charge {
    let id = BucketId(scattered(bucket));
    Charge { bucket: id, rule: 0, limit_index: 0, limit: limit(), cost, mode: Mode::Enforce }
}

/// Maps small numbers to IDs that look like hashes, by a fixed permutation.
fn scattered(number: u128) -> u128 {
    let mixed = (number + 1).wrapping_mul(0x2360_ed05_1fc6_5da4_4385_df64_9fcc_f645);
    (mixed ^ mixed >> 64).wrapping_mul(0x2360_ed05_1fc6_5da4_4385_df64_9fcc_f645)
}

/// Whole tokens in the bucket.
fn tokens(store: &MemoryStore, bucket: u128, now: u64) -> u64 {
    let more_than_any = charge(bucket, 6);
    let level = store.peek(&[more_than_any], now, Share::WHOLE).outcomes[0].level;
    Share::WHOLE.tokens(&limit(), level)
}

#[test]
fn bucket_drains_and_refills() {
    let store = store(1_000);
    // (now, cost) -> (allowed, tokens left)
    let table = [
        (0, 3, true, 2),
        (0, 3, false, 2),
        (99_999, 3, false, 2),
        (100_000, 3, true, 0),
        (50_000, 1, false, 0),
        (199_999, 1, false, 0),
        (200_000, 1, true, 0),
        (700_000, 5, true, 0),
    ];
    for (now, cost, allowed, left) in table {
        let peeked = store.peek(&[charge(1, cost)], now, Share::WHOLE);
        let answer = store.take(&[charge(1, cost)], now, Share::WHOLE);
        assert_eq!(answer, peeked);
        let got = (answer.allowed(), answer.outcomes[0].level / limit().units(1));
        assert_eq!(got, (allowed, left), "{cost} at {now}");
    }
}

/// A rule whose kind changes by reloads to requests in flight and back: its old bucket has been
/// replaced meanwhile.
#[test]
fn bucket_starts_full_after_its_rule_counted_requests_in_flight() {
    let hour = Calendar::new(Period::Hour, "UTC", 1).unwrap();
    let kinds = [
        limit(),
        Limit::SlidingWindow(SlidingWindow::new(5, 60 * SECOND).unwrap()),
        Limit::FixedWindow(FixedWindow::new(5, hour).unwrap()),
    ];
    for kind in kinds {
        let in_flight = Limit::Concurrency(Concurrency::new(2).unwrap());
        let store = MemoryStore::new(100, &[kind]);
        let of = |limit: Limit, limit_index, cost: u64| Charge {
            limit,
            limit_index,
            cost: cost * limit.parts(),
            ..charge(1, 0)
        };
        let rules = [rule()];
        let used_up = of(kind, 0, 5);
        assert!(store.hold(&[used_up], &rules, 0, Share::WHOLE).0.allowed());
        assert!(!store.peek(&[of(kind, 0, 1)], 0, Share::WHOLE).allowed());
        let [number] = store.adopt(&[in_flight], 0)[..] else { panic!() };
        // A refused request replaces nothing.
        let never = of(in_flight, number, 3);
        assert!(!store.hold(&[never], &rules, 0, Share::WHOLE).0.allowed());
        assert_eq!(store.len(), 1);
        drop(store.hold(&[of(in_flight, number, 1)], &rules, 0, Share::WHOLE).1);
        assert!(store.is_empty());
        let [number] = store.adopt(&[kind], 0)[..] else { panic!() };
        assert!(store.take(&[of(kind, number, 5)], 0, Share::WHOLE).allowed(), "{kind:?}");
    }
}

#[test]
fn peek_and_denied_request_add_no_bucket() {
    let store = store(1_000);
    store.peek(&[charge(1, 1)], 0, Share::WHOLE);
    assert!(store.take(&[], 0, Share::WHOLE).allowed());
    let never = Charge { cost: 6, ..charge(1, 1) };
    assert!(!store.take(&[never, charge(2, 1)], 0, Share::WHOLE).allowed());
    assert!(store.take(&[Charge { mode: Mode::Shadow, ..never }], 0, Share::WHOLE).allowed());
    assert!(store.is_empty());
}

#[test]
fn number_of_buckets_never_exceeds_the_bound() {
    for max_buckets in [0, 1, 2, 3, 7, 64, 127, 128, 1_000, 10_007, 140_001] {
        let store = store(max_buckets);
        let bounds: usize = store.shards.iter().map(|shard| shard.0.lock().bound()).sum();
        assert_eq!(bounds, max_buckets.max(1));
        for bucket in 0..(max_buckets as u128).min(3_000) * 2 + 2 {
            assert!(
                store.take(&[charge(bucket, 1)], 0, Share::WHOLE).outcomes[0].level
                    <= limit().full()
            );
            assert!(store.len() <= max_buckets.max(1));
        }
    }
}

#[test]
fn full_buckets_are_dropped_first_and_not_counted_as_evictions() {
    let store = store(4);
    store.take(&[charge(1, 5)], 0, Share::WHOLE);
    store.take(&[charge(2, 1)], 0, Share::WHOLE);
    store.take(&[charge(3, 1)], 0, Share::WHOLE);
    store.take(&[charge(4, 4)], 0, Share::WHOLE);
    // 2 and 3 are full again at 100,000.
    store.take(&[charge(5, 1)], 100_000, Share::WHOLE);
    store.take(&[charge(6, 1)], 100_000, Share::WHOLE);
    assert_eq!((store.len(), store.evictions()), (4, 0));
    assert_eq!(
        [1, 2, 3, 4, 5, 6].map(|bucket| tokens(&store, bucket, 100_000)),
        [1, 5, 5, 2, 4, 4]
    );
}

#[test]
fn without_full_buckets_the_one_nearest_to_full_is_evicted_and_grants_no_more() {
    let store = store(3);
    store.take(&[charge(1, 5)], 0, Share::WHOLE);
    store.take(&[charge(2, 2)], 0, Share::WHOLE);
    store.take(&[charge(3, 4)], 0, Share::WHOLE);
    store.take(&[charge(4, 1)], 0, Share::WHOLE);
    assert_eq!((store.len(), store.evictions()), (3, 1));
    // Bucket 2 was evicted with 3 tokens. It and any new bucket start with as many until it would
    // be full.
    assert_eq!([1, 2, 3, 4, 5].map(|bucket| tokens(&store, bucket, 0)), [0, 3, 1, 4, 3]);
    assert_eq!([2, 5].map(|bucket| tokens(&store, bucket, 199_999)), [4, 4]);
    assert_eq!([2, 5].map(|bucket| tokens(&store, bucket, 200_000)), [5, 5]);
}

#[test]
fn evicted_fixed_window_is_not_reset_twice_if_the_clock_goes_back_over_its_start() {
    let second = Calendar::new(Period::Second, "UTC", 1).unwrap();
    let limit = Limit::FixedWindow(FixedWindow::new(3, second).unwrap());
    let store = MemoryStore::with_seed(1, &[limit], 1);
    let take = |bucket, tokens: u64, now| {
        let charge = Charge { limit, cost: tokens * limit.parts(), ..charge(bucket, 0) };
        store.take(&[charge], now, Share::WHOLE).allowed()
    };
    assert!(take(1, 2, SECOND + 38));
    assert!(take(2, 1, SECOND + 38), "evicts bucket 1");
    assert!(take(1, 1, SECOND - 3), "a thread that read the clock earlier");
    assert!(!take(1, 1, SECOND), "all three tokens of the second are used");
    assert!(!take(1, 1, 2 * SECOND - 1));
    assert!(take(1, 3, 2 * SECOND));
}

#[test]
fn drained_bucket_survives_a_flood() {
    let store = store(2_000);
    store.take(&[charge(0, 5)], 0, Share::WHOLE);
    for bucket in 1..=10_000 {
        store.take(&[charge(bucket, 1)], 0, Share::WHOLE);
    }
    assert!(store.evictions() > 5_000, "{} evictions", store.evictions());
    let kept = store.shards[store.shard_number(charge(0, 1).bucket)].0.lock();
    assert_ne!(kept.find(charge(0, 1).bucket), Place::Absent);
    drop(kept);
    assert_eq!(tokens(&store, 0, 0), 0);
    assert_eq!(tokens(&store, 0, 100_000), 1);
}

#[test]
fn bucket_of_another_limit_keeps_its_fraction() {
    let twice = Limit::token_bucket(20, SECOND, 10).unwrap();
    let store = MemoryStore::with_seed(100, &[limit(), twice], 1);
    store.take(&[charge(1, 2)], 0, Share::WHOLE);
    let changed = Charge { limit: twice, limit_index: 1, ..charge(1, 1) };
    let answer = store.take(&[changed], 0, Share::WHOLE);
    assert_eq!(answer.outcomes[0].level, 5 * twice.units(1));
}

#[test]
fn unknown_limit_neither_panics_nor_exceeds_the_bound() {
    let store = store(2);
    for bucket in 0..10 {
        assert!(
            store
                .take(&[Charge { limit_index: 7, ..charge(bucket, 1) }], 0, Share::WHOLE)
                .allowed()
        );
    }
    assert!(store.len() <= 2);
}

#[test]
fn contended_bucket_grants_exactly_its_burst() {
    let deep = Limit::token_bucket(1, SECOND, 10_000).unwrap();
    let store = MemoryStore::new(1_000, &[deep]);
    let hot = Charge { limit: deep, ..charge(1, 1) };
    let passed = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                for _ in 0..5_000 {
                    let allowed = store.take(&[hot], 7, Share::WHOLE).allowed();
                    passed.fetch_add(u64::from(allowed), Ordering::Relaxed);
                }
            });
        }
    });
    assert_eq!(passed.into_inner(), 10_000);
}

/// All threads take from pairs of the buckets 0 to 9, of 500 tokens each, in both orders.
#[test]
fn two_buckets_are_charged_atomically() {
    let deep = Limit::token_bucket(1, SECOND, 500).unwrap();
    let store = MemoryStore::new(100_000, &[deep]);
    let bucket = |bucket| Charge { limit: deep, ..charge(bucket, 1) };
    let passed: [AtomicU64; 10] = std::array::from_fn(|_| AtomicU64::new(0));
    let pair = [bucket(100), bucket(101)];
    std::thread::scope(|scope| {
        for thread in 0..8_usize {
            let (store, passed) = (&store, &passed);
            scope.spawn(move || {
                for turn in 0..2_000 {
                    let (one, other) = (turn % 10, (turn * 7 + thread + 1) % 10);
                    if one != other
                        && store
                            .take(&[bucket(one as u128), bucket(other as u128)], 0, Share::WHOLE)
                            .allowed()
                    {
                        passed[one].fetch_add(1, Ordering::Relaxed);
                        passed[other].fetch_add(1, Ordering::Relaxed);
                    }
                }
            });
        }
        // A peek sees the charge of a concurrent request in both buckets or in neither.
        scope
            .spawn(|| (0..500).for_each(|_| assert!(store.take(&pair, 0, Share::WHOLE).allowed())));
        for _ in 0..2_000 {
            let seen = store.peek(&[bucket(101), bucket(100)], 0, Share::WHOLE);
            assert_eq!(seen.outcomes[0].level, seen.outcomes[1].level);
        }
    });
    for (number, passed) in passed.into_iter().enumerate() {
        // A cost above any level: the outcome has the current level.
        let all = Charge { cost: 501, ..bucket(number as u128) };
        let level = store.peek(&[all], 0, Share::WHOLE).outcomes[0].level;
        assert_eq!(level, deep.full() - deep.units(passed.into_inner()), "bucket {number}");
    }
}

/// Resident memory of this process, in bytes.
#[cfg(target_os = "linux")]
fn resident_bytes() -> usize {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
    statm.split(' ').nth(1).unwrap().parse::<usize>().unwrap() * 4_096
}

/// 1,300,000 clients, one per microsecond (the benchmark sends 5,000,000). Some of the dropped
/// buckets are full, and some are not.
#[cfg(target_os = "linux")]
#[test]
fn flood_of_clients_does_not_grow_memory() {
    let store = store(100_000);
    let flood = |clients: std::ops::Range<u64>| {
        for client in clients {
            store.take(&[charge(u128::from(client), 1)], client, Share::WHOLE);
        }
    };
    flood(0..200_000);
    let before = resident_bytes();
    flood(200_000..1_300_000);
    let grown = resident_bytes().saturating_sub(before);
    assert!(store.len() <= 100_000 && store.len() > 80_000, "{} are kept", store.len());
    // Other tests run beside this one; the buckets alone would take 48,000,000 bytes.
    assert!(grown < 20_000_000, "{grown} bytes more after 1,100,000 clients more");
}

/// 4,096 tokens in any second: a full log takes 32 KiB.
fn sliding(bucket: u128, cost: u64) -> Charge {
    let window = SlidingWindow::new(4_096, SECOND).unwrap();
    Charge { limit: Limit::SlidingWindow(window), ..charge(bucket, cost) }
}

/// Memory of all shards, as a number of buckets.
fn size(store: &MemoryStore) -> usize {
    store.shards.iter().map(|shard| shard.0.lock().size()).sum()
}

#[test]
fn logs_count_as_the_buckets_whose_memory_they_take() {
    let store = MemoryStore::with_seed(40_000, &[sliding(0, 1).limit], 1);
    for bucket in 0..200 {
        for _ in 0..8 {
            store.take(&[sliding(bucket, 512)], 5, Share::WHOLE);
        }
        assert!(size(&store) <= 40_000, "{} after {bucket}", size(&store));
    }
    // A log of 4,096 stamps of 8 bytes, of buckets of 32 bytes.
    let full = store.len() * (1 + 2 + 1_024);
    assert_eq!(size(&store), full);
    assert!(store.len() < 40 && store.evictions() > 0);
    // A client whose log was dropped does not get its limit again.
    for bucket in 0..200 {
        assert!(!store.take(&[sliding(bucket, 1)], SECOND, Share::WHOLE).allowed(), "{bucket}");
    }
    assert!(store.take(&[sliding(500, 4_096)], SECOND + 5, Share::WHOLE).allowed());
}

#[test]
fn log_that_is_larger_than_the_store_is_kept() {
    let store = MemoryStore::with_seed(1, &[sliding(0, 1).limit], 1);
    for number in 0..5_000 {
        let allowed = store.take(&[sliding(7, 1)], number, Share::WHOLE).allowed();
        assert_eq!(allowed, number < 4_096, "{number}");
    }
    assert_eq!(store.len(), 1);
}

#[test]
fn logs_are_freed_when_their_stamps_have_left() {
    let store = MemoryStore::with_seed(1_000_000, &[sliding(0, 1).limit], 1);
    for bucket in 0..200 {
        store.take(&[sliding(bucket, 4_096)], 0, Share::WHOLE);
    }
    assert!(size(&store) > 200_000);
    for bucket in 0..60_000 {
        store.take(&[sliding(1_000 + bucket, 1)], 10 * SECOND, Share::WHOLE);
    }
    assert!(size(&store) < 300_000, "{}", size(&store));
    assert_eq!(store.evictions(), 0);
}

#[test]
fn given_back_tokens_are_the_newest_and_granted_ones_the_oldest() {
    let store = MemoryStore::new(10_000, &[sliding(0, 1).limit]);
    let charges = [sliding(1, 2_048)];
    store.take(&charges, 0, Share::WHOLE);
    store.take(&charges, 500_000, Share::WHOLE);
    store.adjust(&charges, Adjustment::GiveBack(2_048), 500_000);
    assert_eq!(store.reading(&charges[0], Share::WHOLE, 999_999).level, 2_048);
    assert_eq!(store.reading(&charges[0], Share::WHOLE, SECOND).level, 4_096);
    store.take(&charges, 600_000, Share::WHOLE);
    store.adjust(&charges, Adjustment::Grant(2_048), 600_000);
    let expected = Times { left_us: 600_000, wait_us: 0 };
    assert_eq!(store.reading(&charges[0], Share::WHOLE, SECOND).times, expected);
    store.adjust(&charges, Adjustment::Reset, 700_000);
    assert_eq!(store.reading(&charges[0], Share::WHOLE, 700_000).level, 4_096);
}

/// A quota of ten tokens, with a top-up of five of which four are used.
fn topped_up() -> (MemoryStore, Charge) {
    let calendar = Calendar::new(Period::Year, "UTC", 1).unwrap();
    let limit = Limit::FixedWindow(FixedWindow::new(10, calendar).unwrap());
    let store = MemoryStore::new(1_000, &[limit]);
    let tokens = |tokens: u64| Charge { limit, cost: tokens * limit.parts(), ..charge(1, 1) };
    assert!(store.take(&[tokens(10)], 0, Share::WHOLE).allowed());
    let expires_us = (1 << 53) - 1;
    let top_up = TopUp { id: 7, units: limit.token_units(5), expires_us };
    store.top_up(&tokens(1), &TopUpChange::Add(top_up, String::new()), 0).unwrap();
    assert!(store.take(&[tokens(4)], 0, Share::WHOLE).allowed());
    (store, tokens(1))
}

/// What a client has used of a top-up does not swallow later grants, once the rest is revoked.
#[test]
fn grant_after_a_used_top_up_was_revoked_is_kept() {
    let (store, charge) = topped_up();
    let revoked = store.top_up(&charge, &TopUpChange::Revoke(7), 1).unwrap();
    assert_eq!(revoked.after, 0);
    let three = charge.limit.token_units(3);
    let granted = store.adjust(&[charge], Adjustment::GrantAbove(3), 2);
    assert_eq!(granted, [(0, three)]);
    assert_eq!(store.adjust(&[charge], Adjustment::Grant(1), 3), [(three, three / 3 * 4)]);
}

/// Another process gets the top-ups, what is left of them, and what was added, also if the period
/// has ended.
#[test]
fn bucket_is_handed_over_with_its_top_ups() {
    let (store, charge) = topped_up();
    for now in [1, 366 * 86_400 * SECOND] {
        let next = MemoryStore::with_layout(1_000, &[charge.limit], store.layout());
        let bytes = store.export(now);
        next.import(&bytes, now).unwrap();
        assert_eq!(next.bucket(&charge, now).level, store.bucket(&charge, now).level);
        let list = |store: &MemoryStore| store.top_up(&charge, &TopUpChange::List, now).unwrap();
        assert_eq!(list(&next), list(&store));
        assert_eq!(list(&next).all[0].left, charge.limit.token_units(1));
        let again = TopUp { id: 7, units: 1, expires_us: 1 << 52 };
        let again = TopUpChange::Add(again, "again".to_owned());
        assert_eq!(next.top_up(&charge, &again, now).unwrap().repeated.as_deref(), Some(""));
        for cut in bytes.len() - 80..bytes.len() {
            let same = MemoryStore::with_layout(1_000, &[charge.limit], store.layout());
            assert_eq!(same.import(&bytes[..cut], now), Err(HandoverError::Malformed), "{cut}");
        }
    }
}

/// A bucket that is full without its top-ups can be dropped while the others are handed over.
#[test]
fn unused_top_ups_are_handed_over_among_other_buckets() {
    let (_, of_one) = topped_up();
    let limit = of_one.limit;
    let tokens =
        |bucket, tokens: u64| Charge { limit, cost: tokens * limit.parts(), ..charge(bucket, 1) };
    // The shard grows several times, and then evicts: it has room for 100 buckets.
    for others in [30, 80] {
        let store = MemoryStore::new(100, &[limit]);
        let used = [0, 0, 0, 3, 12].repeat(4);
        for (bucket, used) in (0..).zip(&used) {
            let top_up = TopUp { id: 7, units: limit.token_units(5), expires_us: (1 << 53) - 1 };
            let added = TopUpChange::Add(top_up, String::new());
            store.top_up(&tokens(bucket, 1), &added, 0).unwrap();
            assert!(store.take(&[tokens(bucket, *used)], 0, Share::WHOLE).allowed());
        }
        (20..20 + others).for_each(|bucket| {
            store.take(&[tokens(bucket, 1)], 0, Share::WHOLE);
        });
        let next = MemoryStore::with_layout(100, &[limit], store.layout());
        next.import(&store.export(1), 1).unwrap();
        for (bucket, used) in (0..).zip(used) {
            let listed = next.top_up(&tokens(bucket, 1), &TopUpChange::List, 1).unwrap();
            let left = 15 - i64::try_from(used).unwrap();
            assert_eq!(limit.tokens(listed.after), left, "{bucket} of {others}");
            assert_eq!(limit.tokens(listed.all[0].left), left.min(5), "{bucket} of {others}");
        }
    }
}

/// What a request has cost beyond its reserve counts from its end on, even if the window was full:
/// it does not leave with what was taken before.
#[test]
fn debt_of_a_full_window_takes_the_place_of_the_oldest_tokens() {
    let store = MemoryStore::new(10_000, &[sliding(0, 1).limit]);
    let charge = sliding(1, 3_000);
    store.take(&[charge], 0, Share::WHOLE);
    store.debit(&charge, 2_000, 900_000);
    assert_eq!(store.reading(&charge, Share::WHOLE, 900_000).level, 0);
    assert_eq!(store.reading(&charge, Share::WHOLE, SECOND).level, 2_096);
    assert_eq!(store.reading(&charge, Share::WHOLE, SECOND + 900_000).level, 4_096);
}

#[test]
fn level_of_the_shared_store_adds_stamps_or_removes_the_oldest() {
    let store = MemoryStore::new(10_000, &[sliding(0, 1).limit]);
    let charge = sliding(1, 1);
    store.put(&charge, 4_000, 100);
    store.put(&charge, 3_000, 200);
    assert_eq!(store.reading(&charge, Share::WHOLE, SECOND + 100).level, 3_096);
    store.put(&charge, 3_500, 300);
    assert_eq!(store.reading(&charge, Share::WHOLE, SECOND + 199).level, 3_500);
    assert_eq!(store.reading(&charge, Share::WHOLE, SECOND + 200).level, 4_096);
}

/// Each of three gateways grants a third of the limit in any window, and at least one request.
#[test]
fn share_of_a_sliding_window_is_in_whole_requests() {
    for (limit, cost, expected) in [(100, 1, 33), (100, 10, 3), (2, 1, 1), (2, 2, 1), (100, 50, 1)]
    {
        let window = SlidingWindow::new(limit, SECOND).unwrap();
        let charge = Charge { limit: Limit::SlidingWindow(window), ..sliding(1, cost) };
        let store = MemoryStore::new(1_000, &[charge.limit]);
        for window in 0..3 {
            let allowed =
                |us: u64| store.take(&[charge], window * SECOND + us, Share::one_of(3)).allowed();
            assert_eq!((0..200).filter(|us| allowed(*us)).count(), expected, "{limit} {cost}");
            assert!(!allowed(SECOND - 1));
        }
    }
}

/// Prints the memory of full logs: `cargo test --lib memory_of_full_logs -- --ignored --nocapture`.
#[test]
#[ignore = "prints a figure of docs/kinds.md"]
fn memory_of_full_logs() {
    let resident_bytes = || {
        let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
        statm.split(' ').nth(1).unwrap().parse::<u64>().unwrap() * 4_096
    };
    let mut stores = Vec::new();
    for (stamps, clients) in [(1, 400_000), (100, 100_000), (4_096, 1_000)] {
        let window = SlidingWindow::new(4_096.min(stamps), SECOND).unwrap();
        let limit = Limit::SlidingWindow(window);
        let before = resident_bytes();
        let store = MemoryStore::new(20_000_000, &[limit]);
        for bucket in 0..clients {
            store.take(&[Charge { limit, ..charge(bucket, stamps) }], 0, Share::WHOLE);
        }
        let each = (resident_bytes() - before) / u64::try_from(clients).unwrap();
        println!("{stamps} stamps: {each} bytes, {} evictions", store.evictions());
        // Kept, so that the next one does not reuse its memory.
        stores.push(store);
    }
}
