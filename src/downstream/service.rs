//! Accepts client connections, and serves each of them in its own task.

use std::io;
use std::sync::Arc;

use async_trait::async_trait;
use pingora::apps::HttpServerApp;
use pingora::server::{ListenFds, ShutdownWatch};
use pingora::services::Service;
use tokio::task::JoinSet;
use tracing::error;

use super::endpoint::Endpoint;
use super::intake::Intake;
use super::pressure::Pressure;
use super::rejections::Rejections;
use super::unwritten::Unwritten;
use crate::base::failure::Failures;
use crate::net::io_text::plain;
use crate::net::listen::ClientListener;
use crate::policy::listener::Listener;
use crate::runtime::CurrentSnapshot;
use crate::runtime::drain::Draining;
use crate::tls::handshakes::Handshakes;
use crate::tls::listeners::TlsListeners;

/// The service that accepts client connections and passes their requests to the proxy.
pub struct Downstream<A> {
    app: Arc<A>,
    front: Front,
    listeners: Vec<(Listener, ClientListener)>,
    failures: Failures,
}

/// What all listeners share.
#[derive(Clone)]
pub struct Front {
    /// The configuration in force, which new connections use.
    pub current: Arc<CurrentSnapshot>,
    /// The TLS of the listeners in force.
    pub tls: Arc<TlsListeners>,
    /// Performs TLS handshakes.
    pub handshakes: Arc<Handshakes>,
    /// Counts and logs connections that are closed without a response.
    pub rejections: Rejections,
    /// The open connections, and the overload of the process.
    pub pressure: Pressure,
    /// Whether connections are accepted.
    pub intake: Intake,
    /// The connections whose clients read slowly.
    pub unwritten: Unwritten,
    /// Whether the process drains.
    pub draining: Draining,
}

impl<A> Downstream<A> {
    /// Creates the service. Each listener comes with its settings at the start. A listener that
    /// cannot be opened is reported to `failures`.
    pub fn new(
        app: A,
        front: Front,
        listeners: Vec<(Listener, ClientListener)>,
        failures: Failures,
    ) -> Self {
        Self { app: Arc::new(app), front, listeners, failures }
    }
}

#[async_trait]
impl<A> Service for Downstream<A>
where
    A: HttpServerApp + Send + Sync + 'static,
{
    async fn start_service(&mut self, _: Option<ListenFds>, shutdown: ShutdownWatch, _: usize) {
        let mut loops = JoinSet::new();
        for (index, (bound, listener)) in self.listeners.drain(..).enumerate() {
            let endpoint = Endpoint {
                app: Arc::clone(&self.app),
                shutdown: shutdown.clone(),
                front: self.front.clone(),
                index,
                bound,
            };
            let failures = self.failures.clone();
            loops.spawn(async move {
                if let Err(error) = accept_all(listener, Arc::new(endpoint)).await {
                    error!(detail = plain(&error), "a listener cannot be opened");
                    failures.report("proxy");
                }
            });
        }
        // Pingora's `http_cleanup` would close each connection at once, even if a request is
        // arriving.
        let Front { pressure, current, .. } = self.front.clone();
        let mut drain = shutdown.clone();
        loops.spawn(async move {
            tokio::select! {
                () = pressure.watch(&current) => {}
                // An error means that the server has ended.
                _ = drain.wait_for(|is_draining| *is_draining) => {}
            }
        });
        loops.join_all().await;
    }

    fn name(&self) -> &'static str {
        "proxy"
    }
}

/// Accepts connections until the process drains.
async fn accept_all<A>(listener: ClientListener, endpoint: Arc<Endpoint<A>>) -> io::Result<()>
where
    A: HttpServerApp + Send + Sync + 'static,
{
    let listener = listener.register()?;
    let mut shutdown = endpoint.shutdown.clone();
    let Front { pressure, intake, .. } = endpoint.front.clone();
    let accept = async || {
        loop {
            pressure.until_accepting().await;
            let _accepting = intake.begin().await;
            tokio::select! {
                biased;
                () = intake.paused() => {}
                accepted = listener.accept() => {
                    return accepted.map(|socket| (endpoint.admit(&socket), socket));
                }
            }
        }
    };
    loop {
        let accepted = tokio::select! {
            accepted = accept() => accepted,
            // An error means that the server has ended.
            _ = shutdown.wait_for(|is_draining| *is_draining) => return Ok(()),
        };
        match accepted {
            Ok((Some(entry), socket)) => {
                pressure.note_accepted();
                tokio::spawn(Arc::clone(&endpoint).serve(socket, entry));
            }
            Ok((None, _)) => {}
            Err(failure) if is_of_one_connection(&failure) => {}
            Err(failure) => {
                tokio::time::sleep(pressure.note_failed_accept(&failure)).await;
            }
        }
    }
}

/// Whether the error concerns only the connection that would have been accepted.
fn is_of_one_connection(failure: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset, Interrupted};
    matches!(failure.kind(), ConnectionAborted | ConnectionReset | ConnectionRefused | Interrupted)
}
