//! [`IntrospectionChecks`]: asks the issuer of a token about it (RFC 7662).

use std::future::Future;

use http::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE};
use http::{HeaderValue, Method, StatusCode};
use percent_encoding::{NON_ALPHANUMERIC, percent_encode};
use thiserror::Error;
use tracing::warn;

use super::flights::{Busy, Flights, Kept, Timed, Turn};
use crate::base::hash::Digest;
use crate::base::log_interval::LogInterval;
use crate::base::{clock, unix_time};
use crate::client::jwt::verify::{Known, Verified, introspected};
use crate::client::jwt::{MAX_TOKEN_BYTES, TokenRefusal};
use crate::client::principal::TokenIdentity;
use crate::net::http::{BodyTooLong, HttpClient, HttpError, Request};
use crate::net::tls::{self, ClientTls};
use crate::observe::metrics::CheckSeries;
use crate::policy::Policy;
use crate::policy::introspection::Introspection;

/// Maximum number of tokens whose answers are kept.
const MAX_KEPT: usize = 16_384;

/// Maximum number of bytes that these answers take.
const MAX_KEPT_BYTES: u64 = 32 << 20;

/// Maximum size of an answer, in bytes.
const MAX_BODY_BYTES: usize = 64 << 10;

/// How long a token that is not active is not asked about again, in microseconds, if others are
/// kept as long.
const INACTIVE_KEPT_US: u64 = 10_000_000;

/// How long a failure is used for further requests with the token, in microseconds.
const FAILURE_KEPT_US: u64 = 1_000_000;

/// Minimum time between two log lines, in seconds.
const LOG_INTERVAL_S: u64 = 60;

/// Asks the issuer of tokens.
pub struct IntrospectionChecks {
    client: HttpClient,
    flights: Flights<Introspected>,
    failures: LogInterval,
}

/// What is known of a token.
#[derive(Debug, Clone)]
pub enum Introspected {
    Active(Verified),
    Refused(TokenRefusal),
    /// The issuer has not answered.
    Failed,
    /// It is not asked: the client has no tokens left for that.
    NotAsked,
}

/// Why there is no answer.
#[derive(Debug, Error)]
enum Failure {
    #[error("{0}")]
    Http(#[from] HttpError),
    #[error("{0}")]
    TooLong(#[from] BodyTooLong),
    #[error("status {0}")]
    Status(StatusCode),
    #[error("the answer is no JSON with `active`")]
    Malformed,
}

impl Introspected {
    /// How many bytes it takes beside its own.
    fn bytes(&self) -> u64 {
        let Self::Active(verified) = self else { return 0 };
        let token = verified.principal.token.as_deref();
        let bytes = verified.principal.id.len() + token.map_or(0, TokenIdentity::bytes);
        bytes as u64
    }
}

impl IntrospectionChecks {
    /// Does not connect yet.
    pub fn new(settings: &Introspection) -> Self {
        let url = &settings.url;
        let tls = ClientTls { ca: settings.ca.clone(), certificate: None };
        let tls = url.is_tls.then_some((tls::INTROSPECTION, tls));
        let most = settings.max_in_flight;
        let kept = Kept { most: MAX_KEPT, most_bytes: MAX_KEPT_BYTES, bytes: Introspected::bytes };
        Self {
            client: HttpClient::new(url.server.clone(), tls).with_idle(most),
            flights: Flights::new(&kept, most, settings.timeout),
            failures: LogInterval::new(LOG_INTERVAL_S),
        }
    }

    /// What is known of the token with this SHA-256, without asking.
    pub fn kept(&self, digest: &Digest, series: &CheckSeries) -> Option<Introspected> {
        let known = self.flights.kept(digest)?;
        series.cached.inc();
        Some(known)
    }

    /// Asks about a token, or waits for the answer to another request with it. `is_worth_it` says,
    /// when its turn has come after others, whether it is still to be asked about.
    pub async fn ask(
        &self,
        settings: &Introspection,
        policy: &Policy,
        (digest, token): (&Digest, &[u8]),
        is_worth_it: impl Future<Output = bool> + Send,
        series: &CheckSeries,
    ) -> Introspected {
        if token.len() > MAX_TOKEN_BYTES {
            return Introspected::Refused(TokenRefusal::TooLong);
        }
        let call = |turn: Turn| async move {
            if turn.has_waited && !is_worth_it.await {
                return Timed { value: Introspected::NotAsked, until: 0 };
            }
            let _turn = turn;
            let began = clock::now();
            let called = self.call(settings, policy, token).await;
            let now = clock::now();
            series.observe(now.saturating_sub(began));
            let (value, kept_us) = match called {
                Ok(Ok(verified)) => {
                    series.allowed.inc();
                    let left = verified.validity.expires_us.saturating_sub(unix_time::of(now));
                    (Introspected::Active(verified), settings.kept_us.min(left))
                }
                Ok(Err(why)) => {
                    series.refused.inc();
                    (Introspected::Refused(why), settings.kept_us.min(INACTIVE_KEPT_US))
                }
                Err(failure) => {
                    series.failed.inc();
                    self.log(settings, &failure);
                    (Introspected::Failed, FAILURE_KEPT_US)
                }
            };
            Timed { value, until: now.saturating_add(kept_us) }
        };
        let known = self.flights.join(digest, call).await;
        known.unwrap_or_else(|Busy| {
            series.failed.inc();
            Introspected::Failed
        })
    }

    fn log(&self, settings: &Introspection, failure: &Failure) {
        if let Some(suppressed) = self.failures.count(clock::now()) {
            let server = settings.url.server.to_string();
            warn!(server, detail = %failure, suppressed, "no answer to a token introspection");
        }
    }

    async fn call(
        &self,
        settings: &Introspection,
        policy: &Policy,
        token: &[u8],
    ) -> Result<Result<Verified, TokenRefusal>, Failure> {
        let mut login =
            HeaderValue::from_str(settings.login.reveal()).map_err(|_| Failure::Malformed)?;
        login.set_sensitive(true);
        let token = percent_encode(token, NON_ALPHANUMERIC);
        let body = format!("token={token}&token_type_hint=access_token");
        let form = HeaderValue::from_static("application/x-www-form-urlencoded");
        let request = Request {
            method: Method::POST,
            path: &settings.url.path,
            headers: vec![
                (AUTHORIZATION, login),
                (CONTENT_TYPE, form),
                (ACCEPT, HeaderValue::from_static("application/json")),
            ],
            body: body.as_bytes(),
        };
        let response = self.client.fetch(&request, settings.timeout, MAX_BODY_BYTES).await?;
        if response.status != StatusCode::OK {
            return Err(Failure::Status(response.status));
        }
        let known = Known { counted: &policy.clients.counted_claims, tenants: &policy.tenants };
        let now_us = clock::unix_us();
        introspected(&settings.claims, &settings.scopes, &response.body?, known, now_us)
            .ok_or(Failure::Malformed)
    }
}
