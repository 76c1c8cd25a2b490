//! The operator's port: the dashboard, metrics, health, and `/api/`.
//!
//! Reading order: `app` (the page, the events, or one answer), `routes` (what there is), `guard`
//! (who may ask), this file (how a request is answered), `answer`, `body`, `members` and `query`,
//! then one file for each kind of question; `openapi` tells programs of all of them.

mod answer;
mod app;
mod audit;
mod body;
mod breaker;
mod clients;
mod events;
mod guard;
mod members;
mod openapi;
mod page;
mod policy;
mod query;
mod reload;
mod routes;
mod samples;
mod status;
mod upstreams;

use std::net::SocketAddr;
use std::sync::Arc;

use async_trait::async_trait;
use http::{Method, Response, StatusCode, header};
use pingora::apps::http_app::ServeHttp;
use pingora::protocols::http::ServerSession;
use tracing::info;

use crate::clock;
use crate::explain::{Explainer, json};
use crate::reload::Reloader;
use crate::runtime::Runtime;
use crate::runtime::drain::Draining;
use crate::store::limiter::Limiter;
use answer::Answer;
pub use app::App;
use body::BodyError;
use clients::adjust::Wanted;
use guard::{Guard, Visit};
use policy::Policy;
use routes::{Call, Found, Route, Verb};
pub use samples::Sampler;
use status::Status;
use upstreams::Upstreams;

/// Answers on the admin port.
pub struct Admin {
    runtime: Runtime,
    draining: Draining,
    /// Where the file says that a gateway without Redis is not ready.
    needed: Option<Arc<Limiter>>,
    reloader: Arc<Reloader>,
    explainer: Explainer,
    guard: Guard,
}

/// What a request says beside its method and its path.
#[derive(Debug, Clone, Copy)]
struct Asked<'a> {
    /// Those parts of the path that the route has in braces.
    parts: &'a [String],
    query: Option<&'a str>,
    body: &'a [u8],
}

/// The type that Prometheus asks for (exposition format 0.0.4).
const EXPOSITION: &str = "text/plain; version=0.0.4; charset=utf-8";

impl Admin {
    /// Answers from what the gateway serves with. Without a connection of `needed` it is not ready.
    pub fn new(
        runtime: Runtime,
        draining: Draining,
        needed: Option<Arc<Limiter>>,
        reloader: Arc<Reloader>,
    ) -> Self {
        let explainer = Explainer::new(Arc::clone(&runtime.current), Arc::clone(&runtime.limiter));
        Self { runtime, draining, needed, reloader, explainer, guard: Guard::default() }
    }

    /// Where a request leads, and whether a token let it pass; or the answer to who may not ask.
    fn admit(&self, session: &ServerSession) -> Result<(Found, bool), Box<Answer>> {
        let request = session.req_header();
        let found = routes::find(&request.method, request.uri.path());
        let snapshot = self.runtime.current.load();
        let token = snapshot.policy.admin.token.as_ref();
        let visit = Visit {
            peer: peer(session),
            path: request.uri.path(),
            headers: &request.headers,
            target_host: request.uri.authority().map(http::uri::Authority::as_str),
        };
        self.guard.check(visit, token, clock::now())?;
        Ok((found, token.is_some()))
    }

    async fn answer(&self, session: &mut ServerSession) -> Answer {
        let (found, has_token) = match self.admit(session) {
            Ok(admitted) => admitted,
            Err(refused) => return *refused,
        };
        match found {
            Found::Route(route, parts) => {
                let body = match route.method {
                    Verb::Get => Vec::new(),
                    Verb::Post => match body::read(session).await {
                        Ok(body) => body,
                        Err(error) => return unread(error),
                    },
                };
                let query = session.req_header().uri.query().map(str::to_owned);
                let asked = Asked { parts: &parts, query: query.as_deref(), body: &body };
                let answer = self.call(route, asked).await.unwrap_or_else(|refused| *refused);
                if let Some(note) = &answer.note {
                    let peer = peer(session).map(|peer| peer.to_string()).unwrap_or_default();
                    let (status, by) = (answer.status.as_u16(), by(has_token));
                    info!(peer, by, status, "{} {}: {note}", route.method.name(), route.path);
                }
                answer
            }
            Found::OtherMethods(verbs) => only(&verbs),
            Found::Nothing => {
                let detail = format!("there is nothing here; there are {}", routes::listed());
                Answer::problem(StatusCode::NOT_FOUND, &detail)
            }
        }
    }

