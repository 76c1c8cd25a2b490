//! Steady load: clients with kept-alive connections that send requests at a fixed rate.

use std::net::SocketAddr;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::BytesMut;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::runtime::Runtime;
use tokio::task::JoinHandle;
use tokio::time::{Instant, MissedTickBehavior};

use super::gateway::Gateway;
use super::http::Request;
use super::send::StatusCounts;
use super::wait::{Stopwatch, TIMEOUT};

/// A delay of the machine affects requests that are this close in time.
const DISTURBANCE_MARGIN: Duration = Duration::from_millis(20);

/// Clients that send the same request.
pub(crate) struct ClientGroup {
    address: SocketAddr,
    request: Vec<u8>,
    connections: u32,
    period: Duration,
}

/// Load that runs until it is stopped.
pub(crate) struct Load {
    runtime: Runtime,
    stopped: Arc<AtomicBool>,
    watch: Stopwatch,
    groups: Vec<Vec<JoinHandle<Vec<Sample>>>>,
}

/// The requests of one client group.
pub(crate) struct Report(Vec<Sample>);

#[derive(Clone, Copy)]
struct Sample {
    /// When the request was sent, since the start of the load.
    sent: Duration,
    took: Duration,
    /// `None` if the connection ended before the complete response.
    status: Option<u16>,
}

impl ClientGroup {
    /// Clients of `gateway` that send one request per `period` each, evenly spread and independent
    /// of earlier responses. The period keeps the machine idle part of the time, so that measured
    /// times depend on the gateway.
    pub(crate) fn new(
        gateway: &Gateway,
        request: &Request,
        connections: u32,
        period: Duration,
    ) -> Self {
        Self { address: gateway.address, request: request.bytes(), connections, period }
    }
}

impl Load {
    pub(crate) fn start(groups: Vec<ClientGroup>) -> Self {
        let mut builder = tokio::runtime::Builder::new_multi_thread();
        let runtime = builder.worker_threads(1).enable_all().build().unwrap();
        let stopped = Arc::new(AtomicBool::default());
        let watch = Stopwatch::start();
        let spawn = |group: ClientGroup| {
            let group = Arc::new(group);
            let clients = (0..group.connections).map(|number| {
                let first = group.period * number / group.connections;
                let client = client(Arc::clone(&group), first, watch, Arc::clone(&stopped));
                runtime.spawn(client)
            });
            clients.collect()
        };
        let groups = groups.into_iter().map(spawn).collect();
        Self { runtime, stopped, watch, groups }
    }

    /// Time since the start.
    pub(crate) fn elapsed(&self) -> Duration {
        self.watch.elapsed()
    }

    /// A stopwatch started together with the load.
    pub(crate) fn watch(&self) -> Stopwatch {
        self.watch
    }

    /// Ends it once every request has its answer. A report for each group.
    pub(crate) fn stop(self) -> Vec<Report> {
        self.stopped.store(true, Ordering::SeqCst);
        let join = |clients: Vec<JoinHandle<Vec<Sample>>>| {
            let samples = clients.into_iter().flat_map(|it| self.runtime.block_on(it).unwrap());
            Report(samples.collect())
        };
        self.groups.into_iter().map(join).collect()
    }
}

impl Report {
    /// The requests sent in this span.
    pub(crate) fn during(&self, span: &Range<Duration>) -> Self {
        Self(self.0.iter().filter(|sample| span.contains(&sample.sent)).copied().collect())
    }

