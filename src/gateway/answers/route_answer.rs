//! Answers of a route without an upstream: fixed responses and redirects.

use bytes::Bytes;
use http::header;
use pingora::prelude::{Error, ErrorType, ResponseHeader, Result};
use pingora::proxy::Session;

use crate::gateway::exchange::Exchange;
use crate::gateway::header_edits::{self, Subject};
use crate::gateway::{limit_headers, respond};
use crate::policy::handling::{FixedResponse, Redirect, RouteAnswer};

/// Writes the answer of a route to an allowed request.
///
/// # Errors
/// The client has closed the connection.
pub(in crate::gateway) async fn respond(
    session: &mut Session,
    exchange: &Exchange,
    answer: &RouteAnswer,
) -> Result<()> {
    let (mut head, body) = {
        let subject = Subject::of(session.req_header());
        match answer {
            RouteAnswer::Fixed(fixed) => fixed_response(fixed, &subject, exchange)?,
            RouteAnswer::Redirect(redirect) => {
                (redirect_head(redirect, &subject, exchange)?, Bytes::new())
            }
        }
    };
    limit_headers::insert(&mut head, exchange)?;
    header_edits::edit_response(session.req_header(), &mut head, exchange)?;
    respond::send_body(session, exchange, head, body).await
}

fn fixed_response(
    fixed: &FixedResponse,
    subject: &Subject<'_>,
    exchange: &Exchange,
) -> Result<(ResponseHeader, Bytes)> {
    let mut head = ResponseHeader::build(fixed.status, Some(12))?;
    if let Some(content_type) = &fixed.content_type {
        head.insert_header(header::CONTENT_TYPE, content_type.clone())?;
    }
    let values = subject.values(exchange);
    for edit in &fixed.headers {
        if let Some(value) = edit.value.value(Some(&values)) {
            head.insert_header(edit.written.clone(), value)?;
        }
    }
    Ok((head, fixed.body.clone()))
}

/// The head of a redirect. A request that has no URL to be redirected to has been refused.
fn redirect_head(
    redirect: &Redirect,
    subject: &Subject<'_>,
    exchange: &Exchange,
) -> Result<ResponseHeader> {
    let location = redirect
        .location(&subject.values(exchange))
        .ok_or_else(|| Error::explain(ErrorType::InternalError, "the redirect has no URL"))?;
    let mut head = ResponseHeader::build(redirect.status, Some(12))?;
    head.insert_header(header::LOCATION, location)?;
    Ok(head)
}
