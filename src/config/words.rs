//! Settings that take one of a few words, which are in lower case in the file except names of
//! algorithms. `= Variant` is the
//! default.

use super::walk::{words, words_of};
use crate::limit::charge::Mode;
use crate::limit::fixed_window::Overage;
use crate::net::proxy_protocol::Version;

/// A setting that takes one of a few words.
pub trait Word: Sized + 'static {
    /// All of them.
    const ALL: &'static [Self];

    /// All words.
    const WORDS: &'static [&'static str];

    /// The setting with this word.
    fn of_word(word: &str) -> Option<Self>;
}

words_of! {
    Mode = Enforce {
        /// Refuse requests beyond the limit.
        Enforce,
        /// Count and report such requests, never refuse them.
        Shadow,
    }

    Overage = Refuse {
        /// Refuse requests beyond the limit.
        Refuse,
        /// Allow them, and count what they use beyond it.
        Count,
    }

    Version {
        /// The text form.
        V1,
        /// The binary form.
        V2,
    }
}

words! {
    /// What happens to a request whose key cannot be looked up in the key store.
    pub enum OnStoreFailure = Deny {
        /// 503, with `Retry-After`.
        Deny = "deny",
        /// It counts as a request without a key.
        Anonymous = "anonymous",
    }

    /// What happens to a request while the server that is asked about it does not answer.
    pub enum OnAuthFailure = Deny {
        /// 503, with `Retry-After`.
        Deny = "deny",
        /// It goes on, without what the server would add.
        Allow = "allow",
    }

    /// Algorithm of the signature of a token (RFC 7518, section 3.1; RFC 8037).
    pub enum JwtAlgorithm {
        /// RSA PKCS #1 v1.5 with SHA-256.
        Rs256 = "RS256",
        /// RSA PKCS #1 v1.5 with SHA-384.
        Rs384 = "RS384",
        /// RSA PKCS #1 v1.5 with SHA-512.
        Rs512 = "RS512",
        /// RSA-PSS with SHA-256.
        Ps256 = "PS256",
        /// RSA-PSS with SHA-384.
        Ps384 = "PS384",
        /// RSA-PSS with SHA-512.
        Ps512 = "PS512",
        /// ECDSA with P-256 and SHA-256.
        Es256 = "ES256",
        /// ECDSA with P-384 and SHA-384.
        Es384 = "ES384",
        /// Ed25519.
        EdDsa = "EdDSA",
        /// HMAC with SHA-256 and `secret`.
        Hs256 = "HS256",
        /// HMAC with SHA-384 and `secret`.
        Hs384 = "HS384",
        /// HMAC with SHA-512 and `secret`.
        Hs512 = "HS512",
    }

    /// How a rule counts. All grants of a rule have its kind.
    pub enum Kind = TokenBucket {
        /// Tokens that are added at a constant rate, up to the burst.
        TokenBucket = "token_bucket",
        /// A number of tokens in each calendar period, such as a day or a month.
        FixedWindow = "fixed_window",
        /// Requests that wait, so that they follow one another at a constant rate.
        LeakyBucket = "leaky_bucket",
        /// Requests in flight at once.
        Concurrency = "concurrency",
        /// A number of tokens in any window of a length, exactly.
        SlidingWindow = "sliding_window",
    }

    /// How a rule per key counts a client without one.
    pub enum OnMissing = Ip {
        /// Count the client by its address.
        Ip = "ip",
        /// Do not apply the rule.
        Skip = "skip",
        /// Count all such clients in one bucket.
        Shared = "shared",
        /// Refuse the request with 401 if the rule is enforced.
        Deny = "deny",
    }

    /// How requests are decided while Redis fails.
    pub enum OnFailure = Local {
        /// Decide with buckets in this process, within the gateway's local share.
        Local = "local",
        /// Allow the request without taking tokens.
        Allow = "allow",
        /// Refuse the request with 503.
        Deny = "deny",
    }

    /// A number that follows what is measured.
    pub enum Auto {
        /// Follows the delay and the failures of the upstream.
        Auto = "auto",
    }

    /// Whether gateways borrow tokens of a rule's buckets from Redis, and spend them without a
    /// call.
    pub enum LeaseWord {
        /// As many tokens as the gateway soon needs.
        Auto = "auto",
        /// Each request takes its tokens from Redis.
        Off = "off",
    }

    /// A reason for which a request gets its tokens back: it reached no server, as in the access
    /// log, or the status of its response.
    pub enum RefundReason {
        /// No server accepted a connection.
        UpstreamConnect = "upstream_connect",
        /// No server has a known address.
        NoServer = "no_server",
        /// The upstream has `max_in_flight` requests: such a request takes no tokens.
        Shed = "shed",
        /// The TLS handshake with the server failed.
        UpstreamTls = "upstream_tls",
        /// No connection was made in `connect_timeout`.
        UpstreamConnectTimeout = "upstream_connect_timeout",
        /// Any status from 500 to 599.
        ServerError = "5xx",
        /// Status 500.
        InternalServerError = "500",
        /// Status 502.
        BadGateway = "502",
        /// Status 503.
        ServiceUnavailable = "503",
        /// Status 504.
        GatewayTimeout = "504",
    }

    /// What a token of the admin port may do.
    pub enum AdminRole {
        /// Read: all GET calls but those about API keys, and `POST /api/explain`.
        Read = "read",
        /// Read, reload and upgrade, change tokens of clients, endpoints and the circuit breaker.
        Operate = "operate",
        /// Read and change API keys.
        Keys = "keys",
    }

    /// Which buckets have a common hash tag in a Redis Cluster.
    pub enum Colocate = Off {
        /// Those of an API key, of all rules whose `per` has `key`.
        Key = "key",
        /// Those of a tenant and its clients, of all rules whose `per` has `tenant` or `key`.
        Tenant = "tenant",
        /// None, except by chance.
        Off = "off",
    }

    /// What `/ready` answers while Redis fails.
    pub enum Ready = Always {
        /// 200, because the gateway still serves requests.
        Always = "always",
        /// 503, so that a load balancer prefers gateways that reach Redis.
        Connected = "connected",
    }

    /// Content of the buckets of a gateway that has not reached Redis since it started.
    pub enum StartWithout = Empty {
        /// No tokens; buckets fill from the start on.
        Empty = "empty",
        /// The gateway's share of the burst.
        Full = "full",
    }

    /// What happens to a request without a key.
    pub enum OnMissingKey = Anonymous {
        /// Treat it as a request of an anonymous client.
        Anonymous = "anonymous",
        /// Refuse the request with 401.
        Deny = "deny",
    }

    /// What happens to a CORS preflight request without a key, if a key is required.
    pub enum OnPreflight = Deny {
        /// Refuse it with 401, as any other request without a key.
        Deny = "deny",
        /// Treat it as a request of an anonymous client.
        Anonymous = "anonymous",
    }

    /// What happens to a request with an unknown key.
    pub enum OnUnknownKey {
        /// Refuse the request with 401.
        Deny = "deny",
        /// Treat it as a request of an anonymous client.
        Anonymous = "anonymous",
        /// Treat each unknown key as a client, on the anonymous plan.
        Accept = "accept",
    }

    /// What happens to a request with two different keys.
    pub enum OnConflictingKeys = Deny {
        /// Refuse the request with 400.
        Deny = "deny",
        /// Use the first, in the order of `api_key`.
        First = "first",
    }

    /// Whether routes match paths case-sensitively.
    pub enum PathCase = Sensitive {
        /// `/API` and `/api` are two paths.
        Sensitive = "sensitive",
        /// `/API` and `/api` are one path.
        Insensitive = "insensitive",
    }

    /// Whether clients need a certificate.
    pub enum ClientAuthMode = Required {
        /// Refuse the connection of a client without a valid certificate.
        Required = "required",
        /// Serve clients without a certificate, too. An invalid one is refused.
        Optional = "optional",
    }

    /// A version of TLS.
    #[derive(PartialOrd, Ord)]
    pub enum TlsVersion = V1_2 {
        /// TLS 1.2 and 1.3.
        V1_2 = "1.2",
        /// Only TLS 1.3.
        V1_3 = "1.3",
    }

    /// Where a listener sends its clients.
    pub enum Redirect {
        /// To the same URL with `https://`, by status 308.
        Https = "https",
    }

    /// How the gateway proves that it serves a domain.
    pub enum Challenge = Http01 {
        /// By a response on port 80, from any listener without TLS.
        Http01 = "http-01",
        /// By a certificate on port 443, from a listener with `"acme"`.
        TlsAlpn01 = "tls-alpn-01",
    }

    /// Version of HTTP to an upstream.
    pub enum Protocol = Auto {
        /// HTTP/1.1 to `host:port`; to `https://` servers, what the server selects by ALPN.
        Auto = "auto",
        /// HTTP/1.1.
        Http1 = "http1",
        /// HTTP/2 over TLS.
        H2 = "h2",
        /// HTTP/2 without TLS, by prior knowledge.
        H2c = "h2c",
    }

    /// A content coding of responses.
    pub enum Coding {
        /// Brotli.
        Br = "br",
        /// Zstandard.
        Zstd = "zstd",
        /// gzip.
        Gzip = "gzip",
    }

    /// Which records of a server's name have its addresses.
    pub enum Resolve = A {
        /// A and AAAA records: addresses. The port is written behind the name.
        A = "a",
        /// SRV records: hosts with their ports, priorities and weights.
        Srv = "srv",
    }

    /// What a health check is.
    pub enum CheckKind = Http {
        /// A `GET` request.
        Http = "http",
        /// A call of the standard health service of gRPC.
        Grpc = "grpc",
        /// A connection, with TLS if the servers have it.
        Tcp = "tcp",
    }

    /// Whether a trailing slash makes another path.
    pub enum TrailingSlash = Same {
        /// `/api` and `/api/` are one path.
        Same = "same",
        /// `/api` and `/api/` are two paths.
        Distinct = "distinct",
    }

    /// What selects the upstream of a route with several.
    pub enum SplitBy = Request {
        /// Each request in turn.
        Request = "request",
        /// The client, by the id of its key, else by its address: it keeps its upstream.
        Client = "client",
    }

    /// Which headers responses have.
    pub enum HeaderStyle = Both {
        /// The headers of `draft` and of `x`.
        Both = "both",
        /// Only `RateLimit` and `RateLimit-Policy`, those of the IETF draft.
        Draft = "draft",
        /// Only `X-RateLimit-Limit`, `X-RateLimit-Remaining`, `X-RateLimit-Reset` and, on refusals,
        /// `X-RateLimit-Reason`.
        X = "x",
        /// Only `Retry-After`, on refusals.
        None = "none",
    }

    /// Which rules the headers describe.
    pub enum HeaderPolicies = Binding {
        /// The rule that refused the request, else the one with the fewest tokens left.
        Binding = "binding",
        /// All enforced rules that applied.
        All = "all",
    }

    /// Whether `X-RateLimit-Reset` is a Unix time or a number of seconds.
    pub enum ResetForm = Epoch {
        /// Unix time at which the bucket is full, in seconds.
        Epoch = "epoch",
        /// Seconds until the bucket is full.
        Delta = "delta",
    }

    /// Whose `traceparent` is continued.
    pub enum Follow = Trusted {
        /// That of trusted proxies, with their sampling decision.
        Trusted = "trusted",
        /// That of all clients, but the sampling decision only of trusted proxies.
        All = "all",
        /// None: every trace begins at the gateway.
        None = "none",
    }

    /// What a webhook is sent.
    pub enum WebhookEvent {
        /// A client has used the share of its quota at which it is warned.
        QuotaSoft = "quota.soft",
        /// A client has used more than its quota, which `overage` allows.
        QuotaOverage = "quota.overage",
    }

    /// What usage is kept by, beside the totals of each period.
    pub enum UsageDetail = Off {
        /// Nothing else.
        Off = "off",
        /// Also by day.
        Day = "day",
        /// Also by day and route.
        Route = "route",
    }

    /// Form of the log of the process.
    pub enum LogFormat = Text {
        /// One event a line: time, level, event, `name=value`.
        Text = "text",
        /// One JSON object a line, with the members `time`, `level`, `event` and `fields`.
        Json = "json",
    }

    /// Which events of the process are logged.
    pub enum LogLevel = Info {
        /// What the gateway cannot continue with, and rejected files.
        Error = "error",
        /// Also failures that it continues with.
        Warn = "warn",
        /// Also what changes: start, reloads, Redis, refusals.
        Info = "info",
        /// Also details.
        Debug = "debug",
    }

    /// How a client's address is shown.
    pub enum ClientIp = Plain {
        /// The address itself, in text.
        Plain = "plain",
        /// As a salted hash, which identifies a client but does not reveal its address.
        Hashed = "hashed",
        /// Not shown; the access log has `null`.
        Off = "off",
    }
}
