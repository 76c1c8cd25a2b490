//! tollgate: an API gateway that holds every client to its limits, exactly.
//!
//! A request is turned into a list of charges; one atomic step takes all of them or none. The
//! modules stand here in reading order, which is import order too: none imports one below it.
//!
//! # Errors
//!
//! - An error in the file is a `Diagnostic` with its place; all are collected, none is thrown.
//! - A pure module that can fail has one `thiserror` enum that says how.
//! - A refusal ("not now") is an answer, not an error. A cost above the burst ("never") is a
//!   error in the file.
//! - The store always answers, so no caller has an error branch.
//! - Only `gateway::respond` turns an error into HTTP; only `cli` turns one into an exit code.

/// Text of numbers and addresses.
pub mod text;

/// Locks and atomics that a model checker can take the place of.
mod sync;

/// The time, asked for nowhere else.
pub mod clock;

/// Identifiers of requests.
pub mod request_id;

/// Calls that may never return, each with a deadline.
pub mod blocking;

/// Listeners and TLS.
pub mod net;

/// The arithmetic of limits, pure.
pub mod limit;

/// The file as it is written.
pub mod config;

/// The file as it is meant.
pub mod policy;

/// The file from disk.
pub mod load;

/// Who a request is from.
pub mod identity;

/// What is decided of a request before any bucket is asked, pure.
pub mod decide;

/// Where buckets live.
pub mod store;

/// What the operator sees.
pub mod observe;

/// The servers of upstreams: selection, health, name look-ups and connections.
pub mod upstream;

/// The snapshot of the configuration in force, and its replacement.
pub mod runtime;

/// One request through Pingora's phases.
pub mod gateway;

/// What would become of a request that nobody sent, and why.
pub mod explain;

/// The file again, while requests go on.
pub mod reload;

/// The operator's port.
pub mod admin;

/// A gateway in a terminal, from outside.
pub mod top;

/// The command line.
pub mod cli;
