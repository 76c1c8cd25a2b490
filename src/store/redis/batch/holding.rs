//! The end of calls with checks of units that requests hold.

use std::sync::Arc;

use super::Batcher;
use crate::limit::charge::BucketId;
use crate::store::held::Held;
use crate::store::redis::script::Batch;

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
}
