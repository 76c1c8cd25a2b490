//! The state of one endpoint of an upstream, which outlives look-ups and reloads.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use parking_lot::Mutex;

use super::balance::plan::Availability;
use crate::base::duration::MICROS_PER_SECOND;

/// How long an endpoint is ejected after a connection to it failed, in microseconds. Without
/// ejection, each time that it is selected, a request loses a try.
const EJECTION_US: u64 = 5 * MICROS_PER_SECOND;

/// An endpoint, as its requests change it.
#[derive(Debug)]
pub(crate) struct EndpointState {
    pub(crate) address: SocketAddr,
    /// Requests in flight.
    in_flight: AtomicU32,
    health: Mutex<Health>,
}

/// A request in flight at an endpoint, until it is dropped.
#[derive(Debug)]
pub(crate) struct InFlight(Arc<EndpointState>);

/// Whether an endpoint is healthy. Times are microseconds.
#[derive(Debug, Default)]
struct Health {
    /// When the last ejection ends; 0: there has been none.
    ejected_until: u64,
    /// When it became healthy last; 0: it has always been.
    healthy_since: u64,
}

impl Health {
    fn availability(&self, now: u64) -> Availability {
        if self.ejected_until > now {
            return Availability::Down { until: self.ejected_until };
        }
        Availability::Up { since: self.healthy_since.max(self.ejected_until) }
    }
}

impl EndpointState {
    pub(super) fn new(address: SocketAddr) -> Self {
        Self { address, in_flight: AtomicU32::new(0), health: Mutex::default() }
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

    /// Whether requests are sent to it at `now` (microseconds).
    pub(super) fn availability(&self, now: u64) -> Availability {
        self.health.lock().availability(now)
    }

    /// Ejects it because a connection to it failed at `now` (microseconds).
    pub(super) fn eject(&self, now: u64) {
        self.health.lock().ejected_until = now.saturating_add(EJECTION_US);
    }

    /// Ends its ejection because a connection to it succeeded at `now` (microseconds). Returns
    /// whether it was ejected.
    pub(super) fn readmit(&self, now: u64) -> bool {
        let mut health = self.health.lock();
        let was_ejected = health.ejected_until > now;
        if was_ejected {
            *health = Health { ejected_until: 0, healthy_since: now };
        }
        was_ejected
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
