//! Steady load: clients that keep their connections and send one request after the other, while
//! the test does something to the servers.

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
use super::swarm::Tally;
use super::wait::{PATIENCE, Stopwatch};

/// What a machine does to one request it does to others a little earlier or later.
const SHORTLY: Duration = Duration::from_millis(20);

/// Clients that all send the same.
pub(crate) struct Lane {
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
    lanes: Vec<Vec<JoinHandle<Vec<Sample>>>>,
}

/// What became of the requests of a lane.
pub(crate) struct Report(Vec<Sample>);

#[derive(Clone, Copy)]
struct Sample {
    /// When it was sent, from the start of the load.
    sent: Duration,
    took: Duration,
    /// None: the connection broke before the whole answer was there.
    status: Option<u16>,
}

impl Lane {
    /// So many clients of `gateway`, each of which sends one request in each `period`, in turn, so
    /// that requests come evenly whatever became of those before. The period keeps the machine from
    /// being busy with the load, so that times tell of the gateway.
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
    pub(crate) fn start(lanes: Vec<Lane>) -> Self {
        let mut builder = tokio::runtime::Builder::new_multi_thread();
        let runtime = builder.worker_threads(1).enable_all().build().unwrap();
        let stopped = Arc::new(AtomicBool::default());
        let watch = Stopwatch::start();
        let spawn = |lane: Lane| {
            let lane = Arc::new(lane);
            let clients = (0..lane.connections).map(|number| {
                let first = lane.period * number / lane.connections;
                let client = client(Arc::clone(&lane), first, watch, Arc::clone(&stopped));
                runtime.spawn(client)
            });
            clients.collect()
        };
        let lanes = lanes.into_iter().map(spawn).collect();
        Self { runtime, stopped, watch, lanes }
    }

    /// How long it has been running.
    pub(crate) fn elapsed(&self) -> Duration {
        self.watch.elapsed()
    }

    /// A watch that was started with it.
    pub(crate) fn watch(&self) -> Stopwatch {
        self.watch
    }

    /// Ends it once every request has its answer. A report for each lane.
    pub(crate) fn stop(self) -> Vec<Report> {
        self.stopped.store(true, Ordering::SeqCst);
        let join = |clients: Vec<JoinHandle<Vec<Sample>>>| {
            let samples = clients.into_iter().flat_map(|it| self.runtime.block_on(it).unwrap());
            Report(samples.collect())
        };
        self.lanes.into_iter().map(join).collect()
    }
}

impl Report {
    /// Those sent in this span.
    pub(crate) fn during(&self, span: &Range<Duration>) -> Self {
        Self(self.0.iter().filter(|sample| span.contains(&sample.sent)).copied().collect())
    }

    /// Those that nothing held up but what they asked for: while they were under way, and shortly
    /// before and after, none of `others` took longer than `usual`.
    pub(crate) fn undisturbed_by(&self, others: &Self, usual: Duration) -> Self {
        let mut slow: Vec<Range<Duration>> = others
            .0
            .iter()
            .filter(|other| other.took > usual)
            .map(|other| other.sent.saturating_sub(SHORTLY)..other.sent + other.took + SHORTLY)
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

    /// For how much of this span a request was under way that took longer than `usual`.
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

    /// How many answers had which status.
    pub(crate) fn tally(&self) -> Tally {
        self.0.iter().filter_map(|sample| sample.status).fold(Tally::new(), |mut tally, status| {
            *tally.entry(status).or_default() += 1;
            tally
        })
    }

    /// How many have got no answer, or no whole one.
    pub(crate) fn broken(&self) -> usize {
        self.0.iter().filter(|sample| sample.status.is_none()).count()
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    /// The time within which so many of a thousand had their answers.
    pub(crate) fn within(&self, permille: usize) -> Duration {
        let mut times: Vec<Duration> = self.0.iter().map(|sample| sample.took).collect();
        times.sort_unstable();
        let at = (times.len() * permille).div_ceil(1_000).saturating_sub(1);
        *times.get(at).expect("there was load in this span")
    }
}

/// One client, until the end of the load.
async fn client(
    lane: Arc<Lane>,
    first: Duration,
    watch: Stopwatch,
    stopped: Arc<AtomicBool>,
) -> Vec<Sample> {
    let mut samples = Vec::new();
    let mut connection = None;
    let mut turns = tokio::time::interval_at(Instant::now() + first, lane.period);
    turns.set_missed_tick_behavior(MissedTickBehavior::Skip);
    loop {
        turns.tick().await;
        if stopped.load(Ordering::SeqCst) {
            return samples;
        }
        if connection.is_none() {
            connection = TcpStream::connect(lane.address).await.ok();
        }
        let sent = watch.elapsed();
        let status = match &mut connection {
            Some(stream) => {
                let exchange = exchange(stream, &lane.request);
                tokio::time::timeout(PATIENCE, exchange).await.ok().flatten()
            }
            None => None,
        };
        samples.push(Sample { sent, took: watch.elapsed().saturating_sub(sent), status });
        if status.is_none() {
            connection = None;
        }
    }
}

/// One request and its answer. None where the connection ends before that.
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
