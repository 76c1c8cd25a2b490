//! [`Keeper`]: writes what was used to the file, and puts it back into the buckets at the start.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::Duration;

use parking_lot::Mutex;
use tracing::{info, warn};

use super::days::row::Day;
use super::days::waiting::Waiting;
use super::file::{FileError, OpenError, UsageFile};
use super::ledger::{Change, Changes, Ledger, Unread};
use super::shared::store::days::DayBounds;
use super::{kept_log, restored};
use crate::base::clock;
use crate::base::duration::MICROS_PER_SECOND;
use crate::base::failure;
use crate::base::log_interval::LogInterval;
use crate::base::random;
use crate::base::unix_time;
use crate::limit::charge::BucketId;
use crate::observe::metrics::UsageSeries;
use crate::policy::settings::Usage;
use crate::store::memory::{ChangedLog, MemoryStore};

/// Time between two writes. With the time of a write, the file is at most a second behind.
const WRITE_INTERVAL: Duration = Duration::from_millis(500);

/// Time between two removals of old records, in microseconds.
const REMOVE_INTERVAL_US: u64 = 600 * MICROS_PER_SECOND;

/// Number of logs in one write, which has them in memory: 32 MiB at most.
const LOGS_AT_ONCE: usize = 1_024;

/// Time between two searches for logs whose windows are over, in microseconds.
const ENDED_LOGS_INTERVAL_US: u64 = 60 * MICROS_PER_SECOND;

/// Largest difference of the wall clock from that of the last write that is no correction of the
/// time, but comes from reading two clocks, in microseconds.
const FRAME_SLACK_US: u64 = 10_000;

/// Minimum time between two log lines of failed writes, in seconds.
const LOG_INTERVAL_S: u64 = 60;

/// Writes the ledger and the logs of sliding windows to a file, on its own thread.
pub struct Keeper {
    /// What requests used since the last write.
    pub ledger: Ledger,
    store: Arc<MemoryStore>,
    /// Unix time less the process' clock in microseconds, of stamps in the file: those of a log
    /// that is written in parts need the same.
    frame_us: AtomicU64,
    /// What was used by day and is not written.
    days: Mutex<Waiting>,
    path: PathBuf,
    file: Mutex<Option<Arc<UsageFile>>>,
    bounds: Mutex<Bounds>,
    commands: Mutex<Sender<Command>>,
    series: UsageSeries,
    failures: LogInterval,
    no_room: LogInterval,
    no_room_for_days: LogInterval,
}

/// How much is kept.
#[derive(Debug, Clone, Copy)]
struct Bounds {
    keep: Duration,
    max_records: u64,
    max_details: u64,
}

impl Bounds {
    const fn of(settings: &Usage) -> Self {
        Self {
            keep: settings.keep,
            max_records: settings.max_records,
            max_details: settings.max_details,
        }
    }
}

/// What the thread does next, and where it says that it is done.
enum Command {
    /// Writes, and closes the file, which another process will use.
    Release(Sender<()>),
    /// Opens the file again.
    Resume,
    /// Writes, closes the file and ends.
    Close(Sender<()>),
}

impl Keeper {
    /// Creates a keeper that will write what is used of the buckets in `store` to the file of
    /// `settings`; `None` if there is none.
    pub fn prepare(
        settings: &Usage,
        series: UsageSeries,
        store: &Arc<MemoryStore>,
    ) -> Option<NewKeeper> {
        let (commands, received) = channel();
        let keeper = Self {
            ledger: Ledger::local(),
            store: Arc::clone(store),
            frame_us: AtomicU64::default(),
            days: Mutex::new(Waiting::new(random::number())),
            path: settings.file.clone()?,
            file: Mutex::default(),
            bounds: Mutex::new(Bounds::of(settings)),
            commands: Mutex::new(commands),
            series,
            failures: LogInterval::new(LOG_INTERVAL_S),
            no_room: LogInterval::new(LOG_INTERVAL_S),
            no_room_for_days: LogInterval::new(LOG_INTERVAL_S),
        };
        Some(NewKeeper { keeper: Arc::new(keeper), received })
    }

    /// Sets how long usage is kept, and how much of it.
    pub fn configure(&self, settings: &Usage) {
        *self.bounds.lock() = Bounds::of(settings);
    }

