//! Simulates an overloaded server with a fixed number of workers and a queue, and what the adaptive
//! limit and the priorities make of it.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use super::adaptive::{Adaptive, Outcome, Sample};
use super::threshold;

const SECOND_US: u64 = 1_000_000;

/// Clients of the higher priority; those of the lower one are the others.
const HIGH: u32 = 0;
const LOW: u32 = 1;

/// A server, its clients, and the time that is measured.
#[derive(Clone, Copy)]
struct World {
    workers: usize,
    /// Time that a worker takes for a request, at a time in microseconds.
    service_us: fn(u64) -> u64,
    /// Whether service times vary, exponentially, around that.
    varies: bool,
    /// Requests a second of each priority.
    arrivals: [u64; 2],
    /// Until when those of the lower one are ten a second, in microseconds.
    calm_until: u64,
    /// Limit on requests in flight; `None`: adaptive.
    limit: Option<u32>,
    /// From and until when responses are counted, in microseconds.
    measured: (u64, u64),
}

#[derive(Debug, Default)]
struct Seen {
    /// Times until the response, by priority.
    took_us: [Vec<u64>; 2],
    shed: [u64; 2],
}

/// A generator of numbers that seem random: the same in each run.
struct Random(u64);

impl Random {
    /// Within 0 and 1, neither of them.
    #[allow(clippy::cast_precision_loss)]
    fn unit(&mut self) -> f64 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((self.0 >> 11) as f64 + 0.5) / (1_u64 << 53) as f64
    }

    /// Exponentially distributed.
    #[allow(clippy::cast_precision_loss, clippy::cast_possible_truncation, clippy::cast_sign_loss)]
    fn around(&mut self, mean: u64) -> u64 {
        (-self.unit().ln() * mean as f64) as u64
    }
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    Arrives { priority: u32 },
    Ends { started: u64, priority: u32 },
}

impl World {
    fn run(self) -> Seen {
        self.run_with(Random(7))
    }

    fn run_with(self, mut random: Random) -> Seen {
        let mut seen = Seen::default();
        let mut adaptive = Adaptive::default();
        let mut events =
            BinaryHeap::from([HIGH, LOW].map(|priority| Reverse((1, Event::Arrives { priority }))));
        let (mut queue, mut busy, mut in_flight) = (VecDeque::new(), 0, 0);
        while let Some(Reverse((now, event))) = events.pop() {
            let is_measured = now >= self.measured.0;
            if now > self.measured.1 {
                break;
            }
            match event {
                Event::Arrives { priority } => {
                    let is_calm = priority == LOW && now < self.calm_until;
                    let rate = if is_calm { 10 } else { self.arrivals[priority as usize] };
                    let gap = random.around(SECOND_US / rate);
                    events.push(Reverse((now + gap.max(1), event)));
                    let limit = self.limit.unwrap_or_else(|| adaptive.limit());
                    if in_flight < threshold(limit, priority, 2) {
                        in_flight += 1;
                        queue.push_back((now, priority));
                    } else if is_measured {
                        seen.shed[priority as usize] += 1;
                    }
                }
                Event::Ends { started, priority } => {
                    busy -= 1;
                    let outcome = Outcome::Answered(now - started);
                    adaptive.add(Sample { started, outcome, in_flight }, now);
                    in_flight -= 1;
                    if is_measured {
                        seen.took_us[priority as usize].push(now - started);
                    }
                }
            }
            while busy < self.workers
                && let Some((started, priority)) = queue.pop_front()
            {
                busy += 1;
                let mean = (self.service_us)(now);
                let takes = if self.varies { random.around(mean) } else { mean };
                events.push(Reverse((now + takes.max(1), Event::Ends { started, priority })));
            }
        }
        seen
    }
}

impl Seen {
    fn p99_us(&self, priority: u32) -> u64 {
        self.percentile_us(priority, 99)
    }

    fn percentile_us(&self, priority: u32, percent: usize) -> u64 {
        let mut took = self.took_us[priority as usize].clone();
        took.sort_unstable();
        took[took.len() * percent / 100]
    }

    /// Responses in the measured time, in percent of `possible`.
    fn goodput_percent(&self, possible: u64) -> u64 {
        self.took_us.iter().map(|took| took.len() as u64).sum::<u64>() * 100 / possible
    }

    /// Refused requests of a priority, in thousandths.
    fn shed_permille(&self, priority: u32) -> u64 {
        let index = priority as usize;
        self.shed[index] * 1_000 / (self.shed[index] + self.took_us[index].len() as u64)
    }
}

/// 40 workers that take 20 ms serve 2,000 requests a second; 6,000 arrive, 600 of them of the
/// higher priority.
const OVERLOADED: World = World {
    workers: 40,
    service_us: |_| 20_000,
    varies: false,
    arrivals: [600, 5_400],
    calm_until: 0,
    limit: None,
    measured: (10 * SECOND_US, 40 * SECOND_US),
};

