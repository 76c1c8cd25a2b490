//! Why the gateway itself responded to a request, or why the request failed: one code, the same in
//! the access log, in traces and in metrics. `docs/responses.md` lists the codes.

use super::decision::Decision;
use super::guard::Malformed;
use super::headers::HeaderFault;
use super::own_key::RotationRefusal;
use super::{Rejection, Unauthenticated};
use crate::client::credential::IdentityError;
use crate::client::jwt::TokenRefusal;
use crate::client::principal::KeyRefusal;
use crate::policy::cors::PreflightRefusal;
use crate::policy::path::PathError;
use crate::policy::refund::RefundReason;

/// Why a request did not get the complete response of an upstream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Reason {
    /// A limit is exhausted.
    Limited,
    /// A limit that counts by address is exhausted; the request has no API key, which it needs.
    LimitedMissingKey,
    /// A limit that counts by address is exhausted; the request has an unknown API key.
    LimitedUnknownKey,
    /// A limit that counts by address is exhausted; the request has an API key that cannot be used.
    LimitedRefusedKey,
    /// A limit that counts by address is exhausted; whose API key the request has was not found
    /// out.
    LimitedUnverifiedKey,
    /// A rule has banned the client.
    Banned,
    /// A limit cannot be checked, because Redis is unavailable (`on_failure = "deny"`).
    RedisUnavailable,
    /// The request has no API key, which `[clients]` or a rule requires.
    MissingKey,
    /// The API key is unknown.
    UnknownKey,
    /// See [`KeyRefusal::NotYetValid`].
    EarlyKey,
    /// See [`KeyRefusal::Expired`].
    ExpiredKey,
    /// See [`KeyRefusal::Unverified`].
    KeyStoreUnavailable,
    /// See [`KeyRefusal::Disabled`].
    DisabledKey,
    /// See [`KeyRefusal::Password`].
    WrongPassword,
    /// See [`KeyRefusal::Unchecked`] and [`KeyRefusal::NoAnswer`].
    AuthUnavailable,
    /// See [`KeyRefusal::Denied`].
    AuthDenied,
    /// See [`TokenRefusal::TooLong`].
    LongToken,
    /// See [`TokenRefusal::Malformed`].
    MalformedToken,
    /// See [`TokenRefusal::Algorithm`].
    TokenAlgorithm,
    /// See [`TokenRefusal::Type`].
    TokenType,
    /// See [`TokenRefusal::Issuer`].
    TokenIssuer,
    /// See [`TokenRefusal::UnknownKey`].
    TokenKey,
    /// See [`TokenRefusal::Signature`].
    TokenSignature,
    /// See [`TokenRefusal::Expired`].
    ExpiredToken,
    /// See [`TokenRefusal::NotYetValid`].
    EarlyToken,
    /// See [`TokenRefusal::Audience`].
    TokenAudience,
    /// See [`TokenRefusal::Claims`].
    TokenClaims,
    /// See [`TokenRefusal::Plan`].
    TokenPlan,
    /// See [`TokenRefusal::Inactive`].
    InactiveToken,
    /// See [`TokenRefusal::Scope`].
    TokenScope,
    /// See [`Rejection::NoTokenKeys`].
    NoTokenKeys,
    /// See [`IdentityError::ConflictingKeys`].
    ConflictingKeys,
    /// See [`IdentityError::KeyTooLong`].
    KeyTooLong,
    /// No route matches.
    NoRoute,
    /// A CORS preflight request whose origin is not allowed.
    CorsOrigin,
    /// A CORS preflight request whose method is not allowed.
    CorsMethod,
    /// The client's address may not send requests.
    IpDenied,
    /// The route is in maintenance.
    Maintenance,
    /// The method is not allowed: CONNECT, TRACE, or on `clients.limits_path`.
    MethodNotAllowed,
    /// A client cannot replace its own key: see [`RotationRefusal`].
    RotationRefused,
    /// See [`RotationRefusal::TooSoon`].
    RotationLimited,
    /// See [`Malformed::NoHost`].
    MissingHost,
    /// See [`Malformed::InvalidHost`] and [`Malformed::OtherHost`].
    InvalidHost,
    /// See [`Malformed::InvalidTarget`].
    InvalidTarget,
    /// See [`Malformed::LowercaseMethod`].
    InvalidMethod,
    /// See [`Malformed::ConflictingLengths`].
    ConflictingLengths,
    /// See [`Malformed::BareLineFeed`].
    BareLineFeed,
    /// See [`Malformed::SpaceAroundValue`].
    SpaceAroundValue,
    /// See [`Malformed::InvalidConnection`].
    InvalidConnection,
    /// See [`Malformed::UnsupportedExpectation`].
    UnsupportedExpectation,
    /// See [`Malformed::UnsupportedCoding`].
    UnsupportedCoding,
    /// See [`Malformed::UriTooLong`].
    UriTooLong,
    /// See [`Malformed::HeadersTooLarge`].
    HeadersTooLarge,
    /// See [`Malformed::TooManyHeaders`].
    TooManyHeaders,
    /// The `Content-Length` is larger than `max_body_bytes`.
    BodyTooLarge,
    /// Too many requests wait because of leaky buckets.
    QueueFull,
    /// The upstream has as many requests in flight as it may.
    Shed,
    /// See [`PathError::DotSegment`].
    DotSegment,
    /// See [`PathError::BadEscape`].
    InvalidEncoding,
    /// See [`PathError::Ambiguous`] and [`PathError::Unrewritable`].
    AmbiguousPath,
    /// See [`PathError::DifferentValues`] and [`PathError::TooLong`].
    AmbiguousRoute,
    /// See [`PathError::NoPathValue`].
    NoPathValue,
    /// See [`NoLocation`](crate::policy::handling::NoLocation).
    NoLocation,
    /// See [`HeaderFault::DifferentValues`].
    ConflictingHeaders,
    /// See [`HeaderFault::HopByHop`].
    HopByHopHeader,
    /// See [`Failure`].
    Failed(Failure),
}

