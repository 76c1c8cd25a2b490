//! [`ForwardAuth`]: a server that decides whether a request goes on.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use http::HeaderName;

pub use crate::config::words::OnAuthFailure;
use crate::net::url::HttpUrl;

/// `[forward_auth]`, or that of a route.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ForwardAuth {
    /// Where it is asked.
    pub url: HttpUrl,
    /// Certificate authorities of the server; `None`: the public ones.
    pub ca: Option<PathBuf>,
    /// Time limit for its answer, and for the wait before.
    pub timeout: Duration,
    /// How many requests are asked about at the same time.
    pub max_in_flight: usize,
    /// Headers of the client that the server gets.
    pub request_headers: Vec<HeaderName>,
    /// Headers of its answer that the upstream gets.
    pub response_headers: Vec<HeaderName>,
    /// Headers of its answer that the client gets if the request is refused.
    pub refusal_headers: Vec<HeaderName>,
    pub on_failure: OnAuthFailure,
    /// How its answers are used again; `None`: not.
    pub cache: Option<AnswerCache>,
    /// How its answers name the client; `None`: the client is that of the API key.
    pub client: Option<ClientOfAnswer>,
}

/// For which requests, and how long, an answer is used again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AnswerCache {
    pub kept_us: u64,
    pub by: Vec<CachedBy>,
}

/// What requests have in common that share an answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CachedBy {
    /// All values of a header.
    Header(HeaderName),
    Method,
    Host,
    /// The target with its query.
    Path,
    /// The client's address.
    Ip,
}

/// How an answer names the client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClientOfAnswer {
    /// Who says so, as the issuer of a token: scheme, host and port of the server.
    pub issuer: Arc<str>,
    pub id: HeaderName,
    pub plan: Option<HeaderName>,
    pub tenant: Option<HeaderName>,
    /// Index of the plan if the answer names none.
    pub default_plan: u32,
}
impl ForwardAuth {
    /// The headers of answers that the gateway reads or sends to upstreams. Those of clients are
    /// removed.
    pub fn headers_of_answers(&self) -> impl Iterator<Item = &HeaderName> {
        let of_client = self.client.iter().flat_map(|client| {
            std::iter::once(&client.id).chain(&client.plan).chain(&client.tenant)
        });
        self.response_headers.iter().chain(of_client)
    }
}
