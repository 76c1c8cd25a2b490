//! How clients are identified beside the API keys of the file, without secrets.

use std::time::Duration;

use serde::Serialize;

use crate::client::jwt::settings::{FetchFrom, Issuer, KeySource};
use crate::net::url::HttpUrl;
use crate::policy;
use crate::policy::forward_auth::ForwardAuth;
use crate::policy::introspection::Introspection;
use crate::policy::key_store::{KeyStore, Place};

/// `[clients.jwt]`: tokens of an issuer.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(super) struct JwtSettings {
    issuer: String,
    /// Empty: any.
    audience: Vec<String>,
    /// Where the keys are from: scheme and server of a URL, or `file` if they are part of the
    /// configuration.
    keys: String,
    algorithms: Vec<&'static str>,
    clock_skew_s: u64,
    required_claims: Vec<String>,
    id_claim: String,
    plan_claim: Option<String>,
    tenant_claim: Option<String>,
}

/// `[clients.introspection]`: tokens that their issuer is asked about.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(super) struct IntrospectionSettings {
    /// Scheme and server of the issuer.
    server: String,
    /// Empty: any.
    audience: Vec<String>,
    scopes: Vec<String>,
    clock_skew_s: u64,
    timeout_ms: u64,
    max_in_flight: usize,
    /// How long an answer is used, in seconds.
    cache_s: u64,
    on_failure: &'static str,
}

/// `[clients.basic]`: users with passwords.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(super) struct BasicSettings {
    /// Number of users.
    users: usize,
    hide_password: bool,
    /// How long a right password is not verified again, in seconds.
    cache_s: u64,
}

/// `[key_store]`: clients that the admin API changes.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(super) struct KeyStoreSettings {
    /// `redis` or `file`.
    place: &'static str,
    cache: usize,
    max_stale_s: u64,
    on_store_failure: &'static str,
    self_rotation: bool,
}

/// `[forward_auth]`, or that of a route: a server that is asked about requests.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(super) struct ForwardAuthSettings {
    /// Scheme and server.
    server: String,
    /// The routes whose requests it is asked about.
    routes: Vec<String>,
    timeout_ms: u64,
    max_in_flight: usize,
    request_headers: Vec<String>,
    response_headers: Vec<String>,
    /// How long an answer is used again, in seconds; `null`: not.
    cache_s: Option<u64>,
    /// Whether its answers name the clients.
    names_clients: bool,
    on_failure: &'static str,
}

impl JwtSettings {
    pub(super) fn of(issuer: &Issuer) -> Self {
        Self {
            issuer: issuer.issuer.to_string(),
            audience: texts(&issuer.audience),
            keys: match &issuer.keys {
                KeySource::Fixed(_) => "file".to_owned(),
                KeySource::Fetched(fetched) => match &fetched.from {
                    FetchFrom::Jwks(url) | FetchFrom::Discovery(url) => server(url),
                },
            },
            algorithms: issuer.algorithms.iter().map(|algorithm| algorithm.name()).collect(),
            clock_skew_s: issuer.clock_skew_us / 1_000_000,
            required_claims: texts(&issuer.required),
            id_claim: issuer.id_claim.to_string(),
            plan_claim: issuer.plan.claim.as_deref().map(str::to_owned),
            tenant_claim: issuer.tenant_claim.as_deref().map(str::to_owned),
        }
    }
}

impl IntrospectionSettings {
    pub(super) fn of(settings: &Introspection) -> Self {
        Self {
            server: server(&settings.url),
            audience: texts(&settings.claims.audience),
            scopes: texts(&settings.scopes),
            clock_skew_s: settings.claims.clock_skew_us / 1_000_000,
            timeout_ms: milliseconds(settings.timeout),
            max_in_flight: settings.max_in_flight,
            cache_s: settings.kept_us / 1_000_000,
            on_failure: settings.on_failure.name(),
        }
    }
}

impl BasicSettings {
    pub(super) fn of(policy: &policy::Policy) -> Option<Self> {
        let passwords = policy.passwords.as_ref()?;
        Some(Self {
            users: passwords.count(),
            hide_password: passwords.is_hidden,
            cache_s: passwords.kept_us / 1_000_000,
        })
    }
}

impl KeyStoreSettings {
    pub(super) fn of(settings: &KeyStore) -> Self {
        Self {
            place: match settings.place {
                Place::Redis => "redis",
                Place::File(_) => "file",
            },
            cache: settings.cache,
            max_stale_s: settings.max_stale.as_secs(),
            on_store_failure: settings.on_store_failure.name(),
            self_rotation: settings.self_rotation,
        }
    }
}

impl ForwardAuthSettings {
    /// All of a policy, in their order.
    pub(super) fn all(policy: &policy::Policy) -> Vec<Self> {
        let indexed = (0..).zip(&policy.forward_auth);
        indexed.map(|(index, settings)| Self::of(policy, index, settings)).collect()
    }

    fn of(policy: &policy::Policy, index: u32, settings: &ForwardAuth) -> Self {
        let routes = policy.routes.iter().filter(|route| route.forward_auth == Some(index));
        Self {
            server: server(&settings.url),
            routes: routes.map(|route| route.name.to_string()).collect(),
            timeout_ms: milliseconds(settings.timeout),
            max_in_flight: settings.max_in_flight,
            request_headers: settings.request_headers.iter().map(ToString::to_string).collect(),
            response_headers: settings.response_headers.iter().map(ToString::to_string).collect(),
            cache_s: settings.cache.as_ref().map(|cache| cache.kept_us / 1_000_000),
            names_clients: settings.client.is_some(),
            on_failure: settings.on_failure.name(),
        }
    }
}

/// Scheme and server: a path may have a secret.
fn server(url: &HttpUrl) -> String {
    let scheme = if url.is_tls { "https" } else { "http" };
    format!("{scheme}://{}", url.server)
}

fn texts(list: &[Box<str>]) -> Vec<String> {
    list.iter().map(ToString::to_string).collect()
}

fn milliseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
