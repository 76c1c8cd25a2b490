//! An HTTP/1.1 client for the requests that tollgate itself sends: spans to a collector, and
//! requests to an admin port. Proxied requests do not use it. The protocol is Pingora's.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use futures_util::FutureExt as _;
use http::header::{CONTENT_LENGTH, HOST, USER_AGENT};
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode};
use parking_lot::Mutex;
use pingora::prelude::RequestHeader;
use pingora::protocols::Stream;
use pingora::protocols::http::v1::client::HttpSession;
use pingora::protocols::l4::stream::Stream as RawStream;
use pingora::protocols::l4::virt::{VirtualSockOpt, VirtualSocket, VirtualSocketStream};
use thiserror::Error;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::sync::Mutex as AsyncMutex;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::address::HostPort;
use super::io_text::without_manual;
use super::tls::{self, ClientTls, SettingNames};
use crate::base::blocking::{BlockingCalls, NoResult};
use crate::base::clock;

/// How long an idle connection is kept, in microseconds.
const IDLE_TIMEOUT_US: u64 = 60_000_000;

/// How long reading the TLS files can take, unless the request has less time.
const READ_TIMEOUT: Duration = Duration::from_secs(5);

/// Percentage of the time of a request that reading the TLS files can take. The error then names
/// the files, and not a server that was not asked.
const READ_PERCENT: u32 = 80;

/// Maximum number of idle connections kept, unless the caller says otherwise.
const MAX_IDLE: usize = 2;

/// Value of `User-Agent` in requests that tollgate itself sends.
pub(crate) const PRODUCT: HeaderValue =
    HeaderValue::from_static(concat!("tollgate/", env!("CARGO_PKG_VERSION")));

/// Sends requests to one server and keeps idle connections for later requests.
pub struct HttpClient {
    server: HostPort,
    tls: Option<TlsFiles>,
    idle: Arc<Mutex<Vec<Idle>>>,
    max_idle: usize,
}

/// The files of connections by TLS.
struct TlsFiles {
    names: SettingNames<'static>,
    files: ClientTls,
    reads: FileReads,
}

/// Reads the TLS files of one or more clients. Clones share the threads that may block. A caller
/// that creates a client for each request keeps one, so that their number has a limit.
#[derive(Debug, Clone, Default)]
pub struct FileReads {
    calls: BlockingCalls,
    /// One connection at a time reads them, so that many new ones are not too many calls.
    turn: Arc<AsyncMutex<()>>,
}

/// A request. The client adds `Host`, `User-Agent` and `Content-Length`.
#[derive(Debug)]
pub struct Request<'a> {
    /// HTTP method, such as `GET`.
    pub method: Method,
    /// Path and query; begins with a slash.
    pub path: &'a str,
    /// Additional headers. The first of a name replaces one of the client, and others follow it.
    pub headers: Vec<(HeaderName, HeaderValue)>,
    /// The body; empty for none.
    pub body: &'a [u8],
}

/// The head of a response, and its body if that is short enough.
#[derive(Debug)]
pub struct Response {
    /// The status, 200 or above.
    pub status: StatusCode,
    pub headers: HeaderMap,
    /// The whole body; an error if it exceeds the caller's maximum.
    pub body: Result<Vec<u8>, BodyTooLong>,
}

/// The head of a response, and the body as it arrives.
pub struct StreamingResponse {
    session: HttpSession,
    idle: Arc<Mutex<Vec<Idle>>>,
    max_idle: usize,
}

/// A body has more bytes than this, and was not read to its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("the body of the response is longer than {0} bytes")]
pub struct BodyTooLong(pub usize);

/// Why there is no response.
#[derive(Debug, Error)]
pub enum HttpError {
    /// The TLS files, the name look-up, the TCP connection or the TLS handshake failed.
    #[error("cannot connect: {0}")]
    Connect(io::Error),
    /// The connection failed before the head of the response, or the server does not speak HTTP.
    #[error("{}", without_manual(&.0.to_string()).trim())]
    Head(Box<pingora::Error>),
    /// The connection failed within the body.
    #[error("{}", without_manual(&.0.to_string()).trim())]
    Body(Box<pingora::Error>),
    /// The response, or the next part of its body, took longer than this.
    #[error("no answer within {0:?}")]
    Timeout(Duration),
}

