//! The breaker as all threads see it: requests ask whether to go on, calls say what became of them,
//! the supervisor moves it along.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use prometheus::{IntCounterVec, IntGauge};
use tokio::sync::{Notify, watch};
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

/// Whether an operator overrides the breaker.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Override {
    /// No override: the outcomes of calls decide.
    #[default]
    Auto,
    /// No request uses Redis, as in an outage: a rehearsal. The connection stays open.
    Open,
    /// Every request uses Redis, whatever the outcomes of calls.
    Closed,
}

/// What the breaker does, for people who ask.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Standing {
    /// `closed`, `half_open` or `open`.
    pub state: &'static str,
    /// The operator's override.
    pub r#override: Override,
    /// Ticks since it came to that state.
    pub since: u64,
    /// Percent of the requests that ask.
    pub admits_percent: u32,
    /// Microseconds until the next probe of Redis; 0 while the breaker is closed, half open or overridden.
    pub retry_after_us: u64,
}

/// What is behind the lock.
#[derive(Debug)]
struct Held {
    breaker: Breaker,
    r#override: Override,
    /// What is seen of both, and since which tick.
    seen: Seen,
    since: u64,
}

/// The states as they are told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Seen {
    Closed = 0,
    HalfOpen = 1,
    Open = 2,
}

/// A breaker that many hold.
#[derive(Debug)]
pub(super) struct Gate {
    held: Mutex<Held>,
    /// Percent of the requests that may ask; follows the breaker, for those who have no time.
    percent: AtomicU32,
    /// Requests that came while only some may ask.
    turn: AtomicU32,
    /// The state, for whoever waits for another.
    state: watch::Sender<State>,
    /// Ends the wait for the next probe.
    hurry: Notify,
    random: AtomicU64,
    series: Option<BreakerSeries>,
}

impl Gate {
    pub(super) fn new(settings: Settings, series: Option<BreakerSeries>) -> Self {
        let now = clock::now();
        Self {
            held: Mutex::new(Held {
                breaker: Breaker::new(settings, now),
                r#override: Override::Auto,
                seen: Seen::Closed,
                since: now,
            }),
            percent: AtomicU32::new(100),
            turn: AtomicU32::new(0),
            state: watch::Sender::new(State::Closed),
            hurry: Notify::new(),
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

    /// Whether everybody may ask. Takes no turn from those who do.
    pub(super) fn admits_all(&self) -> bool {
        self.percent.load(Ordering::Relaxed) >= 100
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

    /// What it does.
    pub(super) fn standing(&self) -> Standing {
        let now = clock::now();
        let held = self.held.lock();
        Standing {
            state: held.seen.name(),
            r#override: held.r#override,
            since: now.saturating_sub(held.since),
            admits_percent: held.admits_percent(now),
            retry_after_us: match (held.r#override, held.breaker.state()) {
                (Override::Auto, State::Open { until }) => until.saturating_sub(now),
                _ => 0,
            },
        }
    }

    /// Sets or ends the override. After it ends, the outcomes of calls decide again, those during the
    /// override included; if the breaker is closed by them, requests return to Redis step by step.
    pub(super) fn set_override(&self, wanted: Override) {
        let before = std::mem::replace(&mut self.held.lock().r#override, wanted);
        self.change("opened by an operator", |breaker, now, _| {
            if before == Override::Open && wanted == Override::Auto {
                breaker.ramp_up(now);
            }
        });
    }

    /// The store is back.
    pub(super) fn recovered(&self) {
        self.change("", |breaker, now, _| breaker.recovered(now));
    }

    /// Waits until it is time to find out whether the store is back; not at all while it is asked.
    pub(super) async fn until_probe(&self) {
        tokio::select! {
            () = tokio::time::sleep(Duration::from_micros(self.opens_in())) => {}
            () = self.hurry.notified() => {}
        }
    }

    /// Has the next probe begin now.
    pub(super) fn hurry(&self) {
        self.hurry.notify_one();
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
            let next = self.held.lock().breaker.next_step(now).unwrap_or(now);
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

    /// Changes the breaker, and tells everybody. Returns whether it has just opened by itself.
    fn change(&self, why: &str, change: impl FnOnce(&mut Breaker, u64, u64)) -> bool {
        let (now, random) = (clock::now(), self.random());
        let mut held = self.held.lock();
        let before = held.breaker.state();
        change(&mut held.breaker, now, random);
        let after = held.breaker.state();
        self.percent.store(held.admits_percent(now), Ordering::Relaxed);
        let seen = Seen::of(held.r#override, after);
        if seen != held.seen {
            (held.seen, held.since) = (seen, now);
            self.tell(seen, why);
        }
        if before == after {
            return false;
        }
        self.state.send_replace(after);
        let is_news = std::mem::discriminant(&before) != std::mem::discriminant(&after);
        is_news && matches!(after, State::Open { .. })
    }

    fn tell(&self, seen: Seen, why: &str) {
        match seen {
            Seen::Closed => info!("breaker closed: Redis decides again"),
            Seen::HalfOpen => {
                info!("breaker half open: Redis answers; requests return to it step by step");
            }
            Seen::Open => {
                warn!("breaker open: {why}; limits are decided here until Redis is back");
            }
        }
        if let Some(series) = &self.series {
            series.state.set(seen as i64);
            series.transitions.with_label_values(&[seen.name()]).inc();
        }
    }
}

impl Held {
    fn admits_percent(&self, now: u64) -> u32 {
        match self.r#override {
            Override::Auto => self.breaker.admits_percent(now),
            Override::Open => 0,
            Override::Closed => 100,
        }
    }
}

impl Seen {
    fn of(r#override: Override, state: State) -> Self {
        match (r#override, state) {
            (Override::Open, _) | (Override::Auto, State::Open { .. }) => Self::Open,
            (Override::Closed, _) | (Override::Auto, State::Closed) => Self::Closed,
            (Override::Auto, State::HalfOpen { .. }) => Self::HalfOpen,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Closed => "closed",
            Self::HalfOpen => "half_open",
            Self::Open => "open",
        }
    }
}

#[cfg(test)]
mod tests;
