//! Servers that choose a port and print `listening on PORT`.

use std::net::SocketAddr;
use std::process::Command;

use nix::sys::signal::Signal;

use super::{PYTHON_INSTALLER, python, script};
use crate::support::authority::Issued;
use crate::support::child::Child;
use crate::support::http::{Connection, Request};
use crate::support::wait::eventually;

/// A running server.
pub(crate) struct PeerServer {
    pub(crate) address: SocketAddr,
    child: Child,
}

impl PeerServer {
    /// Python's gRPC server with the methods of `grpc_server.py`; in clear (h2c) without a
    /// certificate.
    pub(crate) fn grpc(tls: Option<&Issued>) -> Self {
        let mut command = python();
        command.arg(script("grpc_server.py"));
        Self::start(command, tls, PYTHON_INSTALLER)
    }

    /// A WebSocket server that echoes messages, of the Python package `websockets`.
    pub(crate) fn websocket(tls: Option<&Issued>) -> Self {
        let mut command = python();
        command.arg(script("websocket_server.py"));
        Self::start(command, tls, PYTHON_INSTALLER)
    }

    /// Node's HTTP/2 server; in clear (h2c) without a certificate.
    pub(crate) fn node(tls: Option<&Issued>) -> Self {
        let mut command = Command::new("node");
        command.arg(script("http2_server.mjs"));
        Self::start(command, tls, "apt-get install nodejs")
    }

    /// A server of HTTP/1.1 that prints `seen` and `fault` lines: `h11` or `gunicorn`, Python's.
    pub(crate) fn python_http1(kind: &str) -> Self {
        let mut command = python();
        command.arg(script("http1_server.py")).arg(kind);
        Self::start(command, None, PYTHON_INSTALLER)
    }

    /// A collector of traces by OTLP that prints `span` and `fault` lines.
    pub(crate) fn otlp_collector() -> Self {
        let mut command = python();
        command.arg(script("otlp_collector.py"));
        Self::start(command, None, PYTHON_INSTALLER)
    }

    /// An identity provider whose tokens PyJWT signs: see `token_provider.py`.
    pub(crate) fn token_provider() -> Self {
        let mut command = python();
        command.arg(script("token_provider.py"));
        Self::start(command, None, PYTHON_INSTALLER)
    }

    /// The body of the response to a POST.
    pub(crate) fn post(&self, path: &str, body: impl AsRef<[u8]>) -> String {
        let request = Request::new("POST", path).body(body);
        let response = Connection::open(self.address).send(&request);
        assert_eq!(response.status, 200, "{path}: {}", response.text());
        response.text()
    }

    /// The same of Node.
    pub(crate) fn node_http1() -> Self {
        let mut command = Command::new("node");
        command.arg(script("http1_server.mjs"));
        Self::start(command, None, "apt-get install nodejs")
    }

    /// Node's server with faults, which [`PeerServer::order`] changes; `None`: on a free port.
    pub(crate) fn faulty(port: Option<u16>) -> Self {
        let mut command = Command::new("node");
        command.arg(script("faulty_server.mjs"));
        command.args(port.map(|port| port.to_string()));
        Self::start(command, None, "apt-get install nodejs")
    }

    /// Changes the answers of a faulty server: `200`, `500`, `slow` or `refuse`.
    pub(crate) fn order(&self, order: &str) {
        let log = self.log();
        let port = log.split_once("control on ").and_then(|(_, rest)| rest.lines().next()).unwrap();
        let control = SocketAddr::from(([127, 0, 0, 1], port.parse().unwrap()));
        let request = Request::get(&format!("/{order}")).header("Host", "control");
        assert_eq!(Connection::open(control).send(&request).status, 200);
    }

    fn start(mut command: Command, tls: Option<&Issued>, install: &str) -> Self {
        if let Some(issued) = tls {
            command.arg(&issued.certificate).arg(&issued.key);
        }
        let mut child = Child::start(&mut command, install);
        let port = child.wait_for(|log| {
            log.split_once("listening on ")?.1.split_once('\n')?.0.parse::<u16>().ok()
        });
        let Some(port) = port else { panic!("{command:?} did not start:\n{}", child.log()) };
        Self { address: SocketAddr::from(([127, 0, 0, 1], port)), child }
    }

    /// Waits until this many lines begin with `words`: they arrive just after the client has its
    /// response.
    #[track_caller]
    pub(crate) fn wait_for_count(&self, words: &str, expected: usize) {
        let is_there = || (self.count(words) == expected).then_some(());
        eventually(&format!("{expected} lines {words}"), is_there);
    }

    /// Number of lines so far that begin with `words`.
    pub(crate) fn count(&self, words: &str) -> usize {
        self.child.log().lines().filter(|line| line.starts_with(words)).count()
    }

    /// Sends a signal to the server.
    pub(crate) fn signal(&self, signal: Signal) {
        self.child.signal(signal);
    }

    /// Output so far.
    pub(crate) fn log(&self) -> String {
        self.child.log()
    }
}
