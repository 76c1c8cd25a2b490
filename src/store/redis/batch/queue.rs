//! When a check leaves, and with which others: what waits, and how many calls are under way. Pure;
//! `tests/model` checks it under all interleavings of threads.
//!
//! While a check waits, a call is under way, which takes it along or answers it. A call ends only
//! where no check waits.

use std::collections::VecDeque;

/// How much may wait and travel at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bounds {
    /// Checks that wait.
    pub waiting: usize,
    /// Calls under way.
    pub calls: usize,
    /// Checks in a call; where so many wait, another call starts.
    pub checks: usize,
    /// Ticks after which a call takes long, so that another starts beside it.
    pub long: u64,
}

/// What becomes of a check that comes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Enqueued {
    /// A call that is under way takes it along.
    Waits,
    /// The same, and another call must be started.
    Starts,
    /// Too many wait; it is not in the queue.
    Full,
}

/// Checks in the order in which they came, and how many calls are under way.
#[derive(Debug)]
pub struct Queue<T> {
    waiting: VecDeque<T>,
    calls: usize,
    /// When the last call was sent.
    last_sent: u64,
    bounds: Bounds,
}

impl<T> Queue<T> {
    /// An empty queue.
    pub fn new(bounds: Bounds) -> Self {
        Self { waiting: VecDeque::new(), calls: 0, last_sent: 0, bounds }
    }

    /// Puts a check in line that came at `now`. Where it [starts](Enqueued::Starts) a call, the
    /// caller runs one: [`leave`](Self::leave) until that returns none.
    pub fn enqueue(&mut self, check: T, now: u64) -> Enqueued {
        if self.waiting.len() >= self.bounds.waiting {
            return Enqueued::Full;
        }
        let takes_long = now.saturating_sub(self.last_sent) >= self.bounds.long;
        self.waiting.push_back(check);
        let starts = self.calls == 0 || takes_long || self.waiting.len() >= self.bounds.checks;
        if starts && self.start_another(now) { Enqueued::Starts } else { Enqueued::Waits }
    }

    /// Another call beside those under way, if there may be one and a check waits for it. Returns
    /// whether the caller must run it.
    pub fn start_another(&mut self, now: u64) -> bool {
        let starts = self.calls < self.bounds.calls && !self.waiting.is_empty();
        if starts {
            self.calls += 1;
            self.last_sent = now;
        }
        starts
    }

    /// What a call takes along that leaves at `now`. `gather` returns none only where it has left
    /// no check in line: then the call has ended.
    pub fn leave<B>(
        &mut self,
        now: u64,
        gather: impl FnOnce(&mut VecDeque<T>) -> Option<B>,
    ) -> Option<B> {
        let batch = gather(&mut self.waiting);
        match batch {
            Some(_) => self.last_sent = now,
            None => self.calls -= 1,
        }
        batch
    }

    /// The check that has waited longest.
    pub fn front(&self) -> Option<&T> {
        self.waiting.front()
    }

    /// Takes that check out of the line, where `is_over` says so.
    pub fn pop_front_if(&mut self, is_over: impl FnOnce(&T) -> bool) -> Option<T> {
        if is_over(self.waiting.front()?) { self.waiting.pop_front() } else { None }
    }

    /// Calls under way.
    pub fn calls(&self) -> usize {
        self.calls
    }
}
