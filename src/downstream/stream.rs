//! A client connection as Pingora reads and writes it.

use std::future::poll_fn;
use std::io::{self, IoSlice};
use std::mem::MaybeUninit;
use std::os::fd::AsRawFd as _;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker, ready};
use std::time::Duration;

use async_trait::async_trait;
use memchr::memmem;
use pingora::protocols::l4::socket::SocketAddr as PeerAddress;
use pingora::protocols::raw_connect::ProxyDigest;
use pingora::protocols::{
    GetProxyDigest, GetSocketDigest, GetTimingDigest, Peek, Shutdown, SocketDigest, Ssl,
    TimingDigest, UniqueID, UniqueIDType,
};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Sleep, sleep};
use tokio_rustls::server::TlsStream;

use super::connection::{ClientProtocol, ConnectionInfo, Slow};
use super::head::{HeadLimits, HeadTimer};
use super::held::Held;
use super::send::SendGuard;
use super::unwritten::WriteProgress;
use crate::base::clock;
use crate::net::socket::Socket;

/// Bytes of a response that are collected before they are written: the head and a short body are
/// then one packet and one TLS record.
const BUFFER_BYTES: usize = 4096;

/// How long a connection that the gateway closes after a response waits at most until the client
/// has closed it, too (lingering close, RFC 9112, section 9.6).
const LINGER_TIMEOUT: Duration = Duration::from_secs(1);

/// The line by which Pingora names itself in its response to a head that it cannot parse, the only
/// one that the gateway does not write.
const BANNER: &[u8] = b"Server: Pingora\r\n";

/// A client connection. Reads are not buffered: Pingora reads into a buffer of its session. Writes
/// are collected in a buffer that exists only until it is flushed, so an idle connection has none.
#[derive(Debug)]
pub(super) struct ClientStream {
    transport: Transport,
    /// Bytes to write.
    buffer: Vec<u8>,
    /// How many bytes of `buffer` have been written.
    written: usize,
    digest: Arc<SocketDigest>,
    connection: Arc<ConnectionInfo>,
    /// Bounds the time of the head of a request.
    head: HeadTimer,
    /// Bytes of the head that wait for the end of their line, with HTTP/1.
    held: Held,
    progress: WriteProgress,
    /// Whether the connection is marked as idle while no part of the next head has been read, with
    /// HTTP/1.
    is_idle: bool,
    /// How many bytes of the socket its reader has got, TLS included.
    delivered: u64,
    /// Bounds the slowness of the client.
    guard: SendGuard,
    /// Ends the wait for the client to close the connection; `None` until the gateway has.
    linger: Option<Pin<Box<Sleep>>>,
}

/// How the bytes reach the client.
#[derive(Debug)]
enum Transport {
    Clear(Socket),
    Tls(Box<TlsStream<Socket>>),
}

impl ClientStream {
    /// Wraps a connection in clear. The heads of its requests have these limits.
    pub(super) fn clear(
        socket: Socket,
        connection: ConnectionInfo,
        head: HeadLimits,
        progress: WriteProgress,
        guard: SendGuard,
    ) -> Self {
        let digest = digest(&socket, &connection);
        let head = HeadTimer::new(head, connection.protocol);
        Self::new(Transport::Clear(socket), digest, connection, head, progress, guard)
    }

    /// Wraps a connection over TLS, after its handshake.
    pub(super) fn tls(
        stream: TlsStream<Socket>,
        connection: ConnectionInfo,
        head: HeadLimits,
        progress: WriteProgress,
        guard: SendGuard,
    ) -> Self {
        let digest = digest(stream.get_ref().0, &connection);
        let head = HeadTimer::new(head, connection.protocol);
        Self::new(Transport::Tls(Box::new(stream)), digest, connection, head, progress, guard)
    }

    fn new(
        transport: Transport,
        digest: Arc<SocketDigest>,
        connection: ConnectionInfo,
        head: HeadTimer,
        progress: WriteProgress,
        guard: SendGuard,
    ) -> Self {
        Self {
            transport,
            buffer: Vec::new(),
            written: 0,
            digest,
            connection: Arc::new(connection),
            head,
            held: Held::new(),
            progress,
            is_idle: false,
            delivered: 0,
            guard,
            linger: None,
        }
    }

