//! Applies [`overload`](super::overload): pauses the listeners, closes idle connections, reports.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use nix::errno::Errno;
use parking_lot::Mutex;
use tokio::sync::watch;
use tracing::{error, info, warn};

use super::descriptors;
use super::memory::{cgroup_limit, resident_bytes};
use super::open::{OpenConnections, ShedCause};
use super::overload::{self, MIN_IDLE_US, MemoryReading, MemoryState};
use crate::base::bounded_log::BoundedLog;
use crate::base::clock;
use crate::net::io_text::plain;
use crate::observe::metrics::OverloadSeries;
use crate::policy::Policy;
use crate::policy::settings::MaxBytes;
use crate::runtime::CurrentSnapshot;

/// The load of the process: its connections, descriptors and memory. Clones share it.
#[derive(Clone)]
pub struct Pressure(Arc<Shared>);

struct Shared {
    open: OpenConnections,
    /// How many connections the limit of open files allows.
    most_connections: usize,
    /// Connections accepted so far.
    accepted: AtomicU64,
    /// When descriptors were exhausted last, in microseconds; [`NEVER`].
    exhausted: AtomicU64,
    /// When connections were last closed to make room, in microseconds.
    made_room: AtomicU64,
    memory: watch::Sender<MemoryState>,
    /// The last one.
    reading: Mutex<MemoryReading>,
    /// Whether descriptors were exhausted at the last look.
    is_out_of_descriptors: AtomicBool,
    log: BoundedLog,
    series: OverloadSeries,
}

/// A time of [`Shared::exhausted`] that is none.
const NEVER: u64 = u64::MAX;

/// Time between two looks at memory and descriptors.
const INTERVAL: Duration = Duration::from_secs(1);

/// Accepted connections after which the memory is looked at in between: a flood of connections can
/// fill the memory of a small container within [`INTERVAL`].
const LOOK_AFTER_ACCEPTED: u64 = 64;

/// Least time between two searches for connections to close for room, in microseconds.
const ROOM_INTERVAL_US: u64 = 100_000;

/// Pause after a failed accept if connections are being closed.
const SHORT_PAUSE: Duration = Duration::from_millis(20);

/// Pause after any other failed accept: the next attempt fails at once until a connection has
/// closed.
const PAUSE: Duration = Duration::from_millis(500);

impl Pressure {
    /// Starts without an overload. The limit of open files allows `most_connections`.
    pub fn new(most_connections: usize, series: OverloadSeries) -> Self {
        Self(Arc::new(Shared {
            open: OpenConnections::default(),
            most_connections,
            accepted: AtomicU64::new(0),
            exhausted: AtomicU64::new(NEVER),
            made_room: AtomicU64::new(0),
            memory: watch::Sender::default(),
            reading: Mutex::default(),
            is_out_of_descriptors: AtomicBool::new(false),
            log: BoundedLog::default(),
            series,
        }))
    }

    pub fn open(&self) -> &OpenConnections {
        &self.0.open
    }

    /// Returns the maximum number of open connections.
    pub fn max_connections(&self, policy: &Policy) -> usize {
        policy.server.limits.max_connections().min(self.0.most_connections)
    }

    /// Returns the maximum number of open connections from one address: at most half of all, so
    /// that no address takes all of them.
    pub fn max_connections_per_ip(&self, policy: &Policy) -> usize {
        let half = (self.max_connections(policy) / 2).max(1);
        policy.server.limits.max_connections_per_ip.min(half)
    }

    /// Returns whether the process is out of file descriptors.
    pub fn is_out_of_descriptors(&self) -> bool {
        self.0.is_out_of_descriptors.load(Ordering::Relaxed)
    }

    /// Returns whether the process is over its memory limit.
    pub fn is_over_memory(&self) -> bool {
        self.0.memory.borrow().is_over
    }

    /// Returns whether new connections wait because the process is over its memory limit.
    pub fn is_paused(&self) -> bool {
        self.0.memory.borrow().is_paused(self.0.open.count())
    }

    /// Returns the memory of the process, at most a second old.
    pub fn memory(&self) -> MemoryReading {
        *self.0.reading.lock()
    }

    /// Completes when connections may be accepted.
    pub(super) async fn until_accepting(&self) {
        let mut memory = self.0.memory.subscribe();
        while memory.borrow_and_update().is_paused(self.0.open.count()) {
            // Each look at the memory is a change. The sender exists as long as `self`.
            let _ = memory.changed().await;
        }
    }

    /// Counts an accepted connection. Looks at the memory after every [`LOOK_AFTER_ACCEPTED`] of
    /// them.
    pub(super) fn note_accepted(&self) {
        let accepted = self.0.accepted.fetch_add(1, Ordering::Relaxed) + 1;
        let last = self.memory();
        if last.max_bytes.is_some() && accepted.is_multiple_of(LOOK_AFTER_ACCEPTED) {
            self.look_at_memory(last.max_bytes);
        }
    }

