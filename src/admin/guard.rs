//! Who may ask on the operator's port.
//!
//! - With a token, `/api/` asks for it.
//! - Without one the port is on a loopback address, where the operator's browser is too: a page from
//!   elsewhere must not read or change anything through it, neither by a name that it has led to
//!   this address (DNS rebinding) nor by a form that it submits.
//! - Whatever the method, no request of another site's page is answered: to load an image or to open
//!   a stream costs the gateway something, even where the page cannot read the answer.

use std::net::{IpAddr, SocketAddr};

use http::{HeaderMap, HeaderValue, StatusCode, header};
use parking_lot::Mutex;
use sha2::{Digest as _, Sha256};
use subtle::ConstantTimeEq as _;
use tracing::warn;

use super::answer::Answer;
use crate::identity::bearer;
use crate::limit::MICROS_PER_SECOND;
use crate::net::address::Authority;
use crate::policy::redis::Secret;

/// Where everything is that may not be asked for by everybody.
const GUARDED: &str = "/api/";

/// What a refusal asks for.
const CHALLENGE: &str = "Bearer realm=\"tollgate\"";

/// How long nothing is logged behind a line on a refusal, in ticks.
const SELDOM: u64 = MICROS_PER_SECOND;

/// Refuses who may not ask, and logs it.
#[derive(Debug, Default)]
pub(super) struct Guard {
    log: Mutex<Log>,
}

/// What was logged of refusals. Whoever floods the port must not flood the log.
#[derive(Debug, Default)]
struct Log {
    /// From when on there may be another line.
    next: u64,
    /// Refusals since the last line.
    untold: u64,
}

/// A request, as far as it matters here.
#[derive(Debug, Clone, Copy)]
pub(super) struct Visit<'a> {
    pub(super) peer: Option<SocketAddr>,
    pub(super) path: &'a str,
    pub(super) headers: &'a HeaderMap,
    /// The host of the target, where that is a whole URL.
    pub(super) target_host: Option<&'a str>,
}

/// Why a request is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Refusal {
    NoToken,
    WrongToken,
    StrangeHost,
    CrossSite,
}

impl Guard {
    /// Lets a request pass, or answers it. `token` is what the file asks for.
    pub(super) fn check(
        &self,
        visit: Visit<'_>,
        token: Option<&Secret>,
        now: u64,
    ) -> Result<(), Box<Answer>> {
        judge(visit, token).map_err(|refusal| {
            self.tell(visit, refusal, now);
            Box::new(refusal.answer())
        })
    }

    fn tell(&self, visit: Visit<'_>, refusal: Refusal, now: u64) {
        let untold = {
            let mut log = self.log.lock();
            if now < log.next {
                log.untold += 1;
                return;
            }
            log.next = now.saturating_add(SELDOM);
            std::mem::take(&mut log.untold)
        };
        let peer = visit.peer.map(|peer| peer.to_string()).unwrap_or_default();
        let why = refusal.words();
        warn!(peer, untold, "the admin port refused a request: {why}");
    }
}

fn judge(visit: Visit<'_>, token: Option<&Secret>) -> Result<(), Refusal> {
    if !visit.path.starts_with(GUARDED) {
        return Ok(());
    }
    match token {
        Some(token) => check_token(visit.headers, token)?,
        None if !has_own_host(visit) => return Err(Refusal::StrangeHost),
        None => {}
    }
    if is_cross_site(visit) {
        return Err(Refusal::CrossSite);
    }
    Ok(())
}

/// In a time that says nothing of the token.
fn check_token(headers: &HeaderMap, token: &Secret) -> Result<(), Refusal> {
    let given = headers.get(header::AUTHORIZATION).and_then(|value| bearer(value.as_bytes()));
    let given = given.ok_or(Refusal::NoToken)?;
    let (given, token) = (Sha256::digest(given), Sha256::digest(token.reveal()));
    if bool::from(given.as_slice().ct_eq(token.as_slice())) {
        Ok(())
    } else {
        Err(Refusal::WrongToken)
    }
}

/// Whether it is asked for by an address or as `localhost`: no page from elsewhere has such an
/// origin. HTTP/1.0 may do without a host, and browsers do not speak it.
fn has_own_host(visit: Visit<'_>) -> bool {
    let mut hosts = visit.headers.get_all(header::HOST).iter();
    let header = hosts.next();
    if hosts.next().is_some() {
        return false;
    }
    let is_own = |host: Option<&str>| host.and_then(host_of).is_some_and(|host| is_local(&host));
    header.is_none_or(|host| is_own(host.to_str().ok()))
        && visit.target_host.is_none_or(|host| is_own(Some(host)))
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

/// Whether a browser says that another site's page asks. What says nothing is no browser.
fn is_cross_site(visit: Visit<'_>) -> bool {
    let mut sites = visit.headers.get_all("sec-fetch-site").iter().peekable();
    if sites.peek().is_some() {
        return !sites.all(|site| matches!(site.as_bytes(), b"same-origin" | b"none"));
    }
    let Some(origin) = visit.headers.get(header::ORIGIN) else { return false };
    let origin = origin.to_str().ok().and_then(|origin| Some(origin.split_once("://")?.1));
    let host = visit.headers.get(header::HOST).and_then(|host: &HeaderValue| host.to_str().ok());
    match (origin, host) {
        (Some(origin), Some(host)) => !origin.eq_ignore_ascii_case(host),
        _ => true,
    }
}

impl Refusal {
    fn words(self) -> &'static str {
        match self {
            Self::NoToken => "it has no token; send `Authorization: Bearer <token>`",
            Self::WrongToken => "its token is not the one under `[admin]` in gateway.toml",
            Self::StrangeHost => {
                "its Host is a name; without a token this port is asked for by an address or as \
                 localhost"
            }
            Self::CrossSite => "a page of another site sent it",
        }
    }

    fn answer(self) -> Answer {
        match self {
            Self::NoToken | Self::WrongToken => {
                Answer::problem(StatusCode::UNAUTHORIZED, self.words())
                    .with_header(header::WWW_AUTHENTICATE, CHALLENGE)
            }
            Self::StrangeHost | Self::CrossSite => {
                Answer::problem(StatusCode::FORBIDDEN, self.words())
            }
        }
    }
}

#[cfg(test)]
mod tests;
