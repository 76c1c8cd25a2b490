//! Response of `GET /api/upstreams`.

use serde::{Deserialize, Serialize};

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
}

/// An address of an upstream, and whether it is ejected.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct EndpointHealth {
    pub address: String,
    /// `ok`, or `down` if it is ejected because connections to it failed.
    #[cfg_attr(test, schemars(with = "String"))]
    pub health: Health,
    /// Milliseconds until requests are sent to it again, rounded up; 0 if it is not ejected. If all
    /// are ejected, requests are sent all the same.
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
