//! Response of `GET /api/upstreams`.

use serde::{Deserialize, Serialize};

use crate::base::time::UtcTime;

/// Response of `GET /api/upstreams`.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Upstreams {
    pub upstreams: Vec<UpstreamHealth>,
}

/// An upstream, its servers and their addresses.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct UpstreamHealth {
    pub name: String,
    /// The servers as the file writes them.
    pub servers: Vec<String>,
    /// Requests in flight.
    #[serde(default)]
    pub in_flight: u32,
    /// How many may be in flight now; `null` without `max_in_flight`.
    pub limit: Option<u32>,
    /// The addresses of the last look-up.
    pub addresses: Vec<EndpointHealth>,
    /// The look-ups of names; empty if all servers are addresses.
    #[serde(default)]
    pub lookups: Vec<NameLookup>,
}

/// The look-ups of the name of a server.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct NameLookup {
    /// The server as the file writes it.
    pub server: String,
    /// `ok`, `failed` (the name server has failed, or does not answer: the addresses stay in use),
    /// `absent` (the name does not exist, or has no addresses: those it had get requests only if no
    /// other one is healthy), or `pending` (none has ended).
    pub state: String,
    /// Why the last look-up failed, or a part of it; empty if it did not.
    pub reason: String,
    /// Since when look-ups fail; `null` if the last one did not.
    #[cfg_attr(test, schemars(with = "Option<String>"))]
    pub since: Option<UtcTime>,
    /// When the last look-up ended that did not fail; `null`: none has.
    #[cfg_attr(test, schemars(with = "Option<String>"))]
    pub answered: Option<UtcTime>,
    /// Milliseconds until the next look-up, rounded up; 0 while one runs.
    pub next_ms: u64,
}

/// An address of an upstream, and whether requests are sent to it.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct EndpointHealth {
    pub address: String,
    /// `ok`, or `down` if no requests are sent to it. If all are down, requests are sent all the
    /// same, but to none that an operator has drained or disabled.
    #[cfg_attr(test, schemars(with = "String"))]
    pub health: Health,
    /// `up`, `unreachable` (a connection failed within 5 s), `ejected` (its requests fail),
    /// `unchecked` (no health check has ended), `unhealthy` (its health checks fail), `drained` or
    /// `disabled` (by an operator).
    #[serde(default)]
    pub state: String,
    /// Why no requests are sent to it, in a few words; empty if it is `up`.
    #[serde(default)]
    pub reason: String,
    /// Since when it is in this state; `null` if it has been since it is known.
    #[serde(default)]
    #[cfg_attr(test, schemars(with = "Option<String>"))]
    pub since: Option<UtcTime>,
    /// Milliseconds until requests are sent to it again, rounded up; 0 if it is `ok`, or if that
    /// does not end by itself.
    pub retry_after_ms: u64,
    /// Its share of the requests, relative to other weights.
    #[serde(default)]
    pub weight: u16,
    /// The endpoints of the lowest priority with a healthy one get the requests.
    #[serde(default)]
    pub priority: u8,
    /// Requests in flight.
    #[serde(default)]
    pub in_flight: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Health {
    Ok,
    Down,
}

impl Health {
    /// `ok` or `down`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Down => "down",
        }
    }
}
