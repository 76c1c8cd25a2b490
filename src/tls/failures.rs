//! Certificates that could not be replaced or obtained. The previous one stays in use, if any.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use parking_lot::Mutex;

/// The failures that have not been mended.
#[derive(Debug, Default)]
pub struct Failures(Mutex<BTreeMap<Failing, Failure>>);

/// What could not be replaced or obtained.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Failing {
    /// The certificate or the authorities in the file with this path.
    File(PathBuf),
    /// The certificate of `[acme]` for this name.
    Acme(Arc<str>),
}

/// Why a certificate could not be replaced or obtained.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    /// What is wrong.
    pub message: String,
    /// When it was found first, as Unix time in seconds.
    pub since: u64,
}

impl Failing {
    /// The certificate of `[acme]` for this name.
    pub fn acme(name: &str) -> Self {
        Self::Acme(name.into())
    }
}

impl Failures {
    /// Records a failure. `now` is the Unix time in seconds.
    pub fn record(&self, failing: Failing, message: String, now: u64) {
        let mut failures = self.0.lock();
        let since = failures.get(&failing).map_or(now, |failure| failure.since);
        failures.insert(failing, Failure { message, since });
    }

    /// Removes a failure, and returns whether there was one.
    pub fn clear(&self, failing: &Failing) -> bool {
        self.0.lock().remove(failing).is_some()
    }

    pub fn all(&self) -> BTreeMap<Failing, Failure> {
        self.0.lock().clone()
    }
}
