//! The requests of an HTTP/1 connection, one after the other.

use std::sync::Arc;

use pingora::apps::{HttpServerApp, ReusedHttpStream};
use pingora::protocols::Stream;
use pingora::protocols::http::ServerSession;
use pingora::server::ShutdownWatch;

/// Seconds that a connection waits for its first request. The gateway sets the timeout of the next ones.
const FIRST_REQUEST_SECONDS: u64 = 60;

/// Serves requests until the connection closes.
pub(super) async fn serve<A>(app: &Arc<A>, stream: Stream, shutdown: &ShutdownWatch)
where
    A: HttpServerApp + Send + Sync + 'static,
{
    let mut session = ServerSession::new_http1(stream);
    let is_draining = *shutdown.borrow();
    session.set_keepalive((!is_draining).then_some(FIRST_REQUEST_SECONDS));
    let mut reused = app.process_new_http(session, shutdown).await;
    while let Some((stream, settings)) = reused.map(ReusedHttpStream::consume) {
        let mut session = ServerSession::new_http1(stream);
        if let Some(settings) = settings {
            settings.apply_to_session(&mut session);
        }
        reused = app.process_new_http(session, shutdown).await;
    }
}
