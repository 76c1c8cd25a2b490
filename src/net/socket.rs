//! The socket of a client connection, TCP or Unix.

use std::io::{self, IoSlice};
use std::net::SocketAddr;
use std::os::fd::{AsRawFd, RawFd};
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::{Buf as _, Bytes};
use pingora::protocols::l4::ext::get_tcp_info;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpStream, UnixStream};

/// The socket of a client connection. Reads are not buffered.
#[derive(Debug)]
pub struct Socket {
    /// `None`: the socket could not be registered with the current runtime.
    transport: Option<Transport>,
    /// Bytes that are read before those of the transport.
    unread: Bytes,
    peer: Option<SocketAddr>,
    /// Bytes read from the transport.
    received: u64,
}

/// The kinds of socket.
#[derive(Debug)]
enum Transport {
    Tcp(TcpStream),
    Unix(UnixStream),
}

impl Socket {
    /// Wraps a TCP connection whose other end is `peer`.
    pub fn tcp(stream: TcpStream, peer: SocketAddr) -> Self {
        Self {
            transport: Some(Transport::Tcp(stream)),
            unread: Bytes::new(),
            peer: Some(peer),
            received: 0,
        }
    }

    /// Wraps a connection to a Unix socket.
    pub fn unix(stream: UnixStream) -> Self {
        Self {
            transport: Some(Transport::Unix(stream)),
            unread: Bytes::new(),
            peer: None,
            received: 0,
        }
    }

    /// Returns the address of the other end of the TCP connection; `None` for a Unix socket.
    pub fn peer(&self) -> Option<SocketAddr> {
        self.peer
    }

    /// Returns the local address of the TCP connection; `None` for a Unix socket.
    pub fn local(&self) -> Option<SocketAddr> {
        match &self.transport {
            Some(Transport::Tcp(stream)) => stream.local_addr().ok(),
            Some(Transport::Unix(_)) | None => None,
        }
    }

    /// Returns how many bytes the other end of the TCP connection has acknowledged; `None` for a
    /// Unix socket, and for kernels before Linux 6.2.
    pub fn acknowledged_bytes(&self) -> Option<u64> {
        match &self.transport {
            Some(Transport::Tcp(stream)) => {
                get_tcp_info(stream.as_raw_fd()).ok().map(|info| info.tcpi_bytes_acked)
            }
            Some(Transport::Unix(_)) | None => None,
        }
    }

    /// Discards bytes that have not been sent when the socket is closed, and resets its connection.
    /// Otherwise the kernel keeps them until the other end has read them.
    pub fn reset_when_closed(&self) {
        if let Some(Transport::Tcp(stream)) = &self.transport {
            // An error leaves the kernel's default.
            let _ = stream.set_zero_linger();
        }
    }

    /// Returns how many bytes have been read from the other end.
    pub fn received_bytes(&self) -> u64 {
        self.received
    }

    /// Puts bytes back that have been read: the next reads return them first.
    pub fn unread(&mut self, bytes: Bytes) {
        if self.unread.is_empty() {
            self.unread = bytes;
        } else if !bytes.is_empty() {
            self.unread = [&bytes[..], &self.unread[..]].concat().into();
        }
    }

    /// Moves the socket to the runtime of the caller. Until then, the runtime that accepted it
    /// wakes its readers and writers.
    ///
    /// # Errors
    /// The kernel does not accept the registration, for example because there are too many. The
    /// socket is then closed.
    ///
    /// # Panics
    /// If called outside of a tokio runtime.
    pub fn reregister(&mut self) -> io::Result<()> {
        let moved = match self.transport.take() {
            Some(Transport::Tcp(stream)) => {
                Transport::Tcp(TcpStream::from_std(stream.into_std()?)?)
            }
            Some(Transport::Unix(stream)) => {
                Transport::Unix(UnixStream::from_std(stream.into_std()?)?)
            }
            None => return Err(io::ErrorKind::NotConnected.into()),
        };
        self.transport = Some(moved);
        Ok(())
    }
}

impl AsRawFd for Socket {
    fn as_raw_fd(&self) -> RawFd {
        match &self.transport {
            Some(Transport::Tcp(stream)) => stream.as_raw_fd(),
            Some(Transport::Unix(stream)) => stream.as_raw_fd(),
            None => -1,
        }
    }
}

impl AsyncRead for Socket {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if !this.unread.is_empty() {
            let length = this.unread.len().min(buffer.remaining());
            buffer.put_slice(&this.unread[..length]);
            this.unread.advance(length);
            if this.unread.is_empty() {
                // Frees its memory.
                this.unread = Bytes::new();
            }
            return Poll::Ready(Ok(()));
        }
        let before = buffer.filled().len();
        let read = match &mut this.transport {
            Some(Transport::Tcp(stream)) => Pin::new(stream).poll_read(context, buffer),
            Some(Transport::Unix(stream)) => Pin::new(stream).poll_read(context, buffer),
            None => Poll::Ready(Err(io::ErrorKind::NotConnected.into())),
        };
        this.received += (buffer.filled().len() - before) as u64;
        read
    }
}

impl AsyncWrite for Socket {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        match &mut self.get_mut().transport {
            Some(Transport::Tcp(stream)) => Pin::new(stream).poll_write(context, bytes),
            Some(Transport::Unix(stream)) => Pin::new(stream).poll_write(context, bytes),
            None => Poll::Ready(Err(io::ErrorKind::NotConnected.into())),
        }
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        parts: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match &mut self.get_mut().transport {
            Some(Transport::Tcp(stream)) => Pin::new(stream).poll_write_vectored(context, parts),
            Some(Transport::Unix(stream)) => Pin::new(stream).poll_write_vectored(context, parts),
            None => Poll::Ready(Err(io::ErrorKind::NotConnected.into())),
        }
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        // Nothing is buffered.
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.get_mut().transport {
            Some(Transport::Tcp(stream)) => Pin::new(stream).poll_shutdown(context),
            Some(Transport::Unix(stream)) => Pin::new(stream).poll_shutdown(context),
            None => Poll::Ready(Ok(())),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    use super::*;

    #[tokio::test]
    async fn unread_bytes_come_before_those_of_the_socket() {
        let (here, mut there) = UnixStream::pair().unwrap();
        there.write_all(b"rest").await.unwrap();
        drop(there);
        let mut socket = Socket::unix(here);
        socket.unread(Bytes::from_static(b"second "));
        socket.unread(Bytes::from_static(b"first "));
        let mut read = String::new();
        socket.read_to_string(&mut read).await.unwrap();
        assert_eq!(read, "first second rest");
    }

    #[test]
    fn reregistered_socket_is_read_by_another_runtime() {
        let runtime = || tokio::runtime::Builder::new_current_thread().enable_io().build().unwrap();
        let (first, second) = (runtime(), runtime());
        let (here, mut there) = std::os::unix::net::UnixStream::pair().unwrap();
        here.set_nonblocking(true).unwrap();
        let mut socket =
            first.block_on(async { Socket::unix(UnixStream::from_std(here).unwrap()) });
        let read = second.block_on(async {
            socket.reregister().unwrap();
            let write = async { there.write_all(b"x").unwrap() };
            tokio::join!(socket.read_u8(), write).0.unwrap()
        });
        assert_eq!(read, b'x');
    }
}
