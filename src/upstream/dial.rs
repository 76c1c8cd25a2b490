//! Opens connections to a server: TCP, then the PROXY header, then TLS.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use pingora::prelude::{Error, ErrorType, Result};
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;

use super::connection::Opened;
use super::gate::Permit;
use super::happy_eyeballs::{self, Addresses, Race};
use super::idle::Idle;
use super::pool::Pool;
pub(crate) use super::tls::Offer;
use super::transport::Transport;
use crate::base::clock;

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
    /// Whether the server's addresses of the other family are tried, too, if this one does not
    /// connect soon.
    pub(crate) tries_families: bool,
}

/// A connection to another address than the one that was selected, which connected later or failed.
#[derive(Debug)]
pub(crate) struct Raced {
    /// The server with the address that connected first.
    pub(crate) server: Endpoint,
    /// The addresses whose attempts had begun before.
    pub(crate) lost: Addresses,
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
        let addresses = self.addresses();
        let (mut stream, raced) = if addresses.len() > 1 {
            Box::pin(self.race(addresses)).await.map_err(failed)?
        } else {
            (TcpStream::connect(self.server.address).await.map_err(failed)?, None)
        };
        stream.set_nodelay(true).map_err(failed)?;
        if let Some(header) = &self.proxy_header {
            stream.write_all(header).await.map_err(failed)?;
        }
        let Some(tls) = self.pool.tls() else {
            return Ok(Transport::clear(stream, permit).with(raced));
        };
        let stream = tls.connect(stream, self.server.host.as_deref(), offer).await;
        let stream = stream.map_err(|error| {
            Error::because(ErrorType::TLSHandshakeFailure, "connecting to a server", error)
                .into_up()
        });
        stream.map(|stream| Transport::tls(stream, permit).with(raced))
    }

    /// The addresses that are tried for a connection, in their order.
    fn addresses(&self) -> Addresses {
        let server = self.server.address;
        if self.tries_families && self.pool.has_names {
            happy_eyeballs::order(server, &self.pool.others(server, clock::now()))
        } else {
            Addresses::from_slice(&[server])
        }
    }

    /// Connects to the first address that accepts a connection. The attempts at the others end.
    ///
    /// # Errors
    /// That of the first attempt that failed, if all did.
    async fn race(&self, addresses: Addresses) -> io::Result<(TcpStream, Option<Box<Raced>>)> {
        let mut race = Race::new(addresses, clock::now());
        let mut attempts = FuturesUnordered::new();
        let mut first_error = None;
        loop {
            let now = clock::now();
            while let Some(address) = race.begin(now) {
                attempts.push(async move { (address, TcpStream::connect(address).await) });
            }
            let pause = race.next_at().map(|at| Duration::from_micros(at.saturating_sub(now)));
            tokio::select! {
                Some((address, result)) = attempts.next() => match result {
                    Ok(stream) => return Ok((stream, self.raced(&race, address))),
                    Err(error) => {
                        let has_ended = race.failed(clock::now());
                        let first_error = first_error.get_or_insert(error);
                        if has_ended {
                            return Err(io::Error::new(first_error.kind(), first_error.to_string()));
                        }
                    }
                },
                () = tokio::time::sleep(pause.unwrap_or_default()), if pause.is_some() => {}
            }
        }
    }

    fn raced(&self, race: &Race, winner: SocketAddr) -> Option<Box<Raced>> {
        (winner != self.server.address).then(|| {
            let lost = Addresses::from_slice(race.lost_to(winner));
            Box::new(Raced { server: self.pool.endpoint(winner), lost })
        })
    }

    /// Takes an idle connection that is open and silent at `now` (microseconds).
    pub(super) fn take_idle(&self, now: u64) -> Option<Opened> {
        if self.proxy_header.is_some() {
            return None;
        }
        let (transport, run) = self.pool.idle().take(&self.server, now)?;
        Some(Opened { transport, run, is_reused: true })
    }

    /// Keeps a connection for up to `timeout` from `now` (microseconds). `server`: that of another
    /// address, which it is to.
    pub(super) fn keep(&self, server: Option<&Endpoint>, idle: Idle, timeout: Duration, now: u64) {
        if self.proxy_header.is_none() {
            self.pool.idle().put(server.unwrap_or(&self.server), idle, timeout, now);
        }
    }
}
