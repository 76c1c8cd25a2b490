//! The state of one endpoint of an upstream, which outlives look-ups and reloads.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use parking_lot::{Mutex, MutexGuard};

use super::balance::plan::Availability;
use super::health::Health;
use crate::policy::health::HealthChecks;

/// An endpoint, as its requests and its health checks change it.
#[derive(Debug)]
pub(crate) struct EndpointState {
    pub(crate) address: SocketAddr,
    /// Requests in flight.
    in_flight: AtomicU32,
    health: Mutex<Health>,
    /// When its next health check begins, in microseconds; `u64::MAX` while one runs.
    next_check: AtomicU64,
}

/// A request in flight at an endpoint, until it is dropped.
#[derive(Debug)]
pub(crate) struct InFlight(Arc<EndpointState>);

/// The right to check the health of an endpoint. The next check begins after it is dropped.
#[derive(Debug)]
pub(crate) struct CheckTurn {
    pub(super) endpoint: Arc<EndpointState>,
    pub(super) checks: Arc<HealthChecks>,
    /// When the next check begins, in microseconds.
    next: u64,
}

impl EndpointState {
    pub(super) fn new(address: SocketAddr) -> Self {
        Self {
            address,
            in_flight: AtomicU32::new(0),
            health: Mutex::default(),
            next_check: AtomicU64::new(0),
        }
    }

    /// Requests in flight.
    pub(crate) fn in_flight(&self) -> u32 {
        self.in_flight.load(Ordering::Relaxed)
    }

    /// Counts a request.
    pub(super) fn begin(self: &Arc<Self>) -> InFlight {
        self.in_flight.fetch_add(1, Ordering::Relaxed);
        InFlight(Arc::clone(self))
    }

    pub(super) fn health(&self) -> MutexGuard<'_, Health> {
        self.health.lock()
    }

    /// Whether requests are sent to it at `now` (microseconds).
    pub(super) fn availability(&self, now: u64) -> Availability {
        self.health.lock().availability(now)
    }

    /// When its next health check begins, in microseconds; `u64::MAX` while one runs.
    pub(super) fn next_check(&self) -> u64 {
        self.next_check.load(Ordering::Acquire)
    }

    /// Begins a health check that is due at `now`, unless another thread does. The one after it
    /// begins at `next`, or when it has ended. Times are microseconds.
    pub(super) fn begin_check(
        self: &Arc<Self>,
        checks: &Arc<HealthChecks>,
        now: u64,
        next: u64,
    ) -> Option<CheckTurn> {
        let begin = |due: u64| (due <= now).then_some(u64::MAX);
        self.next_check.fetch_update(Ordering::AcqRel, Ordering::Acquire, begin).ok()?;
        Some(CheckTurn { endpoint: Arc::clone(self), checks: Arc::clone(checks), next })
    }
}

impl InFlight {
    pub(crate) fn address(&self) -> SocketAddr {
        self.0.address
    }

    pub(super) fn state(&self) -> &EndpointState {
        &self.0
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        self.0.in_flight.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Drop for CheckTurn {
    fn drop(&mut self) {
        self.endpoint.next_check.store(self.next, Ordering::Release);
    }
}
