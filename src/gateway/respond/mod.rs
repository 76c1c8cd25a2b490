//! Responses of the gateway itself: problem documents (RFC 9457) with the request's id, texts of
//! `[errors]` instead, or gRPC's form of the same.
//!
//! They keep the connection open where HTTP allows it, so that a client that has to wait need not
//! also reconnect.
//!
//! Reading order: this file, `auth_refusal` (of a server that is asked about a request),
//! `error_body` (the body: a problem document, or a text of `[errors]`), `failure` (requests that
//! failed), `grpc` (its form of a refusal), `upstream_response` (the response of an upstream, as it
//! is passed on), `drain` (responses after which the connection closes).

mod auth_refusal;
pub(super) mod drain;
mod error_body;
pub(super) mod failure;
pub(super) mod grpc;
pub(super) mod upstream_response;

use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderValue, Method, StatusCode, header};
use pingora::prelude::{Error, ErrorSource, ErrorType, ResponseHeader, Result};
use pingora::protocols::http::ServerSession;
use pingora::proxy::{FailToProxy, Session};
use serde::Serialize;
use smallvec::SmallVec;

use super::answers::{demo, own_key, own_limits, preflight, route_answer};
use super::exchange::Exchange;
use super::request::body_drain;
use super::{cors, header_edits, limit_headers};
use crate::base::duration::seconds_up;
use crate::client::auth_answer::{AuthAnswer, AuthRefusal};
use crate::client::principal::KeyRefusal;
use crate::decide::decision::{Decision, LimitCheck};
use crate::decide::guard::Malformed;
use crate::decide::reason::{Failure, Reason};
use crate::decide::{self, Refusal, Rejection, Unauthenticated, problem};
use crate::downstream::ConnectionInfo;
use crate::limit::charge::Mode;
use crate::net::grpc::Form;
use crate::observe::audit::Audit;
use crate::observe::failures::FailedRequest;
use crate::policy::settings::Target;
use grpc::{grpc_message, grpc_status};

/// A response of the gateway.
struct ProblemResponse<'a> {
    status: StatusCode,
    problem: Problem<'a>,
    retry_after_seconds: Option<u64>,
    /// Value of the header `Allow`.
    allow: Option<String>,
    /// Values of the header `WWW-Authenticate`.
    challenges: SmallVec<[HeaderValue; 2]>,
}

/// A problem document, RFC 9457.
#[derive(Debug, Serialize)]
struct Problem<'a> {
    #[serde(rename = "type")]
    kind: &'static str,
    title: &'static str,
    status: u16,
    detail: String,
    /// Rules that denied the request; draft-ietf-httpapi-ratelimit-headers names the member.
    #[serde(rename = "violated-policies", skip_serializing_if = "Vec::is_empty")]
    violated_policies: Vec<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    retry_after_ms: Option<u64>,
    request_id: &'a str,
}

/// Initial capacity of a problem document, in bytes.
const PROBLEM_BYTES: usize = 512;

/// Type of a problem that its status describes completely (RFC 9457, section 4.2.1).
const BLANK: &str = "about:blank";

/// Type of a denial by a limit, of draft-ietf-httpapi-ratelimit-headers.
const QUOTA_EXCEEDED: &str = "https://iana.org/assignments/http-problem-types#quota-exceeded";

/// Type of a refusal because of `max_in_flight`, of draft-ietf-httpapi-ratelimit-headers.
const REDUCED_CAPACITY: &str =
    "https://iana.org/assignments/http-problem-types#temporary-reduced-capacity";

/// When a request that was refused because of `max_in_flight` may be sent again, in seconds.
const SHED_RETRY_S: u64 = 1;

/// When a request whose key could not be looked up may be sent again, in seconds.
const UNVERIFIED_RETRY_S: u64 = 1;

/// The error of an upstream without a server that has a known address.
#[allow(clippy::unnecessary_box_returns, reason = "the type that Pingora's phases return")]
pub(super) fn no_server() -> Box<Error> {
    let status = StatusCode::BAD_GATEWAY.as_u16();
    Error::explain(ErrorType::HTTPStatus(status), "no server of the upstream has an address")
}

/// The error of an upstream that sends more than the maximum number of interim responses.
#[allow(clippy::unnecessary_box_returns, reason = "the type that Pingora's phases return")]
pub(super) fn too_many_interim() -> Box<Error> {
    Error::new(ErrorType::Custom("the response has too many interim responses")).into_up()
}

/// The error of an upstream that upgrades to another protocol without a request for it.
#[allow(clippy::unnecessary_box_returns, reason = "the type that Pingora's phases return")]
pub(super) fn unrequested_upgrade() -> Box<Error> {
    let words = "the response is a 101, but the request has no Upgrade";
    Error::new(ErrorType::Custom(words)).into_up()
}

