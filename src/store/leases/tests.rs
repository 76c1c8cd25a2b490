use super::*;
use crate::limit::Limit;
use crate::limit::charge::Mode;

const NOW: u64 = 100_000_000;

fn charge(bucket: u128) -> Charge {
    let limit = Limit::token_bucket(1, 1_000_000, 50).unwrap();
    let bucket = BucketId(bucket);
    Charge { bucket, rule: 0, limit_index: 0, limit, cost: 1, mode: Mode::Enforce }
}

fn lend(leases: &Leases, tokens: u64) {
    let units = charge(0).limit.units(tokens);
    let loan = Loan { level: 0, units, epoch: 50, valid_us: 4_000_000 };
    leases.lent(BucketId(1), Some(loan), NOW, NOW);
}

/// Notes requests until a task has to start.
fn start(leases: &Leases, charge: &Charge, now: u64) -> bool {
    (0..8).any(|_| leases.note(charge, 0, now))
}

/// What the bucket has refilled since is not given back: it may have been full without the request.
#[test]
fn refund_is_less_what_the_bucket_has_refilled() {
    let leases = Leases::with_slots(1);
    let (one, rate) = (charge(1).limit.units(1), charge(1).limit.units_in(1));
    assert!(start(&leases, &charge(1), NOW));
    lend(&leases, 4);
    assert_eq!(leases.take(&charge(1), NOW), Some(3 * one));
    leases.refund(&charge(1), NOW, NOW + 1);
    assert_eq!(leases.unspent(&charge(1), NOW + 1), 4 * one - rate);
    assert_eq!(leases.take(&charge(1), NOW), Some(3 * one - rate));
    // The bucket has refilled all of it.
    leases.refund(&charge(1), NOW, NOW + 1_000_000);
    assert_eq!(leases.unspent(&charge(1), NOW + 1_000_000), 3 * one - rate);
}

#[test]
fn task_starts_once_and_the_lease_ends_with_it() {
    let leases = Leases::with_slots(4);
    assert!(start(&leases, &charge(1), NOW));
    assert!(!start(&leases, &charge(1), NOW), "its task runs");
    assert!(leases.has(BucketId(1)) && !leases.has(BucketId(5)) && !leases.is_empty());
    assert_eq!(leases.take(&charge(1), NOW), None, "nothing is lent yet");
    lend(&leases, 2);
    let one = charge(1).limit.units(1);
    assert_eq!(leases.take(&charge(1), NOW), Some(one));
    assert_eq!(leases.put_back(&charge(1), NOW), Some(2 * one));
    assert_eq!(leases.unspent(&charge(1), NOW), 2 * one);
    leases.close(BucketId(1));
    assert_eq!(leases.take(&charge(1), NOW), None);
    assert!(matches!(leases.step(BucketId(1), Means::Return, NOW).0, Step::Call(_)));
    assert!(leases.has(BucketId(1)), "it ends after the call");
    assert_eq!(leases.step(BucketId(1), Means::Return, NOW), (Step::End, 0));
    assert!(leases.is_empty() && !leases.has(BucketId(1)));
    assert_eq!(leases.put_back(&charge(1), NOW), None);
    assert!(start(&leases, &charge(1), NOW), "another one can begin");
}

#[test]
fn lease_of_another_limit_is_not_used_and_ends() {
    let leases = Leases::with_slots(4);
    assert!(start(&leases, &charge(1), NOW));
    lend(&leases, 20);
    let changed = Charge { limit: Limit::token_bucket(2, 1_000_000, 50).unwrap(), ..charge(1) };
    assert_eq!(leases.take(&changed, NOW), None);
    assert_eq!(leases.unspent(&changed, NOW), 0);
    assert!(!start(&leases, &changed, NOW));
    assert_eq!(leases.take(&charge(1), NOW), None, "closed");
    leases.step(BucketId(1), Means::Return, NOW);
    assert_eq!(leases.step(BucketId(1), Means::Return, NOW).0, Step::End);
    assert!(start(&leases, &changed, NOW));
}

#[test]
fn bucket_in_use_keeps_its_slot() {
    let leases = Leases::with_slots(4);
    leases.note(&charge(1), 0, NOW);
    assert!(!start(&leases, &charge(5), NOW + 100_000), "in use until now");
    assert!(start(&leases, &charge(5), NOW + 100_001));
    assert!(!start(&leases, &charge(1), NOW + 900_000), "it has a lease");
}

#[test]
fn changed_limit_of_a_bucket_without_a_lease_gets_its_slot_at_once() {
    let leases = Leases::with_slots(4);
    leases.note(&charge(1), 0, NOW);
    let changed = Charge { limit: Limit::token_bucket(2, 1_000_000, 50).unwrap(), ..charge(1) };
    assert!(start(&leases, &changed, NOW));
    let other = Charge { bucket: BucketId(5), ..changed };
    let leases = Leases::with_slots(4);
    leases.note(&charge(1), 0, NOW);
    assert!(!start(&leases, &other, NOW), "another bucket waits");
}

#[test]
fn no_lease_begins_after_the_end() {
    let leases = Leases::with_slots(4);
    assert!(start(&leases, &charge(1), NOW));
    lend(&leases, 20);
    leases.close_all();
    assert_eq!(leases.take(&charge(1), NOW), None);
    leases.shut();
    assert!(!start(&leases, &charge(2), NOW));
    assert_eq!(leases.len(), 1);
}
