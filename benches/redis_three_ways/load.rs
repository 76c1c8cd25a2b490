//! Clients that send requests in a loop, each after the response to the previous one.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::time::Duration;

use tokio::runtime::Runtime;
use tokio::task::JoinSet;

use crate::arithmetic::Limit;
use crate::ours::mixed;
use crate::ways::{Client, Taken, Way, Ways};

/// Number of concurrent clients.
pub(crate) const MOST_CLIENTS: usize = 256;

/// Load of the clients.
#[derive(Clone, Copy)]
pub(crate) struct Load {
    pub(crate) way: Way,
    pub(crate) clients: usize,
    /// The first of the users, who are selected in pseudo-random order.
    pub(crate) first_user: u64,
    pub(crate) users: u64,
    pub(crate) limit: Limit,
    /// Number of requests after which the clients stop.
    pub(crate) most_requests: u64,
}

/// Numbers of requests.
#[derive(Clone, Copy, Default)]
pub(crate) struct Counts {
    pub(crate) passed: u64,
    pub(crate) refused: u64,
    pub(crate) undecided: u64,
}

/// Running clients.
pub(crate) struct Running {
    shared: Arc<Shared>,
    clients: JoinSet<()>,
}

#[derive(Default)]
struct Shared {
    stop: AtomicBool,
    passed: AtomicU64,
    refused: AtomicU64,
    undecided: AtomicU64,
}

impl Load {
    /// Starts the clients.
    pub(crate) fn start(self, runtime: &Runtime, ways: &Ways) -> Running {
        let shared = Arc::new(Shared::default());
        let mut clients = JoinSet::new();
        for number in 0..self.clients {
            let client = ways.client(self.way, number);
            let run = run(client, number as u64, self, Arc::clone(&shared));
            clients.spawn_on(run, runtime.handle());
        }
        Running { shared, clients }
    }
}

impl Running {
    /// Requests with a result.
    pub(crate) fn counts(&self) -> Counts {
        let Shared { passed, refused, undecided, .. } = &*self.shared;
        let [passed, refused, undecided] = [passed, refused, undecided].map(|n| n.load(Relaxed));
        Counts { passed, refused, undecided }
    }

    /// Stops the clients and waits for their last results.
    pub(crate) fn stop(mut self, runtime: &Runtime) -> Counts {
        self.shared.stop.store(true, Relaxed);
        self.finish(runtime)
    }

    /// Waits until all requests are done.
    pub(crate) fn finish(&mut self, runtime: &Runtime) -> Counts {
        runtime.block_on(async {
            while let Some(ended) = self.clients.join_next().await {
                ended.unwrap();
            }
        });
        self.counts()
    }
}

impl Counts {
    /// The sum of all requests.
    pub(crate) fn requests(&self) -> u64 {
        self.passed + self.refused + self.undecided
    }
}

/// Waits while the clients run.
pub(crate) fn wait(runtime: &Runtime, length: Duration) {
    runtime.block_on(async { tokio::time::sleep(length).await });
}

async fn run(mut client: Client, number: u64, load: Load, shared: Arc<Shared>) {
    let share = load.most_requests / load.clients as u64;
    for turn in 0..share {
        if shared.stop.load(Relaxed) {
            return;
        }
        let user = load.first_user + mixed(number << 32 | turn) % load.users;
        match client.take(user, &load.limit).await {
            Taken::Passed => shared.passed.fetch_add(1, Relaxed),
            Taken::Undecided => shared.undecided.fetch_add(1, Relaxed),
            Taken::Refused => {
                // A denial from the cache did not yield, so yield to the other clients.
                tokio::task::yield_now().await;
                shared.refused.fetch_add(1, Relaxed)
            }
        };
    }
}
