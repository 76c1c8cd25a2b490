//! [`Writer`]: writes what was used to Redis, and reads it for operators.

use std::hash::{BuildHasher as _, RandomState};
use std::sync::Arc;
use std::sync::mpsc::{Sender, channel};
use std::thread;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::time::{sleep, timeout};
use tracing::{info, warn};

use super::codec::RulePeriod;
use super::settle;
use super::store::days::{ClientDay, DayBounds, DayIndex};
use super::store::{Bounds, Index, Page, Position, Store, Written};
use crate::base::clock;
use crate::base::duration::MICROS_PER_SECOND;
use crate::base::failure;
use crate::base::log_interval::LogInterval;
use crate::base::unix_time;
use crate::observe::metrics::UsageSeries;
use crate::policy::redis::Redis;
use crate::policy::settings::Usage;
use crate::store::limiter::Limiter;
use crate::store::redis::link::records::RecordsError;
use crate::usage::days::batch::Batches;
use crate::usage::days::row::{Day, Position as DayPosition};
use crate::usage::ledger::Ledger;
use crate::usage::record::Record;

/// Time between two writes. With the time of a write, Redis is at most a second behind.
const WRITE_INTERVAL: Duration = Duration::from_millis(500);

/// Time between two readings of the index, in microseconds.
const INDEX_INTERVAL_US: u64 = 60 * MICROS_PER_SECOND;

/// Time for the last write, at the end of the process.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(3);

/// Time for a page of records, in microseconds. Then it is cut.
const READ_TIMEOUT_US: u64 = 10 * MICROS_PER_SECOND;

/// Minimum time between two log lines of failed writes, in seconds.
const LOG_INTERVAL_S: u64 = 60;

/// Maximum number of grants that wait for Redis.
const MAX_GRANTS: usize = 100_000;

/// Units that were granted locally, and whose period ended before they could be taken from the
/// bucket.
#[derive(Debug, Clone)]
pub struct Grant {
    /// The record of the bucket and the period.
    pub record: Record,
    /// Units that were granted.
    pub units: i64,
    /// Identifies the grant.
    pub id: u64,
}

/// Writes the ledger to Redis, on a thread and a connection that no request uses.
pub struct Writer {
    /// What requests used since the last write.
    pub ledger: Ledger,
    limiter: Arc<Limiter>,
    /// For operators.
    store: Store,
    bounds: Mutex<Bounds>,
    day_bounds: Mutex<DayBounds>,
    close: UnboundedSender<Sender<()>>,
    series: UsageSeries,
    failures: LogInterval,
    no_room: LogInterval,
    no_room_for_days: LogInterval,
}

/// What the thread knows.
#[derive(Default)]
struct State {
    index: Index,
    /// When the index was read, in microseconds.
    read_at: Option<u64>,
    grants: Vec<Grant>,
    batches: Batches,
    days: DayIndex,
    /// When `days` was read, in microseconds.
    days_read_at: Option<u64>,
}

impl Writer {
    /// Starts the thread.
    ///
    /// # Errors
    /// The thread cannot be started.
    pub fn start(
        redis: &Redis,
        usage: &Usage,
        limiter: Arc<Limiter>,
        series: UsageSeries,
    ) -> std::io::Result<Arc<Self>> {
        let (close, closing) = unbounded_channel();
        let writer = Arc::new(Self {
            ledger: Ledger::shared(),
            limiter,
            store: Store::new(redis.clone()),
            bounds: Mutex::new(bounds(usage)),
            day_bounds: Mutex::new(day_bounds(usage)),
            close,
            series,
            failures: LogInterval::new(LOG_INTERVAL_S),
            no_room: LogInterval::new(LOG_INTERVAL_S),
            no_room_for_days: LogInterval::new(LOG_INTERVAL_S),
        });
        let (own, store) = (Arc::clone(&writer), Store::new(redis.clone()));
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let run = move || runtime.block_on(own.run(&store, closing));
        let thread = thread::Builder::new().name("usage".to_owned());
        thread.spawn(move || failure::watch_thread("usage", run))?;
        Ok(writer)
    }

