//! Order of the replies of the shared store: each request reads the reply to its check in a task,
//! and these run in any order. Without it, the level after the first check of a call could be kept
//! instead of that after the last one.

use parking_lot::Mutex;

use crate::limit::Limit;
use crate::limit::charge::{BucketId, Charge};

/// Number of buckets whose last reply is known, a power of two. Replies are out of order for
/// milliseconds only, so entries may replace each other.
const SLOTS: usize = 1_024;

/// The last replies, by bucket.
#[derive(Debug)]
pub(super) struct Replies(Box<[Mutex<Option<Reply>>]>);

/// What is known of a bucket.
#[derive(Debug, Clone, Copy)]
struct Reply {
    bucket: BucketId,
    limit: Limit,
    /// Level in the limit's units; `None` after a local decision.
    level: Option<i64>,
    /// When the call was sent, or the local decision made, in microseconds.
    sent_at: u64,
}

impl Default for Replies {
    fn default() -> Self {
        Self((0..SLOTS).map(|_| Mutex::new(None)).collect())
    }
}

impl Replies {
    /// Calls `put` with the level to keep after a call that was sent at `sent_at` has reported
    /// `level` of the charge's bucket. Not if a later call has reported one, or if the gateway has
    /// decided locally since.
    pub(super) fn read(&self, charge: &Charge, level: i64, sent_at: u64, put: impl FnOnce(i64)) {
        let mut slot = self.slot(charge.bucket).lock();
        let mut reply =
            Reply { bucket: charge.bucket, limit: charge.limit, level: Some(level), sent_at };
        if let Some(kept) = slot.filter(|kept| kept.bucket == charge.bucket) {
            if sent_at < kept.sent_at {
                return;
            }
            if sent_at == kept.sent_at && kept.limit == charge.limit {
                // Of one call, the last level is the lowest: it settles debts first, then it only
                // takes.
                reply.level = kept.level.map_or(Some(level), |last| Some(last.min(level)));
            }
        }
        *slot = Some(reply);
        // Under the lock, so that levels are kept in this order.
        put(reply.level.unwrap_or(level));
    }

    /// Records that tokens of the charge's bucket were granted locally at `now`: calls that were
    /// sent before do not settle them, so their replies are ignored.
    pub(super) fn granted_locally(&self, charge: &Charge, now: u64) {
        let Charge { bucket, limit, .. } = *charge;
        *self.slot(bucket).lock() = Some(Reply { bucket, limit, level: None, sent_at: now });
    }

    #[allow(clippy::cast_possible_truncation, reason = "only these bits are used")]
    fn slot(&self, bucket: BucketId) -> &Mutex<Option<Reply>> {
        &self.0[bucket.0 as usize & (self.0.len() - 1)]
    }
}
