//! [`ForwardAuthChecks`]: asks a server whether a request goes on.
//!
//! The request to it has no body, and only the headers that the configuration names; its answer is
//! bounded in time and in size, and redirects are not followed.

use std::future::Future;
use std::net::IpAddr;
use std::sync::Arc;

use bytes::Bytes;
use http::header::{HeaderMap, SET_COOKIE};
use http::{HeaderName, HeaderValue, Method, StatusCode};
use sha2::{Digest as _, Sha256};
use thiserror::Error;
use tracing::warn;

use super::flights::{Busy, Flights, Kept, Timed, Turn};
use crate::base::clock;
use crate::base::hash::Digest;
use crate::base::log_interval::LogInterval;
use crate::client::auth_answer::{AuthAnswer, AuthRefusal};
use crate::client::principal::{Principal, TokenIdentity};
use crate::decide::Head;
use crate::net::http::{HttpClient, HttpError, Request, Response};
use crate::net::tls::{self, ClientTls};
use crate::net::{forwarding, framing};
use crate::observe::metrics::CheckSeries;
use crate::policy::Policy;
use crate::policy::forward_auth::{AnswerCache, CachedBy, ClientOfAnswer, ForwardAuth};

/// Maximum number of answers that are kept.
const MAX_KEPT: usize = 16_384;

/// Maximum number of bytes that these answers take, those of one server.
const MAX_KEPT_BYTES: u64 = 32 << 20;

/// Maximum size of the body of an answer, in bytes.
const MAX_BODY_BYTES: usize = 64 << 10;

/// Maximum size of the headers of an answer that go on, in bytes.
const MAX_HEADER_BYTES: usize = 16 << 10;

/// Maximum length of the id of a client or a tenant, in bytes.
const MAX_ID_BYTES: usize = 256;

/// How long a failure is used for requests that share an answer, in microseconds.
const FAILURE_KEPT_US: u64 = 1_000_000;

/// Minimum time between two log lines, in seconds.
const LOG_INTERVAL_S: u64 = 60;

/// Headers that describe the request: those of Traefik's `forwardAuth` and of examples of nginx'
/// `auth_request`.
const METHOD_HEADERS: [HeaderName; 2] =
    [HeaderName::from_static("x-forwarded-method"), HeaderName::from_static("x-original-method")];
const TARGET_HEADERS: [HeaderName; 2] =
    [HeaderName::from_static("x-forwarded-uri"), HeaderName::from_static("x-original-uri")];
const HOST_HEADER: HeaderName = HeaderName::from_static("x-forwarded-host");
const PROTO_HEADER: HeaderName = HeaderName::from_static("x-forwarded-proto");
const ADDRESS_HEADER: HeaderName = HeaderName::from_static("x-forwarded-for");
const ID_HEADER: HeaderName = HeaderName::from_static("x-request-id");

/// Asks the server of one `forward_auth` table.
pub struct ForwardAuthChecks {
    client: HttpClient,
    flights: Flights<Outcome>,
    failures: LogInterval,
}

/// The request that the server is asked about.
#[derive(Debug, Clone, Copy)]
pub struct Asked<'a> {
    pub head: &'a Head<'a>,
    /// The client's address; `None` on a Unix socket.
    pub ip: Option<IpAddr>,
    /// Whether the request came through a trusted proxy.
    pub via_proxy: bool,
    /// `http` or `https`.
    pub scheme: &'a [u8],
    pub request_id: &'a [u8],
}

/// What the server says.
#[derive(Debug, Clone)]
pub enum Outcome {
    Answered(Arc<Answered>),
    /// Neither yes nor no, or nothing. `is_of_server`: the server has failed, whatever the client
    /// sent; else the client may have caused it.
    Failed {
        is_of_server: bool,
    },
}

/// An answer, and the client that it names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answered {
    pub answer: Arc<AuthAnswer>,
    /// `None`: it names none.
    pub client: Option<Arc<Principal>>,
}

