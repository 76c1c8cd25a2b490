//! The tables of gateway.toml except `[rules]`, `[[listeners]]` and `[acme]`. Durations are text
//! here, such as "10ms". The doc comment of a setting is also what editors show of it: what it
//! does, its range and its default.

#![warn(missing_docs)]

use super::Named;
use super::handling::{HeaderEdits, Maintenance, Redirect, Respond, SwitchOr};
use super::rules::Grant;
use super::spanned::Spanned;
use super::walk::table;
use super::words::{
    Auto, ClientIp, Colocate, Follow, HeaderPolicies, HeaderStyle, LogFormat, LogLevel,
    OnConflictingKeys, OnFailure, OnMissingKey, OnPreflight, OnUnknownKey, PathCase, Protocol,
    ProxyVersion, Ready, ResetForm, SplitBy, StartWithout, TrailingSlash,
};
use crate::limit::cost::Cost;

/// An optional value with its span.
pub type Field<T> = Option<Spanned<T>>;

/// An optional list, with the spans of the list and of each item.
pub type List = Option<Spanned<Vec<Spanned<String>>>>;

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
        /// Addresses with port on which clients connect by plain HTTP/1.1. Default:
        /// `["0.0.0.0:8080"]` without `[[listeners]]`, else none.
        pub listen: List,
        /// Address of the admin port: the dashboard, metrics, health and the admin API. An address
        /// that is not loopback needs `admin.token`. Default: `"127.0.0.1:9090"`.
        pub admin: Field<String>,
        /// Addresses and networks whose forwarding headers are trusted. Default: none.
        pub trusted_proxies: List,
        /// Addresses and networks of the clients that are served, such as `["10.0.0.0/8",
        /// "file:office.txt"]`; others get
        /// 403. A file has one a line. Default: all.
        pub allow_ips: List,
        /// Addresses and networks of clients that get 403, such as `["192.0.2.7",
        /// "file:blocked.txt"]`. A file has one a line. Takes precedence over `allow_ips`. Default:
        /// none.
        pub deny_ips: List,
        /// Worker threads, 1 to 1024. Default: one per core.
        pub threads: Field<u64>,
        /// Time limit for an idle connection, `1ms` to `1d`: between two requests, and before the
        /// first one, which must begin within 60 s at most. Default: `"75s"`.
        pub keepalive_timeout: Field<String>,
        /// Time limit for the next part of a request, `1ms` to `1d`. Default: `"60s"`.
        pub read_timeout: Field<String>,
        /// Time limit for a client to accept the next part of a response, `1ms` to `1d`. Default:
        /// `"30s"`.
        pub write_timeout: Field<String>,
        /// Time between SIGTERM and the closing of the ports, `1ms` to `1d`, during which `/ready`
        /// answers 503. Default: none.
        pub drain_delay: Field<String>,
        /// Time limit for requests in flight after SIGTERM, `1ms` to `1d`. Default: `"20s"`.
        pub drain_timeout: Field<String>,
        /// Time limit for a new process to take over at an upgrade, `1ms` to `1d`. Default:
        /// `"30s"`.
        pub upgrade_timeout: Field<String>,
        /// Maximum size of a request's header lines together, in bytes, 1024 to 1048576. Larger
        /// requests get 431. Default: 32768.
        pub max_header_bytes: Field<u64>,
        /// Maximum size of a request's target, in bytes, 128 to 65536. Larger requests get 414.
        /// Default: 8192.
        pub max_uri_bytes: Field<u64>,
        /// Whether routes match paths case-sensitively. Default: `"sensitive"`.
        pub path_case: Field<PathCase>,
        /// How many gateways share this Redis, 1 to 10000. While Redis fails, each grants rate and
        /// burst divided by this number. Default: the number of live gateways in Redis.
        pub instances: Field<u64>,
        /// Whether requests of all routes are answered 503: `true`, or `{ retry_after = "10m",
        /// allow_ips =
        /// ["10.0.0.0/8"] }`. Routes can have another setting. Default: `false`.
        pub maintenance: Option<Spanned<SwitchOr<Maintenance>>>,
        /// Limits of connections and requests, against slow and greedy clients.
        pub limits: Option<Spanned<Limits>>,
        /// Limits of HTTP/2 connections.
        pub http2: Option<Spanned<Http2>>,
    }
}

