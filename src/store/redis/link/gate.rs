//! The breaker as all threads see it: requests ask whether to go on, calls say what became of them,
//! the supervisor moves it along.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use prometheus::{IntCounterVec, IntGauge};
use tokio::sync::watch;
use tracing::{info, warn};

use crate::clock;
use crate::limit::breaker::{Breaker, Event, Settings, State};

/// What is counted of the breaker.
#[derive(Clone, Debug)]
pub struct BreakerSeries {
    /// 0 closed, 1 half open, 2 open.
    pub state: IntGauge,
    /// Changes, by the state that followed.
    pub transitions: IntCounterVec,
}

/// A breaker that many hold.
#[derive(Debug)]
pub(super) struct Gate {
    breaker: Mutex<Breaker>,
    /// Percent of the requests that may ask; follows the breaker, for those who have no time.
    percent: AtomicU32,
    /// Requests that came while only some may ask.
    turn: AtomicU32,
    /// The state, for whoever waits for another.
    state: watch::Sender<State>,
    random: AtomicU64,
    series: Option<BreakerSeries>,
}

impl Gate {
    pub(super) fn new(settings: Settings, series: Option<BreakerSeries>) -> Self {
        let now = clock::now();
        Self {
            breaker: Mutex::new(Breaker::new(settings, now)),
            percent: AtomicU32::new(100),
            turn: AtomicU32::new(0),
            state: watch::Sender::new(State::Closed),
            random: AtomicU64::new(getrandom::u64().unwrap_or(now)),
            series,
        }
    }

    /// Whether this request may ask. While some may, they are spread evenly over those who come.
    pub(super) fn admits(&self) -> bool {
        match self.percent.load(Ordering::Relaxed) {
            100.. => true,
            0 => false,
            // 37 and 100 have no common divisor: a hundred turns meet each number once.
            percent => self.turn.fetch_add(37, Ordering::Relaxed) % 100 < percent,
        }
    }

    /// Whether nobody may ask.
    pub(super) fn is_open(&self) -> bool {
        self.percent.load(Ordering::Relaxed) == 0
    }

    /// Ticks until the store is tried again; 0 while it is asked.
    pub(super) fn opens_in(&self) -> u64 {
        match *self.state.borrow() {
            State::Open { until } => until.saturating_sub(clock::now()),
            State::Closed | State::HalfOpen { .. } => 0,
        }
    }

    /// Notes what became of a call, and why it failed if it did. Returns whether that opened it.
    pub(super) fn note(&self, event: Event, why: &str) -> bool {
        self.change(why, |breaker, now, random| breaker.note(event, now, random))
    }

    /// Opens it, or opens it again for longer. Returns whether it was not open before.
    pub(super) fn open(&self, why: &str) -> bool {
        self.change(why, Breaker::open)
    }

    /// The store is back.
    pub(super) fn recovered(&self) {
        self.change("", |breaker, now, _| breaker.recovered(now));
    }

    /// Waits until it is time to find out whether the store is back; not at all while it is asked.
    pub(super) async fn until_probe(&self) {
        tokio::time::sleep(Duration::from_micros(self.opens_in())).await;
    }

    /// Waits until it is open.
    pub(super) async fn until_open(&self) {
        let mut states = self.state.subscribe();
        // The sender lives as long as this does.
        let _ = states.wait_for(|state| matches!(state, State::Open { .. })).await;
    }

    /// Takes it from step to step while it is half open. Never returns.
    pub(super) async fn keep_stepping(&self) {
        let mut states = self.state.subscribe();
        loop {
            let _ = states.wait_for(|state| matches!(state, State::HalfOpen { .. })).await;
            let now = clock::now();
            let next = self.breaker.lock().next_step(now).unwrap_or(now);
            tokio::time::sleep(Duration::from_micros(next.saturating_sub(now))).await;
            self.change("", |breaker, now, _| breaker.advance(now));
        }
    }

    /// A random number: the sequence begins at random, and is of this process' own.
    pub(super) fn random(&self) -> u64 {
        // splitmix64 (Steele, Lea, Flood: Fast splittable pseudorandom number generators, 2014).
        let mut number = self.random.fetch_add(0x9e37_79b9_7f4a_7c15, Ordering::Relaxed);
        number = (number ^ (number >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        number = (number ^ (number >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        number ^ (number >> 31)
    }

    /// Changes the breaker, and tells everybody. Returns whether it has just opened.
    fn change(&self, why: &str, change: impl FnOnce(&mut Breaker, u64, u64)) -> bool {
        let (now, random) = (clock::now(), self.random());
        let mut breaker = self.breaker.lock();
        let before = breaker.state();
        change(&mut breaker, now, random);
        let after = breaker.state();
        self.percent.store(breaker.admits_percent(now), Ordering::Relaxed);
        if before == after {
            return false;
        }
        self.state.send_replace(after);
        let is_news = std::mem::discriminant(&before) != std::mem::discriminant(&after);
        if is_news {
            self.tell(after, why);
        }
        is_news && matches!(after, State::Open { .. })
    }

    fn tell(&self, state: State, why: &str) {
        let (number, to) = match state {
            State::Closed => {
                info!("breaker closed: Redis decides again");
                (0, "closed")
            }
            State::HalfOpen { .. } => {
                info!("breaker half open: Redis answers; requests return to it step by step");
                (1, "half_open")
            }
            State::Open { .. } => {
                warn!("breaker open: {why}; limits are decided here until Redis is back");
                (2, "open")
            }
        };
        if let Some(series) = &self.series {
            series.state.set(number);
            series.transitions.with_label_values(&[to]).inc();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn requests_return_evenly() {
        let gate = Gate::new(Settings { ramp: vec![10, 100], ..Settings::default() }, None);
        assert!(gate.admits() && !gate.is_open());
        gate.open("a test");
        assert!(!gate.admits() && gate.is_open());
        gate.recovered();
        let admitted: Vec<bool> = (0..1_000).map(|_| gate.admits()).collect();
        assert_eq!(admitted.iter().filter(|admitted| **admitted).count(), 100);
        let longest = admitted.split(|admitted| *admitted).map(<[bool]>::len).max();
        assert!(longest < Some(30), "{longest:?} in a row were not");
    }

    #[test]
    fn one_change_is_told_once() {
        let transitions = prometheus::Opts::new("transitions", "x");
        let series = BreakerSeries {
            state: IntGauge::new("state", "x").unwrap(),
            transitions: IntCounterVec::new(transitions, &["to"]).unwrap(),
        };
        let gate = Gate::new(Settings::default(), Some(series.clone()));
        assert!(gate.note(Event::Failed, "x"));
        assert!(!gate.note(Event::Failed, "x"));
        gate.open("again");
        let told = |to| series.transitions.with_label_values(&[to]).get();
        assert_eq!((series.state.get(), told("open"), told("half_open")), (2, 1, 0));
        gate.recovered();
        assert_eq!((series.state.get(), told("half_open")), (1, 1));
    }

    #[test]
    fn two_processes_draw_different_numbers() {
        let numbers = || {
            let gate = Gate::new(Settings::default(), None);
            (0..4).map(|_| gate.random()).collect::<Vec<_>>()
        };
        assert_ne!(numbers(), numbers());
    }
}
