//! Requests to upstreams over HTTP/2: an attempt at a server, and a retry if the request was not
//! processed.

mod call;
pub(super) mod request;
mod timeout;

use bytes::Bytes;
use pingora::prelude::{Error, ErrorType, Result};
use pingora::proxy::Session;
use tokio::time::timeout_at;

use super::{Handed, deadline, select};
use crate::gateway::Gateway;
use crate::gateway::exchange::Exchange;
use crate::gateway::respond::{self, failure, grpc};
use crate::policy::settings::{Protocol, Upstream};
use crate::upstream::dial::{Dial, Offer};
use crate::upstream::http2::{Acquired, Needs};
use call::Call;
use timeout::Limits;

/// Bytes of a request's body that are kept, so that the request can be sent again.
const MAX_REPLAY_BYTES: usize = 64 * 1024;

/// The body of a request as far as it has come from the client, to send it again.
#[derive(Debug, Default)]
struct Replay {
    chunks: Vec<Bytes>,
    len: usize,
    /// Whether the client has sent all of it.
    is_whole: bool,
}

impl Replay {
    fn push(&mut self, chunk: &Bytes) {
        self.len = self.len.saturating_add(chunk.len());
        if self.is_complete() {
            self.chunks.push(chunk.clone());
        }
    }

    /// Whether nothing is missing.
    fn is_complete(&self) -> bool {
        self.len <= MAX_REPLAY_BYTES
    }

    /// The body as far as it has come; `None` if a part of it is missing.
    fn body(&self) -> Option<Bytes> {
        match self.chunks.as_slice() {
            _ if !self.is_complete() => None,
            [only] => Some(only.clone()),
            chunks => Some(chunks.concat().into()),
        }
    }
}

impl Gateway {
    /// Forwards a request over HTTP/2, if its upstream speaks that. Returns whether the response
    /// has been written; if not, the request is for HTTP/1.1.
    ///
    /// # Errors
    /// If the request fails.
    pub(in crate::gateway) async fn forward_http2(
        &self,
        session: &mut Session,
        exchange: &mut Box<Exchange>,
    ) -> Result<bool> {
        let mut replay = Replay::default();
        loop {
            let selected = self.select(session, exchange)?;
            select::pause(exchange).await;
            let Some(offer) = offer(session, exchange) else {
                exchange.attempts.handed = Some(Handed { dial: selected, opened: None });
                return refuse_grpc(session).map(|()| false);
            };
            let Some(upstream) = exchange.upstream() else { return Err(respond::no_server()) };
            let limits = Limits::of(upstream, session, exchange);
            let mut stream = match acquire(exchange, upstream, &selected, offer, limits).await {
                Ok(Acquired::Http2(stream)) => stream,
                Ok(Acquired::Http1(_)) if replay.len > 0 => return Err(changed_version()),
                Ok(Acquired::Http1(opened)) => {
                    exchange.attempts.handed =
                        Some(Handed { dial: selected, opened: Some(opened) });
                    return refuse_grpc(session).map(|()| false);
                }
                Err(error) => {
                    let method = &session.req_header().method;
                    let error = self.failed_to_connect(method, exchange, error);
                    if error.retry() {
                        continue;
                    }
                    return Err(error);
                }
            };
            if let Some(raced) = stream.raced.take() {
                self.raced(exchange, &raced);
            }
            self.connected(exchange, stream.is_reused);
            let call = Call::begin(self, session, exchange, stream, &mut replay, limits);
            let response = match call.await {
                Ok(call) => call.run().await,
                Err(error) => Err(error),
            };
            match response {
                Ok(()) => return Ok(true),
                Err(error) if error.retry() => {}
                Err(error) => return Err(error),
            }
        }
    }
}

/// Opens a stream within the time limits of connecting.
async fn acquire(
    exchange: &Exchange,
    upstream: &Upstream,
    dial: &Dial,
    offer: Offer,
    limits: Limits,
) -> Result<Acquired> {
    let needs = Needs::of(upstream, offer, exchange.attempts.usable(dial.server.address));
    let acquired = dial.pool.http2.acquire(dial, needs);
    let began = || exchange.attempts.last_began();
    let Some((end, deadline)) = limits.end_of_connecting(upstream.connect_timeout, began) else {
        return acquired.await;
    };
    timeout_at(end, acquired).await.unwrap_or_else(|_| {
        Err(match deadline {
            Some(deadline) => deadline::passed(deadline.set_by, true),
            None => Error::new(ErrorType::ConnectTimedout).into_up(),
        })
    })
}

/// The error of a request whose first server spoke HTTP/2 and refused it, and whose second one
/// speaks HTTP/1.1: the part of the body that has been read from the client would be missing.
#[allow(clippy::unnecessary_box_returns, reason = "the type of Pingora's errors")]
fn changed_version() -> Box<Error> {
    let words = "the server changed to HTTP/1.1 after a part of the request was sent";
    Error::new(ErrorType::Custom(words)).into_up()
}

/// Whether no request to this upstream uses HTTP/2.
pub(in crate::gateway) fn is_excluded(upstream: &Upstream) -> bool {
    match upstream.protocol {
        Protocol::Http1 => true,
        Protocol::Auto => upstream.tls.is_none(),
        Protocol::H2 | Protocol::H2c => false,
    }
}

/// What the TLS handshake of a new connection offers; `None`: the request is for HTTP/1.1.
fn offer(session: &Session, exchange: &Exchange) -> Option<Offer> {
    let offer = offer_to(exchange.upstream()?);
    // Only HTTP/1.1 has upgrades.
    offer.filter(|offer| *offer != Offer::Both || !session.is_upgrade_req())
}

/// The same, of a request without an upgrade.
pub(super) fn offer_to(upstream: &Upstream) -> Option<Offer> {
    match (upstream.protocol, upstream.tls.is_some()) {
        (Protocol::H2 | Protocol::H2c, _) => Some(Offer::Http2),
        (Protocol::Http1, _) | (Protocol::Auto, false) => None,
        (Protocol::Auto, true) => Some(Offer::Both),
    }
}

/// Refuses a gRPC call over HTTP/2 to a server that speaks HTTP/1.1.
pub(in crate::gateway) fn refuse_grpc(session: &Session) -> Result<()> {
    if grpc::is_call(session) {
        return Err(Error::new(ErrorType::Custom(failure::NO_GRPC)).into_up());
    }
    Ok(())
}