table! {
    /// `[server.limits]`: limits of connections and requests, against slow and greedy clients.
    pub struct Limits {
        /// Time limit for the header of the PROXY protocol and the TLS handshake together, `1ms` to
        /// `10m`. Default: `"5s"`.
        pub handshake_timeout: Field<String>,
        /// Time limit for the whole head of a request, `1ms` to `10m`. Default: `"10s"`.
        pub head_timeout: Field<String>,
        /// Minimum rate of a request's body, in bytes a second, up to 1000000000; 0: none. A slower
        /// request gets
        /// 408. Default: 240.
        pub body_min_rate: Field<u64>,
        /// Minimum rate at which a client reads a response, in bytes a second, up to 1000000000; 0:
        /// none. A slower client's connection is closed. Default: 240.
        pub send_min_rate: Field<u64>,
        /// Maximum number of requests on one connection, 1 to 1000000000; 0: any number. The
        /// connection closes after the last one. Default: 10000.
        pub max_requests_per_connection: Field<u64>,
        /// Maximum number of header lines of a request, 1 to 256. A request with more gets 431.
        /// Default: 100.
        pub max_headers: Field<u64>,
        /// Maximum size of a request's body, in bytes, up to 2^50; 0: any size. A larger one gets
        /// 413. A route's `max_body_bytes` replaces it. Default: 104857600.
        pub max_body_bytes: Field<u64>,
        /// Maximum number of open client connections, 1 to 10000000. Never more than the limit of
        /// open files allows. Default: 20000.
        pub max_connections: Field<u64>,
        /// Maximum number of open connections from one address, 1 to 10000000; never more than half
        /// of `max_connections`. The first `clients.ipv6_prefix` bits of an IPv6 address count.
        /// Default: 1000.
        pub max_connections_per_ip: Field<u64>,
        /// Maximum number of requests that wait because of rules with `kind = "leaky_bucket"`, 1 to
        /// 10000000. Further ones get 429, and take nothing from any limit. Default: 10000.
        pub max_waiting_requests: Field<u64>,
        /// Whether `/ready` answers 503 while the gateway is out of file descriptors or memory.
        /// Default: `false`.
        pub unready_on_overload: Field<bool>,
    }
}

table! {
    /// `[server.http2]`: limits of HTTP/2 connections.
    pub struct Http2 {
        /// Maximum number of requests at a time on one connection, 1 to 10000. Default: 100.
        pub max_concurrent_streams: Field<u64>,
        /// Maximum size of a request's decoded header list, in bytes, 1024 to 1048576. Default:
        /// 65536.
        pub max_header_list_bytes: Field<u64>,
        /// Maximum number of streams that a client has reset and the gateway has not yet accepted,
        /// 1 to
        /// 10000. The connection is closed beyond it. Default: 20.
        pub max_pending_resets: Field<u64>,
        /// Time limit for a connection without a request, `1ms` to `1d`. Default:
        /// `server.keepalive_timeout`.
        pub idle_timeout: Field<String>,
        /// Age from which a connection accepts no further requests, `1ms` to `1d`. Default: none.
        pub max_connection_age: Field<String>,
    }
}

table! {
    /// `[admin]`: access to the admin port.
    pub struct Admin {
        /// Token that `/api/` requires as `Authorization: Bearer …`, best set from the environment
        /// as `"${NAME}"`: 16 to 1024 visible characters. Default: none; `server.admin` must then
        /// be a loopback address.
        pub token: Field<String>,
    }
}