/// Why a request failed after it was allowed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Failure {
    /// The client closed the connection before it had the whole response.
    ClientClosed,
    /// The client sent more of a body than `max_body_bytes`, without a `Content-Length`.
    BodyTooLarge,
    /// The client sent the body below `server.limits.body_min_rate`.
    SlowBody,
    /// The client read the response below `server.limits.send_min_rate`, or none of it for
    /// `server.write_timeout`.
    SlowReader,
    /// The client did not send the rest of the request in time.
    ClientTimeout,
    /// The rest of the request is not valid HTTP.
    UnreadableRequest,
    /// No server of the upstream has a known address and is neither drained nor disabled.
    NoServer,
    /// No server of the upstream accepted a connection.
    UpstreamConnect,
    /// All connections that `max_connections` of the upstream allows were in use.
    UpstreamOverflow,
    /// The TLS handshake with the upstream failed, for example because its certificate is not
    /// valid.
    UpstreamTls,
    /// No connection to the upstream was made in time.
    UpstreamConnectTimeout,
    /// The upstream was connected to, but did not respond or read in time.
    UpstreamTimeout,
    /// The request has taken longer than `timeout` of its route or upstream.
    RequestTimeout,
    /// The upstream closed the connection too early, or its response is not valid.
    UpstreamBroken,
    /// An error of the gateway.
    Internal,
}

