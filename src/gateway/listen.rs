//! Listeners that are open before anything starts.
//!
//! Pingora opens its listeners in the service's own task: where a port is taken it retries for
//! half a minute, then panics, and the process lives on without a listener. So every address is
//! bound here, where an error can still end the process, and handed over ready.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::IntoRawFd;
use std::pin::Pin;
use std::sync::Arc;

use async_trait::async_trait;
use parking_lot::Mutex;
use pingora::server::{Fds, ListenFds, ShutdownWatch};
use pingora::services::Service;
use pingora::services::background::BackgroundService;
use thiserror::Error;

/// A bound address: what was asked for, and what the kernel gave (they differ for port 0).
#[derive(Debug)]
pub struct Bound {
    listener: TcpListener,
    /// The address that clients can connect to.
    pub address: SocketAddr,
}

/// An address that could not be bound.
#[derive(Debug, Error)]
#[error("cannot listen on {address}: {}", reason(.source, *.address))]
pub struct BindError {
    address: SocketAddr,
    source: io::Error,
}

/// A service on listeners that are already open.
pub struct Prebound<S> {
    service: S,
    listeners: Mutex<Vec<Bound>>,
    serves_while_draining: bool,
    companion: Option<Arc<dyn BackgroundService + Send + Sync>>,
    starts_after: Mutex<Option<Before>>,
}

/// What must be over before a service starts.
type Before = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Binds `address`.
///
/// # Errors
/// What the kernel says, with what to do about it.
pub fn bind(address: SocketAddr) -> Result<Bound, BindError> {
    let error = |source| BindError { address, source };
    let listener = TcpListener::bind(address).map_err(error)?;
    listener.set_nonblocking(true).map_err(error)?;
    let address = listener.local_addr().map_err(error)?;
    Ok(Bound { listener, address })
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

impl<S> Prebound<S> {
    /// `service`, which must have been told the addresses of `listeners`, on them.
    pub fn new(service: S, listeners: Vec<Bound>) -> Self {
        Self {
            service,
            listeners: Mutex::new(listeners),
            serves_while_draining: false,
            companion: None,
            starts_after: Mutex::default(),
        }
    }

    /// Serves on until the process ends, so that whoever asks meanwhile hears that it is draining.
    pub fn serving_while_draining(self) -> Self {
        Self { serves_while_draining: true, ..self }
    }

    /// Runs another service on the same threads. What it keeps open for this one then needs no
    /// other thread to be woken for each use.
    pub fn with_companion(self, companion: Arc<dyn BackgroundService + Send + Sync>) -> Self {
        Self { companion: Some(companion), ..self }
    }

    /// Accepts connections once `before` is over. Until then they wait in the kernel's queue.
    pub fn starting_after(self, before: impl Future<Output = ()> + Send + 'static) -> Self {
        Self { starts_after: Mutex::new(Some(Box::pin(before))), ..self }
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
        let before = self.starts_after.lock().take();
        if let Some(before) = before {
            before.await;
        }
        let mut fds = Fds::new();
        for bound in self.listeners.lock().drain(..) {
            fds.add(bound.address.to_string(), bound.listener.into_raw_fd());
        }
        let fds = Arc::new(Mutex::new(fds));
        // Its sender lives as long as the service: a closed channel counts as a signal.
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