/// A connection that further requests can use.
struct Idle {
    stream: Stream,
    /// The time since which it is idle, in microseconds.
    since: u64,
}

impl HttpClient {
    /// Creates a client for `server`. With `tls` it connects by TLS; the names are those of the
    /// settings, for errors. Does not connect yet.
    pub fn new(server: HostPort, tls: Option<(SettingNames<'static>, ClientTls)>) -> Self {
        let reads = FileReads::default();
        let tls = tls.map(|(names, files)| TlsFiles { names, files, reads });
        Self { server, tls, idle: Arc::default(), max_idle: MAX_IDLE }
    }

    /// The same, which keeps up to this many idle connections.
    pub fn with_idle(self, max_idle: usize) -> Self {
        Self { max_idle, ..self }
    }

    /// The same, which reads its TLS files by `reads`.
    pub fn with_reads(mut self, reads: &FileReads) -> Self {
        if let Some(tls) = &mut self.tls {
            tls.reads = reads.clone();
        }
        self
    }

    /// Sends a request and reads the whole response within `deadline`, with at most `max_bytes` of
    /// its body.
    ///
    /// # Errors
    /// See [`HttpError`]. A status that is an error is a response.
    pub async fn fetch(
        &self,
        request: &Request<'_>,
        deadline: Duration,
        max_bytes: usize,
    ) -> Result<Response, HttpError> {
        let fetch = async { self.exchange(request, deadline).await?.read_to_end(max_bytes).await };
        timeout(deadline, fetch).await.unwrap_or(Err(HttpError::Timeout(deadline)))
    }

    /// Sends a request and reads the head of the response within `deadline`.
    ///
    /// # Errors
    /// See [`HttpError`]. A status that is an error is a response.
    pub async fn open(
        &self,
        request: &Request<'_>,
        deadline: Duration,
    ) -> Result<StreamingResponse, HttpError> {
        let open = self.exchange(request, deadline);
        timeout(deadline, open).await.unwrap_or(Err(HttpError::Timeout(deadline)))
    }

    async fn exchange(
        &self,
        request: &Request<'_>,
        deadline: Duration,
    ) -> Result<StreamingResponse, HttpError> {
        let head = self.head(request).map_err(HttpError::Head)?;
        // If it fails on an idle connection, the server may have closed it meanwhile, and has not
        // answered anyway. Only once: what makes the server close is not sent on each of them.
        let sent = match self.take_idle().await {
            Some(stream) => send(stream, &head, request.body).await.ok(),
            None => None,
        };
        let session = if let Some(session) = sent {
            session
        } else {
            let stream = self.connect(deadline).await.map_err(HttpError::Connect)?;
            send(stream, &head, request.body).await.map_err(HttpError::Head)?
        };
        let (idle, max_idle) = (Arc::clone(&self.idle), self.max_idle);
        Ok(StreamingResponse { session, idle, max_idle })
    }

    fn head(&self, request: &Request<'_>) -> pingora::Result<RequestHeader> {
        let size = Some(request.headers.len() + 3);
        let mut head = RequestHeader::build(request.method.clone(), request.path.as_bytes(), size)?;
        head.insert_header(HOST, self.server.to_string())?;
        head.insert_header(USER_AGENT, PRODUCT)?;
        for (index, (name, value)) in request.headers.iter().enumerate() {
            if request.headers.iter().take(index).any(|(earlier, _)| earlier == name) {
                head.append_header(name.clone(), value.clone())?;
            } else {
                head.insert_header(name.clone(), value.clone())?;
            }
        }
        if !request.body.is_empty() {
            head.insert_header(CONTENT_LENGTH, request.body.len())?;
        }
        Ok(head)
    }

    /// An idle connection that is open and silent. What a server has sent after a response, as a
    /// 408 before it closes, would be the response to the next request.
    async fn take_idle(&self) -> Option<Stream> {
        while let Some(mut stream) = self.pop_idle() {
            // The runtime then knows what has arrived.
            tokio::task::yield_now().await;
            let mut byte = [0];
            let read = tokio::task::unconstrained(stream.read(&mut byte));
            if read.now_or_never().is_none() {
                return Some(stream);
            }
        }
        None
    }

    fn pop_idle(&self) -> Option<Stream> {
        let now = clock::now();
        let mut idle = self.idle.lock();
        idle.retain(|idle| now.saturating_sub(idle.since) < IDLE_TIMEOUT_US);
        idle.pop().map(|idle| idle.stream)
    }

    async fn connect(&self, deadline: Duration) -> io::Result<Stream> {
        let HostPort { host, port } = &self.server;
        // First: a server need not wait for the files.
        let connector = match &self.tls {
            Some(tls) => Some(tls.connector(deadline).await?),
            None => None,
        };
        let stream = TcpStream::connect((host.as_str(), *port)).await?;
        stream.set_nodelay(true)?;
        let Some(connector) = connector else { return Ok(Box::new(RawStream::from(stream))) };
        let stream = connector.connect(tls::server_name(host)?, stream).await?;
        let stream = VirtualSocketStream::new(Box::new(Encrypted(Box::new(stream))));
        Ok(Box::new(RawStream::from(stream)))
    }
}

impl TlsFiles {
    /// Reads the files, for every connection: a renewed certificate needs no restart. On another
    /// thread: on a network mount whose server is gone, that may never end. `deadline` is that of
    /// the request.
    async fn connector(&self, deadline: Duration) -> io::Result<TlsConnector> {
        let (names, files) = (self.names, self.files.clone());
        if files.paths().next().is_none() {
            return tls::connector(names, &files).map_err(io::Error::other);
        }
        let longest = READ_TIMEOUT.min(deadline.saturating_mul(READ_PERCENT) / 100);
        let read = async {
            let _turn = self.reads.turn.lock().await;
            self.reads.calls.run(READ_TIMEOUT, move || tls::connector(names, &files)).await
        };
        let read = timeout(longest, read).await.unwrap_or(Err(NoResult::Late(longest)));
        match read {
            Ok(connector) => connector.map_err(io::Error::other),
            Err(error) => Err(self.unreadable(&error)),
        }
    }

