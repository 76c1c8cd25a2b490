//! Derives the explanation of a request: client, route and verdict.

use std::collections::HashSet;

use http::StatusCode;

use super::report::{self, Candidate, Explanation, Param, Reading, SplitShare, Verdict};
use super::request::HypotheticalRequest;
use super::rules::rules;
use super::{PeekResult, cors, wording};
use crate::base::text::cut;
use crate::client::ClientKey;
use crate::client::address::{counted_address, counted_as};
use crate::client::identity::Identity;
use crate::client::principal::KeyRefusal;
use crate::decide::reason::Reason;
use crate::decide::{self, Head, Precheck, Refusal, Rejection, own_key, problem};
use crate::limit::charge::Mode;
use crate::limit::verdict::{self, Standing};
use crate::net::grpc::Form;
use crate::policy::charges::Scope;
use crate::policy::cors::Preflight;
use crate::policy::errors::PROBLEM_JSON;
use crate::policy::matcher::{Matcher, TrailingSlash};
use crate::policy::path::Readings;
use crate::policy::retries::Retries;
use crate::policy::settings::Upstream;
use crate::policy::split::{Destination, Split};
use crate::policy::{Policy, Route};
use crate::store::limiter::{Source, Taken};

/// How much of the subject of a certificate is shown, in characters.
const MAX_SUBJECT: usize = 200;

/// The explanation of a request.
pub(super) fn explanation(
    policy: &Policy,
    request: &HypotheticalRequest,
    precheck: &Precheck<'_>,
    levels: PeekResult<'_>,
) -> Explanation {
    let head = request.head();
    let refused = precheck.refused().map(|refusal| problem::refused(policy, refusal));
    let status = refused.as_ref().map_or(0, |(status, _)| status.as_u16());
    let assumed = [(request.host_is_assumed, "host"), (request.ip_is_assumed, "ip")];
    Explanation {
        request: report::Request {
            method: head.method.to_string(),
            host: precheck.host.to_string(),
            path: head.uri.path().to_owned(),
            assumed: assumed.iter().filter(|(is, _)| *is).map(|(_, name)| *name).collect(),
        },
        client: precheck
            .identity
            .as_ref()
            .ok()
            .map(|identity| client(policy, &head, identity, precheck)),
        route: routed(policy, &head, precheck),
        cors: cors::cors(policy, &head, precheck),
        rules: rules(policy, &head, precheck, levels, status),
        levels: match levels {
            PeekResult::NotRead => "not_read",
            PeekResult::NoBuckets => "none",
            PeekResult::Read { taken, .. } => match taken.source {
                Source::Redis | Source::Cache | Source::Lease => "redis",
                Source::Local => "local",
                Source::Policy => "unavailable",
                Source::Ban => "not_read",
            },
        },
        verdict: {
            let verdict = verdict(policy, precheck, levels);
            Verdict { body: body(policy, &head, &verdict), ..verdict }
        },
    }
}

/// Media type of the body of a refusal, or of the 429 that the buckets may lead to; none if the
/// file has no body for the status.
fn body(policy: &Policy, head: &Head<'_>, verdict: &Verdict) -> Option<String> {
    let status = match (verdict.decision, verdict.status) {
        ("deny", status) => StatusCode::from_u16(status?).ok()?,
        ("depends", _) => problem::LIMITED,
        _ => return None,
    };
    let errors = policy.errors.as_ref().filter(|errors| !errors.of(status).is_empty())?;
    if Form::of(head.headers).is_some() {
        return None;
    }
    let body = errors.body(status, head.headers);
    Some(body.map_or(PROBLEM_JSON, |body| &body.media_type).to_owned())
}

