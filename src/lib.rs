//! A reverse-proxy API gateway that enforces rate limits exactly, on one gateway or on many.
//!
//! Each request becomes a list of charges: one bucket and one cost per rule that applies. One
//! atomic step takes tokens from every bucket or from none. The modules below are in reading order,
//! which is also import order: a module imports only modules above it. `scripts/check-imports`
//! checks this.
//!
//! # Errors
//!
//! - An error in the configuration file is a `Diagnostic` with its position. All of them are
//!   collected and reported together.
//! - A pure module that can fail has one `thiserror` enum.
//! - A denied request is a decision, not an error. A cost above the burst is an error in the
//!   configuration file.
//! - The store is infallible: if Redis is unavailable, it decides locally.
//! - Only `decide::problem` (refusals) and `gateway::respond` (failures) select the HTTP status of
//!   a client's response; only `cli` maps errors to exit codes.

/// Time, durations, texts, hashes, locks, services whose panic ends the process.
pub mod base;

/// Addresses, name look-ups, percent-encoding, listeners, TLS, the HTTP client.
pub mod net;

/// Token buckets, quotas and verdicts. Pure: the time is a parameter.
pub mod limit;

/// What a response says that its request cost. Pure.
pub mod meter;

/// `gateway.toml` as written: types, positions and diagnostics.
pub mod config;

/// The client of a request: its address, its API key, and the known client that it is. Pure.
pub mod client;

/// The resolved configuration: names looked up, numbers checked, routes indexed.
pub mod policy;

/// TLS of the listeners: certificates, client certificates, handshakes.
pub mod tls;

/// Reads the configuration file from disk.
pub mod load;

/// Where buckets are stored: in Redis, in the deny cache, in this process.
pub mod store;

/// The decision on a request: before a bucket is read, and from the store's answer. Pure.
pub mod decide;

/// Metrics, access log, traces, and the audit of refusals.
pub mod observe;

/// Usage of quotas: in a file, or in Redis.
pub mod usage;

/// The key store: clients with API keys that the admin API changes, in Redis or in a file.
pub mod keys;

/// Automatic certificates: ordered from a certificate authority by ACME, renewed, stored.
pub mod acme;

/// Tokens of identity providers: the keys of their issuers, and verified tokens.
pub mod tokens;

/// Checks of credentials that take time: passwords, and servers that are asked about requests.
pub mod auth;

/// The servers of upstreams: selection, health, name look-ups and connections.
pub mod upstream;

/// The snapshot of the configuration in force, and its replacement.
pub mod runtime;

/// Client connections: accepts them, and reads requests from them.
pub mod downstream;

/// The process: signals, upgrades, messages to systemd, the wall clock.
pub mod process;

/// The proxy: the phases of a request, and responses.
pub mod gateway;

/// Explains which response a request would get, and why.
pub mod explain;

/// Reloads the configuration file while requests continue.
pub mod reload;

/// The responses of the admin API, as the gateway writes them and commands read them.
pub mod api;

/// The admin port: dashboard, metrics, health and admin API.
pub mod admin;

/// `tollgate top`: shows a gateway in a terminal, through its admin port.
pub mod top;

/// Configurations of other gateways as a `gateway.toml`. Pure.
pub mod import;

/// The command line, one file per subcommand.
pub mod cli;