    /// The error of files that are not read.
    fn unreadable(&self, error: &NoResult) -> io::Error {
        let paths = self.files.paths().map(|path| path.display().to_string());
        let paths = paths.collect::<Vec<_>>().join(" and ");
        io::Error::other(format!("[{}]: cannot read {paths}: {error}", self.names.table))
    }
}

/// Sends a request and reads the head of the response; informational ones are skipped.
///
/// # Errors
/// The connection fails, or the server does not speak HTTP.
pub(crate) async fn send(
    stream: Stream,
    head: &RequestHeader,
    body: &[u8],
) -> pingora::Result<HttpSession> {
    let mut session = HttpSession::new(stream);
    session.write_request_header(Box::new(head.clone())).await?;
    if !body.is_empty() {
        session.write_body(body).await?;
        session.finish_body().await?;
    }
    session.read_response().await?;
    while session.get_status().is_some_and(|status| status.is_informational()) {
        session.read_response().await?;
    }
    Ok(session)
}

impl StreamingResponse {
    /// Returns the status, 200 or above.
    pub fn status(&self) -> StatusCode {
        self.session.get_status().unwrap_or_default()
    }

    /// Returns the first header of a name.
    pub fn header(&self, name: &HeaderName) -> Option<&HeaderValue> {
        self.session.get_header(name)
    }

