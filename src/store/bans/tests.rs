//! Bans of one gateway: counted alone, exchanged, listed.

use super::*;
use crate::limit::Limit;
use crate::store::rule::rule;

const SECOND: u64 = 1_000_000;

const BAN: BanRule = BanRule {
    after: 3,
    within_us: 10 * SECOND,
    for_us: 60 * SECOND,
    grow: 2,
    max_us: 600 * SECOND,
};

fn rules() -> [StoredRule; 2] {
    [StoredRule { ban: Some(BAN), ..rule() }, rule()]
}

fn charge(bucket: u128, rule: u32, mode: Mode) -> Charge {
    let limit = Limit::token_bucket(1, SECOND, 5).unwrap();
    Charge { bucket: BucketId(bucket), rule, limit_index: 0, limit, cost: 1, mode }
}

fn about(id: &str) -> About {
    About {
        rule: "r".to_owned(),
        kind: "ip".to_owned(),
        id: id.to_owned(),
        tenant: None,
        by: None,
        reason: None,
    }
}

fn refuse(bans: &Bans, bucket: u128, times: usize, now: u64) {
    let [rule, _] = rules();
    for _ in 0..times {
        bans.note(&charge(bucket, 0, Mode::Enforce), &rule, || about("a"), now);
    }
}

fn left(bans: &Bans, bucket: u128, now: u64) -> Option<u64> {
    bans.left_us(BucketId(bucket), now)
}

#[test]
fn gateway_without_redis_bans_by_its_own_count() {
    let bans = Bans::new(false);
    refuse(&bans, 1, 2, SECOND);
    assert_eq!(left(&bans, 1, SECOND), None);
    refuse(&bans, 1, 1, 2 * SECOND);
    assert_eq!(left(&bans, 1, 2 * SECOND), Some(60 * SECOND));
    assert_eq!(left(&bans, 1, 62 * SECOND), None);
    refuse(&bans, 1, 3, 62 * SECOND);
    assert_eq!(left(&bans, 1, 62 * SECOND), Some(120 * SECOND));
    assert!(bans.take_updates(100, 62 * SECOND).is_empty());
    assert_eq!(bans.counts(62 * SECOND), HashMap::from([("r".to_owned(), 1)]));
}

#[test]
fn only_enforced_charges_of_rules_with_ban_are_refused_and_the_longest_ban_counts() {
    let bans = Bans::new(false);
    for seconds in 1..=3_u64 {
        refuse(&bans, seconds.into(), 3, seconds * SECOND);
    }
    let now = 4 * SECOND;
    let refusal = |charges: &[Charge]| bans.refusal(charges, &rules(), now);
    assert_eq!(refusal(&[charge(1, 0, Mode::Shadow)]), None);
    assert_eq!(refusal(&[charge(1, 1, Mode::Enforce)]), None);
    assert_eq!(refusal(&[charge(9, 0, Mode::Enforce)]), None);
    let both = [1, 2, 3].map(|bucket| charge(bucket, 0, Mode::Enforce));
    assert_eq!(refusal(&both), Some((2, 59 * SECOND)));
}

#[test]
fn with_redis_refusals_are_sent_once_and_redis_decides() {
    let bans = Bans::new(true);
    bans.note_alone(false);
    refuse(&bans, 1, 5, SECOND);
    assert_eq!(left(&bans, 1, SECOND), None);
    let updates = bans.take_updates(100, SECOND);
    let what: Vec<script::What> = updates.iter().map(|update| update.what).collect();
    assert_eq!(what, [script::What::Refusals { number: 5, rule: BAN }]);
    assert!(bans.take_updates(100, SECOND).is_empty());
    // Refusals may have been counted: they are not sent again.
    bans.put_back(updates);
    assert!(bans.take_updates(100, SECOND).is_empty());
    let began = Changed {
        bucket: BucketId(1),
        left_us: 50_000_000,
        number: 2,
        forgotten_in_us: 650 * SECOND,
        about: about("a"),
    };
    bans.apply(vec![began.clone()], 2 * SECOND);
    assert_eq!(left(&bans, 1, 2 * SECOND), Some(50 * SECOND));
    bans.apply(vec![Changed { left_us: -1, number: 0, ..began }], 3 * SECOND);
    assert_eq!(left(&bans, 1, 3 * SECOND), None);
}

#[test]
fn ban_that_began_without_redis_is_sent_until_it_arrives() {
    let bans = Bans::new(true);
    refuse(&bans, 1, 3, SECOND);
    let restore = |left_us| script::What::Restore { left_us, number: 1, max_us: BAN.max_us };
    let updates = bans.take_updates(100, 11 * SECOND);
    assert_eq!(updates[0].what, restore(50 * SECOND));
    bans.put_back(updates);
    assert_eq!(bans.take_updates(100, 21 * SECOND)[0].what, restore(40 * SECOND));
    assert!(bans.take_updates(100, 21 * SECOND).is_empty());
    bans.send_missing(&HashSet::from([BucketId(1)]), 31 * SECOND);
    assert!(bans.take_updates(100, 31 * SECOND).is_empty());
    bans.send_missing(&HashSet::new(), 31 * SECOND);
    assert_eq!(bans.take_updates(100, 31 * SECOND)[0].what, restore(30 * SECOND));
    bans.send_missing(&HashSet::new(), 61 * SECOND);
    assert!(bans.take_updates(100, 61 * SECOND).is_empty());
}

