//! Opens connections to a server: TCP, then the PROXY header, then TLS.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use pingora::prelude::{Error, ErrorTrait, ErrorType, Result};
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio::time::timeout;

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
    /// Whether the server has the address that was selected for the request; if not, it connected
    /// in place of that one a short time ago.
    pub(crate) is_selected: bool,
}

/// A connection to another address than the one that was selected, which connected later or failed.
#[derive(Debug)]
pub(crate) struct Raced {
    /// The server with the address that connected first.
    pub(crate) server: Endpoint,
    /// The addresses whose attempts had begun before.
    pub(crate) lost: Addresses,
}

/// Cause of the error of a connection that failed after another address than the selected one had
/// connected.
#[derive(Debug, thiserror::Error)]
#[error("{error}")]
struct RacedError {
    raced: Box<Raced>,
    error: Box<Error>,
}

/// The error of a connection, which says that another address than the selected one failed if that
/// is so.
#[allow(clippy::unnecessary_box_returns, reason = "the type of Pingora's errors")]
pub(super) fn blame(raced: Option<Box<Raced>>, error: Box<Error>) -> Box<Error> {
    let Some(raced) = raced else { return error };
    let etype = error.etype().clone();
    Error::because(etype, "on another address", RacedError { raced, error }).into_up()
}

/// Which other address than the selected one failed with this error, if one did.
pub(crate) fn failed_in_place(error: &Error) -> Option<&Raced> {
    causes(error).find_map(|cause| cause.downcast_ref()).map(|failed: &RacedError| &*failed.raced)
}

/// The error of the operating system that caused an error.
pub(crate) fn io_error(error: &Error) -> Option<&io::Error> {
    causes(error).find_map(|cause| cause.downcast_ref())
}

/// What caused an error, and what caused that, and so on.
fn causes(error: &Error) -> impl Iterator<Item = &(dyn ErrorTrait + Send + Sync + 'static)> {
    std::iter::successors(error.cause.as_deref(), |cause| {
        let inner = cause.downcast_ref::<Box<Error>>();
        let inner = inner.or_else(|| Some(&cause.downcast_ref::<RacedError>()?.error));
        inner?.cause.as_deref()
    })
}

impl Dial {
    /// The same, to the server with an address that connected in place of its own.
    pub(super) fn replaced_by(&self, address: SocketAddr) -> Self {
        Self { server: self.pool.endpoint(address), is_selected: false, ..self.clone() }
    }

    /// Opens a connection. Takes as long as the server does.
    ///
    /// # Errors
    /// If the server cannot be connected to, or the TLS handshake fails. The cause is an
    /// [`io::Error`] whose text can be logged.
    pub(crate) async fn open(&self, offer: Offer) -> Result<Transport> {
        self.open_untimed(self.pool.idle().gate().open(), offer, &mut None).await
    }

    /// As [`open`](Self::open), with a permit for it, and within `longest`.
    ///
    /// # Errors
    /// Also if it takes longer. [`failed_in_place`] is the address that failed.
    pub(super) async fn open_within(
        &self,
        longest: Duration,
        permit: Permit,
        offer: Offer,
    ) -> Result<Transport> {
        let mut raced = self.in_place();
        let opened = timeout(longest, self.open_untimed(permit, offer, &mut raced)).await;
        match opened.unwrap_or_else(|_| Err(Error::new(ErrorType::ConnectTimedout).into_up())) {
            Ok(transport) => Ok(transport.with(raced)),
            Err(error) => Err(blame(raced, error)),
        }
    }

    /// What a connection to the server is to, if that has not the selected address.
    pub(super) fn in_place(&self) -> Option<Box<Raced>> {
        let raced = || Raced { server: self.server.clone(), lost: Addresses::new() };
        (!self.is_selected).then(|| Box::new(raced()))
    }

    /// Opens a connection. `raced`: set as soon as another address has connected.
    async fn open_untimed(
        &self,
        permit: Permit,
        offer: Offer,
        raced: &mut Option<Box<Raced>>,
    ) -> Result<Transport> {
        let failed = |error: io::Error| {
            Error::because(ErrorType::ConnectError, "connecting to a server", error).into_up()
        };
        let addresses = self.addresses();
        let mut stream = if addresses.len() > 1 {
            let (stream, other) = Box::pin(self.race(addresses)).await.map_err(failed)?;
            *raced = other.or_else(|| raced.take());
            stream
        } else {
            TcpStream::connect(self.server.address).await.map_err(failed)?
        };
        stream.set_nodelay(true).map_err(failed)?;
        if let Some(header) = &self.proxy_header {
            stream.write_all(header).await.map_err(failed)?;
        }
        let Some(tls) = self.pool.tls() else {
            return Ok(Transport::clear(stream, permit));
        };
        let stream = tls.connect(stream, self.server.host.as_deref(), offer).await;
        let stream = stream.map_err(|error| {
            Error::because(ErrorType::TLSHandshakeFailure, "connecting to a server", error)
                .into_up()
        });
        stream.map(|stream| Transport::tls(stream, permit))
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
        Some(Opened { transport: transport.with(self.in_place()), run, is_reused: true })
    }

    /// Keeps a connection for up to `timeout` from `now` (microseconds). `server`: that of another
    /// address, which it is to.
    pub(super) fn keep(&self, server: Option<&Endpoint>, idle: Idle, timeout: Duration, now: u64) {
        if self.proxy_header.is_none() {
            self.pool.idle().put(server.unwrap_or(&self.server), idle, timeout, now);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::upstream::pool::tests::pool_at;

    #[tokio::test]
    async fn failed_handshake_is_that_of_the_address_that_connected() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let refusing = SocketAddr::from(([0, 0, 0, 0, 0, 0, 0, 1], address.port()));
        let server = format!("https://api.test:{}", address.port());
        let file = format!("[upstreams.api]\nservers = [{server:?}]\n[routes.all]\n");
        let pool = pool_at(&file, vec![refusing, address]).await;
        pool.refresh_tls().await;
        let server = pool.endpoint(refusing);
        let dial =
            Dial { server, pool, proxy_header: None, tries_families: true, is_selected: true };
        let failed = async |longest, tries_families| {
            let dial = Dial { tries_families, ..dial.clone() };
            let permit = dial.pool.idle().gate().open();
            let error = dial.open_within(longest, permit, Offer::Both).await.unwrap_err();
            let in_place = failed_in_place(&error).map(|raced| raced.server.address);
            (in_place, error.etype().clone(), io_error(&error).is_some())
        };
        // It accepts the connection, and is silent.
        let silent = failed(Duration::from_millis(300), true).await;
        assert_eq!(silent, (Some(address), ErrorType::ConnectTimedout, false));
        tokio::spawn(async move { while listener.accept().await.is_ok() {} });
        let closed = failed(Duration::from_secs(20), true).await;
        assert_eq!(closed, (Some(address), ErrorType::TLSHandshakeFailure, true));
        let refused = failed(Duration::from_secs(20), false).await;
        assert_eq!(refused, (None, ErrorType::ConnectError, true));
    }
}