    /// Returns the next part of the body, `None` at its end.
    ///
    /// # Errors
    /// [`HttpError::Body`], and [`HttpError::Timeout`] if no part comes within `deadline`.
    pub async fn next(&mut self, deadline: Duration) -> Result<Option<Bytes>, HttpError> {
        let next = timeout(deadline, self.session.read_body_bytes()).await;
        next.map_err(|_| HttpError::Timeout(deadline))?.map_err(HttpError::Body)
    }

    /// Reads the rest of the response within `deadline`, with at most `max_bytes` of its body.
    /// After its end, the connection is kept for another request.
    ///
    /// # Errors
    /// [`HttpError::Body`] and [`HttpError::Timeout`].
    pub async fn read(self, deadline: Duration, max_bytes: usize) -> Result<Response, HttpError> {
        let read = self.read_to_end(max_bytes);
        timeout(deadline, read).await.unwrap_or(Err(HttpError::Timeout(deadline)))
    }

    async fn read_to_end(mut self, max_bytes: usize) -> Result<Response, HttpError> {
        let mut body = Vec::new();
        while let Some(part) = self.session.read_body_ref().await.map_err(HttpError::Body)? {
            body.extend_from_slice(part);
            if body.len() > max_bytes {
                return Ok(self.response(Err(BodyTooLong(max_bytes))));
            }
        }
        let response = self.response(Ok(body));
        self.session.respect_keepalive();
        if let Some(stream) = self.session.reuse().await {
            let mut idle = self.idle.lock();
            idle.truncate(self.max_idle.saturating_sub(1));
            idle.push(Idle { stream, since: clock::now() });
        }
        Ok(response)
    }

    fn response(&self, body: Result<Vec<u8>, BodyTooLong>) -> Response {
        let headers = self.session.resp_header().map(|head| head.headers.clone());
        Response { status: self.status(), headers: headers.unwrap_or_default(), body }
    }
}

/// A TLS connection, as Pingora accepts it.
#[derive(Debug)]
struct Encrypted(Box<TlsStream<TcpStream>>);

impl VirtualSocket for Encrypted {
    fn set_socket_option(&self, _: VirtualSockOpt) -> io::Result<()> {
        Ok(())
    }
}

impl AsyncRead for Encrypted {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_read(context, buffer)
    }
}

impl AsyncWrite for Encrypted {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::AsyncWriteExt as _;
    use tokio::net::TcpListener;
    use tokio::sync::mpsc;

    use super::*;
    use crate::base::blocking::MAX_CALLS;

    const DEADLINE: Duration = Duration::from_secs(5);
    const OK: &str = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";

