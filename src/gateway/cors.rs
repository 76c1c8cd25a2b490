//! CORS headers of responses: of the gateway itself, and of the upstream, whose own are replaced.

use http::HeaderName;
use pingora::prelude::{RequestHeader, ResponseHeader, Result};

use super::exchange::Exchange;
use crate::decide::decision::Decision;
use crate::decide::{self, Rejection};
use crate::policy::cors::{Cors, Preflight, is_of_cors};

/// Sets the CORS headers of a final response as `cors` of the route has it, or `[cors]` if the
/// request has no route. Without either, the response does not change.
///
/// # Errors
/// Never: names and values are valid.
pub(super) fn insert(
    request: &RequestHeader,
    response: &mut ResponseHeader,
    exchange: &Exchange,
) -> Result<()> {
    let policy = &exchange.snapshot.policy;
    if !policy.has_cors {
        return Ok(());
    }
    // No page of another site reads a new key, whatever `[cors]` allows.
    if matches!(exchange.decision(), Some(Decision::NewKey(_))) {
        return Ok(());
    }
    let route = match (exchange.route_index(), exchange.decision()) {
        (None, Some(Decision::Rejected(Rejection::Malformed(_) | Rejection::Identity(_)))) => {
            decide::route_of_refused(policy, request)
        }
        (route, _) => route,
    };
    match policy.cors(route) {
        None => Ok(()),
        Some(cors) => replace(cors, request, response, exchange),
    }
}

#[inline(never)]
fn replace(
    cors: &Cors,
    request: &RequestHeader,
    response: &mut ResponseHeader,
    exchange: &Exchange,
) -> Result<()> {
    // A page that opens a WebSocket does not read its headers.
    if response.status.is_informational() {
        return Ok(());
    }
    let own = response.headers.keys().filter(|name| is_of_cors(name));
    let own: Vec<HeaderName> = own.cloned().collect();
    for name in own {
        response.remove_header(&name);
    }
    let preflight = match exchange.decision() {
        Some(Decision::Preflight) => Preflight::of(&request.method, &request.headers),
        _ => None,
    };
    let headers = match &preflight {
        Some(preflight) => cors.of_preflight(preflight, &request.headers),
        None => cors.of_response(&request.headers),
    };
    for (name, value) in headers {
        response.insert_header(name, value)?;
    }
    if let Some(vary) = cors.vary(&response.headers, preflight.is_some()) {
        response.insert_header("Vary", vary)?;
    }
    Ok(())
}
