//! Handle of the circuit breaker, shared by all threads: requests ask whether they may call Redis,
//! calls report their results, and the supervisor advances it.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use prometheus::{IntCounterVec, IntGauge};
use serde::{Deserialize, Serialize};
use tokio::sync::{Notify, watch};
use tracing::{info, warn};

use crate::base::{clock, hash};
use crate::limit::breaker::{Breaker, Event, Settings, State};

/// Series of a circuit breaker.
#[derive(Clone, Debug)]
pub struct BreakerSeries {
    /// 0 closed, 1 half open, 2 open.
    pub state: IntGauge,
    /// Transitions, by the state that followed.
    pub transitions: IntCounterVec,
}

/// Whether an operator overrides the breaker.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Override {
    /// No override: the outcomes of calls decide.
    #[default]
    Auto,
    /// No request uses Redis, as in an outage: a rehearsal. The connection stays open.
    Open,
    /// Every request uses Redis, whatever the outcomes of calls.
    Closed,
}

/// State of a circuit breaker as operators see it: an override takes precedence over the results of
/// calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BreakerState {
    /// Every request calls Redis.
    Closed = 0,
    /// Some requests call Redis.
    HalfOpen = 1,
    /// No request calls Redis.
    Open = 2,
}

/// Status of a circuit breaker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BreakerStatus {
    /// State, with the override applied.
    pub state: BreakerState,
    /// Override that the operator has set.
    pub r#override: Override,
    /// Microseconds since it entered that state.
    pub since_us: u64,
    /// Percentage of requests that call Redis.
    pub admits_percent: u32,
    /// Microseconds until the next probe of Redis; 0 while the breaker is closed, half open or
    /// overridden.
    pub retry_after_us: u64,
}

/// State of the breaker that the lock protects.
#[derive(Debug)]
struct Inner {
    breaker: Breaker,
    r#override: Override,
    /// State that results from both, and its start in microseconds.
    state: BreakerState,
    since: u64,
}

/// A circuit breaker that all threads share.
#[derive(Debug)]
pub(super) struct BreakerHandle {
    inner: Mutex<Inner>,
    /// Percentage of requests that may call Redis. Follows the breaker, so that a request takes no
    /// lock.
    percent: AtomicU32,
    /// Spreads the requests that may call Redis, while only some may.
    turn: AtomicU32,
    /// State of the breaker without the override, for tasks that wait for another.
    state: watch::Sender<State>,
    /// Ends the wait for the next probe.
    probe_now: Notify,
    random: AtomicU64,
    series: Option<BreakerSeries>,
    /// The master of a cluster that it belongs to, for logs.
    master: Option<String>,
}

impl BreakerHandle {
    pub(super) fn new(settings: Settings, series: Option<BreakerSeries>) -> Self {
        let now = clock::now();
        Self {
            inner: Mutex::new(Inner {
                breaker: Breaker::new(settings, now),
                r#override: Override::Auto,
                state: BreakerState::Closed,
                since: now,
            }),
            percent: AtomicU32::new(100),
            turn: AtomicU32::new(0),
            state: watch::Sender::new(State::Closed),
            probe_now: Notify::new(),
            random: AtomicU64::new(getrandom::u64().unwrap_or(now)),
            series,
            master: None,
        }
    }

    /// The same, of a master of a cluster.
    pub(super) fn of_master(self, address: String) -> Self {
        Self { master: Some(address), ..self }
    }

    /// Whether this request may call Redis. While only some may, they are spread evenly.
    pub(super) fn admits(&self) -> bool {
        match self.percent.load(Ordering::Relaxed) {
            100.. => true,
            0 => false,
            // 37 and 100 have no common divisor: a hundred turns give each number once.
            percent => self.turn.fetch_add(37, Ordering::Relaxed) % 100 < percent,
        }
    }

    /// Whether every request may call Redis. Does not count as a request.
    pub(super) fn admits_all(&self) -> bool {
        self.percent.load(Ordering::Relaxed) >= 100
    }

    /// Whether no request may call Redis.
    pub(super) fn is_open(&self) -> bool {
        self.percent.load(Ordering::Relaxed) == 0
    }

    /// Microseconds until the next probe of Redis; 0 unless the breaker is open.
    pub(super) fn retry_after_us(&self) -> u64 {
        match *self.state.borrow() {
            State::Open { until } => until.saturating_sub(clock::now()),
            State::Closed | State::HalfOpen { .. } => 0,
        }
    }

    /// Records the result of a call; `why` is the reason of a failure. Returns whether it opened
    /// the breaker.
    pub(super) fn note(&self, event: Event, why: &str) -> bool {
        self.change(why, |breaker, now, random| breaker.note(event, now, random))
    }

    /// Opens the breaker, or opens it again for longer. Returns whether it was not open before.
    pub(super) fn open(&self, why: &str) -> bool {
        self.change(why, Breaker::open)
    }

    pub(super) fn status(&self) -> BreakerStatus {
        let now = clock::now();
        let inner = self.inner.lock();
        BreakerStatus {
            state: inner.state,
            r#override: inner.r#override,
            since_us: now.saturating_sub(inner.since),
            admits_percent: inner.admits_percent(now),
            retry_after_us: match (inner.r#override, inner.breaker.state()) {
                (Override::Auto, State::Open { until }) => until.saturating_sub(now),
                _ => 0,
            },
        }
    }