/// Why there is neither yes nor no.
#[derive(Debug, Error)]
enum Failure {
    #[error("{0}")]
    Http(#[from] HttpError),
    #[error("status {0}")]
    Status(StatusCode),
    #[error("its headers for the upstream or the client are larger than {MAX_HEADER_BYTES} bytes")]
    TooLarge,
    #[error("the header {0} occurs twice, or is no id")]
    Client(HeaderName),
    #[error("the header {0} names no plan of the file")]
    Plan(HeaderName),
}

impl ForwardAuthChecks {
    /// Does not connect yet.
    pub fn new(settings: &ForwardAuth) -> Self {
        let url = &settings.url;
        let tls = ClientTls { ca: settings.ca.clone(), certificate: None };
        let tls = url.is_tls.then_some((tls::FORWARD_AUTH, tls));
        let most = settings.max_in_flight;
        let kept = Kept { most: MAX_KEPT, most_bytes: MAX_KEPT_BYTES, bytes: Outcome::bytes };
        Self {
            client: HttpClient::new(url.server.clone(), tls).with_idle(most),
            flights: Flights::new(&kept, most, settings.timeout),
            failures: LogInterval::new(LOG_INTERVAL_S),
        }
    }

    /// The digest that requests have in common which share an answer; `None`: they do not.
    pub fn digest(settings: &ForwardAuth, asked: &Asked<'_>) -> Option<Digest> {
        settings.cache.as_ref().map(|cache| digest(settings, cache, asked))
    }

    /// The answer for requests with a digest, if it is known.
    pub fn kept(&self, digest: &Digest, series: &CheckSeries) -> Option<Outcome> {
        let outcome = self.flights.kept(digest)?;
        series.cached.inc();
        Some(outcome)
    }

    /// Asks about a request, or waits for the answer to another one with the same digest.
    /// `is_worth_it` says, when its turn has come after others, whether it is still to be asked.
    pub async fn ask(
        &self,
        settings: &ForwardAuth,
        policy: &Policy,
        asked: &Asked<'_>,
        digest: Option<&Digest>,
        is_worth_it: impl Future<Output = bool> + Send,
        series: &CheckSeries,
    ) -> Outcome {
        let call = |turn: Turn| async move {
            if turn.has_waited && !is_worth_it.await {
                return Timed { value: Outcome::Failed { is_of_server: false }, until: 0 };
            }
            let _turn = turn;
            let began = clock::now();
            let called = self.call(settings, policy, asked).await;
            let now = clock::now();
            series.observe(now.saturating_sub(began));
            match called {
                Ok(answered) => {
                    let is_allowed = matches!(*answered.answer, AuthAnswer::Allowed(_));
                    if is_allowed { &series.allowed } else { &series.refused }.inc();
                    let cache = settings.cache.as_ref().filter(|_| answered.is_for_others());
                    let kept_us = cache.map_or(0, |cache| cache.kept_us);
                    let value = Outcome::Answered(Arc::new(answered));
                    Timed { value, until: now.saturating_add(kept_us) }
                }
                Err(failure) => {
                    series.failed.inc();
                    self.log(settings, &failure);
                    let until = now.saturating_add(FAILURE_KEPT_US);
                    let value = Outcome::Failed { is_of_server: failure.is_of_server() };
                    Timed { value, until }
                }
            }
        };
        let outcome = match digest {
            Some(digest) => self.flights.join(digest, call).await,
            None => self.flights.alone(call).await,
        };
        outcome.unwrap_or_else(|Busy| {
            series.failed.inc();
            Outcome::Failed { is_of_server: false }
        })
    }

    fn log(&self, settings: &ForwardAuth, failure: &Failure) {
        if let Some(suppressed) = self.failures.count(clock::now()) {
            let server = settings.url.server.to_string();
            warn!(server, detail = %failure, suppressed, "no answer of the server of forward_auth");
        }
    }

