//! Status and detail of the problem documents that the gateway responds with, and that explanations
//! report.

use std::fmt::Write as _;

use http::{HeaderName, HeaderValue, Method, StatusCode};
use smallvec::{SmallVec, smallvec};

use super::guard::Malformed;
use super::headers::{HeaderFault, UncountableHeader};
use super::own_key::RotationRefusal;
use super::{Refusal, Rejection, Unauthenticated, own_key};
use crate::client::Client;
use crate::client::credential::{IdentityError, MAX_KEY_BYTES};
use crate::client::principal::KeyRefusal;
use crate::client::settings::KeySource;
use crate::limit::charge::Charge;
use crate::limit::cost::Cost;
use crate::policy::cors::PreflightRefusal;
use crate::policy::matcher::takes;
use crate::policy::{Dimension, Policy, WrittenLimit};

/// Methods that `clients.limits_path` accepts, as the `Allow` header lists them.
pub fn own_limits_methods(policy: &Policy) -> &'static str {
    if own_key::is_on(policy) { "GET, HEAD, OPTIONS, POST" } else { "GET, HEAD, OPTIONS" }
}

/// Status of a request that a rate limit denies.
pub const LIMITED: StatusCode = StatusCode::TOO_MANY_REQUESTS;

/// Status and detail of a request that cannot be checked because Redis is unavailable.
pub const UNAVAILABLE: (StatusCode, &str) = (
    StatusCode::SERVICE_UNAVAILABLE,
    "A limit on this request cannot be checked at the moment; retry later.",
);

/// Initial capacity of the detail of a rate limit, in bytes.
const DETAIL_BYTES: usize = 128;

/// Status and detail of a request that is refused whatever its buckets hold.
pub fn refused(policy: &Policy, refusal: Refusal) -> (StatusCode, String) {
    match refusal {
        Refusal::Rejected(rejection) => rejected(policy, rejection),
        Refusal::Unauthenticated(reason) => {
            let status = match reason {
                _ if reason.is_unverified() => StatusCode::SERVICE_UNAVAILABLE,
                Unauthenticated::KeyRefused { why: KeyRefusal::Denied(status), .. }
                    if !status.is_redirection() =>
                {
                    status
                }
                _ => StatusCode::UNAUTHORIZED,
            };
            (status, unauthenticated(policy, reason))
        }
    }
}

/// Why a request needs an API key, or another one: where keys are expected, or where the unknown
/// one was. Never the key.
fn unauthenticated(policy: &Policy, reason: Unauthenticated) -> String {
    let sources = &policy.clients.key_sources;
    match reason {
        Unauthenticated::KeyMissing | Unauthenticated::KeyRequired(_) => {
            let keys = sources.iter().filter(|source| **source != KeySource::Basic);
            let mut wanted: Vec<String> = keys.map(place).collect();
            if let Some(first) = wanted.first_mut() {
                *first = format!("an API key {first}");
            }
            if sources.contains(&KeySource::Basic) {
                wanted.push("a user and a password in Authorization".to_owned());
            }
            let wanted = match wanted.as_slice() {
                [] => "an API key".to_owned(),
                [wanted] => wanted.clone(),
                [wanted @ .., last] => format!("{} or {last}", wanted.join(", ")),
            };
            format!("This request requires {wanted}.")
        }
        Unauthenticated::KeyUnknown { source } => match sources.get(source) {
            Some(KeySource::Bearer) => {
                "The bearer token in Authorization is not an API key of this gateway.".to_owned()
            }
            Some(source) => format!("The API key {} is unknown.", place(source)),
            None => "The API key is unknown.".to_owned(),
        },
        Unauthenticated::KeyRefused { why: KeyRefusal::Denied(_), .. } => {
            "This request is not authorized.".to_owned()
        }
        Unauthenticated::KeyRefused { why: KeyRefusal::NoAnswer, .. } => {
            "This request cannot be authorized at the moment; retry later.".to_owned()
        }
        Unauthenticated::KeyRefused { source, why } => {
            if sources.get(source) == Some(&KeySource::Basic) {
                return match why {
                    KeyRefusal::Disabled => "The user in Authorization is disabled.",
                    KeyRefusal::Unchecked => {
                        "The password in Authorization cannot be checked at the moment; retry later."
                    }
                    _ => "The user or the password in Authorization is wrong.",
                }
                .to_owned();
            }
            let place = sources.get(source).map(place).unwrap_or_default();
            match why {
                KeyRefusal::NotYetValid => format!("The API key {place} is not valid yet."),
                KeyRefusal::Expired => format!("The API key {place} has expired."),
                KeyRefusal::Disabled => format!("The API key {place} is disabled."),
                KeyRefusal::Password => format!("The password {place} is wrong."),
                KeyRefusal::Unverified
                | KeyRefusal::Unchecked
                | KeyRefusal::NoAnswer
                | KeyRefusal::Denied(_) => {
                    format!("The API key {place} cannot be checked at the moment; retry later.")
                }
                KeyRefusal::Token(why) => format!("The token {place} {why}."),
            }
        }
    }
}