    /// The connection, which its requests share.
    pub(super) fn connection(&self) -> &Arc<ConnectionInfo> {
        &self.connection
    }

    /// Writes what has been collected.
    fn poll_buffer(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        while self.written < self.buffer.len() {
            let transport = Pin::new(&mut self.transport);
            let count = ready!(transport.poll_write(context, &self.buffer[self.written..]))?;
            self.written += at_least_one(count)?;
        }
        self.discard();
        Poll::Ready(Ok(()))
    }

    /// Writes what has been collected together with more bytes. Returns how many of those were
    /// written.
    fn poll_with_buffer(
        &mut self,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        while self.written < self.buffer.len() {
            let collected = &self.buffer[self.written..];
            let parts = [IoSlice::new(collected), IoSlice::new(bytes)];
            let transport = Pin::new(&mut self.transport);
            let count = ready!(transport.poll_write_vectored(context, &parts))?;
            let surplus = at_least_one(count)?.saturating_sub(collected.len());
            if surplus > 0 {
                self.discard();
                return Poll::Ready(Ok(surplus));
            }
            self.written += count;
        }
        self.discard();
        Pin::new(&mut self.transport).poll_write(context, bytes)
    }

    /// Notes how a write or flush has ended. Fails it if the client reads too slowly.
    fn watch<T>(
        &mut self,
        written: Poll<io::Result<T>>,
        context: &mut Context<'_>,
    ) -> Poll<io::Result<T>> {
        if self.progress.note(written.is_pending()) {
            self.connection.transfer.note_blocked(written.is_pending(), clock::now());
        }
        if written.is_ready() {
            self.guard.note_accepted();
            return written;
        }
        // The bytes of an upgraded connection are not a response.
        if self.connection.is_upgraded() {
            return Poll::Pending;
        }
        let socket = self.transport.socket();
        ready!(self.guard.poll_slow(socket, context));
        socket.reset_when_closed();
        self.connection.note_slow(Slow::Reader);
        Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
    }

    /// Reads bytes. Ends with an error if the head takes too long or is too large.
    fn poll_bytes(
        &mut self,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.head.is_too_large(&self.connection.head) {
            return Poll::Ready(Err(io::ErrorKind::FileTooLarge.into()));
        }
        let before = buffer.filled().len();
        let read = Pin::new(&mut self.transport).poll_read(context, buffer);
        let progress = &self.connection.head;
        let received = self.transport.socket().received_bytes();
        if read.is_ready() {
            self.delivered = received;
            let was_begun = progress.is_begun();
            self.head.note_read(progress, &buffer.filled()[before..]);
            // The head of a request has begun.
            if self.connection.protocol == ClientProtocol::Http1
                && !was_begun
                && progress.is_begun()
            {
                self.is_idle = false;
                self.connection.note_idle();
            }
        }
        let in_frame = self.head.unfinished_data() as u64;
        self.connection.transfer.note_undelivered(received - self.delivered + in_frame);
        if read.is_ready() {
            return read;
        }
        if self.connection.protocol == ClientProtocol::Http1
            && progress.is_waiting()
            && !std::mem::replace(&mut self.is_idle, true)
        {
            self.connection.note_idle();
        }
        let was_begun = progress.is_begun();
        let late = self.head.poll(progress, context);
        if self.connection.protocol == ClientProtocol::Http1 && !progress.is_whole() {
            if !was_begun && progress.is_begun() {
                self.connection.note_idle();
            }
            if self.connection.poll_shed(context).is_ready() {
                return Poll::Ready(Err(io::ErrorKind::ConnectionAborted.into()));
            }
        }
        ready!(late);
        Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
    }

    /// Whether the client may be sending more of its request, or another one.
    fn may_be_unread(&self) -> bool {
        self.connection.protocol == ClientProtocol::Http1 && self.connection.head.is_whole()
    }

