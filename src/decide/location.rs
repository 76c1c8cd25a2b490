//! Whether a redirect has a URL for a request.

use super::{Head, Precheck};
use crate::client::identity::Identity;
use crate::policy::Policy;
use crate::policy::handling::{NoLocation, RouteAnswer};
use crate::policy::template::Values;

/// Any identifier: that of a request is made after the decision, and never empty.
const REQUEST_ID: &str = "0";

/// Why the route of the request redirects, and has no URL for this request; `None` for all others.
pub(super) fn missing(
    policy: &Policy,
    head: &Head<'_>,
    identity: &Identity,
    precheck: &Precheck<'_>,
) -> Option<NoLocation> {
    let route = policy.routes.get(precheck.route? as usize)?;
    let Some(RouteAnswer::Redirect(redirect)) = &route.handling.as_ref()?.answer else {
        return None;
    };
    let query = head.query_with_mark();
    let client = &identity.client;
    let values = Values {
        client_id: client.principal().map(|known| &*known.id),
        client_plan: policy.plan_name(client.plan),
        client_tenant: client.tenant.as_ref().map_or("", |tenant| &tenant.id),
        client_ip: client.ip,
        request_id: REQUEST_ID,
        query: query.as_bytes(),
        ..head.values(&precheck.host, route)
    };
    redirect.no_location(&values)
}
