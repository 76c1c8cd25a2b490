//! Waiting and measuring. Only this module of the tests reads a clock.

use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use parking_lot::{Condvar, Mutex};

use super::inconclusive::inconclusive;
use super::pressure::CpuWaits;

/// Timeout for events that should happen soon; long, since the machine may be busy.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(20);

/// Pauses between two polls: each is longer than the one before, since polling takes time from what
/// it waits for.
const SHORTEST_PAUSE: Duration = Duration::from_millis(2);
const LONGEST_PAUSE: Duration = Duration::from_millis(50);

/// Polls until `poll` returns a value. Panics after [`TIMEOUT`].
#[track_caller]
pub(crate) fn eventually<T>(what: &str, poll: impl FnMut() -> Option<T>) -> T {
    within(TIMEOUT, poll).unwrap_or_else(|| panic!("waited {TIMEOUT:?} for {what}"))
}

/// Polls until `poll` returns a value or the timeout is over.
#[allow(clippy::disallowed_methods, reason = "conditions of other processes can only be polled")]
pub(crate) fn within<T>(timeout: Duration, mut poll: impl FnMut() -> Option<T>) -> Option<T> {
    let started = Instant::now();
    let mut pause = SHORTEST_PAUSE;
    loop {
        if let Some(value) = poll() {
            return Some(value);
        }
        if started.elapsed() > timeout {
            return None;
        }
        std::thread::sleep(pause);
        pause = (pause * 5 / 4).min(LONGEST_PAUSE);
    }
}

/// Measures time since its creation.
#[derive(Clone, Copy)]
pub(crate) struct Stopwatch(Instant);

impl Stopwatch {
    #[allow(clippy::disallowed_methods, reason = "tests measure times")]
    pub(crate) fn start() -> Self {
        Self(Instant::now())
    }

    /// Time since the start.
    pub(crate) fn elapsed(self) -> Duration {
        self.0.elapsed()
    }
}

/// A time of day by the wall clock, which can be compared with the log of another process.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Timestamp(Duration);

const DAY: Duration = Duration::from_secs(86_400);

impl Timestamp {
    #[allow(clippy::disallowed_methods, reason = "logs use the wall clock")]
    pub(crate) fn now() -> Self {
        let micros = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_micros();
        Self(Duration::from_micros(u64::try_from(micros % DAY.as_micros()).unwrap()))
    }

    /// The timestamp at the beginning of a log line.
    pub(crate) fn of_line(line: &str) -> Self {
        let stamp = line.split(' ').next().unwrap();
        let stamp: toml::value::Datetime = stamp.parse().unwrap_or_else(|_| panic!("{line}"));
        let time = stamp.time.unwrap();
        let (hour, minute) = (u64::from(time.hour), u64::from(time.minute));
        let second = u64::from(time.second.unwrap_or(0));
        Self(Duration::new((hour * 60 + minute) * 60 + second, time.nanosecond.unwrap_or(0)))
    }

    /// Time from `earlier` to `self`.
    pub(crate) fn since(self, earlier: Self) -> Duration {
        let later = if self.0 < earlier.0 { self.0 + DAY } else { self.0 };
        later.saturating_sub(earlier.0)
    }
}

/// Waits for midnight (UTC) if it is near: for tests of less than a minute that count by days or
/// months of the real clock.
pub(crate) fn keep_clear_of_midnight() {
    let left = DAY.saturating_sub(Timestamp::now().0);
    if left < Duration::from_secs(60) {
        sleep_for(left + Duration::from_secs(1));
    }
}

/// Runs `work` and measures its time.
pub(crate) fn timed<T>(work: impl FnOnce() -> T) -> (T, Duration) {
    let watch = Stopwatch::start();
    let result = work();
    (result, watch.elapsed())
}

/// Runs `work`, and asserts that it takes less than `limit`. If it takes longer only because the
/// processes of the test waited for a CPU, the measurement is inconclusive: the sum of the waits
/// extends the limit, since one thread after the other may have a part in `work`, to five times
/// its length at most.
#[track_caller]
pub(crate) fn timed_below<T>(limit: Duration, work: impl FnOnce() -> T) -> T {
    let before = CpuWaits::now();
    let (result, took) = timed(work);
    if let Some(why) = before.judge(took, limit) {
        inconclusive(&why);
    }
    result
}

/// As [`timed_below`], for each of `count` calls. The waits are read once for all of them: to read
/// them takes longer than a request.
#[track_caller]
pub(crate) fn each_below(limit: Duration, count: usize, mut work: impl FnMut(usize)) {
    let before = CpuWaits::now();
    let longest = (0..count).map(|number| timed(|| work(number)).1).max().unwrap_or_default();
    if let Some(why) = before.judge(longest, limit) {
        inconclusive(&why);
    }
}

/// Sleeps for the length of a fault, which is part of the scenario.
#[allow(clippy::disallowed_methods, reason = "an outage is a length of time")]
pub(crate) fn sleep_for(length: Duration) {
    std::thread::sleep(length);
}

/// Waits for `Retry-After`, as a client does.
#[allow(clippy::disallowed_methods, reason = "the test waits as a client does")]
pub(crate) fn wait_retry_after(retry_after: Duration) {
    std::thread::sleep(retry_after);
}

/// Blocks threads until it is opened.
#[derive(Clone, Default)]
pub(crate) struct Latch(Arc<(Mutex<bool>, Condvar)>);

impl Latch {
    /// Releases all threads, now and later.
    pub(crate) fn open(&self) {
        let (is_open, opened) = &*self.0;
        *is_open.lock() = true;
        opened.notify_all();
    }

    /// Waits until the latch is open, or for three times [`TIMEOUT`], so that no test hangs.
    pub(crate) fn wait(&self) {
        let (is_open, opened) = &*self.0;
        opened.wait_while_for(&mut is_open.lock(), |is_open| !*is_open, 3 * TIMEOUT);
    }
}
