//! `GET /api/upstreams`: the upstreams, their endpoints, and which of them are ejected.

use serde::Serialize;

use crate::base::clock;
use crate::policy::settings::{Target, Upstream};
use crate::runtime::Snapshot;
use crate::upstream::load::Load;
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
    /// Requests in flight.
    in_flight: u32,
    /// How many may be in flight now; `null` without `max_in_flight`.
    limit: Option<u32>,
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
    /// Milliseconds until requests are sent to it again, rounded up; 0 if it is not ejected. If all
    /// are ejected, requests are sent all the same.
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
        let each = snapshot.policy.upstreams.iter().zip(&snapshot.pools).zip(&snapshot.loads);
        let each = each.map(|((written, pool), load)| UpstreamHealth::of(written, pool, load));
        Self { upstreams: each.collect() }
    }
}

impl UpstreamHealth {
    fn of(written: &Upstream, pool: &Pool, load: &Load) -> Self {
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
            in_flight: load.in_flight(),
            limit: load.limit(written.max_in_flight),
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
