//! Answers of our own. The only place that knows a status code.
//!
//! All are problem documents (RFC 9457) with the request's id, or gRPC's form of the same; all
//! keep the connection where HTTP allows it, since a client that is told to wait and loses its
//! connection over it pays twice.

mod grpc;
mod words;

use std::fmt::Write as _;

use bytes::Bytes;
use http::{HeaderValue, Method, StatusCode, header};
use pingora::prelude::{Error, ErrorSource, ErrorType, ResponseHeader, Result};
use pingora::proxy::{FailToProxy, Session};
use serde::Serialize;
use tracing::warn;

use super::exchange::{Exchange, Judged};
use super::{drain, leftover, limit_headers};
use crate::decide::guard::Malformed;
use crate::decide::{self, Refusal};
use crate::limit::charge::{Charge, Mode};
use crate::limit::seconds_up;
use crate::policy::Policy;
use grpc::{grpc_message, grpc_status, is_grpc};
pub(super) use words::LIMITS_METHODS;
pub(crate) use words::words;
use words::{allowed, failure};

/// An answer of our own.
struct Answer<'a> {
    status: StatusCode,
    problem: Problem<'a>,
    retry_after_seconds: Option<u64>,
}

/// A problem document, RFC 9457.
#[derive(Debug, Serialize)]
struct Problem<'a> {
    #[serde(rename = "type")]
    kind: &'static str,
    title: &'static str,
    status: u16,
    detail: String,
    /// The rules that refused, as draft-ietf-httpapi-ratelimit-headers names the member.
    #[serde(rename = "violated-policies", skip_serializing_if = "Vec::is_empty")]
    violated_policies: Vec<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    retry_after_ms: Option<u64>,
    request_id: &'a str,
}

/// Room for the words of a refusal, and for a problem with them. More is possible.
const DETAIL_BYTES: usize = 128;
const PROBLEM_BYTES: usize = 512;

/// The type of a problem that its status says all about (RFC 9457, section 4.2.1).
const BLANK: &str = "about:blank";

/// The draft's type of a refusal by a limit.
const QUOTA_EXCEEDED: &str = "https://iana.org/assignments/http-problem-types#quota-exceeded";

/// The error of an upstream none of whose servers has an address.
#[allow(clippy::unnecessary_box_returns, reason = "what Pingora's phases return")]
pub(super) fn no_server() -> Box<Error> {
    let status = StatusCode::BAD_GATEWAY.as_u16();
    Error::explain(ErrorType::HTTPStatus(status), "no server of the upstream has an address")
}

/// The error of an upstream that does not come to its final response.
#[allow(clippy::unnecessary_box_returns, reason = "what Pingora's phases return")]
pub(super) fn too_many_interim() -> Box<Error> {
    Error::explain(ErrorType::InvalidHTTPHeader, "too many interim responses").into_up()
}

/// The error of an upstream that changes to another protocol, which the client has not asked for.
#[allow(clippy::unnecessary_box_returns, reason = "what Pingora's phases return")]
pub(super) fn unasked_upgrade() -> Box<Error> {
    Error::explain(ErrorType::InvalidHTTPHeader, "101 to a request for no upgrade").into_up()
}

/// Answers a request that does not pass.
///
/// # Errors
/// The client is gone.
pub(super) async fn refuse(
    session: &mut Session,
    exchange: &Exchange,
    refusal: Refusal,
) -> Result<()> {
    if ends_connection(refusal) {
        session.set_keepalive(None);
    }
    let policy = &exchange.snapshot.policy;
    let answer = if let (Refusal::Limited, Some(judged)) = (refusal, &exchange.judged) {
        limited(policy, exchange, judged)
    } else {
        let (status, detail) = words(policy, refusal);
        let retry_after_seconds = match refusal {
            Refusal::Unavailable { retry_after } => Some(seconds_up(retry_after).max(1)),
            _ => None,
        };
        Answer { retry_after_seconds, ..plain(status, detail, exchange) }
    };
    send(session, exchange, answer).await
}

