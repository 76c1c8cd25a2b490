//! What can go wrong between a gateway and its Redis: a TCP proxy that does it on demand.
//!
//! It reads the protocol just enough to tell requests and replies apart, so that whatever it does,
//! each reply still belongs to its request once it behaves again. (Unless the fault is that it does
//! not.) Connections that stand follow a change of mode at once.

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

/// What the proxy does with connections, old and new.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Mode {
    /// Forwards.
    Pass,
    /// Closes what it has and whatever it gets.
    Refuse,
    /// Takes connections, reads nothing, writes nothing. What is on the way arrives later.
    Hang,
    /// Connections that stand hang for good, as if a router had forgotten them; new ones pass.
    Freeze,
    /// Forwards half of the next reply, then closes.
    CutMidReply,
    /// Replies come so much later.
    Delay(Duration),
    /// Every second reply comes so much later.
    DelayAlternate(Duration),
    /// Replies are no longer of the protocol.
    Garble,
    /// Answers in Redis' place: this to everything but a `PING`.
    Canned(&'static str),
    /// Announces a reply of a gibibyte, and delivers.
    Flood,
}

/// A proxy on a port of its own; it ends when it is dropped.
pub(crate) struct FaultProxy {
    /// Where gateways connect.
    pub(crate) address: SocketAddr,
    mode: watch::Sender<Mode>,
    shared: Arc<Shared>,
    /// Its tasks end with it.
    _runtime: tokio::runtime::Runtime,
}

struct Shared {
    /// Redis' socket.
    target: PathBuf,
    running: Stopwatch,
    arrivals: Mutex<Vec<Duration>>,
    client_calls: AtomicUsize,
}

impl FaultProxy {
    /// A proxy in front of `redis`, which need not be there yet.
    pub(crate) fn start(redis: &Redis) -> Self {
        let mut builder = tokio::runtime::Builder::new_multi_thread();
        let runtime = builder.worker_threads(1).enable_all().build().unwrap();
        let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0")).unwrap();
        let address = listener.local_addr().unwrap();
        let (mode, follower) = watch::channel(Mode::Pass);
        let shared = Arc::new(Shared {
            target: redis.socket(),
            running: Stopwatch::start(),
            arrivals: Mutex::default(),
            client_calls: AtomicUsize::default(),
        });
        runtime.spawn(accept(listener, follower, Arc::clone(&shared)));
        Self { address, mode, shared, _runtime: runtime }
    }

    /// Does this from now on.
    pub(crate) fn set(&self, mode: Mode) {
        self.mode.send_replace(mode);
    }

    /// How long it has been running.
    pub(crate) fn elapsed(&self) -> Duration {
        self.shared.running.elapsed()
    }

    /// When each connection came, since the start.
    pub(crate) fn arrivals(&self) -> Vec<Duration> {
        self.shared.arrivals.lock().clone()
    }

    /// How many calls with checks of clients have come: those that name a bucket of the rule
    /// `per-key`. A gateway that only tries whether Redis is back names another key.
    pub(crate) fn client_calls(&self) -> usize {
        self.shared.client_calls.load(Ordering::SeqCst)
    }

    /// The table of gateway.toml that leads through it, with so much patience.
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
