//! Many idle connections, of a process of their own: its descriptors are not those of the test.

use std::net::SocketAddr;
use std::process::Command;
use std::time::Duration;

use super::child::Child;
use super::wait::within;

/// Longest time in which the connections are opened.
const OPENING: Duration = Duration::from_secs(120);

/// What a connection has done before it is idle.
#[derive(Clone, Copy, Debug)]
pub(crate) enum IdleKind {
    /// It has sent nothing.
    Silent,
    /// One request over HTTP/1.1.
    Http1,
    /// The same over TLS.
    Http1Tls,
    /// One request over HTTP/2, by prior knowledge.
    Http2,
    /// One request over HTTP/2 and TLS.
    Http2Tls,
}

/// Idle connections, open until they are dropped.
pub(crate) struct IdleClients {
    child: Child,
}

impl IdleClients {
    /// Begins to open connections to a port of 127.0.0.1.
    pub(crate) fn begin(kind: IdleKind, address: SocketAddr, count: usize) -> Self {
        let mut command = Command::new("python3");
        command
            .args(["-m", "peers.idle_client", kind.name()])
            .args([address.port().to_string(), count.to_string()])
            .env("PYTHONPATH", concat!(env!("CARGO_MANIFEST_DIR"), "/benches"))
            .env("PYTHONDONTWRITEBYTECODE", "1");
        Self { child: Child::start(&mut command, "apt-get install python3") }
    }

    /// Waits until all connections are open, and each has its response.
    pub(crate) fn opened(mut self) -> Self {
        let state = within(OPENING, || {
            let is_open = self.child.log().contains("open\n");
            (is_open || self.child.has_exited()).then_some(is_open)
        });
        assert_eq!(state, Some(true), "connections are not open:\n{}", self.child.log());
        self
    }

    /// Opens connections.
    pub(crate) fn open(kind: IdleKind, address: SocketAddr, count: usize) -> Self {
        Self::begin(kind, address, count).opened()
    }
}

impl IdleKind {
    fn name(self) -> &'static str {
        match self {
            Self::Silent => "silent",
            Self::Http1 => "h1",
            Self::Http1Tls => "h1-tls",
            Self::Http2 => "h2",
            Self::Http2Tls => "h2-tls",
        }
    }
}