    /// The requests that no delay of the machine affected: at their time, and shortly before and
    /// after, none of `others` took longer than `usual`.
    pub(crate) fn undisturbed_by(&self, others: &Self, usual: Duration) -> Self {
        let mut slow: Vec<Range<Duration>> = others
            .0
            .iter()
            .filter(|other| other.took > usual)
            .map(|other| {
                other.sent.saturating_sub(DISTURBANCE_MARGIN)
                    ..other.sent + other.took + DISTURBANCE_MARGIN
            })
            .collect();
        slow.sort_unstable_by_key(|span| span.start);
        let mut merged: Vec<Range<Duration>> = Vec::new();
        for span in slow {
            match merged.last_mut() {
                Some(last) if span.start <= last.end => last.end = last.end.max(span.end),
                _ => merged.push(span),
            }
        }
        let is_quiet = |sample: &Sample| {
            let next = merged.partition_point(|span| span.end < sample.sent);
            merged.get(next).is_none_or(|span| span.start > sample.sent + sample.took)
        };
        Self(self.0.iter().filter(|sample| is_quiet(sample)).copied().collect())
    }

    /// How much of this span had a request in flight that took longer than `usual`.
    pub(crate) fn held_up(&self, span: &Range<Duration>, usual: Duration) -> Duration {
        let mut slow: Vec<&Sample> = self.0.iter().filter(|sample| sample.took > usual).collect();
        slow.sort_unstable_by_key(|sample| sample.sent);
        let (mut sum, mut counted) = (Duration::ZERO, span.start);
        for sample in slow {
            let from = sample.sent.max(counted);
            let to = (sample.sent + sample.took).min(span.end);
            sum += to.saturating_sub(from);
            counted = counted.max(to);
        }
        sum
    }

    /// Number of responses by status.
    pub(crate) fn counts(&self) -> StatusCounts {
        self.0.iter().filter_map(|sample| sample.status).fold(
            StatusCounts::new(),
            |mut counts, status| {
                *counts.entry(status).or_default() += 1;
                counts
            },
        )
    }

    /// Number of requests without a complete response.
    pub(crate) fn broken(&self) -> usize {
        self.0.iter().filter(|sample| sample.status.is_none()).count()
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    /// The quantile of the response time, in thousandths.
    pub(crate) fn quantile(&self, permille: usize) -> Duration {
        let mut times: Vec<Duration> = self.0.iter().map(|sample| sample.took).collect();
        times.sort_unstable();
        let at = (times.len() * permille).div_ceil(1_000).saturating_sub(1);
        *times.get(at).expect("there was load in this span")
    }
}

/// Runs one client until the load stops.
async fn client(
    group: Arc<ClientGroup>,
    first: Duration,
    watch: Stopwatch,
    stopped: Arc<AtomicBool>,
) -> Vec<Sample> {
    let mut samples = Vec::new();
    let mut connection = None;
    let mut turns = tokio::time::interval_at(Instant::now() + first, group.period);
    turns.set_missed_tick_behavior(MissedTickBehavior::Skip);
    loop {
        turns.tick().await;
        if stopped.load(Ordering::SeqCst) {
            return samples;
        }
        if connection.is_none() {
            connection = TcpStream::connect(group.address).await.ok();
        }
        let sent = watch.elapsed();
        let status = match &mut connection {
            Some(stream) => {
                let exchange = exchange(stream, &group.request);
                tokio::time::timeout(TIMEOUT, exchange).await.ok().flatten()
            }
            None => None,
        };
        samples.push(Sample { sent, took: watch.elapsed().saturating_sub(sent), status });
        if status.is_none() {
            connection = None;
        }
    }
}

/// Sends one request and reads the response. `None` if the connection ends before.
async fn exchange(stream: &mut TcpStream, request: &[u8]) -> Option<u16> {
    stream.write_all(request).await.ok()?;
    let mut answer = BytesMut::with_capacity(4 * 1024);
    loop {
        if stream.read_buf(&mut answer).await.ok()? == 0 {
            return None;
        }
        let Some(head) = answer.windows(4).position(|window| window == b"\r\n\r\n") else {
            continue;
        };
        let text = String::from_utf8_lossy(&answer[..head]).to_ascii_lowercase();
        let length = text.lines().find_map(|line| line.strip_prefix("content-length:"));
        let length: usize = length.map_or(0, |length| length.trim().parse().unwrap());
        if answer.len() >= head + 4 + length {
            return text.split(' ').nth(1)?.parse().ok();
        }
    }
}