    /// Reads and discards what the client still sends, until it closes the connection or the time
    /// is over. If a socket is closed while bytes arrive, its connection is reset, and the client
    /// may lose the end of the response.
    fn poll_linger(&mut self, context: &mut Context<'_>) -> Poll<()> {
        let timer = self.linger.get_or_insert_with(|| Box::pin(sleep(LINGER_TIMEOUT)));
        if timer.as_mut().poll(context).is_ready() {
            return Poll::Ready(());
        }
        let socket = self.transport.socket_mut();
        let mut space = [MaybeUninit::<u8>::uninit(); BUFFER_BYTES];
        loop {
            let mut buffer = ReadBuf::uninit(&mut space);
            match ready!(Pin::new(&mut *socket).poll_read(context, &mut buffer)) {
                Ok(()) if !buffer.filled().is_empty() => {}
                _ => return Poll::Ready(()),
            }
        }
    }

    /// Whether no response is being sent over HTTP/1. HTTP/2 marks the ends of responses itself.
    fn is_between_responses(&self) -> bool {
        self.connection.protocol == ClientProtocol::Http2 || !self.connection.head.is_whole()
    }

    /// Frees the buffer, which has been written.
    fn discard(&mut self) {
        self.buffer = Vec::new();
        self.written = 0;
    }
}

impl Transport {
    fn socket_mut(&mut self) -> &mut Socket {
        match self {
            Self::Clear(socket) => socket,
            Self::Tls(stream) => stream.get_mut().0,
        }
    }

    fn socket(&self) -> &Socket {
        match self {
            Self::Clear(socket) => socket,
            Self::Tls(stream) => stream.get_ref().0,
        }
    }
}

/// The addresses of a connection, for Pingora's sessions.
fn digest(socket: &Socket, connection: &ConnectionInfo) -> Arc<SocketDigest> {
    let digest = SocketDigest::from_raw_fd(socket.as_raw_fd());
    // Neither is set yet.
    let _ = digest.peer_addr.set(connection.peer.map(PeerAddress::Inet));
    if socket.peer().is_none() {
        let _ = digest.local_addr.set(None);
    }
    Arc::new(digest)
}

fn at_least_one(count: usize) -> io::Result<usize> {
    if count == 0 { Err(io::ErrorKind::WriteZero.into()) } else { Ok(count) }
}

impl Drop for ClientStream {
    /// Writes what has been collected, as far as the kernel accepts it at once. Between responses,
    /// it also ends the TLS session (close_notify): without that, a client must suspect an attacker
    /// of cutting it off.
    fn drop(&mut self) {
        let context = &mut Context::from_waker(Waker::noop());
        let is_written = self.buffer.is_empty() || self.poll_buffer(context).is_ready();
        if let (true, true, Transport::Tls(stream)) =
            (is_written, self.is_between_responses(), &mut self.transport)
        {
            let _ = Pin::new(stream).poll_shutdown(context);
        }
    }
}

impl AsyncRead for Transport {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Clear(socket) => Pin::new(socket).poll_read(context, buffer),
            Self::Tls(stream) => Pin::new(stream).poll_read(context, buffer),
        }
    }
}

impl AsyncWrite for Transport {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Clear(socket) => Pin::new(socket).poll_write(context, bytes),
            Self::Tls(stream) => Pin::new(stream).poll_write(context, bytes),
        }
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        parts: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Clear(socket) => Pin::new(socket).poll_write_vectored(context, parts),
            Self::Tls(stream) => Pin::new(stream).poll_write_vectored(context, parts),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Clear(socket) => Pin::new(socket).poll_flush(context),
            Self::Tls(stream) => Pin::new(stream).poll_flush(context),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Clear(socket) => Pin::new(socket).poll_shutdown(context),
            Self::Tls(stream) => Pin::new(stream).poll_shutdown(context),
        }
    }
}

