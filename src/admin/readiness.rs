//! Whether the gateway is ready for requests, as `/ready` and the status say.

use std::sync::Arc;

use crate::downstream::pressure::Pressure;
use crate::policy::Policy;
use crate::runtime::Snapshot;
use crate::runtime::drain::Draining;
use crate::store::limiter::Limiter;
use crate::store::redis::availability;

/// What readiness depends on.
pub struct Readiness {
    /// Whether the process is draining.
    pub draining: Draining,
    /// The limiter whose connection to Redis is needed for readiness (`redis.ready`), if any.
    pub needed: Option<Arc<Limiter>>,
    /// The overload of the process.
    pub pressure: Pressure,
}

impl Readiness {
    /// Why the gateway is not ready, if it is not.
    pub(super) fn not_ready(&self, policy: &Policy) -> Option<&'static str> {
        if self.draining.is_draining() {
            return Some("draining");
        }
        if policy.server.limits.unready_on_overload {
            if self.pressure.is_out_of_descriptors() {
                return Some("no file descriptors are left");
            }
            if self.pressure.is_over_memory() {
                return Some("memory is over its limit");
            }
        }
        let needed = self.needed.as_ref().and_then(|limiter| limiter.redis());
        let is_disconnected = needed.is_some_and(|nodes| !nodes.is_partly_connected());
        is_disconnected.then_some("no connection to Redis")
    }

    /// Which masters of a cluster are away, if readiness depends on Redis.
    pub(super) fn masters_away(&self) -> Option<String> {
        let nodes = self.needed.as_ref().and_then(|limiter| limiter.redis())?;
        availability::summary(&nodes.masters())
    }
}

/// A line for each upstream without an address. They do not make the gateway unready: requests to
/// others are served.
pub(super) fn upstreams_without_address(snapshot: &Snapshot) -> String {
    let line = |upstream: &str| {
        format!("upstream `{upstream}`: no server has a known address, so requests to it get 502\n")
    };
    snapshot.upstreams_without_address().map(line).collect()
}
