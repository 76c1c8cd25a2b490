//! The steps of one decision, in order.
//!
//! Reading order: this file, `find` (whose credential a request has), `guesses` (addresses whose
//! credentials are not looked up), `split` (which upstream of a route with several), `waiting`
//! (requests that leaky buckets delay).

mod find;
mod guesses;
pub(super) mod split;
pub(super) mod waiting;

use std::net::SocketAddr;

use http::header;
use pingora::proxy::Session;

use super::Gateway;
use super::exchange::Exchange;
use crate::base::clock;
use crate::client::Client;
use crate::client::identity::Identity;
use crate::decide::decision::Decision;
use crate::decide::raw_head::RawHead;
use crate::decide::step::Step;
use crate::decide::{self, Head, Precheck, Rejection};
use crate::downstream::ConnectionInfo;
use crate::limit::charge::{Charge, Charges, Mode};
use crate::runtime::Snapshot;
use crate::store::bans::about::About;
use crate::store::held::Holds;
use crate::store::limiter::{Source, Taken};
use crate::upstream::load::Slot;
use crate::usage::days::tally::Counted;
use guesses::{Limited, NotFound};
use waiting::{Place, Wait};

/// What is decided about a request, and what it takes until its end.
pub struct Judged {
    pub decision: Decision,
    /// Who the client is; `None` if the request was refused before that was known.
    pub identity: Option<Identity>,
    /// Index of the route.
    pub route: Option<u32>,
    /// Index of the upstream, unless the request was refused before its limits were checked.
    pub upstream: Option<u32>,
    /// Path that the upstream gets, if the route rewrites it.
    pub(super) rewritten: Option<String>,
    /// Time of the check of the rate limits, if any rule applies.
    pub check: Option<CheckTime>,
    /// The units of limits on requests in flight that it holds. Released when they are dropped.
    pub(super) holds: Holds,
    /// Its place among the requests in flight at the upstream.
    pub(super) slot: Option<Slot>,
    /// The wait that leaky buckets demand, until it begins.
    pub(super) wait: Option<Wait>,
}

/// What decides which places a request needs before it takes tokens.
struct Wanted<'a> {
    /// Index of the upstream; `None`: the request is not forwarded.
    upstream: Option<u32>,
    /// Index of the client's plan.
    plan: u32,
    charges: &'a [Charge],
}

/// The places of a request, until it ends or its wait does.
#[derive(Default)]
struct Places {
    /// Among the requests in flight at the upstream, if their number is bounded or measured.
    slot: Option<Slot>,
    /// Among the requests that wait, if it may have to.
    queued: Option<Place>,
}

/// Time of a check of rate limits, in microseconds of the monotonic clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CheckTime {
    /// Time at which it began.
    pub started: u64,
    /// Its duration.
    pub took: u64,
}

impl CheckTime {
    /// Time at which the decision was known.
    const fn ended(self) -> u64 {
        self.started.saturating_add(self.took)
    }
}

impl Judged {
    /// A decision that takes nothing, about a request of which nothing more is known.
    pub fn of(decision: Decision) -> Self {
        Self {
            decision,
            identity: None,
            route: None,
            upstream: None,
            rewritten: None,
            check: None,
            holds: Holds::new(),
            slot: None,
            wait: None,
        }
    }
}