impl AsyncRead for ClientStream {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let is_http1 = this.connection.protocol == ClientProtocol::Http1;
        while is_http1 && this.connection.head.is_begun() && !this.held.is_due() {
            let mut space = [MaybeUninit::<u8>::uninit(); BUFFER_BYTES];
            let mut part = ReadBuf::uninit(&mut space);
            ready!(this.poll_bytes(context, &mut part))?;
            if part.filled().is_empty() {
                this.held.end();
                break;
            }
            this.held.push(part.filled());
        }
        if this.held.is_due() {
            this.held.deliver(buffer);
            return Poll::Ready(Ok(()));
        }
        if is_http1 && this.connection.head.is_begun() {
            // The end of the stream has been read.
            return Poll::Ready(Ok(()));
        }
        let (before, is_carried) = (buffer.filled().len(), !this.connection.head.is_waiting());
        ready!(this.poll_bytes(context, buffer))?;
        if is_http1 && this.connection.head.is_begun() {
            let first = &buffer.filled()[before..];
            this.held.begin((!is_carried).then_some(first));
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for ClientStream {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        if this.buffer.len() + bytes.len() <= BUFFER_BYTES {
            let is_before_request = this.connection.protocol == ClientProtocol::Http1
                && !this.connection.head.is_whole();
            let banner = is_before_request.then(|| memmem::find(bytes, BANNER)).flatten();
            if let Some(start) = banner {
                this.buffer.extend_from_slice(&bytes[..start]);
                this.buffer.extend_from_slice(&bytes[start + BANNER.len()..]);
            } else {
                this.buffer.extend_from_slice(bytes);
            }
            return Poll::Ready(Ok(bytes.len()));
        }
        let written = this.poll_with_buffer(context, bytes);
        this.watch(written, context)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        parts: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        // HTTP/2 collects frames itself.
        let this = self.get_mut();
        let written = match this.poll_buffer(context) {
            Poll::Ready(Ok(())) => {
                Pin::new(&mut this.transport).poll_write_vectored(context, parts)
            }
            Poll::Ready(Err(error)) => Poll::Ready(Err(error)),
            Poll::Pending => Poll::Pending,
        };
        this.watch(written, context)
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let flushed = match this.poll_buffer(context) {
            Poll::Ready(Ok(())) => Pin::new(&mut this.transport).poll_flush(context),
            unfinished => unfinished,
        };
        this.watch(flushed, context)
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if this.linger.is_none() {
            let closed = match this.poll_buffer(context) {
                Poll::Ready(Ok(())) => Pin::new(&mut this.transport).poll_shutdown(context),
                unfinished => unfinished,
            };
            ready!(this.watch(closed, context))?;
            if !this.may_be_unread() {
                return Poll::Ready(Ok(()));
            }
        }
        this.poll_linger(context).map(Ok)
    }
}

#[async_trait]
impl Shutdown for ClientStream {
    async fn shutdown(&mut self) {
        // An error means that the client has closed the connection.
        let _ = poll_fn(|context| Pin::new(&mut *self).poll_shutdown(context)).await;
    }
}

impl UniqueID for ClientStream {
    fn id(&self) -> UniqueIDType {
        self.transport.socket().as_raw_fd()
    }
}

impl Ssl for ClientStream {}

impl Peek for ClientStream {}

impl GetTimingDigest for ClientStream {
    fn get_timing_digest(&self) -> Vec<Option<TimingDigest>> {
        Vec::new()
    }
}

impl GetProxyDigest for ClientStream {
    fn get_proxy_digest(&self) -> Option<Arc<ProxyDigest>> {
        None
    }
}

impl GetSocketDigest for ClientStream {
    fn get_socket_digest(&self) -> Option<Arc<SocketDigest>> {
        Some(Arc::clone(&self.digest))
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::UnixStream;

    use super::super::unwritten::Unwritten;
    use super::*;

    const LIMITS: HeadLimits =
        HeadLimits { timeout: Duration::from_secs(10), max_bytes: usize::MAX };

    fn pair() -> (ClientStream, UnixStream) {
        let (here, there) = UnixStream::pair().unwrap();
        let connection = ConnectionInfo::default();
        let progress = WriteProgress::new(Unwritten::default());
        (
            ClientStream::clear(
                Socket::unix(here),
                connection,
                LIMITS,
                progress,
                SendGuard::new(None),
            ),
            there,
        )
    }

    #[tokio::test]
    async fn small_writes_are_sent_by_the_flush_and_leave_no_buffer() {
        let (mut stream, there) = pair();
        stream.write_all(b"head ").await.unwrap();
        stream.write_all(b"body").await.unwrap();
        let mut read = [0; 16];
        assert_eq!(there.try_read(&mut read).unwrap_err().kind(), io::ErrorKind::WouldBlock);
        stream.flush().await.unwrap();
        there.readable().await.unwrap();
        assert_eq!(there.try_read(&mut read).unwrap(), 9);
        assert_eq!(stream.buffer.capacity(), 0);
    }

    #[tokio::test]
    async fn large_body_keeps_its_order_after_a_small_head() {
        let (mut stream, mut there) = pair();
        let body: Vec<u8> = (0..1_000_000_u32).flat_map(u32::to_be_bytes).collect();
        let sent = body.clone();
        let write = async move {
            stream.write_all(b"head").await.unwrap();
            for part in sent.chunks(100_003) {
                stream.write_all(part).await.unwrap();
                stream.write_all(&[]).await.unwrap();
            }
            stream.flush().await.unwrap();
        };
        let read = async {
            let mut read = Vec::new();
            there.read_to_end(&mut read).await.unwrap();
            read
        };
        let ((), read) = tokio::join!(write, read);
        assert_eq!(read[..4], *b"head");
        assert!(read[4..] == body[..]);
    }

    #[tokio::test]
    async fn dropped_stream_sends_what_was_written() {
        let (mut stream, mut there) = pair();
        stream.write_all(b"partial").await.unwrap();
        drop(stream);
        let mut read = String::new();
        there.read_to_string(&mut read).await.unwrap();
        assert_eq!(read, "partial");
    }

    /// What a reader gets of a head that arrives in these parts.
    async fn reads(parts: &[&[u8]]) -> Vec<String> {
        let (mut stream, mut there) = pair();
        let mut reads = Vec::new();
        for part in parts {
            there.write_all(part).await.unwrap();
            let mut space = [0; 64];
            let read = async { stream.read(&mut space).await.unwrap() };
            // The reader gets nothing while a line has no end.
            let read = tokio::select! {
                biased;
                read = read => read,
                () = tokio::task::yield_now() => continue,
            };
            reads.push(String::from_utf8_lossy(&space[..read]).into_owned());
        }
        drop(there);
        let mut rest = String::new();
        stream.read_to_string(&mut rest).await.unwrap();
        reads.push(rest);
        reads
    }

    #[tokio::test]
    async fn head_in_single_bytes_is_read_line_by_line() {
        let head = b"GET / HTTP/1.1\r\nA: b\r\n\r\nGE";
        let parts: Vec<&[u8]> = head.chunks(1).collect();
        let expected = ["G", "ET / HTTP/1.1\r\n", "A: b\r\n", "\r\n", "GE"];
        assert_eq!(reads(&parts).await, expected);
        let whole = [&b"GET / HTTP/1.1\r\nA: "[..], b"b\r\nC: d", b"\r\n\r\n"];
        let expected = ["GET / HTTP/1.1\r\nA: ", "b\r\nC: d", "\r\n\r\n", ""];
        assert_eq!(reads(&whole).await, expected);
    }

    #[tokio::test]
    async fn connection_is_counted_while_its_client_does_not_read() {
        let (here, mut there) = UnixStream::pair().unwrap();
        let unwritten = Unwritten::default();
        let connection = ConnectionInfo::default();
        let progress = WriteProgress::new(unwritten.clone());
        let mut stream = ClientStream::clear(
            Socket::unix(here),
            connection,
            LIMITS,
            progress,
            SendGuard::new(None),
        );
        let body = vec![0; 4_000_000];
        let write = async {
            stream.write_all(&body).await.unwrap();
            stream.flush().await.unwrap();
            drop(stream);
        };
        let read = async {
            while unwritten.count() == 0 {
                tokio::task::yield_now().await;
            }
            let mut read = Vec::new();
            there.read_to_end(&mut read).await.unwrap();
            read.len()
        };
        let ((), read) = tokio::join!(write, read);
        assert_eq!((read, unwritten.count()), (body.len(), 0));
    }
}
