//! Changes of headers by a route: `request_headers` and `response_headers`.

use std::borrow::Cow;

use http::request::Parts;
use http::{HeaderMap, HeaderName};
use percent_encoding::{CONTROLS, percent_encode};
use pingora::prelude::{RequestHeader, ResponseHeader, Result};
use smallvec::SmallVec;

use super::exchange::Exchange;
use super::respond;
use crate::client::Client;
use crate::decide;
use crate::policy::handling::{Handling, HeaderEdit, HeaderEdits};
use crate::policy::template::{NamedValues, NamedVariable, Values};

/// Changes the headers of a request as its route has it, after all other headers were set.
/// `subject` is the client's request, if a value depends on it.
///
/// # Errors
/// Never: names and values are valid.
pub(super) fn edit_request(
    request: &mut RequestHeader,
    subject: Option<&Subject<'_>>,
    exchange: &Exchange,
) -> Result<()> {
    let Some(handling) = exchange.handling() else { return Ok(()) };
    let edits = &handling.request_headers;
    if edits.is_empty() {
        return Ok(());
    }
    let values = subject.map(|subject| subject.values(exchange));
    if request.headers.keys().any(|name| name.as_str().contains('_')) {
        remove_aliases(request, edits);
    }
    for name in &edits.remove {
        request.remove_header(name);
    }
    for edit in &edits.set {
        match edit.value.value(values.as_ref()) {
            Some(value) => request.insert_header(edit.written.clone(), value)?,
            // What the client sent must not pass as the value of the gateway.
            None => drop(request.remove_header(&edit.name)),
        }
    }
    for edit in &edits.add {
        if let Some(value) = edit.value.value(values.as_ref()) {
            request.append_header(edit.written.clone(), value)?;
        }
    }
    Ok(())
}

/// Removes headers that servers may read as one that is set or removed, because they treat `_` as
/// `-`.
fn remove_aliases(request: &mut RequestHeader, edits: &HeaderEdits) {
    let is_same = |own: &HeaderName, other: &HeaderName| {
        let dash = |byte: u8| if byte == b'_' { b'-' } else { byte };
        own.as_str().len() == other.as_str().len()
            && own.as_str().bytes().map(dash).eq(other.as_str().bytes().map(dash))
    };
    let replaced = || edits.remove.iter().chain(edits.set.iter().map(|edit| &edit.name));
    let aliases = request.headers.keys().filter(|name| replaced().any(|own| is_same(own, name)));
    let aliases: Vec<HeaderName> = aliases.cloned().collect();
    for name in aliases {
        request.remove_header(&name);
    }
}

/// Changes the headers of an upstream's final response as the route has it.
///
/// # Errors
/// Never: names and values are valid.
pub(super) fn edit_response(
    request: &RequestHeader,
    response: &mut ResponseHeader,
    exchange: &Exchange,
) -> Result<()> {
    let Some(handling) = exchange.handling() else { return Ok(()) };
    let edits = &handling.response_headers;
    if edits.is_empty() || !respond::is_final(response.status) {
        return Ok(());
    }
    let subject = edits.has_variables().then(|| Subject::of(request));
    let values = subject.as_ref().map(|subject| subject.values(exchange));
    for name in &edits.remove {
        response.remove_header(name);
    }
    for edit in &edits.set {
        match edit.value.value(values.as_ref()) {
            Some(value) => response.insert_header(edit.written.clone(), value)?,
            None => drop(response.remove_header(&edit.name)),
        }
    }
    for edit in &edits.add {
        if let Some(value) = edit.value.value(values.as_ref()) {
            response.append_header(edit.written.clone(), value)?;
        }
    }
    Ok(())
}

/// Adds the headers that a route sets or adds to a response of the gateway itself, except those
/// that the response has: they describe its own body.
///
/// # Errors
/// Never: names and values are valid.
pub(super) fn complete_own_response(
    request: &RequestHeader,
    response: &mut ResponseHeader,
    exchange: &Exchange,
) -> Result<()> {
    let Some(handling) = exchange.handling() else { return Ok(()) };
    let edits = &handling.response_headers;
    if edits.set.is_empty() && edits.add.is_empty() {
        return Ok(());
    }
    let subject = edits.has_variables().then(|| Subject::of(request));
    let values = subject.as_ref().map(|subject| subject.values(exchange));
    let is_new = |edit: &&HeaderEdit, own: &HeaderMap| !own.contains_key(&edit.name);
    let edits = edits.set.iter().chain(&edits.add);
    let edits: SmallVec<[&HeaderEdit; 8]> =
        edits.filter(|edit| is_new(edit, &response.headers)).collect();
    for edit in edits {
        if let Some(value) = edit.value.value(values.as_ref()) {
            response.append_header(edit.written.clone(), value)?;
        }
    }
    Ok(())
}

fn encoded_query(query: &str) -> String {
    format!("?{}", percent_encode(query.as_bytes(), CONTROLS))
}

/// The parts of a client's request that variables name.
pub(super) struct Subject<'a> {
    method: http::Method,
    host: Cow<'a, str>,
    path: Cow<'a, str>,
    /// With its `?`; empty without one.
    query: String,
    headers: Cow<'a, HeaderMap>,
}

impl<'a> Subject<'a> {
    pub(super) fn of(request: &'a RequestHeader) -> Self {
        let parts: &Parts = request;
        Self {
            method: parts.method.clone(),
            host: decide::host(&parts.headers),
            path: percent_encode(parts.uri.path().as_bytes(), CONTROLS).into(),
            query: parts.uri.query().map_or_else(String::new, encoded_query),
            headers: Cow::Borrowed(&parts.headers),
        }
    }

    /// A copy of what the changes of a request need of it; `None` if they need nothing.
    pub(super) fn for_request(
        request: &RequestHeader,
        handling: &Handling,
    ) -> Option<Subject<'static>> {
        let edits = &handling.request_headers;
        let needs_headers = edits.has(NamedVariable::Header);
        edits.has_variables().then(|| Subject::of(request).into_owned(needs_headers))
    }

    /// The same, without the headers unless they are needed.
    fn into_owned(self, needs_headers: bool) -> Subject<'static> {
        let headers = if needs_headers { self.headers.into_owned() } else { HeaderMap::new() };
        Subject {
            method: self.method,
            host: Cow::Owned(self.host.into_owned()),
            path: Cow::Owned(self.path.into_owned()),
            query: self.query,
            headers: Cow::Owned(headers),
        }
    }

    pub(super) fn values<'b>(&'b self, exchange: &'b Exchange) -> Values<'b> {
        let policy = &exchange.snapshot.policy;
        let client = exchange.client();
        let known = client.and_then(Client::principal);
        Values {
            client_id: known.map(|known| &*known.id),
            client_plan: client.map_or("", |client| policy.plan_name(client.plan)),
            client_tenant: client
                .and_then(|client| client.tenant.as_ref())
                .map_or("", |tenant| &tenant.id),
            client_ip: client.and_then(|client| client.ip),
            request_id: exchange.request_id.as_str(),
            route: exchange.route().map_or("", |route| &*route.name),
            host: &self.host,
            method: self.method.as_str(),
            path: self.path.as_bytes(),
            query: self.query.as_bytes(),
            named: NamedValues::Request {
                headers: &self.headers,
                params: exchange.route().map(|route| &route.matcher.params),
            },
        }
    }
}