    async fn call(
        &self,
        settings: &ForwardAuth,
        policy: &Policy,
        asked: &Asked<'_>,
    ) -> Result<Answered, Failure> {
        let request = Request {
            method: Method::GET,
            path: &settings.url.path,
            headers: headers(settings, asked),
            body: &[],
        };
        let response = self.client.fetch(&request, settings.timeout, MAX_BODY_BYTES).await?;
        answered(settings, policy, response)
    }
}

impl Failure {
    /// Whether the server has failed, whatever the client sent: it is gone, or says so itself.
    fn is_of_server(&self) -> bool {
        match self {
            Self::Http(_) => true,
            Self::Status(status) => status.is_server_error(),
            Self::TooLarge | Self::Client(_) | Self::Plan(_) => false,
        }
    }
}

impl Outcome {
    /// How many bytes it takes beside its own.
    fn bytes(&self) -> u64 {
        let Self::Answered(answered) = self else { return 0 };
        let (headers, body) = match &*answered.answer {
            AuthAnswer::Allowed(headers) => (headers, 0),
            AuthAnswer::Refused(refusal) => (&refusal.headers, refusal.body.len()),
        };
        let header = |(name, value): &(HeaderName, HeaderValue)| {
            size_of::<(HeaderName, HeaderValue)>() + name.as_str().len() + value.len()
        };
        let headers: usize = headers.iter().map(header).sum();
        let client = answered.client.as_ref().map_or(0, |client| {
            size_of::<Principal>()
                + client.id.len()
                + client.token.as_deref().map_or(0, TokenIdentity::bytes)
        });
        (size_of::<Answered>() + size_of::<AuthAnswer>() + headers + body + client) as u64
    }
}

impl Answered {
    /// Whether other requests may get the same answer: a redirect or a cookie is for one client.
    fn is_for_others(&self) -> bool {
        match &*self.answer {
            AuthAnswer::Allowed(headers) => headers.iter().all(|(name, _)| *name != SET_COOKIE),
            AuthAnswer::Refused(refusal) => {
                !refusal.status.is_redirection()
                    && refusal.headers.iter().all(|(name, _)| *name != SET_COOKIE)
            }
        }
    }
}

/// The headers of the request to the server.
fn headers(settings: &ForwardAuth, asked: &Asked<'_>) -> Vec<(HeaderName, HeaderValue)> {
    let Head { method, target, uri, headers, .. } = *asked.head;
    let mut sent = Vec::new();
    // As the upstream: no header of the client's connection, and none that only a proxy may set.
    let of_connection: Vec<HeaderName> = framing::named_by_connection(headers).collect();
    let is_sent = |name: &&HeaderName| {
        let is_ours = METHOD_HEADERS.contains(*name) || TARGET_HEADERS.contains(*name);
        let is_known = [HOST_HEADER, PROTO_HEADER, ADDRESS_HEADER, ID_HEADER].contains(*name);
        let is_forged = forwarding::is_forwarding(name.as_str()) && !asked.via_proxy;
        !is_ours && !is_known && !is_forged && !of_connection.contains(*name)
    };
    for name in settings.request_headers.iter().filter(is_sent) {
        let values = headers.get_all(name).iter();
        sent.extend(values.map(|value| (name.clone(), value.clone())));
    }
    let mut add = |name: HeaderName, value: &[u8]| {
        if let Ok(value) = HeaderValue::from_bytes(value) {
            sent.push((name, value));
        }
    };
    // A client may send a whole URL, of which upstreams get the path.
    let path = uri.path_and_query().map_or("/", |path| path.as_str());
    let target = if target.starts_with(b"/") { target } else { path.as_bytes() };
    for name in METHOD_HEADERS {
        add(name, method.as_str().as_bytes());
    }
    for name in TARGET_HEADERS {
        add(name, target);
    }
    if let Some(host) = headers.get(http::header::HOST) {
        add(HOST_HEADER, host.as_bytes());
    }
    add(PROTO_HEADER, asked.scheme);
    if let Some(ip) = asked.ip {
        add(ADDRESS_HEADER, ip.to_string().as_bytes());
    }
    add(ID_HEADER, asked.request_id);
    sent
}

/// What a response means.
fn answered(
    settings: &ForwardAuth,
    policy: &Policy,
    response: Response,
) -> Result<Answered, Failure> {
    let Response { status, headers, body } = response;
    if status.is_success() {
        let client = settings.client.as_ref();
        return Ok(Answered {
            answer: Arc::new(AuthAnswer::Allowed(chosen(&settings.response_headers, &headers)?)),
            client: client.map(|client| principal(client, policy, &headers)).transpose()?.flatten(),
        });
    }
    if !is_refusal(status) {
        return Err(Failure::Status(status));
    }
    let headers = chosen(&settings.refusal_headers, &headers)?;
    let body = body.map_or_else(|_| Bytes::new(), Bytes::from);
    let refusal = AuthRefusal { status, headers, body };
    Ok(Answered { answer: Arc::new(AuthAnswer::Refused(refusal)), client: None })
}

/// Whether the client gets a response with this status.
fn is_refusal(status: StatusCode) -> bool {
    matches!(status.as_u16(), 401 | 403 | 301 | 302 | 303 | 307 | 308)
}

/// The headers of these names, in the order of the names.
fn chosen(
    names: &[HeaderName],
    headers: &HeaderMap,
) -> Result<Vec<(HeaderName, HeaderValue)>, Failure> {
    let mut chosen = Vec::new();
    for name in names {
        chosen.extend(headers.get_all(name).iter().map(|value| (name.clone(), value.clone())));
    }
    let size: usize = chosen.iter().map(|(name, value)| name.as_str().len() + value.len()).sum();
    if size > MAX_HEADER_BYTES { Err(Failure::TooLarge) } else { Ok(chosen) }
}

/// The client that an answer names.
fn principal(
    settings: &ClientOfAnswer,
    policy: &Policy,
    headers: &HeaderMap,
) -> Result<Option<Arc<Principal>>, Failure> {
    let Some(id) = text(&settings.id, headers)? else { return Ok(None) };
    let mut plan = settings.default_plan;
    if let Some(name) = &settings.plan
        && let Some(named) = text(name, headers)?
    {
        let index = policy.plans.iter().position(|own| **own == *named);
        let index = index.and_then(|index| u32::try_from(index).ok());
        plan = index.ok_or_else(|| Failure::Plan(name.clone()))?;
    }
    let tenant = settings.tenant.as_ref().map(|name| text(name, headers)).transpose()?.flatten();
    let tenant = tenant.map(|tenant| policy.tenants.named(&tenant));
    let identity = TokenIdentity::new(&settings.issuer, &id);
    Ok(Some(Arc::new(Principal::of_token(&id, plan, tenant, identity))))
}

/// The value of a header as the text of an id; `None` if it is missing or empty.
fn text(name: &HeaderName, headers: &HeaderMap) -> Result<Option<String>, Failure> {
    let mut values = headers.get_all(name).iter();
    let (Some(value), other) = (values.next(), values.next()) else { return Ok(None) };
    let text = value.to_str().ok().filter(|text| text.len() <= MAX_ID_BYTES && other.is_none());
    let text = text.ok_or_else(|| Failure::Client(name.clone()))?.trim();
    Ok((!text.is_empty()).then(|| text.to_owned()))
}

/// SHA-256 of what requests have in common which share an answer. Each part is preceded by its
/// number of values and their lengths, so that different requests never hash the same bytes.
fn digest(settings: &ForwardAuth, cache: &AnswerCache, asked: &Asked<'_>) -> Digest {
    let Head { method, target, headers, .. } = *asked.head;
    let sent = self::headers(settings, asked);
    let mut hash = Sha256::new();
    let mut add = |values: &mut dyn Iterator<Item = &[u8]>| {
        let values: Vec<&[u8]> = values.collect();
        hash.update((values.len() as u64).to_be_bytes());
        for value in values {
            hash.update((value.len() as u64).to_be_bytes());
            hash.update(value);
        }
    };
    // The server gets it in any case.
    add(&mut std::iter::once(asked.scheme));
    for by in &cache.by {
        let ip = asked.ip.map(|ip| ip.to_string());
        match by {
            // As the server sees it: its answer is not for requests of which it sees another one.
            CachedBy::Header(name)
                if settings.request_headers.contains(name)
                    || sent.iter().any(|(own, _)| own == name) =>
            {
                let values = sent.iter().filter(|(own, _)| own == name);
                add(&mut values.map(|(_, value)| value.as_bytes()));
            }
            CachedBy::Header(name) => {
                add(&mut headers.get_all(name).iter().map(HeaderValue::as_bytes));
            }
            CachedBy::Method => add(&mut std::iter::once(method.as_str().as_bytes())),
            CachedBy::Host => {
                let host = headers.get_all(http::header::HOST);
                add(&mut host.iter().map(HeaderValue::as_bytes));
            }
            CachedBy::Path => add(&mut std::iter::once(target)),
            CachedBy::Ip => add(&mut ip.iter().map(String::as_bytes)),
        }
    }
    hash.finalize().into()
}

#[cfg(test)]
mod tests {
    use http::Version;