/// Whether no further request is read from the connection: servers disagree on where such a request
/// ends, so what follows it may be a part of it.
fn ends_connection(refusal: Refusal) -> bool {
    let Refusal::Malformed(malformed) = refusal else { return false };
    !matches!(malformed, Malformed::UriTooLong | Malformed::HeadersTooLarge)
}

/// Answers a request that could not be served, and says why in the log.
pub(super) async fn fail(session: &mut Session, exchange: &Exchange, error: &Error) -> FailToProxy {
    let closing = |error_code| FailToProxy { error_code, can_reuse_downstream: false };
    let Some((status, detail)) = failure(error) else { return closing(0) };
    if *error.esource() != ErrorSource::Downstream {
        let upstream = exchange.upstream().map_or("", |upstream| &upstream.name);
        let server = exchange.server.map(|server| server.to_string()).unwrap_or_default();
        let request_id = exchange.request_id.as_str();
        warn!(request_id, upstream, server, status = status.as_u16(), "{error}");
    }
    let error_code = status.as_u16();
    if session.response_written().is_some_and(|head| is_final(head.status)) {
        // The head is out: all that is left is to close, so that the client sees a cut body.
        return closing(error_code);
    }
    // Pingora closes the connection behind a failure, whatever it is told here. So says the answer.
    session.set_keepalive(None);
    // A client that is gone cannot be told.
    let _ = send(session, exchange, plain(status, detail.to_string(), exchange)).await;
    closing(error_code)
}

/// Whether nothing can follow a head with this status: what comes before an answer (103) is none.
pub(super) fn is_final(status: StatusCode) -> bool {
    !status.is_informational() || status == StatusCode::SWITCHING_PROTOCOLS
}

/// Writes a whole answer with a body that is already there.
///
/// # Errors
/// The client is gone.
pub(super) async fn send_body(
    session: &mut Session,
    mut head: ResponseHeader,
    body: Bytes,
) -> Result<()> {
    head.insert_header(header::CONTENT_LENGTH, body.len())?;
    // Where the connection closes anyway, the answer need not wait for the rest of the request.
    let read_whole = session.get_keepalive().is_some() && leftover::drain(session).await;
    if !read_whole {
        session.set_keepalive(None);
    }
    drain::announce(session);
    let headless = session.req_header().method == Method::HEAD || body.is_empty();
    session.write_response_header(Box::new(head), headless).await?;
    if !headless {
        session.write_response_body(Some(body), true).await?;
    }
    if !read_whole {
        leftover::linger(session).await;
    }
    Ok(())
}

/// The head of an answer of our own that refuses nothing, with room for so many headers.
///
/// # Errors
/// None that a fixed status could have.
pub(super) fn ok(headers: usize) -> Result<ResponseHeader> {
    ResponseHeader::build(StatusCode::OK, Some(headers))
}

/// A value as JSON for people to read.
pub(super) fn pretty(value: &impl Serialize) -> Bytes {
    let mut body = serde_json::to_vec_pretty(value).unwrap_or_default();
    body.push(b'\n');
    body.into()
}

async fn send(session: &mut Session, exchange: &Exchange, answer: Answer<'_>) -> Result<()> {
    let grpc = is_grpc(session);
    let status = if grpc { StatusCode::OK } else { answer.status };
    let mut head = ResponseHeader::build(status, Some(12))?;
    if let Some(seconds) = answer.retry_after_seconds {
        head.insert_header("Retry-After", seconds)?;
    }
    head.insert_header(header::CACHE_CONTROL, HeaderValue::from_static("no-store"))?;
    if answer.status == StatusCode::UNAUTHORIZED {
        // RFC 9110, section 15.5.2, demands a challenge; keys have no scheme of their own there.
        head.insert_header("WWW-Authenticate", HeaderValue::from_static("Bearer"))?;
    }
    if answer.status == StatusCode::METHOD_NOT_ALLOWED {
        head.insert_header("Allow", allow(session, exchange))?;
    }
    limit_headers::insert(&mut head, exchange)?;
    if grpc {
        head.insert_header(header::CONTENT_TYPE, HeaderValue::from_static("application/grpc"))?;
        head.insert_header("grpc-status", grpc_status(answer.status))?;
        head.insert_header("grpc-message", grpc_message(&answer.problem.detail))?;
        return send_body(session, head, Bytes::new()).await;
    }
    let problem_json = HeaderValue::from_static("application/problem+json");
    head.insert_header(header::CONTENT_TYPE, problem_json)?;
    let mut body = Vec::with_capacity(PROBLEM_BYTES);
    // Writing to memory that grows does not fail.
    let _ = serde_json::to_writer(&mut body, &answer.problem);
    send_body(session, head, body.into()).await
}

