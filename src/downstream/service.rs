//! Accepts client connections, and serves each of them in its own task.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use pingora::apps::HttpServerApp;
use pingora::server::{ListenFds, ShutdownWatch};
use pingora::services::Service;
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tracing::error;

use super::connection::{ClientProtocol, ConnectionInfo};
use super::http1;
use super::stream::ClientStream;
use crate::net::listen::Listener;
use crate::net::socket::Socket;

/// How long a listener pauses if the process has no file descriptor or memory for a connection: the next
/// attempt fails at once until another connection has closed.
const PAUSE: Duration = Duration::from_secs(1);

/// The service that accepts client connections and passes their requests to the proxy.
pub struct Downstream<A> {
    app: Arc<A>,
    listeners: Vec<Listener>,
}

/// What serving a connection requires.
struct Context<A> {
    app: Arc<A>,
    shutdown: ShutdownWatch,
    /// Index of the listener.
    listener: usize,
}

impl<A> Downstream<A> {
    /// Creates the service. Its listeners are in the order of the policy's listeners.
    pub fn new(app: A, listeners: Vec<Listener>) -> Self {
        Self { app: Arc::new(app), listeners }
    }
}

#[async_trait]
impl<A> Service for Downstream<A>
where
    A: HttpServerApp + Send + Sync + 'static,
{
    async fn start_service(&mut self, _: Option<ListenFds>, shutdown: ShutdownWatch, _: usize) {
        let mut loops = JoinSet::new();
        for (index, listener) in self.listeners.drain(..).enumerate() {
            let app = Arc::clone(&self.app);
            let context = Context { app, shutdown: shutdown.clone(), listener: index };
            loops.spawn(async move {
                if let Err(error) = accept_all(listener, context).await {
                    error!(detail = %error, "a connection cannot be accepted");
                }
            });
        }
        loops.join_all().await;
        self.app.http_cleanup().await;
    }

    fn name(&self) -> &'static str {
        "proxy"
    }
}

/// Accepts connections until the process drains.
async fn accept_all<A>(listener: Listener, mut context: Context<A>) -> io::Result<()>
where
    A: HttpServerApp + Send + Sync + 'static,
{
    let listener = TcpListener::from_std(listener.into_std())?;
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            // An error means that the server has ended.
            _ = context.shutdown.wait_for(|is_draining| *is_draining) => return Ok(()),
        };
        match accepted {
            Ok((stream, peer)) => {
                // Fails only if the client has closed the connection.
                let _ = stream.set_nodelay(true);
                tokio::spawn(context.serve(Socket::tcp(stream, peer)));
            }
            Err(failure) if is_of_one_connection(&failure) => {}
            Err(failure) => {
                error!(detail = %failure, "a connection cannot be accepted");
                tokio::time::sleep(PAUSE).await;
            }
        }
    }
}

/// Whether the error concerns only the connection that would have been accepted.
fn is_of_one_connection(failure: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset, Interrupted};
    matches!(failure.kind(), ConnectionAborted | ConnectionReset | ConnectionRefused | Interrupted)
}

impl<A> Context<A>
where
    A: HttpServerApp + Send + Sync + 'static,
{
    /// Serves a connection until it closes.
    fn serve(&self, socket: Socket) -> impl Future<Output = ()> + Send + use<A> {
        let (app, shutdown) = (Arc::clone(&self.app), self.shutdown.clone());
        let listener = self.listener;
        async move {
            let peer = socket.peer();
            let connection = ConnectionInfo::new(listener, peer, None, ClientProtocol::Http1);
            let stream = Box::new(ClientStream::clear(socket, &connection));
            Arc::new(connection).scope(http1::serve(&app, stream, &shutdown)).await;
        }
    }
}