#[test]
fn operators_set_and_lift_bans_and_what_redis_said_before_changes_nothing() {
    let bans = Bans::new(true);
    bans.set(BucketId(1), &BAN, about("a"), 30 * SECOND, SECOND);
    let old = Changed {
        bucket: BucketId(1),
        left_us: 1,
        number: 7,
        forgotten_in_us: 1,
        about: about("b"),
    };
    bans.apply(vec![old.clone()], SECOND);
    assert_eq!(left(&bans, 1, SECOND), Some(30 * SECOND));
    bans.set(BucketId(1), &BAN, about("a"), 90 * SECOND, SECOND);
    let what = bans.take_updates(100, SECOND)[0].what;
    assert_eq!(what, script::What::Set { left_us: 90 * SECOND, max_us: BAN.max_us });
    let listed = bans.list(None, 10, SECOND, |_| true);
    assert_eq!(bans.lift(BucketId(1), SECOND), Some(listed[0].clone()));
    assert_eq!(bans.lift(BucketId(1), SECOND), None);
    assert_eq!(bans.take_updates(100, SECOND)[0].what, script::What::Lift);
    assert_eq!(bans.lift(BucketId(2), SECOND), None);
}

#[test]
fn list_is_in_pages() {
    let bans = Bans::new(false);
    for bucket in 0..10 {
        refuse(&bans, bucket, 3, SECOND);
    }
    let buckets = |after: Option<u128>, limit| -> Vec<u128> {
        let found = bans.list(after.map(BucketId), limit, SECOND, |ban| ban.bucket.0 % 2 == 0);
        found.iter().map(|ban| ban.bucket.0).collect()
    };
    assert_eq!(buckets(None, 3), [0, 2, 4]);
    assert_eq!(buckets(Some(4), 3), [6, 8]);
    assert!(buckets(Some(8), 3).is_empty());
}

/// A flood of clients can neither grow the memory nor end bans.
#[test]
fn number_of_clients_is_bounded_and_bans_are_kept() {
    let bans = Bans::new(false);
    refuse(&bans, 0, 3, SECOND);
    for bucket in 1..3 * MAX_CLIENTS as u128 {
        refuse(&bans, bucket, 1, SECOND);
    }
    let known: usize = bans.shards.iter().map(|shard| shard.lock().clients.len()).sum();
    assert!(known <= MAX_CLIENTS, "{known}");
    assert!(left(&bans, 0, SECOND).is_some());
    // Refusals are forgotten after `within`, so that there is room again.
    refuse(&bans, 64 * 10_000_000, 3, 20 * SECOND);
    assert!(left(&bans, 64 * 10_000_000, 20 * SECOND).is_some());
    assert!(left(&bans, 0, 20 * SECOND).is_some());
}

/// Also if there is no room: clients that are banned take the place of those with refusals.
#[test]
fn bans_of_other_gateways_apply_if_the_table_is_full() {
    let bans = Bans::new(true);
    bans.note_alone(false);
    for bucket in 0..2 * MAX_CLIENTS as u128 {
        refuse(&bans, bucket, 1, SECOND);
    }
    while !bans.take_updates(MAX_CLIENTS, SECOND).is_empty() {}
    let began = |bucket| Changed {
        bucket: BucketId(bucket),
        left_us: 50_000_000,
        number: 1,
        forgotten_in_us: 650 * SECOND,
        about: about("a"),
    };
    let buckets = 64 * 10_000_000..64 * 10_000_000 + 640;
    bans.apply(buckets.clone().map(began).collect(), SECOND);
    for bucket in buckets {
        assert_eq!(left(&bans, bucket, SECOND), Some(50 * SECOND), "{bucket}");
    }
    let known: usize = bans.shards.iter().map(|shard| shard.lock().clients.len()).sum();
    assert!(known <= MAX_CLIENTS, "{known}");
}

/// While more is refused than one call can have, no shard waits.
#[test]
fn calls_begin_at_different_shards() {
    let bans = Bans::new(true);
    bans.note_alone(false);
    let mut sent = std::collections::HashSet::new();
    for _ in 0..SHARDS {
        for bucket in 0..2 * SHARDS as u128 {
            refuse(&bans, bucket, 1, SECOND);
        }
        let updates = bans.take_updates(2, SECOND);
        sent.extend(updates.iter().map(|update| update.bucket.0 % SHARDS as u128));
    }
    assert_eq!(sent.len(), SHARDS);
}