#[test]
fn adaptive_limit_keeps_goodput_and_delay_under_overload() {
    let seen = OVERLOADED.run();
    assert!(seen.goodput_percent(2_000 * 30) >= 90, "{}", seen.goodput_percent(60_000));
    assert!(seen.p99_us(HIGH) <= 40_000, "{}", seen.p99_us(HIGH));
    assert!(seen.shed_permille(HIGH) <= 10, "{}", seen.shed_permille(HIGH));
    assert!(seen.shed_permille(LOW) >= 600, "{}", seen.shed_permille(LOW));
}

#[test]
fn without_a_limit_the_queue_grows_without_end() {
    let seen = World { limit: Some(u32::MAX), ..OVERLOADED }.run();
    assert_eq!(seen.shed, [0, 0]);
    assert!(seen.p99_us(HIGH) > 100 * 20_000, "{}", seen.p99_us(HIGH));
}

#[test]
fn adaptive_limit_keeps_goodput_if_service_times_vary() {
    let seen = World { varies: true, ..OVERLOADED }.run();
    assert!(seen.goodput_percent(2_000 * 30) >= 90, "{}", seen.goodput_percent(60_000));
    // Unloaded, 99 of 100 requests take less than 4.6 times the mean.
    assert!(seen.p99_us(HIGH) <= 2 * 92_000, "{}", seen.p99_us(HIGH));
    assert!(seen.shed_permille(HIGH) <= 20, "{}", seen.shed_permille(HIGH));
}

#[test]
fn few_workers_are_found_as_well() {
    let world = World { workers: 4, arrivals: [40, 600], ..OVERLOADED };
    let seen = world.run();
    assert!(seen.goodput_percent(200 * 30) >= 90, "{}", seen.goodput_percent(6_000));
    assert!(seen.p99_us(HIGH) <= 50_000, "{}", seen.p99_us(HIGH));
}

/// From 5 to 500 ms after 20 s: 80 responses a second are possible. After a cut, nothing is
/// admitted until some of the slow requests have ended.
#[test]
fn adaptive_limit_follows_a_server_that_slows_a_hundred_times() {
    let world = World {
        service_us: |now| if now < 20 * SECOND_US { 5_000 } else { 500_000 },
        arrivals: [20, 400],
        measured: (40 * SECOND_US, 100 * SECOND_US),
        ..OVERLOADED
    };
    let seen = world.run();
    assert!(seen.goodput_percent(80 * 60) >= 90, "{}", seen.goodput_percent(80 * 60));
    assert!(seen.p99_us(HIGH) <= 1_000_000, "{}", seen.p99_us(HIGH));
    assert!(seen.shed_permille(HIGH) <= 50, "{}", seen.shed_permille(HIGH));
}

/// The number of requests in flight that an unloaded server needs is never above the limit.
#[test]
fn nothing_is_shed_below_the_capacity() {
    for varies in [false, true] {
        let seen = World { varies, arrivals: [100, 1_300], ..OVERLOADED }.run();
        let shed = [HIGH, LOW].map(|priority| seen.shed_permille(priority));
        assert!(shed[0] == 0 && shed[1] <= 10, "{varies}: {shed:?}");
    }
}

/// 8 workers that become slower by 60 % every other second. A queue that shrinks meanwhile, after
/// the first cut, must not be taken for a slower server without a queue.
#[test]
fn queue_of_a_server_whose_speed_changes_stays_short() {
    let mut goodput = 0;
    for seed in 0..100 {
        let world = World {
            workers: 8,
            service_us: |now| if now % (2 * SECOND_US) < SECOND_US { 64_000 } else { 40_000 },
            arrivals: [40, 600],
            calm_until: 7 * SECOND_US + seed * 13_000,
            measured: (10 * SECOND_US, 14 * SECOND_US),
            ..OVERLOADED
        };
        let seen = world.run_with(Random(seed * 1_000_003));
        let p95_us = seen.percentile_us(HIGH, 95);
        assert!(p95_us <= 200_000, "{seed}: {p95_us}");
        goodput += seen.goodput_percent(650);
    }
    assert!(goodput >= 100 * 80, "{goodput}");
}

/// 4 workers that take 100 us. A request counts as four times the baseline at most, which is less
/// than the slack: the queue is found all the same.
#[test]
fn queue_of_a_fast_server_stays_short() {
    let world = World {
        workers: 4,
        service_us: |_| 100,
        arrivals: [8_000, 112_000],
        calm_until: 2 * SECOND_US,
        measured: (3 * SECOND_US, 5 * SECOND_US),
        ..OVERLOADED
    };
    let seen = world.run();
    assert!(seen.goodput_percent(40_000 * 2) >= 90, "{}", seen.goodput_percent(80_000));
    assert!(seen.p99_us(HIGH) <= 10_000, "{}", seen.p99_us(HIGH));
}
