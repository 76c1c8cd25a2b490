//! The tables of gateway.toml except `[rules]`, `[[listeners]]` and `[acme]`. Durations are text
//! here, such as "10ms". The doc comment of a setting is also what editors show of it: what it
//! does. They show the facts of its row as well.

#![warn(missing_docs)]

use super::Named;
use super::basic::Basic;
use super::forward_auth::ForwardAuth;
use super::handling::{Cors, HeaderEdits, Maintenance, Redirect, Respond, SwitchOr};
use super::health::{Eject, Health};
use super::introspection::Introspection;
use super::jwt::{Jwt, OneOrSeveral};
use super::mirror::Mirror;
use super::row::DefaultValue::{Fraction, InWords, Number, Numbers, Switch, Text, Texts};
use super::row::Form::{Address, Bytes, Duration, Matches, Percentages};
use super::row::Range::{Between, Characters, Durations, Fractions, ZeroOr};
use super::row::References::{All, Variables};
use super::row::{Form, Shown, Unit};
use super::rules::Grant;
use super::spanned::Spanned;
use super::walk::table;
use super::words::{
    AdminRole, Auto, ClientIp, Coding, Colocate, Follow, HeaderPolicies, HeaderStyle, LogFormat,
    LogLevel, OnConflictingKeys, OnFailure, OnMissingKey, OnPreflight, OnStoreFailure,
    OnUnknownKey, PathCase, Protocol, Ready, ResetForm, Resolve, SplitBy, StartWithout,
    TrailingSlash, UsageDetail,
};
use crate::limit::cost::Cost;
use crate::net::proxy_protocol::Version;

/// An optional value with its span.
pub type Field<T> = Option<Spanned<T>>;

/// A date and a time, as TOML has them or as text.
#[derive(Debug, Clone, PartialEq, Eq)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct TimeText(pub String);

/// An optional list, with the spans of the list and of each item.
pub type List = Option<Spanned<Vec<Spanned<String>>>>;

/// What an item of a list of failures of servers looks like.
pub(super) const FAILURE: &str = "^(connect|reset|timeout|5xx|408|425|429|5[0-9][0-9])$";

/// A setting that has a short form, a text, and a long one, a table.
#[derive(Debug)]
#[cfg_attr(test, derive(schemars::JsonSchema), schemars(untagged))]
pub enum TextOr<T> {
    /// The short form.
    Text(String),
    /// The long form.
    Table(T),
}

/// One text, or a list of them.
#[derive(Debug)]
#[cfg_attr(test, derive(schemars::JsonSchema), schemars(untagged))]
pub enum TextOrList {
    /// One.
    Text(String),
    /// Several.
    List(Vec<Spanned<String>>),
}

/// What a condition of a route compares a value with.
#[derive(Debug, Clone, PartialEq, Eq)]
#[cfg_attr(test, derive(schemars::JsonSchema), schemars(untagged))]
pub enum TextOrSwitch {
    /// The value, or a prefix of it with a final `*`.
    Text(String),
    /// Whether there is a value.
    Switch(bool),
}

/// A list whose setting can also be switched off, or on with all that the list can have.
#[derive(Debug)]
#[cfg_attr(test, derive(schemars::JsonSchema), schemars(untagged))]
pub enum SwitchOrList<T> {
    /// `false`: none. `true`: all.
    Switch(bool),
    /// These.
    List(Vec<Spanned<T>>),
}

/// Requests in flight at an upstream, in one of two forms.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(test, derive(schemars::JsonSchema), schemars(untagged))]
pub enum MaxInFlight {
    /// `auto`.
    Word(Auto),
    /// This number.
    Requests(u64),
}

