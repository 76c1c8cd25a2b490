//! Names of settings that other gateways have, and what to write here instead.
//!
//! An entry may go as soon as the gateway has a setting of that name: a name that the table has is never
//! looked up here.

use super::suggest::{cut, key};
use Place::{
    Acme, Any, Client, Eab, Grant, Key, Listener, Plan, Redis, Root, Route, Rule, Server, Upstream,
    UpstreamServer, UpstreamTls,
};

/// The table that a name is written in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    Root,
    Server,
    /// An entry of `[[listeners]]`.
    Listener,
    Acme,
    /// `[acme.eab]`.
    Eab,
    Client,
    Redis,
    /// An entry of `[plans]`.
    Plan,
    /// An entry of `[keys]`.
    Key,
    /// An entry of `[upstreams]`.
    Upstream,
    /// An item of `servers` of an upstream.
    UpstreamServer,
    /// `tls` of an upstream.
    UpstreamTls,
    /// An entry of `[routes]`.
    Route,
    /// An entry of `[rules]`.
    Rule,
    /// `{ rate, burst }` or `{ limit, burst }` of one plan or one key.
    Grant,
    /// Any of them.
    Any,
}

/// What to write instead of some names.
#[derive(Debug)]
struct Entry {
    place: Place,
    /// In lower case, with `_`.
    names: &'static [&'static str],
    /// The setting that the same table has instead; empty if there is none.
    meant: &'static str,
    /// The line to write in the same table; empty if there is none.
    line: &'static str,
    /// A sentence without a period, after the line; may be empty. `@` is the name of the entry.
    why: &'static str,
}

/// What to write instead of a name.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Advice {
    /// The setting that the same table has instead.
    pub(super) meant: Option<&'static str>,
    pub(super) help: String,
}

const fn entry(
    place: Place,
    names: &'static [&'static str],
    meant: &'static str,
    line: &'static str,
    why: &'static str,
) -> Entry {
    Entry { place, names, meant, line, why }
}

const TLS: &str = "HTTPS is served by a listener: `[[listeners]]` with `address = \"0.0.0.0:443\"` and \
    `certificates = [{ cert = \"api.pem\", key = \"api.key\" }]`";
const AUTOMATIC: &str = "automatic certificates are a table `[acme]` with `domains`, which listeners use by \
    `certificates = [\"acme\"]`";
const CIPHERS: &str = "ciphers cannot be selected: all that are offered have forward secrecy and \
    authenticated encryption; for TLS 1.3 only, write `min_tls = \"1.3\"`";
const VERIFIED: &str = "certificates of servers are always verified: for a private authority, write \
    `tls = { ca = \"ca.pem\" }`, and for another name `server_name` in it";
const STAPLE: &str = "an OCSP response is a file of a certificate: \
    `certificates = [{ cert = \"api.pem\", key = \"api.key\", ocsp = \"api.ocsp\" }]`";
const NAMES: &str = "the names of a listener are those of its certificates; for some hosts only, routes have \
    `host = \"api.example.com\"`";
const BODY_LIMIT: &str = "write `max_body_bytes = 104857600` in `[server.limits]`, or in a route";
const UPSTREAM_TIMES: &str =
    "an upstream has `connect_timeout`, `read_timeout` and `write_timeout`";
const RATES: &str = "a rate is part of a rule, such as `[rules.per-ip]` with `per = [\"ip\"]` and \
    `rate = \"10/s\"`";
const KEYS: &str = "each key is a table `[keys.<id>]`: `tollgate hash-key` prints it";
const HASH: &str =
    "the file has the hash of a key: `tollgate hash-key` prints the line `sha256 = \"…\"`";
const PLAN: &str =
    "a plan is only a name: its rate is in a rule, as `plans.@ = { rate = \"10/s\" }`";
const SERVERS: &str = "servers are in `[upstreams.<name>]`, as `servers = [\"127.0.0.1:3000\"]`";
const KIND: &str = "all limits of a rule have the kind of the rule";
const IN_RATE: &str = "the period is part of the rate, as in `100/10s`";
const CORS: &str = "the gateway does not write CORS headers: upstreams do; for preflight requests without \
    a key, see `clients.on_preflight`";
const RETRIES: &str = "the number of retries cannot be set: a request whose server cannot be connected \
    to is sent to another one, once";
const HEALTH: &str = "there are no health checks: a server that cannot be connected to is left out for \
    5 s, as long as there are others";
const WEIGHT: &str = "it is a setting of a server: `servers = [{ address = \"127.0.0.1:3000\", weight = 2, backup = true }]`";
const SPLIT: &str = "a route has several upstreams by weight: `split = { api = 95, canary = 5 }`";
const ALLOWED: &str =
    "write `allow_ips = [\"10.0.0.0/8\", \"file:office.txt\"]`: other clients get 403";
