//! The tables of gateway.toml other than rules; a duration is still text here, such as "10ms".
//! What is said of a setting is what editors show: its default, and its range.

use super::Named;
use super::rules::Grant;
use super::spanned::Spanned;
use super::walk::table;
use super::words::{
    ClientIp, Follow, HeaderPolicies, HeaderStyle, OnConflictingKeys, OnFailure, OnMissingKey,
    OnUnknownKey, PathCase, Ready, ResetForm, StartWithout, TrailingSlash,
};

/// A value that may be left out, with its place.
pub type Field<T> = Option<Spanned<T>>;

/// A list that may be left out, with the places of the whole and of each item.
pub type List = Option<Spanned<Vec<Spanned<String>>>>;

table! {
    /// `[server]`: listeners and the guards around requests.
    pub struct Server {
        /// Addresses for clients, with port. Default: `["0.0.0.0:8080"]`.
        pub listen: List,
        /// Address for the operator: metrics, health, the admin API. One that is not loopback needs
        /// `admin.token`. Default: `"127.0.0.1:9090"`.
        pub admin: Field<String>,
        /// Addresses or networks whose forwarding headers are believed. Default: none.
        pub trusted_proxies: List,
        /// Worker threads, 1 to 1024. Default: one a core.
        pub threads: Field<u64>,
        /// How long a connection may be idle between two requests. Default: `"75s"`.
        pub keepalive_timeout: Field<String>,
        /// How long reading the next part of a request may take. Default: `"60s"`.
        pub read_timeout: Field<String>,
        /// How long writing the next part of an answer may take. Default: `"30s"`.
        pub write_timeout: Field<String>,
        /// How long SIGTERM waits before it closes the ports, `/ready` already answering 503.
        /// Default: not at all.
        pub drain_delay: Field<String>,
        /// How long SIGTERM waits for requests in flight. Default: `"20s"`.
        pub drain_timeout: Field<String>,
        /// The most bytes of a request's header lines together, 1024 to 1048576; beyond: 431.
        /// Default: 32768.
        pub max_header_bytes: Field<u64>,
        /// The most bytes of a request's target, 128 to 65536; beyond: 414. Default: 8192.
        pub max_uri_bytes: Field<u64>,
        /// Whether the case of a path's letters tells routes apart. Default: `"sensitive"`.
        pub path_case: Field<PathCase>,
        /// How many gateways share Redis.
        pub instances: Field<u64>,
    }
}

table! {
    /// `[admin]`: who may use the operator's port.
    pub struct Admin {
        /// What `/api/` asks for as `Authorization: Bearer …`, best as `"${NAME}"` from the
        /// environment: 16 to 1024 visible characters. Default: none, and then `server.admin` is a
        /// loopback address.
        pub token: Field<String>,
    }
}

table! {
    /// `[redis]`: the shared store. Texts but `prefix` may hold `${NAME}` of the environment.
    pub struct Redis {
        /// Where it is: `redis://host:6379`, `rediss://…`, `redis+sentinel://…/master`,
        /// `unix:///path`.
        pub url: Field<String>,
        /// The most that one check may wait, `1ms` to `1s`. Default: `"10ms"`.
        pub timeout: Field<String>,
        /// What becomes of requests when it fails, where a rule says nothing. Default: `"local"`.
        pub on_failure: Field<OnFailure>,
        /// What every key begins with, 1 to 64 visible characters without braces.
        /// Default: `"tollgate:"`.
        pub prefix: Field<String>,
        /// Who the gateway is to Redis.
        pub username: Field<String>,
        /// The password for Redis.
        pub password: Field<String>,
        /// The database's number. Default: 0.
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
        /// What `/ready` says while it fails.
        pub ready: Field<Ready>,
        /// What buckets hold until the gateway has reached it once. Default: `"empty"`.
        pub start_without: Field<StartWithout>,
        /// When requests stop waiting for it, and how they return.
        pub breaker: Option<Spanned<Breaker>>,
    }
}

table! {
    /// `[redis.breaker]`: when requests stop waiting for Redis, and how they return.
    pub struct Breaker {
        /// How many timeouts in a row open it.
        pub timeouts: Field<u64>,
        /// The time over which timeouts are set against calls.
        pub window: Field<String>,
        /// How many calls within that time say enough.
        pub window_calls: Field<u64>,
        /// Which share of them, timed out, opens it, in percent.
        pub window_timeouts: Field<u64>,
        /// How long it stays open the first time.
        pub open: Field<String>,
        /// How long it stays open at most.
        pub open_max: Field<String>,
        /// How many probes in a row must succeed.
        pub probes: Field<u64>,
        /// Which shares of the requests return, step by step, in percent.
        pub ramp: Option<Spanned<Vec<Spanned<u64>>>>,
        /// How long each of those steps takes.
        pub ramp_step: Field<String>,
    }
}

table! {
    /// `[clients]`: how clients are told apart.
    pub struct Clients {
        /// Where a key may stand: `header:<name>`, `bearer`, `query:<name>`, tried in this order.
        /// Default: `["header:x-api-key", "bearer", "query:api_key"]`.
        pub api_key: List,
        /// The plan of a request without a key. Default: `"free"`, where there is such a plan.
        pub anonymous_plan: Field<String>,
        /// A request without a key. Default: `"anonymous"`.
        pub on_missing_key: Field<OnMissingKey>,
        /// A request with a key that the file does not know. Default: `"deny"`.
        pub on_unknown_key: Field<OnUnknownKey>,
        /// A request with two different keys. Default: `"deny"`.
        pub on_conflicting_keys: Field<OnConflictingKeys>,
        /// Whether the key is taken out before the request goes on. Default: `false`.
        pub hide_key: Field<bool>,
        /// How many bits of an IPv6 address tell clients apart, 1 to 128. Default: 64.
        pub ipv6_prefix: Field<u64>,
        /// Where clients see what they have left, such as `"/.well-known/ratelimit"`. Default: nowhere.
        pub limits_path: Field<String>,
    }
}

