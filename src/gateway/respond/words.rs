//! Status and words for each refusal and each failure.

use http::{Method, StatusCode};
use pingora::prelude::{Error, ErrorSource, ErrorType};

use crate::decide::Refusal;
use crate::decide::guard::Malformed;
use crate::decide::headers::{HeaderFault, UncountableHeader};
use crate::identity::IdentityError;
use crate::policy::matcher::takes;
use crate::policy::{Dimension, Policy};

/// What asks for a client's own limits, as `Allow` lists it.
pub(in crate::gateway) const LIMITS_METHODS: &str = "GET, HEAD, OPTIONS";

/// Status and words for a refusal.
pub(crate) fn words(policy: &Policy, refusal: Refusal) -> (StatusCode, String) {
    let bad = |detail: &dyn std::fmt::Display| (StatusCode::BAD_REQUEST, sentence(detail));
    match refusal {
        Refusal::Malformed(Malformed::NoHost) => bad(&"the request has no Host header"),
        Refusal::Malformed(Malformed::OddHost) => {
            bad(&"the Host header is not a name or an address with a port or none")
        }
        Refusal::Malformed(Malformed::OddTarget) => {
            bad(&"the target is neither a path that begins with a slash nor a URL")
        }
        Refusal::Malformed(Malformed::OddMethod) => bad(&"the method is not in capital letters"),
        Refusal::Malformed(Malformed::TwoLengths) => {
            bad(&"the request has both Content-Length and Transfer-Encoding; send one")
        }
        Refusal::Malformed(Malformed::OddCoding) => (
            StatusCode::NOT_IMPLEMENTED,
            "No Transfer-Encoding but chunked, once, is understood here.".to_string(),
        ),
        Refusal::Malformed(Malformed::UriTooLong) => {
            let most = policy.server.max_uri_bytes;
            (StatusCode::URI_TOO_LONG, format!("The target is longer than {most} bytes."))
        }
        Refusal::Malformed(Malformed::HeadersTooLarge) => {
            let most = policy.server.max_header_bytes;
            let detail = format!("The headers are larger than {most} bytes together.");
            (StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE, detail)
        }
        Refusal::Path(error) => bad(&error),
        Refusal::Identity(error @ (IdentityError::ConflictingKeys | IdentityError::KeyTooLong)) => {
            bad(&error)
        }
        Refusal::OtherMethod => {
            let detail = format!("Only {LIMITS_METHODS} are answered here.");
            (StatusCode::METHOD_NOT_ALLOWED, detail)
        }
        Refusal::Header(UncountableHeader { rule, dimension, fault }) => {
            let per = policy.rules.get(rule as usize).and_then(|rule| rule.per.get(dimension));
            let name = match per {
                Some(Dimension::Header(name)) => name.as_str(),
                _ => "",
            };
            bad(&match fault {
                HeaderFault::DifferentValues => format!(
                    "the header {name}, which a limit counts by, has different values; send one"
                ),
                HeaderFault::HopByHop => {
                    format!("Connection names the header {name}, which a limit counts by")
                }
            })
        }
        Refusal::TraceNotNamed => {
            (StatusCode::METHOD_NOT_ALLOWED, "TRACE is not answered here.".to_owned())
        }
        Refusal::NoRoute => {
            (StatusCode::NOT_FOUND, "No route matches this host, path and method.".to_string())
        }
        Refusal::KeyMissing => {
            (StatusCode::UNAUTHORIZED, "This route needs an API key and none was sent.".to_string())
        }
        Refusal::KeyUnknown => {
            (StatusCode::UNAUTHORIZED, "The API key that was sent is not known here.".to_string())
        }
        Refusal::Unavailable { .. } => (
            StatusCode::SERVICE_UNAVAILABLE,
            "A limit on this request cannot be checked at the moment; retry later.".to_string(),
        ),
        Refusal::Limited => {
            (StatusCode::TOO_MANY_REQUESTS, "A limit is exhausted; retry later.".to_string())
        }
    }
}

/// Status and words for a failure; none where nobody is left to read them.
pub(super) fn failure(error: &Error) -> Option<(StatusCode, &'static str)> {
    use ErrorType::{
        ConnectTimedout, ConnectionClosed, HTTPStatus, ReadError, ReadTimedout, WriteError,
        WriteTimedout,
    };
    Some(match (error.esource(), error.etype()) {
        (ErrorSource::Downstream, ReadTimedout) => {
            (StatusCode::REQUEST_TIMEOUT, "The rest of the request did not arrive in time.")
        }
        (ErrorSource::Downstream, ConnectionClosed | ReadError | WriteError | WriteTimedout) => {
            return None;
        }
        (ErrorSource::Downstream, _) => (StatusCode::BAD_REQUEST, "The request could not be read."),
        (_, HTTPStatus(status)) => {
            let status = StatusCode::from_u16(*status).unwrap_or(StatusCode::BAD_GATEWAY);
            (status, "The API behind this gateway has no server to ask.")
        }
        (ErrorSource::Upstream, ConnectTimedout) => (
            StatusCode::GATEWAY_TIMEOUT,
            "The API behind this gateway could not be reached in time.",
        ),
        (ErrorSource::Upstream, ReadTimedout | WriteTimedout) => {
            (StatusCode::GATEWAY_TIMEOUT, "The API behind this gateway did not answer in time.")
        }
        (ErrorSource::Upstream, _) => (
            StatusCode::BAD_GATEWAY,
            "The API behind this gateway could not be reached, or gave no valid answer.",
        ),
        _ => (StatusCode::INTERNAL_SERVER_ERROR, "The gateway failed to handle the request."),
    })
}

/// The methods that are answered where one was refused with 405, as `Allow` lists them. `routed` are
/// those that routes name; none: a route takes all.
pub(super) fn allowed(refusal: Option<Refusal>, routed: Option<&[Method]>) -> String {
    const ALL: [Method; 7] = [
        Method::GET,
        Method::HEAD,
        Method::POST,
        Method::PUT,
        Method::PATCH,
        Method::DELETE,
        Method::OPTIONS,
    ];
    if refusal != Some(Refusal::TraceNotNamed) {
        return LIMITS_METHODS.to_owned();
    }
    let routed = routed.unwrap_or(&ALL);
    let others = routed.iter().filter(|method| !ALL.contains(method));
    let mut methods: Vec<&str> = others.map(Method::as_str).collect();
    methods.sort_unstable();
    methods.dedup();
    let usual = ALL.iter().filter(|method| takes(routed, method) && !routed.is_empty());
    usual.map(Method::as_str).chain(methods).collect::<Vec<_>>().join(", ")
}

/// "the path is odd" as a sentence.
fn sentence(text: &dyn std::fmt::Display) -> String {
    let text = text.to_string();
    let mut letters = text.chars();
    let first = letters.next().map(|letter| letter.to_ascii_uppercase());
    first.into_iter().chain(letters).chain(['.']).collect()
}
