//! When a shared store is asked, and when it is left alone: a circuit breaker. Pure.
//!
//! - **Closed**: every request asks the store.
//! - **Open**: nobody asks. After a while that doubles with each failure, probes that no request
//!   waits for find out whether the store is back.
//! - **Half open**: a share of the requests asks, more with each step; the store may be back and
//!   still too weak for all of them.

mod window;

use super::MICROS_PER_SECOND;
use window::Window;

/// When it opens, for how long, and how it closes. Ticks are those of the process' clock; every
/// time is 1 ms to 1 h.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// So many calls in a row without an answer in time open it, 1 to 1,000.
    pub timeouts: u32,
    /// The span over which timeouts are set against calls.
    pub window_us: u64,
    /// How many calls within the window it takes to judge them, 1 to 100,000.
    pub window_calls: u32,
    /// Percent of the window's calls, 1 to 100, that open it by timing out.
    pub window_timeouts_percent: u32,
    /// How long it stays open at most the first time.
    pub open_us: u64,
    /// What that doubles to; never below `open_us`.
    pub open_max_us: u64,
    /// How many probes in a row must succeed before requests return, 1 to 100.
    pub probes: u32,
    /// Percent of the requests that ask in each step after a recovery: 1 to 16 steps of 1 to 100,
    /// none below the one before, the last 100.
    pub ramp: Vec<u32>,
    /// How long each step takes.
    pub ramp_step_us: u64,
}

impl Default for Settings {
    /// For one server; behind sentinels a file that says nothing gets a lower `open_max_us`.
    fn default() -> Self {
        Self {
            timeouts: 5,
            window_us: 5 * MICROS_PER_SECOND,
            window_calls: 20,
            window_timeouts_percent: 50,
            open_us: MICROS_PER_SECOND / 2,
            open_max_us: 15 * MICROS_PER_SECOND,
            probes: 3,
            ramp: vec![1, 10, 50, 100],
            ramp_step_us: MICROS_PER_SECOND,
        }
    }
}

/// What a breaker does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// Every request asks.
    Closed,
    /// A share of the requests asks, by the time since this tick.
    HalfOpen {
        /// When the first step began.
        since: u64,
    },
    /// Nobody asks, and probes begin at this tick.
    Open {
        /// When to probe.
        until: u64,
    },
}

/// What became of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// Answered in time, or with an error that says nothing of the store's health.
    Answered,
    /// Not answered in time.
    TimedOut,
    /// A failure that leaves no doubt: no connection, or an error that every call would end in.
    Failed,
}

/// A breaker. Whoever holds it tells it what happened, and the time.
#[derive(Clone, Debug)]
pub struct Breaker {
    settings: Settings,
    state: State,
    /// Calls in a row without an answer in time.
    timeouts: u32,
    window: Window,
    /// How often in a row it opened without being closed for long.
    openings: u32,
    closed_since: u64,
}

impl Breaker {
    /// A closed breaker: until something fails, nothing is known against the store.
    pub fn new(settings: Settings, now: u64) -> Self {
        let window = Window::new(settings.window_us);
        let state = State::Closed;
        Self { settings, state, timeouts: 0, window, openings: 0, closed_since: now }
    }

    /// What it does.
    pub fn state(&self) -> State {
        self.state
    }

    /// Percent of the requests that may ask at `now`.
    pub fn admits_percent(&self, now: u64) -> u32 {
        match self.state {
            State::Closed => 100,
            State::Open { .. } => 0,
            State::HalfOpen { since } => self.step(since, now).map_or(100, |(_, percent)| percent),
        }
    }

    /// Notes what became of a call. `random` is any number, of the process' own: breakers that
    /// open together must not probe together.
    pub fn note(&mut self, event: Event, now: u64, random: u64) {
        // What was sent before it opened says nothing new.
        if matches!(self.state, State::Open { .. }) {
            return;
        }
        self.timeouts = if event == Event::TimedOut { self.timeouts.saturating_add(1) } else { 0 };
        if event == Event::Failed || self.times_out_too_often(event, now) {
            self.open(now, random);
        }
    }

    /// Opens it: the store cannot be reached, or is known to be of no use.
    pub fn open(&mut self, now: u64, random: u64) {
        let settings = &self.settings;
        let steady = self.state == State::Closed
            && now.saturating_sub(self.closed_since) >= settings.open_max_us;
        self.openings = if steady { 0 } else { self.openings };
        let doubled = 1_u64.checked_shl(self.openings).unwrap_or(u64::MAX);
        let most = settings.open_us.saturating_mul(doubled).min(settings.open_max_us).max(1);
        // Anything up to the bound ("full jitter"): whoever lost the store together comes back
        // spread over all of it.
        self.state = State::Open { until: now.saturating_add(1 + random % most) };
        self.openings = self.openings.saturating_add(1);
        self.timeouts = 0;
        self.window.clear();
    }

    /// Enough probes in a row have succeeded.
    pub fn recovered(&mut self, now: u64) {
        if let State::Open { .. } = self.state {
            self.state = State::HalfOpen { since: now };
        }
    }

    /// Requests return step by step, where all of them would ask at once: they have been kept away
    /// for another reason than a failure.
    pub fn ramp_up(&mut self, now: u64) {
        if self.state == State::Closed {
            self.state = State::HalfOpen { since: now };
        }
    }

    /// Goes on to the next state where its time has come.
    pub fn advance(&mut self, now: u64) {
        if let State::HalfOpen { since } = self.state
            && self.step(since, now).is_none()
        {
            self.state = State::Closed;
            self.closed_since = now;
        }
    }

    /// When [`admits_percent`](Self::admits_percent) changes next by time alone, while half open.
    pub fn next_step(&self, now: u64) -> Option<u64> {
        let State::HalfOpen { since } = self.state else { return None };
        self.step(since, now).map(|(ends, _)| ends)
    }

    /// The step of the half-open state at `now`: when it ends, and who may ask. None: all are over.
    fn step(&self, since: u64, now: u64) -> Option<(u64, u32)> {
        let length = self.settings.ramp_step_us.max(1);
        let step = now.saturating_sub(since) / length;
        let percent = self.settings.ramp.get(usize::try_from(step).ok()?)?;
        Some((since.saturating_add((step + 1).saturating_mul(length)), *percent))
    }

    fn times_out_too_often(&mut self, event: Event, now: u64) -> bool {
        self.window.count(event == Event::TimedOut, now);
        let (calls, timeouts) = self.window.sums();
        let settings = &self.settings;
        let many = calls >= u64::from(settings.window_calls)
            && timeouts * 100 >= calls * u64::from(settings.window_timeouts_percent);
        event == Event::TimedOut && (self.timeouts >= settings.timeouts || many)
    }
}

#[cfg(test)]
mod tests;
