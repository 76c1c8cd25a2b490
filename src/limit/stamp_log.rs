//! Log of a sliding window: the times at which its tokens were taken, one stamp for each token.

use std::collections::VecDeque;

use super::bucket::{Bucket, CLOCK_SLACK_US};
use super::reading::Times;
use super::sliding_window::SlidingWindow;

/// Smallest number of stamps that room is reserved for.
const MIN_ROOM: usize = 4;

/// Size of the head of a stored log, in bytes, and of a stamp.
const HEAD: usize = 40;
const STAMP: usize = 8;

/// Stamps in microseconds, the oldest first. A stamp is never before an older one: if the clock
/// goes back by up to [`CLOCK_SLACK_US`], new stamps are those of the newest. If it goes back
/// further, later stamps count as taken at the current time; otherwise they would not leave the
/// window until the clock had caught up.
///
/// Below 0 are times before the clock of this process began.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StampLog {
    stamps: VecDeque<i64>,
}

impl StampLog {
    /// The log of a bucket whose stamps are not known: all count as the newest.
    pub fn of_bucket(window: &SlidingWindow, bucket: Bucket) -> Self {
        let count = usize::try_from(window.full() - bucket.level).unwrap_or(0);
        Self { stamps: std::iter::repeat_n(bucket.at.cast_signed(), count).collect() }
    }

    /// A log of these stamps, sorted.
    pub fn of_stamps(stamps: impl Iterator<Item = i64>) -> Self {
        let mut stamps: Vec<i64> = stamps.collect();
        stamps.sort_unstable();
        Self { stamps: stamps.into() }
    }

    /// The stamps, the oldest first.
    pub fn stamps(&self) -> impl ExactSizeIterator<Item = i64> {
        self.stamps.iter().copied()
    }

    /// The stamps in the window at `now`, the oldest first.
    pub fn inside(&self, window: &SlidingWindow, now: u64) -> impl ExactSizeIterator<Item = i64> {
        let ceiling = self.ceiling(now);
        self.stamps.range(self.first(window, now)..).map(move |at| (*at).min(ceiling))
    }

    /// Number of stamps that room is reserved for.
    pub fn room(&self) -> usize {
        self.stamps.capacity()
    }

    /// The bucket at `now` (microseconds).
    pub fn bucket(&self, window: &SlidingWindow, now: u64) -> Bucket {
        let level = window.full() - signed(self.stamps.len() - self.first(window, now));
        let newest = self.newest().unwrap_or(0).min(self.ceiling(now));
        Bucket { level, at: newest.max(0).cast_unsigned() }
    }

    /// Times at `now`, once a request has changed the level to `level`: of which
    /// [`wait_us`](Times::wait_us) is the time until it is `needed`, at most full.
    pub fn times(&self, window: &SlidingWindow, level: i64, needed: i64, now: u64) -> Times {
        let now_signed = now.cast_signed();
        let stamp = self.next_stamp(now);
        let (oldest, kept, added) = self.split(window, level, now);
        let newest = if added > 0 { Some(stamp) } else { self.stamps.back().copied() };
        let until_left = |at: i64| {
            let us = at.min(self.ceiling(now)) - now_signed + window.window_us().cast_signed();
            us.max(0).cast_unsigned()
        };
        let left_us = newest.filter(|_| kept + added > 0).map_or(0, until_left);
        let missing = usize::try_from(needed.min(window.full()) - level.max(0)).unwrap_or(0);
        let wait_us = match missing {
            0 => 0,
            _ if missing <= kept => {
                self.stamps.get(oldest + missing - 1).map_or(0, |at| until_left(*at))
            }
            _ => until_left(stamp),
        };
        Times { left_us, wait_us }
    }

    /// Changes the level to `level` at `now`, at most to full: adds stamps, or removes the oldest.
    /// Forgets the stamps that have left the window.
    pub fn record(&mut self, window: &SlidingWindow, level: i64, now: u64) {
        let (oldest, _, added) = self.split(window, level, now);
        self.append(window, oldest, added, now);
    }

    /// Changes the level to `level` at `now`, and removes the newest stamps if that is more than it
    /// was: those of a request that is undone.
    pub fn undo(&mut self, window: &SlidingWindow, level: i64, now: u64) {
        let inside = signed(self.stamps.len() - self.first(window, now));
        let removed = usize::try_from(inside - (window.full() - level)).unwrap_or(0);
        self.stamps.truncate(self.stamps.len().saturating_sub(removed));
        self.record(window, level, now);
    }

    /// Adds stamps of `units` tokens at `now` in the place of the oldest, at most as many as the
    /// limit: a debt.
    pub fn settle(&mut self, window: &SlidingWindow, units: i64, now: u64) {
        let limit = unsigned(window.full());
        let added = unsigned(units).min(limit);
        let first = self.first(window, now);
        let over = (self.stamps.len() - first + added).saturating_sub(limit);
        self.append(window, first + over, added, now);
    }

    /// Whether every stamp has left the window at `now`, and at any earlier time that a thread may
    /// have read.
    pub fn is_over(&self, window: &SlidingWindow, now: u64) -> bool {
        let has_left = |at: i64| has_left(window, at.saturating_add(SLACK), now.cast_signed());
        self.newest().is_none_or(has_left)
    }