    /// The file; `None` while it is closed.
    pub fn file(&self) -> Option<Arc<UsageFile>> {
        self.file.lock().clone()
    }

    /// Path of the file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Writes, and closes the file, for the process that replaces this one. Blocks. Returns whether
    /// that has been done within `timeout`; else it is done later, before [`resume`](Self::resume).
    pub fn release(&self, timeout: Duration) -> bool {
        let is_done = self.send(Command::Release);
        // Another error means that the thread has ended.
        is_done.recv_timeout(timeout) != Err(RecvTimeoutError::Timeout)
    }

    /// Opens the file again, after a failed replacement.
    pub fn resume(&self) {
        // Without the thread, the process ends.
        let _ = self.commands.lock().send(Command::Resume);
    }

    /// Writes, and ends the thread. Blocks.
    pub fn close(&self) {
        // An error means that the thread has ended.
        let _ = self.send(Command::Close).recv();
    }

    /// Sends a command to the thread, and returns where it says that it is done.
    fn send(&self, command: impl FnOnce(Sender<()>) -> Command) -> Receiver<()> {
        let (done, is_done) = channel();
        // An error drops the other end.
        let _ = self.commands.lock().send(command(done));
        is_done
    }

    /// Opens the file, and puts what it has of buckets that still count into the store. Returns the
    /// number of buckets.
    fn open(&self) -> Result<usize, OpenError> {
        let file = UsageFile::open(&self.path)?;
        let now = clock::now();
        let unix_us = now.saturating_add(self.frame_at(now));
        let found = restored::buckets(&file, unix_us, self.store.max_buckets());
        let found = found.map_err(|error| OpenError::Damaged(error.to_string()))?;
        let restored = self.store.restore(found, now);
        *self.file.lock() = Some(Arc::new(file));
        Ok(restored)
    }

    /// The thread. `is_released`: another process has the file, and nothing is written until
    /// [`Command::Resume`].
    fn run(&self, received: &Receiver<Command>, mut is_released: bool) {
        let mut removed_at = None;
        let mut ended = EndedSearch::default();
        loop {
            let command = if is_released {
                received.recv().map_err(|_| RecvTimeoutError::Disconnected)
            } else {
                received.recv_timeout(WRITE_INTERVAL)
            };
            if !is_released {
                self.write();
            }
            match command {
                Err(RecvTimeoutError::Timeout) => {}
                Ok(Command::Resume) => is_released = false,
                Ok(Command::Release(done)) => {
                    is_released = true;
                    *self.file.lock() = None;
                    // An error means that it does not wait any more.
                    let _ = done.send(());
                }
                Ok(Command::Close(done)) => {
                    *self.file.lock() = None;
                    let _ = done.send(());
                    return;
                }
                Err(RecvTimeoutError::Disconnected) => return,
            }
            let now = clock::now();
            if !is_released {
                self.remove_ended_logs(&mut ended, now);
            }
            if !is_released
                && removed_at.is_none_or(|at| now.saturating_sub(at) > REMOVE_INTERVAL_US)
            {
                removed_at = Some(now);
                self.remove_old(unix_time::of(now));
            }
        }
    }

    fn remove_old(&self, unix_us: u64) {
        let Bounds { keep, .. } = *self.bounds.lock();
        if let Some(file) = self.file() {
            let first = DayBounds { keep, max_rows: 0 }.first(unix_us);
            self.note(file.remove_old(keep, unix_us).and_then(|()| file.remove_days(first)));
        }
    }

    /// Writes all changes. What cannot be written is tried again with the next ones.
    fn write(&self) {
        self.series.dropped.inc_by(self.ledger.take_dropped());
        let file = match self.reopened() {
            Ok(file) => file,
            Err(error) => return self.warn(&error.to_string()),
        };
        self.write_days(&file);
        let unread = self.ledger.take_unread();
        let (mut changes, logs) = (self.ledger.take(), self.store.take_changed_logs());
        self.read(unread, &mut changes);
        self.ledger.look_at(&changes, unix_time::of(clock::now()));
        if changes.is_empty() && logs.is_empty() {
            self.note_room(&file);
            return self.recovered();
        }
        let written = self.write_all(&file, &changes, &logs);
        if let Ok(without_room) = &written {
            self.series.written.inc();
            self.series.unwritten.set(0);
            if *without_room > 0 {
                self.warn_of_no_room(*without_room);
            } else {
                self.note_room(&file);
            }
        } else {
            let count = changes.len() + logs.len();
            self.ledger.put_back(changes);
            self.store.put_back_changed_logs(&logs);
            self.series.unwritten.set(i64::try_from(count).unwrap_or(i64::MAX));
        }
        drop(file);
        if written.is_ok() {
            self.recovered();
        }
        self.note(written.map(drop));
    }

