//! Method (a): one script call per request. Exact; used by most gateways with Redis.

use std::sync::LazyLock;

use redis::aio::MultiplexedConnection;

use crate::arithmetic::Limit;
use crate::ways::Taken;

const SOURCE: &str = include_str!("bucket.lua");
static SHA: LazyLock<String> = LazyLock::new(|| redis::Script::new(SOURCE).get_hash().to_string());

/// Loads the script.
pub(crate) async fn prepare(connection: &mut MultiplexedConnection) {
    redis::cmd("SCRIPT").arg("LOAD").arg(SOURCE).exec_async(connection).await.unwrap();
}

/// Takes a token.
pub(crate) async fn take(
    connection: &mut MultiplexedConnection,
    key: &str,
    limit: &Limit,
) -> Taken {
    let mut command = redis::cmd("EVALSHA");
    command.arg(SHA.as_str()).arg(1).arg(key).arg(limit.rate).arg(limit.burst);
    match command.query_async::<i64>(connection).await.unwrap() {
        1 => Taken::Passed,
        _ => Taken::Refused,
    }
}