    use super::*;
    use crate::decide::raw_head::RawHead;
    use crate::load::from_text;

    fn policy(table: &str) -> Policy {
        let text = format!(
            "[plans.free]\n[plans.pro]\n[forward_auth]\nurl = 'http://auth.test:9000/check'\n{table}\n\
             [upstreams.api]\nservers = ['demo']\n[routes.all]\n"
        );
        from_text("gateway.toml", &text).unwrap()
    }

    fn response(status: u16, headers: &[(&'static str, &'static str)]) -> Response {
        let status = StatusCode::from_u16(status).unwrap();
        let pair = |(name, value): &(&'static str, &'static str)| {
            (HeaderName::from_static(name), HeaderValue::from_static(value))
        };
        Response { status, headers: headers.iter().map(pair).collect(), body: Ok(b"text".to_vec()) }
    }

    fn read(table: &str, response: Response) -> Result<Answered, String> {
        let policy = policy(table);
        answered(&policy.forward_auth[0], &policy, response).map_err(|failure| failure.to_string())
    }

    #[test]
    fn statuses_decide_whether_the_request_goes_on() {
        for status in [200, 201, 204, 299] {
            let read = read("", response(status, &[])).unwrap();
            assert_eq!(*read.answer, AuthAnswer::Allowed(Vec::new()), "{status}");
        }
        for status in [401, 403, 301, 302, 303, 307, 308] {
            let read = read("", response(status, &[])).unwrap();
            let AuthAnswer::Refused(refusal) = &*read.answer else { panic!("{status}") };
            assert_eq!((refusal.status.as_u16(), &refusal.body[..]), (status, &b"text"[..]));
        }
        for status in [300, 304, 400, 404, 407, 429, 500, 503] {
            let read = read("", response(status, &[]));
            assert!(read.unwrap_err().starts_with(&format!("status {status}")), "{status}");
        }
    }