    /// Sets how long usage is kept, and how much of it.
    pub fn configure(&self, usage: &Usage) {
        *self.bounds.lock() = bounds(usage);
        *self.day_bounds.lock() = day_bounds(usage);
    }

    /// Writes, and ends the thread. Blocks for some seconds at most.
    pub fn close(&self) {
        let (done, is_done) = channel();
        if self.close.send(done).is_ok() {
            // An error means that the thread has ended.
            let _ = is_done.recv();
        }
    }

    /// Reads records that `includes`, of rules and periods that `wants`, in order from `from` on:
    /// at most `limit`.
    ///
    /// # Errors
    /// See [`RecordsError`].
    pub async fn read(
        &self,
        from: Option<Position>,
        wants: impl Fn(&RulePeriod) -> bool,
        includes: impl Fn(&Record) -> bool,
        limit: usize,
    ) -> Result<Page, RecordsError> {
        let now = clock::now();
        let bounds = *self.bounds.lock();
        let mut index = self.store.index(bounds).await?;
        index.retain(|period, _| wants(period));
        self.store.read(index, from, includes, limit, now.saturating_add(READ_TIMEOUT_US)).await
    }

    /// Reads what clients used by day, of days that `wants`, from `from` on: see
    /// [`Store::read_days`].
    ///
    /// # Errors
    /// See [`RecordsError`].
    pub async fn read_days(
        &self,
        from: DayPosition,
        wants: impl Fn(Day) -> bool,
        owners: Option<&[u128]>,
        next: impl FnMut(DayPosition, ClientDay) -> bool,
    ) -> Result<Option<DayPosition>, RecordsError> {
        let now = clock::now();
        let bounds = *self.day_bounds.lock();
        let mut index = self.store.days(bounds).await?;
        index.retain(|day, _| wants(*day));
        self.store.read_days(index, from, owners, now.saturating_add(READ_TIMEOUT_US), next).await
    }

    async fn run(&self, store: &Store, mut closing: UnboundedReceiver<Sender<()>>) {
        let mut state = State::default();
        loop {
            tokio::select! {
                () = sleep(WRITE_INTERVAL) => self.write(store, &mut state).await,
                done = closing.recv() => {
                    if timeout(CLOSE_TIMEOUT, self.write(store, &mut state)).await.is_err() {
                        warn!("usage is not written completely: Redis is too slow");
                    }
                    if let Some(done) = done {
                        // An error means that it does not wait any more.
                        let _ = done.send(());
                    }
                    return;
                }
            }
        }
    }

    /// Writes everything. What cannot be written is tried again with what comes later.
    async fn write(&self, store: &Store, state: &mut State) {
        self.write_days(store, state).await;
        self.write_totals(store, state).await;
    }

    /// Writes what was used by day.
    async fn write_days(&self, store: &Store, state: &mut State) {
        let now = clock::now();
        let bounds = *self.day_bounds.lock();
        let dropped = state.batches.add(self.ledger.take_days());
        self.series.dropped.inc_by(dropped);
        if state.batches.is_empty() {
            return;
        }
        let unix_us = unix_time::of(now);
        let old = state.batches.drop_before(bounds.first(unix_us));
        self.series.dropped.inc_by(old);
        let written = async {
            let is_recent = |at| now.saturating_sub(at) < INDEX_INTERVAL_US;
            if !state.days_read_at.is_some_and(is_recent) {
                state.days = store.days(bounds).await?;
                state.days_read_at = Some(now);
            }
            store.add_days(&mut state.batches, &mut state.days, bounds).await
        };
        match written.await {
            Ok(0) => self.series.written.inc(),
            Ok(without_room) => self.warn_of_no_room_for_days(without_room),
            Err(error) => {
                state.days_read_at = None;
                self.failed(state.batches.len(), &error);
            }
        }
    }