impl Reason {
    /// All reasons, in the order of the documentation.
    pub const ALL: [Self; 80] = [
        Self::Limited,
        Self::LimitedMissingKey,
        Self::LimitedUnknownKey,
        Self::LimitedRefusedKey,
        Self::LimitedUnverifiedKey,
        Self::Banned,
        Self::RedisUnavailable,
        Self::MissingKey,
        Self::UnknownKey,
        Self::EarlyKey,
        Self::ExpiredKey,
        Self::DisabledKey,
        Self::KeyStoreUnavailable,
        Self::WrongPassword,
        Self::AuthUnavailable,
        Self::AuthDenied,
        Self::LongToken,
        Self::MalformedToken,
        Self::TokenAlgorithm,
        Self::TokenType,
        Self::TokenIssuer,
        Self::TokenKey,
        Self::TokenSignature,
        Self::ExpiredToken,
        Self::EarlyToken,
        Self::TokenAudience,
        Self::TokenClaims,
        Self::TokenPlan,
        Self::InactiveToken,
        Self::TokenScope,
        Self::NoTokenKeys,
        Self::ConflictingKeys,
        Self::KeyTooLong,
        Self::NoRoute,
        Self::CorsOrigin,
        Self::CorsMethod,
        Self::IpDenied,
        Self::Maintenance,
        Self::MethodNotAllowed,
        Self::RotationRefused,
        Self::RotationLimited,
        Self::MissingHost,
        Self::InvalidHost,
        Self::InvalidTarget,
        Self::InvalidMethod,
        Self::ConflictingLengths,
        Self::BareLineFeed,
        Self::SpaceAroundValue,
        Self::InvalidConnection,
        Self::UnsupportedExpectation,
        Self::UnsupportedCoding,
        Self::UriTooLong,
        Self::HeadersTooLarge,
        Self::TooManyHeaders,
        Self::BodyTooLarge,
        Self::QueueFull,
        Self::Shed,
        Self::DotSegment,
        Self::InvalidEncoding,
        Self::AmbiguousPath,
        Self::AmbiguousRoute,
        Self::NoPathValue,
        Self::NoLocation,
        Self::ConflictingHeaders,
        Self::HopByHopHeader,
        Self::Failed(Failure::BodyTooLarge),
        Self::Failed(Failure::SlowBody),
        Self::Failed(Failure::SlowReader),
        Self::Failed(Failure::ClientTimeout),
        Self::Failed(Failure::UnreadableRequest),
        Self::Failed(Failure::NoServer),
        Self::Failed(Failure::UpstreamConnect),
        Self::Failed(Failure::UpstreamOverflow),
        Self::Failed(Failure::UpstreamTls),
        Self::Failed(Failure::UpstreamConnectTimeout),
        Self::Failed(Failure::UpstreamTimeout),
        Self::Failed(Failure::RequestTimeout),
        Self::Failed(Failure::UpstreamBroken),
        Self::Failed(Failure::Internal),
        Self::Failed(Failure::ClientClosed),
    ];

    /// The reason of a request with this decision and failure; `None` if an upstream, or the
    /// gateway with a status of 200, has responded completely. A request that was refused is not
    /// also reported as failed, for example if the client did not wait for the response.
    pub fn of(decision: Option<&Decision>, failure: Option<Failure>) -> Option<Self> {
        let refused = match decision {
            None
            | Some(
                Decision::Allowed { .. }
                | Decision::OwnLimits { .. }
                | Decision::NewKey(_)
                | Decision::Preflight,
            ) => None,
            Some(Decision::Limited { check, .. }) if check.taken.banned.is_some() => {
                Some(Self::Banned)
            }
            Some(Decision::Limited { unauthenticated, .. }) => Some(match unauthenticated {
                None => Self::Limited,
                Some(Unauthenticated::KeyMissing | Unauthenticated::KeyRequired(_)) => {
                    Self::LimitedMissingKey
                }
                Some(Unauthenticated::KeyUnknown { .. }) => Self::LimitedUnknownKey,
                Some(reason) if reason.is_unverified() => Self::LimitedUnverifiedKey,
                Some(Unauthenticated::KeyRefused { .. }) => Self::LimitedRefusedKey,
            }),
            Some(Decision::Unavailable { .. }) => Some(Self::RedisUnavailable),
            Some(Decision::Unauthenticated { reason, .. }) => Some((*reason).into()),
            Some(Decision::Rejected(rejection)) => Some((*rejection).into()),
        };
        refused.or_else(|| failure.map(Self::Failed))
    }

