//! Stream of a connection: TCP, TLS or a Unix socket, with a bound on unrequested bytes.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpStream, UnixStream};
use tokio_rustls::client::TlsStream;

use super::health::Health;

/// Transport of a connection.
pub(super) enum Carrier {
    Tcp(TcpStream),
    Tls(Box<TlsStream<TcpStream>>),
    Unix(UnixStream),
}

/// A stream that fails if the peer sends more than any call requests. A reply is buffered until it is
/// complete, and the peer chooses its length.
pub(super) struct Metered {
    carrier: Carrier,
    health: Arc<Health>,
}

impl Metered {
    pub(super) fn new(carrier: Carrier, health: Arc<Health>) -> Self {
        Self { carrier, health }
    }
}

impl AsyncRead for Metered {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let before = buffer.filled().len();
        let polled = match &mut this.carrier {
            Carrier::Tcp(stream) => Pin::new(stream).poll_read(context, buffer),
            Carrier::Tls(stream) => Pin::new(stream).poll_read(context, buffer),
            Carrier::Unix(stream) => Pin::new(stream).poll_read(context, buffer),
        };
        if matches!(polled, Poll::Ready(Ok(()))) {
            this.health.note_bytes(buffer.filled().len() - before)?;
        }
        polled
    }
}

impl AsyncWrite for Metered {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        match &mut self.get_mut().carrier {
            Carrier::Tcp(stream) => Pin::new(stream).poll_write(context, bytes),
            Carrier::Tls(stream) => Pin::new(stream).poll_write(context, bytes),
            Carrier::Unix(stream) => Pin::new(stream).poll_write(context, bytes),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.get_mut().carrier {
            Carrier::Tcp(stream) => Pin::new(stream).poll_flush(context),
            Carrier::Tls(stream) => Pin::new(stream).poll_flush(context),
            Carrier::Unix(stream) => Pin::new(stream).poll_flush(context),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.get_mut().carrier {
            Carrier::Tcp(stream) => Pin::new(stream).poll_shutdown(context),
            Carrier::Tls(stream) => Pin::new(stream).poll_shutdown(context),
            Carrier::Unix(stream) => Pin::new(stream).poll_shutdown(context),
        }
    }
}
