//! `GET /api/upstreams`: the upstreams, their endpoints, and which of them are ejected.

use crate::api::upstreams::{EndpointHealth, Health, UpstreamHealth, Upstreams};
use crate::base::clock;
use crate::policy::settings::{Target, Upstream};
use crate::runtime::Snapshot;
use crate::upstream::load::Load;
use crate::upstream::pool::{EndpointView, Pool};

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
            health: if view.ejected_us == 0 { Health::Ok } else { Health::Down },
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