    /// The code in logs, metrics and traces.
    pub const fn label(self) -> &'static str {
        match self {
            Self::Limited => "limited",
            Self::LimitedMissingKey => "limited_missing_key",
            Self::LimitedUnknownKey => "limited_unknown_key",
            Self::LimitedRefusedKey => "limited_refused_key",
            Self::LimitedUnverifiedKey => "limited_unverified_key",
            Self::Banned => "banned",
            Self::RedisUnavailable => "redis_unavailable",
            Self::MissingKey => "missing_key",
            Self::UnknownKey => "unknown_key",
            Self::EarlyKey => "early_key",
            Self::ExpiredKey => "expired_key",
            Self::DisabledKey => "disabled_key",
            Self::KeyStoreUnavailable => "key_store_unavailable",
            Self::WrongPassword => "wrong_password",
            Self::AuthUnavailable => "auth_unavailable",
            Self::AuthDenied => "auth_denied",
            Self::LongToken => "token_too_long",
            Self::MalformedToken => "malformed_token",
            Self::TokenAlgorithm => "token_algorithm",
            Self::TokenType => "token_type",
            Self::TokenIssuer => "token_issuer",
            Self::TokenKey => "token_key",
            Self::TokenSignature => "token_signature",
            Self::ExpiredToken => "expired_token",
            Self::EarlyToken => "early_token",
            Self::TokenAudience => "token_audience",
            Self::TokenClaims => "token_claims",
            Self::TokenPlan => "token_plan",
            Self::InactiveToken => "inactive_token",
            Self::TokenScope => "token_scope",
            Self::NoTokenKeys => "no_token_keys",
            Self::ConflictingKeys => "conflicting_keys",
            Self::KeyTooLong => "key_too_long",
            Self::NoRoute => "no_route",
            Self::CorsOrigin => "cors_origin",
            Self::CorsMethod => "cors_method",
            Self::IpDenied => "ip_denied",
            Self::Maintenance => "maintenance",
            Self::MethodNotAllowed => "method_not_allowed",
            Self::RotationRefused => "rotation_refused",
            Self::RotationLimited => "rotation_limited",
            Self::MissingHost => "missing_host",
            Self::InvalidHost => "invalid_host",
            Self::InvalidTarget => "invalid_target",
            Self::InvalidMethod => "invalid_method",
            Self::ConflictingLengths => "conflicting_lengths",
            Self::BareLineFeed => "bare_line_feed",
            Self::SpaceAroundValue => "space_around_value",
            Self::InvalidConnection => "invalid_connection",
            Self::UnsupportedExpectation => "unsupported_expectation",
            Self::UnsupportedCoding => "unsupported_coding",
            Self::UriTooLong => "uri_too_long",
            Self::HeadersTooLarge => "headers_too_large",
            Self::TooManyHeaders => "too_many_headers",
            Self::BodyTooLarge => "body_too_large",
            Self::QueueFull => "queue_full",
            Self::Shed => RefundReason::Shed.name(),
            Self::DotSegment => "dot_segment",
            Self::InvalidEncoding => "invalid_encoding",
            Self::AmbiguousPath => "ambiguous_path",
            Self::AmbiguousRoute => "ambiguous_route",
            Self::NoPathValue => "no_path_value",
            Self::NoLocation => "no_location",
            Self::ConflictingHeaders => "conflicting_headers",
            Self::HopByHopHeader => "hop_by_hop_header",
            Self::Failed(failure) => failure.label(),
        }
    }
}

