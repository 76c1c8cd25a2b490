//! The bytes of a connection to a server: in clear or over TLS.

use std::io::{self, Read};
use std::mem::MaybeUninit;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};

use pingora::protocols::l4::virt::{VirtualSockOpt, VirtualSocket};
use socket2::{SockRef, Socket};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::client::TlsStream;

use super::dial::Raced;
use super::gate::Permit;

/// A connection to a server.
#[derive(Debug)]
pub(crate) struct Transport {
    stream: Stream,
    /// `None`: it is to the address that was selected.
    raced: Option<Box<Raced>>,
    /// Dropped with the connection, which then no longer counts.
    _permit: Permit,
}

#[derive(Debug)]
enum Stream {
    Clear(TcpStream),
    Tls(Box<TlsStream<TcpStream>>),
}

/// A connection that counts its reads of bytes.
#[derive(Debug)]
pub(super) struct Counted {
    pub(super) transport: Transport,
    pub(super) reads: Arc<AtomicU64>,
}

/// What can be read from an idle connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Probe {
    /// Nothing.
    Silent,
    /// Its end, or an error.
    Closed,
    /// Bytes that no request has asked for.
    Surplus,
}

/// Maximum number of reads from an idle TLS connection: session tickets and key updates, which are
/// no surplus bytes, take one or two.
const MAX_PROBE_READS: usize = 8;

impl Transport {
    pub(super) const fn clear(stream: TcpStream, permit: Permit) -> Self {
        Self { stream: Stream::Clear(stream), raced: None, _permit: permit }
    }

    pub(super) fn tls(stream: TlsStream<TcpStream>, permit: Permit) -> Self {
        Self { stream: Stream::Tls(Box::new(stream)), raced: None, _permit: permit }
    }

    /// The same, to another address than the one that was selected, if that is so.
    pub(super) fn with(self, raced: Option<Box<Raced>>) -> Self {
        Self { raced, ..self }
    }

    /// To which other address than the selected one it is.
    pub(super) fn raced(&self) -> Option<&Raced> {
        self.raced.as_deref()
    }

    /// Takes out to which other address than the selected one it is.
    pub(super) fn take_raced(&mut self) -> Option<Box<Raced>> {
        self.raced.take()
    }

    pub(crate) const fn is_tls(&self) -> bool {
        matches!(self.stream, Stream::Tls(_))
    }

    /// The socket.
    pub(super) fn tcp(&self) -> &TcpStream {
        match &self.stream {
            Stream::Clear(stream) => stream,
            Stream::Tls(stream) => stream.get_ref().0,
        }
    }

    /// Whether the server has selected HTTP/2 by ALPN.
    pub(crate) fn has_selected_http2(&self) -> bool {
        match &self.stream {
            Stream::Clear(_) => false,
            Stream::Tls(stream) => stream.get_ref().1.alpn_protocol() == Some(b"h2".as_slice()),
        }
    }

    /// Finds out what can be read, directly from the socket: tokio notices bytes only when it next
    /// polls.
    pub(super) fn probe(&mut self) -> Probe {
        let stream = match &mut self.stream {
            Stream::Clear(stream) => return probe(stream),
            Stream::Tls(stream) => stream,
        };
        let (tcp, tls) = stream.get_mut();
        let socket = SockRef::from(&*tcp);
        let mut socket: &Socket = &socket;
        for _ in 0..MAX_PROBE_READS {
            match tls.process_new_packets() {
                Ok(state) if state.plaintext_bytes_to_read() > 0 => return Probe::Surplus,
                Ok(state) if state.peer_has_closed() => return Probe::Closed,
                Ok(_) => {}
                Err(_) => return Probe::Closed,
            }
            match tls.read_tls(&mut socket as &mut dyn Read) {
                Ok(0) => return Probe::Closed,
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Probe::Silent,
                Err(_) => return Probe::Closed,
            }
        }
        Probe::Closed
    }
}

/// Peeks into the socket's receive buffer.
fn probe(stream: &TcpStream) -> Probe {
    match SockRef::from(stream).peek(&mut [MaybeUninit::uninit()]) {
        Ok(0) => Probe::Closed,
        Ok(_) => Probe::Surplus,
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Probe::Silent,
        Err(_) => Probe::Closed,
    }
}

impl VirtualSocket for Transport {
    /// Does nothing: its options were set when it was opened.
    fn set_socket_option(&self, _: VirtualSockOpt) -> io::Result<()> {
        Ok(())
    }
}

impl AsyncRead for Transport {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match &mut self.get_mut().stream {
            Stream::Clear(stream) => Pin::new(stream).poll_read(context, buffer),
            Stream::Tls(stream) => Pin::new(stream).poll_read(context, buffer),
        }
    }
}

impl AsyncWrite for Transport {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        match &mut self.get_mut().stream {
            Stream::Clear(stream) => Pin::new(stream).poll_write(context, bytes),
            Stream::Tls(stream) => Pin::new(stream).poll_write(context, bytes),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.get_mut().stream {
            // Nothing is buffered.
            Stream::Clear(_) => Poll::Ready(Ok(())),
            Stream::Tls(stream) => Pin::new(stream).poll_flush(context),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.get_mut().stream {
            Stream::Clear(stream) => Pin::new(stream).poll_shutdown(context),
            Stream::Tls(stream) => Pin::new(stream).poll_shutdown(context),
        }
    }
}

impl AsyncRead for Counted {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let read = Pin::new(&mut this.transport).poll_read(context, buffer);
        if read.is_ready() {
            this.reads.fetch_add(1, Ordering::Relaxed);
        }
        read
    }
}

impl AsyncWrite for Counted {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().transport).poll_write(context, bytes)
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().transport).poll_flush(context)
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().transport).poll_shutdown(context)
    }
}