table! {
    /// `[redis]`: buckets that gateways share. All texts except `prefix` may contain `${NAME}`, a
    /// variable of the environment.
    pub struct Redis {
        /// The server: `redis://host:6379`, `rediss://…`, `redis+sentinel://…/master`,
        /// `redis+cluster://host1,host2`, `unix:///path`.
        pub url: Field<String>,
        /// Time limit of one check, `1ms` to `1s`. Default: `"10ms"`.
        pub timeout: Field<String>,
        /// How requests are decided while Redis fails, for rules that do not set it. Default:
        /// `"local"`.
        pub on_failure: Field<OnFailure>,
        /// Prefix of every key: 1 to 64 visible ASCII characters without `{` and `}`.
        /// Default: `"tollgate:"`.
        pub prefix: Field<String>,
        /// Number of hash tags of the buckets in a Redis Cluster, 0 to 1024; the same on all
        /// gateways. With 0, each client has its own. Default: 6.
        pub lanes: Field<u64>,
        /// Which buckets are in one slot of a Redis Cluster; the same on all gateways. Default:
        /// `"off"`.
        pub colocate: Field<Colocate>,
        /// Whether a replica that takes over gets back what it lacks, as far as gateways saw it;
        /// with sentinels and in a cluster. Default: `true`.
        pub repair: Field<bool>,
        /// ACL user of the gateway. Default: the default user.
        pub username: Field<String>,
        /// Password of the user. Default: none.
        pub password: Field<String>,
        /// Number of the database, 0 to 2147483647. Default: 0.
        pub database: Field<u64>,
        /// User of the gateway at the sentinels. Default: the default user.
        pub sentinel_username: Field<String>,
        /// Password at the sentinels. Default: none.
        pub sentinel_password: Field<String>,
        /// PEM file with the certificate authorities of the server. Default: public authorities.
        pub ca: Field<String>,
        /// PEM file with the gateway's own certificate; needs `client_key`. Default: none.
        pub client_cert: Field<String>,
        /// PEM file with the key of that certificate. Default: none.
        pub client_key: Field<String>,
        /// What `/ready` answers while Redis fails. Default: `"always"`.
        pub ready: Field<Ready>,
        /// Content of buckets until the gateway has reached Redis once. Default: `"empty"`.
        pub start_without: Field<StartWithout>,
        /// The circuit breaker: when requests stop waiting for Redis, and how they return.
        pub breaker: Option<Spanned<Breaker>>,
    }
}

table! {
    /// `[redis.breaker]`: the circuit breaker: when requests stop waiting for Redis, and how they
    /// return.
    pub struct Breaker {
        /// Consecutive timeouts that open the breaker, 1 to 1000. Default: 5.
        pub timeouts: Field<u64>,
        /// Window over which the fraction of timeouts is measured, `1ms` to `1h`. Default: `"5s"`.
        pub window: Field<String>,
        /// Minimum number of calls within the window, 1 to 100000. Default: 20.
        pub window_calls: Field<u64>,
        /// Percentage of calls within the window that must time out to open the breaker, 1 to 100.
        /// Default: 50.
        pub window_timeouts: Field<u64>,
        /// How long the breaker stays open at first, `1ms` to `1h`; doubles with each failure.
        /// Default: `"500ms"`.
        pub open: Field<String>,
        /// How long the breaker stays open at most, `1ms` to `1h`. Default: `"15s"`, with sentinels
        /// and in a cluster `"1s"`.
        pub open_max: Field<String>,
        /// Consecutive probes that must succeed, 1 to 100. Default: 3.
        pub probes: Field<u64>,
        /// Percentages of requests that use Redis again, 1 to 16 steps that do not decrease and end
        /// with 100. Default: `[1, 10, 50, 100]`.
        pub ramp: Option<Spanned<Vec<Spanned<u64>>>>,
        /// Duration of each step, `1ms` to `1h`. Default: `"1s"`.
        pub ramp_step: Field<String>,
    }
}

table! {
    /// `[clients]`: how clients are identified.
    pub struct Clients {
        /// Where to look for an API key, in this order: `header:<name>`, `bearer`, `query:<name>`.
        /// Default: `["header:x-api-key", "bearer", "query:api_key"]`.
        pub api_key: List,
        /// Plan of clients without a key of their own. Default: `"free"`, if that plan exists.
        pub anonymous_plan: Field<String>,
        /// What happens to a request without a key. Default: `"anonymous"`.
        pub on_missing_key: Field<OnMissingKey>,
        /// What happens to a CORS preflight request without a key, if `on_missing_key` or a rule's
        /// `on_missing` requires one. Browsers send no key with it. Default: `"deny"`.
        pub on_preflight: Field<OnPreflight>,
        /// What happens to a request with an unknown key. Default: `"deny"`; in a file without
        /// `[keys]`, nothing is taken for a key.
        pub on_unknown_key: Field<OnUnknownKey>,
        /// What happens to a request with two different keys. Default: `"deny"`.
        pub on_conflicting_keys: Field<OnConflictingKeys>,
        /// Whether the key is removed before the request is forwarded. Default: `false`.
        pub hide_key: Field<bool>,
        /// How many leading bits of an IPv6 address identify a client, 1 to 128. Default: 64.
        pub ipv6_prefix: Field<u64>,
        /// Path where clients read their own limits, such as `"/.well-known/ratelimit"`.
        /// Default: none.
        pub limits_path: Field<String>,
    }
}