impl Failure {
    const fn label(self) -> &'static str {
        match self {
            Self::ClientClosed => "client_closed",
            Self::BodyTooLarge => "body_cut_off",
            Self::SlowBody => "slow_body",
            Self::SlowReader => "slow_reader",
            Self::ClientTimeout => "client_timeout",
            Self::UnreadableRequest => "unreadable_request",
            Self::NoServer => RefundReason::NoServer.name(),
            Self::UpstreamConnect => RefundReason::UpstreamConnect.name(),
            Self::UpstreamOverflow => "upstream_overflow",
            Self::UpstreamTls => RefundReason::UpstreamTls.name(),
            Self::UpstreamConnectTimeout => RefundReason::UpstreamConnectTimeout.name(),
            Self::UpstreamTimeout => "upstream_timeout",
            Self::RequestTimeout => "request_timeout",
            Self::UpstreamBroken => "upstream_broken",
            Self::Internal => "internal",
        }
    }
}

impl From<Unauthenticated> for Reason {
    fn from(unauthenticated: Unauthenticated) -> Self {
        match unauthenticated {
            Unauthenticated::KeyMissing | Unauthenticated::KeyRequired(_) => Self::MissingKey,
            Unauthenticated::KeyUnknown { .. } => Self::UnknownKey,
            Unauthenticated::KeyRefused { why: KeyRefusal::NotYetValid, .. } => Self::EarlyKey,
            Unauthenticated::KeyRefused { why: KeyRefusal::Expired, .. } => Self::ExpiredKey,
            Unauthenticated::KeyRefused { why: KeyRefusal::Disabled, .. } => Self::DisabledKey,
            Unauthenticated::KeyRefused { why: KeyRefusal::Unverified, .. } => {
                Self::KeyStoreUnavailable
            }
            Unauthenticated::KeyRefused { why: KeyRefusal::Password, .. } => Self::WrongPassword,
            Unauthenticated::KeyRefused {
                why: KeyRefusal::Unchecked | KeyRefusal::NoAnswer,
                ..
            } => Self::AuthUnavailable,
            Unauthenticated::KeyRefused { why: KeyRefusal::Denied(_), .. } => Self::AuthDenied,
            Unauthenticated::KeyRefused { why: KeyRefusal::Token(why), .. } => why.into(),
        }
    }
}

impl From<TokenRefusal> for Reason {
    fn from(refusal: TokenRefusal) -> Self {
        match refusal {
            TokenRefusal::TooLong => Self::LongToken,
            TokenRefusal::Malformed => Self::MalformedToken,
            TokenRefusal::Algorithm => Self::TokenAlgorithm,
            TokenRefusal::Type => Self::TokenType,
            TokenRefusal::Issuer => Self::TokenIssuer,
            TokenRefusal::UnknownKey => Self::TokenKey,
            TokenRefusal::Signature => Self::TokenSignature,
            TokenRefusal::Expired => Self::ExpiredToken,
            TokenRefusal::NotYetValid => Self::EarlyToken,
            TokenRefusal::Audience => Self::TokenAudience,
            TokenRefusal::Claims => Self::TokenClaims,
            TokenRefusal::Plan => Self::TokenPlan,
            TokenRefusal::Inactive => Self::InactiveToken,
            TokenRefusal::Scope => Self::TokenScope,
        }
    }
}

