//! Which upstream gets a request of a route with several.

use std::array;

use parking_lot::Mutex;

use crate::client::Client;
use crate::policy::split::Destination;
use crate::policy::{Policy, Route};

const COUNTERS: usize = 64;

/// Maximum number of turns that a counter keeps for the next requests.
const MAX_RETURNED: usize = 1_024;

/// The turns of requests, counted for each split as long as the process lives: a reload does not
/// begin again. Splits above [`COUNTERS`] share the counters.
pub(in crate::gateway) struct Turns([Mutex<Counter>; COUNTERS]);

/// The turns that no request has.
#[derive(Default)]
struct Counter {
    next: u64,
    /// Turns before it of requests that were refused.
    returned: Vec<u64>,
}

/// The upstream of a request, and its turn. Unless it is [used](Self::is_used), the turn returns
/// when this is dropped, so that refused requests do not change the shares.
pub(super) struct Chosen<'a> {
    pub(super) upstream: u32,
    pub(super) is_used: bool,
    turn: Option<(&'a Mutex<Counter>, u64)>,
}

impl Counter {
    fn take(&mut self) -> u64 {
        self.returned.pop().unwrap_or_else(|| {
            let turn = self.next;
            self.next = turn.wrapping_add(1);
            turn
        })
    }
}

impl Drop for Chosen<'_> {
    fn drop(&mut self) {
        if let (false, Some((counter, turn))) = (self.is_used, self.turn) {
            let mut counter = counter.lock();
            if counter.returned.len() < MAX_RETURNED {
                counter.returned.push(turn);
            }
        }
    }
}

impl Turns {
    pub(in crate::gateway) fn new() -> Self {
        Self(array::from_fn(|_| Mutex::default()))
    }

    /// Selects the upstream of a request; `None` if the gateway answers itself.
    pub(super) fn upstream(
        &self,
        policy: &Policy,
        route: &Route,
        client: &Client,
    ) -> Option<Chosen<'_>> {
        let without_turn = |upstream| Some(Chosen { upstream, is_used: true, turn: None });
        match &route.destination {
            Destination::Gateway => None,
            Destination::One(upstream) => without_turn(*upstream),
            Destination::Split(split) => {
                if let Some(upstream) = split.of_client(client, policy.clients.ipv6_prefix) {
                    return without_turn(upstream);
                }
                let counter = self.0.get(split.number as usize % COUNTERS)?;
                let turn = counter.lock().take();
                let upstream = split.of_turn(turn);
                Some(Chosen { upstream, is_used: false, turn: Some((counter, turn)) })
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn turn_of_a_refused_request_is_that_of_the_next_one() {
        let counter = Mutex::new(Counter::default());
        let choose = |is_used| {
            let turn = counter.lock().take();
            drop(Chosen { upstream: 0, is_used, turn: Some((&counter, turn)) });
            turn
        };
        let passed: Vec<u64> = (0..10)
            .map(|_| {
                for _ in 0..143 {
                    choose(false);
                }
                choose(true)
            })
            .collect();
        assert_eq!(passed, (0..10).collect::<Vec<_>>());
    }
}