    /// Answers what was found to be asked for.
    async fn call(&self, route: &Route, asked: Asked<'_>) -> Result<Answer, Box<Answer>> {
        let Runtime { current, limiter, store, metrics, audit, .. } = &self.runtime;
        let snapshot = current.load_full();
        let Asked { parts, query, body } = asked;
        let adjust =
            |wanted| clients::adjust::adjust(&snapshot, limiter, parts, query, (wanted, body));
        Ok(match route.call {
            Call::Live => Answer::text(StatusCode::OK, "alive\n"),
            Call::Ready => match self.not_ready() {
                None => Answer::text(StatusCode::OK, "ready\n"),
                Some(why) => Answer::text(StatusCode::SERVICE_UNAVAILABLE, &format!("{why}\n")),
            },
            // Whoever asks by GET gets a stream, from `app`.
            Call::Events => Answer::of(StatusCode::OK, events::KIND, Vec::new()),
            Call::Metrics => match metrics.render(store, &snapshot.servers(clock::now())) {
                Ok(body) => Answer::of(StatusCode::OK, EXPOSITION, body),
                Err(error) => {
                    Answer::text(StatusCode::INTERNAL_SERVER_ERROR, &format!("{error}\n"))
                }
            },
            Call::OpenApi => openapi::show(),
            Call::Status => Answer::json(&Status::of(self)),
            Call::Policy => Answer::json(&Policy::of(&snapshot)),
            Call::Reloads => reload::reloads(&self.reloader, snapshot.generation),
            Call::Upstreams => Answer::json(&Upstreams::of(&snapshot)),
            Call::Audit => audit::show(&snapshot, audit, query)?,
            Call::Top => clients::top::show(&snapshot, query)?,
            Call::Buckets => clients::buckets::show(&snapshot, limiter, parts, query).await?,
            Call::Reset => adjust(Wanted::Reset).await?,
            Call::Grant => adjust(Wanted::Grant).await?,
            Call::ShowBreaker => breaker::show(limiter),
            Call::SetBreaker => breaker::set(limiter, body),
            Call::Explain => self.explain(body).await,
            Call::Reload => reload::reload(&self.reloader).await,
        })
    }

    /// Why the gateway should get no requests, where that is so.
    fn not_ready(&self) -> Option<&'static str> {
        if self.draining.is_draining() {
            return Some("draining");
        }
        let is_cut_off = self.needed.as_ref().is_some_and(|limiter| !limiter.is_connected());
        is_cut_off.then_some("no connection to Redis")
    }

    /// What would become of the request in the body.
    async fn explain(&self, body: &[u8]) -> Answer {
        let asked = match json::read(body) {
            Ok(asked) => asked,
            Err(error) => return Answer::problem(StatusCode::BAD_REQUEST, &error.to_string()),
        };
        match self.explainer.explain(&asked).await {
            Ok(explanation) => Answer::json(&explanation),
            Err(error) => Answer::problem(StatusCode::BAD_REQUEST, &error.to_string()),
        }
    }
}

/// The other end of a connection.
fn peer(session: &ServerSession) -> Option<SocketAddr> {
    session.client_addr().and_then(|address| address.as_inet()).copied()
}

/// Who asked, as far as that is known.
fn by(has_token: bool) -> &'static str {
    if has_token { "token" } else { "loopback" }
}

/// The answer to a request whose body is not there.
fn unread(error: BodyError) -> Answer {
    match error {
        BodyError::TooLong => {
            let detail = format!("the body is longer than {} bytes", body::MAX_BYTES);
            Answer::problem(StatusCode::PAYLOAD_TOO_LARGE, &detail)
        }
        BodyError::Unread => {
            let detail = "the body did not arrive, or not in time";
            Answer::problem(StatusCode::BAD_REQUEST, detail)
        }
    }
}

/// The answer to a request by another method than these.
fn only(verbs: &[Verb]) -> Answer {
    let names: Vec<&str> = verbs
        .iter()
        .flat_map(|verb| match verb {
            Verb::Get => &["GET", "HEAD"][..],
            Verb::Post => &["POST"],
        })
        .copied()
        .collect();
    let detail = format!("only {} here", names.join(" and "));
    Answer::problem(StatusCode::METHOD_NOT_ALLOWED, &detail)
        .with_header(header::ALLOW, &names.join(", "))
}

#[async_trait]
impl ServeHttp for Admin {
    async fn response(&self, session: &mut ServerSession) -> Response<Vec<u8>> {
        let is_head = session.req_header().method == Method::HEAD;
        self.answer(session).await.response(is_head)
    }
}
