//! The request as the client sends it, before anything is decided about it.
//!
//! Reading order: `http2` (HTTP/2 in the form of HTTP/1.1), `upgrade` (WebSockets), `grpc_deadline`
//! (how long its client waits), `body_drain` (a body that nothing reads).

pub(super) mod body_drain;
pub(super) mod grpc_deadline;
pub(super) mod http2;
pub(super) mod upgrade;
