//! Integration tests of the real program with real servers and clients.
//!
//! Each test starts its own gateway on a free port, so tests run concurrently. Tests wait for conditions
//! instead of sleeping, and avoid time instead of faking it: a limit of `100/d` allows exactly 100 requests
//! on any machine. A test of a fault is named after its row in `docs/faults.md` (`row_52_…`), which names
//! the test.
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
mod headers;
mod pipelining;
mod proxying;
mod rewrites;
mod route_answers;
mod websocket;

// TLS, HTTP/2, gRPC and WebSocket, with clients and servers of other projects.
mod peers;

// Upstreams over TLS and HTTP/2.
mod http2_upstream_faults;
mod http2_upstreams;
mod proxy_upstreams;
mod split;
mod tls_upstreams;

// Limits: how many requests are allowed, and which ones a rule counts.
mod cluster;
mod concurrency;
mod counting;
mod fixed_windows;
mod kinds;
mod limits;
mod membership;
mod migrating;
mod shedding;
mod sliding_windows;

// The route of a request.
mod routes;

// Responses of the gateway itself, and the connection after a denied request.
mod answers;
mod own_limits;
mod refusals;
mod request_limits;

// Automatic certificates.
mod acme;

// Identity: API keys and forwarded addresses.
mod addresses;
mod grpc_time_limits;
mod http2;
mod identity;
mod ip_lists;

// The process: start, shutdown, subcommands, and secrets in logs.
mod certificates;
mod check;
mod commands;
mod examples;
mod health;
mod process;
mod secret_files;
mod secrets;
mod shipped;
mod systemd;
mod top;
mod upgrade;
mod usage;

// Invalid configuration files.
mod bad_files;

// Reloads while requests continue: all or nothing.
mod refunds;
mod reload;
mod reload_blocked;
mod reload_files;
mod reload_load;
mod reload_tokens;

// Faulty clients and upstreams.
mod balance;
mod broken_upstreams;
mod corpus;
mod hostile;
mod many_slow_clients;
mod names;
mod overload;
mod slow_clients;
mod slow_upstreams;
mod surplus;

// Limits shared by several gateways through Redis.
mod leases;
mod nested;
mod shared;
mod shared_usage;

// Faults of Redis under load.
mod outages;

// The admin port and the admin API.
mod admin;
mod admin_reads;
mod admin_writes;

// Telemetry, the dashboard and explanations.
mod access_log;
mod audit;
mod audit_command;
mod audit_stream;
mod dashboard;
mod explain;
mod metrics;
mod samples;
mod traces;

// Memory with an unbounded number of clients.
mod idle;
mod leaky_buckets;
mod listeners;
mod memory;

// The build.
mod tree;
