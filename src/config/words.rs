//! Settings that take one of a few words, which are in lower case in the file.

use super::walk::words;

words! {
    /// How a rule counts. All grants of a rule have its kind.
    pub enum Kind {
        /// Tokens that are added at a constant rate, up to the burst.
        TokenBucket,
        /// A number of tokens in each calendar period, such as a day or a month.
        FixedWindow,
        /// Requests that wait, so that they follow one another at a constant rate.
        LeakyBucket,
        /// Requests in flight at once.
        Concurrency,
        /// A number of tokens in any window of a length, exactly.
        SlidingWindow,
    }

    /// Whether a rule is enforced.
    pub enum Mode {
        /// Refuse requests beyond the limit.
        Enforce,
        /// Count and report such requests, never refuse them.
        Shadow,
    }

    /// How a rule per key counts a client without one.
    pub enum OnMissing {
        /// Count the client by its address.
        Ip,
        /// Do not apply the rule.
        Skip,
        /// Count all such clients in one bucket.
        Shared,
        /// Refuse the request with 401 if the rule is enforced.
        Deny,
    }

    /// How requests are decided while Redis fails.
    pub enum OnFailure {
        /// Decide with buckets in this process, within the gateway's local share.
        Local,
        /// Allow the request without taking tokens.
        Allow,
        /// Refuse the request with 503.
        Deny,
    }

    /// A number that follows what is measured.
    pub enum Auto {
        /// Follows the delay and the failures of the upstream.
        Auto,
    }

    /// Whether gateways borrow tokens of a rule's buckets from Redis, and spend them without a call.
    pub enum LeaseWord {
        /// As many tokens as the gateway soon needs.
        Auto,
        /// Each request takes its tokens from Redis.
        Off,
    }

    /// A reason for which a request reached no server, as in the access log.
    pub enum RefundReason {
        /// No server accepted a connection.
        UpstreamConnect,
        /// No server has a known address.
        NoServer,
        /// The upstream has `max_in_flight` requests: such a request takes no tokens.
        Shed,
        /// The TLS handshake with the server failed.
        UpstreamTls,
        /// No connection was made in `connect_timeout`.
        UpstreamConnectTimeout,
    }

    /// Which buckets have a common hash tag in a Redis Cluster.
    pub enum Colocate {
        /// Those of an API key, of all rules whose `per` has `key`.
        Key,
        /// None, except by chance.
        Off,
    }

    /// What `/ready` answers while Redis fails.
    pub enum Ready {
        /// 200, because the gateway still serves requests.
        Always,
        /// 503, so that a load balancer prefers gateways that reach Redis.
        Connected,
    }

    /// Content of the buckets of a gateway that has not reached Redis since it started.
    pub enum StartWithout {
        /// No tokens; buckets fill from the start on.
        Empty,
        /// The gateway's share of the burst.
        Full,
    }

    /// What happens to a request without a key.
    pub enum OnMissingKey {
        /// Treat it as a request of an anonymous client.
        Anonymous,
        /// Refuse the request with 401.
        Deny,
    }

    /// What happens to a CORS preflight request without a key, if a key is required.
    pub enum OnPreflight {
        /// Refuse it with 401, as any other request without a key.
        Deny,
        /// Treat it as a request of an anonymous client.
        Anonymous,
    }

    /// What happens to a request with an unknown key.
    pub enum OnUnknownKey {
        /// Refuse the request with 401.
        Deny,
        /// Treat it as a request of an anonymous client.
        Anonymous,
        /// Treat each unknown key as a client, on the anonymous plan.
        Accept,
    }

    /// What happens to a request with two different keys.
    pub enum OnConflictingKeys {
        /// Refuse the request with 400.
        Deny,
        /// Use the first, in the order of `api_key`.
        First,
    }

    /// Whether routes match paths case-sensitively.
    pub enum PathCase {
        /// `/API` and `/api` are two paths.
        Sensitive,
        /// `/API` and `/api` are one path.
        Insensitive,
    }

    /// Whether clients need a certificate.
    pub enum ClientAuth {
        /// Refuse the connection of a client without a valid certificate.
        Required,
        /// Serve clients without a certificate, too. An invalid one is refused.
        Optional,
    }

    /// A version of TLS.
    pub enum MinTls {
        /// TLS 1.2 and 1.3.
        #[serde(rename = "1.2")]
        V1_2,
        /// Only TLS 1.3.
        #[serde(rename = "1.3")]
        V1_3,
    }

    /// Where a listener sends its clients.
    pub enum Redirect {
        /// To the same URL with `https://`, by status 308.
        Https,
    }

    /// How the gateway proves that it serves a domain.
    pub enum Challenge {
        /// By a response on port 80, from any listener without TLS.
        #[serde(rename = "http-01")]
        Http01,
        /// By a certificate on port 443, from a listener with `"acme"`.
        #[serde(rename = "tls-alpn-01")]
        TlsAlpn01,
    }

    /// Version of HTTP to an upstream.
    pub enum Protocol {
        /// HTTP/1.1 to `host:port`; to `https://` servers, what the server selects by ALPN.
        Auto,
        /// HTTP/1.1.
        Http1,
        /// HTTP/2 over TLS.
        H2,
        /// HTTP/2 without TLS, by prior knowledge.
        H2c,
    }

    /// Version of the PROXY protocol.
    pub enum ProxyVersion {
        /// The text form.
        V1,
        /// The binary form.
        V2,
    }

    /// Whether a trailing slash makes another path.
    pub enum TrailingSlash {
        /// `/api` and `/api/` are one path.
        Same,
        /// `/api` and `/api/` are two paths.
        Distinct,
    }

    /// What selects the upstream of a route with several.
    pub enum SplitBy {
        /// Each request in turn.
        Request,
        /// The client, by the id of its key, else by its address: it keeps its upstream.
        Client,
    }

    /// Which headers responses have.
    pub enum HeaderStyle {
        /// The headers of `draft` and of `x`.
        Both,
        /// Only `RateLimit` and `RateLimit-Policy`, those of the IETF draft.
        Draft,
        /// Only `X-RateLimit-Limit`, `X-RateLimit-Remaining`, `X-RateLimit-Reset` and, on refusals,
        /// `X-RateLimit-Reason`.
        X,
        /// Only `Retry-After`, on refusals.
        None,
    }

    /// Which rules the headers describe.
    pub enum HeaderPolicies {
        /// The rule that refused the request, else the one with the fewest tokens left.
        Binding,
        /// All enforced rules that applied.
        All,
    }

    /// Whether `X-RateLimit-Reset` is a Unix time or a number of seconds.
    pub enum ResetForm {
        /// Unix time at which the bucket is full, in seconds.
        Epoch,
        /// Seconds until the bucket is full.
        Delta,
    }

    /// Whose `traceparent` is continued.
    pub enum Follow {
        /// That of trusted proxies, with their sampling decision.
        Trusted,
        /// That of all clients, but the sampling decision only of trusted proxies.
        All,
        /// None: every trace begins at the gateway.
        None,
    }

    /// Form of the log of the process.
    pub enum LogFormat {
        /// One event a line: time, level, event, `name=value`.
        Text,
        /// One JSON object a line, with the members `time`, `level`, `event` and `fields`.
        Json,
    }

    /// Which events of the process are logged.
    pub enum LogLevel {
        /// What the gateway cannot continue with, and rejected files.
        Error,
        /// Also failures that it continues with.
        Warn,
        /// Also what changes: start, reloads, Redis, refusals.
        Info,
        /// Also details.
        Debug,
    }

    /// How a client's address is shown.
    pub enum ClientIp {
        /// The address itself, in text.
        Plain,
        /// As a salted hash, which identifies a client but does not reveal its address.
        Hashed,
        /// Not shown; the access log has `null`.
        Off,
    }
}