/// Which keys of a request cannot be used: where they were, so that a client that sends a bearer
/// token of the upstream's learns that it is read as a key. Never the key.
fn unidentified(policy: &Policy, error: IdentityError) -> String {
    let place =
        |source: usize| policy.clients.key_sources.get(source).map_or_else(String::new, place);
    match error {
        IdentityError::ConflictingKeys { first, second } if first == second => {
            format!("The request has two different API keys {}; send one.", place(first))
        }
        IdentityError::ConflictingKeys { first, second } => format!(
            "The request has two different API keys, one {} and one {}; send one.",
            place(first),
            place(second)
        ),
        IdentityError::KeyTooLong { at } => {
            format!("The API key {} is longer than {MAX_KEY_BYTES} bytes.", place(at))
        }
    }
}

/// The reason of a request that is limited: not whether its password was wrong, which is not
/// verified for every such request.
fn unverified(reason: Unauthenticated) -> Unauthenticated {
    match reason {
        Unauthenticated::KeyRefused { source, why: KeyRefusal::Password } => {
            Unauthenticated::KeyRefused { source, why: KeyRefusal::Unchecked }
        }
        reason => reason,
    }
}

/// Where a key is in a request, after "the API key".
fn place(source: &KeySource) -> String {
    match source {
        KeySource::Header(name) => format!("in the header {}", capitalized(name)),
        KeySource::Bearer => "as a bearer token in Authorization".to_owned(),
        KeySource::Query(name) => format!("in the query parameter {name}"),
        KeySource::Basic => "as a password in Authorization".to_owned(),
    }
}

/// Name of a header with a capital letter at the start of each word, as documentation spells it.
fn capitalized(name: &HeaderName) -> String {
    let mut starts_word = true;
    let letter = |letter: char| {
        let shown = if starts_word { letter.to_ascii_uppercase() } else { letter };
        starts_word = letter == '-';
        shown
    };
    name.as_str().chars().map(letter).collect()
}

/// Values of the `WWW-Authenticate` headers of a 401, which RFC 9110, section 15.5.2, requires. No
/// registered scheme is for API keys, so `ApiKey` names one where the gateway accepts neither
/// bearer tokens nor passwords.
pub fn challenges(policy: &Policy, reason: Unauthenticated) -> SmallVec<[HeaderValue; 2]> {
    let sources = &policy.clients.key_sources;
    let basic = policy.passwords.as_ref().map(|passwords| passwords.challenge.clone());
    let is_about_password = match reason {
        Unauthenticated::KeyUnknown { source } | Unauthenticated::KeyRefused { source, .. } => {
            sources.get(source) == Some(&KeySource::Basic)
        }
        Unauthenticated::KeyMissing | Unauthenticated::KeyRequired(_) => {
            !sources.contains(&KeySource::Bearer)
        }
    };
    match basic {
        Some(basic) if is_about_password => smallvec![basic],
        basic => {
            let first = HeaderValue::from_static(challenge_of_keys(sources, reason));
            std::iter::once(first).chain(basic).collect()
        }
    }
}

