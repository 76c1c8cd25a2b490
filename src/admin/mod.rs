//! The admin port: dashboard, metrics, health, and the admin API.
//!
//! Reading order: `app` (HTTP server), `routes` (table of routes), `guard` (access control), this
//! file (dispatch), `answer`, `body`, `members` and `query` (requests and responses), then one file
//! for each part of the API; `openapi` has its description.

mod access;
mod answer;
mod app;
mod audit;
mod body;
mod breaker;
mod certificates;
mod clients;
mod dry_run;
mod events;
mod guard;
mod keys;
mod members;
mod openapi;
mod page;
mod policy;
mod query;
mod readiness;
mod reload;
mod routes;
mod samples;
mod status;
mod upgrade;
mod upstreams;
mod usage;

use std::net::SocketAddr;
use std::sync::Arc;

use futures_util::future::BoxFuture;
use http::{Method, Response, StatusCode, header};
use pingora::protocols::http::ServerSession;
use tracing::info;

use crate::api::status::Status;
use crate::api::upstreams::Upstreams;
use crate::base::blocking::BlockingCalls;
use crate::base::clock;
use crate::base::time::UtcTime;
use crate::explain::{Explainer, json};
use crate::keys::store::KeyStore;
use crate::observe::audit::ChangeView;
use crate::process::handover::Upgrader;
use crate::reload::Reloader;
use crate::runtime::{Runtime, Snapshot};
use crate::store::limiter::Limiter;
use crate::upstream::health::Order;
use crate::usage::kept::Kept;
use answer::Answer;
pub use app::App;
use body::BodyError;
use certificates::Certificates;
use clients::adjust::AdjustKind;
use guard::{Caller, Guard, GuardedRequest};
use keys::{KeyCall, Keys};
use policy::Policy;
pub use readiness::Readiness;
use routes::{ApiRoute, Call, Match, Verb};
pub use samples::Sampler;

/// Handles the requests of the admin port.
pub struct Admin {
    runtime: Runtime,
    readiness: Readiness,
    reloader: Arc<Reloader>,
    sampler: Arc<Sampler>,
    explainer: Explainer,
    guard: Guard,
    /// Reads of files.
    reads: BlockingCalls,
    upgrader: Option<Arc<Upgrader>>,
}

/// The arguments of an API request.
#[derive(Debug, Clone, Copy)]
struct Arguments<'a> {
    /// The path segments that the route has in braces.
    parts: &'a [String],
    query: Option<&'a str>,
    body: &'a [u8],
    /// The header `If-Match`.
    if_match: Option<&'a str>,
}

/// The buckets, what clients used of quotas, and the clients that are not in the file.
#[derive(Clone, Copy)]
struct Stores<'a> {
    limiter: &'a Limiter,
    usage: Option<&'a Kept>,
    keys: Option<&'a KeyStore>,
}

/// Content type of the Prometheus exposition format 0.0.4.
const EXPOSITION: &str = "text/plain; version=0.0.4; charset=utf-8";

impl Admin {
    /// Creates a handler.
    pub fn new(
        runtime: Runtime,
        readiness: Readiness,
        reloader: Arc<Reloader>,
        sampler: Arc<Sampler>,
    ) -> Self {
        let explainer = Explainer::new(Arc::clone(&runtime.current), Arc::clone(&runtime.limiter))
            .with_keys(runtime.keys.clone());
        let guard = Guard::default();
        let upgrader = None;
        let reads = BlockingCalls::default();
        Self { runtime, readiness, reloader, sampler, explainer, guard, reads, upgrader }
    }

    /// Replaces the process by `upgrader` when that is requested.
    pub fn upgrading_by(self, upgrader: Arc<Upgrader>) -> Self {
        Self { upgrader: Some(upgrader), ..self }
    }

    /// The route of a request, and who sends it.
    ///
    /// # Errors
    /// The response, if the guard refuses the request, or if the caller may not make it.
    fn admit(&self, session: &ServerSession) -> Result<(Match, Caller), Box<Answer>> {
        let request = session.req_header();
        let found = routes::find(&request.method, request.uri.path());
        let snapshot = self.runtime.current.load();
        let guarded = GuardedRequest {
            peer: peer(session),
            path: request.uri.path(),
            headers: &request.headers,
            target_host: request.uri.authority().map(http::uri::Authority::as_str),
        };
        let caller = self.guard.check(guarded, &snapshot.policy.admin, clock::now())?;
        if let Match::Found(route, parts) = &found {
            access::check(&snapshot.policy, &caller, route.call, parts)?;
        }
        Ok((found, caller))
    }