    /// Adds what was used by day to the file. What cannot be written is tried again.
    fn write_days(&self, file: &UsageFile) {
        let mut waiting = self.days.lock();
        self.series.dropped.inc_by(waiting.add(self.ledger.take_days()));
        let Bounds { max_details, .. } = *self.bounds.lock();
        let today = Day::of_unix(unix_time::of(clock::now()));
        while let Some((batch, rows)) = waiting.batch() {
            match file.add_days(batch, rows, max_details, today) {
                Ok(without_room) => {
                    waiting.written();
                    self.series.written.inc();
                    self.warn_of_no_room_for_days(without_room);
                }
                Err(error) => return self.note(Err(error)),
            }
        }
    }

    /// Reads what was used from the buckets of the records in `unread`, if their periods have not
    /// ended.
    fn read(&self, mut unread: Unread, changes: &mut Changes) {
        let now = clock::now();
        for (place, one) in &unread {
            let bucket = self.store.bucket(&one.charge, now);
            if bucket.at != place.end_us {
                continue;
            }
            let used = one.charge.limit.full().saturating_sub(bucket.level);
            let counted_at_us = changes.get(place).map_or(0, |known| known.record.counted_at_us);
            let mut record = one.record.clone();
            (record.used, record.counted_at_us) = (used, record.counted_at_us.max(counted_at_us));
            changes.insert(*place, Change { record, set: Some(used), answered_at_us: 0 });
        }
        unread.retain(|_, one| std::mem::take(&mut one.is_read_again));
        self.ledger.put_back_unread(unread);
    }

    /// Logs that the file can be used again, if its failure was logged.
    fn recovered(&self) {
        if self.failures.end() {
            info!(path = %self.path.display(), "usage is written again");
        }
    }

    /// Writes these changes. Returns the number of records that have no room.
    fn write_all(
        &self,
        file: &UsageFile,
        changes: &Changes,
        logs: &[ChangedLog],
    ) -> Result<u64, FileError> {
        let Bounds { max_records, .. } = *self.bounds.lock();
        let mut without_room = 0;
        if !changes.is_empty() {
            without_room += file.write(changes, max_records, unix_time::of(clock::now()))?;
        }
        for logs in logs.chunks(LOGS_AT_ONCE) {
            let now = clock::now();
            let frame_us = self.frame_at(now);
            let each =
                logs.iter().filter_map(|log| kept_log::change(&self.store, *log, now, frame_us));
            without_room += file.write_logs(each, max_records, now.saturating_add(frame_us))?;
        }
        Ok(without_room)
    }

    /// The frame at `now`. It changes if the wall clock has been corrected.
    fn frame_at(&self, now: u64) -> u64 {
        let frame_us = unix_time::of(now).saturating_sub(now);
        let known = self.frame_us.load(Ordering::Relaxed);
        if frame_us.abs_diff(known) <= FRAME_SLACK_US {
            return known;
        }
        self.frame_us.store(frame_us, Ordering::Relaxed);
        frame_us
    }

    /// Searches the next part of the file for logs whose windows are over, and removes them.
    fn remove_ended_logs(&self, search: &mut EndedSearch, now: u64) {
        let Some(from) = search.next(now) else { return };
        let Some(file) = self.file() else { return };
        let found = file.ended_logs(from, unix_time::of(now)).and_then(|found| {
            if !found.buckets.is_empty() {
                file.remove_logs(&found.buckets)?;
            }
            Ok(found.next)
        });
        drop(file);
        search.from = found.as_ref().copied().unwrap_or_default();
        self.note(found.map(drop));
    }