fn client(
    policy: &Policy,
    head: &Head<'_>,
    identity: &Identity,
    precheck: &Precheck<'_>,
) -> report::ExplainedClient {
    let Identity { client, address_from, key_from, .. } = identity;
    let forwarded = head.headers.contains_key("x-forwarded-for");
    let (address_from, hop, address_why) = wording::address_from(*address_from, forwarded);
    let ipv6_prefix = policy.clients.ipv6_prefix;
    let counted = client.ip.map(|ip| counted_address(ip, ipv6_prefix));
    let (key, key_state) = match &client.key {
        ClientKey::Known(known) => {
            let state = match identity.key_refusal {
                None => "known",
                Some(KeyRefusal::NotYetValid) => "not_yet_valid",
                Some(KeyRefusal::Expired) => "expired",
                Some(KeyRefusal::Disabled) => "disabled",
                Some(KeyRefusal::Unverified | KeyRefusal::Unchecked | KeyRefusal::NoAnswer) => {
                    "unverified"
                }
                Some(KeyRefusal::Denied(_)) => "denied",
                Some(KeyRefusal::Password) => "wrong_password",
                Some(KeyRefusal::Token(why)) => Reason::from(why).label(),
            };
            (Some(known.id.to_string()), state)
        }
        _ if let Some(KeyRefusal::Unverified | KeyRefusal::Unchecked) = identity.key_refusal => {
            (None, "unverified")
        }
        _ if identity.key_refusal == Some(KeyRefusal::Password) => (None, "wrong_password"),
        _ if let Some(KeyRefusal::Token(why)) = identity.key_refusal => {
            (None, Reason::from(why).label())
        }
        ClientKey::Unknown(_) => (None, "unknown"),
        ClientKey::Missing if key_from.is_some() => (None, "unknown_as_none"),
        ClientKey::Missing if precheck.scope == Scope::Preflight => (None, "preflight"),
        ClientKey::Missing if policy.clients.on_unknown_key.is_none() => (None, "not_read"),
        ClientKey::Missing => (None, "none"),
    };
    let source = key_from.and_then(|index| policy.clients.key_sources.get(index));
    report::ExplainedClient {
        address: client.ip,
        address_from,
        hop,
        address_why,
        address_refused: match precheck.refusal {
            Some(Refusal::Rejected(Rejection::IpDenied(denial))) => Some(denial.words()),
            _ => None,
        },
        counted_as: counted.map(|ip| counted_as(ip, ipv6_prefix)),
        plan_from: if key.is_some() { "key" } else { "anonymous_plan" },
        key,
        key_state,
        key_from: source.map(wording::key_source),
        cert: head.certificate.map(|subject| cut(subject, MAX_SUBJECT)),
        tenant: client.tenant.as_ref().map(|tenant| tenant.id.to_string()),
        plan: policy.plan_name(client.plan).to_owned(),
        priority: policy.priorities.number(client.plan),
    }
}

/// The route, and the other candidates. That of a preflight request which the gateway answers is
/// the route of the request that it is about.
fn routed(policy: &Policy, head: &Head<'_>, precheck: &Precheck<'_>) -> report::ExplainedRoute {
    match &precheck.preflight {
        Some(Preflight { method, .. }) => route(policy, &Head { method, ..*head }, precheck),
        None => route(policy, head, precheck),
    }
}

