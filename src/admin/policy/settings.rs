//! The settings in the response of `GET /api/policy`.

use serde::Serialize;

use super::identity::{BasicSettings, IntrospectionSettings, JwtSettings};
use crate::explain::wording;
use crate::policy::listener::{Hsts, Listener, ListenerTls, Redirect};
use crate::policy::{self, redis};

/// `[server]`, without the timeouts.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(super) struct ServerSettings {
    listen: Vec<String>,
    admin: String,
    trusted_proxies: Vec<String>,
    /// `allow_ips` and `deny_ips` of `[server]`, each in a few words; left out if there are none.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    ip_access: Vec<String>,
    ignore_path_case: bool,
    /// Number of gateways that share Redis; `null` if Redis counts them.
    instances: Option<u32>,
}

/// Where clients connect, and how.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(super) struct ListenerSettings {
    /// As in the file: an IP address with a port, or `unix:` and a path.
    address: String,
    /// Whether HTTP/2 is served beside HTTP/1.1.
    http2: bool,
    proxy_protocol: bool,
    /// `https` if every request is redirected; else `null`.
    redirect: Option<&'static str>,
    hsts: Option<HstsSettings>,
    /// `null` for a listener in clear.
    tls: Option<TlsSettings>,
}

/// The `Strict-Transport-Security` of responses.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct HstsSettings {
    max_age_s: u64,
    include_subdomains: bool,
    preload: bool,
}

/// TLS of a listener.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct TlsSettings {
    /// Number of certificate files; `GET /api/certificates` lists them.
    certificates: usize,
    /// Whether the certificates of `[acme]` are used, too.
    acme: bool,
    /// The oldest version of TLS that is accepted: `1.2` or `1.3`.
    min_tls: &'static str,
    /// Whether a client needs a certificate: `required` or `optional`; `null` if it is not asked
    /// for one.
    client_auth: Option<&'static str>,
}

/// `[redis]`, without credentials and without the circuit breaker.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(super) struct RedisSettings {
    address: String,
    database: u32,
    prefix: String,
    /// Number of hash tags of buckets in a Redis Cluster; 0: each client has its own. `null`
    /// without a cluster.
    lanes: Option<u16>,
    /// Which buckets are in one slot of a Redis Cluster: `key` or `off`. `null` without a cluster.
    colocate: Option<&'static str>,
    timeout_ms: u64,
    tls: bool,
    /// How requests are decided while Redis fails: `local`, `allow` or `deny`.
    on_failure: &'static str,
    /// Content of buckets until Redis has been reached once: `empty` or `full`.
    start_without: &'static str,
}

/// `[clients]`: how clients are identified.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(super) struct ClientSettings {
    api_key: Vec<String>,
    anonymous_plan: String,
    /// What happens to a request without a key: `anonymous` or `deny`.
    on_missing_key: &'static str,
    /// What happens to a CORS preflight request without a key, if one is required: `deny` or
    /// `anonymous`.
    on_preflight: &'static str,
    /// What happens to a request with an unknown key: `deny`, `anonymous` or `accept`; `not_read`:
    /// nothing is taken for a key, because the file has none.
    on_unknown_key: &'static str,
    /// What happens to a request with two different keys: `deny` or `first`.
    on_conflicting_keys: &'static str,
    hide_key: bool,
    ipv6_prefix: u8,
    /// Path at which clients read their own limits; `null` if disabled.
    limits_path: Option<String>,
    /// Issuers of tokens.
    jwt: Vec<JwtSettings>,
    introspection: Option<IntrospectionSettings>,
    basic: Option<BasicSettings>,
}

impl ServerSettings {
    pub(super) fn of(policy: &policy::Policy) -> Self {
        let server = &policy.server;
        Self {
            ip_access: policy.ip_access.iter().flat_map(|access| access.words()).collect(),
            listen: server.listen.iter().map(ToString::to_string).collect(),
            admin: server.admin.to_string(),
            trusted_proxies: server.trusted_proxies.iter().map(ToString::to_string).collect(),
            ignore_path_case: server.ignore_path_case,
            instances: server.instances,
        }
    }
}

impl ListenerSettings {
    pub(super) fn of(listener: &Listener) -> Self {
        let Listener { address, tls, http2, proxy_protocol, redirect, hsts } = listener;
        Self {
            address: address.to_string(),
            http2: *http2,
            proxy_protocol: *proxy_protocol,
            redirect: redirect.map(Redirect::name),
            hsts: hsts.map(|Hsts { max_age_s, include_subdomains, preload }| HstsSettings {
                max_age_s,
                include_subdomains,
                preload,
            }),
            tls: tls.as_ref().map(TlsSettings::of),
        }
    }
}

impl TlsSettings {
    fn of(tls: &ListenerTls) -> Self {
        Self {
            certificates: tls.certificates.len(),
            acme: tls.acme,
            min_tls: tls.min_version.name(),
            client_auth: tls.client_auth.as_ref().map(|client| client.mode.name()),
        }
    }
}

impl RedisSettings {
    pub(super) fn of(redis: &redis::Redis) -> Self {
        let is_cluster = matches!(redis.address, redis::Address::Cluster(_));
        Self {
            address: redis.address.to_string(),
            database: redis.database,
            prefix: redis.prefix.clone(),
            lanes: is_cluster.then_some(redis.lanes.unwrap_or(0)),
            colocate: is_cluster.then_some(redis.colocate.name()),
            timeout_ms: u64::try_from(redis.timeout.as_millis()).unwrap_or(u64::MAX),
            tls: redis.tls.is_some(),
            on_failure: redis.on_failure.name(),
            start_without: redis.start_without.name(),
        }
    }
}

impl ClientSettings {
    pub(super) fn of(policy: &policy::Policy) -> Self {
        let clients = &policy.clients;
        Self {
            api_key: clients.key_sources.iter().map(wording::key_source).collect(),
            anonymous_plan: policy.plan_name(clients.anonymous_plan).to_owned(),
            on_missing_key: clients.on_missing_key.name(),
            on_preflight: clients.on_preflight.name(),
            on_unknown_key: clients.on_unknown_key_name(),
            on_conflicting_keys: clients.on_conflicting_keys.name(),
            hide_key: clients.hide_key,
            ipv6_prefix: clients.ipv6_prefix,
            limits_path: clients.limits_path.as_deref().map(str::to_owned),
            jwt: clients.issuers.iter().map(JwtSettings::of).collect(),
            introspection: policy.introspection.as_deref().map(IntrospectionSettings::of),
            basic: BasicSettings::of(policy),
        }
    }
}
