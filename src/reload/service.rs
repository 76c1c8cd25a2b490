//! Starts reloads: when the file may have changed, and on SIGHUP.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use parking_lot::Mutex;
use pingora::server::ShutdownWatch;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::time::{MissedTickBehavior, interval, sleep, timeout};
use tracing::info;

use super::watch::Watch;
use super::{Cause, READ_DEADLINE, Reloader};
use crate::base::background::Background;
use crate::base::blocking::BlockingCalls;
use crate::process::notify;

/// Interval at which the file is read even without a notification: not every file system sends
/// them. Reading an unchanged file of 4 KiB takes about 10 µs.
const POLL_INTERVAL: Duration = Duration::from_secs(10);

/// A changed file is read after no further change for this long, because the write may not be
/// complete.
const DEBOUNCE_TIME: Duration = Duration::from_millis(50);

/// Maximum time to wait for [`DEBOUNCE_TIME`] without a change.
const SETTLE_TIMEOUT: Duration = Duration::from_millis(500);

/// Interval at which certificate files that are wrong are read again, before they are reported.
const RETRY_INTERVAL: Duration = Duration::from_millis(500);

/// The handler for SIGHUP.
pub struct HangupSignal(Signal);

/// Background service that reloads the configuration while the process runs.
pub struct ReloadService {
    reloader: Arc<Reloader>,
    hangup_signal: Mutex<Option<HangupSignal>>,
}

impl HangupSignal {
    /// Installs the handler. Without it SIGHUP ends the process.
    ///
    /// # Errors
    /// If the kernel refuses the handler.
    ///
    /// # Panics
    /// Outside of a tokio runtime.
    pub fn catch() -> io::Result<Self> {
        Ok(Self(signal(SignalKind::hangup())?))
    }
}

impl ReloadService {
    /// Creates a service that calls `reloader`.
    pub fn new(reloader: Arc<Reloader>, hangup_signal: HangupSignal) -> Self {
        Self { reloader, hangup_signal: Mutex::new(Some(hangup_signal)) }
    }
}

impl Background for ReloadService {
    fn start(&self, mut shutdown: ShutdownWatch) -> BoxFuture<'_, ()> {
        Box::pin(async move {
            let Some(HangupSignal(mut hangups)) = self.hangup_signal.lock().take() else { return };
            let path = &self.reloader.path;
            let reads = &self.reloader.reads;
            let mut watch = Watch::new();
            watch.renew(self.reloader.watched(), reads).await;
            // The first poll is immediate: the file may have changed since it was read.
            let mut polls = interval(POLL_INTERVAL);
            polls.set_missed_tick_behavior(MissedTickBehavior::Delay);
            let is_file = is_regular_file(path, reads).await;
            if !is_file {
                let path = path.display();
                info!(
                    "{path} is not a regular file; it is reloaded on SIGHUP and by the admin API only"
                );
            }
            let mut is_pending = false;
            loop {
                let cause = tokio::select! {
                    _ = shutdown.changed() => return,
                    _ = hangups.recv() => Some(Cause::Requested),
                    () = watch.changed() => Some(Cause::FileChanged),
                    _ = polls.tick() => Some(Cause::FileChanged),
                    () = sleep(RETRY_INTERVAL), if is_pending => None,
                };
                match cause {
                    Some(Cause::Requested) => {
                        self.reloader.runtime.access_log.reopen();
                        info!(path = %path.display(), "SIGHUP: reloading the configuration");
                    }
                    Some(Cause::FileChanged) => settle(&mut watch).await,
                    None => {}
                }
                // A pipe is read again only on request; the files that it names may change all the
                // same.
                match cause.filter(|cause| is_file || *cause == Cause::Requested) {
                    Some(Cause::Requested) => {
                        notify::reloading();
                        self.reload(&mut watch, Cause::Requested).await;
                        notify::ready("serving");
                    }
                    Some(Cause::FileChanged) => self.reload(&mut watch, Cause::FileChanged).await,
                    None => watch.renew(self.reloader.watched(), reads).await,
                }
                is_pending = self.reloader.refresh_certificates().await;
            }
        })
    }
}

impl ReloadService {
    /// Reloads, and watches the files that the configuration names from then on.
    async fn reload(&self, watch: &mut Watch, cause: Cause) {
        let (reads, watched) = (&self.reloader.reads, self.reloader.watched());
        watch.renew(watched.clone(), reads).await;
        self.reloader.reload(cause).await;
        let named = self.reloader.watched();
        if named != watched {
            // A secret may have changed after it was read and before it was watched.
            watch.renew(named, reads).await;
            self.reloader.reload(Cause::FileChanged).await;
        }
    }
}

/// Whether the file can be read repeatedly, unlike a pipe. Assumed if it is missing or if the file
/// system does not respond.
async fn is_regular_file(path: &Path, reads: &BlockingCalls) -> bool {
    let path = path.to_owned();
    match reads.run(READ_DEADLINE, move || std::fs::metadata(path)).await {
        Ok(Ok(about)) => about.is_file() || about.is_dir(),
        Ok(Err(_)) | Err(_) => true,
    }
}

/// Waits until the file has not changed for [`DEBOUNCE_TIME`].
async fn settle(watch: &mut Watch) {
    let settled = async { while timeout(DEBOUNCE_TIME, watch.changed()).await.is_ok() {} };
    tokio::select! {
        () = settled => {}
        () = sleep(SETTLE_TIMEOUT) => {}
    }
}