table! {
    /// `[headers]`: what answers say about limits.
    pub struct Headers {
        /// Which family of headers. Default: `"both"`.
        pub style: Field<HeaderStyle>,
        /// Which rules they name. Default: `"binding"`.
        pub policies: Field<HeaderPolicies>,
        /// What `X-RateLimit-Reset` counts. Default: `"epoch"`.
        pub reset: Field<ResetForm>,
        /// Whether answers say that they were decided by this process alone.
        pub mode: Field<bool>,
    }
}

table! {
    /// `[access_log]`: one line for every request. No table: none.
    pub struct AccessLog {
        /// Where lines go: `"stdout"`, the path of a file, or `"off"`; may hold `${NAME}` of the
        /// environment. Default: `"stdout"`.
        pub output: Field<String>,
        /// How lines show a client's address, here and where refusals are told. Default: `"plain"`.
        pub client_ip: Field<ClientIp>,
        /// What addresses are hashed with, 16 characters or more, best `${NAME}` of the environment.
        /// Default: a new one for each process.
        pub salt: Field<String>,
        /// Which part of the requests that pass has a line, 0 to 1; all others have one. Default: 1.
        pub sample: Field<f64>,
    }
}

table! {
    /// `[tracing]`: traces of requests, for an OpenTelemetry collector. No table: none.
    pub struct Tracing {
        /// The collector, by OTLP over HTTP: `http://host:4318`, `https://…`; `/v1/traces` is added; may
        /// hold `${NAME}` of the environment. Default: `"http://127.0.0.1:4318"`.
        pub endpoint: Field<String>,
        /// PEM file of the authorities that may vouch for an `https://` collector.
        pub ca: Field<String>,
        /// What each export has besides, best with `${NAME}` of the environment:
        /// `{ authorization = "Bearer ${OTLP_TOKEN}" }`.
        pub headers: Named<String>,
        /// How long one export may take, `1ms` to `1m`. Default: `"10s"`.
        pub timeout: Field<String>,
        /// Which part of the requests is traced, 0 to 1, where no trusted proxy has decided already.
        /// Default: 0.01.
        pub sample: Field<f64>,
        /// Whose `traceparent` is followed. Default: `"trusted"`.
        pub follow: Field<Follow>,
        /// What the gateway is called in traces, 1 to 255 characters. Default: `"tollgate"`.
        pub service_name: Field<String>,
    }
}

table! {
    /// `[audit]`: where refusals are kept beside this process.
    pub struct Audit {
        /// Whether bursts of refusals are appended to a stream in Redis, those of all gateways together.
        /// Default: `false`.
        pub stream: Field<bool>,
        /// About how many bursts the stream keeps, 100 to 10000000; the oldest go. Default: 10000.
        pub max_records: Field<u64>,
    }
}

table! {
    /// `[memory]`: buckets in this process.
    pub struct Memory {
        /// The most buckets that are kept, 1 to 100000000. Default: 1000000.
        pub max_buckets: Field<u64>,
    }
}

table! {
    /// `[plans.<name>]`: a name that rules and keys refer to.
    pub struct Plan {
        /// Free text.
        pub description: Field<String>,
    }
}

table! {
    /// `[keys.<id>]`: a known client.
    pub struct Key {
        /// SHA-256 of the key as it is sent, in 64 hexadecimal digits; `tollgate hash-key` prints it.
        pub sha256: Field<String>,
        /// Its plan; required where the file has plans.
        pub plan: Field<String>,
        /// Rules that grant this key something else.
        pub rules: Named<Grant>,
        /// Free text.
        pub description: Field<String>,
    }
}

table! {
    /// `[upstreams.<name>]`: what requests are sent on to.
    pub struct Upstream {
        /// Servers as `host:port`, or the one word `demo`.
        pub servers: List,
        /// How long connecting may take. Default: `"1s"`.
        pub connect_timeout: Field<String>,
        /// How long the next bytes of a response may take. Default: `"30s"`.
        pub read_timeout: Field<String>,
        /// How long the next bytes of a request may take to be written. Default: `"30s"`.
        pub write_timeout: Field<String>,
        /// How long an unused connection is kept. Default: `"60s"`.
        pub idle_timeout: Field<String>,
    }
}

table! {
    /// `[routes.<name>]`: which requests go where, and what they cost.
    pub struct Route {
        /// An exact path, or a prefix that ends in `/*`. Default: `"/*"`.
        pub path: Field<String>,
        /// Whether a path with a trailing slash is another path. Default: `"same"`.
        pub trailing_slash: Field<TrailingSlash>,
        /// Methods, such as `GET`, which takes `HEAD`, too; left out: all but `TRACE`.
        pub methods: List,
        /// The host, without port; left out: all.
        pub host: Field<String>,
        /// The upstream; may be left out where there is one only.
        pub upstream: Field<String>,
        /// Tokens that a request takes from each bucket. Default: 1.
        pub cost: Field<u64>,
        /// Free text.
        pub description: Field<String>,
    }
}
