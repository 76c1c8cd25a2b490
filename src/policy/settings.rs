//! The parts of a policy that are not rules: listeners, headers, upstreams. Those of `[clients]`
//! are in [`client::settings`](crate::client::settings).

use std::fmt;
use std::net::SocketAddr;
use std::num::NonZeroU64;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use ipnet::IpNet;

use super::compression::Compression;
use super::health::{Eject, HealthChecks};
use super::mirror::Mirror;
use super::redis::Secret;
use super::retries::Retries;
use super::servers::{self, Balance, Sticky};
use super::time_limits::TimeLimits;
use super::webhook::Webhook;
use crate::base::hash::Digest;
use crate::client::principal::Validity;
use crate::config::tables::Limits;
use crate::config::words::Auto;
pub use crate::config::words::UsageDetail as Detail;
pub use crate::config::words::{
    AdminRole, HeaderPolicies, HeaderStyle, LogFormat, LogLevel, Protocol, ResetForm,
};
use crate::net::proxy_protocol::Version;
use crate::net::tls::ClientTls;

/// `[server]`: listeners, threads, timeouts and size limits. Durations are whole milliseconds, at
/// least 1.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Server {
    /// Addresses that clients connect to, at least one.
    pub listen: Vec<SocketAddr>,
    /// Address of the admin port: metrics, health, dashboard and admin API.
    pub admin: SocketAddr,
    /// Worker threads; `None`: one per core.
    pub threads: Option<usize>,
    /// Networks of trusted proxies. `X-Forwarded-For`, `-Proto`, `-Host` and `X-Request-Id` are
    /// accepted only from them.
    pub trusted_proxies: Vec<IpNet>,
    /// Maximum idle time of a client connection between two requests.
    pub keepalive_timeout: Duration,
    /// Maximum time to wait for the next bytes of a request.
    pub read_timeout: Duration,
    /// Maximum time to wait until the next bytes of a response can be written.
    pub write_timeout: Duration,
    /// Time from SIGTERM until the ports close, during which `/ready` responds 503, so that load
    /// balancers stop sending requests. `None`: no delay.
    pub drain_delay: Option<Duration>,
    /// Maximum time that SIGTERM waits for requests in flight.
    pub drain_timeout: Duration,
    /// Maximum time that a new process takes to be ready at an upgrade.
    pub upgrade_timeout: Duration,
    /// Maximum size of all header lines of a request, in bytes; beyond it, 431.
    pub max_header_bytes: usize,
    /// Maximum length of a request's target, in bytes; beyond it, 414.
    pub max_uri_bytes: usize,
    /// Whether routes match paths regardless of case.
    pub ignore_path_case: bool,
    /// Number of gateways that share Redis, at least 1. It determines the local share of each
    /// limit while Redis is unavailable. `None`: the number of live gateways last seen in Redis.
    pub instances: Option<u32>,
    /// Limits of connections and requests.
    pub limits: ServerLimits,
    /// Limits of HTTP/2 connections.
    pub http2: Http2,
}

/// `[server.limits]`: limits of connections and requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ServerLimits {
    /// Maximum time for the header of the PROXY protocol and the TLS handshake together.
    pub handshake_timeout: Duration,
    /// Maximum time for the whole head of a request.
    pub head_timeout: Duration,
    /// Minimum rate of a request's body, in bytes a second; `None`: any rate.
    pub body_min_rate: Option<NonZeroU64>,
    /// Minimum rate at which a client reads responses, in bytes a second; `None`: any rate.
    pub send_min_rate: Option<NonZeroU64>,
    /// Maximum number of requests on one connection; `None`: any number.
    pub max_requests_per_connection: Option<u64>,
    /// Maximum number of header lines of a request; beyond it, 431.
    pub max_headers: usize,
    /// Maximum number of open connections, at least 1; `None`: the default,
    /// [`max_connections`](Self::max_connections).
    pub max_connections: Option<usize>,
    /// Maximum number of open connections from one address, at least 1.
    pub max_connections_per_ip: usize,
    /// Maximum number of requests that wait because of leaky buckets, at least 1.
    pub max_waiting_requests: usize,
    /// Whether `/ready` responds 503 during an overload.
    pub unready_on_overload: bool,
}

