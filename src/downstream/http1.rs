//! The requests of an HTTP/1 connection, one after the other.

use std::sync::Arc;

use pingora::apps::{HttpServerApp, ReusedHttpStream};
use pingora::protocols::http::ServerSession;
use pingora::server::ShutdownWatch;

use super::ended::Ended;
use super::stream::ClientStream;

/// Seconds that a connection waits for its first request. The gateway sets the timeout of the next ones.
pub(super) const FIRST_REQUEST_SECONDS: u64 = 60;

/// Serves requests until the connection closes. Returns why.
pub(super) async fn serve<A>(app: &Arc<A>, stream: ClientStream, shutdown: &ShutdownWatch) -> Ended
where
    A: HttpServerApp + Send + Sync + 'static,
{
    let connection = Arc::clone(stream.connection());
    let requests = async {
        let mut session = ServerSession::new_http1(Box::new(stream));
        let is_draining = *shutdown.borrow();
        session.set_keepalive((!is_draining).then_some(FIRST_REQUEST_SECONDS));
        let mut reused = app.process_new_http(session, shutdown).await;
        while let Some((stream, settings)) = reused.map(ReusedHttpStream::consume) {
            let mut session = ServerSession::new_http1(stream);
            if let Some(settings) = settings {
                settings.apply_to_session(&mut session);
            }
            connection.head.expect();
            reused = app.process_new_http(session, shutdown).await;
        }
    };
    Arc::clone(&connection).scope(requests).await;
    if connection.head.has_timed_out() { Ended::HeadTimeout } else { Ended::Uncounted }
}
