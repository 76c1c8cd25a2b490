//! Leases that threads use while a task borrows, returns and ends them.

use loom::sync::Arc;
use loom::thread;
use model::limit::Limit;
use model::limit::charge::{BucketId, Charge, Mode};
use model::limit::lease::{Loan, Means, Step};
use model::store::leases::Leases;

const NOW: u64 = 100_000_000;

fn charge(cost: u64) -> Charge {
    let limit = Limit::token_bucket(1_000_000, 1_000_000, 50).unwrap();
    let bucket = BucketId(0);
    Charge { bucket, rule: 0, limit_index: 0, limit, cost, mode: Mode::Enforce }
}

/// Leases of one bucket, which has borrowed 3 tokens.
fn borrowed() -> Arc<Leases> {
    let leases = Arc::new(Leases::with_slots(1));
    assert!((0..8).any(|_| leases.note(&charge(1), 0, NOW)));
    lend(&leases, 3);
    leases
}

fn lend(leases: &Leases, units: i64) {
    let loan = Loan { level: 0, units, epoch: 50, valid_us: 4_000_000 };
    leases.lent(BucketId(0), Some(loan), NOW, NOW);
}

/// What a step reports of the loans: units spent, and units returned.
fn reported(leases: &Leases) -> (i64, i64) {
    match leases.step(BucketId(0), Means::Return, NOW).0 {
        Step::Call(request) => request
            .accounts
            .iter()
            .fold((0, 0), |(spent, returned), one| (spent + one.spent, returned + one.returned)),
        Step::Wait | Step::End => (0, 0),
    }
}

#[test]
fn each_borrowed_unit_is_spent_or_returned_once() {
    loom::model(|| {
        let leases = borrowed();
        let takers = [2, 1].map(|cost| {
            let leases = Arc::clone(&leases);
            thread::spawn(move || {
                let took = leases.take(&charge(cost), NOW).is_some();
                // Another limit refuses the second request.
                if took && cost == 1 {
                    leases.put_back(&charge(cost), NOW);
                    return 0;
                }
                if took { 2 } else { 0 }
            })
        });
        leases.close(BucketId(0));
        let (mut spent, mut returned) = reported(&leases);
        let admitted: i64 = takers.into_iter().map(|taker| taker.join().unwrap()).sum();
        loop {
            let (more, back) = reported(&leases);
            (spent, returned) = (spent + more, returned + back);
            if back == 0 {
                break;
            }
        }
        // What Redis gets back was not spent, and what it still counts as lent covers what may be
        // spent.
        assert!(admitted + returned <= 3, "{admitted} admitted, {returned} returned");
        assert!(spent + returned <= 3, "{spent} spent, {returned} returned");
    });
}

#[test]
fn one_of_several_threads_starts_the_task() {
    loom::model(|| {
        let leases = Arc::new(Leases::with_slots(1));
        assert!(!(0..7).any(|_| leases.note(&charge(1), 0, NOW)));
        let starts = [(), ()].map(|()| {
            let leases = Arc::clone(&leases);
            thread::spawn(move || usize::from(leases.note(&charge(1), 0, NOW)))
        });
        let started: usize = starts.into_iter().map(|thread| thread.join().unwrap()).sum();
        assert_eq!((started, leases.len()), (1, 1));
    });
}

#[test]
fn no_lease_is_left_after_the_end() {
    loom::model(|| {
        let leases = Arc::new(Leases::with_slots(1));
        assert!(!(0..7).any(|_| leases.note(&charge(1), 0, NOW)));
        let request = {
            let leases = Arc::clone(&leases);
            thread::spawn(move || {
                if leases.note(&charge(1), 0, NOW) {
                    lend(&leases, 3);
                }
                leases.take(&charge(1), NOW).is_some()
            })
        };
        leases.shut();
        request.join().unwrap();
        assert_eq!(leases.take(&charge(1), NOW), None);
        // As the task does, if one was started.
        while leases.has(BucketId(0)) {
            reported(&leases);
        }
        assert!(leases.is_empty());
    });
}
