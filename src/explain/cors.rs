//! The explanation of what a response says about the origin of its request.

use http::{HeaderValue, header};

use super::report::{ExplainedCors, HeaderLine};
use crate::base::text::cut;
use crate::decide::{Head, Precheck};
use crate::policy::Policy;
use crate::policy::cors::{Cors, Preflight};

/// How much of a value is shown, in characters.
const MAX_VALUE: usize = 200;

/// What the response says about the origin of the request; none if it has no origin, or if `cors`
/// does not apply to it.
pub(super) fn cors(
    policy: &Policy,
    head: &Head<'_>,
    precheck: &Precheck<'_>,
) -> Option<ExplainedCors> {
    let origin = head.headers.get(header::ORIGIN)?;
    precheck.identity.as_ref().ok()?;
    let cors = policy.cors(precheck.route)?;
    let preflight = precheck.preflight.as_ref();
    let is_refused = precheck.refused().is_some();
    let headers = match preflight {
        Some(preflight) if !is_refused => cors.of_preflight(preflight, head.headers),
        _ => cors.of_response(head.headers),
    };
    let text = |value: &HeaderValue| cut(&String::from_utf8_lossy(value.as_bytes()), MAX_VALUE);
    let origin = text(origin);
    let is_allowed = !headers.is_empty();
    let why = match preflight {
        _ if head.headers.get_all(header::ORIGIN).iter().count() > 1 => {
            "the request has several origins: pages send one".to_owned()
        }
        _ if !is_allowed => format!("{origin} is none of the allowed origins"),
        Some(_) if is_refused => "the page cannot send the request".to_owned(),
        Some(preflight) => requested(cors, preflight),
        None => format!("pages of {origin} can read the response"),
    };
    Some(ExplainedCors {
        allowed: is_allowed && !(is_refused && preflight.is_some()),
        preflight: preflight.is_some(),
        headers: headers
            .iter()
            .map(|(name, value)| HeaderLine { name, value: text(value) })
            .collect(),
        why,
    })
}

/// What pages may do according to the answer to a preflight request.
fn requested(cors: &Cors, preflight: &Preflight<'_>) -> String {
    let method = &preflight.method;
    let headers = match cors.headers {
        None => "with the headers that it asks for",
        Some(_) => "with the headers that are listed",
    };
    format!("a page of this origin may send {method} {headers}")
}