    /// Sets or ends the override. After it ends, the outcomes of calls decide again, those during
    /// the override included; if the breaker is closed by them, requests return to Redis step by
    /// step.
    pub(super) fn set_override(&self, wanted: Override) {
        let before = std::mem::replace(&mut self.inner.lock().r#override, wanted);
        self.change("opened by an operator", |breaker, now, _| {
            if before == Override::Open && wanted == Override::Auto {
                breaker.ramp_up(now);
            }
        });
    }

    /// Probes have succeeded: the breaker becomes half open.
    pub(super) fn recovered(&self) {
        self.change("", |breaker, now, _| breaker.recovered(now));
    }

    /// Waits until the next probe is due; returns at once unless the breaker is open.
    pub(super) async fn until_probe(&self) {
        tokio::select! {
            () = tokio::time::sleep(Duration::from_micros(self.retry_after_us())) => {}
            () = self.probe_now.notified() => {}
        }
    }

    /// Makes the next probe due now.
    pub(super) fn probe_now(&self) {
        self.probe_now.notify_one();
    }

    /// Waits until the breaker is open.
    pub(super) async fn until_open(&self) {
        let mut states = self.state.subscribe();
        // The sender lives as long as this does.
        let _ = states.wait_for(|state| matches!(state, State::Open { .. })).await;
    }

    /// Advances the breaker through the steps of the half-open state. Never returns.
    pub(super) async fn keep_advancing(&self) {
        let mut states = self.state.subscribe();
        loop {
            let _ = states.wait_for(|state| matches!(state, State::HalfOpen { .. })).await;
            let now = clock::now();
            let next = self.inner.lock().breaker.next_step(now).unwrap_or(now);
            tokio::time::sleep(Duration::from_micros(next.saturating_sub(now))).await;
            self.change("", |breaker, now, _| breaker.advance(now));
        }
    }

    /// A random number, from a sequence that differs between processes.
    pub(super) fn random(&self) -> u64 {
        hash::mix(self.random.fetch_add(hash::GOLDEN, Ordering::Relaxed))
    }

    /// Changes the breaker and publishes the result. Returns whether the breaker has just opened,
    /// other than by an override.
    fn change(&self, why: &str, change: impl FnOnce(&mut Breaker, u64, u64)) -> bool {
        let (now, random) = (clock::now(), self.random());
        let mut inner = self.inner.lock();
        let before = inner.breaker.state();
        change(&mut inner.breaker, now, random);
        let after = inner.breaker.state();
        self.percent.store(inner.admits_percent(now), Ordering::Relaxed);
        let state = BreakerState::of(inner.r#override, after);
        if state != inner.state {
            (inner.state, inner.since) = (state, now);
            self.report(state, why);
        }
        if before == after {
            return false;
        }
        self.state.send_replace(after);
        let is_transition = std::mem::discriminant(&before) != std::mem::discriminant(&after);
        is_transition && matches!(after, State::Open { .. })
    }

    /// Logs and counts a transition.
    fn report(&self, state: BreakerState, why: &str) {
        match (state, &self.master) {
            (BreakerState::Closed, None) => info!("breaker closed: Redis decides again"),
            (BreakerState::HalfOpen, None) => {
                info!("breaker half open: Redis answers; requests return to it step by step");
            }
            (BreakerState::Open, None) => {
                warn!("breaker open: {why}; limits are decided locally until Redis is back");
            }
            (BreakerState::Closed, Some(at)) => {
                info!("breaker of the master {at} closed: it decides again");
            }
            (BreakerState::HalfOpen, Some(at)) => {
                info!(
                    "breaker of the master {at} half open: it answers; requests return to it step by step"
                );
            }
            (BreakerState::Open, Some(at)) => {
                warn!(
                    "breaker of the master {at} open: {why}; limits in its slots are decided locally until it is \
                     back"
                );
            }
        }
        if let Some(series) = &self.series {
            series.state.set(state as i64);
            series.transitions.with_label_values(&[state.name()]).inc();
        }
    }
}

impl Inner {
    fn admits_percent(&self, now: u64) -> u32 {
        match self.r#override {
            Override::Auto => self.breaker.admits_percent(now),
            Override::Open => 0,
            Override::Closed => 100,
        }
    }
}

impl Override {
    /// `auto`, `open` or `closed`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Open => "open",
            Self::Closed => "closed",
        }
    }
}

impl BreakerState {
    fn of(r#override: Override, state: State) -> Self {
        match (r#override, state) {
            (Override::Open, _) | (Override::Auto, State::Open { .. }) => Self::Open,
            (Override::Closed, _) | (Override::Auto, State::Closed) => Self::Closed,
            (Override::Auto, State::HalfOpen { .. }) => Self::HalfOpen,
        }
    }

    /// `closed`, `half_open` or `open`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Closed => "closed",
            Self::HalfOpen => "half_open",
            Self::Open => "open",
        }
    }
}

#[cfg(test)]
mod tests;
