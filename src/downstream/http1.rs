//! The requests of an HTTP/1 connection, one after the other.
//!
//! Between requests, a connection has no session of Pingora: a session and the future of its
//! request take some 10 KB before the first byte has been read.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::BytesMut;
use pingora::apps::{HttpPersistentSettings, HttpServerApp, ReusedHttpStream};
use pingora::prelude::timeout;
use pingora::protocols::Stream;
use pingora::protocols::http::ServerSession;
use pingora::server::ShutdownWatch;

use super::absolute_form;
use super::ended::Ended;
use super::first_bytes::first_bytes;
use super::prefix::may_have_prefix;
use super::request_wait::RequestWait;
use super::rest;
use super::stream::ClientStream;
use crate::policy::settings::Server;
use crate::runtime::CurrentSnapshot;
use crate::runtime::drain::Draining;

/// Seconds that a connection waits for its first request at most. `server.keepalive_timeout` also
/// bounds the wait for the next ones.
const FIRST_REQUEST_SECONDS: u64 = 60;

/// How long the end of a connection may take to write.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(1);

/// A connection between two requests.
struct Idle {
    stream: Stream,
    /// `None` before the first request.
    settings: Option<HttpPersistentSettings>,
}

/// Whether the process drains, as a connection between two requests has to know.
#[derive(Clone, Copy)]
pub(super) struct Drain<'a> {
    /// Is true once the process drains.
    pub(super) shutdown: &'a ShutdownWatch,
    /// Says for how long connections still wait for a request.
    pub(super) draining: &'a Draining,
}

/// How long a connection waits for the first byte of its first request.
pub(super) fn first_request(server: &Server) -> Duration {
    server.keepalive_timeout.min(Duration::from_secs(FIRST_REQUEST_SECONDS))
}

/// Serves requests until the connection closes. Returns why.
pub(super) async fn serve<A>(
    app: &Arc<A>,
    stream: Box<ClientStream>,
    current: &CurrentSnapshot,
    drain: Drain<'_>,
) -> Ended
where
    A: HttpServerApp + Send + Sync + 'static,
{
    let connection = Arc::clone(stream.connection());
    let requests = async {
        let mut idle = Idle { stream, settings: None };
        let Drain { shutdown, draining } = drain;
        let mut wait = RequestWait::new(Arc::clone(&connection), shutdown, draining.clone());
        let mut longest = first_request(&current.load().policy.server);
        loop {
            let first = match &idle.settings {
                // The whole request can be in Pingora's hands: no bytes may follow.
                Some(settings) if may_have_prefix(settings) => {
                    connection.head.carry();
                    None
                }
                _ => match next(&mut idle.stream, &mut wait, longest).await {
                    Some(first) => Some(first),
                    None => return Box::pin(close(idle.stream)).await,
                },
            };
            let first = match first {
                Some(first) if absolute_form::may_be(&first) => {
                    match Box::pin(absolute_form::complete(&mut idle.stream, first)).await {
                        Ok(head) => Some(head),
                        Err(_) => return Box::pin(close(idle.stream)).await,
                    }
                }
                first => first,
            };
            let served = rest::bounded(idle.request(first, app, shutdown)).await;
            let Some(reused) = served.flatten() else { return };
            let (stream, settings) = reused.consume();
            idle = Idle { stream, settings };
            connection.head.expect();
            longest = current.load().policy.server.keepalive_timeout;
        }
    };
    Arc::clone(&connection).scope(requests).await;
    if connection.head.has_timed_out() {
        return Ended::HeadTimeout;
    }
    if connection.head.was_too_large() {
        return Ended::HeadSize;
    }
    if let Some(slow) = connection.slow() {
        return Ended::Slow(slow);
    }
    connection.shed_cause().map_or(Ended::Uncounted, Ended::Shed)
}

/// Waits for the first bytes of the next request. `None`: the connection closes.
async fn next(stream: &mut Stream, wait: &mut RequestWait, longest: Duration) -> Option<BytesMut> {
    let first = tokio::select! {
        biased;
        first = first_bytes(stream) => first.ok()?,
        () = poll_fn(|context| wait.poll_end(longest, context)) => return None,
    };
    (!first.is_empty()).then_some(first)
}

/// Ends a connection between two requests, over TLS with `close_notify`. A connection that has just
/// been opened cannot be written to before the runtime has seen that it can, so dropping it would
/// not be enough.
async fn close(mut stream: Stream) {
    // An error means that the client has closed the connection.
    let _ = timeout(CLOSE_TIMEOUT, stream.shutdown()).await;
}

impl Idle {
    /// Begins the next request, which starts with these bytes. Not an `async` function: its future
    /// would contain the session.
    fn request<'a, A>(
        self,
        first: Option<BytesMut>,
        app: &'a Arc<A>,
        shutdown: &'a ShutdownWatch,
    ) -> Pin<Box<dyn Future<Output = Option<ReusedHttpStream>> + Send + 'a>>
    where
        A: HttpServerApp + Send + Sync + 'static,
    {
        let mut session = ServerSession::new_http1(self.stream);
        if let Some(settings) = self.settings {
            settings.apply_to_session(&mut session);
        } else {
            let is_draining = *shutdown.borrow();
            session.set_keepalive((!is_draining).then_some(FIRST_REQUEST_SECONDS));
        }
        if let Some(first) = first {
            session.set_pipelined_prefix(first);
        }
        app.process_new_http(session, shutdown)
    }
}