table! {
    /// `[server]`: listeners, and limits on connections and requests.
    pub struct Server {
        /// Addresses with port on which clients connect by plain HTTP/1.1.
        pub listen: List {
            default: InWords(r#"`["0.0.0.0:8080"]` without `[[listeners]]`, else none"#),
            form: Address,
            needs_restart: true,
        },
        /// Address of the admin port: the dashboard, metrics, health and the admin API. An address
        /// that is not loopback needs `admin.token`.
        pub admin: Field<String> {
            default: Text("127.0.0.1:9090"),
            form: Address,
            needs_restart: true,
        },
        /// Addresses and networks whose forwarding headers are trusted.
        pub trusted_proxies: List { default: InWords("none") },
        /// Addresses and networks of the clients that are served, such as
        /// `["10.0.0.0/8", "file:office.txt"]`; others get 403. A file has one a line.
        pub allow_ips: List { default: InWords("all") },
        /// Addresses and networks of clients that get 403, such as
        /// `["192.0.2.7", "file:blocked.txt"]`. A file has one a line. Takes precedence over
        /// `allow_ips`.
        pub deny_ips: List { default: InWords("none") },
        /// Name servers that the names of upstream servers are looked up with, as addresses with or
        /// without a port.
        pub resolvers: List {
            default: InWords("those of `/etc/resolv.conf`"),
            example: Some(r#"["10.0.0.2", "127.0.0.1:8600"]"#),
        },
        /// Worker threads.
        pub threads: Field<u64> {
            default: InWords("one per core"),
            range: Between(1, 1024),
            needs_restart: true,
        },
        /// Time limit for an idle connection: between two requests, and before the first one, which
        /// must begin within 60 s at most.
        pub keepalive_timeout: Field<String> {
            default: Text("75s"),
            form: Duration(Unit::Seconds),
        },
        /// Time limit for the next part of a request.
        pub read_timeout: Field<String> { default: Text("60s"), form: Duration(Unit::Seconds) },
        /// Time limit for a client to accept the next part of a response.
        pub write_timeout: Field<String> { default: Text("30s"), form: Duration(Unit::Seconds) },
        /// Time between SIGTERM and the closing of the ports, during which `/ready` answers 503.
        pub drain_delay: Field<String> {
            default: InWords("none"),
            form: Duration(Unit::Seconds),
            needs_restart: true,
        },
        /// Time limit for requests in flight after SIGTERM.
        pub drain_timeout: Field<String> {
            default: Text("20s"),
            form: Duration(Unit::Seconds),
            needs_restart: true,
        },
        /// Time limit for a new process to take over at an upgrade.
        pub upgrade_timeout: Field<String> { default: Text("30s"), form: Duration(Unit::Seconds) },
        /// Maximum size of a request's header lines together, in bytes. Larger requests get 431.
        pub max_header_bytes: Field<u64> {
            default: Number(32_768),
            form: Bytes,
            range: Between(1024, 1 << 20),
        },
        /// Maximum size of a request's target, in bytes. Larger requests get 414.
        pub max_uri_bytes: Field<u64> {
            default: Number(8192),
            form: Bytes,
            range: Between(128, 65_536),
        },
        /// Whether routes match paths case-sensitively.
        pub path_case: Field<PathCase>,
        /// How many gateways share this Redis. While Redis fails, each grants rate and burst
        /// divided by this number.
        pub instances: Field<u64> {
            default: InWords("the number of live gateways in Redis"),
            range: Between(1, 10_000),
            needs_restart: true,
        },
        /// Whether requests of all routes are answered 503: `true`, or
        /// `{ retry_after = "10m", allow_ips = ["10.0.0.0/8"] }`. Routes can have another setting.
        pub maintenance: Option<Spanned<SwitchOr<Maintenance>>> {
            default: Switch(false),
            example: Some(r#"{ retry_after = "10m" }"#),
        },
        /// Limits of connections and requests, against slow and greedy clients.
        pub limits: Option<Spanned<Limits>>,
        /// Limits of HTTP/2 connections.
        pub http2: Option<Spanned<Http2>>,
    }
}

table! {
    /// `[server.limits]`: limits of connections and requests, against slow and greedy clients.
    pub struct Limits {
        /// Time limit for the header of the PROXY protocol and the TLS handshake together.
        pub handshake_timeout: Field<String> {
            default: Text("5s"),
            form: Duration(Unit::Seconds),
            range: Durations("1ms", "10m"),
        },
        /// Time limit for the whole head of a request.
        pub head_timeout: Field<String> {
            default: Text("10s"),
            form: Duration(Unit::Seconds),
            range: Durations("1ms", "10m"),
        },
        /// Minimum rate of a request's body, in bytes a second; 0: none. A slower request gets 408.
        // With this maximum, 30 s of bytes are below 2^64 millionths.
        pub body_min_rate: Field<u64> { default: Number(240), range: Between(0, 1_000_000_000) },
        /// Minimum rate at which a client reads a response, in bytes a second; 0: none. A slower
        /// client's connection is closed.
        pub send_min_rate: Field<u64> { default: Number(240), range: Between(0, 1_000_000_000) },
        /// Maximum number of requests on one connection; 0: any number. The connection closes after
        /// the last one.
        pub max_requests_per_connection: Field<u64> {
            default: Number(10_000),
            range: Between(0, 1_000_000_000),
        },
        /// Maximum number of header lines of a request. A request with more gets 431.
        // Pingora reads no more header lines of a request over HTTP/1.
        pub max_headers: Field<u64> { default: Number(100), range: Between(1, 256) },
        /// Maximum size of a request's body, in bytes; 0: any size. A larger one gets 413. A
        /// route's `max_body_bytes` replaces it.
        pub max_body_bytes: Field<u64> {
            default: Number(104_857_600),
            form: Bytes,
            range: Between(0, 1 << 50),
        },
        /// Maximum number of open client connections. Never more than the limit of open files
        /// allows.
        // The maximum is above what one machine can hold.
        pub max_connections: Field<u64> { default: Number(20_000), range: Between(1, 10_000_000) },
        /// Maximum number of open connections from one address; never more than half of
        /// `max_connections`. The first `clients.ipv6_prefix` bits of an IPv6 address count.
        pub max_connections_per_ip: Field<u64> {
            default: Number(1000),
            range: Between(1, 10_000_000),
        },
        /// Maximum number of requests that wait because of rules with `kind = "leaky_bucket"`.
        /// Further ones get 429, and take nothing from any limit.
        pub max_waiting_requests: Field<u64> {
            default: Number(10_000),
            range: Between(1, 10_000_000),
        },
        /// Whether `/ready` answers 503 while the gateway is out of file descriptors or memory.
        pub unready_on_overload: Field<bool> { default: Switch(false) },
    }
}

table! {
    /// `[server.http2]`: limits of HTTP/2 connections.
    pub struct Http2 {
        /// Maximum number of requests at a time on one connection.
        pub max_concurrent_streams: Field<u64> { default: Number(100), range: Between(1, 10_000) },
        /// Maximum size of a request's decoded header list, in bytes.
        pub max_header_list_bytes: Field<u64> {
            default: Number(65_536),
            form: Bytes,
            range: Between(1024, 1 << 20),
        },
        /// Maximum number of streams that a client has reset and the gateway has not yet accepted.
        /// The connection is closed beyond it.
        pub max_pending_resets: Field<u64> { default: Number(20), range: Between(1, 10_000) },
        /// Time limit for a connection without a request.
        pub idle_timeout: Field<String> {
            default: InWords("`server.keepalive_timeout`"),
            form: Duration(Unit::Seconds),
        },
        /// Age from which a connection accepts no further requests.
        pub max_connection_age: Field<String> {
            default: InWords("none"),
            form: Duration(Unit::Seconds),
        },
    }
}

table! {
    /// `[admin]`: access to the admin port.
    pub struct Admin {
        /// Token that `/api/` requires as `Authorization: Bearer …`, best set from the environment
        /// as `"${NAME}"`, in visible characters.
        pub token: Field<String> {
            default: InWords("none; `server.admin` must then be a loopback address"),
            // At least 64 bits if it has only hexadecimal digits; it fits into a header with any
            // `max_header_bytes`.
            range: Characters(16, 1024),
            shown: Shown::Masked,
            references: All,
        },
        /// Further tokens, each with a name and with what it may do: `{ name, sha256, roles,
        /// tenant, not_before, expires }`.
        pub tokens: Option<Spanned<Vec<Spanned<AdminToken>>>> { default: InWords("none") },
    }
}

table! {
    /// `[[admin.tokens]]`: a token for the admin port.
    pub struct AdminToken {
        /// Name of the token, which the log shows.
        pub name: Field<String>,
        /// SHA-256 of the token: 64 hexadecimal digits. `tollgate hash-key --admin NAME` makes a
        /// token and prints its table.
        pub sha256: Field<String> {
            form: Matches("^[0-9A-Fa-f]{64}$"),
            shown: Shown::Digest,
        },
        /// What it may do: any of `read`, `operate` and `keys`.
        pub roles: Field<Vec<Spanned<AdminRole>>> { default: Texts(&["read"]) },
        /// Tenant that it is limited to: it reads and changes that tenant and its clients only.
        pub tenant: Field<String> { default: InWords("all clients") },
        /// When the token begins to be valid, with an offset: `2027-01-31T00:00:00Z`.
        pub not_before: Field<TimeText> { default: InWords("always"), form: Form::Time },
        /// When the token ceases to be valid, with an offset: `2027-01-31T00:00:00Z`.
        pub expires: Field<TimeText> { default: InWords("never"), form: Form::Time },
    }
}

table! {
    /// `[redis]`: buckets that gateways share.
    pub struct Redis {
        /// The server: `redis://host:6379`, `rediss://…`, `redis+sentinel://…/master`,
        /// `redis+cluster://host1,host2`, `unix:///path`.
        pub url: Field<String> { shown: Shown::Url, references: All, needs_restart: true },
        /// Time limit of one check.
        pub timeout: Field<String> {
            default: Text("10ms"),
            form: Duration(Unit::Milliseconds),
            range: Durations("1ms", "1s"),
            needs_restart: true,
        },
        /// How requests are decided while Redis fails, for rules that do not set it.
        pub on_failure: Field<OnFailure>,
        /// Prefix of every key: visible ASCII characters without `{` and `}`.
        pub prefix: Field<String> {
            default: Text("tollgate:"),
            form: Matches("^[!-z|~]+$"),
            range: Characters(1, 64),
            needs_restart: true,
        },
        /// Number of hash tags of the buckets in a Redis Cluster; the same on all gateways. With 0,
        /// each client has its own.
        pub lanes: Field<u64> { default: Number(6), range: Between(0, 1024), needs_restart: true },
        /// Which buckets are in one slot of a Redis Cluster; the same on all gateways.
        pub colocate: Field<Colocate> { needs_restart: true },
        /// Whether a replica that takes over gets back what it lacks, as far as gateways saw it;
        /// with sentinels and in a cluster.
        pub repair: Field<bool> { default: Switch(true), needs_restart: true },
        /// ACL user of the gateway.
        pub username: Field<String> {
            default: InWords("the default user"),
            references: All,
            needs_restart: true,
        },
        /// Password of the user.
        pub password: Field<String> {
            default: InWords("none"),
            shown: Shown::Masked,
            references: All,
            needs_restart: true,
        },
        /// Number of the database.
        pub database: Field<u64> {
            default: Number(0),
            range: Between(0, 2_147_483_647),
            needs_restart: true,
        },
        /// User of the gateway at the sentinels.
        pub sentinel_username: Field<String> {
            default: InWords("the default user"),
            references: All,
            needs_restart: true,
        },
        /// Password at the sentinels.
        pub sentinel_password: Field<String> {
            default: InWords("none"),
            shown: Shown::Masked,
            references: All,
            needs_restart: true,
        },
        /// PEM file with the certificate authorities of the server.
        pub ca: Field<String> {
            default: InWords("public authorities"),
            references: Variables,
            needs_restart: true,
        },
        /// PEM file with the gateway's own certificate; needs `client_key`.
        pub client_cert: Field<String> {
            default: InWords("none"),
            references: Variables,
            needs_restart: true,
        },
        /// PEM file with the key of that certificate.
        pub client_key: Field<String> {
            default: InWords("none"),
            references: Variables,
            needs_restart: true,
        },
        /// What `/ready` answers while Redis fails.
        pub ready: Field<Ready> { needs_restart: true },
        /// Content of buckets until the gateway has reached Redis once.
        pub start_without: Field<StartWithout> { needs_restart: true },
        /// The circuit breaker: when requests stop waiting for Redis, and how they return.
        pub breaker: Option<Spanned<Breaker>> { needs_restart: true },
    }
}

table! {
    /// `[redis.breaker]`: the circuit breaker: when requests stop waiting for Redis, and how they
    /// return.
    pub struct Breaker {
        /// Consecutive timeouts that open the breaker.
        pub timeouts: Field<u64> { default: Number(5), range: Between(1, 1000) },
        /// Window over which the fraction of timeouts is measured.
        pub window: Field<String> {
            default: Text("5s"),
            form: Duration(Unit::BySize),
            range: Durations("1ms", "1h"),
        },
        /// Minimum number of calls within the window.
        pub window_calls: Field<u64> { default: Number(20), range: Between(1, 100_000) },
        /// Percentage of calls within the window that must time out to open the breaker.
        pub window_timeouts: Field<u64> { default: Number(50), range: Between(1, 100) },
        /// How long the breaker stays open at first; doubles with each failure.
        pub open: Field<String> {
            default: Text("500ms"),
            form: Duration(Unit::BySize),
            range: Durations("1ms", "1h"),
        },
        /// How long the breaker stays open at most.
        pub open_max: Field<String> {
            default: InWords(r#"`"15s"`, with sentinels and in a cluster `"1s"`"#),
            form: Duration(Unit::BySize),
            range: Durations("1ms", "1h"),
        },
        /// Consecutive probes that must succeed.
        pub probes: Field<u64> { default: Number(3), range: Between(1, 100) },
        /// Percentages of requests that use Redis again, 1 to 16 steps that do not decrease and end
        /// with 100.
        pub ramp: Option<Spanned<Vec<Spanned<u64>>>> {
            default: Numbers(&[1, 10, 50, 100]),
            range: Between(1, 100),
        },
        /// Duration of each step.
        pub ramp_step: Field<String> {
            default: Text("1s"),
            form: Duration(Unit::BySize),
            range: Durations("1ms", "1h"),
        },
    }
}

table! {
    /// `[clients]`: how clients are identified.
    pub struct Clients {
        /// Where to look for an API key, in this order: `header:<name>`, `bearer`, `query:<name>`.
        pub api_key: List {
            default: Texts(&["header:x-api-key", "bearer", "query:api_key"]),
            form: Matches("^(bearer|header:.+|query:.+)$"),
            shown: Shown::KeyPlaces,
        },
        /// Plan of clients without a key of their own.
        pub anonymous_plan: Field<String> { default: InWords(r#"`"free"`, if that plan exists"#) },
        /// What happens to a request without a key.
        pub on_missing_key: Field<OnMissingKey>,
        /// What happens to a CORS preflight request without a key, if `on_missing_key` or a rule's
        /// `on_missing` requires one. Browsers send no key with it.
        pub on_preflight: Field<OnPreflight>,
        /// What happens to a request with an unknown key.
        pub on_unknown_key: Field<OnUnknownKey> {
            default: InWords(r#"`"deny"`; in a file without `[keys]`, nothing is taken for a key"#),
        },
        /// What happens to a request with two different keys.
        pub on_conflicting_keys: Field<OnConflictingKeys>,
        /// Whether the key is removed before the request is forwarded.
        pub hide_key: Field<bool> { default: Switch(false) },
        /// How many leading bits of an IPv6 address identify a client.
        pub ipv6_prefix: Field<u64> { default: Number(64), range: Between(1, 128) },
        /// Path where clients read their own limits, such as `"/.well-known/ratelimit"`.
        pub limits_path: Field<String> { default: InWords("none") },
        /// Tokens of identity providers, which are read where API keys are.
        pub jwt: Option<Spanned<OneOrSeveral<Jwt>>>,
        /// Bearer tokens that their issuer is asked about.
        pub introspection: Option<Spanned<Introspection>>,
        /// Users with passwords.
        pub basic: Option<Spanned<Basic>>,
    }
}

table! {
    /// `[key_store]`: clients with API keys beside those of the file, which the admin API changes.
    pub struct KeyStore {
        /// Where they are: `"redis"` is the Redis of `[redis]`, `"file:keys.db"` a file.
        pub url: Field<String> {
            shown: Shown::Url,
            references: Variables,
            needs_restart: true,
        },
        /// How many API keys the gateway has in memory; as many unknown ones beside them.
        pub cache: Field<u64> {
            default: Number(100_000),
            range: Between(1_000, 10_000_000),
            needs_restart: true,
        },
        /// How long keys in memory are used while the store cannot be read.
        pub max_stale: Field<String> {
            default: Text("1h"),
            form: Duration(Unit::BySize),
            range: Durations("1s", "30d"),
        },
        /// What happens to a request whose key is not in memory while the store cannot be read.
        pub on_store_failure: Field<OnStoreFailure>,
        /// Whether clients can replace their own keys, by POST to `clients.limits_path`.
        pub self_rotation: Field<bool> { default: Switch(false) },
    }
}

table! {
    /// `[headers]`: rate limit headers of responses.
    pub struct Headers {
        /// Which headers responses have.
        pub style: Field<HeaderStyle>,
        /// Which rules the headers describe.
        pub policies: Field<HeaderPolicies>,
        /// Whether `X-RateLimit-Reset` is a Unix time or a number of seconds.
        pub reset: Field<ResetForm>,
        /// Whether responses that were decided locally because Redis failed have
        /// `X-RateLimit-Mode: local`.
        pub mode: Field<bool> { default: Switch(false) },
    }
}

table! {
    /// `[access_log]`: one line of JSON for every request. Without this table there is no log.
    pub struct AccessLog {
        /// Destination: `"stdout"`, the path of a file, or `"off"`.
        pub output: Field<String> { default: Text("stdout"), references: Variables },
        /// How a client's address is shown, here, in refusals and in traces.
        pub client_ip: Field<ClientIp>,
        /// Salt of hashed addresses, best set from the environment as `"${NAME}"`.
        // A shorter one could be guessed from the hash of a known address.
        pub salt: Field<String> {
            default: InWords("a new one for each process"),
            range: Characters(16, usize::MAX),
            shown: Shown::Masked,
            references: All,
        },
        /// Fraction of allowed requests that have a line; refused and failed requests always have
        /// one.
        pub sample: Field<f64> { default: Fraction(1.0), range: Fractions(0.0, 1.0) },
        /// Members of a line, in this order: `time`, `status`, …; `header:<name>` is a header of
        /// the request.
        pub fields: List { default: InWords("all, without headers") },
    }
}

table! {
    /// `[log]`: the log of the process, on standard error. Changes take effect at the next start.
    pub struct Log {
        /// Form of a line. The environment variable `TOLLGATE_LOG_FORMAT` takes precedence.
        pub format: Field<LogFormat> { needs_restart: true },
        /// Which events are logged. The environment variable `TOLLGATE_LOG` takes precedence.
        pub level: Field<LogLevel> { needs_restart: true },
    }
}

table! {
    /// `[tracing]`: traces of requests, for an OpenTelemetry collector. Without this table no
    /// request is traced.
    pub struct Tracing {
        /// The collector, by OTLP over HTTP: `http://host:4318`, `https://…`; `/v1/traces` is
        /// appended.
        pub endpoint: Field<String> {
            default: Text("http://127.0.0.1:4318"),
            shown: Shown::Url,
            references: All,
        },
        /// PEM file with the certificate authorities of an `https://` collector.
        pub ca: Field<String> { default: InWords("public authorities"), references: Variables },
        /// Additional headers of each export: `{ authorization = "Bearer ${OTLP_TOKEN}" }`.
        pub headers: Named<String> { shown: Shown::Values, references: All },
        /// Time limit of one export.
        pub timeout: Field<String> {
            default: Text("10s"),
            form: Duration(Unit::Seconds),
            range: Durations("1ms", "1m"),
        },
        /// Fraction of requests that is recorded, if no trusted proxy has decided already.
        pub sample: Field<f64> { default: Fraction(0.01), range: Fractions(0.0, 1.0) },
        /// Whose `traceparent` is continued.
        pub follow: Field<Follow>,
        /// Name of the gateway in traces.
        pub service_name: Field<String> {
            default: Text("tollgate"),
            range: Characters(1, 255),
            references: All,
        },
    }
}

table! {
    /// `[audit]`: a stream in Redis with the refusals of all gateways.
    pub struct Audit {
        /// Whether refusals are also written to a stream in Redis, those of all gateways together.
        pub stream: Field<bool> { default: Switch(false) },
        /// Approximate number of records in the stream.
        // Redis drops records in blocks of a hundred.
        pub max_records: Field<u64> { default: Number(10_000), range: Between(100, 10_000_000) },
    }
}

table! {
    /// `[memory]`: the memory of this process.
    pub struct Memory {
        /// Maximum number of buckets.
        pub max_buckets: Field<u64> {
            default: Number(1_000_000),
            range: Between(1, 100_000_000),
            needs_restart: true,
        },
        /// Memory of the process, in bytes, above which it accepts no connections and closes idle
        /// ones; 0: no limit.
        pub max_bytes: Field<u64> {
            default: InWords("90 % of the limit of its cgroup, if there is one"),
            form: Bytes,
            // An idle gateway needs 16 MiB.
            range: ZeroOr(1 << 24, 1 << 50),
        },
    }
}

table! {
    /// `[usage]`: what clients used of their quotas, which are fixed windows of an hour or longer.
    /// The file also has the logs of sliding windows of an hour or longer.
    pub struct Usage {
        /// File in which usage is kept without `[redis]`, so that a restart loses no counts. It is
        /// created, and no other process can use it.
        pub file: Field<String> { default: InWords("none"), references: Variables, needs_restart: true },
        /// How long the usage of a period is kept after its end; that of an hour for at most `7d`.
        pub keep: Field<String> {
            default: Text("100d"),
            form: Duration(Unit::Unclear),
            range: Durations("1d", "3660d"),
        },
        /// Maximum number of records, each of a client, a rule and a period.
        pub max_records: Field<u64> {
            default: InWords("10000000 in the file, 1000000 in Redis"),
            range: Between(1000, 1_000_000_000),
        },
        /// What else usage is listed by: `"day"`, or `"route"` for days and routes. Needs `[redis]`
        /// or `file`.
        pub detail: Field<UsageDetail>,
        /// Maximum number of records of days, each of a client, a rule, a plan, a day and, with
        /// `detail = "route"`, a route.
        pub max_details: Field<u64> {
            default: InWords("10000000 in the file, 1000000 in Redis"),
            range: Between(1000, 1_000_000_000),
        },
    }
}

table! {
    /// `[webhooks.<name>]`: a server that is sent events, signed as Standard Webhooks demands.
    pub struct Webhook {
        /// Where events are sent: a URL with `https://`.
        pub url: Field<String> {
            example: Some(r#""https://billing.example.com/events""#),
            shown: Shown::Url,
            references: Variables,
        },
        /// Key of the signatures: `whsec_` and 24 to 64 bytes in Base64; best set as `"${NAME}"` or
        /// `"${file:PATH}"`.
        pub secret: Field<String> { shown: Shown::Masked, references: All },
        /// Events that are sent: any of `quota.soft` and `quota.overage`.
        pub events: List { default: InWords("all") },
        /// Time limit for an answer.
        pub timeout: Field<String> {
            default: Text("10s"),
            form: Duration(Unit::BySize),
            range: Durations("100ms", "1m"),
        },
        /// PEM file with the authorities of the server's certificate.
        pub ca: Field<String> { default: InWords("public authorities"), references: Variables },
    }
}

table! {
    /// `[plans.<name>]`: a plan, which rules and keys refer to.
    pub struct Plan {
        /// Which requests are refused last while an upstream has its `max_in_flight`: those with
        /// the highest number.
        pub priority: Field<i64> { default: Number(0), range: Between(-1000, 1000) },
        /// Free text, which the gateway does not use.
        pub description: Field<String> { default: InWords("none") },
    }
}

table! {
    /// `[keys.<id>]`: a client with API keys.
    pub struct Key {
        /// SHA-256 of its API key as it is sent: 64 hexadecimal digits. `tollgate hash-key` prints
        /// it. The key is valid beside those of `secrets`.
        pub sha256: Field<String> { form: Matches("^[0-9A-Fa-f]{64}$"), shown: Shown::Digest },
        /// Several API keys, such as the old and the new one during a rotation: `{ name, sha256,
        /// not_before, expires }` each. They share all buckets of the client.
        pub secrets: Option<Spanned<Vec<Spanned<Secret>>>> { default: InWords("none") },
        /// Whether the client is served. With `false`, its requests get 401.
        pub enabled: Field<bool> { default: Switch(true) },
        /// Plan of the key; required if the file has plans, unless its tenant has one.
        pub plan: Field<String>,
        /// Tenant that the client belongs to, for rules per `tenant`.
        pub tenant: Field<String> { default: InWords("none") },
        /// Overrides of rules for this key: `{ rate, burst }` or `{ limit, burst }`.
        pub rules: Named<Grant>,
        /// Free text, which the gateway does not use.
        pub description: Field<String> { default: InWords("none") },
    }
}

table! {
    /// `[tenants.<id>]`: several clients that share limits, such as those of one customer.
    pub struct Tenant {
        /// Plan of its clients that have none, and of the tenant in rules per `tenant`.
        pub plan: Field<String> { default: InWords("none; rules per `tenant` use that of the client") },
        /// Overrides of rules for its clients: `{ rate, burst }` or `{ limit, burst }`. Of a rule
        /// per `tenant`, that is the limit of the tenant.
        pub rules: Named<Grant>,
        /// Free text, which the gateway does not use.
        pub description: Field<String> { default: InWords("none") },
    }
}

impl Key {
    /// The hashes of its API keys, as they are written.
    pub fn digests(&self) -> impl Iterator<Item = &str> {
        let secrets = self.secrets.iter().flat_map(Spanned::get_ref);
        let secrets = secrets.filter_map(|secret| secret.get_ref().sha256.as_ref());
        self.sha256.iter().chain(secrets).map(|digest| digest.get_ref().as_str())
    }
}

table! {
    /// `secrets` of `[keys.<id>]`: one API key of a client.
    pub struct Secret {
        /// Name of the key, which the access log and the audit show.
        pub name: Field<String> { default: InWords("none") },
        /// SHA-256 of the key as it is sent: 64 hexadecimal digits. `tollgate hash-key` prints it.
        pub sha256: Field<String> { form: Matches("^[0-9A-Fa-f]{64}$"), shown: Shown::Digest },
        /// When the key begins to be valid, with an offset: `2027-01-31T00:00:00Z`.
        pub not_before: Field<TimeText> { default: InWords("always"), form: Form::Time },
        /// When the key ceases to be valid, with an offset: `2027-01-31T00:00:00Z`.
        pub expires: Field<TimeText> { default: InWords("never"), form: Form::Time },
    }
}

table! {
    /// `[upstreams.<name>]`: servers that requests are forwarded to.
    pub struct Upstream {
        /// Servers as `host:port` or, with TLS, `https://host:port`, each a text or a table with
        /// more settings; or `["demo"]`, a built-in responder.
        pub servers: Option<Spanned<Vec<Spanned<TextOr<UpstreamServer>>>>>,
        /// Which records of the names of servers are looked up. With `"srv"`, a server is such a
        /// name without a port, such as `_http._tcp.api.internal`.
        pub resolve: Field<Resolve>,
        /// How requests are distributed over the servers: `round_robin`, `least_request`,
        /// `random_two`, `hash:ip`, `hash:key` or `hash:header:<name>`.
        pub balance: Field<String> { default: Text("round_robin") },
        /// A cookie that keeps the requests of a client on one server: `{ cookie, ttl, secret }`.
        pub sticky: Option<Spanned<Sticky>> { default: InWords("none") },
        /// Health checks, which the gateway sends to each address of a server.
        pub health: Option<Spanned<Health>> {
            default: InWords("none"),
            example: Some(r#"{ path = "/healthz", interval = "2s" }"#),
        },
        /// Which addresses get no requests for a time because their requests fail.
        pub eject: Option<Spanned<Eject>> {
            default: InWords("those that cannot be connected to, for 5 s"),
            example: Some(r#"{ consecutive_failures = 5, for = "30s" }"#),
        },
        /// How long the weight of a server rises from 10 % after it has become healthy.
        pub slow_start: Field<String> { default: InWords("none"), form: Duration(Unit::Seconds) },
        /// Time limit for connecting.
        pub connect_timeout: Field<String> { default: Text("1s"), form: Duration(Unit::Seconds) },
        /// Time limit for the head of a response, then for each next part of its body.
        pub read_timeout: Field<String> { default: Text("30s"), form: Duration(Unit::Seconds) },
        /// Time limit for the upstream to accept the next part of a request.
        pub write_timeout: Field<String> { default: Text("30s"), form: Duration(Unit::Seconds) },
        /// Time limit for the head of a response, from the end of the request, in place of
        /// `read_timeout`.
        pub first_byte_timeout: Field<String> {
            default: InWords("`read_timeout`"),
            form: Duration(Unit::Seconds),
        },
        /// Time limit for one attempt, from the selection of a server, or from the end of the
        /// request's body, to the head of the response.
        pub try_timeout: Field<String> { default: InWords("none"), form: Duration(Unit::Seconds) },
        /// Time limit for the whole request with its retries, from the first selection of a server
        /// to the end of the response. Then 504, or the response is cut off.
        pub timeout: Field<String> { default: InWords("none"), form: Duration(Unit::Seconds) },
        /// How long an unused connection is kept.
        pub idle_timeout: Field<String> { default: Text("60s"), form: Duration(Unit::Seconds) },
        /// TLS to `https://` servers: `{ ca, cert, key, server_name }`. Their certificates are
        /// always verified.
        pub tls: Option<Spanned<UpstreamTls>>,
        /// Version of HTTP.
        pub protocol: Field<Protocol>,
        /// Version of the PROXY protocol header that begins each connection.
        pub proxy_protocol: Field<Version> { default: InWords("none") },
        /// Maximum number of requests in flight, or `"auto"`: as many as the upstream serves
        /// without a queue. Further ones get 503, those of plans with the lowest `priority` first,
        /// and take nothing from any limit.
        pub max_in_flight: Field<MaxInFlight> {
            default: InWords("any number"),
            range: Between(1, 10_000_000),
        },
        /// Maximum number of open connections from this gateway; one over HTTP/2 counts once,
        /// whatever the number of its requests. A request that needs another one waits up to
        /// `connect_timeout`, then gets 503.
        pub max_connections: Field<u64> {
            default: InWords("any number"),
            range: Between(1, 1_000_000),
        },
        /// Maximum number of requests that wait for a connection because of `max_connections`.
        /// Further ones get 503 at once.
        pub max_pending: Field<u64> {
            default: InWords("1024, if there is `max_connections`"),
            range: Between(0, 1_000_000),
        },
        /// When a request that failed is sent again: `{ count, on, non_idempotent, budget }`.
        pub retries: Option<Spanned<Retries>> {
            default: InWords("one retry if no server has processed the request"),
            example: Some(r#"{ count = 1, on = ["connect", "503"] }"#),
        },
        /// The codings by which responses are compressed for clients that accept them, the
        /// preferred one first: `br`, `zstd` and `gzip`. `true`: all, in this order.
        pub compress: Option<Spanned<SwitchOrList<Coding>>> {
            default: Switch(false),
            example: Some(r#"["br", "zstd", "gzip"]"#),
        },
        /// Requests that another upstream gets as well, whose responses are not used:
        /// `{ to, share, max_body_bytes, max_in_flight, timeout }`.
        pub mirror: Option<Spanned<Mirror>> {
            default: InWords("none"),
            example: Some(r#"{ to = "shadow", share = "5%" }"#),
        },
    }
}

table! {
    /// `retries` of `[upstreams.<name>]` and `[routes.<name>]`: when a request that failed is sent
    /// again, to another server if there is one.
    pub struct Retries {
        /// Maximum number of retries of a request; 0: none.
        pub count: Field<u64> { default: Number(1), range: Between(0, 10) },
        /// The failures after which a request is sent again: `connect` (no server has processed
        /// it), `reset` (the connection closed before the head of the response), `timeout` (the
        /// head did not come in time), `5xx`, and the statuses 408, 425, 429 and 500 to 599.
        pub on: List {
            default: Texts(&["connect"]),
            form: Matches(FAILURE),
        },
        /// Whether requests are also sent again if their method is not idempotent, such as POST,
        /// and a server may have processed them.
        pub non_idempotent: Field<bool> { default: Switch(false) },
        /// Maximum number of retries of requests that the upstream may have processed, in percent
        /// of its requests of the last 10 s: `"1%"` to `"1000%"`. 10 are always possible.
        pub budget: Field<String> { default: Text("20%"), form: Matches("^[1-9][0-9]*%$") },
    }
}

table! {
    /// An item of `servers` of `[upstreams.<name>]`: a server with its weight and priority.
    pub struct UpstreamServer {
        /// `host:port` or, with TLS, `https://host:port`. Required.
        pub address: Field<String>,
        /// Its share of the requests.
        pub weight: Field<u64> { default: Number(1), range: Between(1, 1000) },
        /// Whether it is used only if no server without `backup` is healthy: the same as
        /// `priority = 1`.
        pub backup: Field<bool> { default: Switch(false) },
        /// The servers of the lowest priority with a healthy one get the requests.
        pub priority: Field<u64> { default: Number(0), range: Between(0, 100) },
    }
}

table! {
    /// `[upstreams.<name>.sticky]`: a cookie that keeps the requests of a client on one server.
    pub struct Sticky {
        /// Name of the cookie. Required.
        pub cookie: Field<String>,
        /// How long the browser keeps the cookie.
        pub ttl: Field<String> {
            default: InWords("until it is closed"),
            form: Duration(Unit::Seconds),
            range: Durations("1s", "1d"),
        },
        /// Key of the hashes that are the cookie's values, best set from the environment as
        /// `"${NAME}"`; the same on all gateways.
        pub secret: Field<String> {
            default: InWords("a new one for each process"),
            range: Characters(16, usize::MAX),
            shown: Shown::Masked,
            references: All,
        },
    }
}

table! {
    /// `[upstreams.<name>.tls]`: TLS to the servers of an upstream.
    pub struct UpstreamTls {
        /// PEM file with the certificate authorities of the servers.
        pub ca: Field<String> { default: InWords("public authorities"), references: Variables },
        /// PEM file with the gateway's own certificate; needs `key`.
        pub cert: Field<String> { default: InWords("none"), references: Variables },
        /// PEM file with the key of that certificate.
        pub key: Field<String> { default: InWords("none"), references: Variables },
        /// Name that the certificates of the servers must have, also sent as SNI.
        pub server_name: Field<String> { default: InWords("the host of the server") },
    }
}

table! {
    /// `[routes.<name>]`: which requests are forwarded to which upstream, and what they cost.
    pub struct Route {
        /// Exact path, or a prefix that ends in `/*`. A segment `{name}` matches any text.
        pub path: Field<String> { default: Text("/*"), form: Matches("^/") },
        /// Whether a trailing slash makes another path.
        pub trailing_slash: Field<TrailingSlash>,
        /// Methods, such as `GET`, which includes `HEAD`.
        pub methods: List { default: InWords("all but `TRACE`") },
        /// Host, without port, or a list of hosts. `*.example.com` is all hosts below
        /// `example.com`.
        pub host: Field<TextOrList> { default: InWords("all") },
        /// Instead of `path`, a regular expression for the paths, such as `"^/v[0-9]+/search$"`.
        /// Matched after all other paths but `/*`.
        pub path_regex: Field<String> { default: InWords("none") },
        /// Values of headers that requests must have: `{ x-version = "2" }`. `"2*"`: a value that
        /// begins with `2`. `true`: any value. `false`: none.
        pub headers: Named<TextOrSwitch> {
            default: InWords("none"),
            example: Some(r#"{ x-version = "2" }"#),
        },
        /// Values of query parameters that requests must have, as in `headers`.
        pub query: Named<TextOrSwitch> {
            default: InWords("none"),
            example: Some(r#"{ version = "2" }"#),
        },
        /// Values of cookies that requests must have, as in `headers`.
        pub cookies: Named<TextOrSwitch> {
            default: InWords("none"),
            example: Some(r#"{ beta = "1" }"#),
        },
        /// Upstream; may be left out if there is only one.
        pub upstream: Field<String>,
        /// Instead of `upstream`, the names of several with their weights:
        /// `{ api = 95, canary = 5 }`.
        pub split: Option<Spanned<Named<u64>>> {
            default: InWords("none"),
            form: Percentages,
            range: Between(0, 1000),
            example: Some("{ api = 95, canary = 5 }"),
        },
        /// Whether requests are split one by one, or by client.
        pub split_by: Field<SplitBy>,
        /// Addresses and networks of the clients that are served, such as
        /// `["10.0.0.0/8", "file:office.txt"]`; others get 403.
        pub allow_ips: List { default: InWords("`server.allow_ips`") },
        /// Addresses and networks of clients that get 403, beside those of `server.deny_ips`.
        pub deny_ips: List { default: InWords("none") },
        /// Tokens that a request takes from each bucket, above 0, with at most three decimals. A
        /// rule's `cost` replaces it.
        pub cost: Field<Cost> { default: Number(1) },
        /// Time limit for a WebSocket on which nothing is sent in either direction.
        pub websocket_idle_timeout: Field<String> {
            default: Text("1h"),
            form: Duration(Unit::Seconds),
        },
        /// Maximum size of a request's body, in bytes; 0: any size. A larger one gets 413.
        pub max_body_bytes: Field<u64> {
            default: InWords("`server.limits.max_body_bytes`"),
            form: Bytes,
            range: Between(0, 1 << 50),
        },
        /// Changes of the headers of requests, as the upstream gets them: `{ set, add, remove }`.
        pub request_headers: Option<Spanned<HeaderEdits>> {
            default: InWords("none"),
            example: Some(r#"{ set = { X-Client = "{client.id}" } }"#),
            shown: Shown::Values,
        },
        /// Changes of the headers of responses: `{ set, add, remove }`.
        pub response_headers: Option<Spanned<HeaderEdits>> {
            default: InWords("none"),
            example: Some(r#"{ set = { X-Frame-Options = "DENY" } }"#),
        },
        /// Prefix that is taken away from the path for the upstream, such as `/v1`;
        /// `X-Forwarded-Prefix` has it. All paths of the route must begin with it.
        pub strip_prefix: Field<String> { default: InWords("none") },
        /// Prefix of the path that is replaced for the upstream: `{ "/v1" = "/api" }`.
        pub replace_prefix: Named<String> { default: InWords("none") },
        /// Prefix that is put in front of the path for the upstream, such as `/api`.
        pub add_prefix: Field<String> { default: InWords("none") },
        /// Path that the upstream gets instead, such as `/users/{param:id}`. The query stays.
        pub replace_path: Field<String> { default: InWords("none") },
        /// Host that the upstream gets: a name, with a port if it needs one, or `"{upstream}"`, the
        /// host of the server.
        pub upstream_host: Field<String> { default: InWords("the host of the request") },
        /// A fixed answer instead of an upstream: `{ status = 503, body = "closed" }`.
        pub respond: Option<Spanned<Respond>> {
            default: InWords("none"),
            example: Some(r#"{ status = 503, body = "closed" }"#),
        },
        /// A redirect instead of an upstream:
        /// `{ to = "https://new.example{path}{query}", status = 308 }`.
        pub redirect: Option<Spanned<Redirect>> {
            default: InWords("none"),
            example: Some(r#"{ to = "https://new.example{path}{query}" }"#),
        },
        /// Whether requests are answered 503: `true`, or
        /// `{ retry_after = "10m", allow_ips = ["10.0.0.0/8"] }`. They take no tokens.
        pub maintenance: Option<Spanned<SwitchOr<Maintenance>>> {
            default: InWords("`server.maintenance`"),
            example: Some(r#"{ retry_after = "10m" }"#),
        },
        /// Time limit for the whole request with its retries, from the first selection of a server
        /// to the end of the response. Then 504, or the response is cut off.
        pub timeout: Field<String> {
            default: InWords("that of the upstream"),
            form: Duration(Unit::Seconds),
        },
        /// Time limit for one attempt, from the selection of a server, or from the end of the
        /// request's body, to the head of the response.
        pub try_timeout: Field<String> {
            default: InWords("that of the upstream"),
            form: Duration(Unit::Seconds),
        },
        /// Time limit for the head of a response, from the end of the request.
        pub first_byte_timeout: Field<String> {
            default: InWords("that of the upstream"),
            form: Duration(Unit::Seconds),
        },
        /// When a request that failed is sent again: `{ count, on, non_idempotent, budget }`.
        /// Replaces that of the upstream.
        pub retries: Option<Spanned<Retries>> {
            default: InWords("that of the upstream"),
            example: Some(r#"{ count = 1, on = ["connect", "503"] }"#),
        },
        /// The codings by which responses are compressed for clients that accept them, in place of
        /// those of the upstream. `false`: none.
        pub compress: Option<Spanned<SwitchOrList<Coding>>> {
            default: InWords("that of the upstream"),
            example: Some(r#"["br", "zstd", "gzip"]"#),
        },
        /// Requests that another upstream gets as well, in place of those that the upstream says:
        /// `{ to, share, max_body_bytes, max_in_flight, timeout }`. `false`: none.
        pub mirror: Option<Spanned<SwitchOr<Mirror>>> {
            default: InWords("that of the upstream"),
            example: Some(r#"{ to = "shadow", share = "5%" }"#),
        },
        /// Pages of other sites that may use the route from browsers, instead of those of `[cors]`:
        /// `{ origins = ["https://app.example.com"] }`. `false`: none, and what the upstream says
        /// about it passes unchanged.
        pub cors: Option<Spanned<SwitchOr<Cors>>> {
            default: InWords("`[cors]`"),
            example: Some(r#"{ origins = ["https://app.example.com"] }"#),
        },
        /// A server that decides whether requests go on, instead of that of `[forward_auth]`:
        /// `{ url = "http://127.0.0.1:9000/auth" }`. `false`: none is asked.
        pub forward_auth: Option<Spanned<SwitchOr<ForwardAuth>>> {
            default: InWords("`[forward_auth]`"),
            example: Some(r#"{ url = "http://127.0.0.1:9000/auth" }"#),
        },
        /// Free text, which the gateway does not use.
        pub description: Field<String> { default: InWords("none") },
    }
}
