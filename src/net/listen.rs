//! Listeners, bound before any service starts.
//!
//! Pingora binds addresses in the task of the service: if a port is taken it retries for half a
//! minute, then panics, and the process keeps running without a listener. This module binds each
//! address first, when an error can still end the process, and passes the open socket to Pingora.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::{IntoRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::Arc;

use async_trait::async_trait;
use parking_lot::Mutex;
use pingora::server::{Fds, ListenFds, ShutdownWatch};
use pingora::services::Service;
use pingora::services::background::BackgroundService;
use socket2::SockRef;
use thiserror::Error;

use super::socket::Socket;
use super::unix_socket::{SocketFile, UnixSocket};

/// Connections that wait to be accepted. The standard library has 128, which a flood of connections fills in
/// milliseconds: others then wait for a second or more. The kernel has a limit, too (`net.core.somaxconn`).
const BACKLOG: i32 = 4096;

/// A bound, listening, non-blocking socket.
#[derive(Debug)]
pub struct Listener {
    socket: OwnedFd,
    address: SocketAddr,
}

/// A socket that clients connect to.
#[derive(Debug)]
pub enum ClientListener {
    /// A TCP address.
    Tcp(Listener),
    /// A Unix socket.
    Unix(UnixSocket),
}

/// A socket that clients connect to, registered with the runtime of its service.
#[derive(Debug)]
pub struct Accepting(Registered);

#[derive(Debug)]
enum Registered {
    Tcp(tokio::net::TcpListener),
    Unix { listener: tokio::net::UnixListener, _file: SocketFile },
}

/// An address that could not be bound.
#[derive(Debug, Error)]
pub enum BindError {
    /// A TCP address.
    #[error("cannot listen on {address}: {}", reason(.source, *.address))]
    Tcp {
        /// The address.
        address: SocketAddr,
        /// Why.
        source: io::Error,
    },
    /// A Unix socket.
    #[error("cannot listen on unix:{}: {}", path.display(), unix_reason(.source))]
    Unix {
        /// The path of its file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
}

/// A Pingora service that accepts connections on listeners that are already bound.
pub struct Prebound<S> {
    service: S,
    listeners: Mutex<Vec<Listener>>,
    serves_while_draining: bool,
    companion: Option<Arc<dyn BackgroundService + Send + Sync>>,
    starts_after: Mutex<Option<Condition>>,
}

/// Completes when a service may start.
type Condition = Pin<Box<dyn Future<Output = ()> + Send>>;

impl Listener {
    /// Binds a TCP address. Port 0 selects a free port.
    ///
    /// # Errors
    /// The address cannot be bound. The message says what to do about it.
    pub fn bind(address: SocketAddr) -> Result<Self, BindError> {
        let error = |source| BindError::Tcp { address, source };
        let listener = TcpListener::bind(address).map_err(error)?;
        listener.set_nonblocking(true).map_err(error)?;
        SockRef::from(&listener).listen(BACKLOG).map_err(error)?;
        let address = listener.local_addr().map_err(error)?;
        Ok(Self { socket: listener.into(), address })
    }

    /// Returns the address that clients can connect to. Its port is never 0.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns the name under which a Pingora service finds the socket: what it must be passed to
    /// `add_tcp`.
    pub fn service_name(&self) -> String {
        self.address.to_string()
    }
}

fn reason(error: &io::Error, address: SocketAddr) -> String {
    match error.kind() {
        io::ErrorKind::AddrInUse => format!(
            "port {port} is taken, by another process (`ss -ltnp 'sport = :{port}'` shows which) or \
             by another address of the file; choose another port",
            port = address.port()
        ),
        io::ErrorKind::PermissionDenied => format!(
            "ports below 1024 need root or CAP_NET_BIND_SERVICE; choose a port above, not {}",
            address.port()
        ),
        io::ErrorKind::AddrNotAvailable => {
            format!("this machine has no address {}", address.ip())
        }
        _ => error.to_string(),
    }
}

fn unix_reason(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::AddrInUse => {
            "another process listens on it, or the file is not a socket; choose another path"
                .to_owned()
        }
        io::ErrorKind::NotFound => "its folder does not exist; create it".to_owned(),
        io::ErrorKind::PermissionDenied => {
            "files cannot be created in its folder; choose another, or change its permissions"
                .to_owned()
        }
        _ => error.to_string(),
    }
}