    /// Whether the clock went back by more than the slack, so that stamps count as taken at `now`.
    pub fn is_ahead(&self, now: u64) -> bool {
        self.newest().is_some_and(|newest| newest > now.cast_signed().saturating_add(SLACK))
    }

    /// Keeps the stamps from `oldest` on, and adds `added` stamps of `now`.
    fn append(&mut self, window: &SlidingWindow, oldest: usize, added: usize, now: u64) {
        let (stamp, ceiling) = (self.next_stamp(now), self.ceiling(now));
        self.stamps.drain(..oldest);
        if self.is_ahead(now) {
            self.stamps.iter_mut().for_each(|at| *at = (*at).min(ceiling));
        }
        let count = self.stamps.len() + added;
        if count > self.stamps.capacity() {
            // To twice the size, but never beyond the limit.
            let room = (2 * self.stamps.len()).max(MIN_ROOM).min(unsigned(window.full()));
            self.stamps.reserve_exact(room.max(count) - self.stamps.len());
        } else if self.stamps.capacity() > MIN_ROOM && 8 * count <= self.stamps.capacity() {
            self.stamps.shrink_to((2 * count).max(MIN_ROOM));
        }
        self.stamps.extend(std::iter::repeat_n(stamp, added));
    }

    /// With the level changed to `level`: index of the oldest stamp that counts, the number of
    /// stamps that count from there on, and the number of stamps to add.
    fn split(&self, window: &SlidingWindow, level: i64, now: u64) -> (usize, usize, usize) {
        let total = unsigned(window.full() - level).min(unsigned(window.full()));
        let inside = self.stamps.len() - self.first(window, now);
        let kept = inside.min(total);
        (self.stamps.len() - kept, kept, total - kept)
    }

    /// Index of the oldest stamp that counts at `now`: in the window, and among as many as the
    /// limit.
    fn first(&self, window: &SlidingWindow, now: u64) -> usize {
        let now = now.cast_signed();
        let left = self.stamps.partition_point(|at| has_left(window, *at, now));
        left.max(self.stamps.len().saturating_sub(unsigned(window.full())))
    }

    fn newest(&self) -> Option<i64> {
        self.stamps.back().copied()
    }

    /// The stamp of a token that is taken at `now`.
    fn next_stamp(&self, now: u64) -> i64 {
        let newest = self.newest().unwrap_or(0).min(self.ceiling(now));
        now.cast_signed().max(newest)
    }

    /// The latest time that a stamp counts as at `now`.
    fn ceiling(&self, now: u64) -> i64 {
        if self.is_ahead(now) { now.cast_signed() } else { i64::MAX }
    }
}

/// [`CLOCK_SLACK_US`] as a signed number.
const SLACK: i64 = CLOCK_SLACK_US.cast_signed();

/// Whether a stamp is outside the window (now - length, now].
const fn has_left(window: &SlidingWindow, stamp: i64, now: i64) -> bool {
    stamp <= now.saturating_sub(window.window_us().cast_signed())
}

/// A number of stamps, at most the largest limit.
fn signed(count: usize) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

/// A number of units as a number of stamps; 0 if it is negative.
fn unsigned(units: i64) -> usize {
    usize::try_from(units).unwrap_or(0)
}

// === Codec ===

impl StampLog {
    /// Log from its stored value in Redis: a head of five doubles (minus the number of slots, the
    /// slot of the oldest stamp, the number of stamps, the oldest and the newest stamp), and a ring
    /// of slots with a double each. An invalid value counts as no value. Only `take.lua` decodes
    /// logs in operation; tests compare it with this.
    #[allow(
        clippy::cast_possible_truncation,
        clippy::cast_precision_loss,
        clippy::cast_sign_loss,
        reason = "the numbers are at most 2^53, where doubles are exact"
    )]
    pub fn decode(stored: &[u8]) -> Self {
        const EXACT: f64 = super::MAX_UNITS as f64;
        const MAX_SLOTS: f64 = (1 << 20) as f64;
        let double = |at: usize| Some(f64::from_le_bytes(*stored.get(at..)?.first_chunk()?));
        let head = |index: usize| if stored.len() < HEAD { None } else { double(index * 8) };
        let numbers = (|| Some((-head(0)?, head(1)?, head(2)?, head(3)?, head(4)?)))();
        // NaN fails every comparison.
        let valid = numbers.filter(|(slots, first, count, oldest, newest)| {
            (1.0..=MAX_SLOTS).contains(slots)
                && [slots, first, count].iter().all(|number| **number % 1.0 == 0.0)
                && (0.0..*slots).contains(first)
                && (0.0..=*slots).contains(count)
                && *oldest >= 0.0
                && *oldest <= *newest
                && *newest <= EXACT
                // A single stamp is both.
                && (!(1.0..2.0).contains(count) || newest <= oldest)
        });
        let Some((slots, first, count, oldest, newest)) = valid else { return Self::default() };
        let stamp = |order: u64| {
            let slot = (first as u64 + order) % slots as u64;
            let at = double(HEAD + STAMP * slot as usize).unwrap_or(newest);
            // A stamp that no gateway writes counts as the newest.
            let at = if order == 0 {
                oldest
            } else if order + 1 < count as u64 && at >= oldest && at <= newest {
                at
            } else {
                newest
            };
            at as i64
        };
        Self { stamps: (0..count as u64).map(stamp).collect() }
    }
}

#[cfg(test)]
mod tests;