impl Gateway {
    /// Decides on a request and takes its tokens.
    pub(super) async fn judge(&self, session: &mut Session, exchange: &Exchange) -> Judged {
        let (snapshot, policy) = (&exchange.snapshot, &exchange.snapshot.policy);
        let head = head_over(session, &exchange.connection);
        let (found, limited) = NotFound::split(match decide::credential(policy, &head) {
            Ok(credential) => self.find(&head, credential.as_ref(), exchange).await,
            Err(rejection) => Box::pin(self.find_without_key(&head, rejection, exchange)).await,
        });
        let precheck = decide::precheck(policy, &head, found);
        let required_by = precheck.key_required_by();
        let Precheck { identity, is_own_limits, preflight, route, refusal, .. } = precheck;
        let Precheck { rewritten, charges, scope, .. } = precheck;
        let identity = match identity {
            Ok(identity) => identity,
            Err(rejection) => return Judged::of(Decision::Rejected(rejection)),
        };
        let client = &identity.client;
        let mut chosen = None;
        if refusal.is_none() {
            let route = route.and_then(|route| policy.routes.get(route as usize));
            chosen = route.and_then(|route| self.turns.upstream(policy, route, client));
        }
        let upstream = chosen.as_ref().map(|chosen| chosen.upstream);
        let judged = |identity, decision| Judged {
            identity: Some(identity),
            route,
            upstream,
            ..Judged::of(decision)
        };
        if preflight.is_some() && refusal.is_none() {
            return judged(identity, Decision::Preflight);
        }

        if let Some(rule) = required_by {
            self.refused_by_policy(snapshot, client, rule, Mode::Enforce);
        }
        let wanted = Wanted { upstream, plan: client.plan, charges: &charges };
        let mut places = Places::default();
        let mut steps = Step::ALL.into_iter();
        if let Err(rejection) =
            steps.try_for_each(|step| self.reserve(step, exchange, &wanted, &mut places))
        {
            return judged(identity, Decision::Rejected(rejection));
        }
        let (taken, check, holds) = match limited {
            None => self.take(snapshot, (client, route), charges).await,
            Some(limited) => self.take_nothing(snapshot, (client, route), *limited),
        };
        let mut decision = Decision::of(refusal, taken, || self.limiter.retry_after_us());
        let Decision::Allowed { check: checked, shadow_key_rules } = &mut decision else {
            return Judged { check, holds, ..judged(identity, decision) };
        };
        if is_own_limits {
            let checked = checked.take();
            let decision = Box::pin(self.own_limits(session, exchange, client, checked)).await;
            return Judged { check, holds, ..judged(identity, decision) };
        }
        if let Some(chosen) = &mut chosen {
            chosen.is_used = true;
        }
        let denials = |route| policy.shadow_key_denials(client, route, scope);
        for rule in route.into_iter().flat_map(denials) {
            self.refused_by_policy(snapshot, client, rule, Mode::Shadow);
            shadow_key_rules.push(rule);
        }
        let Places { slot, queued } = places;
        let wait = match (queued, checked) {
            (Some(queued), Some(checked)) => Wait::of(policy, checked, queued, check),
            _ => None,
        };
        Judged { rewritten, check, holds, slot, wait, ..judged(identity, decision) }
    }

    /// Counts a refusal of a client without a key by a rule that requires one, or by a shadow rule
    /// that would.
    fn refused_by_policy(&self, snapshot: &Snapshot, client: &Client, rule: u32, mode: Mode) {
        let (series, policy) = (&snapshot.series, &snapshot.policy);
        series.refused_by_policy(&self.metrics, policy, rule, client.plan, mode);
    }

    /// Takes a step that looks for a place for the request; the other steps are those of `decide`
    /// and of the store.
    ///
    /// # Errors
    /// No place is left.
    fn reserve(
        &self,
        step: Step,
        exchange: &Exchange,
        wanted: &Wanted<'_>,
        places: &mut Places,
    ) -> Result<(), Rejection> {
        let (snapshot, policy) = (&exchange.snapshot, &exchange.snapshot.policy);
        match (step, wanted.upstream) {
            (Step::Shed, Some(upstream)) => {
                places.slot =
                    self.enter(snapshot, upstream as usize, wanted.plan, exchange.started)?;
            }
            (Step::Queue, _) if waiting::can_delay(policy, wanted.charges) => {
                let queued = self.waiting.enter(policy.server.limits.max_waiting_requests);
                places.queued = Some(queued.ok_or(Rejection::QueueFull)?);
            }
            _ => {}
        }
        Ok(())
    }

    /// Adds a request that began at `now` to those in flight at its upstream.
    ///
    /// # Errors
    /// There are as many as may be.
    fn enter(
        &self,
        snapshot: &Snapshot,
        upstream: usize,
        plan: u32,
        now: u64,
    ) -> Result<Option<Slot>, Rejection> {
        let policy = &snapshot.policy;
        let max = policy.upstreams.get(upstream).and_then(|upstream| upstream.max_in_flight);
        let Some(load) = snapshot.loads.get(upstream) else { return Ok(None) };
        let slot = load.enter(max, &policy.priorities, plan, now);
        if slot.is_none() {
            snapshot.series.shed(&self.metrics, policy, upstream, plan);
        }
        slot.map(Some).ok_or(Rejection::Shed)
    }

