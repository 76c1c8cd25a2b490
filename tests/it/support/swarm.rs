//! Many requests at once.

use std::collections::BTreeMap;

use futures_util::StreamExt as _;

/// Requests under way at once. Each has a connection of its own, and many systems give a process
/// 1,024 files.
const AT_ONCE: usize = 500;

/// How many answers had which status.
pub(crate) type Tally = BTreeMap<u16, usize>;

/// Sends `count` requests, as many at once as can be. `request` makes the one with that number.
pub(crate) fn swarm(
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
            futures_util::stream::iter(answers).buffer_unordered(AT_ONCE).collect().await;
        statuses.into_iter().fold(Tally::new(), |mut tally, status| {
            *tally.entry(status).or_default() += 1;
            tally
        })
    })
}
