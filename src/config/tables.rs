//! The tables of gateway.toml other than rules. Units, ranges and defaults are those of the types
//! of the same names in `policy`; here a duration is still text such as "10ms".

use serde::Deserialize;

use super::Named;
use super::rules::Grant;
use super::spanned::Spanned;
use super::words::{
    HeaderPolicies, HeaderStyle, OnConflictingKeys, OnFailure, OnMissingKey, OnUnknownKey,
    PathCase, ResetForm,
};

/// A value that may be left out, with its place.
pub type Field<T> = Option<Spanned<T>>;

/// A list that may be left out, with the places of the whole and of each item.
pub type List = Option<Spanned<Vec<Spanned<String>>>>;

/// `[server]`: listeners and the guards around requests.
#[derive(Debug, Default, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Server {
    /// Addresses for clients.
    pub listen: List,
    /// Address for the operator.
    pub admin: Field<String>,
    /// Addresses or networks whose forwarding headers are believed.
    pub trusted_proxies: List,
    /// Worker threads.
    pub threads: Field<u64>,
    /// How long a connection may be idle between two requests.
    pub keepalive_timeout: Field<String>,
    /// How long reading the next part of a request may take.
    pub read_timeout: Field<String>,
    /// How long writing the next part of an answer may take.
    pub write_timeout: Field<String>,
    /// How long SIGTERM waits before it closes the ports, `/ready` already answering 503.
    pub drain_delay: Field<String>,
    /// How long SIGTERM waits for requests in flight.
    pub drain_timeout: Field<String>,
    /// The most bytes of a request's header lines together.
    pub max_header_bytes: Field<u64>,
    /// The most bytes of a request's target.
    pub max_uri_bytes: Field<u64>,
    /// Whether the case of a path's letters tells routes apart.
    pub path_case: Field<PathCase>,
}

/// `[redis]`: the shared store. Texts but `prefix` may hold `${NAME}` of the environment.
#[derive(Debug, Default, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Redis {
    /// Where it is.
    pub url: Field<String>,
    /// The most that one check may wait.
    pub timeout: Field<String>,
    /// What becomes of requests when it fails.
    pub on_failure: Field<OnFailure>,
    /// What every key begins with.
    pub prefix: Field<String>,
    /// Who the gateway is to Redis.
    pub username: Field<String>,
    /// The password for Redis.
    pub password: Field<String>,
    /// The database's number.
    pub database: Field<u64>,
    /// Who the gateway is to the sentinels.
    pub sentinel_username: Field<String>,
    /// The password for the sentinels.
    pub sentinel_password: Field<String>,
    /// PEM file of the authorities that may vouch for the server.
    pub ca: Field<String>,
    /// PEM file of the gateway's own certificate.
    pub client_cert: Field<String>,
    /// PEM file of its key.
    pub client_key: Field<String>,
}

/// `[clients]`: how clients are told apart.
#[derive(Debug, Default, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Clients {
    /// Where a key may stand: `header:<name>`, `bearer`, `query:<name>`.
    pub api_key: List,
    /// The plan of a request without a key.
    pub anonymous_plan: Field<String>,
    /// A request without a key.
    pub on_missing_key: Field<OnMissingKey>,
    /// A request with a key that the file does not know.
    pub on_unknown_key: Field<OnUnknownKey>,
    /// A request with two different keys.
    pub on_conflicting_keys: Field<OnConflictingKeys>,
    /// Whether the key is taken out before the request goes on.
    pub hide_key: Field<bool>,
    /// How many bits of an IPv6 address tell clients apart.
    pub ipv6_prefix: Field<u64>,
}

/// `[headers]`: what answers say about limits.
#[derive(Debug, Default, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Headers {
    /// Which family of headers.
    pub style: Field<HeaderStyle>,
    /// Which rules they name.
    pub policies: Field<HeaderPolicies>,
    /// What `X-RateLimit-Reset` counts.
    pub reset: Field<ResetForm>,
}

/// `[memory]`: buckets in this process.
#[derive(Debug, Default, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Memory {
    /// The most buckets that are kept.
    pub max_buckets: Field<u64>,
}

/// `[plans.<name>]`: a name that rules and keys refer to.
#[derive(Debug, Default, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Plan {
    /// Free text.
    pub description: Field<String>,
}

/// `[keys.<id>]`: a known client.
#[derive(Debug, Default, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Key {
    /// SHA-256 of the key as it is sent, in 64 hexadecimal digits.
    pub sha256: Field<String>,
    /// Its plan.
    pub plan: Field<String>,
    /// Rules that grant this key something else.
    #[serde(default)]
    pub rules: Named<Grant>,
    /// Free text.
    pub description: Field<String>,
}

/// `[upstreams.<name>]`: what requests are sent on to.
#[derive(Debug, Default, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Upstream {
    /// Servers as `host:port`, or the one word `demo`.
    pub servers: List,
    /// How long connecting may take.
    pub connect_timeout: Field<String>,
    /// How long the next bytes of a response may take.
    pub read_timeout: Field<String>,
    /// How long the next bytes of a request may take to be written.
    pub write_timeout: Field<String>,
    /// How long an unused connection is kept.
    pub idle_timeout: Field<String>,
}

/// `[routes.<name>]`: which requests go where, and what they cost.
#[derive(Debug, Default, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Route {
    /// An exact path, or a prefix that ends in `/*`.
    pub path: Field<String>,
    /// Methods; left out: all.
    pub methods: List,
    /// The host; left out: all.
    pub host: Field<String>,
    /// The upstream.
    pub upstream: Field<String>,
    /// Tokens per request.
    pub cost: Field<u64>,
    /// Free text.
    pub description: Field<String>,
}
