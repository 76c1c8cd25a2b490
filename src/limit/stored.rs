//! What a store in this process keeps of a bucket: its [`Bucket`], and beside it the [`StampLog`]
//! of a kind whose state is more than a level and a time. Stores pass the log as a function, which
//! is called only for such a kind.

use super::Limit;
use super::bucket::Bucket;
use super::reading::Times;
use super::share::Share;
use super::sliding_window::SlidingWindow;
use super::stamp_log::StampLog;
use crate::base::now::Now;

// === Decisions ===

impl Limit {
    /// The bucket at `now`. `log` returns its log, if that is known, and `bucket`
    /// the bucket as it is kept.
    #[inline]
    pub fn current<'a>(
        &self,
        log: impl FnOnce() -> Option<&'a StampLog>,
        bucket: impl FnOnce() -> Bucket,
        now: Now,
    ) -> Bucket {
        match self {
            Self::TokenBucket(_) | Self::FixedWindow(_) | Self::Concurrency(_) => {
                self.refilled(bucket(), now)
            }
            Self::SlidingWindow(window) => match log() {
                Some(log) => log.bucket(window, now.us),
                None => window.refilled(bucket(), now.us),
            },
        }
    }

    /// Times of a bucket at `now`, once its level has changed to `level`, for
    /// requests of `cost` parts of a token within `share`. `log` returns its log before, if that is
    /// known, and `before` the bucket before.
    #[inline]
    pub fn times<'a>(
        &self,
        log: impl FnOnce() -> Option<&'a StampLog>,
        before: impl FnOnce() -> Bucket,
        level: i64,
        share: Share,
        cost: u64,
        now: Now,
    ) -> Times {
        match self {
            Self::TokenBucket(_) | Self::FixedWindow(_) | Self::Concurrency(_) => {
                Times::period(self.left_us_at(now))
            }
            Self::SlidingWindow(window) => {
                let needed = share.needed(self, cost);
                match log() {
                    Some(log) => log.times(window, level, needed, now.us),
                    None => {
                        StampLog::of_bucket(window, before()).times(window, level, needed, now.us)
                    }
                }
            }
        }
    }

    /// The bucket and the log to write for `bucket` at `now` (microseconds). `before` returns the
    /// log before, if that is known, and the bucket before.
    #[inline]
    pub fn recorded(
        &self,
        bucket: Bucket,
        before: impl FnOnce() -> (Option<StampLog>, Bucket),
        now: u64,
    ) -> (Bucket, Option<StampLog>) {
        match self {
            Self::TokenBucket(_) | Self::FixedWindow(_) | Self::Concurrency(_) => (bucket, None),
            Self::SlidingWindow(window) => {
                let (log, before) = before();
                let mut log = log.unwrap_or_else(|| StampLog::of_bucket(window, before));
                log.record(window, bucket.level, now);
                (log.bucket(window, now), Some(log))
            }
        }
    }

    /// The bucket and the log to write for a debt of `units` at `now` (microseconds). `log` returns
    /// the log of the bucket before, if it is known.
    pub fn settled(
        &self,
        bucket: Bucket,
        log: impl FnOnce() -> Option<StampLog>,
        units: i64,
        now: u64,
    ) -> (Bucket, Option<StampLog>) {
        match self {
            Self::TokenBucket(_) | Self::FixedWindow(_) | Self::Concurrency(_) => {
                (bucket.less_debt(self, units), None)
            }
            Self::SlidingWindow(window) => {
                let mut log = log().unwrap_or_else(|| StampLog::of_bucket(window, bucket));
                log.settle(window, units, now);
                (log.bucket(window, now), Some(log))
            }
        }
    }

    /// The log that `log` returns, without what a request took that is undone at `now`
    /// (microseconds), so that its level is `level`.
    pub fn undone(
        &self,
        log: impl FnOnce() -> Option<StampLog>,
        level: i64,
        now: u64,
    ) -> Option<StampLog> {
        match self {
            Self::TokenBucket(_) | Self::FixedWindow(_) | Self::Concurrency(_) => None,
            Self::SlidingWindow(window) => {
                let mut log = log()?;
                log.undo(window, level, now);
                Some(log)
            }
        }
    }

    /// The log that `log` returns of a bucket, if `was`, under which the bucket was written, has
    /// kept it.
    pub fn kept_log<T>(was: Option<Self>, log: impl FnOnce() -> Option<T>) -> Option<T> {
        match was {
            None | Some(Self::TokenBucket(_) | Self::FixedWindow(_) | Self::Concurrency(_)) => None,
            Some(Self::SlidingWindow(_)) => log(),
        }
    }

    /// Whether a log still says something at `now` (microseconds).
    pub fn needs_log(&self, log: &StampLog, now: u64) -> bool {
        match self {
            Self::TokenBucket(_) | Self::FixedWindow(_) | Self::Concurrency(_) => false,
            Self::SlidingWindow(window) => !log.is_over(window, now),
        }
    }

    /// The bucket at `now` (microseconds) whose log is not needed any more, for a kind that has
    /// logs.
    pub fn without_log(&self, now: u64) -> Option<Bucket> {
        match self {
            Self::TokenBucket(_) | Self::FixedWindow(_) | Self::Concurrency(_) => None,
            Self::SlidingWindow(window) => Some(Bucket { level: window.full(), at: now }),
        }
    }

    /// The window of a log, and the stamps in it at `now` (microseconds), the oldest first.
    pub fn inside(&self, log: &StampLog, now: u64) -> Option<(SlidingWindow, Vec<i64>)> {
        match self {
            Self::TokenBucket(_) | Self::FixedWindow(_) | Self::Concurrency(_) => None,
            Self::SlidingWindow(window) => Some((*window, log.inside(window, now).collect())),
        }
    }
}