    fn warn_of_no_room_for_days(&self, records: u64) {
        self.series.dropped.inc_by(records);
        if records > 0 && self.no_room_for_days.count(clock::now()).is_some() {
            let path = self.path.display();
            warn!(%path, records, "usage of new clients by day is not written: the file has usage.max_details");
        }
    }

    fn warn_of_no_room(&self, records: u64) {
        self.series.dropped.inc_by(records);
        if self.no_room.count(clock::now()).is_some() {
            let path = self.path.display();
            warn!(%path, records, "usage of new clients is not written: the file has usage.max_records");
        }
    }

    /// Logs that the file has room for new clients, if it was logged that it has none.
    fn note_room(&self, file: &UsageFile) {
        let Bounds { max_records, .. } = *self.bounds.lock();
        if self.no_room.is_logged()
            && file
                .has_room(max_records, unix_time::of(clock::now()))
                .is_ok_and(|has_room| has_room)
            && self.no_room.end()
        {
            info!(path = %self.path.display(), "usage of new clients is written again");
        }
    }

    /// The file; opened again after an error.
    fn reopened(&self) -> Result<Arc<UsageFile>, OpenError> {
        let mut file = self.file.lock();
        if let Some(file) = &*file {
            return Ok(Arc::clone(file));
        }
        let opened = Arc::new(UsageFile::open(&self.path)?);
        *file = Some(Arc::clone(&opened));
        Ok(opened)
    }

    /// After an error, redb's handle of the file cannot be used any more.
    fn note(&self, result: Result<(), FileError>) {
        if let Err(error) = result {
            *self.file.lock() = None;
            self.warn(&error.to_string());
        }
    }

    fn warn(&self, error: &str) {
        self.series.failed.inc();
        if self.failures.count(clock::now()).is_some() {
            let path = self.path.display();
            warn!(%path, error, "usage cannot be written; it is kept in memory, and tried again");
        }
    }
}

/// A search of the file for logs whose windows are over, a part at a time.
#[derive(Default)]
struct EndedSearch {
    /// Where it continues; `None` if it has reached the end of the file.
    from: Option<BucketId>,
    /// When it began, in microseconds.
    begun_at: Option<u64>,
}

impl EndedSearch {
    /// Where the search continues or begins at `now`; `None` if there is time left until the next
    /// one.
    fn next(&mut self, now: u64) -> Option<BucketId> {
        if let Some(from) = self.from {
            return Some(from);
        }
        let is_due = self.begun_at.is_none_or(|at| now.saturating_sub(at) > ENDED_LOGS_INTERVAL_US);
        is_due.then(|| {
            self.begun_at = Some(now);
            BucketId(0)
        })
    }
}

/// A keeper whose thread has not been started.
pub struct NewKeeper {
    keeper: Arc<Keeper>,
    received: Receiver<Command>,
}

impl NewKeeper {
    /// Path of the file.
    pub fn path(&self) -> &Path {
        &self.keeper.path
    }

    /// Opens the file, puts its counts into the store, and starts the thread.
    ///
    /// # Errors
    /// The file cannot be opened, or the thread cannot be started.
    pub fn start(self) -> Result<Arc<Keeper>, OpenError> {
        let buckets = self.keeper.open()?;
        info!(path = %self.path().display(), buckets, "usage of quotas is kept in a file");
        self.spawn(false)
    }

    /// Starts the thread in a process that replaces another one, which hands over its buckets and
    /// has the file until [`Keeper::resume`].
    ///
    /// # Errors
    /// The thread cannot be started.
    pub fn start_released(self) -> Result<Arc<Keeper>, OpenError> {
        self.spawn(true)
    }

