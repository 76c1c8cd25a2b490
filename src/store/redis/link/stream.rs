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
pub(super) enum Transport {
    Tcp(TcpStream),
    Tls(Box<TlsStream<TcpStream>>),
    Unix(UnixStream),
}

/// A stream that fails if the peer sends more than any call requests. A reply is buffered until it
/// is complete, and the peer chooses its length.
pub(super) struct BoundedStream {
    carrier: Transport,
    health: Arc<Health>,
}

impl BoundedStream {
    pub(super) fn new(carrier: Transport, health: Arc<Health>) -> Self {
        Self { carrier, health }
    }
}

impl AsyncRead for BoundedStream {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let before = buffer.filled().len();
        let polled = match &mut this.carrier {
            Transport::Tcp(stream) => Pin::new(stream).poll_read(context, buffer),
            Transport::Tls(stream) => Pin::new(stream).poll_read(context, buffer),
            Transport::Unix(stream) => Pin::new(stream).poll_read(context, buffer),
        };
        if matches!(polled, Poll::Ready(Ok(()))) {
            this.health.note_bytes(buffer.filled().len() - before)?;
        }
        polled
    }
}

impl AsyncWrite for BoundedStream {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        match &mut self.get_mut().carrier {
            Transport::Tcp(stream) => Pin::new(stream).poll_write(context, bytes),
            Transport::Tls(stream) => Pin::new(stream).poll_write(context, bytes),
            Transport::Unix(stream) => Pin::new(stream).poll_write(context, bytes),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.get_mut().carrier {
            Transport::Tcp(stream) => Pin::new(stream).poll_flush(context),
            Transport::Tls(stream) => Pin::new(stream).poll_flush(context),
            Transport::Unix(stream) => Pin::new(stream).poll_flush(context),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.get_mut().carrier {
            Transport::Tcp(stream) => Pin::new(stream).poll_shutdown(context),
            Transport::Tls(stream) => Pin::new(stream).poll_shutdown(context),
            Transport::Unix(stream) => Pin::new(stream).poll_shutdown(context),
        }
    }
}
