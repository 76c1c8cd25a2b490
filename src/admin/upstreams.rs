//! `GET /api/upstreams`: the upstreams, their endpoints, and which of them get requests; and the
//! orders of operators for endpoints.

use http::StatusCode;

use super::Arguments;
use super::answer::Answer;
use super::query::Query;
use crate::api::upstreams::{EndpointHealth, Health, NameLookup, UpstreamHealth, Upstreams};
use crate::base::clock;
use crate::base::text::cut;
use crate::base::time::UtcTime;
use crate::config::suggest;
use crate::net::address::Origin;
use crate::policy::settings::{Target, Upstream};
use crate::runtime::Snapshot;
use crate::runtime::orders::{Effect, OrderBoard};
use crate::upstream::health::{HealthView, Order, State};
use crate::upstream::load::Load;
use crate::upstream::lookup::LookupView;
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
        let now = clock::now();
        let address = |view: EndpointView| endpoint(view, now);
        Self {
            name: written.name.to_string(),
            servers: servers(written),
            in_flight: load.in_flight(),
            limit: load.limit(written.max_in_flight),
            addresses: pool.endpoints(now).into_iter().map(address).collect(),
            lookups: pool.lookups().map(|(server, view)| lookup(server, view, now)).collect(),
        }
    }
}

/// Gives an order for an endpoint, or takes it back, and answers with its upstream. The path has
/// the names of the upstream and of the endpoint. With `scope=all`, all gateways get it from
/// `board`.
///
/// # Errors
/// There is none of these names, the query is invalid, the gateways share no Redis, or another
/// process has taken over.
pub(super) fn order(
    snapshot: &Snapshot,
    board: &OrderBoard,
    arguments: Arguments<'_>,
    order: Option<Order>,
) -> Result<Answer, Box<Answer>> {
    let is_for_all = is_for_all(arguments.query)?;
    if is_for_all && snapshot.policy.redis.is_none() {
        let detail =
            "without `[redis]`, gateways share no orders: leave `scope` out, and give it to each";
        return Err(Answer::refusal(StatusCode::CONFLICT, detail));
    }
    let [name, server] = arguments.parts else { return Err(no_upstream(snapshot)) };
    let mut each = snapshot.policy.upstreams.iter().zip(&snapshot.pools).zip(&snapshot.loads);
    let found = each.find(|((written, _), _)| *written.name == **name);
    let Some(((written, pool), load)) = found else { return Err(no_upstream(snapshot)) };
    let orders = || Pool::known(&snapshot.pools).orders;
    let give = || {
        let before = orders();
        if !pool.order(server, order) {
            return Effect::Unknown;
        }
        if is_for_all {
            board.give(name, server, order);
        }
        if is_for_all || orders() != before { Effect::Changed } else { Effect::Unchanged }
    };
    let Some(effect) = board.give_here(give) else {
        let detail = "another process has taken over in an upgrade: repeat it";
        return Err(Answer::refusal(StatusCode::SERVICE_UNAVAILABLE, detail));
    };
    if effect == Effect::Unknown {
        let view = UpstreamHealth::of(written, pool, load);
        let addresses: Vec<&str> = view.addresses.iter().map(|one| &*one.address).collect();
        let detail = format!(
            "the upstream has no such server or address; it has {}",
            suggest::list(&addresses, "and")
        );
        return Err(Answer::refusal(StatusCode::NOT_FOUND, &detail));
    }
    let word = match order {
        Some(Order::Drain) => "drained",
        Some(Order::Disable) => "disabled",
        None => "enabled",
    };
    let whose = if is_for_all { " on all gateways" } else { "" };
    let note = format!("{} {} {word}{whose}", written.name, cut(server, 300));
    Ok(Answer::json(&UpstreamHealth::of(written, pool, load)).noting(note))
}

/// Whether an order is for all gateways.
fn is_for_all(query: Option<&str>) -> Result<bool, Box<Answer>> {
    let query = Query::read(query, &["scope"], &[])?;
    match query.get("scope") {
        None | Some("gateway") => Ok(false),
        Some("all") => Ok(true),
        Some(_) => Err(Answer::refusal(StatusCode::BAD_REQUEST, "`scope` is `gateway` or `all`")),
    }
}

fn no_upstream(snapshot: &Snapshot) -> Box<Answer> {
    let names: Vec<&str> = snapshot.policy.upstreams.iter().map(|it| &*it.name).collect();
    let detail = format!("the file has no such upstream; it has {}", suggest::list(&names, "and"));
    Answer::refusal(StatusCode::NOT_FOUND, &detail)
}

/// An endpoint at `now` (microseconds of the monotonic clock).
fn endpoint(view: EndpointView, now: u64) -> EndpointHealth {
    let HealthView { state, reason, since, until } = view.health;
    let wait_us = if until == u64::MAX { 0 } else { until.saturating_sub(now) };
    EndpointHealth {
        address: view.address.to_string(),
        health: if state == State::Up { Health::Ok } else { Health::Down },
        state: state.name().to_owned(),
        reason,
        since: utc(since, now),
        retry_after_ms: wait_us.div_ceil(1_000),
        weight: view.weight,
        priority: view.priority,
        in_flight: view.in_flight,
    }
}

/// The look-ups of a name at `now` (microseconds of the monotonic clock).
fn lookup(server: &Origin, view: LookupView, now: u64) -> NameLookup {
    let next_us = if view.next == u64::MAX { 0 } else { view.next.saturating_sub(now) };
    NameLookup {
        server: server.to_string(),
        state: view.state.name().to_owned(),
        reason: view.reason,
        since: utc(view.since, now),
        answered: utc(view.answered, now),
        next_ms: next_us.div_ceil(1_000),
    }
}

/// A time of the monotonic clock by the wall clock; none for 0.
fn utc(at: u64, now: u64) -> Option<UtcTime> {
    (at > 0).then(|| UtcTime(clock::unix_us().saturating_sub(now.saturating_sub(at))))
}

/// An upstream's servers as the file writes them.
pub(super) fn servers(upstream: &Upstream) -> Vec<String> {
    match &upstream.target {
        Target::Demo => vec!["demo".to_owned()],
        Target::Servers(servers) => servers.iter().map(ToString::to_string).collect(),
    }
}