    async fn answer(&self, session: &mut ServerSession) -> Answer {
        let (found, caller) = match self.admit(session) {
            Ok(admitted) => admitted,
            Err(refused) => return *refused,
        };
        match found {
            Match::Found(route, parts) => {
                let body = match route.method {
                    Verb::Get | Verb::Delete => Vec::new(),
                    Verb::Post | Verb::Patch => {
                        match body::read(session, route.max_body_bytes()).await {
                            Ok(body) => body,
                            Err(error) => return unread(error),
                        }
                    }
                };
                let head = session.req_header();
                let query = head.uri.query().map(str::to_owned);
                let if_match = head.headers.get(header::IF_MATCH);
                // What is no text is no version that the gateway gives.
                let if_match = if_match.map(|tag| tag.to_str().unwrap_or_default().to_owned());
                let (query, if_match) = (query.as_deref(), if_match.as_deref());
                let arguments = Arguments { parts: &parts, query, body: &body, if_match };
                let answer =
                    self.call(route, arguments, &caller).await.unwrap_or_else(|refused| *refused);
                self.note_change(route, &answer, caller.name(), peer(session));
                answer
            }
            Match::MethodNotAllowed(verbs) => method_not_allowed(&verbs),
            Match::NotFound => {
                let detail = format!("no such path; the admin port has {}", routes::summary());
                Answer::problem(StatusCode::NOT_FOUND, &detail)
            }
        }
    }

    /// Logs the change that a call has made, if any, and records it in the audit.
    fn note_change(&self, route: &ApiRoute, answer: &Answer, by: &str, peer: Option<SocketAddr>) {
        let Some(note) = &answer.note else { return };
        let peer = peer.map(|peer| peer.to_string());
        let status = answer.status.as_u16();
        info!(
            peer = peer.as_deref().unwrap_or_default(),
            by,
            status,
            "{} {}: {note}",
            route.method.name(),
            route.path
        );
        self.runtime.audit.record_change(&ChangeView {
            at: UtcTime(clock::unix_us()),
            by: by.to_owned(),
            peer,
            call: format!("{} {}", route.method.name(), route.path),
            status,
            what: note.clone(),
            clients: answer.clients.clone(),
            tenants: answer.tenants.clone(),
            gateway: None,
        });
    }

    /// Calls the handler of a route.
    async fn call(
        &self,
        route: &ApiRoute,
        arguments: Arguments<'_>,
        caller: &Caller,
    ) -> Result<Answer, Box<Answer>> {
        let tenant = caller.tenant().map(|tenant| &**tenant);
        let Runtime { current, limiter, usage, audit, tls, orders, .. } = &self.runtime;
        let snapshot = current.load_full();
        let Arguments { parts, query, body, .. } = arguments;
        let keys = self.runtime.keys.as_deref();
        let stores = Stores { limiter, usage: usage.as_ref(), keys };
        let order = |order| upstreams::order(&snapshot, orders, arguments, order);
        let keys = || Keys::of(keys, &snapshot.policy, tenant);
        let adjust =
            |kind| clients::adjust::adjust(&snapshot, stores, kind, arguments, caller.name());
        Ok(match route.call {
            Call::Live => Answer::text(StatusCode::OK, "alive\n"),
            Call::Ready => match self.not_ready() {
                None => Answer::text(StatusCode::OK, &self.ready_text(&snapshot)),
                Some(reason) => {
                    Answer::text(StatusCode::SERVICE_UNAVAILABLE, &format!("{reason}\n"))
                }
            },
            // A HEAD request. `app` answers GET with a stream.
            Call::Events => Answer::of(StatusCode::OK, events::KIND, Vec::new()),
            Call::Samples => samples::show(&self.sampler, query)?,
            Call::Metrics => self.metrics(&snapshot),
            Call::OpenApi => openapi::show(),
            Call::Status => Answer::json(&Status::of(self)),
            Call::Policy => Answer::json(&Policy::of(&snapshot)),
            Call::Reloads => reload::reloads(&self.reloader, snapshot.generation),
            Call::Upstreams => Answer::json(&Upstreams::of(&snapshot)),
            Call::Drain => order(Some(Order::Drain))?,
            Call::Disable => order(Some(Order::Disable))?,
            Call::Enable => order(None)?,
            Call::Certificates => Answer::json(&Certificates::of(tls)),
            Call::Audit => {
                audit::show(&snapshot, audit, limiter, query, access::visible(caller)).await?
            }
            Call::Usage => usage::show(&snapshot, stores, (query, tenant), &self.reads).await?,
            Call::Top => clients::top::show(&snapshot, query)?,
            Call::Bans => clients::bans::list(&snapshot, limiter.bans(), query, tenant)?,
            Call::BeginBan => {
                clients::bans::begin(&snapshot, stores, arguments, caller.name()).await?
            }
            Call::LiftBans => clients::bans::lift(&snapshot, limiter.bans(), query)?,
            Call::Buckets => {
                clients::buckets::show(&snapshot, stores, parts, query, tenant.is_some()).await?
            }
            Call::Reset => adjust(AdjustKind::Reset).await?,
            Call::Grant => adjust(AdjustKind::Grant).await?,
            Call::TopUps => clients::top_ups::list(&snapshot, stores, arguments, tenant).await?,
            Call::RevokeTopUp => clients::top_ups::revoke(&snapshot, stores, arguments).await?,
            Call::ShowBreaker => breaker::show(limiter),
            Call::SetBreaker => breaker::set(limiter, body),
            Call::Explain => self.explain(body).await,
            Call::Reload if dry_run::is_wanted(query, body)? => {
                dry_run::answer(&self.reloader, body.to_vec()).await
            }
            Call::Reload => reload::reload(&self.reloader).await,
            Call::Keys => keys()?.list(query).await?,
            Call::CreateKey => keys()?.create(body).await?,
            Call::ImportKeys => keys()?.import(body).await?,
            Call::Key => keys()?.of_client(KeyCall::Show, arguments).await?,
            Call::PatchKey => keys()?.of_client(KeyCall::Patch, arguments).await?,
            Call::RemoveKey => keys()?.of_client(KeyCall::Remove, arguments).await?,
            Call::RotateKey => keys()?.of_client(KeyCall::Rotate, arguments).await?,
            Call::DisableKey => keys()?.of_client(KeyCall::Disable, arguments).await?,
            Call::EnableKey => keys()?.of_client(KeyCall::Enable, arguments).await?,
            Call::Upgrade => match &self.upgrader {
                Some(upgrader) => upgrade::upgrade(upgrader).await,
                None => Answer::problem(StatusCode::CONFLICT, "this process cannot be replaced"),
            },
        })
    }