const DENIED: &str =
    "write `deny_ips = [\"192.0.2.7\", \"file:blocked.txt\"]`: these clients get 403";
const ALLOW: &[&str] = &[
    "allow",
    "allowed_ips",
    "allow_cidr",
    "allowlist",
    "ip_allowlist",
    "ip_allow_list",
    "ip_whitelist",
    "ip_white_list",
    "ipallowlist",
    "ipwhitelist",
    "source_range",
    "whitelist",
    "whitelist_source_range",
];
const DENY: &[&str] = &[
    "banned_ips",
    "blacklist",
    "block_ips",
    "blocked_ips",
    "blocklist",
    "denied_ips",
    "deny",
    "denylist",
    "deny_cidr",
    "ip_blacklist",
    "ip_denylist",
    "ip_restriction",
];
const STICKY: &str = "with `split`, a client keeps its upstream by `split_by = \"client\"`";

/// All entries. The first that fits is used.
const ENTRIES: &[Entry] = &[
    // [server]
    entry(
        Server,
        &[
            "port",
            "bind",
            "bind_address",
            "address",
            "addr",
            "host",
            "listener",
            "listeners",
            "http",
        ],
        "listen",
        "listen = [\"0.0.0.0:8080\"]",
        "",
    ),
    entry(Server, &["workers", "worker_processes", "worker_threads"], "threads", "threads = 4", ""),
    entry(
        Server,
        &["admin_port", "admin_listen", "admin_address"],
        "admin",
        "admin = \"127.0.0.1:9090\"",
        "",
    ),
    entry(
        Server,
        &["timeout", "request_timeout", "client_timeout"],
        "",
        "",
        "clients have `read_timeout`, `write_timeout` and `keepalive_timeout`; those of servers are in \
         `[upstreams.<name>]`",
    ),
    entry(
        Server,
        &["connect_timeout", "upstream_timeout", "proxy_read_timeout", "proxy_connect_timeout"],
        "",
        "",
        "it is a setting of `[upstreams.<name>]`, which has `connect_timeout`, `read_timeout` and \
         `write_timeout`",
    ),
    entry(
        Server,
        &["idle_timeout", "keep_alive", "keepalive"],
        "keepalive_timeout",
        "keepalive_timeout = \"75s\"",
        "",
    ),
    entry(
        Server,
        &["shutdown_timeout", "graceful_timeout", "grace_period"],
        "drain_timeout",
        "drain_timeout = \"20s\"",
        "",
    ),
    entry(
        Server,
        &["real_ip_header", "set_real_ip_from", "trust_proxy", "trusted_ips"],
        "trusted_proxies",
        "trusted_proxies = [\"10.0.0.0/8\"]",
        "their `X-Forwarded-For` is used",
    ),
    // The root
    entry(
        Root,
        &["listen", "port", "address", "bind"],
        "",
        "",
        "write `listen = [\"0.0.0.0:8080\"]` in `[server]`",
    ),
    entry(
        Root,
        &["backend", "backends", "service", "services", "target", "targets", "url", "clusters"],
        "",
        "",
        SERVERS,
    ),
    entry(
        Root,
        &["api_keys", "apikeys", "api_key", "consumers", "users", "credentials"],
        "",
        "",
        KEYS,
    ),
    entry(
        Root,
        &["location", "locations", "paths"],
        "",
        "",
        "a path is part of a route, such as `[routes.api]` with `path = \"/api/*\"`",
    ),
    entry(
        Root,
        &[
            "limit",
            "limits",
            "limit_req",
            "limit_req_zone",
            "rate",
            "burst",
            "rate_limit",
            "rate_limits",
            "ratelimit",
            "rate_limiting",
            "throttle",
        ],
        "",
        "",
        RATES,
    ),
    entry(
        Root,
        &["metrics", "prometheus", "dashboard"],
        "",
        "",
        "metrics and the dashboard are on the admin port, `server.admin`",
    ),
    entry(
        Root,
        &["entrypoints", "entry_points", "listener", "frontend", "frontends", "https"],
        "listeners",
        "",
        TLS,
    ),
    entry(
        Root,
        &["http2", "h2", "http2_protocol_options"],
        "",
        "",
        "the limits of HTTP/2 are a table `[server.http2]`; a listener has `http2 = true`",
    ),
    entry(
        Root,
        &["autocert", "letsencrypt", "lets_encrypt", "certificatesresolvers", "certbot"],
        "acme",
        "",
        AUTOMATIC,
    ),
    // [[listeners]]
    entry(
        Listener,
        &["listen", "bind", "addr", "port", "host", "path", "socket"],
        "address",
        "address = \"0.0.0.0:443\"",
        "",
    ),
    entry(
        Listener,
        &["acme", "autocert", "cert_resolver", "certresolver", "letsencrypt"],
        "certificates",
        "certificates = [\"acme\"]",
        AUTOMATIC,
    ),
    entry(
        Listener,
        &[
            "tls",
            "ssl",
            "https",
            "cert",
            "certs",
            "cert_file",
            "certfile",
            "certificate",
            "certificate_chain",
            "key",
            "key_file",
            "keyfile",
            "private_key",
            "ssl_certificate",
            "ssl_certificate_key",
            "tls_certificate",
            "tls_certificates",
            "crt",
        ],
        "certificates",
        "certificates = [{ cert = \"api.pem\", key = \"api.key\" }]",
        "",
    ),
    entry(
        Listener,
        &["ca", "ca_file", "cafile", "ssl_client_certificate", "trusted_ca", "client_cas"],
        "client_ca",
        "client_ca = \"ca.pem\"",
        "it has the authorities of client certificates",
    ),
    entry(
        Listener,
        &["verify_client", "ssl_verify_client", "require_client_certificate", "mtls"],
        "client_auth",
        "",
        "write `client_ca = \"ca.pem\"`, and `client_auth = \"optional\"` if clients may have no certificate",
    ),
    entry(
        Listener,
        &["min_version", "minversion", "min_tls_version", "tls_min_version", "ssl_protocols"],
        "min_tls",
        "min_tls = \"1.3\"",
        "the default is `1.2`",
    ),
    entry(
        Listener,
        &["ciphers", "cipher_suites", "ciphersuites", "ssl_ciphers", "curves", "ssl_ecdh_curve"],
        "",
        "",
        CIPHERS,
    ),
    entry(
        Listener,
        &["h2", "h2c", "alpn", "protocols", "http_versions"],
        "http2",
        "http2 = true",
        "",
    ),
    entry(
        Listener,
        &["accept_proxy", "proxy", "proxyprotocol"],
        "proxy_protocol",
        "",
        "write `proxy_protocol = true`; only `server.trusted_proxies` may then connect",
    ),
    entry(
        Listener,
        &["redirect_https", "https_redirect", "force_https", "ssl_redirect", "redirections"],
        "redirect",
        "",
        "write `redirect = \"https\"` in the listener without `certificates`",
    ),
    entry(
        Listener,
        &["strict_transport_security", "sts_seconds", "stsseconds", "hsts_max_age"],
        "hsts",
        "hsts = \"365d\"",
        "",
    ),
    entry(
        Listener,
        &["ocsp", "ocsp_staple", "ocsp_stapling", "ssl_stapling", "ssl_stapling_file", "stapling"],
        "",
        "",
        STAPLE,
    ),
    entry(
        Listener,
        &["server_name", "server_names", "hostname", "hostnames", "domains", "sni", "sni_strict"],
        "",
        "",
        NAMES,
    ),
    entry(
        Listener,
        &["http3", "h3", "quic"],
        "",
        "",
        "the gateway has no HTTP/3; HTTP/2 is on with `certificates`",
    ),
    // [acme]
    entry(
        Acme,
        &["agree_tos", "accept_tos", "terms_of_service_agreed", "tos"],
        "",
        "",
        "leave it out: with `[acme]`, you agree to the terms of service of the authority",
    ),
    entry(
        Acme,
        &["url", "server", "caserver", "ca_server", "acme_url", "ca_url", "staging"],
        "directory",
        "directory = \"https://acme-v02.api.letsencrypt.org/directory\"",
        "for tests, Let's Encrypt has `https://acme-staging-v02.api.letsencrypt.org/directory`",
    ),
    entry(Acme, &["contact", "contacts", "emails"], "email", "email = \"ops@example.com\"", ""),
    entry(
        Acme,
        &["domain", "names", "hosts", "hostnames", "sans", "server_name"],
        "domains",
        "domains = [\"api.example.com\"]",
        "",
    ),
    entry(
        Acme,
        &["challenges", "challenge_type", "httpchallenge", "tlschallenge", "http01", "tlsalpn01"],
        "challenge",
        "challenge = \"http-01\"",
        "the other one is `tls-alpn-01`",
    ),
    entry(
        Acme,
        &["dnschallenge", "dns_challenge", "dns", "dns01", "dns_01"],
        "",
        "",
        "the gateway has the challenges `http-01` and `tls-alpn-01`: for a wildcard, use certificate files",
    ),
    entry(
        Acme,
        &["dir", "folder", "cache", "cache_dir", "path", "storage_path"],
        "storage",
        "storage = \"acme\"",
        "",
    ),
    entry(
        Acme,
        &[
            "external_account",
            "external_account_binding",
            "external_account_required",
            "hmac",
            "kid",
        ],
        "eab",
        "",
        "write `eab = { key_id = \"…\", hmac_key = \"${ACME_HMAC_KEY}\" }`",
    ),
    // [acme.eab]
    entry(Eab, &["kid", "id", "key"], "key_id", "", "write `key_id`"),
    entry(Eab, &["hmac", "mac_key", "secret"], "hmac_key", "", "write `hmac_key`"),
    // [clients]
    entry(
        Client,
        &["header", "key_header", "key_names", "key_in", "sources"],
        "api_key",
        "api_key = [\"header:x-api-key\"]",
        "",
    ),
    entry(
        Client,
        &["jwt", "oauth", "oidc", "basic_auth", "hmac"],
        "",
        "",
        "clients are identified by an API key or by their address only",
    ),
    entry(
        Client,
        &["trusted_proxies", "real_ip_header", "trust_proxy"],
        "",
        "",
        "write `trusted_proxies = [\"10.0.0.0/8\"]` in `[server]`",
    ),
    // [redis]
    entry(
        Redis,
        &["host", "hosts", "address", "addr", "server", "port", "uri", "nodes"],
        "url",
        "url = \"redis://127.0.0.1:6379\"",
        "",
    ),
    entry(Redis, &["db"], "database", "database = 0", ""),
    entry(Redis, &["user"], "username", "", "write `username`, and `password`"),
    entry(Redis, &["tls", "ssl", "use_tls"], "", "", "for TLS, the scheme of `url` is `rediss://`"),
    entry(
        Redis,
        &["connect_timeout", "read_timeout", "write_timeout", "socket_timeout"],
        "timeout",
        "timeout = \"10ms\"",
        "it is the time limit of one check",
    ),
    entry(
        Redis,
        &["sentinel", "sentinels", "master", "master_name"],
        "",
        "",
        "write the sentinels in `url`, as `redis+sentinel://host:26379/master`",
    ),
    entry(
        Redis,
        &["pool", "pool_size", "max_connections", "max_clients"],
        "",
        "",
        "the number of connections to Redis is not configurable",
    ),
    entry(Redis, &["key_prefix", "namespace"], "prefix", "prefix = \"tollgate:\"", ""),
    // [plans.<name>]
    entry(
        Plan,
        &[
            "rate",
            "burst",
            "limit",
            "limits",
            "rate_limit",
            "requests",
            "quota",
            "window",
            "period",
            "capacity",
        ],
        "",
        "",
        PLAN,
    ),
    entry(Plan, &["keys", "clients", "members"], "", "", "a key names its plan, as `plan = \"@\"`"),
    // [keys.<id>]
    entry(
        Key,
        &["secret", "key", "token", "value", "api_key", "apikey", "hash", "sha", "password"],
        "sha256",
        "",
        HASH,
    ),
    entry(
        Key,
        &["rate", "burst", "limit", "limits", "rate_limit", "quota"],
        "",
        "",
        "a rate of one key overrides a rule, as `rules.<rule> = { rate = \"10/s\" }`",
    ),
    entry(Key, &["tier", "group", "role"], "plan", "", "write `plan`, with the name of a plan"),
    entry(
        Key,
        &["enabled", "disabled", "expires", "expires_at", "revoked"],
        "",
        "",
        "a key is valid as long as it is in the file",
    ),
    // [upstreams.<name>]
    entry(
        Upstream,
        &[
            "url",
            "urls",
            "uri",
            "target",
            "targets",
            "address",
            "addresses",
            "host",
            "hosts",
            "server",
            "backend",
            "backends",
            "endpoint",
            "endpoints",
            "nodes",
            "port",
        ],
        "servers",
        "servers = [\"127.0.0.1:3000\"]",
        "",
    ),
    entry(Upstream, &["timeout", "request_timeout", "proxy_timeout"], "", "", UPSTREAM_TIMES),
    entry(
        Upstream,
        &["keepalive", "keepalive_timeout", "keep_alive"],
        "idle_timeout",
        "idle_timeout = \"60s\"",
        "",
    ),
    entry(
        Upstream,
        &[
            "max_requests",
            "max_conns",
            "maxconn",
            "max_connections",
            "max_pending_requests",
            "circuit_breakers",
            "circuit_breaker",
            "in_flight_req",
            "inflightreq",
            "unhealthy_request_count",
            "adaptive_concurrency",
            "concurrency",
        ],
        "max_in_flight",
        "max_in_flight = 200",
        "`\"auto\"` finds the number",
    ),
    entry(
        Plan,
        &["weight", "priority_level", "importance", "qos"],
        "priority",
        "priority = 10",
        "",
    ),
    entry(Upstream, &["retries", "retry", "max_retries", "attempts"], "", "", RETRIES),
    entry(
        Upstream,
        &[
            "health_check",
            "health_checks",
            "healthcheck",
            "health",
            "health_path",
            "max_fails",
            "fail_timeout",
        ],
        "",
        "",
        HEALTH,
    ),
    entry(
        Upstream,
        &["ssl", "https", "scheme", "use_tls", "proxy_ssl"],
        "",
        "",
        "for TLS, write `https://` before the servers; its settings are in `tls = { ca = \"ca.pem\" }`",
    ),
    entry(
        Upstream,
        &["ca", "ca_file", "cert", "certificate", "client_cert", "key", "server_name", "sni"],
        "tls",
        "",
        "write `tls = { ca = \"ca.pem\", cert = \"client.pem\", key = \"client.key\", server_name = \
         \"api.internal\" }`, with those that are needed",
    ),
    entry(
        Upstream,
        &[
            "insecure",
            "insecure_skip_verify",
            "skip_verify",
            "tls_skip_verify",
            "tls_insecure_skip_verify",
            "proxy_ssl_verify",
            "verify",
        ],
        "",
        "",
        VERIFIED,
    ),
    entry(
        UpstreamTls,
        &["ca_file", "cafile", "ca_cert", "root_ca", "trusted_ca", "ca_certificate"],
        "ca",
        "ca = \"ca.pem\"",
        "",
    ),
    entry(
        UpstreamTls,
        &["sni", "host", "hostname", "name", "servername", "ssl_name"],
        "server_name",
        "server_name = \"api.internal\"",
        "",
    ),
    entry(
        UpstreamTls,
        &[
            "cert_file",
            "certificate",
            "client_cert",
            "crt",
            "key_file",
            "client_key",
            "private_key",
        ],
        "cert",
        "",
        "write `cert = \"client.pem\"` and `key = \"client.key\"`",
    ),
    entry(
        UpstreamTls,
        &[
            "verify",
            "insecure",
            "insecure_skip_verify",
            "skip_verify",
            "verify_peer",
            "verification",
        ],
        "",
        "",
        VERIFIED,
    ),
    entry(
        Upstream,
        &["http2", "h2", "h2c", "http_version", "proxy_http_version", "grpc", "versions"],
        "protocol",
        "protocol = \"auto\"",
        "`h2c` is HTTP/2 without TLS",
    ),
    entry(
        Upstream,
        &["send_proxy", "send_proxy_v2", "send_proxy_protocol"],
        "proxy_protocol",
        "proxy_protocol = \"v2\"",
        "",
    ),
    entry(
        Upstream,
        &[
            "lb",
            "lb_policy",
            "load_balancing",
            "load_balancer",
            "algorithm",
            "policy",
            "strategy",
            "least_conn",
            "leastconn",
            "random",
        ],
        "balance",
        "balance = \"least_request\"",
        "",
    ),
    entry(
        Upstream,
        &["ip_hash", "hash", "hash_on", "hash_policy", "consistent_hash"],
        "balance",
        "balance = \"hash:ip\"",
        "",
    ),
    entry(Upstream, &["weight", "weights", "backup", "priority"], "", "", WEIGHT),
    entry(
        Upstream,
        &[
            "sticky_cookie",
            "sticky_session",
            "sticky_sessions",
            "session_affinity",
            "affinity",
            "cookie",
            "session_persistence",
            "persistence",
        ],
        "sticky",
        "sticky = { cookie = \"srv\" }",
        "",
    ),
    entry(
        Upstream,
        &["slowstart", "slow_start_window", "slow_start_config", "warmup"],
        "slow_start",
        "slow_start = \"30s\"",
        "",
    ),
    // servers = [{ … }]
    entry(
        UpstreamServer,
        &["url", "uri", "host", "server", "target", "endpoint", "name"],
        "address",
        "address = \"127.0.0.1:3000\"",
        "",
    ),
    entry(
        UpstreamServer,
        &["port"],
        "",
        "",
        "the port is part of `address`, as in `127.0.0.1:3000`",
    ),
    entry(UpstreamServer, &["max_fails", "fail_timeout", "check", "down"], "", "", HEALTH),
    // [routes.<name>]
    entry(
        Route,
        &["url", "uri", "prefix", "path_prefix", "location", "match", "pattern", "paths"],
        "path",
        "path = \"/api/*\"",
        "",
    ),
    entry(
        Route,
        &["backend", "service", "target", "proxy_pass", "server", "servers", "cluster", "to"],
        "upstream",
        "",
        "write `upstream`, with the name of an upstream",
    ),
    entry(
        Route,
        &["domain", "domains", "hosts", "hostname", "hostnames", "server_name"],
        "host",
        "host = \"api.example.com\"",
        "",
    ),
    entry(Route, &["weight", "tokens"], "cost", "cost = 1", ""),
    entry(
        Route,
        &["canary", "split_clients", "upstreams", "weighted", "weighted_clusters", "weights"],
        "split",
        "",
        SPLIT,
    ),
    entry(Route, ALLOW, "allow_ips", "", ALLOWED),
    entry(Route, DENY, "deny_ips", "", DENIED),
    entry(Server, ALLOW, "allow_ips", "", ALLOWED),
    entry(Server, DENY, "deny_ips", "", DENIED),
    entry(Route, &["sticky", "sticky_cookie"], "split_by", "", STICKY),
    entry(
        Route,
        &["timeout", "connect_timeout", "read_timeout", "write_timeout", "request_timeout"],
        "",
        "",
        "timeouts are settings of `[upstreams.<name>]`: for other ones, give the route another upstream",
    ),
    entry(
        Route,
        &["rewrite", "strip_path", "stripprefix", "handle_path", "uri_strip_prefix"],
        "strip_prefix",
        "",
        "write `path = \"/v1/*\"` and `strip_prefix = \"/v1\"`, or for another prefix instead \
        `replace_prefix = { \"/v1\" = \"/api\" }`",
    ),
    entry(
        Route,
        &["return", "direct_response", "fixed_response", "static", "response"],
        "respond",
        "",
        "write `respond = { status = 503, body = \"closed\" }` without `upstream`",
    ),
    entry(
        Route,
        &["redirectregex", "redirectscheme", "redir", "redirect_to", "host_redirect"],
        "redirect",
        "",
        "write `redirect = { to = \"https://new.example{path}{query}\" }` without `upstream`",
    ),
    entry(
        Route,
        &["prefix_rewrite", "replacepath", "replacepathregex", "path_rewrite"],
        "replace_prefix",
        "",
        "write `path = \"/v1/*\"` and `replace_prefix = { \"/v1\" = \"/api\" }`",
    ),
    entry(
        Route,
        &["host_rewrite", "host_rewrite_literal", "preserve_host", "passhostheader", "host_header"],
        "upstream_host",
        "upstream_host = \"{upstream}\"",
        "the host of the server; without it, the upstream gets that of the client",
    ),
    entry(
        Route,
        &[
            "proxy_set_header",
            "header_up",
            "set_headers",
            "add_headers",
            "customrequestheaders",
            "request_headers_to_add",
            "request_headers_to_remove",
        ],
        "request_headers",
        "request_headers = { set = { \"X-Client\" = \"{client.id}\" } }",
        "for responses, it is `response_headers`",
    ),
    entry(
        Route,
        &[
            "add_header",
            "proxy_hide_header",
            "header_down",
            "customresponseheaders",
            "response_headers_to_add",
            "response_headers_to_remove",
        ],
        "response_headers",
        "response_headers = { set = { \"X-Frame-Options\" = \"DENY\" } }",
        "for requests, it is `request_headers`",
    ),
    entry(Route, &["retries", "retry"], "", "", RETRIES),
    entry(
        Route,
        &["rate", "burst", "limit", "limits", "rate_limit", "limit_req", "rules", "rule"],
        "",
        "",
        "a rule names its routes: in `[rules.<name>]`, write `routes = [\"@\"]`",
    ),
    entry(
        Route,
        &["auth", "require_key", "plans", "keys"],
        "",
        "",
        "whether a key is required is a setting of `[clients]` and of rules, not of routes",
    ),
    // [rules.<name>]
    entry(
        Rule,
        &[
            "requests",
            "requests_per_second",
            "rps",
            "quota",
            "average",
            "max_requests",
            "count",
            "limit_req",
            "rate_limit",
            "requests_per_unit",
            "tokens",
            "tokens_per_fill",
            "refill_rate",
        ],
        "rate",
        "rate = \"10/s\"",
        "",
    ),
    entry(
        Rule,
        &["window", "period", "interval", "fill_interval", "duration", "unit", "per_second"],
        "",
        "",
        IN_RATE,
    ),
    entry(
        Rule,
        &["capacity", "burst_size", "max_burst", "bucket_size", "max_tokens"],
        "burst",
        "burst = 20",
        "",
    ),
    entry(
        Rule,
        &["algorithm", "type", "strategy", "policy"],
        "kind",
        "kind = \"token_bucket\"",
        "",
    ),
    entry(
        Rule,
        &[
            "key",
            "by",
            "keys",
            "scope",
            "limit_by",
            "group_by",
            "identifier",
            "dimensions",
            "per_key",
        ],
        "per",
        "per = [\"key\"]",
        "",
    ),
    entry(
        Rule,
        &["delay", "nodelay", "queue"],
        "",
        "",
        "requests are never delayed: one without tokens is refused at once",
    ),
    entry(Rule, &["shadow", "dry_run", "dryrun", "log_only"], "mode", "mode = \"shadow\"", ""),
    entry(
        Rule,
        &["whitelist", "allowlist", "allow", "exclude", "skip"],
        "exempt",
        "exempt = { ips = [\"10.0.0.0/8\"] }",
        "",
    ),
    entry(
        Rule,
        &["path", "paths", "method", "methods", "host", "route"],
        "routes",
        "",
        "a rule lists the names of its `routes`",
    ),
    entry(Rule, &["plan"], "plans", "", "write `plans.<plan> = { rate = \"10/s\" }`"),
    entry(
        Rule,
        &["status", "status_code", "reject_code", "limit_req_status"],
        "",
        "",
        "a request without tokens gets 429",
    ),
    // { rate, burst } and { limit, burst }
    entry(Grant, &["kind", "algorithm", "type", "strategy", "policy"], "", "", KIND),
    entry(
        Grant,
        &["requests", "rps", "quota", "average", "max_requests", "tokens"],
        "rate",
        "rate = \"10/s\"",
        "",
    ),
    entry(Grant, &["window", "period", "interval", "duration", "unit"], "", "", IN_RATE),
    entry(Grant, &["capacity", "burst_size", "max_burst"], "burst", "burst = 20", ""),
    // Anywhere
    entry(
        Any,
        &[
            "max_body_bytes",
            "max_body_size",
            "client_max_body_size",
            "body_limit",
            "max_request_size",
            "max_request_body",
        ],
        "",
        "",
        BODY_LIMIT,
    ),
    entry(
        Any,
        &[
            "tls",
            "ssl",
            "https",
            "certificate",
            "certificates",
            "cert",
            "ssl_certificate",
            "ssl_certificate_key",
            "tls_certificates",
        ],
        "",
        "",
        TLS,
    ),
    entry(Any, &["cors", "cors_origins", "allowed_origins"], "", "", CORS),
    entry(Any, &["retries"], "", "", RETRIES),
    entry(Any, &["health_check", "health_checks", "healthcheck"], "", "", HEALTH),
    entry(Any, &["rate_limit", "limit_req", "ratelimit"], "", "", RATES),
];

