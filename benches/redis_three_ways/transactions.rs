//! Method (c): a transaction that fails after a concurrent write. Exact, but only fast without
//! concurrent clients. A watch belongs to a connection, so every client needs its own.

use redis::aio::MultiplexedConnection;

use crate::arithmetic::Limit;
use crate::ways::Taken;

/// Attempts before a request gives up.
const TRIES: usize = 20;

/// Takes a token.
pub(crate) async fn take(
    connection: &mut MultiplexedConnection,
    key: &str,
    limit: &Limit,
) -> Taken {
    for _ in 0..TRIES {
        redis::cmd("WATCH").arg(key).exec_async(connection).await.unwrap();
        let mut read = redis::cmd("HMGET");
        read.arg(key).arg("tokens").arg("at");
        let kept = read.query_async(connection).await.unwrap();
        let Some(plain) = limit.less_one(kept) else {
            redis::cmd("UNWATCH").exec_async(connection).await.unwrap();
            return Taken::Refused;
        };
        let mut write = redis::pipe();
        write.atomic();
        write.cmd("HMSET").arg(key).arg("tokens").arg(plain.tokens).arg("at").arg(plain.at);
        write.ignore().cmd("EXPIRE").arg(key).arg(limit.expires_after(&plain)).ignore();
        let written: Option<()> = write.query_async(connection).await.unwrap();
        if written.is_some() {
            return Taken::Passed;
        }
    }
    Taken::Undecided
}