    #[test]
    fn only_chosen_headers_go_on() {
        let table = "response_headers = ['X-User', 'X-Role']";
        let allowed = response(
            200,
            &[("x-user", "a"), ("x-role", "b"), ("x-role", "c"), ("set-cookie", "d")],
        );
        let answered = read(table, allowed).unwrap();
        let AuthAnswer::Allowed(headers) = &*answered.answer else { panic!() };
        let headers: Vec<String> = headers
            .iter()
            .map(|(name, value)| format!("{name}={}", value.to_str().unwrap()))
            .collect();
        assert_eq!(headers, ["x-user=a", "x-role=b", "x-role=c"]);
        let refused = response(
            302,
            &[
                ("location", "/login"),
                ("set-cookie", "s=1"),
                ("transfer-encoding", "x"),
                ("x", "y"),
            ],
        );
        let answered = read("", refused).unwrap();
        let AuthAnswer::Refused(refusal) = &*answered.answer else { panic!() };
        let names: Vec<&str> = refusal.headers.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, ["location", "set-cookie"]);
        assert!(!answered.is_for_others());
    }

    #[test]
    fn client_of_the_answer_is_none_of_the_file() {
        let table = "id_header = 'X-User'\nplan_header = 'X-Plan'\ntenant_header = 'X-Org'";
        let named = response(200, &[("x-user", "ann"), ("x-plan", "pro"), ("x-org", "acme")]);
        let client = read(table, named).unwrap().client.unwrap();
        assert_eq!((&*client.id, client.plan), ("ann http://auth.test:9000", 1));
        assert_eq!(&*client.tenant.as_ref().unwrap().id, "acme");
        assert_eq!(client.key_id(), None);
        let without = read(table, response(200, &[("x-user", "ann")])).unwrap().client.unwrap();
        assert_eq!((without.plan, without.hash), (0, client.hash));
        assert_eq!(read(table, response(200, &[("x-user", "")])).unwrap().client, None);
        assert_eq!(read(table, response(200, &[])).unwrap().client, None);
        let twice = response(200, &[("x-user", "ann"), ("x-user", "bob")]);
        assert_eq!(read(table, twice).unwrap_err(), "the header x-user occurs twice, or is no id");
        let unknown = response(200, &[("x-user", "ann"), ("x-plan", "gold")]);
        assert_eq!(
            read(table, unknown).unwrap_err(),
            "the header x-plan names no plan of the file"
        );
    }

