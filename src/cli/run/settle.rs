//! Settles debts in Redis at the end of the process, and logs those that could not be settled. Also
//! states there that requests that have ended hold nothing.

use std::time::Duration;

use tracing::{info, warn};

use crate::base::clock;
use crate::base::duration::micros;
use crate::store::limiter::Limiter;
use crate::store::redis::batch::settle::{Settlement, Sum};

/// Shortest time to settle debts in, even if the drain time is over. The connection to Redis lives
/// for a second longer than the drain time.
const MIN_SETTLE_TIME: Duration = Duration::from_millis(500);

/// Settles debts until the drain time is over.
pub(super) struct Settling<'a> {
    limiter: &'a Limiter,
    drain_timeout: Duration,
    /// End of the drain time, in microseconds; 0 before it begins.
    ends: u64,
    settled: Sum,
    lost: Sum,
    why: Option<String>,
}

impl<'a> Settling<'a> {
    pub(super) fn new(limiter: &'a Limiter, drain_timeout: Duration) -> Self {
        let (settled, lost) = (Sum::default(), Sum::default());
        Self { limiter, drain_timeout, ends: 0, settled, lost, why: None }
    }

    /// Begins the drain time.
    pub(super) fn begin(&mut self) {
        self.ends = clock::now().saturating_add(micros(self.drain_timeout));
    }

    /// Time until the drain time is over; zero afterwards.
    pub(super) fn time_left(&self) -> Duration {
        Duration::from_micros(self.ends.saturating_sub(clock::now()))
    }

    /// Settles the current debts in Redis. Blocks; requests in flight continue.
    pub(super) fn settle(&mut self) {
        if !self.limiter.has_unsettled() {
            return;
        }
        let timeout = self.time_left().max(MIN_SETTLE_TIME);
        let settle = self.limiter.settle(timeout);
        // The connection is driven by the proxy's threads, which live until the process ends.
        match tokio::runtime::Builder::new_current_thread().enable_all().build() {
            Ok(runtime) => {
                let Settlement { settled, lost, why } = runtime.block_on(settle);
                self.settled = self.settled.and(settled);
                self.lost = self.lost.and(lost);
                self.why = why.or(self.why.take());
            }
            Err(error) => self.why = Some(error.to_string()),
        }
    }

    /// Logs which debts were settled, and which were not and why.
    pub(super) fn report(self) {
        let settled = self.settled;
        if settled.buckets > 0 {
            info!(buckets = settled.buckets, tokens = settled.whole_tokens(), "debts settled");
        }
        let lost = self.lost.and(self.limiter.unsettled());
        if lost.buckets > 0 {
            let reason = self.why.as_deref().unwrap_or("the drain time is over");
            warn!(
                buckets = lost.buckets,
                tokens = lost.whole_tokens(),
                reason,
                "debts not settled"
            );
        }
    }
}