/// Writes the gateway's own response to a request, unless it is to be forwarded. Returns whether a
/// response has been written, as [`send_body`] does.
///
/// # Errors
/// The client has closed the connection.
pub(super) async fn respond(session: &mut Session, exchange: &Exchange) -> Result<bool> {
    match exchange.decision() {
        None | Some(Decision::Allowed { .. }) => {
            if let Some(answer) = exchange.handling().and_then(|handling| handling.answer.as_ref())
            {
                Box::pin(route_answer::respond(session, exchange, answer)).await?;
                return Ok(true);
            }
            let target = exchange.upstream().map(|upstream| &upstream.target);
            let Some(Target::Demo) = target else { return Ok(false) };
            Box::pin(demo::respond(session, exchange)).await?;
        }
        Some(Decision::OwnLimits { view, .. }) => {
            Box::pin(own_limits::respond(session, exchange, view.clone())).await?;
        }
        Some(Decision::NewKey(body)) => {
            Box::pin(own_key::respond(session, exchange, body.0.clone())).await?;
        }
        Some(Decision::Preflight) => Box::pin(preflight::respond(session, exchange)).await?,
        Some(Decision::Limited { check, unauthenticated }) => {
            let response = limited(exchange, check, *unauthenticated);
            Box::pin(send(session, exchange, response)).await?;
        }
        Some(Decision::Unavailable { retry_after_us, .. }) => {
            let (status, detail) = problem::UNAVAILABLE;
            let retry_after_seconds = Some(seconds_up(*retry_after_us).max(1));
            let response = ProblemResponse {
                retry_after_seconds,
                ..plain(status, detail.to_owned(), exchange)
            };
            Box::pin(send(session, exchange, response)).await?;
        }
        Some(Decision::Unauthenticated { reason, .. }) => {
            let refusal = Refusal::Unauthenticated(*reason);
            Box::pin(refuse(session, exchange, refusal)).await?;
        }
        Some(Decision::Rejected(rejection)) => {
            if ends_connection(*rejection) {
                session.set_keepalive(None);
            }
            Box::pin(refuse(session, exchange, Refusal::Rejected(*rejection))).await?;
        }
    }
    Ok(true)
}

async fn refuse(session: &mut Session, exchange: &Exchange, refusal: Refusal) -> Result<()> {
    let policy = &exchange.snapshot.policy;
    if let Some(refusal) = refusal_of_server(session, exchange, refusal) {
        return auth_refusal::respond(session, exchange, refusal).await;
    }
    let (status, detail) = problem::refused(policy, refusal);
    let request = session.req_header();
    let routed = || policy.router.methods(&decide::host(&request.headers), request.uri.path());
    let plain = plain(status, detail, exchange);
    let response = match refusal {
        Refusal::Rejected(Rejection::Maintenance { retry_after_s }) => {
            ProblemResponse { retry_after_seconds: retry_after_s, ..plain }
        }
        Refusal::Rejected(Rejection::Shed | Rejection::NoTokenKeys) => overloaded(plain),
        Refusal::Rejected(Rejection::Rotation(refusal)) => {
            ProblemResponse { retry_after_seconds: refusal.retry_after_s(), ..plain }
        }
        Refusal::Rejected(rejection) => {
            ProblemResponse { allow: problem::allow_header(policy, rejection, routed), ..plain }
        }
        Refusal::Unauthenticated(reason) if reason.is_unverified() => {
            ProblemResponse { retry_after_seconds: Some(UNVERIFIED_RETRY_S), ..plain }
        }
        Refusal::Unauthenticated(reason) => {
            ProblemResponse { challenges: problem::challenges(policy, reason), ..plain }
        }
    };
    send(session, exchange, response).await
}

/// The response of the server that was asked about the request, if that refuses it. gRPC has a form
/// of its own.
fn refusal_of_server<'a>(
    session: &Session,
    exchange: &'a Exchange,
    refusal: Refusal,
) -> Option<&'a AuthRefusal> {
    let Refusal::Unauthenticated(Unauthenticated::KeyRefused {
        why: KeyRefusal::Denied(_), ..
    }) = refusal
    else {
        return None;
    };
    match exchange.identity()?.auth.as_deref()? {
        AuthAnswer::Refused(refusal) if Form::of(&session.req_header().headers).is_none() => {
            Some(refusal)
        }
        AuthAnswer::Refused(_) | AuthAnswer::Allowed(_) => None,
    }
}