table! {
    /// `[headers]`: rate limit headers of responses.
    pub struct Headers {
        /// Which headers responses have. Default: `"both"`.
        pub style: Field<HeaderStyle>,
        /// Which rules the headers describe. Default: `"binding"`.
        pub policies: Field<HeaderPolicies>,
        /// Whether `X-RateLimit-Reset` is a Unix time or a number of seconds. Default: `"epoch"`.
        pub reset: Field<ResetForm>,
        /// Whether responses that were decided locally because Redis failed have
        /// `X-RateLimit-Mode: local`. Default: `false`.
        pub mode: Field<bool>,
    }
}

table! {
    /// `[access_log]`: one line of JSON for every request. Without this table there is no log.
    pub struct AccessLog {
        /// Destination: `"stdout"`, the path of a file, or `"off"`. May contain `${NAME}`, a
        /// variable of the environment. Default: `"stdout"`.
        pub output: Field<String>,
        /// How a client's address is shown, here, in refusals and in traces. Default: `"plain"`.
        pub client_ip: Field<ClientIp>,
        /// Salt of hashed addresses, 16 characters or more, best set from the environment as
        /// `"${NAME}"`. Default: a new one for each process.
        pub salt: Field<String>,
        /// Fraction of allowed requests that have a line, 0 to 1; refused and failed requests
        /// always have one. Default: 1.
        pub sample: Field<f64>,
        /// Members of a line, in this order: `time`, `status`, …; `header:<name>` is a header of
        /// the request. Default: all, without headers.
        pub fields: List,
    }
}

table! {
    /// `[log]`: the log of the process, on standard error. Changes take effect at the next start.
    pub struct Log {
        /// Form of a line. The environment variable `TOLLGATE_LOG_FORMAT` takes precedence.
        /// Default: `"text"`.
        pub format: Field<LogFormat>,
        /// Which events are logged. The environment variable `TOLLGATE_LOG` takes precedence.
        /// Default: `"info"`.
        pub level: Field<LogLevel>,
    }
}

table! {
    /// `[tracing]`: traces of requests, for an OpenTelemetry collector. Without this table no
    /// request is traced.
    pub struct Tracing {
        /// The collector, by OTLP over HTTP: `http://host:4318`, `https://…`; `/v1/traces` is
        /// appended. May contain `${NAME}`, a variable of the environment. Default:
        /// `"http://127.0.0.1:4318"`.
        pub endpoint: Field<String>,
        /// PEM file with the certificate authorities of an `https://` collector. Default: public
        /// authorities.
        pub ca: Field<String>,
        /// Additional headers of each export; values may contain `${NAME}`:
        /// `{ authorization = "Bearer ${OTLP_TOKEN}" }`.
        pub headers: Named<String>,
        /// Time limit of one export, `1ms` to `1m`. Default: `"10s"`.
        pub timeout: Field<String>,
        /// Fraction of requests that is recorded, 0 to 1, if no trusted proxy has decided already.
        /// Default: 0.01.
        pub sample: Field<f64>,
        /// Whose `traceparent` is continued. Default: `"trusted"`.
        pub follow: Field<Follow>,
        /// Name of the gateway in traces, 1 to 255 characters. Default: `"tollgate"`.
        pub service_name: Field<String>,
    }
}

table! {
    /// `[audit]`: a stream in Redis with the refusals of all gateways.
    pub struct Audit {
        /// Whether refusals are also written to a stream in Redis, those of all gateways together.
        /// Default: `false`.
        pub stream: Field<bool>,
        /// Approximate number of records in the stream, 100 to 10000000. Default: 10000.
        pub max_records: Field<u64>,
    }
}

table! {
    /// `[memory]`: the memory of this process.
    pub struct Memory {
        /// Maximum number of buckets, 1 to 100000000. Default: 1000000.
        pub max_buckets: Field<u64>,
        /// Memory of the process, in bytes, above which it accepts no connections and closes idle
        /// ones: 16777216 to 1125899906842624; 0: no limit. Default: 90 % of the limit of its
        /// cgroup, if there is one.
        pub max_bytes: Field<u64>,
    }
}

table! {
    /// `[usage]`: what clients used of their quotas, which are fixed windows of an hour or longer.
    /// The file also has the logs of sliding windows of an hour or longer.
    pub struct Usage {
        /// File in which usage is kept without `[redis]`, so that a restart loses no counts. It is
        /// created, and no other process can use it. May contain `${NAME}`, a variable of the
        /// environment. Default: none.
        pub file: Field<String>,
        /// How long the usage of a period is kept after its end, `1d` to `3660d`; that of an hour
        /// for at most `7d`. Default: `"100d"`.
        pub keep: Field<String>,
        /// Maximum number of records, each of a client, a rule and a period: 1000 to 1000000000.
        /// Default: 10000000 in the file, 1000000 in Redis.
        pub max_records: Field<u64>,
    }
}

