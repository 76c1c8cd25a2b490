//! Buckets in Redis, shared by all gateways with the same `[redis]`: one script takes tokens for
//! many requests at once.
//!
//! Reading order: [`class`] (classes of errors), [`cluster`] (which master has which keys),
//! [`keys`] (names of keys), [`script`] (arguments and reply of the script), [`error_text`] (texts
//! of errors without secrets), [`append`] (records for a stream), [`call`] (the commands that are
//! sent), [`durability`] (whether the server keeps quotas), [`link`] (connection and circuit
//! breaker), `server_clock` (when the server decided), [`batch`] (when a check is sent, and with
//! which others), [`stating`] (units that requests hold), [`heartbeat`] (the gateways that share
//! it), [`node`] (all of it for one server), [`availability`] (which masters can be called),
//! [`nodes`] (the masters of a cluster, or one server).
//!
//! Each imports only earlier ones; except that [`batch`] has [`nodes`] follow a redirection.

pub mod append;
pub mod availability;
pub mod batch;
pub mod call;
pub mod class;
pub mod cluster;
pub mod durability;
pub mod error_text;
pub mod heartbeat;
pub mod keys;
pub mod link;
pub mod node;
pub mod nodes;
pub mod script;
mod server_clock;
pub mod stating;

#[cfg(test)]
pub(crate) mod fixture;
#[cfg(test)]
mod parity;