    /// Writes what was used by period.
    async fn write_totals(&self, store: &Store, state: &mut State) {
        let now = clock::now();
        let id = || RandomState::new().hash_one(now);
        let found = settle::read(&self.ledger, &self.limiter, now, id).await;
        self.series.dropped.inc_by(found.dropped + self.ledger.take_dropped());
        self.ledger.put_back(found.changes);
        state.grants.extend(found.grants);
        let surplus = state.grants.len().saturating_sub(MAX_GRANTS);
        state.grants.truncate(MAX_GRANTS);
        self.series.dropped.inc_by(surplus as u64);
        let changes = self.ledger.take();
        self.ledger.look_at(&changes, unix_time::of(now));
        let count = changes.len() + state.grants.len();
        let (bounds, unix_us) = (*self.bounds.lock(), unix_time::of(now));
        if count == 0 {
            if self.no_room.is_logged() && state.read_index(store, bounds, now).await.is_ok() {
                self.note_room(&state.index, bounds);
            }
            return self.show_unwritten(state.batches.len());
        }
        if let Err(error) = state.read_index(store, bounds, now).await {
            self.ledger.put_back(changes);
            return self.failed(count, &error);
        }
        let grants = std::mem::take(&mut state.grants);
        let Written { changes, grants, without_room, error } =
            store.write(&mut state.index, changes, grants, bounds, unix_us).await;
        let left = changes.len() + grants.len();
        self.ledger.put_back(changes);
        state.grants = grants;
        if without_room > 0 {
            self.warn_of_no_room(without_room);
        } else if error.is_none() {
            self.note_room(&state.index, bounds);
        }
        if let Some(error) = error {
            // What Redis has may be other data than before.
            state.read_at = None;
            self.failed(left, &error);
        } else {
            self.series.written.inc();
            self.show_unwritten(state.batches.len());
            if state.batches.is_empty() && self.failures.end() {
                info!("usage is written to Redis again");
            }
        }
    }

    fn failed(&self, left: usize, error: &RecordsError) {
        self.series.failed.inc();
        self.show_unwritten(left);
        if self.failures.count(clock::now()).is_some() {
            let help = help(error);
            warn!(
                "usage cannot be written to Redis; it is kept in memory, and tried again: {error}{help}"
            );
        }
    }

    /// Shows the number of records that are not written, with those whose numbers have to be read
    /// first.
    fn show_unwritten(&self, left: usize) {
        let unwritten = left.saturating_add(self.ledger.unread());
        self.series.unwritten.set(i64::try_from(unwritten).unwrap_or(i64::MAX));
    }

    fn warn_of_no_room_for_days(&self, records: u64) {
        self.series.dropped.inc_by(records);
        if self.no_room_for_days.count(clock::now()).is_some() {
            warn!(
                records,
                "usage of new clients by day is not written: Redis has usage.max_details"
            );
        }
    }

    fn warn_of_no_room(&self, records: u64) {
        self.series.dropped.inc_by(records);
        if self.no_room.count(clock::now()).is_some() {
            warn!(records, "usage of new clients is not written: Redis has usage.max_records");
        }
    }

    /// Logs that Redis has room for new clients, if it was logged that it has none.
    fn note_room(&self, index: &Index, bounds: Bounds) {
        if self.no_room.is_logged() && bounds.have_room(index) && self.no_room.end() {
            info!("usage of new clients is written to Redis again");
        }
    }
}

impl State {
    /// Reads the index, unless it was read shortly before `now` (microseconds).
    async fn read_index(
        &mut self,
        store: &Store,
        bounds: Bounds,
        now: u64,
    ) -> Result<(), RecordsError> {
        if self.read_at.is_none_or(|at| now.saturating_sub(at) >= INDEX_INTERVAL_US) {
            self.index = store.index(bounds).await?;
            self.read_at = Some(now);
        }
        Ok(())
    }
}

/// What to do against an error, to append to its text; empty if that is sufficient.
pub const fn help(error: &RecordsError) -> &'static str {
    if error.lacks_right {
        "; the gateway's user needs `+hget +hset +hdel +hincrby +hscan +pexpire`"
    } else {
        ""
    }
}

const fn day_bounds(usage: &Usage) -> DayBounds {
    DayBounds { keep: usage.keep, max_rows: usage.max_details }
}

const fn bounds(usage: &Usage) -> Bounds {
    Bounds { keep: usage.keep, max_records: usage.max_records }
}