fn challenge_of_keys(sources: &[KeySource], reason: Unauthenticated) -> &'static str {
    match reason {
        // RFC 6750, section 3.1.
        Unauthenticated::KeyUnknown { source } | Unauthenticated::KeyRefused { source, .. }
            if sources.get(source) == Some(&KeySource::Bearer) =>
        {
            "Bearer error=\"invalid_token\""
        }
        _ if sources.contains(&KeySource::Bearer) => "Bearer",
        _ => "ApiKey",
    }
}

fn rejected(policy: &Policy, rejection: Rejection) -> (StatusCode, String) {
    let bad = |detail: &dyn std::fmt::Display| (StatusCode::BAD_REQUEST, sentence(detail));
    match rejection {
        Rejection::Malformed(malformed) => self::malformed(policy, malformed),
        Rejection::Path(error) => bad(&error),
        Rejection::Identity(error) => (StatusCode::BAD_REQUEST, unidentified(policy, error)),
        Rejection::OwnLimitsMethod => {
            let detail = format!("Only {} are allowed here.", own_limits_methods(policy));
            (StatusCode::METHOD_NOT_ALLOWED, detail)
        }
        Rejection::Rotation(refusal) => rotation(refusal),
        Rejection::NoLocation(missing) => bad(&missing),
        Rejection::Header(header) => bad(&uncountable(policy, header)),
        Rejection::TraceNotNamed => {
            (StatusCode::METHOD_NOT_ALLOWED, "TRACE is not allowed here.".to_owned())
        }
        Rejection::BodyTooLarge { max_bytes } => {
            (StatusCode::PAYLOAD_TOO_LARGE, body_too_large(max_bytes))
        }
        Rejection::QueueFull => (
            LIMITED,
            "Too many requests are waiting at the gateway at the moment; retry later.".to_owned(),
        ),
        Rejection::NoTokenKeys => (
            StatusCode::SERVICE_UNAVAILABLE,
            "Tokens of this issuer cannot be verified at the moment; retry later.".to_owned(),
        ),
        Rejection::Preflight(PreflightRefusal::Origin) => {
            (StatusCode::FORBIDDEN, "CORS: pages of this origin are not allowed here.".to_owned())
        }
        Rejection::Preflight(PreflightRefusal::Method) => {
            let detail = "CORS: pages are not allowed to use this method here.";
            (StatusCode::FORBIDDEN, detail.to_owned())
        }
        // Which list, and what it has, is for operators.
        Rejection::IpDenied(_) => {
            (StatusCode::FORBIDDEN, "Requests from this address are not allowed.".to_owned())
        }
        Rejection::Maintenance { .. } => {
            let detail = "This service is in maintenance at the moment; retry later.";
            (StatusCode::SERVICE_UNAVAILABLE, detail.to_owned())
        }
        Rejection::Shed => (
            StatusCode::SERVICE_UNAVAILABLE,
            "The service is overloaded at the moment; retry later.".to_owned(),
        ),
        Rejection::NoRoute => {
            (StatusCode::NOT_FOUND, "No route matches this host, path and method.".to_owned())
        }
    }
}