/// What to write instead of the unknown `name` in the table at `parents`.
pub(super) fn advice(parents: &[String], name: &str) -> Option<Advice> {
    let place = place(parents)?;
    let name = name.to_lowercase().replace('-', "_");
    let fits = |entry: &&Entry| {
        (entry.place == place || entry.place == Any) && entry.names.contains(&name.as_str())
    };
    let entry = ENTRIES.iter().find(fits)?;
    let own = parents.get(1).map_or("", String::as_str);
    Some(Advice {
        meant: Some(entry.meant).filter(|meant| !meant.is_empty()),
        help: entry.help(own),
    })
}

/// What to write instead of a word that the setting `name` does not have.
pub(super) fn advice_on_word(name: &str, word: &str) -> Option<&'static str> {
    Some(match (name, word.to_ascii_lowercase().as_str()) {
        ("protocol", "http2" | "http/2" | "grpc" | "grpcs") => {
            "write `h2` for servers with `https://`, and `h2c` for others"
        }
        ("protocol", "http/1.1" | "http" | "https" | "h1") => "write `http1`",
        ("challenge", "dns-01" | "dns") => {
            "the gateway does not have dns-01: for a wildcard, use certificate files"
        }
        _ => return None,
    })
}

/// The place of the table at `parents`; none for tables without entries.
fn place(parents: &[String]) -> Option<Place> {
    let path: Vec<&str> = parents.iter().map(String::as_str).collect();
    Some(match path.as_slice() {
        [] => Root,
        ["server"] => Server,
        ["listeners"] => Listener,
        ["acme"] => Acme,
        ["clients"] => Client,
        ["redis"] => Redis,
        ["plans", _] => Plan,
        ["keys", _] => Key,
        ["upstreams", _] => Upstream,
        ["upstreams", _, "servers"] => UpstreamServer,
        ["upstreams", _, "tls"] => UpstreamTls,
        ["acme", "eab"] => Eab,
        ["routes", _] => Route,
        ["rules", _] => Rule,
        ["rules", _, "plans", _] | ["keys", _, "rules", _] => Grant,
        _ => return None,
    })
}

