//! Snapshots of diagnostics. Review each as the author of the file: is the error clear, the line right,
//! and the help useful?

mod access_log;
mod acme;
mod answers;
mod audit;
mod breaker;
mod concurrency;
mod costs_above_a_burst;
mod duplicates;
mod entries;
mod files_without_routes;
mod fixed_windows;
mod headers;
mod invalid_syntax;
mod keys_and_secrets;
mod leaky_buckets;
mod leases;
mod listeners;
mod log;
mod other_gateways;
mod pasted;
mod plans_and_clients;
mod rates_and_bursts;
mod redis;
mod rewrites;
mod route_hosts;
mod rules_per_route;
mod shedding;
mod sliding_windows;
mod splits;
mod tls;
mod tracing;
mod unknown_names;
mod upstreams_and_routes;
mod warnings;
mod wrong_types;