impl ServerLimits {
    /// Maximum number of open connections.
    pub fn max_connections(&self) -> usize {
        let default = || Limits::max_connections.number().and_then(|most| most.try_into().ok());
        self.max_connections.or_else(default).unwrap_or(usize::MAX)
    }
}

/// `[server.http2]`: limits of HTTP/2 connections.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Http2 {
    /// Maximum number of requests at a time on one connection, at least 1.
    pub max_concurrent_streams: u32,
    /// Maximum size of the decoded header list of a request, in bytes.
    pub max_header_list_bytes: u32,
    /// Maximum number of streams that a client has reset and the gateway has not yet accepted.
    pub max_pending_resets: usize,
    /// Maximum time without a request; then the connection is closed.
    pub idle_timeout: Duration,
    /// Age from which a connection accepts no further requests; `None`: any.
    pub max_connection_age: Option<Duration>,
}

/// `[admin]`: access to the admin port.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Admin {
    /// Bearer token that `/api/` requires, in visible ASCII characters. `None`: no token;
    /// the port must then be on a loopback address.
    pub token: Option<Secret>,
    /// Further tokens, in the order of the file. `/api/` requires one if there are any.
    pub tokens: Vec<AdminToken>,
}

impl Admin {
    /// Whether `/api/` requires a token.
    pub fn requires_token(&self) -> bool {
        self.token.is_some() || !self.tokens.is_empty()
    }
}

/// A token of the admin port, and what it may do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AdminToken {
    /// Its name, which the log shows.
    pub name: Arc<str>,
    /// SHA-256 of the token.
    pub digest: Digest,
    /// What it may do; never empty.
    pub roles: Vec<AdminRole>,
    /// Id of the tenant that it is limited to; `None`: all clients.
    pub tenant: Option<Arc<str>>,
    /// When it can be used.
    pub validity: Validity,
}

/// `[audit]`: the stream of refusal runs in Redis.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Audit {
    /// Approximate number of refusal runs that the stream keeps; `None`: no
    /// stream. Requires Redis.
    pub stream: Option<u64>,
}

/// Settings of the log of the process.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Log {
    /// Form of a line.
    pub format: LogFormat,
    /// Which events are logged.
    pub level: LogLevel,
}

/// `[headers]`: rate limit headers of responses.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Headers {
    /// Which header families are sent.
    pub style: HeaderStyle,
    /// Which rules `RateLimit` and `RateLimit-Policy` list.
    pub policies: HeaderPolicies,
    /// Whether `X-RateLimit-Reset` is a Unix time or a number of seconds.
    pub reset: ResetForm,
    /// Whether responses have `X-RateLimit-Mode: local` during local fallback.
    pub mode: bool,
}

impl Headers {
    pub const LIMIT: &str = "X-RateLimit-Limit";
    pub const REMAINING: &str = "X-RateLimit-Remaining";
    pub const RESET: &str = "X-RateLimit-Reset";
    pub const REASON: &str = "X-RateLimit-Reason";
    pub const MODE: &str = "X-RateLimit-Mode";
    pub const WARNING: &str = "X-RateLimit-Warning";
    pub const DRAFT: &str = "RateLimit";
    pub const DRAFT_POLICY: &str = "RateLimit-Policy";

    /// The headers of [`HeaderStyle::X`].
    pub const ALL_X: [&str; 4] = [Self::LIMIT, Self::REMAINING, Self::RESET, Self::REASON];

    /// The headers of [`HeaderStyle::Draft`].
    pub const ALL_DRAFT: [&str; 2] = [Self::DRAFT, Self::DRAFT_POLICY];

    /// Names of the rate limit headers that responses can have.
    pub fn names(self) -> Vec<&'static str> {
        let (x, draft) = (Self::ALL_X.as_slice(), Self::ALL_DRAFT.as_slice());
        let [x, draft] = match self.style {
            HeaderStyle::None => [&[][..]; 2],
            HeaderStyle::X => [x, &[]],
            HeaderStyle::Draft => [draft, &[]],
            HeaderStyle::Both => [x, draft],
        };
        let mode = self.mode.then_some(Self::MODE);
        let warning = (self.style != HeaderStyle::None).then_some(Self::WARNING);
        x.iter().chain(draft).copied().chain(mode).chain(warning).collect()
    }
}

