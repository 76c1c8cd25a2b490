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
use socket2::{Domain, SockRef, Type};
use thiserror::Error;

use super::inherit::{FileOwner, Inherited, Origin};
use super::socket::Socket;
use super::unix_socket::{KeptFile, SocketFile, UnixSocket};
use crate::base::background::Background;
use crate::base::failure::Failures;

/// Connections that wait to be accepted. The standard library has 128, which a flood of connections
/// fills in milliseconds: others then wait for a second or more. The kernel has a limit, too
/// (`net.core.somaxconn`).
const BACKLOG: i32 = 4096;

/// A bound, listening, non-blocking socket.
#[derive(Debug)]
pub struct Listener {
    socket: OwnedFd,
    address: SocketAddr,
}

/// Which connections arrive at `[::]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Families {
    /// Those of IPv4, too, unless the system keeps them apart.
    OfSystem,
    /// Those of IPv6 only: another listener has `0.0.0.0`.
    Ipv6Only,
}

/// A socket that clients connect to.
#[derive(Debug)]
pub enum ClientListener {
    /// A TCP address.
    Tcp(Listener),
    Unix(UnixSocket),
}

/// A socket that clients connect to, registered with the runtime of its service.
#[derive(Debug)]
pub struct Accepting(Registered);

#[derive(Debug)]
enum Registered {
    Tcp(tokio::net::TcpListener),
    Unix { listener: tokio::net::UnixListener, _file: Option<SocketFile> },
}

/// An address that could not be bound.
#[derive(Debug, Error)]
pub enum BindError {
    /// A TCP address.
    #[error("cannot listen on {address}: {}", reason(.source, *.address))]
    Tcp {
        address: SocketAddr,
        /// Why.
        source: io::Error,
    },
    /// The socket that the replaced process has open accepts other connections than the file says.
    #[error(
        "cannot take over {address}: it is open {} IPv4, which cannot change while it is open; restart instead of an \
         upgrade", if *.families == Families::Ipv6Only { "also for" } else { "without" }
    )]
    Families {
        address: SocketAddr,
        /// What the file says.
        families: Families,
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
    /// Ends the service instead of the shutdown of the process.
    serves_until: Option<ShutdownWatch>,
    companions: Vec<Companion>,
    starts_after: Mutex<Option<Condition>>,
    failures: Failures,
}

/// A service on the threads of another one.
type Companion = Arc<dyn Background>;

/// Completes when a service may start.
type Condition = Pin<Box<dyn Future<Output = ()> + Send>>;

impl Listener {
    /// Binds a TCP address. Port 0 selects a free port.
    ///
    /// # Errors
    /// The address cannot be bound. The message says what to do about it.
    pub fn bind(address: SocketAddr) -> Result<Self, BindError> {
        let inherited = &mut Inherited::default();
        Self::open(&address.to_string(), address, Families::OfSystem, inherited)
    }

    /// Takes the inherited socket of this address, which is called `name` in the configuration;
    /// without one, binds the address. Port 0 selects a free port.
    ///
    /// # Errors
    /// The address cannot be bound. The message says what to do about it.
    pub fn open(
        name: &str,
        address: SocketAddr,
        families: Families,
        inherited: &mut Inherited,
    ) -> Result<Self, BindError> {
        let error = |source| BindError::Tcp { address, source };
        let listener = match (inherited.take_tcp(name, address), families) {
            (Some(socket), _) => {
                if inherited.origin() == Origin::Predecessor
                    && has_other_families(&socket, address, families).map_err(error)?
                {
                    return Err(BindError::Families { address, families });
                }
                TcpListener::from(socket)
            }
            (None, Families::OfSystem) => TcpListener::bind(address).map_err(error)?,
            (None, Families::Ipv6Only) => bind_ipv6_only(address).map_err(error)?,
        };
        listener.set_nonblocking(true).map_err(error)?;
        SockRef::from(&listener).listen(BACKLOG).map_err(error)?;
        let address = listener.local_addr().map_err(error)?;
        Ok(Self { socket: listener.into(), address })
    }

