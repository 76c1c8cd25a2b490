//! The HTTP server of the admin port. Pingora's own supports only complete responses; this one also
//! streams events.

use std::sync::Arc;

use futures_util::future::BoxFuture;
use http::{Method, Response};
use pingora::apps::{HttpPersistentSettings, HttpServerApp, ReusedHttpStream};
use pingora::protocols::http::ServerSession;
use pingora::server::ShutdownWatch;

use super::events::{self, Events};
use super::samples::Sampler;
use super::{Admin, page, peer};
use crate::base::boxed::boxed;
use crate::runtime::drain::Draining;

/// Keep-alive timeout of idle connections.
const KEEPALIVE_S: u64 = 60;

/// Rate at which a client must read a response, in bytes per second; the least time is a second.
const MIN_SEND_RATE: usize = 16 * 1024;

/// The server of the admin port.
pub struct App {
    answers: Admin,
    events: Events,
}

impl App {
    /// Creates a server of `answers`, which streams the samples of `sampler` until the process
    /// drains.
    pub fn new(answers: Admin, sampler: Arc<Sampler>, draining: Draining) -> Self {
        Self { answers, events: Events::new(sampler, draining) }
    }

    /// The response, or `None` if it was already streamed.
    async fn answer(&self, session: &mut ServerSession) -> Option<Response<Vec<u8>>> {
        let request = session.req_header();
        if let Some(answer) = page::answer(request) {
            return Some(answer);
        }
        if request.uri.path() != events::PATH || request.method != Method::GET {
            return Some(self.answers.response(session).await);
        }
        if let Err(refused) = self.answers.admit(session) {
            return Some(refused.response(false));
        }
        let peer = peer(session).map(|peer| peer.ip());
        let is_admitted = |session: &ServerSession| self.answers.admit(session).is_ok();
        let full = self.events.stream(session, peer, is_admitted).await.err()?;
        Some(full.answer().response(false))
    }
}

impl HttpServerApp for App {
    boxed! {
        fn process_new_http<'a, 'b>(
            self: &'a Arc<Self>,
            session: ServerSession,
            shutdown: &'b ShutdownWatch
        ) -> Option<ReusedHttpStream> {
            self.serve(session, shutdown)
        }
    }
}

impl App {
    /// Answers a request. Returns its connection, if that can have another one.
    fn serve<'a>(
        &'a self,
        mut session: ServerSession,
        shutdown: &'a ShutdownWatch,
    ) -> BoxFuture<'a, Option<ReusedHttpStream>> {
        Box::pin(async move {
            if !session.read_request().await.ok()? {
                return None;
            }
            let is_ending = *shutdown.borrow();
            session.set_keepalive((!is_ending).then_some(KEEPALIVE_S));
            if let Some(answer) = self.answer(&mut session).await {
                session.set_min_send_rate(Some(MIN_SEND_RATE));
                let (head, body) = answer.into_parts();
                session.write_response_header(Box::new(head.into())).await.ok()?;
                if !body.is_empty() {
                    session.write_response_body(body.into(), true).await.ok()?;
                }
            }
            let settings = HttpPersistentSettings::for_session(&session);
            let stream = session.finish().await.ok()??;
            Some(ReusedHttpStream::from_reusable_stream(stream, settings))
        })
    }
}
