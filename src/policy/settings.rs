//! The parts of a policy that are not rules: listeners, guards, identity, headers, upstreams.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use http::HeaderName;
use ipnet::IpNet;

use super::redis::Secret;
use crate::net::address::HostPort;

/// Listeners, threads, and the guards around requests. All durations are whole milliseconds in
/// the file and never 0.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Server {
    /// Where clients connect; at least one address.
    pub listen: Vec<SocketAddr>,
    /// Where the operator connects: metrics, health and the admin API.
    pub admin: SocketAddr,
    /// Worker threads for requests; none: one a core.
    pub threads: Option<usize>,
    /// Whose `X-Forwarded-For`, `-Proto`, `-Host` and `X-Request-Id` are believed.
    pub trusted_proxies: Vec<IpNet>,
    /// How long a connection may be idle between two requests.
    pub keepalive_timeout: Duration,
    /// How long reading the next part of a request may take.
    pub read_timeout: Duration,
    /// How long writing the next part of an answer may take.
    pub write_timeout: Duration,
    /// How long SIGTERM waits before it closes the ports, while `/ready` answers 503: time for a
    /// load balancer to notice. None: not at all.
    pub drain_delay: Option<Duration>,
    /// How long SIGTERM waits for requests in flight.
    pub drain_timeout: Duration,
    /// The most bytes that a request's header lines may have together; beyond: 431.
    pub max_header_bytes: usize,
    /// The most bytes that a request's target may have; beyond: 414.
    pub max_uri_bytes: usize,
    /// Whether routes match whatever the case of the path's letters.
    pub ignore_path_case: bool,
    /// How many gateways share Redis, 1 to 10,000: what each grants alone in an outage is divided
    /// by it. None: as many as are seen in Redis.
    pub instances: Option<u32>,
}

/// Who may use the operator's port.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Admin {
    /// What `/api/` asks for, 16 to 1024 visible ASCII characters; none: nothing, and the port is
    /// on a loopback address.
    pub token: Option<Secret>,
}

/// Where refusals are kept beside this process.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Audit {
    /// About how many bursts of refusals the stream in Redis keeps, 100 to 10,000,000; none: there
    /// is no stream. Never without Redis.
    pub stream: Option<u64>,
}

/// How clients are told apart.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Clients {
    /// Where a key may stand, in the order in which they are tried.
    pub key_sources: Vec<KeySource>,
    /// Index of the plan of clients without a key of their own.
    pub anonymous_plan: u32,
    /// A request without a key.
    pub on_missing_key: OnMissingKey,
    /// A request with a key that the file does not know.
    pub on_unknown_key: OnUnknownKey,
    /// A request with two different keys.
    pub on_conflicting_keys: OnConflictingKeys,
    /// Whether the key is taken out before the request goes on.
    pub hide_key: bool,
    /// How many bits of an IPv6 address tell clients apart, 1 to 128.
    pub ipv6_prefix: u8,
    /// Where clients see what they have left, visible ASCII; none: nowhere.
    pub limits_path: Option<Box<str>>,
}

impl Clients {
    /// Whether a request for `path`, as it came and without its query, asks what its client has
    /// left.
    pub fn is_limits_path(&self, path: &str, ignore_case: bool) -> bool {
        match &self.limits_path {
            None => false,
            Some(own) if ignore_case => own.eq_ignore_ascii_case(path),
            Some(own) => **own == *path,
        }
    }
}

/// A place in a request where a key may stand.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum KeySource {
    /// A header's whole value.
    Header(HeaderName),
    /// `Authorization: Bearer …`.
    Bearer,
    /// A parameter of the query, by its name.
    Query(String),
}

/// What becomes of a request without a key.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum OnMissingKey {
    /// Goes on as an anonymous client.
    #[default]
    Anonymous,
    /// 401.
    Deny,
}

/// What becomes of a request with an unknown key.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum OnUnknownKey {
    /// 401.
    #[default]
    Deny,
    /// Goes on as an anonymous client.
    Anonymous,
    /// Goes on as a client of its own, on the anonymous plan.
    Accept,
}

/// What becomes of a request with two different keys.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum OnConflictingKeys {
    /// 400.
    #[default]
    Deny,
    /// The first counts, in the order of the sources.
    First,
}

/// What answers say about limits.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Headers {
    /// Which family of headers.
    pub style: HeaderStyle,
    /// Which rules they name.
    pub policies: HeaderPolicies,
    /// What `X-RateLimit-Reset` counts.
    pub reset: ResetForm,
    /// Whether an answer has `X-RateLimit-Mode: local` while this process alone decides.
    pub mode: bool,
}

/// Which family of rate-limit headers is sent.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum HeaderStyle {
    /// Both families.
    #[default]
    Both,
    /// `RateLimit` and `RateLimit-Policy`.
    Draft,
    /// `X-RateLimit-*`.
    X,
    /// None, but `Retry-After` on refusals.
    None,
}

/// Which rules `RateLimit` and `RateLimit-Policy` name.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum HeaderPolicies {
    /// The one that binds.
    #[default]
    Binding,
    /// All enforced rules that apply.
    All,
}

/// What `X-RateLimit-Reset` counts.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum ResetForm {
    /// The Unix second at which the bucket is full.
    #[default]
    Epoch,
    /// Seconds from now.
    Delta,
}

/// Buckets in this process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Memory {
    /// The most buckets that are kept, at least 1.
    pub max_buckets: usize,
}

/// What requests are sent on to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Upstream {
    /// Its name in the file.
    pub name: Arc<str>,
    /// Who answers.
    pub target: Target,
    /// How long connecting may take.
    pub connect_timeout: Duration,
    /// How long the next bytes of a response may take.
    pub read_timeout: Duration,
    /// How long the next bytes of a request may take to be written.
    pub write_timeout: Duration,
    /// How long an unused connection is kept.
    pub idle_timeout: Duration,
}

/// Who answers an upstream's requests.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Target {
    /// The built-in responder, for trying things out.
    Demo,
    /// Servers as `host:port`, at least one, used in turn. Names are looked up while running.
    Servers(Vec<HostPort>),
}
