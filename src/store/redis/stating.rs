//! Statements to Redis of the units that requests of this process hold, in calls without checks.

use std::time::Duration;

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

/// Time after a call that failed.
pub(super) const PAUSE: Duration = Duration::from_millis(100);

/// Result of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stated {
    /// Nothing was due.
    Nothing,
    /// Redis has accepted the statements.
    Some,
    /// Redis has not, or may not have accepted them.
    Failed,
}

/// Waits until the next statements are due, after a call with this result.
pub(super) async fn until_next(last: Stated, held: &Held, interval: &mut Interval) {
    match last {
        Stated::Some => return,
        Stated::Failed => sleep(PAUSE).await,
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
    if let Ok(Err(error)) = &reply {
        moved(error);
    }
    let is_accepted = matches!(reply, Ok(Ok(_)));
    for one in due {
        held.stated(one.bucket, one.statement, is_accepted);
    }
    if is_accepted { Stated::Some } else { Stated::Failed }
}
