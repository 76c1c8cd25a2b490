//! Calls with checks of units that requests hold: their end, and the statements at the end of the
//! process.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, timeout_at};

use super::Batcher;
use crate::limit::charge::BucketId;
use crate::store::held::Held;
use crate::store::redis::script::Batch;
use crate::store::redis::stating;

/// Buckets of a call whose units are held. If it is dropped before [`end`](Self::end), by a panic,
/// what Redis has of them is unknown, and is stated again.
#[derive(Default)]
pub(super) struct AskedBuckets(Option<(Arc<Held>, Vec<BucketId>)>);

impl AskedBuckets {
    /// Those of `batch`.
    pub(super) fn of(held: &Arc<Held>, batch: &Batch) -> Self {
        let buckets: Vec<BucketId> = batch.held().collect();
        Self((!buckets.is_empty()).then(|| (Arc::clone(held), buckets)))
    }

    /// The call has ended, and its buckets with it.
    pub(super) fn end(mut self) {
        self.0 = None;
    }
}

impl Drop for AskedBuckets {
    fn drop(&mut self) {
        if let Some((held, buckets)) = self.0.take() {
            for bucket in buckets {
                held.answered(bucket, None);
            }
        }
    }
}

impl Batcher {
    /// Ends a call with checks. `units` are those that Redis has of each bucket; `None` without a
    /// reply.
    pub(super) fn end_held(&self, batch: &Batch, units: Option<Vec<(BucketId, Option<i64>)>>) {
        let unknown = || batch.held().map(|bucket| (bucket, None)).collect();
        for (bucket, units) in units.unwrap_or_else(unknown) {
            self.held.answered(bucket, units);
        }
    }

    /// Makes all statements that are due, within about `timeout`. Those that are not made end with
    /// their leases.
    pub async fn state_all(&self, timeout: Duration) {
        let ends = Instant::now() + timeout;
        while let Some(connection) = self.link.current() {
            let state = stating::state_some(&connection, &self.held, self.keys.prefix());
            if !matches!(timeout_at(ends, state).await, Ok(stating::Stated::Some)) {
                return;
            }
        }
    }
}
