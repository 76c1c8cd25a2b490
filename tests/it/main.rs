//! Integration tests of the real program with real servers and clients.
//!
//! Each test starts its own gateway on a free port, so tests run concurrently. Tests wait for
//! conditions instead of sleeping, and avoid time instead of faking it: a limit of `100/d` allows
//! exactly 100 requests on any machine. A test of a fault is named after its row in
//! `docs/faults.md` (`row_52_…`), which names the test.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "what goes wrong in a test should end it, helpers included"
)]

// Fixtures: the gateway, its upstreams and its clients.
mod support;

// Forwarding: bodies of any length, connection reuse, upgrades, and headers for the upstream.
mod forwarding;
mod grpc_time_limits;
mod headers;
mod http2;
mod pipelining;
mod proxying;
mod rewrites;
mod websocket;

// Routes: which one a request has, and what it does beside forwarding.
mod compression;
mod cors;
mod route_answers;
mod routes;
mod split;

// TLS, HTTP/2, gRPC and WebSocket, with clients and servers of other projects.
mod peers;

// Upstreams: the selected server, TLS, HTTP/2, the PROXY protocol, and their faults.
mod balance;
mod broken_upstreams;
mod connections;
mod dns;
mod endpoint_faults;
mod endpoint_health;
mod http2_upstream_faults;
mod http2_upstreams;
mod mirroring;
mod names;
mod proxy_upstreams;
mod retries;
mod shared_orders;
mod slow_upstreams;
mod surplus;
mod time_limits;
mod tls_upstreams;

// Limits: how many requests are allowed, and which ones a rule counts.
mod adaptive_rates;
mod bans;
mod concurrency;
mod costs;
mod counting;
mod fixed_windows;
mod kinds;
mod leaky_buckets;
mod limits;
mod llm;
mod migrating;
mod refunds;
mod shedding;
mod sliding_windows;
mod tenants;

// Responses of the gateway itself, and the connection after a denied request.
mod answers;
mod errors;
mod own_limits;
mod refusals;
mod request_limits;

// Identity: API keys and their rotation, passwords, servers that decide, forwarded addresses, and
// who may send requests.
mod addresses;
mod forward_auth;
mod identity;
mod introspection;
mod ip_lists;
mod key_rotation;
mod key_store;
mod passwords;
mod tokens;

// Listeners, their certificates, and those that are automatic.
mod acme;
mod certificates;
mod listeners;

// Faulty clients, and as many as there can be.
mod corpus;
mod hostile;
mod idle;
mod many_slow_clients;
mod memory;
mod overload;
mod slow_clients;

// Limits shared by several gateways through Redis.
mod billing;
mod cluster;
mod leases;
mod membership;
mod nested;
mod rollout;
mod shared;
mod shared_usage;

// Faults of Redis under load.
mod outages;

// The process: start, shutdown, upgrades, and secrets in logs.
mod process;
mod secret_files;
mod secrets;
mod shipped;
mod systemd;
mod upgrade;
mod usage;

// Subcommands, and the examples of the documentation.
mod audit_command;
mod check;
mod commands;
mod examples;
mod health;
mod init;
mod top;

// Invalid configuration files.
mod bad_files;

// Reloads while requests continue: all or nothing.
mod reload;
mod reload_blocked;
mod reload_files;
mod reload_load;
mod reload_tokens;

// The admin port and the admin API.
mod admin;
mod admin_reads;
mod admin_tokens;
mod admin_writes;
mod top_ups;

// Telemetry, the dashboard and explanations.
mod access_log;
mod audit;
mod audit_stream;
mod dashboard;
mod explain;
mod metrics;
mod samples;
mod traces;

// The build.
mod tree;
