//! TLS handshakes. They run on threads apart from those that serve requests, because one takes as
//! much CPU time as several requests, and within a deadline.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use prometheus::IntCounterVec;
use rustls::server::{Accepted, Acceptor};
use rustls::{Error as TlsError, HandshakeKind};
use thiserror::Error;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::runtime::{Builder, Runtime};
use tokio::sync::Semaphore;
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout, timeout_at};
use tokio_rustls::StartHandshake;
use tokio_rustls::server::TlsStream;

use super::client;
use super::server::{Purpose, Selected, ServerTls};
use crate::base::clock;
use crate::net::socket::Socket;

/// Maximum number of handshakes at a time. Further ones wait, and their deadline runs meanwhile.
const MAX_HANDSHAKES: usize = 16 * 1024;

/// Size of a read before the configuration is selected. Most first messages of clients fit.
const READ_BYTES: usize = 2 * 1024;

/// Maximum time to write an answer to a client that does not speak TLS.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(1);

/// The first byte of every TLS connection: a handshake record.
const HANDSHAKE_RECORD: u8 = 22;

/// The answer to a request in clear: the text is that of nginx, which people search for.
const PLAIN_HTTP: &str = "HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain\r\nContent-Length: 47\r\n\
    Connection: close\r\n\r\nThe plain HTTP request was sent to HTTPS port\r\n";

/// Performs handshakes on threads that serve no requests.
#[derive(Debug)]
pub struct Handshakes {
    /// Always present, except while it is dropped.
    runtime: Option<Runtime>,
    permits: Arc<Semaphore>,
    /// Labels: listener, result.
    results: IntCounterVec,
}

/// Why a handshake has no connection. The socket is closed.
#[derive(Debug, Error)]
pub enum HandshakeError {
    /// It was not complete at its deadline.
    #[error("the handshake was not complete in time")]
    Timeout,
    /// No certificate has been obtained yet, or none that answers this challenge.
    #[error("there is no certificate for this server name")]
    NoCertificate,
    /// The client's certificate is missing, or is refused.
    #[error("client certificate: {0}")]
    ClientCertificate(TlsError),
    /// What the client sent is not TLS, or has nothing in common with what the listener accepts.
    #[error("{0}")]
    Protocol(TlsError),
    /// The client sent a request in clear.
    #[error("a request in plain HTTP")]
    PlainHttp,
    /// The client closed the connection.
    #[error("the client closed the connection: {0}")]
    Closed(io::Error),
    /// It was a challenge of an ACME authority, which has been answered.
    #[error("an ACME challenge was answered")]
    ChallengeAnswered,
    /// The process ends.
    #[error("the process ends")]
    Stopped,
}

/// Aborts its task when it is dropped.
struct Task<T>(JoinHandle<T>);

// === impl Handshakes ===

impl Handshakes {
    /// Starts this many threads, at least one. `results` has the labels `listener` and `result`.
    ///
    /// # Errors
    /// The error of the system.
    pub fn start(threads: usize, results: IntCounterVec) -> io::Result<Self> {
        let runtime = Builder::new_multi_thread()
            .worker_threads(threads.max(1))
            .thread_name("tls-handshake")
            .enable_all()
            .build()?;
        let permits = Arc::new(Semaphore::new(MAX_HANDSHAKES));
        Ok(Self { runtime: Some(runtime), permits, results })
    }

    /// Performs a handshake until `deadline`, and counts its result. The socket of the result is
    /// registered with the caller's runtime. Dropping the future ends the handshake.
    ///
    /// # Errors
    /// See [`HandshakeError`].
    pub async fn perform(
        &self,
        socket: Socket,
        tls: Arc<ServerTls>,
        deadline: Instant,
    ) -> Result<TlsStream<Socket>, HandshakeError> {
        let result = self.run(socket, Arc::clone(&tls), deadline).await;
        let label = match &result {
            Ok(stream) => ok_label(stream),
            Err(error) => error.label(),
        };
        self.results.with_label_values(&[tls.listener(), label]).inc();
        result
    }

    async fn run(
        &self,
        socket: Socket,
        tls: Arc<ServerTls>,
        deadline: Instant,
    ) -> Result<TlsStream<Socket>, HandshakeError> {
        let Some(runtime) = &self.runtime else { return Err(HandshakeError::Stopped) };
        let permits = Arc::clone(&self.permits);
        let mut task = Task(runtime.spawn(async move {
            let handshake = async {
                let _permit = permits.acquire_owned().await.map_err(|_| HandshakeError::Stopped)?;
                accept(socket, &tls).await
            };
            timeout_at(deadline, handshake).await.unwrap_or(Err(HandshakeError::Timeout))
        }));
        let mut stream = (&mut task.0).await.map_err(|_| HandshakeError::Stopped)??;
        stream.get_mut().0.reregister().map_err(HandshakeError::Closed)?;
        Ok(stream)
    }
}

