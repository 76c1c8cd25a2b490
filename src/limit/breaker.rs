//! Circuit breaker for calls of the shared store. Pure.
//!
//! - **Closed**: every request calls the store.
//! - **Open**: no request calls the store. After a delay that doubles with each failure, probes
//!   outside of any request check whether the store is available again.
//! - **Half open**: a percentage of the requests calls the store. It rises in steps, because the
//!   store may be available but not yet able to serve all requests.

mod window;

use crate::base::duration::MICROS_PER_SECOND;
use window::Window;

/// Settings of a circuit breaker: when it opens, for how long, and how it closes. Durations are in
/// microseconds, 1 ms to 1 h.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Number of consecutive timeouts that open the breaker, 1 to 1,000.
    pub timeouts: u32,
    /// Length of the sliding window over which the percentage of timeouts is computed.
    pub window_us: u64,
    /// Minimum number of calls in the window for its percentage to count, 1 to 100,000.
    pub window_calls: u32,
    /// Percentage of timeouts in the window that opens the breaker, 1 to 100.
    pub window_timeouts_percent: u32,
    /// Maximum duration of the first opening. It doubles with each further opening.
    pub open_us: u64,
    /// Maximum duration of any opening; at least `open_us`.
    pub open_max_us: u64,
    /// Number of consecutive successful probes that end an opening, 1 to 100.
    pub probes: u32,
    /// Percentage of requests that call the store in each step of the half-open state: 1 to 16
    /// steps of 1 to 100, none below the previous one, the last 100.
    pub ramp: Vec<u32>,
    /// Duration of each step.
    pub ramp_step_us: u64,
}

impl Default for Settings {
    /// Defaults for a single server. With sentinels, the default `open_max_us` is lower.
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

/// State of a circuit breaker. Times are in microseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// Every request calls the store.
    Closed,
    /// A percentage of requests calls the store, which depends on the time since `since`.
    HalfOpen {
        /// Start of the first step.
        since: u64,
    },
    /// No request calls the store.
    Open {
        /// Time of the first probe.
        until: u64,
    },
}

/// Result of a call of the store, as the breaker counts it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// A reply in time, or an error that does not indicate an outage.
    Answered,
    /// No reply in time.
    TimedOut,
    /// No connection, or an error that every call would return.
    Failed,
}

/// A circuit breaker. The caller reports results of calls and passes the time in microseconds.
#[derive(Clone, Debug)]
pub struct Breaker {
    settings: Settings,
    state: State,
    /// Number of consecutive timeouts.
    timeouts: u32,
    window: Window,
    /// Number of openings since it was last closed for at least `open_max_us`.
    openings: u32,
    closed_since: u64,
}

impl Breaker {
    /// Creates a closed breaker.
    pub fn new(settings: Settings, now: u64) -> Self {
        let window = Window::new(settings.window_us);
        let state = State::Closed;
        Self { settings, state, timeouts: 0, window, openings: 0, closed_since: now }
    }

    /// State after the last change. The half-open state remains after its last step until
    /// [`advance`](Self::advance) is called.
    pub fn state(&self) -> State {
        self.state
    }

    /// Percentage of requests that may call the store at `now`, 0 to 100.
    pub fn admits_percent(&self, now: u64) -> u32 {
        match self.state {
            State::Closed => 100,
            State::Open { .. } => 0,
            State::HalfOpen { since } => self.step(since, now).map_or(100, |(_, percent)| percent),
        }
    }

    /// Records the result of a call. `random` is a random number of this process: it jitters the
    /// duration of an opening, so that several gateways do not probe at the same time.
    pub fn note(&mut self, event: Event, now: u64, random: u64) {
        // The call was sent before the breaker opened.
        if matches!(self.state, State::Open { .. }) {
            return;
        }
        self.timeouts = if event == Event::TimedOut { self.timeouts.saturating_add(1) } else { 0 };
        if event == Event::Failed || self.has_too_many_timeouts(event, now) {
            self.open(now, random);
        }
    }

    /// Opens the breaker: the store is unreachable or unusable. `random` as in
    /// [`note`](Self::note).
    pub fn open(&mut self, now: u64, random: u64) {
        let settings = &self.settings;
        let steady = self.state == State::Closed
            && now.saturating_sub(self.closed_since) >= settings.open_max_us;
        self.openings = if steady { 0 } else { self.openings };
        let doubled = 1_u64.checked_shl(self.openings).unwrap_or(u64::MAX);
        let most = settings.open_us.saturating_mul(doubled).min(settings.open_max_us).max(1);
        // Full jitter: gateways that lost the store together probe it at different times.
        self.state = State::Open { until: now.saturating_add(1 + random % most) };
        self.openings = self.openings.saturating_add(1);
        self.timeouts = 0;
        self.window.clear();
    }

    /// Enters the half-open state from the open state, after enough successful probes.
    pub fn recovered(&mut self, now: u64) {
        if let State::Open { .. } = self.state {
            self.state = State::HalfOpen { since: now };
        }
    }

    /// Enters the half-open state from the closed state, so that requests return step by step. Used
    /// if requests did not call the store for another reason than a failure, such as an override.
    pub fn ramp_up(&mut self, now: u64) {
        if self.state == State::Closed {
            self.state = State::HalfOpen { since: now };
        }
    }

    /// Closes the breaker if all steps of the half-open state are over.
    pub fn advance(&mut self, now: u64) {
        if let State::HalfOpen { since } = self.state
            && self.step(since, now).is_none()
        {
            self.state = State::Closed;
            self.closed_since = now;
        }
    }

    /// Time at which [`admits_percent`](Self::admits_percent) next changes while half open; `None`
    /// in the other states.
    pub fn next_step(&self, now: u64) -> Option<u64> {
        let State::HalfOpen { since } = self.state else { return None };
        self.step(since, now).map(|(ends, _)| ends)
    }

    /// End and percentage of the half-open step at `now`; `None` after the last step.
    fn step(&self, since: u64, now: u64) -> Option<(u64, u32)> {
        let length = self.settings.ramp_step_us.max(1);
        let step = now.saturating_sub(since) / length;
        let percent = self.settings.ramp.get(usize::try_from(step).ok()?)?;
        Some((since.saturating_add((step + 1).saturating_mul(length)), *percent))
    }

    fn has_too_many_timeouts(&mut self, event: Event, now: u64) -> bool {
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