/// The response of an upstream that is overloaded, by which the client may try again soon.
fn overloaded(plain: ProblemResponse<'_>) -> ProblemResponse<'_> {
    let problem = Problem {
        kind: REDUCED_CAPACITY,
        retry_after_ms: Some(SHED_RETRY_S * 1_000),
        ..plain.problem
    };
    ProblemResponse { retry_after_seconds: Some(SHED_RETRY_S), problem, ..plain }
}

/// Whether the connection closes after the response: servers disagree on where such a request ends,
/// so the next bytes may be a part of it.
fn ends_connection(rejection: Rejection) -> bool {
    let Rejection::Malformed(malformed) = rejection else { return false };
    !matches!(
        malformed,
        Malformed::UriTooLong | Malformed::HeadersTooLarge | Malformed::TooManyHeaders
    )
}

/// Responds to a request that could not be served, and logs the reason. What the request holds is
/// free before: the response may wait for the rest of the request.
pub(super) async fn fail(
    session: &mut Session,
    exchange: &Exchange,
    audit: &Audit,
    failure: Failure,
    error: &Error,
) -> FailToProxy {
    let closing = |error_code| FailToProxy { error_code, can_reuse_downstream: false };
    let Some((status, detail)) = failure::response(failure) else { return closing(0) };
    if *error.esource() != ErrorSource::Downstream {
        audit.record_failure(&FailedRequest {
            request_id: exchange.request_id.as_str().to_owned(),
            route: exchange.route().map(|route| Arc::clone(&route.name)),
            upstream: exchange.upstream().map(|upstream| Arc::clone(&upstream.name)),
            server: exchange.attempts.last().map(|attempt| attempt.server),
            status: status.as_u16(),
            reason: Reason::Failed(failure).label(),
            cause: failure::cause(error),
            is_at_will: failure::is_at_will(error),
        });
    }
    let error_code = status.as_u16();
    if session.response_written().is_some_and(|head| is_final(head.status)) {
        // The head has been sent: only closing shows the client that the body is incomplete.
        return closing(error_code);
    }
    // Pingora closes the connection after a failure in any case; this adds `Connection: close`.
    session.set_keepalive(None);
    // An error means that the client has closed the connection.
    let plain = plain(status, detail.to_string(), exchange);
    let response = match failure {
        Failure::UpstreamOverflow => overloaded(plain),
        _ => plain,
    };
    if send(session, exchange, response).await.is_ok() {
        body_drain::linger_unless_read(session).await;
    }
    closing(error_code)
}

/// Returns whether a response with this status is final: interim responses (103) are not.
pub(super) fn is_final(status: StatusCode) -> bool {
    !status.is_informational() || status == StatusCode::SWITCHING_PROTOCOLS
}

/// Writes a whole response of the gateway. Afterwards, [`body_drain::linger_unless_read`] reads a
/// part of the rest of the request, once what the request holds is free.
///
/// # Errors
/// The client has closed the connection.
pub(super) async fn send_body(
    session: &mut Session,
    exchange: &Exchange,
    mut head: ResponseHeader,
    body: Bytes,
) -> Result<()> {
    if head.status != StatusCode::NO_CONTENT {
        head.insert_header(header::CONTENT_LENGTH, body.len())?;
    }
    add_hsts(&mut head, &exchange.connection)?;
    cors::insert(session.req_header(), &mut head, exchange)?;
    let headless = session.req_header().method == Method::HEAD || body.is_empty();
    // If the connection closes anyway, or is HTTP/2, the response need not wait for the rest of the
    // request. But curl (7.88) can wait for ever if a stream of HTTP/2 ends without a body while
    // it sends; gRPC's clients do not, and their messages may come late.
    let is_awaited = if session.is_http2() {
        headless && !head.headers.contains_key(grpc::STATUS)
    } else {
        session.get_keepalive().is_some()
    };
    let read_whole = is_awaited && body_drain::drain(session).await;
    if !read_whole {
        session.set_keepalive(None);
    }
    drain::announce(session, head.status);
    write_head(session, head, headless).await?;
    if !headless {
        session.write_response_body(Some(body), true).await?;
    }
    Ok(())
}

/// Writes the head of a response; `is_end`: the response has no body. Pingora ends an HTTP/2 stream
/// only by a DATA frame then, which gRPC clients do not accept from a response that consists of
/// trailers only.
///
/// # Errors
/// The client has closed the connection.
pub(in crate::gateway) async fn write_head(
    session: &mut Session,
    head: ResponseHeader,
    is_end: bool,
) -> Result<()> {
    match &mut *session.downstream_session {
        ServerSession::H2(stream) if is_end => stream.write_response_header(Box::new(head), true),
        _ => session.write_response_header(Box::new(head), is_end).await,
    }
}

/// Adds `Strict-Transport-Security` to a response if the listener of the connection sets it.
///
/// # Errors
/// Never: the value is valid.
pub(super) fn add_hsts(response: &mut ResponseHeader, connection: &ConnectionInfo) -> Result<()> {
    match &connection.hsts {
        Some(value) => response.insert_header("Strict-Transport-Security", value.clone()),
        None => Ok(()),
    }
}

/// The head of a response with status 200, with a capacity of `headers` headers.
///
/// # Errors
/// Never: the status is valid.
pub(super) fn ok(headers: usize) -> Result<ResponseHeader> {
    ResponseHeader::build(StatusCode::OK, Some(headers))
}

/// Serializes a value as indented JSON.
pub(super) fn pretty(value: &impl Serialize) -> Bytes {
    let mut body = serde_json::to_vec_pretty(value).unwrap_or_default();
    body.push(b'\n');
    body.into()
}

async fn send(
    session: &mut Session,
    exchange: &Exchange,
    response: ProblemResponse<'_>,
) -> Result<()> {
    let grpc = Form::of(&session.req_header().headers);
    let status = if grpc.is_some() { StatusCode::OK } else { response.status };
    let mut head = ResponseHeader::build(status, Some(12))?;
    if let Some(seconds) = response.retry_after_seconds {
        head.insert_header("Retry-After", seconds)?;
    }
    head.insert_header(header::CACHE_CONTROL, HeaderValue::from_static("no-store"))?;
    for challenge in &response.challenges {
        head.append_header("WWW-Authenticate", challenge.clone())?;
    }
    if let Some(methods) = &response.allow {
        head.insert_header("Allow", methods)?;
    }
    limit_headers::insert(&mut head, exchange)?;
    if let Some(form) = grpc {
        head.insert_header(header::CONTENT_TYPE, form.content_type())?;
        header_edits::complete_own_response(session.req_header(), &mut head, exchange)?;
        head.insert_header("grpc-status", grpc_status(response.status))?;
        head.insert_header("grpc-message", grpc_message(&response.problem.detail))?;
        if let Some(ms) = response.problem.retry_after_ms {
            // When a client with a retry policy may try again (gRPC, "Server pushback").
            head.insert_header("grpc-retry-pushback-ms", ms)?;
        }
        return send_body(session, exchange, head, Bytes::new()).await;
    }
    let (content_type, body) = error_body::of(session.req_header(), exchange, &response);
    head.insert_header(header::CONTENT_TYPE, content_type)?;
    header_edits::complete_own_response(session.req_header(), &mut head, exchange)?;
    send_body(session, exchange, head, body).await
}

/// The 429 of a limit.
fn limited<'a>(
    exchange: &'a Exchange,
    check: &LimitCheck,
    unauthenticated: Option<Unauthenticated>,
) -> ProblemResponse<'a> {
    let policy = &exchange.snapshot.policy;
    let binding = check.reported.unwrap_or_default();
    let wait = check.standing(binding).map_or(0, |standing| standing.retry_after_us);
    let retry_after_ms = problem::retry_after_ms(wait);
    let client = exchange.client();
    let charge = check.taken.charges.get(binding);
    let violated = check.taken.charges.iter().zip(&check.taken.answer.outcomes).enumerate();
    let violated_policies = violated
        .filter(|(_, (charge, outcome))| charge.mode == Mode::Enforce && !outcome.enough)
        .map(|(index, _)| check.rule_name(policy, index))
        .collect();
    ProblemResponse {
        status: problem::LIMITED,
        retry_after_seconds: Some(seconds_up(wait).max(1)),
        allow: None,
        challenges: SmallVec::new(),
        problem: Problem {
            kind: QUOTA_EXCEEDED,
            title: "Too Many Requests",
            status: problem::LIMITED.as_u16(),
            detail: charge.map_or_else(String::new, |charge| match check.taken.banned {
                Some(_) => problem::banned(policy, charge, retry_after_ms),
                None => problem::limited(policy, client, charge, retry_after_ms, unauthenticated),
            }),
            violated_policies,
            retry_after_ms: Some(retry_after_ms),
            request_id: exchange.request_id.as_str(),
        },
    }
}

fn plain(status: StatusCode, detail: String, exchange: &Exchange) -> ProblemResponse<'_> {
    ProblemResponse {
        status,
        retry_after_seconds: None,
        allow: None,
        challenges: SmallVec::new(),
        problem: Problem {
            kind: BLANK,
            title: status.canonical_reason().unwrap_or_default(),
            status: status.as_u16(),
            detail,
            violated_policies: Vec::new(),
            retry_after_ms: None,
            request_id: exchange.request_id.as_str(),
        },
    }
}
