//! A TCP proxy between a gateway and Redis that injects faults on demand.
//!
//! It parses the protocol far enough to separate requests and replies, so that after a fault each
//! reply still belongs to its request (unless the fault breaks that on purpose). A change of mode
//! applies to open connections at once.

mod relay;
mod resp;
#[cfg(test)]
mod tests;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::net::TcpListener;
use tokio::sync::watch;

use self::relay::Relay;
use super::redis::Redis;
use super::wait::Stopwatch;

/// Behaviour of the proxy on open and new connections.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Mode {
    /// Forwards everything.
    Pass,
    /// Closes open and new connections.
    Refuse,
    /// Accepts connections, but reads and writes nothing. Pending data is forwarded afterwards.
    Hang,
    /// Open connections hang forever, as if a router had dropped their state; new ones work.
    Freeze,
    /// Forwards half of the next reply, then closes.
    CutMidReply,
    /// Delays replies.
    Delay(Duration),
    /// Delays every second reply.
    DelayAlternate(Duration),
    /// Replaces replies by invalid bytes.
    Garble,
    /// Sends this reply itself, to everything except `PING`.
    Canned(&'static str),
    /// Sends a reply of 1 GiB.
    Flood,
}

/// A running proxy on its own port; stops when dropped.
pub(crate) struct FaultProxy {
    /// Address for gateways.
    pub(crate) address: SocketAddr,
    mode: watch::Sender<Mode>,
    shared: Arc<Shared>,
    /// Runs the tasks of the proxy.
    _runtime: tokio::runtime::Runtime,
}

/// Where Redis listens.
enum Target {
    Socket(PathBuf),
    Address(SocketAddr),
}

struct Shared {
    target: Target,
    running: Stopwatch,
    arrivals: Mutex<Vec<Duration>>,
    client_calls: AtomicUsize,
}

impl FaultProxy {
    /// Starts a proxy in front of `redis`, which need not be running yet.
    pub(crate) fn start(redis: &Redis) -> Self {
        Self::before(Target::Socket(redis.socket()))
    }

    /// Starts a proxy in front of a server at a TCP address.
    pub(crate) fn to(address: SocketAddr) -> Self {
        Self::before(Target::Address(address))
    }

    fn before(target: Target) -> Self {
        let mut builder = tokio::runtime::Builder::new_multi_thread();
        let runtime = builder.worker_threads(1).enable_all().build().unwrap();
        let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0")).unwrap();
        let address = listener.local_addr().unwrap();
        let (mode, follower) = watch::channel(Mode::Pass);
        let shared = Arc::new(Shared {
            target,
            running: Stopwatch::start(),
            arrivals: Mutex::default(),
            client_calls: AtomicUsize::default(),
        });
        runtime.spawn(accept(listener, follower, Arc::clone(&shared)));
        Self { address, mode, shared, _runtime: runtime }
    }

    /// Changes the mode.
    pub(crate) fn set(&self, mode: Mode) {
        self.mode.send_replace(mode);
    }

    /// Time since the start.
    pub(crate) fn elapsed(&self) -> Duration {
        self.shared.running.elapsed()
    }

    /// Time of each connection since the start.
    pub(crate) fn arrivals(&self) -> Vec<Duration> {
        self.shared.arrivals.lock().clone()
    }

    /// Number of calls with checks of clients: those that contain a bucket of the rule `per-key`.
    /// Probes of the breaker use another key.
    pub(crate) fn client_calls(&self) -> usize {
        self.shared.client_calls.load(Ordering::SeqCst)
    }

    /// The `[redis]` table for a connection through the proxy.
    pub(crate) fn table(&self, timeout: &str) -> String {
        format!("\n[redis]\nurl = \"redis://{}\"\ntimeout = \"{timeout}\"\n", self.address)
    }
}

async fn accept(listener: TcpListener, mode: watch::Receiver<Mode>, shared: Arc<Shared>) {
    while let Ok((client, _)) = listener.accept().await {
        shared.arrivals.lock().push(shared.running.elapsed());
        let _ = client.set_nodelay(true);
        tokio::spawn(Relay::new(client, mode.clone(), Arc::clone(&shared)).run());
    }
}