/// `[memory]`: the memory of this process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Memory {
    /// Maximum number of buckets, at least 1.
    pub max_buckets: usize,
    /// Memory above which the process accepts no connections.
    pub max_bytes: MaxBytes,
}

/// `[usage]`: what clients used of their quotas.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Usage {
    /// File in which usage is kept; `None`: in Redis, or without it not at all.
    pub file: Option<PathBuf>,
    /// How long the usage of a period is kept after its end.
    pub keep: Duration,
    /// Maximum number of records.
    pub max_records: u64,
    /// What else it is listed by.
    pub detail: Detail,
    /// Maximum number of records of days.
    pub max_details: u64,
    /// `[webhooks]`: servers that are sent events of usage.
    pub webhooks: Vec<Webhook>,
}

/// Memory above which the process accepts no connections.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum MaxBytes {
    /// 90 % of the limit of its cgroup; none if that has no limit.
    #[default]
    Cgroup,
    Bytes(u64),
    /// No limit.
    Off,
}

/// An upstream: endpoints that requests are forwarded to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Upstream {
    /// Its name in the file.
    pub name: Arc<str>,
    /// Its servers, or the built-in responder.
    pub target: Target,
    /// The name servers that its names are looked up with; empty: those of the system.
    pub resolvers: Arc<[SocketAddr]>,
    /// How requests are distributed over the servers.
    pub balance: Balance,
    /// The cookie that keeps the requests of a client on one endpoint.
    pub sticky: Option<Sticky>,
    /// Checks of the health of its endpoints; `None`: none.
    pub health: Option<Arc<HealthChecks>>,
    /// When an endpoint is ejected, beside 5 s after a failed connection; `None`: never.
    pub eject: Option<Eject>,
    /// How long the weight of an endpoint rises after it has become healthy, in microseconds; 0:
    /// not at all.
    pub slow_start_us: u64,
    /// Maximum time to connect.
    pub connect_timeout: Duration,
    /// Maximum time to wait for the next bytes of a response.
    pub read_timeout: Duration,
    /// Maximum time to wait until the next bytes of a request can be written.
    pub write_timeout: Duration,
    /// Further time limits of its requests, on routes that have none themselves.
    pub time_limits: TimeLimits,
    /// Time after which an idle connection is closed.
    pub idle_timeout: Duration,
    /// TLS to the endpoints; `None`: connections are in clear.
    pub tls: Option<UpstreamTls>,
    /// Version of HTTP.
    pub protocol: Protocol,
    /// Version of the PROXY protocol header that begins each connection; `None`: no header.
    pub proxy_protocol: Option<Version>,
    /// Maximum number of requests in flight; `None`: any number.
    pub max_in_flight: Option<MaxInFlight>,
    /// Maximum number of open connections; `None`: any number.
    pub max_connections: Option<MaxConnections>,
    /// When its requests are sent again, on routes that do not say so themselves.
    pub retries: Retries,
    /// How its responses are compressed, on routes that do not say so themselves.
    pub compression: Compression,
    /// Which of its requests another upstream gets, too, on routes that do not say so themselves;
    /// `None`: none.
    pub mirror: Option<Box<Mirror>>,
}

/// Limits on the connections of this gateway to an upstream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MaxConnections {
    /// Maximum number of open connections, at least 1.
    pub open: u32,
    /// Maximum number of requests that wait for one.
    pub waiting: u32,
}

/// Maximum number of requests in flight at an upstream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MaxInFlight {
    /// As many as the upstream serves without a queue.
    Auto,
    /// This number, at least 1.
    Requests(u32),
}

impl fmt::Display for MaxInFlight {
    /// The syntax of the file, without quotes.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Auto => f.write_str(Auto::Auto.name()),
            Self::Requests(number) => number.fmt(f),
        }
    }
}

/// TLS to an upstream. The certificate is always verified.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct UpstreamTls {
    /// Authorities, and the gateway's own certificate.
    pub files: ClientTls,
    /// The name that the certificate must have, also sent as SNI: a DNS name or an IP address;
    /// `None`: the host of the endpoint.
    pub server_name: Option<Box<str>>,
}

/// Destination of the requests to an upstream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Target {
    /// The built-in responder, for trials.
    Demo,
    /// At least one server.
    Servers(Vec<servers::Server>),
}