    /// All series, with their current values.
    fn metrics(&self, snapshot: &Snapshot) -> Answer {
        let Runtime { metrics, store, tls, .. } = &self.runtime;
        let certificates = tls.certificates().into_iter();
        metrics.tls.show(certificates.map(|(_, it)| (Arc::clone(it.name()), it.not_after())));
        metrics.tokens.show(snapshot.tokens.issuers().iter().filter_map(|keys| keys.view()));
        let rules = snapshot.policy.rules.iter().filter(|rule| rule.enabled && rule.ban.is_some());
        let bans = self.runtime.limiter.bans().counts(clock::now());
        metrics.rules.show_rates(snapshot.rates.shares());
        metrics.rules.show_bans(rules.map(|rule| &*rule.name), &bans);
        let (servers, lookups) = (snapshot.servers(clock::now()), snapshot.lookups());
        match metrics.render(store, &servers, &lookups, &snapshot.loads()) {
            Ok(body) => Answer::of(StatusCode::OK, EXPOSITION, body),
            Err(error) => Answer::text(StatusCode::INTERNAL_SERVER_ERROR, &format!("{error}\n")),
        }
    }

    /// The body of `/ready`: `ready`, which masters of a cluster are away, and which upstreams have
    /// no address.
    fn ready_text(&self, snapshot: &Snapshot) -> String {
        let away = self.readiness.masters_away().map(|away| format!("{away}\n"));
        let unknown = readiness::upstreams_without_address(snapshot);
        format!("ready\n{}{unknown}", away.unwrap_or_default())
    }

    /// Why the gateway is not ready for requests, if it is not.
    fn not_ready(&self) -> Option<&'static str> {
        self.readiness.not_ready(&self.runtime.current.load().policy)
    }

    /// Explains the response to the request that `body` describes.
    async fn explain(&self, body: &[u8]) -> Answer {
        let request = match json::read(body) {
            Ok(request) => request,
            Err(error) => return Answer::problem(StatusCode::BAD_REQUEST, &error.to_string()),
        };
        match self.explainer.explain(&request).await {
            Ok(explanation) => Answer::json(&explanation),
            Err(error) => Answer::problem(StatusCode::BAD_REQUEST, &error.to_string()),
        }
    }
}

/// Address of the client, if the connection is TCP.
fn peer(session: &ServerSession) -> Option<SocketAddr> {
    session.client_addr().and_then(|address| address.as_inet()).copied()
}

/// The response to a request whose body could not be read.
fn unread(error: BodyError) -> Answer {
    match error {
        BodyError::TooLong(max) => {
            let detail = format!("the body is longer than {max} bytes");
            Answer::problem(StatusCode::PAYLOAD_TOO_LARGE, &detail)
        }
        BodyError::Unread => {
            let detail = "the body did not arrive in time";
            Answer::problem(StatusCode::BAD_REQUEST, detail)
        }
    }
}

/// The response to a request whose method is not one of `verbs`.
fn method_not_allowed(verbs: &[Verb]) -> Answer {
    let names: Vec<&str> = verbs
        .iter()
        .flat_map(|verb| match verb {
            Verb::Get => &["GET", "HEAD"][..],
            Verb::Post => &["POST"],
            Verb::Patch => &["PATCH"],
            Verb::Delete => &["DELETE"],
        })
        .copied()
        .collect();
    let detail = format!("the path allows only {}", names.join(" and "));
    Answer::problem(StatusCode::METHOD_NOT_ALLOWED, &detail)
        .with_header(header::ALLOW, &names.join(", "))
}

impl Admin {
    /// The response to a request.
    fn response<'a>(&'a self, session: &'a mut ServerSession) -> BoxFuture<'a, Response<Vec<u8>>> {
        Box::pin(async move {
            let is_head = session.req_header().method == Method::HEAD;
            self.answer(session).await.response(is_head)
        })
    }
}