// === Unknown buckets ===

impl Limit {
    /// Start value of a bucket at `now` of which nothing is known but that it may have been
    /// dropped: all that were dropped are full at `full_at`, and the emptiest lacks `missing` units
    /// until then. `full_at` is in microseconds.
    pub fn start_if_dropped(
        &self,
        full_at: u64,
        missing: impl FnOnce() -> i64,
        now: Now,
    ) -> Bucket {
        let until_full = full_at.saturating_sub(now.us);
        match self {
            Self::TokenBucket(bucket) => {
                let level = bucket.full().saturating_sub(bucket.units_in(until_full)).max(0);
                Bucket { level, at: now.us }
            }
            _ if until_full == 0 => Bucket { level: self.full(), at: 0 },
            Self::FixedWindow(_) | Self::SlidingWindow(_) | Self::Concurrency(_) => {
                // Also below zero: if the limit is raised, what was used counts.
                let level = self.full().saturating_sub(missing()).max(self.lowest());
                self.bucket_until(level, full_at, now)
            }
        }
    }

    /// Start value of an unknown bucket at `now` in a store that started with empty ones at `at`,
    /// both in microseconds; at most `bucket`. An empty bucket is one that has just granted a
    /// request of `units`. If these are more than a full bucket, the level is below zero.
    ///
    /// A sliding window starts with all stamps of `at`. A fixed window starts full: empty, it would
    /// refuse all requests until its period ends, which may take a month.
    pub fn started_empty(&self, bucket: Bucket, units: i64, at: u64, now: u64) -> Bucket {
        match self {
            Self::TokenBucket(parameters) => {
                let drained = parameters.full().saturating_sub(units).min(0);
                let filled = parameters.units_in(now.saturating_sub(at));
                Bucket { level: bucket.level.min(drained.saturating_add(filled)), at: bucket.at }
            }
            Self::SlidingWindow(window) => {
                let started = window.refilled(Bucket { level: 0, at }, now);
                if started.level < bucket.level { started } else { bucket }
            }
            Self::FixedWindow(_) | Self::Concurrency(_) => bucket,
        }
    }

