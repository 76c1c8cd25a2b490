//! Certificates that could not be replaced or obtained, by name. The previous one stays in use, if any.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;

/// The failures that have not been mended.
#[derive(Debug, Default)]
pub struct Failures(Mutex<BTreeMap<Arc<str>, Failure>>);

/// Why a certificate could not be replaced or obtained.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    /// What is wrong.
    pub message: String,
    /// When it was found first, as Unix time in seconds.
    pub since: u64,
}

impl Failures {
    /// Records a failure of the certificate with this name. `now` is the Unix time in seconds.
    pub fn record(&self, name: &Arc<str>, message: String, now: u64) {
        let mut failures = self.0.lock();
        let since = failures.get(name).map_or(now, |failure| failure.since);
        failures.insert(Arc::clone(name), Failure { message, since });
    }

    /// Removes the failure of the certificate with this name, and returns whether there was one.
    pub fn clear(&self, name: &str) -> bool {
        self.0.lock().remove(name).is_some()
    }

    /// All failures, by name.
    pub fn all(&self) -> BTreeMap<Arc<str>, Failure> {
        self.0.lock().clone()
    }
}
