//! Read, compute, write without a transaction: two clients that read the same level are both
//! allowed.

use redis::aio::MultiplexedConnection;

use crate::arithmetic::Limit;
use crate::ways::Taken;

/// Takes a token.
pub(crate) async fn take(
    connection: &mut MultiplexedConnection,
    key: &str,
    limit: &Limit,
) -> Taken {
    let mut read = redis::cmd("HMGET");
    read.arg(key).arg("tokens").arg("at");
    let kept = read.query_async(connection).await.unwrap();
    let Some(plain) = limit.less_one(kept) else { return Taken::Refused };
    let mut write = redis::cmd("HMSET");
    write.arg(key).arg("tokens").arg(plain.tokens).arg("at").arg(plain.at);
    write.exec_async(connection).await.unwrap();
    let mut expire = redis::cmd("EXPIRE");
    expire.arg(key).arg(limit.expires_after(&plain));
    expire.exec_async(connection).await.unwrap();
    Taken::Passed
}