    /// Takes the tokens of the charges; `None` if there are no charges.
    async fn take(
        &self,
        snapshot: &Snapshot,
        (client, route): (&Client, Option<u32>),
        mut charges: Charges,
    ) -> (Option<Taken>, Option<CheckTime>, Holds) {
        if charges.is_empty() {
            return (None, None, Holds::new());
        }
        if !snapshot.rates.is_empty() {
            snapshot.rates.apply(&mut charges);
        }
        let started = clock::now();
        let (taken, holds) = self.limiter.take(charges, &snapshot.stored_rules, started).await;
        let took = clock::now().saturating_sub(started);
        let check = CheckTime { started, took };
        self.note_check(snapshot, (client, route), &taken, check);
        (Some(taken), Some(check), holds)
    }

    /// Refuses a request by what was known before its client was.
    #[cold]
    fn take_nothing(
        &self,
        snapshot: &Snapshot,
        (client, route): (&Client, Option<u32>),
        limited: Limited,
    ) -> (Option<Taken>, Option<CheckTime>, Holds) {
        let Limited { taken, at, .. } = limited;
        let check = CheckTime { started: at, took: 0 };
        self.note_check(snapshot, (client, route), &taken, check);
        (Some(taken), Some(check), Holds::new())
    }

    /// Counts a check of rate limits, and what it took.
    fn note_check(
        &self,
        snapshot: &Snapshot,
        (client, route): (&Client, Option<u32>),
        taken: &Taken,
        CheckTime { started, took }: CheckTime,
    ) {
        self.observe_check(taken.source, took);
        snapshot.series.count(&self.metrics, &snapshot.policy, client.plan, taken);
        snapshot.consumption.record(&snapshot.policy, client, taken, started);
        if !taken.answer.allowed() && self.limiter.bans().are_used() {
            self.note_refusal(snapshot, client, taken);
        }
        if let Some(usage) = &self.usage {
            usage.ledger().note(counted(snapshot, client, route), taken, started);
        }
    }
}

/// A request, as usage counts it. `route` is the index of its route.
pub(super) fn counted<'a>(
    snapshot: &'a Snapshot,
    client: &'a Client,
    route: Option<u32>,
) -> Counted<'a> {
    Counted { policy: &snapshot.policy, generation: snapshot.generation, client, route }
}

impl Gateway {
    /// Counts a refusal by the rules that ban clients.
    #[cold]
    fn note_refusal(&self, snapshot: &Snapshot, client: &Client, taken: &Taken) {
        if matches!(taken.source, Source::Ban | Source::Policy) {
            return;
        }
        let (policy, now) = (&snapshot.policy, clock::now());
        for (charge, outcome) in taken.charges.iter().zip(&taken.answer.outcomes) {
            let Some(stored) = snapshot.stored_rules.get(charge.rule as usize) else { continue };
            if outcome.enough || charge.mode == Mode::Shadow || stored.ban.is_none() {
                continue;
            }
            let Some(rule) = policy.rules.get(charge.rule as usize) else { continue };
            self.limiter.bans().note(charge, stored, || About::of(policy, rule, client), now);
        }
    }
}

/// As [`head`], with what is known of the connection.
fn head_over<'a>(session: &'a Session, connection: &'a ConnectionInfo) -> Head<'a> {
    head(session)
        .with_certificate(connection.certificate_subject())
        .with_hidden_client(connection.is_client_hidden)
}

/// The parts of a request that the decision depends on.
pub(super) fn head(session: &Session) -> Head<'_> {
    let request = session.req_header();
    let peer = session.client_addr().and_then(|address| address.as_inet()).map(SocketAddr::ip);
    let raw = session.as_http1().map_or(RawHead::Plain, |http1| {
        let is_chunked = request.headers.contains_key(header::TRANSFER_ENCODING);
        RawHead::of(&http1.get_headers_raw_bytes(), is_chunked)
    });
    Head::of(request, request.raw_path(), peer, raw)
}
