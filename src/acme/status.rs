//! The state of automatic certificates, for the admin port.

use std::collections::BTreeMap;

use parking_lot::Mutex;

/// The state of the certificate of one domain. Times are Unix seconds.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DomainStatus {
    /// End of the present certificate's validity; `None` without one.
    pub not_after: Option<u64>,
    /// Time of the next order; `None` while one runs or while the storage cannot be read.
    pub next_order: Option<u64>,
    /// Number of failed orders since the last successful one.
    pub failures: u32,
    /// Why the last order failed, or why the storage cannot be read; `None` if neither is the case.
    pub last_error: Option<String>,
}

/// The states of all domains of `[acme]`.
#[derive(Debug, Default)]
pub struct Statuses {
    domains: Mutex<BTreeMap<String, DomainStatus>>,
}

impl Statuses {
    /// The state of each domain, by name; empty without `[acme]`.
    pub fn all(&self) -> BTreeMap<String, DomainStatus> {
        self.domains.lock().clone()
    }

    /// Replaces all states.
    pub(super) fn replace(&self, domains: BTreeMap<String, DomainStatus>) {
        *self.domains.lock() = domains;
    }
}