/// The route, and the other candidates.
fn route(policy: &Policy, head: &Head<'_>, precheck: &Precheck<'_>) -> report::ExplainedRoute {
    if precheck.identity.is_err() {
        let why = "no route is selected: the request is refused before".to_owned();
        return report::ExplainedRoute { why, ..report::ExplainedRoute::default() };
    }
    if precheck.is_own_limits {
        let why = match *head.method {
            _ if own_key::is_asked(policy, head.method) => {
                "the gateway itself replaces the client's key (`clients.limits_path`)"
            }
            _ => "the gateway itself responds with the client's limits (`clients.limits_path`)",
        };
        return report::ExplainedRoute { why: why.to_owned(), ..report::ExplainedRoute::default() };
    }
    let readings = match policy.router.readings(head.uri.path()) {
        Ok(readings) => readings,
        Err(error) => {
            return report::ExplainedRoute {
                why: error.to_string(),
                ..report::ExplainedRoute::default()
            };
        }
    };
    let mut route = report::ExplainedRoute::default();
    if readings.len() > 1 {
        route.readings = self::readings(policy, head, &precheck.host, &readings);
    }
    let Some(reading) = readings.first() else { return route };
    let winner = precheck.route.and_then(|route| policy.routes.get(route as usize));
    if let Some(Refusal::Rejected(Rejection::Path(error))) = precheck.refusal {
        route.why = error.to_string();
    } else if let Some(winner) = winner {
        route.candidates = candidates(policy, head, &precheck.host, reading, winner);
        let why = route.candidates.iter().find(|candidate| candidate.wins);
        route.why = why.map_or_else(String::new, |winner| winner.why.clone());
        route.name = Some(winner.name.to_string());
        let params = winner.matcher.params(head.uri.path()).into_iter();
        let params =
            params.map(|(name, value)| Param { name: name.to_owned(), value: value.to_owned() });
        route.params = params.collect();
        route.cost = Some(winner.cost);
        route.handling = winner.handling_words();
        let asked = policy.forward_auth_of(precheck.route);
        if asked.is_some_and(|settings| settings.client.is_some()) {
            route.handling.push("forward_auth names the client, and no key is read".to_owned());
        }
        let rewritten = decide::rewritten(policy, head, &precheck.host, precheck.route);
        route.upstream_path = rewritten.ok().flatten();
        let client = precheck.identity.as_ref().ok().map(|identity| &identity.client);
        let upstream = match &winner.destination {
            Destination::Gateway => None,
            Destination::One(upstream) => Some(*upstream),
            Destination::Split(split) => {
                client.and_then(|client| split.of_client(client, policy.clients.ipv6_prefix))
            }
        };
        let upstream = upstream.and_then(|upstream| policy.upstreams.get(upstream as usize));
        if let Some(upstream) = upstream {
            add_upstream(&mut route, winner, upstream);
        }
        route.split_by = winner.destination.split().map(|split| split.by.name());
        route.split = split_shares(policy, &winner.destination);
    } else {
        route.candidates = near_misses(policy, head, &precheck.host, reading);
        route.why = match route.candidates.as_slice() {
            [] => "no route has such a host and path".to_owned(),
            _ => "no route matches; these differ in one criterion".to_owned(),
        };
    }
    route
}

/// Adds what the upstream of a request says, as far as its route `winner` does not replace it.
fn add_upstream(route: &mut report::ExplainedRoute, winner: &Route, upstream: &Upstream) {
    route.upstream = Some(upstream.name.to_string());
    route.balance = wording::balance(upstream);
    route.max_in_flight = upstream.max_in_flight.map(|most| most.to_string());
    let limits = upstream.time_limits;
    let limits = winner.time_limits.as_deref().map_or(limits, |own| limits.without(*own));
    route.time_limits = Some(limits).filter(|limits| !limits.is_empty()).map(|l| l.to_string());
    let retries = Some(upstream.retries).filter(|retries| *retries != Retries::default());
    let retries = retries.filter(|_| winner.retries.is_none());
    route.retries = retries.map(|retries| retries.to_string());
    let compression = Some(&upstream.compression).filter(|own| !own.is_off());
    let compression = compression.filter(|_| winner.compression.is_none());
    route.compress = compression.map(ToString::to_string);
    let mirror = upstream.mirror.as_ref().filter(|_| winner.mirror.is_none());
    route.mirror = mirror.map(ToString::to_string);
}

/// The readings of the path, and the route of each. What some servers read as the host is a reading
/// of its own.
fn readings(policy: &Policy, head: &Head<'_>, host: &str, readings: &Readings<'_>) -> Vec<Reading> {
    let route = |host: &str, reading: &str| {
        let route = policy.router.find_reading(host, reading, head.parts()).ok()??;
        Some(policy.routes.get(route as usize)?.name.to_string())
    };
    let of_request = readings.iter().map(|reading| Reading {
        path: reading.to_string(),
        host: None,
        route: route(host, reading),
    });
    let own = policy.router.network_path(head.uri.path()).ok().flatten();
    let of_path = own.iter().flat_map(|own| {
        own.readings.iter().map(|reading| Reading {
            path: reading.to_string(),
            host: Some(cut(own.authority, MAX_SUBJECT)),
            route: own.host.as_ref().and_then(|host| route(host, reading)),
        })
    });
    of_request.chain(of_path).collect()
}

/// The upstreams of a route with several; empty for a route with one.
pub(crate) fn split_shares(policy: &Policy, destination: &Destination) -> Vec<SplitShare> {
    let shares = destination.split().into_iter().flat_map(Split::shares);
    let named = shares.filter_map(|share| {
        let upstream = policy.upstreams.get(share.upstream as usize)?.name.to_string();
        Some(SplitShare { upstream, weight: share.weight })
    });
    named.collect()
}