fn rotation(refusal: RotationRefusal) -> (StatusCode, String) {
    let (status, detail) = match refusal {
        RotationRefusal::CrossSite => {
            (StatusCode::FORBIDDEN, "Pages of other sites cannot replace API keys.")
        }
        RotationRefusal::NotStored => {
            (StatusCode::FORBIDDEN, "Clients cannot replace this API key themselves.")
        }
        RotationRefusal::Invalid(detail) => (StatusCode::BAD_REQUEST, detail),
        RotationRefusal::Conflict(detail) => (StatusCode::CONFLICT, detail),
        RotationRefusal::TooSoon { .. } => {
            (LIMITED, "This client has replaced an API key a short time ago; retry later.")
        }
        RotationRefusal::Unavailable | RotationRefusal::NotConfirmed => (
            StatusCode::SERVICE_UNAVAILABLE,
            "API keys cannot be replaced at the moment; retry later.",
        ),
    };
    (status, detail.to_owned())
}

/// Detail of the 413 for a body over `max_body_bytes`.
pub fn body_too_large(max_bytes: u64) -> String {
    format!("The body is larger than {max_bytes} bytes.")
}

fn malformed(policy: &Policy, malformed: Malformed) -> (StatusCode, String) {
    let bad = |detail: &str| (StatusCode::BAD_REQUEST, sentence(&detail));
    match malformed {
        Malformed::NoHost => bad("the request has no Host header"),
        Malformed::InvalidHost => bad("the Host header is not a valid host with an optional port"),
        Malformed::OtherHost => {
            bad("the Host header is not the host of the URL that is the target")
        }
        Malformed::InvalidTarget => bad("the target is neither a path nor a URL"),
        Malformed::Connect => (
            StatusCode::METHOD_NOT_ALLOWED,
            "CONNECT is not allowed: this gateway opens no tunnels.".to_owned(),
        ),
        Malformed::LowercaseMethod => bad("the method has lower-case letters"),
        Malformed::ConflictingLengths => {
            bad("the request has both Content-Length and Transfer-Encoding; send one")
        }
        Malformed::BareLineFeed => bad("a line of the head ends with LF instead of CR LF"),
        Malformed::SpaceAroundValue => {
            bad("a header value begins or ends with a space or a tab, which HTTP/2 does not allow")
        }
        Malformed::InvalidConnection => bad(
            "the Connection header has an invalid option or names a header that must be forwarded",
        ),
        Malformed::UnsupportedExpectation => (
            StatusCode::EXPECTATION_FAILED,
            "The only supported Expect is 100-continue.".to_owned(),
        ),
        Malformed::UnsupportedCoding => (
            StatusCode::NOT_IMPLEMENTED,
            "The only supported Transfer-Encoding is chunked, once.".to_owned(),
        ),
        Malformed::UriTooLong => {
            let most = policy.server.max_uri_bytes;
            (StatusCode::URI_TOO_LONG, format!("The target is longer than {most} bytes."))
        }
        Malformed::TooManyHeaders => {
            let most = policy.server.limits.max_headers;
            let detail = format!("The request has more than {most} header lines.");
            (StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE, detail)
        }
        Malformed::HeadersTooLarge => {
            let most = policy.server.max_header_bytes;
            let detail = format!("The headers are larger than {most} bytes.");
            (StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE, detail)
        }
    }
}

fn uncountable(policy: &Policy, header: UncountableHeader) -> String {
    let UncountableHeader { rule, dimension, fault } = header;
    let per = policy.rules.get(rule as usize).and_then(|rule| rule.per.get(dimension));
    let name = match per {
        Some(Dimension::Header(name)) => name.as_str(),
        _ => "",
    };
    match fault {
        HeaderFault::DifferentValues => {
            format!(
                "a limit counts by the header {name}, which has several different values; send one"
            )
        }
        HeaderFault::HopByHop => {
            format!("a limit counts by the header {name}, which Connection names")
        }
    }
}

/// Value of the `Allow` header of a response with status 405; `None` for other rejections. `routed`
/// returns the methods that the routes for the path name; `None`: a route accepts all methods.
pub fn allow_header(
    policy: &Policy,
    rejection: Rejection,
    routed: impl FnOnce() -> Option<Vec<Method>>,
) -> Option<String> {
    match rejection {
        Rejection::OwnLimitsMethod => Some(own_limits_methods(policy).to_owned()),
        Rejection::TraceNotNamed => Some(routed_methods(routed().as_deref())),
        Rejection::Malformed(Malformed::Connect) => Some(routed_methods(None)),
        _ => None,
    }
}