    /// Calls `with` with a request over HTTP, not through a trusted proxy.
    fn with_request<T>(
        target: &str,
        headers: &[(&'static str, &str)],
        with: impl FnOnce(&Asked<'_>) -> T,
    ) -> T {
        let mut request = http::Request::builder().uri(target).body(()).unwrap();
        for (name, value) in headers {
            request.headers_mut().append(*name, value.parse().unwrap());
        }
        let (parts, ()) = request.into_parts();
        let head = Head {
            version: Version::HTTP_11,
            ..Head::of(&parts, target.as_bytes(), None, RawHead::Plain)
        };
        with(&Asked { head: &head, ip: None, via_proxy: false, scheme: b"http", request_id: b"" })
    }

    #[test]
    fn headers_of_the_connection_and_of_proxies_are_not_passed_on() {
        let policy = policy("request_headers = ['Cookie', 'X-Real-IP', 'X-A']");
        let sent = [("cookie", "a"), ("x-a", "b"), ("x-real-ip", "c"), ("connection", "Cookie")];
        let names = |via_proxy| {
            with_request("/", &sent, |asked| {
                let asked = Asked { via_proxy, ..*asked };
                let all = headers(&policy.forward_auth[0], &asked);
                let own = ["cookie", "x-a", "x-real-ip"];
                own.map(|own| all.iter().any(|(name, _)| name.as_str() == own))
            })
        };
        assert_eq!((names(false), names(true)), ([false, true, false], [false, true, true]));
    }

    #[test]
    fn answer_is_not_shared_with_requests_of_which_the_server_sees_more() {
        let shared = policy(
            "cache = '10s'\nrequest_headers = ['Authorization', 'X-Org', 'X-Real-IP']\n\
             cache_by = ['header:Authorization', 'header:X-Org', 'header:X-Real-IP']",
        );
        let digest_of = |via_proxy, sent: &[(&'static str, &str)]| {
            with_request("/", sent, |asked| {
                let asked = Asked { via_proxy, ..*asked };
                ForwardAuthChecks::digest(&shared.forward_auth[0], &asked).unwrap()
            })
        };
        let own = ("authorization", "mine");
        let (org, other) = (("x-org", "victim"), ("x-org", "other"));
        let hidden = digest_of(false, &[own, org, ("connection", "X-Org")]);
        assert_ne!(hidden, digest_of(false, &[own, org]));
        // The server is asked the same.
        assert_eq!(hidden, digest_of(false, &[own]));
        assert_eq!(hidden, digest_of(false, &[own, other, ("connection", "close, X-Org")]));
        // The server gets the target there, whatever the client sends.
        let by_target = policy(
            "cache = '10s'\nrequest_headers = ['Authorization', 'X-Original-URI']\n\
             cache_by = ['header:Authorization', 'header:X-Original-URI']",
        );
        let digest_at = |target: &str| {
            with_request(target, &[("x-original-uri", "/public")], |asked| {
                ForwardAuthChecks::digest(&by_target.forward_auth[0], asked).unwrap()
            })
        };
        assert_ne!(digest_at("/public"), digest_at("/admin"));
        let address = ("x-real-ip", "10.0.0.5");
        assert_ne!(digest_of(true, &[own, address]), digest_of(false, &[own, address]));
        assert_eq!(digest_of(true, &[own]), digest_of(false, &[own, address]));
    }

    #[test]
    fn requests_share_an_answer_only_if_all_is_the_same() {
        let digest_over =
            |scheme: &str, table: &str, target: &str, headers: &[(&'static str, &str)]| {
                let policy = policy(&format!("cache = '10s'\n{table}"));
                with_request(target, headers, |asked| {
                    let asked = Asked { scheme: scheme.as_bytes(), ..*asked };
                    ForwardAuthChecks::digest(&policy.forward_auth[0], &asked).unwrap()
                })
            };
        let digest_of = |table: &str, target: &str, headers: &[(&'static str, &str)]| {
            digest_over("http", table, target, headers)
        };
        let one = digest_of("", "/a", &[("authorization", "x")]);
        assert_eq!(one, digest_of("", "/a", &[("authorization", "x"), ("accept", "y")]));
        assert_ne!(one, digest_over("https", "", "/a", &[("authorization", "x")]));
        for (target, headers) in [
            ("/b", &[("authorization", "x")][..]),
            ("/a?", &[("authorization", "x")]),
            ("/a", &[("authorization", "x"), ("authorization", "")]),
            ("/a", &[("cookie", "x")]),
            ("/a", &[("authorization", "x"), ("host", "h")]),
            ("/a", &[]),
        ] {
            assert_ne!(one, digest_of("", target, headers), "{target} {headers:?}");
        }
        let by = "cache_by = ['header:authorization', 'header:cookie']";
        let first = digest_of(by, "/a", &[("authorization", "x")]);
        assert_eq!(first, digest_of(by, "/b", &[("authorization", "x")]));
    }
}