    /// Converts a bucket that was counted under `was` until `until` (microseconds): see
    /// [`converted`](Self::converted).
    pub fn converted_at(&self, bucket: Bucket, was: &Self, until: u64) -> Bucket {
        match was {
            Self::TokenBucket(parameters) => {
                let bucket = parameters.refilled(bucket, until.max(bucket.at));
                self.converted(bucket, was)
            }
            // Its time is the end of its period or its newest stamp, which the new limit compares
            // with the current time.
            Self::FixedWindow(_) | Self::SlidingWindow(_) | Self::Concurrency(_) => {
                self.converted(bucket, was)
            }
        }
    }
}

// === Handover ===

impl Limit {
    /// Level of a bucket at `now`, and the age in microseconds of each stamp of its
    /// log, for a store with another clock. `log` returns the log, if that is known.
    pub fn level_and_ages<'a>(
        &self,
        bucket: Bucket,
        log: impl FnOnce() -> Option<&'a StampLog>,
        now: Now,
    ) -> (i64, Vec<i64>) {
        let bucket = self.refilled(bucket, now);
        match self {
            Self::TokenBucket(_) | Self::FixedWindow(_) | Self::Concurrency(_) => {
                (bucket.level, Vec::new())
            }
            Self::SlidingWindow(window) => {
                let mut log = log().cloned().unwrap_or_else(|| StampLog::of_bucket(window, bucket));
                let level = log.bucket(window, now.us).level;
                log.record(window, level, now.us);
                (level, log.stamps().map(|stamp| now.us.cast_signed() - stamp).collect())
            }
        }
    }

    /// The bucket at `now` of [`level_and_ages`](Self::level_and_ages), and its log. If the ages
    /// are not known, all stamps are of `now`.
    pub fn of_level_and_ages(
        &self,
        level: i64,
        ages: &[i64],
        now: Now,
    ) -> (Bucket, Option<StampLog>) {
        let bucket = self.bucket(level, now);
        match self {
            Self::TokenBucket(_) | Self::FixedWindow(_) | Self::Concurrency(_) => (bucket, None),
            Self::SlidingWindow(window) => {
                let stamps = ages.iter().map(|age| now.us.cast_signed().saturating_sub(*age));
                let log = match ages {
                    [] => StampLog::of_bucket(window, bucket),
                    _ => StampLog::of_stamps(stamps),
                };
                (log.bucket(window, now.us), Some(log))
            }
        }
    }

    /// Appends the ages of [`level_and_ages`](Self::level_and_ages), for a kind that has them.
    pub fn export_ages(&self, ages: &[i64], bytes: &mut Vec<u8>) {
        match self {
            Self::TokenBucket(_) | Self::FixedWindow(_) | Self::Concurrency(_) => {}
            Self::SlidingWindow(_) => {
                let length = u32::try_from(ages.len()).unwrap_or(u32::MAX);
                bytes.extend_from_slice(&length.to_le_bytes());
                bytes.extend(ages.iter().flat_map(|age| age.to_le_bytes()));
            }
        }
    }

    /// Reads the ages of [`export_ages`](Self::export_ages), and advances `bytes` past them; `None`
    /// if they are incomplete.
    pub fn import_ages(&self, bytes: &mut &[u8]) -> Option<Vec<i64>> {
        match self {
            Self::TokenBucket(_) | Self::FixedWindow(_) | Self::Concurrency(_) => Some(Vec::new()),
            Self::SlidingWindow(_) => {
                let (length, rest) = bytes.split_first_chunk()?;
                let size = (u32::from_le_bytes(*length) as usize).checked_mul(size_of::<i64>())?;
                let (ages, rest) = rest.split_at_checked(size)?;
                *bytes = rest;
                Some(ages.as_chunks().0.iter().map(|age| i64::from_le_bytes(*age)).collect())
            }
        }
    }
}