fn routed_methods(routed: Option<&[Method]>) -> String {
    const ALL: [Method; 7] = [
        Method::GET,
        Method::HEAD,
        Method::POST,
        Method::PUT,
        Method::PATCH,
        Method::DELETE,
        Method::OPTIONS,
    ];
    let routed = routed.unwrap_or(&ALL);
    let others = routed.iter().filter(|method| !ALL.contains(method));
    let mut methods: Vec<&str> = others.map(Method::as_str).collect();
    methods.sort_unstable();
    methods.dedup();
    let usual = ALL.iter().filter(|method| takes(routed, method) && !routed.is_empty());
    usual.map(Method::as_str).chain(methods).collect::<Vec<_>>().join(", ")
}

/// Detail of a request that the limit of `charge` denies. `reason`: why the request would be
/// refused otherwise. Such a request is counted as one without a key, whatever plan the client has.
pub fn limited(
    policy: &Policy,
    client: Option<&Client>,
    charge: &Charge,
    retry_after_ms: u64,
    reason: Option<Unauthenticated>,
) -> String {
    let rule = policy.rules.get(charge.rule as usize);
    let name = rule.map_or("", |rule| &rule.name);
    let principal = client.and_then(Client::principal);
    let written = rule.and_then(|rule| rule.written(charge.limit_index, principal));
    let burst = charge.limit.capacity();
    let plan = match reason {
        None => client.map_or("", |client| policy.plan_name(client.plan)),
        Some(_) => policy.plan_name(policy.clients.anonymous_plan),
    };
    let mut text = String::with_capacity(DETAIL_BYTES);
    let _ = match reason {
        None => write!(text, "Limit \"{name}\" ("),
        Some(reason) => {
            let unauthenticated = unauthenticated(policy, unverified(reason));
            write!(text, "{unauthenticated} Attempts are limited: limit \"{name}\" (")
        }
    };
    if let Some(written) = written {
        let _ = write!(text, "{written}, ");
    }
    if let Some(max_delay_us) = written.and_then(WrittenLimit::max_delay_us) {
        let _ = write!(text, "delay up to {} ms, ", max_delay_us / 1_000);
    }
    let _ = match written.filter(|written| !written.has_burst()) {
        Some(_) => write!(text, "plan {plan}) "),
        None => write!(text, "burst {burst}, plan {plan}) "),
    };
    let shortage = charge.limit.shortage();
    let _ = match charge.cost_in_tokens() {
        Cost::ONE => write!(text, "{}", shortage.what),
        cost => write!(text, "lacks the {cost} tokens that this request takes"),
    };
    let about = if shortage.is_guess { "about " } else { "" };
    let _ = write!(text, "; retry in {about}{retry_after_ms} ms.");
    text
}

/// Detail of a request whose client the rule of `charge` has banned.
pub fn banned(policy: &Policy, charge: &Charge, retry_after_ms: u64) -> String {
    let rule = policy.rules.get(charge.rule as usize).map_or("", |rule| &rule.name);
    format!("Limit \"{rule}\" has banned this client; retry in {retry_after_ms} ms.")
}

/// Converts microseconds to the milliseconds that a response reports: rounded up, at least 1.
pub const fn retry_after_ms(retry_after_us: u64) -> u64 {
    let milliseconds = retry_after_us.div_ceil(1_000);
    if milliseconds == 0 { 1 } else { milliseconds }
}

/// Adds a capital letter and a full stop.
fn sentence(text: &dyn std::fmt::Display) -> String {
    let text = text.to_string();
    let mut letters = text.chars();
    let first = letters.next().map(|letter| letter.to_ascii_uppercase());
    first.into_iter().chain(letters).chain(['.']).collect()
}