    /// The head of a request; `None` if the client closes the connection before its end.
    async fn read_head(stream: &mut TcpStream) -> Option<String> {
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            head.push(stream.read_u8().await.ok()?);
        }
        String::from_utf8(head).ok()
    }

    /// A server that sends these responses on each connection and then closes it. Reports each
    /// request with the number of its connection.
    async fn server(
        responses: &'static [&'static str],
    ) -> (HttpClient, mpsc::UnboundedReceiver<(usize, String)>) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let (reports, requests) = mpsc::unbounded_channel();
        tokio::spawn(async move {
            for connection in 0.. {
                let (mut stream, _) = listener.accept().await.unwrap();
                for response in responses {
                    let Some(head) = read_head(&mut stream).await else { break };
                    if reports.send((connection, head)).is_err() {
                        return;
                    }
                    stream.write_all(response.as_bytes()).await.unwrap();
                }
            }
        });
        let server = HostPort { host: "127.0.0.1".to_owned(), port };
        (HttpClient::new(server, None), requests)
    }

    fn get(path: &str) -> Request<'_> {
        Request { method: Method::GET, path, headers: Vec::new(), body: b"" }
    }

    #[tokio::test]
    async fn connection_is_reused_until_the_server_closes_it() {
        let (client, mut requests) = server(&[OK, OK]).await;
        let mut connections = Vec::new();
        for _ in 0..4 {
            let response = client.fetch(&get("/a?b=c"), DEADLINE, 100).await.unwrap();
            assert_eq!(response.status, StatusCode::OK);
            assert_eq!(response.body.unwrap(), b"ok");
            let (connection, head) = requests.recv().await.unwrap();
            assert!(head.starts_with("GET /a?b=c HTTP/1.1\r\n"), "{head}");
            let lower = head.to_ascii_lowercase();
            assert!(lower.contains(&format!("\r\nhost: {}\r\n", client.server)), "{head}");
            assert!(lower.contains("\r\nuser-agent: tollgate/"), "{head}");
            assert!(!lower.contains("content-length"), "{head}");
            connections.push(connection);
        }
        assert_eq!(connections, [0, 0, 1, 1]);
    }

    #[tokio::test]
    async fn what_a_server_sends_after_a_response_is_no_response() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let client = HttpClient::new(HostPort { host: "127.0.0.1".to_owned(), port }, None);
        let request = get("/");
        let answer = async || {
            let (mut stream, _) = listener.accept().await.unwrap();
            read_head(&mut stream).await.unwrap();
            stream.write_all(OK.as_bytes()).await.unwrap();
            stream
        };
        let (response, mut first) = tokio::join!(client.fetch(&request, DEADLINE, 100), answer());
        assert_eq!(response.unwrap().status, StatusCode::OK);
        let late = b"HTTP/1.1 408 Request Timeout\r\nContent-Length: 0\r\n\r\n";
        first.write_all(late).await.unwrap();
        let (response, _second) = tokio::join!(client.fetch(&request, DEADLINE, 100), answer());
        assert_eq!(response.unwrap().status, StatusCode::OK);
    }

    /// A file that cannot be read yet, as on a network mount whose server is gone.
    #[tokio::test]
    async fn file_that_blocks_delays_no_request_beyond_its_deadline() {
        let folder = tempfile::tempdir().unwrap();
        let ca = folder.path().join("ca.pem");
        nix::unistd::mkfifo(&ca, nix::sys::stat::Mode::S_IRWXU).unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let server = HostPort { host: "127.0.0.1".to_owned(), port };
        let files = ClientTls { ca: Some(ca), certificate: None };
        let reads = FileReads::default();
        // As callers that need a client only once.
        let client = || {
            let tls = Some((tls::FORWARD_AUTH, files.clone()));
            HttpClient::new(server.clone(), tls).with_reads(&reads)
        };
        let deadline = Duration::from_millis(50);
        for _ in 0..MAX_CALLS {
            let error = client().fetch(&get("/"), deadline, 100).await.unwrap_err().to_string();
            assert!(error.contains("cannot read") && error.contains("ca.pem: it took"), "{error}");
        }
        let error = client().fetch(&get("/"), DEADLINE, 100).await.unwrap_err();
        assert!(matches!(error, HttpError::Connect(_)), "{error}");
        assert!(error.to_string().contains("earlier calls are still blocked"), "{error}");
        let accepted = tokio::task::unconstrained(listener.accept()).now_or_never();
        assert!(accepted.is_none(), "the files are read before the server is asked");
    }

    #[tokio::test]
    async fn client_without_tls_files_needs_no_thread_for_them() {
        let server = HostPort { host: "127.0.0.1".to_owned(), port: 1 };
        let client = HttpClient::new(server, Some((tls::FORWARD_AUTH, ClientTls::default())));
        let tls = client.tls.as_ref().unwrap();
        // A read of files would wait for its turn.
        let _turn = tls.reads.turn.lock().await;
        assert!(tls.connector(DEADLINE).now_or_never().unwrap().is_ok());
    }

    /// A server that answers the first request of each connection, and closes it after the next.
    #[tokio::test]
    async fn request_is_repeated_on_one_other_connection() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let server = HostPort { host: "127.0.0.1".to_owned(), port };
        let client = HttpClient::new(server, None).with_idle(3);
        let (reports, mut requests) = mpsc::unbounded_channel();
        let all_sent = Arc::new(tokio::sync::Barrier::new(3));
        tokio::spawn(async move {
            loop {
                let (mut stream, _) = listener.accept().await.unwrap();
                let (reports, all_sent) = (reports.clone(), Arc::clone(&all_sent));
                tokio::spawn(async move {
                    let Some(head) = read_head(&mut stream).await else { return };
                    if head.starts_with("GET /first ") {
                        // No connection is idle before there are three.
                        all_sent.wait().await;
                    }
                    let _ = reports.send(head);
                    stream.write_all(OK.as_bytes()).await.unwrap();
                    let Some(head) = read_head(&mut stream).await else { return };
                    let _ = reports.send(head);
                });
            }
        });
        let request = get("/first");
        let fetch = || client.fetch(&request, DEADLINE, 100);
        let (a, b, c) = tokio::join!(fetch(), fetch(), fetch());
        assert!([a, b, c].iter().all(Result::is_ok));
        assert_eq!(client.idle.lock().len(), 3);
        client.fetch(&get("/second"), DEADLINE, 100).await.unwrap();
        drop(client);
        let mut seconds = 0;
        for _ in 0..5 {
            seconds += usize::from(requests.recv().await.unwrap().starts_with("GET /second "));
        }
        assert_eq!(seconds, 2);
        assert!(requests.try_recv().is_err());
    }

    #[tokio::test]
    async fn body_is_limited_and_its_connection_not_reused() {
        let (client, mut requests) = server(&[OK]).await;
        for connection in 0..2 {
            let response = client.fetch(&get("/"), DEADLINE, 1).await.unwrap();
            assert_eq!((response.status, response.body), (StatusCode::OK, Err(BodyTooLong(1))));
            assert_eq!(requests.recv().await.unwrap().0, connection);
        }
    }

    #[tokio::test]
    async fn body_arrives_in_parts() {
        let chunked = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nX-A: b\r\n\r\n\
                       2\r\nab\r\n1\r\nc\r\n0\r\n\r\n";
        let (client, _requests) = server(Box::leak(Box::new([chunked]))).await;
        let mut response = client.open(&get("/"), DEADLINE).await.unwrap();
        assert_eq!(response.header(&HeaderName::from_static("x-a")).unwrap(), "b");
        let mut body = Vec::new();
        while let Some(part) = response.next(DEADLINE).await.unwrap() {
            body.extend_from_slice(&part);
        }
        assert_eq!(body, b"abc");
    }

    #[tokio::test]
    async fn informational_responses_are_skipped() {
        let early = "HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n\
                     HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n";
        let (client, _requests) = server(Box::leak(Box::new([early]))).await;
        let response = client.fetch(&get("/"), DEADLINE, 1).await.unwrap();
        assert_eq!((response.status, response.body), (StatusCode::NOT_FOUND, Ok(Vec::new())));
    }

    #[tokio::test]
    async fn error_says_which_part_failed() {
        let fetch = async |response: &'static str| {
            let (client, _requests) = server(Box::leak(Box::new([response]))).await;
            client.fetch(&get("/"), DEADLINE, 100).await.unwrap_err()
        };
        assert!(matches!(fetch("SSH-2.0-OpenSSH_9.2\r\n\r\n").await, HttpError::Head(_)));
        assert!(matches!(fetch("").await, HttpError::Head(_)));
        let cut = "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nno";
        assert!(matches!(fetch(cut).await, HttpError::Body(_)));

        let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let HostPort { host, port } =
            HostPort::parse(&silent.local_addr().unwrap().to_string(), None).unwrap();
        let client = HttpClient::new(HostPort { host, port }, None);
        let deadline = Duration::from_millis(50);
        let error = client.fetch(&get("/"), deadline, 100).await.unwrap_err();
        assert_eq!(error.to_string(), "no answer within 50ms");
        drop(silent);
        let error = client.fetch(&get("/"), DEADLINE, 100).await.unwrap_err();
        assert_eq!(error.to_string(), "cannot connect: Connection refused (os error 111)");
    }
}
