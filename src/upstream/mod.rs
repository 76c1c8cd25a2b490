//! The servers of upstreams, and connections to them.
//!
//! Reading order: `pool` (which server a request goes to), `connection` (one attempt at a server),
//! `idle` (connections that are kept for later requests).

pub(crate) mod connection;
pub mod idle;
pub mod pool;
