//! The queue of checks: a check that arrives while a call ends, starts or is slow gets exactly one
//! result.

use std::collections::VecDeque;
// The counters belong to the test, so the order of their reads is not explored.
use std::sync::atomic::{AtomicUsize, Ordering};

use loom::sync::{Arc, Mutex};
use loom::thread;
use model::store::queue::{Bounds, Enqueued, Next, Queue};

/// The checks that threads send, and the number of results of each.
struct Scene {
    queue: Mutex<Queue<usize>>,
    answers: Vec<AtomicUsize>,
    bounds: Bounds,
}

impl Scene {
    fn new(bounds: Bounds, checks: usize) -> Arc<Self> {
        let answers = (0..checks).map(|_| AtomicUsize::new(0)).collect();
        Arc::new(Self { queue: Mutex::new(Queue::new(bounds)), answers, bounds })
    }

    /// One step with the queue; checks the invariants between two steps.
    fn step<T>(&self, step: impl FnOnce(&mut Queue<usize>) -> T) -> T {
        let mut queue = self.queue.lock().unwrap();
        let result = step(&mut queue);
        assert!(queue.calls() <= self.bounds.calls, "{} calls", queue.calls());
        assert!(queue.front().is_none() || queue.calls() > 0, "a check waits for no call");
        result
    }

    fn answer(&self, check: usize) {
        self.answers[check].fetch_add(1, Ordering::Relaxed);
    }

    /// Sends a check at this time, in microseconds, and makes the calls that it starts.
    fn send(&self, check: usize, now: u64) {
        match self.step(|queue| queue.enqueue(check, now)) {
            Enqueued::Starts => self.call(now),
            Enqueued::Waits => {}
            Enqueued::Full => self.answer(check),
        }
    }

    /// Makes calls until no check waits.
    fn call(&self, now: u64) {
        let gather = |waiting: &mut VecDeque<usize>| {
            let most = waiting.len().min(self.bounds.checks);
            let batch: Vec<usize> = waiting.drain(..most).collect();
            (!batch.is_empty()).then_some(batch)
        };
        while let Next::Sends(batch) = self.step(|queue| queue.leave(now, gather)) {
            batch.into_iter().for_each(|check| self.answer(check));
        }
    }
}

/// Two threads send one check each at these times, in microseconds, while `beside` runs, which may
/// send the others of `count` checks.
fn all_are_answered_once(bounds: Bounds, ticks: [u64; 2], checks: usize, beside: fn(&Scene)) {
    loom::model(move || {
        let scene = Scene::new(bounds, checks);
        let senders = [0, 1].map(|check| {
            let scene = Arc::clone(&scene);
            thread::spawn(move || scene.send(check, ticks[check]))
        });
        beside(&scene);
        for sender in senders {
            sender.join().unwrap();
        }
        let answers = scene.answers.iter().map(|count| count.load(Ordering::Relaxed));
        assert_eq!(answers.collect::<Vec<_>>(), vec![1; checks]);
        assert_eq!(scene.step(|queue| queue.calls()), 0);
    });
}

#[test]
fn every_check_is_answered_once_by_one_call_at_a_time() {
    for checks in [1, 2] {
        let bounds = Bounds { waiting: 3, calls: 1, checks, long_us: 100 };
        all_are_answered_once(bounds, [1, 2], 3, |scene| scene.send(2, 3));
    }
}

#[test]
fn every_check_is_answered_once_with_slow_calls() {
    let bounds = Bounds { waiting: 3, calls: 2, checks: 1, long_us: 10 };
    all_are_answered_once(bounds, [10, 20], 2, |scene| {
        // A call after it has waited for its reply.
        if scene.step(|queue| queue.start_another(40)) {
            scene.call(40);
        }
    });
}

#[test]
fn every_check_is_answered_once_with_expired_checks() {
    let bounds = Bounds { waiting: 3, calls: 1, checks: 2, long_us: 100 };
    all_are_answered_once(bounds, [1, 2], 2, |scene| {
        while let Some(check) = scene.step(|queue| queue.pop_front_if(|check| *check < 2)) {
            scene.answer(check);
        }
    });
}

/// The call answers the checks that it has removed, and another one takes its place.
#[test]
fn every_check_is_answered_once_with_a_call_that_is_abandoned() {
    let bounds = Bounds { waiting: 3, calls: 1, checks: 1, long_us: 100 };
    all_are_answered_once(bounds, [1, 2], 3, |scene| {
        if scene.step(|queue| queue.enqueue(2, 3)) != Enqueued::Starts {
            return;
        }
        let removed = scene.step(|queue| queue.leave(3, |waiting| waiting.pop_front()));
        if let Next::Sends(check) = removed {
            scene.answer(check);
        }
        if scene.step(|queue| queue.abandon(4)) {
            scene.call(4);
        }
    });
}

#[test]
fn check_is_refused_if_the_queue_is_full() {
    let bounds = Bounds { waiting: 1, calls: 1, checks: 1, long_us: 100 };
    all_are_answered_once(bounds, [1, 2], 3, |scene| scene.send(2, 3));
}