table! {
    /// `[plans.<name>]`: a plan, which rules and keys refer to.
    pub struct Plan {
        /// Which requests are refused last while an upstream has its `max_in_flight`: those with
        /// the highest number, -1000 to 1000. Default: 0.
        pub priority: Field<i64>,
        /// Free text, which the gateway does not use. Default: none.
        pub description: Field<String>,
    }
}

table! {
    /// `[keys.<id>]`: a client with an API key.
    pub struct Key {
        /// SHA-256 of the key as it is sent: 64 hexadecimal digits. `tollgate hash-key` prints it.
        pub sha256: Field<String>,
        /// Plan of the key; required if the file has plans.
        pub plan: Field<String>,
        /// Overrides of rules for this key: `{ rate, burst }` or `{ limit, burst }`.
        pub rules: Named<Grant>,
        /// Free text, which the gateway does not use. Default: none.
        pub description: Field<String>,
    }
}

table! {
    /// `[upstreams.<name>]`: servers that requests are forwarded to.
    pub struct Upstream {
        /// Servers as `host:port` or, with TLS, `https://host:port`, each a text or a table with
        /// more settings; or `["demo"]`, a built-in responder.
        pub servers: Option<Spanned<Vec<Spanned<TextOr<UpstreamServer>>>>>,
        /// How requests are distributed over the servers: `round_robin`, `least_request`,
        /// `random_two`, `hash:ip`, `hash:key` or `hash:header:<name>`. Default: `"round_robin"`.
        pub balance: Field<String>,
        /// A cookie that keeps the requests of a client on one server: `{ cookie, ttl, secret }`.
        /// Default: none.
        pub sticky: Option<Spanned<Sticky>>,
        /// How long the weight of a server rises from 10 % after it has become healthy, `1ms` to
        /// `1d`. Default: none.
        pub slow_start: Field<String>,
        /// Time limit for connecting, `1ms` to `1d`. Default: `"1s"`.
        pub connect_timeout: Field<String>,
        /// Time limit for the head of a response, then for each next part of its body, `1ms` to
        /// `1d`. Default: `"30s"`.
        pub read_timeout: Field<String>,
        /// Time limit for the upstream to accept the next part of a request, `1ms` to `1d`.
        /// Default: `"30s"`.
        pub write_timeout: Field<String>,
        /// How long an unused connection is kept, `1ms` to `1d`. Default: `"60s"`.
        pub idle_timeout: Field<String>,
        /// TLS to `https://` servers: `{ ca, cert, key, server_name }`. Their certificates are
        /// always verified.
        pub tls: Option<Spanned<UpstreamTls>>,
        /// Version of HTTP. Default: `"auto"`.
        pub protocol: Field<Protocol>,
        /// Version of the PROXY protocol header that begins each connection. Default: none.
        pub proxy_protocol: Field<ProxyVersion>,
        /// Maximum number of requests in flight, 1 to 10000000, or `"auto"`: as many as the
        /// upstream serves without a queue. Further ones get 503, those of plans with the lowest
        /// `priority` first, and take nothing from any limit. Default: any number.
        pub max_in_flight: Field<MaxInFlight>,
    }
}

table! {
    /// An item of `servers` of `[upstreams.<name>]`: a server with its weight and priority.
    pub struct UpstreamServer {
        /// `host:port` or, with TLS, `https://host:port`. Required.
        pub address: Field<String>,
        /// Its share of the requests, 1 to 1000. Default: 1.
        pub weight: Field<u64>,
        /// Whether it is used only if no server without `backup` is healthy: the same as `priority
        /// = 1`. Default: `false`.
        pub backup: Field<bool>,
        /// 0 to 100: the servers of the lowest priority with a healthy one get the requests.
        /// Default: 0.
        pub priority: Field<u64>,
    }
}

table! {
    /// `[upstreams.<name>.sticky]`: a cookie that keeps the requests of a client on one server.
    pub struct Sticky {
        /// Name of the cookie. Required.
        pub cookie: Field<String>,
        /// How long the browser keeps the cookie, `1s` to `1d`. Default: until it is closed.
        pub ttl: Field<String>,
        /// Key of the hashes that are the cookie's values, 16 characters or more, best set from the
        /// environment as `"${NAME}"`; the same on all gateways. Default: a new one for each
        /// process.
        pub secret: Field<String>,
    }
}