impl ClientListener {
    /// Binds a Unix socket whose file has the permissions `mode`. A file on which no process listens is
    /// replaced.
    ///
    /// # Errors
    /// The path cannot be bound. The message says what to do about it.
    pub fn unix(path: &Path, mode: u32) -> Result<Self, BindError> {
        let error = |source| BindError::Unix { path: path.to_owned(), source };
        UnixSocket::bind(path, mode).map(Self::Unix).map_err(error)
    }

    /// Returns the TCP address that clients can connect to; `None` for a Unix socket.
    pub fn address(&self) -> Option<SocketAddr> {
        match self {
            Self::Tcp(listener) => Some(listener.address),
            Self::Unix(_) => None,
        }
    }

    /// Registers the socket with the runtime of the caller.
    ///
    /// # Errors
    /// The error of the system.
    ///
    /// # Panics
    /// If called outside of a tokio runtime.
    pub fn register(self) -> io::Result<Accepting> {
        Ok(Accepting(match self {
            Self::Tcp(listener) => {
                Registered::Tcp(tokio::net::TcpListener::from_std(listener.socket.into())?)
            }
            Self::Unix(UnixSocket { socket, file }) => {
                let listener = tokio::net::UnixListener::from_std(socket)?;
                Registered::Unix { listener, _file: file }
            }
        }))
    }
}

impl Accepting {
    /// Accepts a connection.
    ///
    /// # Errors
    /// The error of the system.
    pub async fn accept(&self) -> io::Result<Socket> {
        match &self.0 {
            Registered::Tcp(listener) => {
                let (stream, peer) = listener.accept().await?;
                // Fails only if the client has closed the connection.
                let _ = stream.set_nodelay(true);
                Ok(Socket::tcp(stream, peer))
            }
            Registered::Unix { listener, .. } => Ok(Socket::unix(listener.accept().await?.0)),
        }
    }
}

impl<S> Prebound<S> {
    /// Wraps `service`, to which the [`service_name`](Listener::service_name) of each listener has
    /// been added.
    pub fn new(service: S, listeners: Vec<Listener>) -> Self {
        Self {
            service,
            listeners: Mutex::new(listeners),
            serves_while_draining: false,
            companion: None,
            starts_after: Mutex::default(),
        }
    }

    /// Keeps serving until the process ends, so that clients can see that it is draining.
    pub fn serving_while_draining(self) -> Self {
        Self { serves_while_draining: true, ..self }
    }

    /// Runs another service on the same threads. The connections that it keeps open for this
    /// service then need no wake-up of another thread for each use.
    pub fn with_companion(self, companion: Arc<dyn BackgroundService + Send + Sync>) -> Self {
        Self { companion: Some(companion), ..self }
    }

    /// Accepts connections when `condition` has completed. Until then they wait in the backlog of
    /// the socket.
    pub fn starting_after(self, condition: impl Future<Output = ()> + Send + 'static) -> Self {
        Self { starts_after: Mutex::new(Some(Box::pin(condition))), ..self }
    }
}

#[async_trait]
impl<S: Service> Service for Prebound<S> {
    async fn start_service(
        &mut self,
        _fds: Option<ListenFds>,
        shutdown: ShutdownWatch,
        listeners_per_fd: usize,
    ) {
        if let Some(companion) = self.companion.take() {
            let shutdown = shutdown.clone();
            tokio::spawn(async move { companion.start(shutdown).await });
        }
        let condition = self.starts_after.lock().take();
        if let Some(condition) = condition {
            condition.await;
        }
        let mut fds = Fds::new();
        for listener in self.listeners.lock().drain(..) {
            fds.add(listener.service_name(), listener.socket.into_raw_fd());
        }
        let fds = Arc::new(Mutex::new(fds));
        // The sender lives as long as the service: a closed channel counts as a signal.
        let (_sender, never) = tokio::sync::watch::channel(false);
        let shutdown = if self.serves_while_draining { never } else { shutdown };
        self.service.start_service(Some(fds), shutdown, listeners_per_fd).await;
    }

    fn name(&self) -> &str {
        self.service.name()
    }

    fn threads(&self) -> Option<usize> {
        self.service.threads()
    }
}
