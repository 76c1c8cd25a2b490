//! `GET /api/upstreams`: the upstreams, their endpoints, and which of them are ejected.

use serde::Serialize;

use crate::clock;
use crate::policy::settings::{Target, Upstream};
use crate::runtime::Snapshot;
use crate::upstream::pool::{EndpointView, Pool};

/// Response of `GET /api/upstreams`.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(super) struct Upstreams {
    upstreams: Vec<UpstreamHealth>,
}

/// An upstream, its servers and their addresses.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct UpstreamHealth {
    name: String,
    /// The servers as the file writes them.
    servers: Vec<String>,
    /// The addresses of the last look-up.
    addresses: Vec<EndpointHealth>,
}

/// An address of an upstream, and whether it is ejected.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct EndpointHealth {
    address: String,
    /// `ok`, or `down` if it is ejected because connections to it failed.
    health: &'static str,
    /// Milliseconds until requests are sent to it again, rounded up; 0 if it is not ejected. If all are
    /// ejected, requests are sent all the same.
    retry_after_ms: u64,
    /// Its share of the requests, relative to other weights.
    weight: u16,
    /// The endpoints of the lowest priority with a healthy one get the requests.
    priority: u8,
    /// Requests in flight.
    in_flight: u32,
}

impl Upstreams {
    pub(super) fn of(snapshot: &Snapshot) -> Self {
        let each = snapshot.policy.upstreams.iter().zip(&snapshot.pools);
        Self { upstreams: each.map(|(written, pool)| UpstreamHealth::of(written, pool)).collect() }
    }
}

impl UpstreamHealth {
    fn of(written: &Upstream, pool: &Pool) -> Self {
        let address = |view: EndpointView| EndpointHealth {
            address: view.address.to_string(),
            health: if view.ejected_us == 0 { "ok" } else { "down" },
            retry_after_ms: view.ejected_us.div_ceil(1_000),
            weight: view.weight,
            priority: view.priority,
            in_flight: view.in_flight,
        };
        Self {
            name: written.name.to_string(),
            servers: servers(written),
            addresses: pool.endpoints(clock::now()).into_iter().map(address).collect(),
        }
    }
}

/// An upstream's servers as the file writes them.
pub(super) fn servers(upstream: &Upstream) -> Vec<String> {
    match &upstream.target {
        Target::Demo => vec!["demo".to_owned()],
        Target::Servers(servers) => servers.iter().map(ToString::to_string).collect(),
    }
}