/// The methods that are answered where this one is not.
fn allow(session: &Session, exchange: &Exchange) -> String {
    let request = session.req_header();
    let router = &exchange.snapshot.policy.router;
    let methods = router.methods(&decide::host(&request.headers), request.uri.path());
    allowed(exchange.refusal, methods.as_deref())
}

/// The 429 of a limit.
fn limited<'a>(policy: &'a Policy, exchange: &'a Exchange, judged: &Judged) -> Answer<'a> {
    let binding = judged.verdict.reported_charge().unwrap_or_default();
    let wait = judged.standing(binding).map_or(0, |standing| standing.retry_after_us);
    let retry_after_ms = retry_after_ms(wait);
    let plan = exchange.client.map_or("", |client| policy.plan_name(client.plan));
    let charge = judged.taken.charges.get(binding);
    let violated = judged.taken.charges.iter().zip(&judged.taken.answer.outcomes).enumerate();
    let violated_policies = violated
        .filter(|(_, (charge, outcome))| charge.mode == Mode::Enforce && !outcome.enough)
        .map(|(index, _)| judged.rule_name(policy, index))
        .collect();
    Answer {
        status: StatusCode::TOO_MANY_REQUESTS,
        retry_after_seconds: Some(seconds_up(wait).max(1)),
        problem: Problem {
            kind: QUOTA_EXCEEDED,
            title: "Too Many Requests",
            status: StatusCode::TOO_MANY_REQUESTS.as_u16(),
            detail: charge.map_or_else(String::new, |charge| {
                limit_detail(policy, plan, charge, retry_after_ms)
            }),
            violated_policies,
            retry_after_ms: Some(retry_after_ms),
            request_id: exchange.request_id.as_str(),
        },
    }
}

/// A wait in milliseconds, as a refusal says it: rounded up, and never none.
pub(crate) fn retry_after_ms(ticks: u64) -> u64 {
    ticks.div_ceil(1_000).max(1)
}

/// The words of a refusal by the limit that makes the client, of the plan `plan`, wait longest.
pub(crate) fn limit_detail(
    policy: &Policy,
    plan: &str,
    charge: &Charge,
    retry_after_ms: u64,
) -> String {
    let rule = policy.rules.get(charge.rule as usize);
    let name = rule.map_or("", |rule| &rule.name);
    let rate = rule.and_then(|rule| rule.rate_of(charge.limit_index));
    let burst = charge.limit.capacity();
    let mut text = String::with_capacity(DETAIL_BYTES);
    let _ = write!(text, "Limit \"{name}\" (");
    if let Some(rate) = rate {
        let _ = write!(text, "{rate}, ");
    }
    let _ = write!(text, "burst {burst}, plan {plan}) ");
    let _ = match charge.cost {
        1 => write!(text, "is exhausted"),
        cost => write!(text, "lacks the {cost} tokens that this request takes"),
    };
    let _ = write!(text, "; retry in {retry_after_ms} ms.");
    text
}

fn plain(status: StatusCode, detail: String, exchange: &Exchange) -> Answer<'_> {
    Answer {
        status,
        retry_after_seconds: None,
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
