//! The servers of upstreams, and connections to them.
//!
//! Reading order: `balance` (which endpoint gets a request), `health` (whether one gets requests at
//! all) and `failure_window`, `endpoint` (the state of one), `check` (asks one for its health),
//! `active` (those that get requests), `pool` (the endpoints of one upstream), `lookup` (when its
//! names are looked up), `services` (weights and priorities of SRV records), `orders` and
//! `shared_orders` (of operators for endpoints), `known` (what a new pool begins with),
//! `happy_eyeballs` (which addresses are tried for a connection, and when), `dial` (opens it),
//! `gate` (how many are open, and the limit on them), `transport` (its bytes, in clear or over
//! TLS), `tls`, `deadline` (when a request must have ended), `connection` (one attempt over
//! HTTP/1.1), `idle` (connections over HTTP/1.1 that are kept for later requests), `run` (how long
//! one is used without a rest), `http2` (connections over HTTP/2), `liveness` (whether the server
//! of one is still there), `load` (requests in flight at an upstream, and the limit on them),
//! `retry_budget` (how many of them may be sent again).

mod active;
pub(crate) mod balance;
mod check;
pub(crate) mod connection;
pub(crate) mod deadline;
pub(crate) mod dial;
pub(crate) mod endpoint;
mod failure_window;
pub(crate) mod gate;
mod happy_eyeballs;
pub mod health;
pub(crate) mod http2;
mod idle;
pub mod known;
mod liveness;
pub mod load;
pub mod lookup;
pub mod orders;
pub mod pool;
mod retry_budget;
mod run;
mod services;
pub mod shared_orders;
pub(crate) mod sticky;
pub(crate) mod tls;
pub(crate) mod transport;
