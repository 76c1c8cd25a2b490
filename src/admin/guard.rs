//! Access control of the admin port.
//!
//! - If `admin.token` or `admin.tokens` is set, `/api/` requires one of them.
//! - A token of `admin.tokens` may do what its roles say, about its tenant if it has one.
//! - Otherwise the port is on a loopback address, which the operator's browser can reach. A page of
//!   another site must not use it: neither by a name that resolves to this address (DNS rebinding)
//!   nor by submitting a form.
//! - Requests of other sites' pages are refused for every method, because images and streams also
//!   use resources of the gateway, even if the page cannot read the response.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use http::{HeaderMap, StatusCode, header};
use parking_lot::Mutex;
use sha2::{Digest as _, Sha256};
use subtle::ConstantTimeEq as _;
use tracing::warn;

use super::answer::Answer;
use crate::base::duration::MICROS_PER_SECOND;
use crate::base::hash::Digest;
use crate::base::unix_time;
use crate::client::credential::bearer;
use crate::client::principal::KeyRefusal;
use crate::net::address::Authority;
use crate::net::cross_site::is_cross_site;
use crate::policy::settings::{Admin, AdminRole};

/// Prefix of the protected paths.
const GUARDED: &str = "/api/";

/// `WWW-Authenticate` of a 401.
const CHALLENGE: &str = "Bearer realm=\"tollgate\"";

/// Minimum interval between two log lines about refusals, in microseconds.
const LOG_INTERVAL_US: u64 = MICROS_PER_SECOND;

/// Refuses unauthorised requests, and logs the refusals.
#[derive(Debug, Default)]
pub(super) struct Guard {
    log: Mutex<Log>,
}

/// State that limits the rate of log lines.
#[derive(Debug, Default)]
struct Log {
    /// Earliest time of the next line, in microseconds of the monotonic clock.
    next: u64,
    /// Refusals since the last line.
    suppressed: u64,
}

/// The parts of a request that access control depends on.
#[derive(Debug, Clone, Copy)]
pub(super) struct GuardedRequest<'a> {
    pub(super) peer: Option<SocketAddr>,
    pub(super) path: &'a str,
    pub(super) headers: &'a HeaderMap,
    /// The host of the request target, if it is in absolute form.
    pub(super) target_host: Option<&'a str>,
}

/// Who sends a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Caller {
    /// A process on this machine; without a token.
    Loopback,
    /// The holder of `admin.token`, who may do everything.
    Owner,
    /// The holder of a token of `admin.tokens`.
    Token {
        /// Name of the token.
        name: Arc<str>,
        /// What it may do.
        roles: Vec<AdminRole>,
        /// Id of the tenant that it is limited to.
        tenant: Option<Arc<str>>,
    },
}

/// Why a request is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Refusal {
    NoToken,
    WrongToken,
    /// The token of `admin.tokens` is not valid yet, or not any more.
    InvalidToken(KeyRefusal),
    /// Without a token: a `Host` that is neither an address nor `localhost`.
    ForeignHost,
    CrossSite,
}

impl Guard {
    /// Checks a request, and returns who sends it. `now` is in microseconds of the monotonic clock.
    ///
    /// # Errors
    /// The response, if the request is refused.
    pub(super) fn check(
        &self,
        request: GuardedRequest<'_>,
        settings: &Admin,
        now: u64,
    ) -> Result<Caller, Box<Answer>> {
        check_request(request, settings, unix_time::of(now)).map_err(|refusal| {
            self.log_refusal(request, refusal, now);
            Box::new(refusal.answer())
        })
    }

    fn log_refusal(&self, request: GuardedRequest<'_>, refusal: Refusal, now: u64) {
        let suppressed = {
            let mut log = self.log.lock();
            if now < log.next {
                log.suppressed += 1;
                return;
            }
            log.next = now.saturating_add(LOG_INTERVAL_US);
            std::mem::take(&mut log.suppressed)
        };
        let peer = request.peer.map(|peer| peer.to_string()).unwrap_or_default();
        let why = refusal.detail();
        warn!(peer, suppressed, "the admin port refused a request: {why}");
    }
}

impl Caller {
    /// How it is shown in the log: `loopback`, `token`, or the name of a token.
    pub(super) fn name(&self) -> &str {
        match self {
            Self::Loopback => "loopback",
            Self::Owner => "token",
            Self::Token { name, .. } => name,
        }
    }

