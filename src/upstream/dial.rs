//! Opens connections to a server: TCP, then the PROXY header, then TLS.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use pingora::prelude::{Error, ErrorType, Result};
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;

use super::connection::Opened;
use super::gate::Permit;
use super::idle::Idle;
use super::pool::Pool;
pub(crate) use super::tls::Offer;
use super::transport::Transport;

/// A server, as its connections are kept: one that was verified for a name is never used for
/// another name with the same address, and none is used after its authorities or its client
/// certificate were replaced.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Endpoint {
    pub(crate) address: SocketAddr,
    /// The host for which the server must have a certificate; `None`: it is the same for all
    /// servers of the upstream, or connections are in clear.
    pub(crate) host: Option<Arc<str>>,
    /// Generation of the files of TLS; 0 in clear.
    pub(crate) generation: u64,
}

/// A server, and how connections to it begin.
#[derive(Clone, Debug)]
pub(crate) struct Dial {
    pub(crate) server: Endpoint,
    /// The servers of its upstream.
    pub(crate) pool: Arc<Pool>,
    /// The PROXY header with the address of the client, if the upstream expects one. Such a
    /// connection is used by one request only: the header applies to all of them.
    pub(crate) proxy_header: Option<Arc<[u8]>>,
}

impl Dial {
    /// Opens a connection. Takes as long as the server does.
    ///
    /// # Errors
    /// If the server cannot be connected to, or the TLS handshake fails. The cause is an
    /// [`io::Error`] whose text can be logged.
    pub(crate) async fn open(&self, offer: Offer) -> Result<Transport> {
        self.open_with(self.pool.idle().gate().open(), offer).await
    }

    /// As [`open`](Self::open), with a permit for it.
    pub(super) async fn open_with(&self, permit: Permit, offer: Offer) -> Result<Transport> {
        let failed = |error: io::Error| {
            Error::because(ErrorType::ConnectError, "connecting to a server", error).into_up()
        };
        let mut stream = TcpStream::connect(self.server.address).await.map_err(failed)?;
        stream.set_nodelay(true).map_err(failed)?;
        if let Some(header) = &self.proxy_header {
            stream.write_all(header).await.map_err(failed)?;
        }
        let Some(tls) = self.pool.tls() else { return Ok(Transport::clear(stream, permit)) };
        let stream = tls.connect(stream, self.server.host.as_deref(), offer).await;
        let stream = stream.map_err(|error| {
            Error::because(ErrorType::TLSHandshakeFailure, "connecting to a server", error)
                .into_up()
        });
        stream.map(|stream| Transport::tls(stream, permit))
    }

    /// Takes an idle connection that is open and silent at `now` (microseconds).
    pub(super) fn take_idle(&self, now: u64) -> Option<Opened> {
        if self.proxy_header.is_some() {
            return None;
        }
        let (transport, run) = self.pool.idle().take(&self.server, now)?;
        Some(Opened { transport, run, is_reused: true })
    }

    /// Keeps a connection for up to `timeout` from `now` (microseconds).
    pub(super) fn keep(&self, idle: Idle, timeout: Duration, now: u64) {
        if self.proxy_header.is_none() {
            self.pool.idle().put(&self.server, idle, timeout, now);
        }
    }
}
