//! The body of an error: a text of `[errors]` for what the client accepts, else a problem document.

use bytes::Bytes;
use http::HeaderValue;
use pingora::prelude::RequestHeader;

use super::{PROBLEM_BYTES, ProblemResponse};
use crate::gateway::exchange::Exchange;
use crate::gateway::header_edits::Subject;
use crate::policy::errors::template::ErrorValues;
use crate::policy::errors::{ErrorBody, PROBLEM_JSON};

/// The media type and the body of a response.
pub(super) fn of(
    request: &RequestHeader,
    exchange: &Exchange,
    response: &ProblemResponse<'_>,
) -> (HeaderValue, Bytes) {
    let errors = &exchange.snapshot.policy.errors;
    let own = errors.as_ref().and_then(|errors| errors.body(response.status, &request.headers));
    if let Some(own) = own {
        return (own.content_type.clone(), render(own, request, exchange, response));
    }
    let mut body = Vec::with_capacity(PROBLEM_BYTES);
    // Writing to a Vec does not fail.
    let _ = serde_json::to_writer(&mut body, &response.problem);
    (HeaderValue::from_static(PROBLEM_JSON), body.into())
}

#[cold]
fn render(
    body: &ErrorBody,
    request: &RequestHeader,
    exchange: &Exchange,
    response: &ProblemResponse<'_>,
) -> Bytes {
    let subject = Subject::of(request);
    let text = body.template.render(&ErrorValues {
        status: response.status.as_u16(),
        title: response.problem.title,
        kind: response.problem.kind,
        detail: &response.problem.detail,
        retry_after: response.retry_after_seconds,
        retry_after_ms: response.problem.retry_after_ms,
        request: subject.values(exchange),
    });
    text.into()
}