/// The routes whose host and path match, and why `winner` is the most specific one.
fn candidates(
    policy: &Policy,
    head: &Head<'_>,
    host: &str,
    reading: &str,
    winner: &Route,
) -> Vec<Candidate> {
    let mut seen = HashSet::new();
    let routes: Vec<&Route> = policy
        .router
        .candidates(host, reading)
        .filter(|candidate| seen.insert(candidate.route))
        .filter_map(|candidate| policy.routes.get(candidate.route as usize))
        .collect();
    let takes = |matcher: &Matcher| matcher.conditions.hold(head.parts());
    let place = routes.iter().position(|route| route.name == winner.name).unwrap_or_default();
    let next = routes.iter().skip(place + 1).find(|route| takes(&route.matcher));
    let is_other =
        |matcher: &Matcher| matcher.is_slash_variant(reading, policy.server.ignore_path_case);
    let each = routes.iter().map(|route| {
        let wins = route.name == winner.name;
        let why = if wins {
            let why = next.map_or("the only route that matches", |next| {
                wording::precedence_reason(&winner.matcher, &next.matcher, host)
            });
            if is_other(&winner.matcher) {
                format!("{why}; it ignores a trailing slash")
            } else {
                why.to_owned()
            }
        } else if takes(&route.matcher) {
            let why = wording::precedence_reason(&winner.matcher, &route.matcher, host);
            format!("matches too, but {why}")
        } else {
            route.matcher.conditions.why_not(head.parts())
        };
        candidate(route, wins, why)
    });
    each.collect()
}

/// The routes that differ from the request in one criterion.
fn near_misses(policy: &Policy, head: &Head<'_>, host: &str, reading: &str) -> Vec<Candidate> {
    let ignore_case = policy.server.ignore_path_case;
    let is_root_alone = policy.routes.iter().all(|route| route.matcher.path.is_root());
    let each = policy.routes.iter().filter_map(|route| {
        let fit =
            |matcher: &Matcher| matcher.matched_parts(host, reading, head.parts(), ignore_case);
        let matcher = &route.matcher;
        let same = Matcher { trailing_slash: TrailingSlash::Same, ..matcher.clone() };
        let parts = fit(matcher);
        let is_above = parts.host
            && parts.conditions
            && (is_root_alone || matcher.is_above(reading, ignore_case));
        let why = match wording::difference(parts, matcher, host, head.parts()) {
            None if fit(&same).all() => "its `trailing_slash` is \"distinct\"".to_owned(),
            None if is_above => wording::only_this_path(matcher),
            why => why?,
        };
        Some(candidate(route, false, why))
    });
    each.collect()
}

fn candidate(route: &Route, wins: bool, why: String) -> Candidate {
    Candidate {
        name: route.name.to_string(),
        path: route.matcher.path.to_string(),
        trailing_slash: route.matcher.trailing_slash.name(),
        host: route.matcher.hosts.text(),
        methods: route.matcher.conditions.methods.iter().map(ToString::to_string).collect(),
        conditions: route.matcher.conditions.value_words(),
        wins,
        why,
    }
}

/// The verdict, as far as it is known.
fn verdict(policy: &Policy, precheck: &Precheck<'_>, levels: PeekResult<'_>) -> Verdict {
    let shadow = shadow_refusals(policy, precheck, levels);
    let of_levels = match levels {
        PeekResult::Read { taken, retry_after_us } if taken.source == Source::Policy => {
            unavailable(retry_after_us)
        }
        PeekResult::Read { taken, .. } => reported(policy, precheck, taken),
        PeekResult::NotRead | PeekResult::NoBuckets => Verdict::default(),
    };
    if of_levels.decision == "deny" {
        return Verdict { shadow_refusals: shadow, ..of_levels };
    }
    let charges = match levels {
        PeekResult::Read { taken, .. } => &taken.charges,
        PeekResult::NotRead | PeekResult::NoBuckets => &precheck.charges,
    };
    let is_enforced = charges.iter().any(|charge| charge.mode == Mode::Enforce);
    let depends_on_levels = matches!(levels, PeekResult::NotRead) && is_enforced;
    let (decision, status, why) = match precheck.refused() {
        Some(refusal) => {
            let (status, detail) = problem::refused(policy, refusal);
            let first =
                if depends_on_levels { " A limit may refuse it first, with 429." } else { "" };
            ("deny", Some(status.as_u16()), format!("{detail}{first}"))
        }
        None if precheck.preflight.is_some() => {
            let why = "The gateway itself answers this CORS preflight request and takes no tokens.";
            ("allow", None, why.to_owned())
        }
        None if precheck.is_own_limits => {
            ("allow", None, "The gateway itself responds and takes no tokens.".to_owned())
        }
        None if depends_on_levels => {
            let why = "allowed if every bucket holds the cost.";
            ("depends", None, why.to_owned())
        }
        None if is_enforced => ("allow", None, "Every bucket holds the cost.".to_owned()),
        None => ("allow", None, "No enforced rule applies.".to_owned()),
    };
    Verdict { decision, status, why, shadow_refusals: shadow, ..of_levels }
}

