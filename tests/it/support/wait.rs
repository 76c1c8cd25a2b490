//! Waiting. The only place in the tests that looks at a clock.

use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use parking_lot::{Condvar, Mutex};

/// How long anything may take that should happen soon: long, since the machine may be busy.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

/// Asks until there is an answer.
#[track_caller]
pub(crate) fn eventually<T>(what: &str, ask: impl FnMut() -> Option<T>) -> T {
    within(PATIENCE, ask).unwrap_or_else(|| panic!("waited {PATIENCE:?} for {what}"))
}

/// Asks until there is an answer or the time is over.
#[allow(clippy::disallowed_methods, reason = "conditions of other processes can only be polled")]
pub(crate) fn within<T>(patience: Duration, mut ask: impl FnMut() -> Option<T>) -> Option<T> {
    let started = Instant::now();
    loop {
        if let Some(answer) = ask() {
            return Some(answer);
        }
        if started.elapsed() > patience {
            return None;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Measures from the moment that it is made.
#[derive(Clone, Copy)]
pub(crate) struct Stopwatch(Instant);

impl Stopwatch {
    #[allow(clippy::disallowed_methods, reason = "tests of promised times measure them")]
    pub(crate) fn start() -> Self {
        Self(Instant::now())
    }

    /// The time since.
    pub(crate) fn elapsed(self) -> Duration {
        self.0.elapsed()
    }
}

/// A moment by the wall clock, which this process and the log of another have in common. Without
/// its date: tests compare moments of the same minute.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Moment(Duration);

const DAY: Duration = Duration::from_secs(86_400);

impl Moment {
    #[allow(clippy::disallowed_methods, reason = "logs tell the time by this clock")]
    pub(crate) fn now() -> Self {
        let micros = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_micros();
        Self(Duration::from_micros(u64::try_from(micros % DAY.as_micros()).unwrap()))
    }

    /// What a line of a log begins with.
    pub(crate) fn of_line(line: &str) -> Self {
        let stamp = line.split(' ').next().unwrap();
        let stamp: toml::value::Datetime = stamp.parse().unwrap_or_else(|_| panic!("{line}"));
        let time = stamp.time.unwrap();
        let (hour, minute) = (u64::from(time.hour), u64::from(time.minute));
        let second = u64::from(time.second.unwrap_or(0));
        Self(Duration::new((hour * 60 + minute) * 60 + second, time.nanosecond.unwrap_or(0)))
    }

    /// The time from `earlier` to this.
    pub(crate) fn since(self, earlier: Self) -> Duration {
        let later = if self.0 < earlier.0 { self.0 + DAY } else { self.0 };
        later.saturating_sub(earlier.0)
    }
}

/// How long something took.
pub(crate) fn timed<T>(work: impl FnOnce() -> T) -> (T, Duration) {
    let watch = Stopwatch::start();
    let result = work();
    (result, watch.elapsed())
}

/// Lets a fault last: its length is part of the scenario, and no condition ends it.
#[allow(clippy::disallowed_methods, reason = "an outage is a length of time")]
pub(crate) fn lasting(length: Duration) {
    std::thread::sleep(length);
}

/// Does what `Retry-After` asks a client to do.
#[allow(clippy::disallowed_methods, reason = "the promise under test is a length of time")]
pub(crate) fn wait_out(retry_after: Duration) {
    std::thread::sleep(retry_after);
}

/// Holds threads until it is opened.
#[derive(Clone, Default)]
pub(crate) struct Gate(Arc<(Mutex<bool>, Condvar)>);

impl Gate {
    /// Lets everybody through, now and later.
    pub(crate) fn open(&self) {
        let (is_open, opened) = &*self.0;
        *is_open.lock() = true;
        opened.notify_all();
    }

    /// Waits until it is open; returns at the end of all patience, too, so that nothing hangs.
    pub(crate) fn pass(&self) {
        let (is_open, opened) = &*self.0;
        opened.wait_while_for(&mut is_open.lock(), |is_open| !*is_open, 3 * PATIENCE);
    }
}
