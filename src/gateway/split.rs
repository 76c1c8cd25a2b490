//! Which upstream gets a request of a route with several.

use std::array;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::policy::client::Client;
use crate::policy::split::Destination;
use crate::policy::{Policy, Route};

/// Number of counters.
const COUNTERS: usize = 64;

/// The turns of requests, counted for each split as long as the process lives: a reload does not begin again.
/// Splits above [`COUNTERS`] share the counters.
pub(super) struct Turns([AtomicU64; COUNTERS]);

impl Turns {
    pub(super) fn new() -> Self {
        Self(array::from_fn(|_| AtomicU64::new(0)))
    }

    /// Selects the upstream of a request. Returns its index; `None` if the gateway answers itself.
    pub(super) fn upstream(&self, policy: &Policy, route: &Route, client: &Client) -> Option<u32> {
        match &route.destination {
            Destination::Gateway => None,
            Destination::One(upstream) => Some(*upstream),
            Destination::Split(split) => split.of_client(policy, client).or_else(|| {
                let counter = self.0.get(split.number as usize % COUNTERS);
                counter.map(|turn| split.of_turn(turn.fetch_add(1, Ordering::Relaxed)))
            }),
        }
    }
}
