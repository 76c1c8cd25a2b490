//! The operator's port: metrics, health, and `/api/`.

mod app;
mod body;
mod events;
mod page;
mod reload;
mod ticks;

use std::sync::Arc;

use async_trait::async_trait;
use http::{HeaderValue, Method, Response, StatusCode, header};
use pingora::apps::http_app::ServeHttp;
use pingora::protocols::http::ServerSession;
use serde::Serialize;

use crate::explain::{Explainer, json};
use crate::gateway::drain::Draining;
use crate::observe::metrics::Metrics;
use crate::reload::Reloader;
use crate::store::limiter::Limiter;
use crate::store::memory::MemoryStore;
pub use app::App;
use body::BodyError;
pub use ticks::Ticker;

/// Answers on the admin port.
pub struct Admin {
    metrics: Arc<Metrics>,
    store: Arc<MemoryStore>,
    draining: Draining,
    /// Where the file says that a gateway without Redis is not ready.
    needed: Option<Arc<Limiter>>,
    reloader: Arc<Reloader>,
    explainer: Explainer,
}

/// Where requests are explained.
const EXPLAIN: &str = "/api/explain";

const TEXT: &str = "text/plain; charset=utf-8";

const JSON: &str = "application/json";

/// Reads the file again.
const RELOAD: &str = "/api/reload";

/// The type that Prometheus asks for (exposition format 0.0.4).
const EXPOSITION: &str = "text/plain; version=0.0.4; charset=utf-8";

impl Admin {
    /// Answers from what the gateway keeps. Without a connection of `needed` it is not ready.
    pub fn new(
        metrics: Arc<Metrics>,
        store: Arc<MemoryStore>,
        draining: Draining,
        needed: Option<Arc<Limiter>>,
        reloader: Arc<Reloader>,
        explainer: Explainer,
    ) -> Self {
        Self { metrics, store, draining, needed, reloader, explainer }
    }

    async fn answer(&self, session: &mut ServerSession) -> Answer {
        let request = session.req_header();
        let path = request.uri.path();
        let allowed = match path {
            EXPLAIN | RELOAD => &[Method::POST][..],
            _ => &[Method::GET, Method::HEAD],
        };
        if !allowed.contains(&request.method) {
            let names: Vec<&str> = allowed.iter().map(Method::as_str).collect();
            let message = format!("only {} here\n", names.join(" and "));
            let answer = Answer::text(StatusCode::METHOD_NOT_ALLOWED, &message);
            return Answer { allow: Some(names.join(", ")), ..answer };
        }
        match path {
            EXPLAIN => self.explain(session).await,
            RELOAD => {
                let (status, body) = reload::reload(&self.reloader).await;
                Answer { status, kind: JSON, body, allow: None }
            }
            "/live" => Answer::text(StatusCode::OK, "alive\n"),
            "/ready" if self.draining.is_draining() => {
                Answer::text(StatusCode::SERVICE_UNAVAILABLE, "draining\n")
            }
            "/ready" if self.needed.as_ref().is_some_and(|limiter| !limiter.is_connected()) => {
                Answer::text(StatusCode::SERVICE_UNAVAILABLE, "no connection to Redis\n")
            }
            "/ready" => Answer::text(StatusCode::OK, "ready\n"),
            "/metrics" => match self.metrics.render(&self.store) {
                Ok(body) => Answer { kind: EXPOSITION, body, ..Answer::text(StatusCode::OK, "") },
                Err(error) => {
                    Answer::text(StatusCode::INTERNAL_SERVER_ERROR, &format!("{error}\n"))
                }
            },
            _ => Answer::text(
                StatusCode::NOT_FOUND,
                "here are /metrics, /live, /ready, POST /api/explain and POST /api/reload\n",
            ),
        }
    }

    /// What would become of the request in the body.
    async fn explain(&self, session: &mut ServerSession) -> Answer {
        let body = match body::read(session).await {
            Ok(body) => body,
            Err(BodyError::TooLong) => {
                let message = format!("the body is longer than {} bytes", body::MAX_BYTES);
                return Answer::problem(StatusCode::PAYLOAD_TOO_LARGE, &message);
            }
            Err(BodyError::Unread) => {
                let message = "the body did not arrive, or not in time";
                return Answer::problem(StatusCode::BAD_REQUEST, message);
            }
        };
        let asked = match json::read(&body) {
            Ok(asked) => asked,
            Err(error) => return Answer::problem(StatusCode::BAD_REQUEST, &error.to_string()),
        };
        match self.explainer.explain(&asked).await {
            Ok(explanation) => Answer::json(StatusCode::OK, JSON, &explanation),
            Err(error) => Answer::problem(StatusCode::BAD_REQUEST, &error.to_string()),
        }
    }
}

/// An answer before it is sent.
struct Answer {
    status: StatusCode,
    kind: &'static str,
    body: Vec<u8>,
    /// The methods that are taken, where another was used.
    allow: Option<String>,
}

impl Answer {
    fn text(status: StatusCode, text: &str) -> Self {
        Self { status, kind: TEXT, body: text.as_bytes().to_vec(), allow: None }
    }

    /// Indented: people read it too.
    fn json(status: StatusCode, kind: &'static str, value: &impl Serialize) -> Self {
        let mut body = serde_json::to_vec_pretty(value).unwrap_or_default();
        body.push(b'\n');
        Self { status, kind, body, allow: None }
    }

    /// A problem document (RFC 9457), as clients get them too.
    fn problem(status: StatusCode, detail: &str) -> Self {
        let title = status.canonical_reason().unwrap_or_default();
        let problem = serde_json::json!({
            "type": "about:blank", "title": title, "status": status.as_u16(), "detail": detail,
        });
        Self::json(status, "application/problem+json", &problem)
    }
}

#[async_trait]
impl ServeHttp for Admin {
    async fn response(&self, session: &mut ServerSession) -> Response<Vec<u8>> {
        let answer = self.answer(session).await;
        let length = answer.body.len();
        let is_head = session.req_header().method == Method::HEAD;
        let mut response = Response::new(if is_head { Vec::new() } else { answer.body });
        *response.status_mut() = answer.status;
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(answer.kind));
        headers.insert(header::CONTENT_LENGTH, length.into());
        headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
        if let Some(Ok(allow)) = answer.allow.map(HeaderValue::try_from) {
            headers.insert(header::ALLOW, allow);
        }
        response
    }
}
