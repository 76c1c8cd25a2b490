//! Statements to Redis of the units that requests of this process hold, in calls without checks.

use std::time::Duration;

use futures_util::FutureExt as _;
use redis::RedisError;
use tokio::time::{Interval, sleep, timeout};

use super::call::{self, Until};
use super::keys::Keys;
use super::link::Connection;
use super::script::{Added, Batch};
use crate::base::clock;
use crate::base::duration::MICROS_PER_SECOND;
use crate::limit::concurrency::Statement;
use crate::store::held::Held;
use crate::store::held::statements::Due;

/// Statements in one call.
pub(super) const MAX_STATEMENTS: usize = 512;

/// Time from the end of a request to the statement that its units are free, so that one call states
/// many. A check of the same bucket states it earlier.
const STATEMENT_DELAY: Duration = Duration::from_millis(5);

/// Interval at which old statements are searched for.
pub(super) const RENEWAL_INTERVAL: Duration = Duration::from_secs(1);

/// Time for a reply.
const REPLY_TIMEOUT: Duration = Duration::from_secs(1);

/// Time after a call that was redirected.
pub(super) const PAUSE: Duration = Duration::from_millis(100);

/// Result of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stated {
    /// Nothing was due.
    Nothing,
    /// Redis has accepted the statements.
    Some,
    /// Their slot is at another master of a cluster.
    Moved,
    /// Redis has not, or may not have accepted them.
    Failed,
}

/// Waits until the next statements are due, after a call with this result.
pub(super) async fn until_next(last: Stated, held: &Held, interval: &mut Interval) {
    match last {
        Stated::Some | Stated::Failed => {
            // More may be due at once, always.
            if interval.tick().now_or_never().is_some() {
                held.renew(false, clock::now());
            }
            return;
        }
        Stated::Moved => sleep(PAUSE).await,
        Stated::Nothing => {}
    }
    tokio::select! {
        () = held.until_due() => sleep(STATEMENT_DELAY).await,
        _ = interval.tick() => held.renew(false, clock::now()),
    }
}

/// Makes one call with these statements. In a cluster, all are of buckets in one slot, and `moved`
/// notes redirections.
pub async fn state(
    connection: &Connection,
    held: &Held,
    due: Vec<Due>,
    keys: Keys<'_>,
    moved: impl Fn(&RedisError) -> bool,
) -> Stated {
    let now = clock::now();
    let mut batch = Batch::default();
    for one in &due {
        let added = batch.add_held(one.bucket, one.limit, &one.rule, keys);
        debug_assert_eq!(added, Added::In);
    }
    batch.state(|bucket| {
        let found = due.iter().find(|one| one.bucket == bucket);
        found.map_or(Statement::NONE, |one| one.statement)
    });
    let mut redis = connection.redis.clone();
    let until = Until::SentBy(now.saturating_add(MICROS_PER_SECOND));
    let call = call::take(&mut redis, &batch, until);
    let reply = timeout(REPLY_TIMEOUT, call).await;
    let stated = match &reply {
        Ok(Ok(_)) => Stated::Some,
        Ok(Err(error)) if moved(error) => Stated::Moved,
        Ok(Err(_)) | Err(_) => Stated::Failed,
    };
    for one in due {
        held.stated(one.bucket, one.statement, stated == Stated::Some);
    }
    stated
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limit::Limit;
    use crate::limit::charge::BucketId;
    use crate::limit::concurrency::Concurrency;
    use crate::store::rule::rule;

    #[tokio::test]
    async fn statements_are_renewed_also_while_others_are_due_all_the_time() {
        let held = Held::new(true);
        let bucket = BucketId(7);
        held.begin(bucket, Limit::Concurrency(Concurrency::new(5).unwrap()), &rule());
        held.statement(bucket, clock::now());
        held.answered(bucket, None);
        assert!(held.take_due(9, clock::now(), |_, _| false).is_empty(), "it cannot be made");
        let mut interval = tokio::time::interval(Duration::from_secs(3_600));
        let renewed = async {
            while held.take_due(9, clock::now(), |_, _| true).is_empty() {
                until_next(Stated::Some, &held, &mut interval).await;
                tokio::task::yield_now().await;
            }
        };
        timeout(Duration::from_secs(30), renewed).await.unwrap();
    }
}