impl Entry {
    /// The line and the reason, for the entry `own` of a table of named entries.
    fn help(&self, own: &str) -> String {
        // After a dot it is a name of TOML, else a part of a string.
        let why = self.why.replace(".@", &format!(".{}", key(own))).replace('@', &cut(own, 64));
        match (self.line, why.is_empty()) {
            ("", _) => why,
            (line, true) => format!("write `{line}`"),
            (line, false) => format!("write `{line}`: {why}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::load::from_text;

    /// A file that lacks a line in the table of `place`.
    fn file(place: Place, meant: &str, line: &str) -> Option<String> {
        let keep = |name: &str, default: &'static str| if meant == name { "" } else { default };
        let server = "[upstreams.api]\nservers = ['demo']\n[routes.all]\n";
        Some(match place {
            Server => format!("[server]\n{line}\n{server}"),
            Listener => format!(
                "[[listeners]]\n{}{}{line}\n[acme]\ndomains = ['a.example']\n{server}",
                keep("address", "address = '0.0.0.0:443'\n"),
                keep("certificates", "certificates = ['acme']\n"),
            ),
            Acme => {
                format!("[acme]\n{}{line}\n{server}", keep("domains", "domains = ['a.example']\n"))
            }
            Client => format!("[clients]\n{line}\n{server}"),
            UpstreamServer => {
                format!("[routes.all]\n[[upstreams.api.servers]]\n{line}\n")
            }
            UpstreamTls => format!(
                "[routes.all]\n[upstreams.api]\nservers = ['https://h']\n[upstreams.api.tls]\n{line}"
            ),
            Redis => {
                format!("[redis]\n{}{line}\n{server}", keep("url", "url = 'redis://h'\n"))
            }
            Upstream => format!(
                "[routes.all]\n[upstreams.api]\n{}{line}",
                keep("servers", "servers = ['demo']\n")
            ),
            Route => format!("{server}{line}\n"),
            Rule => format!(
                "{server}[rules.r]\n{}{}{line}\n",
                keep("per", "per = ['key']\n"),
                keep("rate", "rate = '10/s'\n"),
            ),
            Grant => format!(
                "{server}[plans.free]\n[rules.r]\nper = []\n[rules.r.plans.free]\n{}{line}\n",
                keep("rate", "rate = '10/s'\n"),
            ),
            Plan => format!("{server}[plans.free]\n{line}\n"),
            Root | Key | Eab | Any => return None,
        })
    }

    #[test]
    fn suggested_lines_are_valid_where_they_are_suggested() {
        for entry in ENTRIES.iter().filter(|entry| !entry.line.is_empty()) {
            let text = file(entry.place, entry.meant, entry.line).unwrap();
            let errors = from_text("gateway.toml", &text).err().map(|report| report.render(false));
            assert_eq!(errors, None, "{text}");
        }
    }

    #[test]
    fn listed_names_are_unknown_where_they_are_listed() {
        let tables = [
            (Root, ""),
            (Server, "[server]"),
            (Listener, "[[listeners]]"),
            (Acme, "[acme]"),
            (Client, "[clients]"),
            (Redis, "[redis]"),
            (Plan, "[plans.free]"),
            (Key, "[keys.k]"),
            (Upstream, "[upstreams.api]"),
            (UpstreamServer, "[[upstreams.api.servers]]"),
            (UpstreamTls, "[upstreams.api.tls]"),
            (Eab, "[acme.eab]"),
            (Route, "[routes.all]"),
            (Rule, "[rules.r]"),
            (Grant, "[rules.r.plans.free]"),
        ];
        for entry in ENTRIES {
            for (place, head) in tables.iter().filter(|(place, _)| *place == entry.place) {
                for name in entry.names {
                    let report = from_text("a", &format!("{head}\n{name} = 'x'\n")).unwrap_err();
                    let found = report
                        .errors
                        .list
                        .iter()
                        .find(|error| error.message.starts_with("unknown name"));
                    let help = found.unwrap_or_else(|| panic!("{place:?} {name}")).help.clone();
                    let own = head.trim_end_matches(']').split('.').nth(1).unwrap_or_default();
                    assert_eq!(help, Some(entry.help(own)), "{place:?} {name}");
                }
            }
        }
    }
}