    /// Whether it may do what needs this role.
    pub(super) fn has(&self, role: AdminRole) -> bool {
        match self {
            Self::Loopback | Self::Owner => true,
            // To change something, an operator needs to see it.
            Self::Token { roles, .. } => {
                roles.contains(&role)
                    || (role == AdminRole::Read && roles.contains(&AdminRole::Operate))
            }
        }
    }

    /// The tenant that it is limited to.
    pub(super) fn tenant(&self) -> Option<&Arc<str>> {
        match self {
            Self::Loopback | Self::Owner => None,
            Self::Token { tenant, .. } => tenant.as_ref(),
        }
    }
}

fn check_request(
    request: GuardedRequest<'_>,
    settings: &Admin,
    unix_us: u64,
) -> Result<Caller, Refusal> {
    if !request.path.starts_with(GUARDED) {
        return Ok(Caller::Loopback);
    }
    let caller = if settings.requires_token() {
        check_token(request.headers, settings, unix_us)?
    } else if has_own_host(request) {
        Caller::Loopback
    } else {
        return Err(Refusal::ForeignHost);
    };
    if is_cross_site(request.headers) {
        return Err(Refusal::CrossSite);
    }
    Ok(caller)
}

/// Compares the token with all of them, in constant time.
fn check_token(headers: &HeaderMap, settings: &Admin, unix_us: u64) -> Result<Caller, Refusal> {
    let given = headers.get(header::AUTHORIZATION).and_then(|value| bearer(value.as_bytes()));
    let given: Digest = Sha256::digest(given.ok_or(Refusal::NoToken)?).into();
    let is_given = |digest: &[u8]| bool::from(given.as_slice().ct_eq(digest));
    let is_owner =
        settings.token.as_ref().is_some_and(|token| is_given(&Sha256::digest(token.reveal())));
    let mut found = None;
    for token in &settings.tokens {
        if is_given(&token.digest) {
            found = Some(token);
        }
    }
    match found {
        _ if is_owner => Ok(Caller::Owner),
        None => Err(Refusal::WrongToken),
        Some(token) => match token.validity.refusal(unix_us) {
            Some(refusal) => Err(Refusal::InvalidToken(refusal)),
            None => Ok(Caller::Token {
                name: Arc::clone(&token.name),
                roles: token.roles.clone(),
                tenant: token.tenant.clone(),
            }),
        },
    }
}

/// Whether the request's host is an address or `localhost`, which no page of another site can have
/// as its origin. A missing host is accepted: it is optional in HTTP/1.0, which browsers do not
/// use.
fn has_own_host(request: GuardedRequest<'_>) -> bool {
    let mut hosts = request.headers.get_all(header::HOST).iter();
    let header = hosts.next();
    if hosts.next().is_some() {
        return false;
    }
    let is_own = |host: Option<&str>| host.and_then(host_of).is_some_and(|host| is_local(&host));
    header.is_none_or(|host| is_own(host.to_str().ok()))
        && request.target_host.is_none_or(|host| is_own(Some(host)))
}

/// The host of `host:port`.
fn host_of(authority: &str) -> Option<String> {
    let authority = Authority::split(authority).ok()?;
    Some(authority.host.trim_end_matches('.').to_ascii_lowercase())
}

fn is_local(host: &str) -> bool {
    let address = host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(host);
    address.parse::<IpAddr>().is_ok() || host == "localhost" || host.ends_with(".localhost")
}

impl Refusal {
    fn detail(self) -> &'static str {
        match self {
            Self::NoToken => "it has no token; send `Authorization: Bearer <token>`",
            Self::WrongToken => "its token is not one of `[admin]` in gateway.toml",
            Self::InvalidToken(KeyRefusal::NotYetValid) => {
                "its token is not valid yet: `not_before` is in the future"
            }
            Self::InvalidToken(_) => "its token has expired",
            Self::ForeignHost => {
                "its Host is a name; without `admin.token`, use an IP address or localhost"
            }
            Self::CrossSite => "a page of another site sent it",
        }
    }

    fn answer(self) -> Answer {
        match self {
            Self::NoToken | Self::WrongToken | Self::InvalidToken(_) => {
                Answer::problem(StatusCode::UNAUTHORIZED, self.detail())
                    .with_header(header::WWW_AUTHENTICATE, CHALLENGE)
            }
            Self::ForeignHost | Self::CrossSite => {
                Answer::problem(StatusCode::FORBIDDEN, self.detail())
            }
        }
    }
}

#[cfg(test)]
mod tests;
