//! When to reload: when the file may have changed, and on SIGHUP.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use parking_lot::Mutex;
use pingora::server::ShutdownWatch;
use pingora::services::background::BackgroundService;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::time::{MissedTickBehavior, interval, sleep, timeout};
use tracing::info;

use super::watch::Watch;
use super::{Cause, READ_DEADLINE, Reloader};
use crate::blocking::BlockingCalls;

/// How often the file is read whatever anybody says of it: not every file system tells. An
/// unchanged file of 4 KiB costs some ten microseconds.
const POLL: Duration = Duration::from_secs(10);

/// How long nothing must have happened to the file: who writes it may not be done.
const QUIET: Duration = Duration::from_millis(50);

/// How long it is waited for that at most.
const QUIET_MAX: Duration = Duration::from_millis(500);

/// SIGHUP, caught.
pub struct Hangups(Signal);

/// Reloads while the process runs.
pub struct Reloads {
    reloader: Arc<Reloader>,
    hangups: Mutex<Option<Hangups>>,
}

impl Hangups {
    /// Catches SIGHUP from now on: uncaught, it would end the process.
    ///
    /// # Errors
    /// What the kernel says.
    ///
    /// # Panics
    /// Outside of a tokio runtime.
    pub fn catch() -> io::Result<Self> {
        Ok(Self(signal(SignalKind::hangup())?))
    }
}

impl Reloads {
    /// Has `reloader` reload.
    pub fn new(reloader: Arc<Reloader>, hangups: Hangups) -> Self {
        Self { reloader, hangups: Mutex::new(Some(hangups)) }
    }
}

#[async_trait]
impl BackgroundService for Reloads {
    async fn start(&self, mut shutdown: ShutdownWatch) {
        let Some(Hangups(mut hangups)) = self.hangups.lock().take() else { return };
        let path = &self.reloader.path;
        let reads = &self.reloader.reads;
        let mut watch = Watch::new(path);
        watch.renew(reads).await;
        // The first tick comes at once: the file may have changed since it was read.
        let mut polls = interval(POLL);
        polls.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let is_file = can_be_read_again(path, reads).await;
        if !is_file {
            info!("{} is no file: it is read again on demand only", path.display());
        }
        loop {
            let cause = tokio::select! {
                _ = shutdown.changed() => return,
                _ = hangups.recv() => Cause::Asked,
                () = watch.changed(), if is_file => Cause::Noticed,
                _ = polls.tick(), if is_file => Cause::Noticed,
            };
            if cause == Cause::Asked {
                self.reloader.runtime.access_log.reopen();
                info!("SIGHUP: reading {}", path.display());
            } else {
                settle(&mut watch).await;
            }
            watch.renew(reads).await;
            self.reloader.reload(cause).await;
        }
    }
}

/// Whether the file is one that holds the same when it is read again. One that is missing may be, or
/// one of which the file system says nothing.
async fn can_be_read_again(path: &Path, reads: &BlockingCalls) -> bool {
    let path = path.to_owned();
    match reads.run(READ_DEADLINE, move || std::fs::metadata(path)).await {
        Ok(Ok(about)) => about.is_file() || about.is_dir(),
        Ok(Err(_)) | Err(_) => true,
    }
}

/// Waits until nothing happens to the file any more.
async fn settle(watch: &mut Watch) {
    let quiet = async { while timeout(QUIET, watch.changed()).await.is_ok() {} };
    tokio::select! {
        () = quiet => {}
        () = sleep(QUIET_MAX) => {}
    }
}
