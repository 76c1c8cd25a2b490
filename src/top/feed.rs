//! What is asked, and when: the gateway's events as they come, everything else once in an interval.

use std::time::Duration;

use tokio::sync::{mpsc, watch};

use super::api::{Buckets, Reloads, Status, Tick, Top, Upstreams};
use super::client::{Client, GatewayError};
use super::stream::{Event, Parser};

/// How long a stream that has ended is not opened again.
const AGAIN: Duration = Duration::from_secs(1);

/// How long the first tick of a gateway that has just started is waited for.
const FIRST_TICK: Duration = Duration::from_secs(3);

/// What the screen needs to be told.
#[derive(Debug)]
pub(super) enum News {
    /// The last minutes, the oldest first.
    History(Vec<Tick>),
    /// One more second.
    Tick(Box<Tick>),
    /// Everything that was asked for.
    Answers(Box<Answers>),
    /// Why there are no answers.
    Trouble(GatewayError),
    /// Why there are no events, while there are answers.
    NoEvents(GatewayError),
}

/// What the gateway says when it is asked.
#[derive(Debug, Clone, Default)]
pub(super) struct Answers {
    pub(super) status: Status,
    pub(super) top: Top,
    pub(super) upstreams: Upstreams,
    pub(super) reloads: Reloads,
    /// Those of the client that is open, or why there are none.
    pub(super) buckets: Option<(ClientId, Result<Buckets, String>)>,
}

/// Everything that is told once.
#[derive(Debug, Clone, Default)]
pub(super) struct Seen {
    pub(super) answers: Answers,
    pub(super) most_refused: Top,
    pub(super) ticks: Vec<Tick>,
}

/// A client by its kind, `key` or `ip`, and its name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ClientId {
    pub(super) kind: String,
    pub(super) id: String,
}

/// What the screen shows, as far as it decides what is asked.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Wanted {
    /// Whether clients are listed by refusals, else by requests.
    pub(super) by_refused: bool,
    /// The client that is open.
    pub(super) open: Option<ClientId>,
}

/// Tells what each second brings, for as long as somebody listens.
pub(super) async fn follow(client: &Client, news: &mpsc::Sender<News>) {
    loop {
        let ended = told(client, news).await;
        if let Some(trouble) = ended
            && news.send(News::NoEvents(trouble)).await.is_err()
        {
            return;
        }
        tokio::time::sleep(AGAIN).await;
        if news.is_closed() {
            return;
        }
    }
}

/// One stream from its beginning to its end, and why it ended.
async fn told(client: &Client, news: &mpsc::Sender<News>) -> Option<GatewayError> {
    let mut stream = match client.stream("/api/events").await {
        Ok(stream) => stream,
        Err(trouble) => return Some(trouble),
    };
    let mut parser = Parser::default();
    loop {
        let bytes = match stream.next().await {
            Ok(bytes) => bytes?,
            Err(trouble) => return Some(trouble),
        };
        for event in parser.take(&bytes).ok()? {
            let one = match event {
                Event::History(ticks) => News::History(ticks),
                Event::Tick(tick) => News::Tick(tick),
            };
            news.send(one).await.ok()?;
        }
    }
}

/// Asks for the rest once in an `interval`, and at once where something else is wanted.
pub(super) async fn poll(
    client: &Client,
    interval: Duration,
    mut wanted: watch::Receiver<Wanted>,
    news: &mpsc::Sender<News>,
) {
    loop {
        let now = wanted.borrow_and_update().clone();
        let one = match answers(client, &now).await {
            Ok(answers) => News::Answers(Box::new(answers)),
            Err(trouble) => News::Trouble(trouble),
        };
        if news.send(one).await.is_err() {
            return;
        }
        // Either is a reason to ask again.
        let _ = tokio::time::timeout(interval, wanted.changed()).await;
    }
}

async fn answers(client: &Client, wanted: &Wanted) -> Result<Answers, GatewayError> {
    let status = client.get("/api/status").await?;
    let by = if wanted.by_refused { "refused" } else { "requests" };
    let buckets = match &wanted.open {
        Some(open) => Some((open.clone(), buckets(client, open).await?)),
        None => None,
    };
    Ok(Answers {
        status,
        top: client.get(&format!("/api/clients?by={by}&limit=100")).await?,
        upstreams: client.get("/api/upstreams").await?,
        reloads: client.get("/api/reloads").await?,
        buckets,
    })
}

/// What a client has left; or why that is not known, where the gateway says so of this client.
async fn buckets(client: &Client, of: &ClientId) -> Result<Result<Buckets, String>, GatewayError> {
    match client.get(&format!("/api/clients/{}/{}/buckets", of.kind, of.id)).await {
        Ok(buckets) => Ok(Ok(buckets)),
        Err(GatewayError::Refused { why, .. }) => Ok(Err(why)),
        Err(trouble) => Err(trouble),
    }
}

/// Everything, once.
pub(super) async fn once(client: &Client) -> Result<Seen, GatewayError> {
    let answers = answers(client, &Wanted::default()).await?;
    let most_refused = client.get("/api/clients?by=refused&limit=100").await?;
    let ticks = tokio::time::timeout(FIRST_TICK, some_ticks(client)).await;
    let ticks = ticks.unwrap_or_else(|_| Ok(Vec::new()))?;
    Ok(Seen { answers, most_refused, ticks })
}

/// The last minutes, or the first second where there are none.
async fn some_ticks(client: &Client) -> Result<Vec<Tick>, GatewayError> {
    let mut stream = client.stream("/api/events").await?;
    let mut parser = Parser::default();
    while let Some(bytes) = stream.next().await? {
        for event in parser.take(&bytes).unwrap_or_default() {
            match event {
                Event::History(ticks) if ticks.is_empty() => {}
                Event::History(ticks) => return Ok(ticks),
                Event::Tick(tick) => return Ok(vec![*tick]),
            }
        }
    }
    Ok(Vec::new())
}