table! {
    /// `[upstreams.<name>.tls]`: TLS to the servers of an upstream.
    pub struct UpstreamTls {
        /// PEM file with the certificate authorities of the servers. Default: public authorities.
        pub ca: Field<String>,
        /// PEM file with the gateway's own certificate; needs `key`. Default: none.
        pub cert: Field<String>,
        /// PEM file with the key of that certificate. Default: none.
        pub key: Field<String>,
        /// Name that the certificates of the servers must have, also sent as SNI. Default: the host
        /// of the server.
        pub server_name: Field<String>,
    }
}

table! {
    /// `[routes.<name>]`: which requests are forwarded to which upstream, and what they cost.
    pub struct Route {
        /// Exact path, or a prefix that ends in `/*`. A segment `{name}` matches any text. Default:
        /// `"/*"`.
        pub path: Field<String>,
        /// Whether a trailing slash makes another path. Default: `"same"`.
        pub trailing_slash: Field<TrailingSlash>,
        /// Methods, such as `GET`, which includes `HEAD`. Default: all but `TRACE`.
        pub methods: List,
        /// Host, without port, or a list of hosts. `*.example.com` is all hosts below
        /// `example.com`. Default: all.
        pub host: Field<TextOrList>,
        /// Upstream; may be left out if there is only one.
        pub upstream: Field<String>,
        /// Instead of `upstream`, the names of several with their weights, 0 to 1000:
        /// `{ api = 95, canary = 5 }`. Default: none.
        pub split: Option<Spanned<Named<u64>>>,
        /// Whether requests are split one by one, or by client. Default: `"request"`.
        pub split_by: Field<SplitBy>,
        /// Addresses and networks of the clients that are served, such as `["10.0.0.0/8",
        /// "file:office.txt"]`; others get
        /// 403. Default: `server.allow_ips`.
        pub allow_ips: List,
        /// Addresses and networks of clients that get 403, beside those of `server.deny_ips`.
        /// Default: none.
        pub deny_ips: List,
        /// Tokens that a request takes from each bucket, above 0, with at most three decimals.
        /// Default: 1.
        pub cost: Field<Cost>,
        /// Time limit for a WebSocket on which nothing is sent in either direction, `1ms` to `1d`.
        /// Default: `"1h"`.
        pub websocket_idle_timeout: Field<String>,
        /// Maximum size of a request's body, in bytes, up to 2^50; 0: any size. A larger one gets
        /// 413. Default: `server.limits.max_body_bytes`.
        pub max_body_bytes: Field<u64>,
        /// Changes of the headers of requests, as the upstream gets them: `{ set, add, remove }`.
        /// Default: none.
        pub request_headers: Option<Spanned<HeaderEdits>>,
        /// Changes of the headers of responses: `{ set, add, remove }`. Default: none.
        pub response_headers: Option<Spanned<HeaderEdits>>,
        /// Prefix that is taken away from the path for the upstream, such as `/v1`;
        /// `X-Forwarded-Prefix` has it. All paths of the route must begin with it. Default: none.
        pub strip_prefix: Field<String>,
        /// Prefix of the path that is replaced for the upstream: `{ "/v1" = "/api" }`. Default:
        /// none.
        pub replace_prefix: Named<String>,
        /// Prefix that is put in front of the path for the upstream, such as `/api`. Default: none.
        pub add_prefix: Field<String>,
        /// Host that the upstream gets: a name, with a port if it needs one, or `"{upstream}"`, the
        /// host of the server. Default: the host of the request.
        pub upstream_host: Field<String>,
        /// A fixed answer instead of an upstream: `{ status = 503, body = "closed" }`. Default:
        /// none.
        pub respond: Option<Spanned<Respond>>,
        /// A redirect instead of an upstream: `{ to = "https://new.example{path}{query}", status =
        /// 308 }`. Default: none.
        pub redirect: Option<Spanned<Redirect>>,
        /// Whether requests are answered 503: `true`, or `{ retry_after = "10m", allow_ips =
        /// ["10.0.0.0/8"] }`. They take no tokens. Default: `server.maintenance`.
        pub maintenance: Option<Spanned<SwitchOr<Maintenance>>>,
        /// Free text, which the gateway does not use. Default: none.
        pub description: Field<String>,
    }
}