/// The denial by a limit, or the tokens left under the reported rule.
fn reported(policy: &Policy, precheck: &Precheck<'_>, taken: &Taken) -> Verdict {
    let verdict = verdict::Verdict::of(&taken.charges, &taken.answer);
    let index = verdict.reported_charge();
    let charged = index
        .and_then(|index| Some((taken.charges.get(index)?, taken.answer.outcomes.get(index)?)));
    let Some((charge, outcome)) = charged else { return Verdict::default() };
    let standing = index.and_then(|index| taken.standing(index));
    let standing = standing.unwrap_or_else(|| Standing::of(charge, outcome));
    let name = policy.rules.get(charge.rule as usize).map(|rule| rule.name.to_string());
    let view = Verdict { rule: name, remaining: Some(standing.remaining), ..Verdict::default() };
    if !matches!(verdict, verdict::Verdict::Refused { .. }) {
        return view;
    }
    let unauthenticated = match precheck.refusal {
        Some(Refusal::Unauthenticated(reason)) => Some(reason),
        Some(Refusal::Rejected(_)) | None => None,
    };
    let identity = precheck.identity.as_ref();
    let client = identity.ok().map(|identity| &identity.client);
    let retry_after_ms = problem::retry_after_ms(standing.retry_after_us);
    Verdict {
        decision: "deny",
        status: Some(problem::LIMITED.as_u16()),
        why: match taken.banned {
            Some(_) => problem::banned(policy, charge, retry_after_ms),
            None => problem::limited(policy, client, charge, retry_after_ms, unauthenticated),
        },
        retry_after_ms: Some(retry_after_ms),
        ..view
    }
}

/// The denial by a rule with `on_failure = "deny"` while Redis is unavailable.
fn unavailable(retry_after_us: u64) -> Verdict {
    let (status, why) = problem::UNAVAILABLE;
    Verdict {
        decision: "deny",
        status: Some(status.as_u16()),
        why: why.to_owned(),
        retry_after_ms: Some(problem::retry_after_ms(retry_after_us)),
        ..Verdict::default()
    }
}

/// The shadow rules that would refuse the request if they were enforced.
fn shadow_refusals(
    policy: &Policy,
    precheck: &Precheck<'_>,
    levels: PeekResult<'_>,
) -> Vec<String> {
    let (charges, outcomes) = match levels {
        PeekResult::Read { taken, .. } => (&taken.charges[..], &taken.answer.outcomes[..]),
        PeekResult::NotRead | PeekResult::NoBuckets => (&[][..], &[][..]),
    };
    let lacking = charges
        .iter()
        .zip(outcomes)
        .filter(|(charge, outcome)| charge.mode == Mode::Shadow && !outcome.enough)
        .map(|(charge, _)| charge.rule);
    let client = precheck.identity.as_ref().ok().filter(|_| precheck.refusal.is_none());
    let demands = client.zip(precheck.route).into_iter().flat_map(|(identity, route)| {
        policy.shadow_key_denials(&identity.client, route, precheck.scope).collect::<Vec<_>>()
    });
    let mut rules: Vec<u32> = lacking.chain(demands).collect();
    rules.sort_unstable();
    let names = rules.into_iter().filter_map(|rule| policy.rules.get(rule as usize));
    names.map(|rule| rule.name.to_string()).collect()
}
