//! Connections to upstreams for upgrades, WebSockets for one.
//!
//! Pingora 0.9.1 closes an upgraded connection at once where it reads the upstream's 101 before it
//! has taken the end of the request's own, empty body out of its pipe; a near upstream loses up to
//! a fifth of its WebSockets to that (<https://github.com/cloudflare/pingora/issues/946>). The end
//! is in the pipe before the first read is tried, and pipe and connection are polled together: so
//! it is enough that a read behind a write is not ready when first asked.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use async_trait::async_trait;
use http::header;
use pingora::connectors::L4Connect;
use pingora::prelude::{Error, ErrorType, OrErr, RequestHeader, Result};
use pingora::protocols::l4::socket::SocketAddr;
use pingora::protocols::l4::stream::Stream;
use pingora::protocols::l4::virt::{VirtualSockOpt, VirtualSocket, VirtualSocketStream};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

use super::forward;

/// `Upgrade` is the client's wish only where `Connection` names it, too (RFC 9110, section 7.8);
/// otherwise it is left from somebody else's. Pingora would ask the API for it in any case.
pub(super) fn drop_unless_asked(request: &mut RequestHeader) {
    if !request.headers.contains_key(header::UPGRADE) {
        return;
    }
    let is_upgrade = |option: &[u8]| option.eq_ignore_ascii_case(b"upgrade");
    if !forward::connection_options(&request.headers).any(is_upgrade) {
        request.remove_header(&header::UPGRADE);
    }
}

/// Opens connections that hold back the first read behind a write.
#[derive(Debug)]
pub(super) struct Connector {
    /// How long connecting may take.
    pub(super) timeout: Duration,
}

/// A connection whose answers are never there before they are waited for.
#[derive(Debug)]
struct HoldingBack {
    stream: TcpStream,
    has_written: bool,
}

#[async_trait]
impl L4Connect for Connector {
    async fn connect(&self, address: &SocketAddr) -> Result<Stream> {
        let Some(address) = address.as_inet() else {
            return Error::e_explain(ErrorType::ConnectNoRoute, "upgrades go over TCP only");
        };
        let connected = tokio::time::timeout(self.timeout, TcpStream::connect(address)).await;
        let stream = connected
            .or_err(ErrorType::ConnectTimedout, "connecting for an upgrade")?
            .or_err(ErrorType::ConnectError, "connecting for an upgrade")?;
        let held_back = HoldingBack { stream, has_written: false };
        Ok(VirtualSocketStream::new(Box::new(held_back)).into())
    }
}

impl VirtualSocket for HoldingBack {
    fn set_socket_option(&self, option: VirtualSockOpt) -> io::Result<()> {
        match option {
            VirtualSockOpt::NoDelay => self.stream.set_nodelay(true),
            _ => Ok(()),
        }
    }
}

impl AsyncRead for HoldingBack {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if std::mem::take(&mut self.has_written) {
            context.waker().wake_by_ref();
            return Poll::Pending;
        }
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl AsyncWrite for HoldingBack {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.has_written = true;
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}
