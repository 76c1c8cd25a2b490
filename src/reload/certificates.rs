//! Puts certificates in force whose files have changed. The configuration file is not read for it,
//! and no connection is closed.

use std::sync::Arc;

use parking_lot::Mutex;
use tracing::{info, warn};

use super::READ_DEADLINE;
use crate::base::blocking::BlockingCalls;
use crate::base::clock;
use crate::base::time::UtcTime;
use crate::runtime::Runtime;
use crate::tls::failures::Failing;
use crate::tls::refresh::{RefreshEvent, Refresher, Round, Times};

/// Keeps the certificates in force as they are on disk.
pub(super) struct Certificates {
    runtime: Runtime,
    refresher: Arc<Mutex<Refresher>>,
}

impl Certificates {
    pub(super) fn of(runtime: Runtime) -> Self {
        Self { runtime, refresher: Arc::default() }
    }

    /// Reads the files that may have changed, and puts them in force. Returns whether files are
    /// wrong that may still be incomplete: the next call should follow soon.
    pub(super) async fn refresh(&self, reads: &BlockingCalls) -> bool {
        let files = self.runtime.tls.files();
        if files.is_empty() {
            return false;
        }
        let refresher = Arc::clone(&self.refresher);
        let times = Times { monotonic_us: clock::now(), unix_s: clock::unix_seconds() };
        let round = move || refresher.lock().round(&files, times);
        // If the file system does not respond, the reload of the configuration reports it.
        let Ok(round) = reads.run(READ_DEADLINE, round).await else { return false };
        self.apply(round)
    }

    fn apply(&self, round: Round) -> bool {
        let Round { certificates, authorities, events, is_pending } = round;
        if !certificates.is_empty() || !authorities.is_empty() {
            let changed = self.runtime.tls.change_files(|files| {
                // A reload may have removed some meanwhile.
                for (named, certificate) in certificates {
                    if files.certificate(&named).is_some() {
                        files.replace(named, certificate);
                    }
                }
                for (path, loaded) in authorities {
                    if files.has_authorities(&path) {
                        files.replace_authorities(path, loaded);
                    }
                }
            });
            if let Err(error) = changed {
                warn!(detail = %error, "replaced certificates cannot be used; the previous ones stay in use");
                return is_pending;
            }
        }
        for event in &events {
            self.report(event);
        }
        is_pending
    }

    fn report(&self, event: &RefreshEvent) {
        let Runtime { tls, metrics, .. } = &self.runtime;
        match event {
            RefreshEvent::Replaced { name, file, not_after } => {
                tls.failures().clear(&Failing::File(file.clone()));
                if let Some(end) = not_after {
                    let expires = format!("{:.0}", UtcTime::of_seconds(*end));
                    info!(name = %name, expires, "certificate replaced");
                } else {
                    info!(path = %name, "authorities of client certificates replaced");
                }
            }
            RefreshEvent::Failed { name, file, message } => {
                let failing = Failing::File(file.clone());
                metrics.tls.failed(name);
                tls.failures().record(failing, message.clone(), clock::unix_seconds());
                warn!(name = %name, detail = message, "certificate files cannot be used; the previous ones stay in use");
            }
            RefreshEvent::Recovered { name, file } => {
                tls.failures().clear(&Failing::File(file.clone()));
                info!(name = %name, "certificate files are those in use again");
            }
            RefreshEvent::StapleExpired { name } => {
                warn!(name = %name, "the OCSP response has expired; it is no longer stapled");
            }
        }
    }
}
