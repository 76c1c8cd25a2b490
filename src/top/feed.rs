//! What is read from the gateway, and when: events as they arrive, everything else once per
//! interval.

use std::time::Duration;

use tokio::sync::{mpsc, watch};

use super::client::{Client, GatewayError};
use super::stream::{Event, Parser};
use crate::api::audit::Refusals;
use crate::api::clients::{ClientBuckets, Top};
use crate::api::reloads::Reloads;
use crate::api::samples::{Sample, SampleRange};
use crate::api::status::Status;
use crate::api::upstreams::Upstreams;
use crate::net::percent::encode_component;

/// Time between the end of a stream and the next attempt to open one.
const RECONNECT_INTERVAL: Duration = Duration::from_secs(1);

/// How long `--once` waits for the next sample.
const NEXT_SAMPLE_TIMEOUT: Duration = Duration::from_secs(3);

/// An update of the screen.
#[derive(Debug)]
pub(super) enum Update {
    /// The samples of the last minutes, oldest first.
    History(Vec<Sample>),
    /// The sample of the last second.
    Sample(Box<Sample>),
    /// What is read once per interval.
    Data(Box<Data>),
    /// What is read once per interval cannot be read.
    Failed(GatewayError),
    /// The stream of events cannot be opened, or has ended with an error.
    NoEvents(GatewayError),
}

/// The data that is read once per interval.
#[derive(Debug, Clone, Default)]
pub(super) struct Data {
    pub(super) status: Status,
    pub(super) top: Top,
    pub(super) upstreams: Upstreams,
    pub(super) reloads: Reloads,
    /// The sum of the last ten seconds, and the time zone.
    pub(super) recent: SampleRange,
    pub(super) audit: Refusals,
    /// The buckets of the open client, or why the gateway refuses to show them.
    pub(super) buckets: Option<(ClientId, Result<ClientBuckets, String>)>,
}

/// All data for `--once`.
#[derive(Debug, Clone, Default)]
pub(super) struct Summary {
    pub(super) data: Data,
    pub(super) most_refused: Top,
    pub(super) samples: Vec<Sample>,
}

/// A client by its kind, `key` or `ip`, and its name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ClientId {
    pub(super) kind: String,
    pub(super) id: String,
}

/// The user's choices that decide which data is read.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Selection {
    /// Whether clients are listed by refusals instead of by requests.
    pub(super) by_refused: bool,
    /// The client whose buckets are shown.
    pub(super) open: Option<ClientId>,
}

/// Sends the events until the receiver of `updates` is gone. Reopens a stream that has ended.
pub(super) async fn follow(client: &Client, updates: &mpsc::Sender<Update>) {
    loop {
        if let Err(error) = follow_stream(client, updates).await
            && updates.send(Update::NoEvents(error)).await.is_err()
        {
            return;
        }
        tokio::time::sleep(RECONNECT_INTERVAL).await;
        if updates.is_closed() {
            return;
        }
    }
}

/// Sends the events of one stream until it ends, is malformed, or the receiver is gone.
async fn follow_stream(
    client: &Client,
    updates: &mpsc::Sender<Update>,
) -> Result<(), GatewayError> {
    let mut stream = client.stream("/api/events").await?;
    let mut parser = Parser::default();
    while let Some(bytes) = stream.next().await? {
        let Ok(events) = parser.take(&bytes) else { return Ok(()) };
        for event in events {
            let update = match event {
                Event::History(samples) => Update::History(samples),
                Event::Sample(sample) => Update::Sample(sample),
            };
            if updates.send(update).await.is_err() {
                return Ok(());
            }
        }
    }
    Ok(())
}

/// Reads the data once per `interval`, and at once if the selection changes.
pub(super) async fn poll(
    client: &Client,
    interval: Duration,
    mut selection: watch::Receiver<Selection>,
    updates: &mpsc::Sender<Update>,
) {
    loop {
        let selected = selection.borrow_and_update().clone();
        let update = match data(client, &selected).await {
            Ok(data) => Update::Data(Box::new(data)),
            Err(error) => Update::Failed(error),
        };
        if updates.send(update).await.is_err() {
            return;
        }
        // Both outcomes lead to the next poll.
        let _ = tokio::time::timeout(interval, selection.changed()).await;
    }
}

async fn data(client: &Client, selection: &Selection) -> Result<Data, GatewayError> {
    let status = client.get("/api/status").await?;
    let by = if selection.by_refused { "refused" } else { "requests" };
    let buckets = match &selection.open {
        Some(open) => Some((open.clone(), buckets(client, open).await?)),
        None => None,
    };
    Ok(Data {
        status,
        top: client.get(&format!("/api/clients?by={by}&limit=100")).await?,
        upstreams: client.get("/api/upstreams").await?,
        reloads: client.get("/api/reloads").await?,
        recent: known(client.get("/api/samples?from=10s").await)?,
        audit: client.get("/api/audit?limit=100").await?,
        buckets,
    })
}

/// The response, or nothing if the gateway is older than the call.
fn known<T: Default>(response: Result<T, GatewayError>) -> Result<T, GatewayError> {
    match response {
        Err(GatewayError::Refused { status: 404, .. }) => Ok(T::default()),
        response => response,
    }
}

/// Reads the buckets of a client. The inner error is the reason of the gateway, if it refuses.
async fn buckets(
    client: &Client,
    of: &ClientId,
) -> Result<Result<ClientBuckets, String>, GatewayError> {
    let id = encode_component(&of.id);
    match client.get(&format!("/api/clients/{}/{id}/buckets", of.kind)).await {
        Ok(buckets) => Ok(Ok(buckets)),
        Err(GatewayError::Refused { why, .. }) => Ok(Err(why)),
        Err(error) => Err(error),
    }
}

/// Reads all data once.
pub(super) async fn once(client: &Client) -> Result<Summary, GatewayError> {
    let data = data(client, &Selection::default()).await?;
    let most_refused = client.get("/api/clients?by=refused&limit=100").await?;
    let mut samples = Vec::new();
    let collected = collect_samples(client, &mut samples);
    // Without another sample in time, those up to now are shown.
    tokio::time::timeout(NEXT_SAMPLE_TIMEOUT, collected).await.unwrap_or(Ok(()))?;
    Ok(Summary { data, most_refused, samples })
}

/// Collects the samples of the last minutes, and the next one: it has the requests of the second in
/// progress, which the numbers of clients and refusals have already.
async fn collect_samples(client: &Client, samples: &mut Vec<Sample>) -> Result<(), GatewayError> {
    let mut stream = client.stream("/api/events").await?;
    let mut parser = Parser::default();
    while let Some(bytes) = stream.next().await? {
        for event in parser.take(&bytes).unwrap_or_default() {
            match event {
                Event::History(history) => *samples = history,
                Event::Sample(sample) => {
                    samples.push(*sample);
                    return Ok(());
                }
            }
        }
    }
    Ok(())
}