    /// Returns the address that clients can connect to. Its port is never 0.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns another descriptor of the socket.
    ///
    /// # Errors
    /// The process has no descriptors left.
    pub fn duplicate(&self) -> io::Result<OwnedFd> {
        self.socket.try_clone()
    }

    /// Returns the name under which a Pingora service finds the socket: what it must be passed to
    /// `add_tcp`.
    pub fn service_name(&self) -> String {
        self.address.to_string()
    }
}

/// Whether the socket of `[::]` accepts connections of other families than a new one would.
fn has_other_families(
    socket: &socket2::Socket,
    address: SocketAddr,
    families: Families,
) -> io::Result<bool> {
    if address.is_ipv4() || !address.ip().is_unspecified() {
        return Ok(false);
    }
    let expected = match families {
        Families::OfSystem => socket2::Socket::new(Domain::IPV6, Type::STREAM, None)?.only_v6()?,
        Families::Ipv6Only => true,
    };
    Ok(socket.only_v6()? != expected)
}

/// Binds an address for IPv6 only. The socket does not listen yet.
fn bind_ipv6_only(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = socket2::Socket::new(Domain::IPV6, Type::STREAM, None)?;
    socket.set_only_v6(true)?;
    // As the standard library: connections of an earlier process may still be closing.
    socket.set_reuse_address(true)?;
    socket.bind(&address.into())?;
    Ok(socket.into())
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
    /// Takes the inherited Unix socket of this path, which is called `name` in the configuration;
    /// without one, binds the path, with a file that has the permissions `mode`. A file on which no
    /// process listens is replaced.
    ///
    /// # Errors
    /// The path cannot be bound. The message says what to do about it.
    pub fn unix(
        name: &str,
        (path, mode): (&Path, u32),
        inherited: &mut Inherited,
    ) -> Result<Self, BindError> {
        let error = |source| BindError::Unix { path: path.to_owned(), source };
        let opened = match inherited.take_unix(name, path) {
            Some((socket, FileOwner::Gateway)) => UnixSocket::adopt(socket, path, mode),
            Some((socket, FileOwner::Systemd)) => UnixSocket::borrow(socket),
            None => UnixSocket::bind(path, mode),
        };
        opened.map(Self::Unix).map_err(error)
    }

    /// Returns another descriptor of the socket.
    ///
    /// # Errors
    /// The process has no descriptors left.
    pub fn duplicate(&self) -> io::Result<OwnedFd> {
        match self {
            Self::Tcp(listener) => listener.duplicate(),
            Self::Unix(UnixSocket { socket, .. }) => socket.try_clone().map(OwnedFd::from),
        }
    }

    /// Returns the switch that keeps the file of a Unix socket when this process stops listening;
    /// `None` if there is no file to remove.
    pub fn kept_file(&self) -> Option<KeptFile> {
        match self {
            Self::Tcp(_) => None,
            Self::Unix(UnixSocket { file, .. }) => file.as_ref().map(SocketFile::kept),
        }
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
                if let Some(file) = &file {
                    file.set_mode();
                }
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
    /// been added. Its panic is reported to `failures`.
    pub fn new(service: S, listeners: Vec<Listener>, failures: Failures) -> Self {
        Self {
            service,
            listeners: Mutex::new(listeners),
            serves_until: None,
            companions: Vec::new(),
            starts_after: Mutex::default(),
            failures,
        }
    }

    /// Serves until `ends` becomes true, also while the process drains, so that clients can see
    /// that.
    pub fn serving_until(self, ends: ShutdownWatch) -> Self {
        Self { serves_until: Some(ends), ..self }
    }

    /// Runs another service on the same threads. The connections that it keeps open for this
    /// service then need no wake-up of another thread for each use.
    pub fn with_companion(mut self, companion: Companion) -> Self {
        self.companions.push(companion);
        self
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
        for companion in self.companions.drain(..) {
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
        let shutdown = self.serves_until.take().unwrap_or(shutdown);
        let name = self.service.name().to_owned();
        let run = self.service.start_service(Some(fds), shutdown, listeners_per_fd);
        self.failures.watch(&name, run).await;
    }

    fn name(&self) -> &str {
        self.service.name()
    }

    fn threads(&self) -> Option<usize> {
        self.service.threads()
    }
}
