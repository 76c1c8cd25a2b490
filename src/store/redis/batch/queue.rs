//! Queue of checks: which wait, and how many calls are in flight. Pure; `tests/model` checks it
//! under all interleavings of threads.
//!
//! While a check waits, a call is in flight, which sends or answers it. A call ends only if no
//! check waits.

use std::collections::VecDeque;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bounds {
    /// Maximum number of waiting checks.
    pub waiting: usize,
    /// Maximum number of calls in flight.
    pub calls: usize,
    /// Checks in a full call; if as many wait, another call starts.
    pub checks: usize,
    /// Microseconds after which a call takes long, so that another one starts in parallel.
    pub long_us: u64,
}

/// Result of adding a check.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Enqueued {
    /// It waits for a call in flight.
    Waits,
    /// It waits, and the caller must start another call.
    Starts,
    /// Too many checks wait; it was not added.
    Full,
}

/// What a call does next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Next<B> {
    /// It sends these checks.
    Sends(B),
    /// Checks wait that it cannot send yet, and no other call is in flight that would: it asks
    /// again.
    Pauses,
    /// It has ended.
    Ends,
}

/// Waiting checks in the order of arrival, and the number of calls in flight.
#[derive(Debug)]
pub struct Queue<T> {
    waiting: VecDeque<T>,
    calls: usize,
    /// Time at which the last call was sent, in microseconds.
    last_sent: u64,
    bounds: Bounds,
}

impl<T> Queue<T> {
    /// Creates an empty queue.
    pub fn new(bounds: Bounds) -> Self {
        Self { waiting: VecDeque::new(), calls: 0, last_sent: 0, bounds }
    }

    /// Adds a check at `now`. If the result is [`Starts`](Enqueued::Starts), the caller runs a
    /// call: it calls [`leave`](Self::leave) until that returns [`Ends`](Next::Ends).
    pub fn enqueue(&mut self, check: T, now: u64) -> Enqueued {
        if self.waiting.len() >= self.bounds.waiting {
            return Enqueued::Full;
        }
        let takes_long = now.saturating_sub(self.last_sent) >= self.bounds.long_us;
        self.waiting.push_back(check);
        let starts = self.calls == 0 || takes_long || self.waiting.len() >= self.bounds.checks;
        if starts && self.start_another(now) { Enqueued::Starts } else { Enqueued::Waits }
    }

    /// Starts another call, if one may be started and a check waits. Returns whether the caller
    /// must run it.
    pub fn start_another(&mut self, now: u64) -> bool {
        let starts = self.calls < self.bounds.calls && !self.waiting.is_empty();
        if starts {
            self.calls += 1;
            self.last_sent = now;
        }
        starts
    }

    /// Removes the checks of a call that is sent at `now`. `gather` returns `None` if it can send
    /// none of those that wait.
    pub fn leave<B>(
        &mut self,
        now: u64,
        gather: impl FnOnce(&mut VecDeque<T>) -> Option<B>,
    ) -> Next<B> {
        if let Some(batch) = gather(&mut self.waiting) {
            self.last_sent = now;
            return Next::Sends(batch);
        }
        if self.calls == 1 && !self.waiting.is_empty() {
            return Next::Pauses;
        }
        self.calls -= 1;
        Next::Ends
    }

    /// Ends a call that cannot go on, at `now`. Returns whether the caller must run another one in
    /// its place.
    pub fn abandon(&mut self, now: u64) -> bool {
        self.calls -= 1;
        self.start_another(now)
    }

    /// Returns the check that has waited longest; `None` if none waits.
    pub fn front(&self) -> Option<&T> {
        self.waiting.front()
    }

    /// Removes the oldest check if `is_over` is true for it.
    pub fn pop_front_if(&mut self, is_over: impl FnOnce(&T) -> bool) -> Option<T> {
        if is_over(self.waiting.front()?) { self.waiting.pop_front() } else { None }
    }

    /// Number of calls in flight.
    pub fn calls(&self) -> usize {
        self.calls
    }
}