impl Drop for Handshakes {
    fn drop(&mut self) {
        // Handshakes that are not complete do not delay the end of the process.
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

impl<T> Drop for Task<T> {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// A whole handshake, on the current runtime.
async fn accept(mut socket: Socket, tls: &ServerTls) -> Result<TlsStream<Socket>, HandshakeError> {
    socket.reregister().map_err(HandshakeError::Closed)?;
    let accepted = hello(&mut socket).await?;
    let Selected { config, purpose, has_certificate } = tls.select(&accepted.client_hello());
    let handshake = StartHandshake::from_parts(accepted, socket).into_stream(config).await;
    let mut stream = handshake.map_err(|error| {
        // The client has received an alert.
        if has_certificate { HandshakeError::of(error) } else { HandshakeError::NoCertificate }
    })?;
    match purpose {
        // A client whose certificate has no subject here must not count as one without a
        // certificate.
        Purpose::Requests => match client::check(stream.get_ref().1, clock::unix_seconds()) {
            Ok(()) => Ok(stream),
            Err(wrong) => Err(HandshakeError::ClientCertificate(wrong.into())),
        },
        Purpose::Challenge => {
            // The authority has seen the certificate; it may have closed the connection.
            let _ = stream.shutdown().await;
            Err(HandshakeError::ChallengeAnswered)
        }
    }
}

/// Reads the first message of the client.
async fn hello(socket: &mut Socket) -> Result<Accepted, HandshakeError> {
    let mut acceptor = Acceptor::default();
    let mut is_first = true;
    loop {
        let mut buffer = [0; READ_BYTES];
        let count = socket.read(&mut buffer).await.map_err(HandshakeError::Closed)?;
        let mut unread = &buffer[..count];
        if unread.is_empty() {
            return Err(HandshakeError::Closed(io::ErrorKind::UnexpectedEof.into()));
        }
        if std::mem::take(&mut is_first) && is_http(unread) {
            refuse_http(socket).await;
            return Err(HandshakeError::PlainHttp);
        }
        while !unread.is_empty() {
            acceptor.read_tls(&mut unread).map_err(HandshakeError::of)?;
        }
        match acceptor.accept() {
            Ok(Some(accepted)) => return Ok(accepted),
            Ok(None) => {}
            Err((error, mut alert)) => {
                let mut bytes = Vec::new();
                if alert.write_all(&mut bytes).is_ok() {
                    let _ = timeout(ANSWER_TIMEOUT, socket.write_all(&bytes)).await;
                }
                return Err(HandshakeError::Protocol(error));
            }
        }
    }
}

/// Whether these are the first bytes of a request in clear: a method in upper case.
fn is_http(first: &[u8]) -> bool {
    first.first() != Some(&HANDSHAKE_RECORD) && first.iter().take(3).all(u8::is_ascii_uppercase)
}

/// Answers a request in clear, as nginx does.
async fn refuse_http(socket: &mut Socket) {
    let answer = async {
        socket.write_all(PLAIN_HTTP.as_bytes()).await?;
        socket.shutdown().await
    };
    let _ = timeout(ANSWER_TIMEOUT, answer).await;
}

fn ok_label(stream: &TlsStream<Socket>) -> &'static str {
    match stream.get_ref().1.handshake_kind() {
        Some(HandshakeKind::Resumed) => "resumed",
        _ => "ok",
    }
}

// === impl HandshakeError ===

impl HandshakeError {
    fn of(error: io::Error) -> Self {
        let inner = error.get_ref().and_then(|inner| inner.downcast_ref::<TlsError>());
        match inner {
            None => Self::Closed(error),
            Some(error) => Self::of_tls(error.clone()),
        }
    }

    fn of_tls(error: TlsError) -> Self {
        match &error {
            TlsError::NoCertificatesPresented | TlsError::InvalidCertificate(_) => {
                Self::ClientCertificate(error)
            }
            _ => Self::Protocol(error),
        }
    }

    /// The result as `tollgate_tls_handshakes_total` counts it.
    fn label(&self) -> &'static str {
        match self {
            Self::Timeout => "timeout",
            Self::NoCertificate => "no_certificate",
            Self::ClientCertificate(_) => "client_certificate",
            Self::Protocol(_) | Self::PlainHttp => "protocol",
            Self::Closed(_) | Self::Stopped => "closed",
            Self::ChallengeAnswered => "ok",
        }
    }
}