    fn spawn(self, is_released: bool) -> Result<Arc<Keeper>, OpenError> {
        let Self { keeper, received } = self;
        keeper.store.note_changed_logs();
        let own = Arc::clone(&keeper);
        let builder = thread::Builder::new().name("usage".to_owned());
        let run = move || own.run(&received, is_released);
        builder.spawn(move || failure::watch_thread("usage", run)).map_err(OpenError::Io)?;
        Ok(keeper)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client::{Client, ClientKey};
    use crate::limit::adjust::Adjustment;
    use crate::limit::charge::{Charge, Mode};
    use crate::limit::share::Share;
    use crate::load::from_text;
    use crate::observe::metrics::Metrics;
    use crate::policy::Policy;
    use crate::store::limiter::{Source, Taken};
    use crate::usage::days::tally::Counted;
    use crate::usage::record::Place;

    const FILE: &str = "[plans.free]\n[rules.quota]\nper = ['ip']\nkind = 'fixed_window'\n\
        limit = '1000/year'\n[upstreams.a]\nservers = ['demo']\n[routes.all]\n[clients]\n\
        anonymous_plan = 'free'\n";

    /// A keeper without its thread, and a client of one quota.
    struct Setting {
        keeper: Arc<Keeper>,
        policy: Policy,
        client: Client,
        charge: Charge,
        _folder: tempfile::TempDir,
    }

    impl Setting {
        fn new() -> Self {
            let folder = tempfile::tempdir().unwrap();
            let mut policy = from_text("gateway.toml", FILE).unwrap();
            policy.usage.file = Some(folder.path().join("usage.redb"));
            let store = Arc::new(MemoryStore::new(1_000, &policy.limits));
            let series = Metrics::new("test").unwrap().usage;
            let keeper = Keeper::prepare(&policy.usage, series, &store).unwrap().keeper;
            let (bucket, limit) = (BucketId(7 << 64), policy.limits[0]);
            let (rule, limit_index, mode) = (0, 0, Mode::Enforce);
            let charge = Charge { bucket, rule, limit_index, limit, cost: limit.parts(), mode };
            let ip = Some([192, 0, 2, 1].into());
            let (key, plan, tenant, certificate) = (ClientKey::Missing, 0, None, None);
            let client = Client { ip, key, plan, tenant, certificate };
            Self { keeper, policy, client, charge, _folder: folder }
        }

        fn take(&self) -> Taken {
            let charges = vec![self.charge];
            let answer = self.keeper.store.take(&charges, clock::now(), Share::one_of(1));
            Taken::all(charges, answer, Source::Local)
        }

        fn note(&self, taken: &Taken) {
            let (policy, client) = (&self.policy, &self.client);
            let request = Counted { policy, generation: 1, client, route: None };
            self.keeper.ledger.note(request, taken, clock::now());
        }

        fn reset(&self) -> i64 {
            let levels = self.keeper.store.adjust(&[self.charge], Adjustment::Reset, clock::now());
            levels[0].1
        }

        fn note_reset(&self, level: i64) {
            let changed = (&[self.charge][..], &[level][..]);
            self.keeper.ledger.note_adjusted(&self.policy, &self.client, changed, clock::now());
        }

        /// Requests in the file after a write.
        fn written(&self) -> i64 {
            self.keeper.write();
            let mut used = None;
            let from = Place { end_us: 0, bucket: BucketId(0) };
            let read = self.keeper.file().unwrap().read(from, |record| {
                used = Some(record.used);
                true
            });
            read.unwrap();
            used.unwrap() / self.charge.limit.units(self.charge.cost)
        }
    }

    #[test]
    fn file_of_a_thread_that_waits_for_the_disk_is_not_released() {
        let Setting { policy, keeper, .. } = Setting::new();
        let series = Metrics::new("test").unwrap().usage;
        let new = Keeper::prepare(&policy.usage, series, &keeper.store).unwrap();
        assert!(!new.keeper.release(Duration::from_millis(1)), "its thread does not answer");
        drop(new.received);
        assert!(new.keeper.release(Duration::from_secs(60)), "its thread has ended");
    }

    #[test]
    fn request_before_a_reset_that_is_noted_after_it_does_not_count() {
        let setting = Setting::new();
        (0..4).for_each(|_| setting.note(&setting.take()));
        let late = [setting.take(), setting.take()];
        assert_eq!(setting.written(), 4);
        setting.note_reset(setting.reset());
        setting.note(&late[0]);
        assert_eq!(setting.written(), 0);
        setting.note(&late[1]);
        assert_eq!(setting.written(), 0);
        setting.note(&setting.take());
        assert_eq!(setting.written(), 1);
    }

    #[test]
    fn request_after_a_reset_that_is_noted_before_it_counts() {
        let setting = Setting::new();
        (0..4).for_each(|_| setting.note(&setting.take()));
        let level = setting.reset();
        setting.note(&setting.take());
        setting.note_reset(level);
        assert_eq!(setting.written(), 1);
    }
}