    /// Closes idle connections if few more are allowed.
    pub(super) fn make_room(&self, max: usize) {
        let missing = overload::missing_room(self.0.open.count(), max);
        let (now, last) = (clock::now(), self.0.made_room.load(Ordering::Relaxed));
        if missing == 0 || now.saturating_sub(last) < ROOM_INTERVAL_US {
            return;
        }
        self.0.made_room.store(now, Ordering::Relaxed);
        self.shed(missing, now, ShedCause::Room);
    }

    /// Notes that no connection could be accepted. Returns how long to wait before the next
    /// attempt.
    pub(super) fn note_failed_accept(&self, failure: &io::Error) -> Duration {
        let now = clock::now();
        let errno = failure.raw_os_error().map(Errno::from_raw);
        let (reason, cause) = match errno {
            Some(Errno::EMFILE | Errno::ENFILE) => ("no_descriptors", Some(ShedCause::Descriptors)),
            Some(Errno::ENOMEM | Errno::ENOBUFS) => ("memory", Some(ShedCause::Memory)),
            _ => ("other", None),
        };
        self.0.series.fail_accept(reason);
        if let Some(count) = self.0.log.note(reason, now) {
            error!(detail = plain(failure), count, "connections cannot be accepted");
        }
        if cause == Some(ShedCause::Descriptors) {
            self.0.exhausted.store(now, Ordering::Relaxed);
            self.look_at_descriptors(now);
        }
        let asked =
            cause.map_or(0, |cause| self.shed(overload::batch(self.0.open.count()), now, cause));
        if asked > 0 { SHORT_PAUSE } else { PAUSE }
    }

    /// Looks at memory and descriptors once a second. Never ends.
    pub(super) async fn watch(&self, current: &CurrentSnapshot) {
        loop {
            let policy = Arc::clone(&current.load().policy);
            let max_bytes = match policy.memory.max_bytes {
                MaxBytes::Cgroup => cgroup_limit(Path::new("/")).map(|limit| limit / 10 * 9),
                MaxBytes::Bytes(bytes) => Some(bytes),
                MaxBytes::Off => None,
            };
            self.look_at_memory(max_bytes);
            self.look_at_usage(clock::now());
            let connections = self.0.open.count();
            let max = self.max_connections(&policy);
            let max_per_ip = self.max_connections_per_ip(&policy);
            self.0.series.show(connections, max, max_per_ip, max_bytes);
            tokio::time::sleep(INTERVAL).await;
        }
    }

    fn look_at_memory(&self, max_bytes: Option<u64>) {
        let connections = self.0.open.count();
        let used_bytes = resident_bytes(Path::new("/")).unwrap_or_default();
        let reading = MemoryReading { used_bytes, max_bytes, connections };
        // Held to the end, so that looks of several threads follow one another.
        let mut last = self.0.reading.lock();
        *last = reading;
        let before = *self.0.memory.borrow();
        let state = before.next(reading);
        match (before.is_over, state.is_over) {
            (false, true) => warn!(
                used_bytes,
                max_bytes,
                connections,
                "memory is over its limit; no connections are accepted, and idle ones are closed"
            ),
            (true, false) => {
                info!(used_bytes, max_bytes, connections, "memory is below its limit again");
            }
            (false, false) | (true, true) => {}
        }
        self.0.memory.send_replace(state);
        self.0.series.set_memory(state.is_over);
        self.shed(state.shed, clock::now(), ShedCause::Memory);
    }

    /// Closes idle connections before connections to upstreams get no descriptors.
    fn look_at_usage(&self, now: u64) {
        let usage = descriptors::usage();
        if usage.is_some_and(|(open, limit)| overload::is_short_of_descriptors(open, limit)) {
            self.0.exhausted.store(now, Ordering::Relaxed);
            self.shed(overload::batch(self.0.open.count()), now, ShedCause::Descriptors);
        }
        self.look_at_descriptors(now);
    }

    fn look_at_descriptors(&self, now: u64) {
        let last = self.0.exhausted.load(Ordering::Relaxed);
        let is_out = overload::is_out_of_descriptors((last != NEVER).then_some(last), now);
        let was_out = self.0.is_out_of_descriptors.swap(is_out, Ordering::Relaxed);
        self.0.series.set_descriptors(is_out);
        let connections = self.0.open.count();
        match (was_out, is_out) {
            (false, true) => {
                warn!(
                    connections,
                    "few or no file descriptors are left; idle connections are closed"
                );
            }
            (true, false) => info!(connections, "file descriptors are available again"),
            (false, false) | (true, true) => {}
        }
    }

    fn shed(&self, most: usize, now: u64, cause: ShedCause) -> usize {
        self.0.open.shed(most, now.saturating_sub(MIN_IDLE_US), cause)
    }
}
