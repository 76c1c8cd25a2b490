//! Sends many requests concurrently.

use std::collections::BTreeMap;

use futures_util::StreamExt as _;

/// Concurrent requests: enough to fill calls to Redis, and few enough for a busy machine to serve
/// the last of them within the timeout of a check.
const CONCURRENCY: usize = 128;

/// Number of responses by status.
pub(crate) type StatusCounts = BTreeMap<u16, usize>;

/// Sends `count` requests with the default concurrency. `request` builds the n-th request.
pub(crate) fn send_many(
    count: usize,
    request: impl Fn(&reqwest::Client, usize) -> reqwest::RequestBuilder,
) -> StatusCounts {
    send_concurrently(CONCURRENCY, count, request)
}

/// Sends `count` requests with this concurrency. Each uses a connection; many systems allow a
/// process 1,024 open files.
pub(crate) fn send_concurrently(
    concurrency: usize,
    count: usize,
    request: impl Fn(&reqwest::Client, usize) -> reqwest::RequestBuilder,
) -> StatusCounts {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async {
        let client = reqwest::Client::builder().no_proxy().build().unwrap();
        let answers = (0..count).map(|number| {
            let sent = request(&client, number).send();
            async move {
                let answer = sent.await.unwrap();
                let status = answer.status().as_u16();
                answer.bytes().await.unwrap();
                status
            }
        });
        let statuses: Vec<u16> =
            futures_util::stream::iter(answers).buffer_unordered(concurrency).collect().await;
        statuses.into_iter().fold(StatusCounts::new(), |mut counts, status| {
            *counts.entry(status).or_default() += 1;
            counts
        })
    })
}
