//! Many requests at once.

use std::collections::BTreeMap;

use futures_util::StreamExt as _;

/// Requests under way at once: enough for calls to Redis to be full, and so few that on a machine
/// that is busy with other things the last of them waits no longer than a check may.
const AT_ONCE: usize = 128;

/// How many answers had which status.
pub(crate) type Tally = BTreeMap<u16, usize>;

/// Sends `count` requests, many at once. `request` makes the one with that number.
pub(crate) fn swarm(
    count: usize,
    request: impl Fn(&reqwest::Client, usize) -> reqwest::RequestBuilder,
) -> Tally {
    rush(AT_ONCE, count, request)
}

/// The same with `at_once` under way. Each has a connection of its own, and many systems give a
/// process 1,024 files.
pub(crate) fn rush(
    at_once: usize,
    count: usize,
    request: impl Fn(&reqwest::Client, usize) -> reqwest::RequestBuilder,
) -> Tally {
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
            futures_util::stream::iter(answers).buffer_unordered(at_once).collect().await;
        statuses.into_iter().fold(Tally::new(), |mut tally, status| {
            *tally.entry(status).or_default() += 1;
            tally
        })
    })
}