impl From<Rejection> for Reason {
    fn from(rejection: Rejection) -> Self {
        match rejection {
            Rejection::Malformed(malformed) => malformed.into(),
            Rejection::Path(PathError::DotSegment) => Self::DotSegment,
            Rejection::Path(PathError::BadEscape) => Self::InvalidEncoding,
            Rejection::Path(PathError::Ambiguous | PathError::Unrewritable) => Self::AmbiguousPath,
            Rejection::Path(PathError::DifferentValues | PathError::TooLong) => {
                Self::AmbiguousRoute
            }
            Rejection::Path(PathError::NoPathValue) => Self::NoPathValue,
            Rejection::Identity(IdentityError::ConflictingKeys { .. }) => Self::ConflictingKeys,
            Rejection::Identity(IdentityError::KeyTooLong { .. }) => Self::KeyTooLong,
            Rejection::OwnLimitsMethod | Rejection::TraceNotNamed => Self::MethodNotAllowed,
            Rejection::Rotation(RotationRefusal::TooSoon { .. }) => Self::RotationLimited,
            Rejection::Rotation(RotationRefusal::Unavailable | RotationRefusal::NotConfirmed) => {
                Self::KeyStoreUnavailable
            }
            Rejection::Rotation(
                RotationRefusal::CrossSite
                | RotationRefusal::NotStored
                | RotationRefusal::Invalid(_)
                | RotationRefusal::Conflict(_),
            ) => Self::RotationRefused,
            Rejection::NoTokenKeys => Self::NoTokenKeys,
            Rejection::NoRoute => Self::NoRoute,
            Rejection::Preflight(PreflightRefusal::Origin) => Self::CorsOrigin,
            Rejection::Preflight(PreflightRefusal::Method) => Self::CorsMethod,
            Rejection::IpDenied(_) => Self::IpDenied,
            Rejection::Maintenance { .. } => Self::Maintenance,
            Rejection::BodyTooLarge { .. } => Self::BodyTooLarge,
            Rejection::QueueFull => Self::QueueFull,
            Rejection::Shed => Self::Shed,
            Rejection::NoLocation(_) => Self::NoLocation,
            Rejection::Header(header) => match header.fault {
                HeaderFault::DifferentValues => Self::ConflictingHeaders,
                HeaderFault::HopByHop => Self::HopByHopHeader,
            },
        }
    }
}

impl From<Malformed> for Reason {
    fn from(malformed: Malformed) -> Self {
        match malformed {
            Malformed::NoHost => Self::MissingHost,
            Malformed::InvalidHost | Malformed::OtherHost => Self::InvalidHost,
            Malformed::InvalidTarget => Self::InvalidTarget,
            Malformed::Connect => Self::MethodNotAllowed,
            Malformed::LowercaseMethod => Self::InvalidMethod,
            Malformed::ConflictingLengths => Self::ConflictingLengths,
            Malformed::BareLineFeed => Self::BareLineFeed,
            Malformed::SpaceAroundValue => Self::SpaceAroundValue,
            Malformed::InvalidConnection => Self::InvalidConnection,
            Malformed::UnsupportedExpectation => Self::UnsupportedExpectation,
            Malformed::UnsupportedCoding => Self::UnsupportedCoding,
            Malformed::UriTooLong => Self::UriTooLong,
            Malformed::HeadersTooLarge => Self::HeadersTooLarge,
            Malformed::TooManyHeaders => Self::TooManyHeaders,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_reason_has_its_own_label_and_a_row_in_the_docs() {
        let labels: BTreeSet<&str> = Reason::ALL.iter().map(|reason| reason.label()).collect();
        assert_eq!(labels.len(), Reason::ALL.len());
        let page = include_str!("../../docs/responses.md");
        let rows: Vec<&str> = page.lines().filter_map(|line| line.strip_prefix("| `")).collect();
        let is_documented =
            |label: &&str| rows.iter().any(|row| row.starts_with(&format!("{label}` |")));
        let missing: Vec<&str> =
            labels.iter().filter(|label| !is_documented(label)).copied().collect();
        assert_eq!(missing, [""; 0]);
    }

    #[test]
    fn refusal_precedes_the_failure_of_its_response() {
        let (no_route, closed) = (Decision::Rejected(Rejection::NoRoute), Failure::ClientClosed);
        let allowed = Decision::Allowed { check: None, shadow_key_rules: Vec::new() };
        let table = [
            (Some(&no_route), Some(closed), Some(Reason::NoRoute)),
            (Some(&allowed), Some(closed), Some(Reason::Failed(closed))),
            (None, Some(closed), Some(Reason::Failed(closed))),
            (Some(&allowed), None, None),
        ];
        for (decision, failure, expected) in table {
            assert_eq!(Reason::of(decision, failure), expected, "{decision:?} {failure:?}");
        }
    }
}
