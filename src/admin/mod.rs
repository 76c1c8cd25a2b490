//! The operator's port: metrics, health, and `/api/`.

mod reload;

use std::sync::Arc;

use async_trait::async_trait;
use http::{Method, Response, StatusCode, header};
use pingora::apps::http_app::ServeHttp;
use pingora::protocols::http::ServerSession;

use crate::gateway::drain::Draining;
use crate::observe::metrics::Metrics;
use crate::reload::Reloader;
use crate::store::limiter::Limiter;
use crate::store::memory::MemoryStore;

/// Answers on the admin port.
pub struct Admin {
    metrics: Arc<Metrics>,
    store: Arc<MemoryStore>,
    draining: Draining,
    reloader: Arc<Reloader>,
    /// Where the file says that a gateway without Redis is not ready.
    needed: Option<Arc<Limiter>>,
}

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
        reloader: Arc<Reloader>,
        needed: Option<Arc<Limiter>>,
    ) -> Self {
        Self { metrics, store, draining, reloader, needed }
    }

    /// What is asked for under `/api/`, where it is that.
    async fn api(
        &self,
        method: &Method,
        path: &str,
    ) -> Option<(StatusCode, &'static str, Vec<u8>)> {
        if (method, path) != (&Method::POST, RELOAD) {
            return None;
        }
        let (status, body) = reload::reload(&self.reloader).await;
        Some((status, JSON, body))
    }

    fn answer(&self, method: &Method, path: &str) -> (StatusCode, &'static str, Vec<u8>) {
        let text = |status, text: &str| (status, TEXT, text.as_bytes().to_vec());
        if path == RELOAD {
            return text(StatusCode::METHOD_NOT_ALLOWED, "only POST here\n");
        }
        if !matches!(*method, Method::GET | Method::HEAD) {
            return text(StatusCode::METHOD_NOT_ALLOWED, "only GET and HEAD here\n");
        }
        match path {
            "/live" => text(StatusCode::OK, "alive\n"),
            "/ready" if self.draining.is_draining() => {
                text(StatusCode::SERVICE_UNAVAILABLE, "draining\n")
            }
            "/ready" if self.needed.as_ref().is_some_and(|limiter| !limiter.is_connected()) => {
                text(StatusCode::SERVICE_UNAVAILABLE, "no connection to Redis\n")
            }
            "/ready" => text(StatusCode::OK, "ready\n"),
            "/metrics" => match self.metrics.render(&self.store) {
                Ok(exposition) => (StatusCode::OK, EXPOSITION, exposition),
                Err(error) => text(StatusCode::INTERNAL_SERVER_ERROR, &format!("{error}\n")),
            },
            _ => text(
                StatusCode::NOT_FOUND,
                "here are /metrics, /live, /ready and POST /api/reload\n",
            ),
        }
    }
}

#[async_trait]
impl ServeHttp for Admin {
    async fn response(&self, session: &mut ServerSession) -> Response<Vec<u8>> {
        let request = session.req_header().clone();
        let path = request.uri.path();
        let (status, kind, body) = match self.api(&request.method, path).await {
            Some(answer) => answer,
            None => self.answer(&request.method, path),
        };
        let length = body.len();
        let body = if request.method == Method::HEAD { Vec::new() } else { body };
        let mut response = Response::new(body);
        *response.status_mut() = status;
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, http::HeaderValue::from_static(kind));
        headers.insert(header::CONTENT_LENGTH, length.into());
        headers.insert(header::CACHE_CONTROL, http::HeaderValue::from_static("no-store"));
        response
    }
}
