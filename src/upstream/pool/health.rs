//! How the states of the endpoints of a pool change: by connections, requests, health checks and
//! orders of operators.

use std::net::SocketAddr;
use std::sync::Arc;

use tokio::task::JoinSet;
use tracing::{debug, info, warn};

use super::{Listed, Pool};
use crate::base::clock;
use crate::policy::failures::ServerFailure;
use crate::policy::health::{Eject, HealthChecks};
use crate::upstream::check;
use crate::upstream::dial::Raced;
use crate::upstream::endpoint::{CheckTurn, EndpointState, InFlight};
use crate::upstream::health::{
    CheckFailure, EjectReason, Endpoints, HealthView, Order, State, Suspicion,
};

impl Pool {
    /// Logs that the state of an endpoint has changed.
    pub(super) fn log(&self, endpoint: SocketAddr, health: &HealthView, now: u64) {
        let HealthView { state, reason, until, .. } = health;
        let (upstream, state) = (&*self.name, state.name());
        match health.state {
            State::Up => info!(upstream, %endpoint, state, "endpoint gets requests"),
            State::Unchecked => debug!(upstream, %endpoint, state, "endpoint is not checked yet"),
            State::Drained | State::Disabled => {
                info!(upstream, %endpoint, state, reason, "endpoint gets no requests");
            }
            State::Unreachable | State::Ejected => {
                let for_ms = until.saturating_sub(now) / 1_000;
                warn!(upstream, %endpoint, state, reason, for_ms, "endpoint gets no requests");
            }
            State::Unhealthy | State::Unresolved => {
                warn!(upstream, %endpoint, state, reason, "endpoint gets no requests");
            }
        }
    }

    /// Notes that a connection to an endpoint failed at `now` (microseconds): it gets no requests
    /// for 5 s. Returns why it was ejected for longer, if it was.
    pub(crate) fn unreachable(&self, endpoint: &InFlight, now: u64) -> Option<EjectReason> {
        endpoint.state().health().unreachable(now);
        self.follow_state(now);
        self.observe(endpoint, Some(ServerFailure::Connect), now)
    }

    /// Notes that the addresses whose attempts had begun before that of `raced` had not connected
    /// by `now` (microseconds), as [`unreachable`](Self::unreachable).
    #[cold]
    pub(crate) fn lost_to(&self, raced: &Raced, now: u64) -> Vec<EjectReason> {
        let lost = raced.lost.iter().filter_map(|lost| self.begin_at(*lost));
        lost.filter_map(|lost| self.unreachable(&lost, now)).collect()
    }

    /// Notes that a new connection to an endpoint succeeded at `now` (microseconds).
    pub(crate) fn reachable(&self, endpoint: &InFlight, now: u64) {
        let has_changed = endpoint.state().health().reachable(now);
        if has_changed {
            self.follow_state(now);
        }
    }

    /// Notes that a request to an endpoint failed at `now` (microseconds), or succeeded. Returns
    /// why the endpoint was ejected, if it was.
    pub(crate) fn observe(
        &self,
        endpoint: &InFlight,
        failure: Option<ServerFailure>,
        now: u64,
    ) -> Option<EjectReason> {
        let eject = self.upstream.eject.as_ref()?;
        let has_failed = failure.is_some_and(|failure| eject.on.has(failure));
        let suspicion = endpoint.state().health().observe(has_failed, eject, now)?;
        let reason = self.eject(endpoint, suspicion, eject, now)?;
        self.follow_state(now);
        Some(reason)
    }

    /// Ejects an endpoint at `now` (microseconds), unless too many are, or others fail as well.
    #[cold]
    fn eject(
        &self,
        endpoint: &InFlight,
        suspicion: Suspicion,
        eject: &Eject,
        now: u64,
    ) -> Option<EjectReason> {
        // Two endpoints are not judged at a time.
        let _replacing = self.replacing.lock();
        let suspect = endpoint.state();
        let mut endpoints = Endpoints::default();
        for Listed { state, .. } in &*self.active.load().all {
            let is_suspect = state.address == suspect.address;
            endpoints.add(&state.health(), is_suspect, eject, now);
        }
        let reason = endpoints.verdict(suspicion, eject)?;
        let mut health = suspect.health();
        if health.is_ejected(now) {
            return None;
        }
        health.eject(reason, eject, now);
        Some(reason)
    }

    /// Gives an order for an endpoint, by its address, or for a server as the file writes it, with
    /// or without its scheme; `None` takes it back. Returns whether there is such a server.
    pub fn order(&self, server: &str, order: Option<Order>) -> bool {
        let text = server.rsplit_once("://").map_or(server, |(_, rest)| rest);
        let endpoint: Option<SocketAddr> = text.parse().ok();
        let mut is_known = false;
        for named in &self.servers {
            let origin = &named.server.origin;
            if origin.to_string().eq_ignore_ascii_case(text) {
                self.orders.set_server(origin, &named.addresses(), order);
                is_known = true;
            } else if let Some(endpoint) = endpoint.filter(|it| named.has(*it)) {
                self.orders.set_endpoint(origin, endpoint, order);
                is_known = true;
            }
        }
        self.update();
        is_known
    }

    /// Begins the health checks that are due at `now`, with this many gateways. Also returns when
    /// the next one is due. Times are microseconds.
    pub(crate) fn due_checks(&self, gateways: u32, now: u64) -> (Vec<CheckTurn>, u64) {
        let Some(checks) = &self.upstream.health else { return (Vec::new(), u64::MAX) };
        let mut next = u64::MAX;
        let mut turns = Vec::new();
        for Listed { state, .. } in &*self.active.load().all {
            let due = state.next_check();
            if due > now {
                next = next.min(due);
                continue;
            }
            turns.extend(self.begin_check(state, checks, gateways, now));
        }
        (turns, next)
    }

    fn begin_check(
        &self,
        state: &Arc<EndpointState>,
        checks: &Arc<HealthChecks>,
        gateways: u32,
        now: u64,
    ) -> Option<CheckTurn> {
        let pause_us = check::pause_us(checks.interval, gateways, self.rounds.random());
        state.begin_check(checks, now, now.saturating_add(pause_us))
    }

    /// Checks the health of an endpoint.
    ///
    /// # Errors
    /// The check failed.
    pub(crate) async fn check(self: &Arc<Self>, turn: CheckTurn) -> Result<(), CheckFailure> {
        let result = check::check(self, turn.endpoint.address, &turn.checks).await;
        let now = clock::now();
        let has_changed = turn.endpoint.health().checked(result.clone(), &turn.checks, now);
        if has_changed {
            self.follow_state(now);
        }
        result
    }

    /// Checks the endpoints that have not been checked yet.
    pub(super) async fn check_new(self: &Arc<Self>) {
        let Some(health) = &self.upstream.health else { return };
        let now = clock::now();
        let mut checks = JoinSet::new();
        for Listed { state, .. } in &*self.active.load_full().all {
            let is_new = state.health().is_unchecked();
            if let Some(turn) = is_new.then(|| self.begin_check(state, health, 1, now)).flatten() {
                let pool = Arc::clone(self);
                checks.spawn(async move { pool.check(turn).await });
            }
        }
        while checks.join_next().await.is_some() {}
    }
}
