//! Body of the response to a client that asks for its own limits: the rules that apply to it, and
//! the state of their buckets. Clients depend on the names, which `docs/own-limits.md` lists.

use serde::Serialize;

use crate::base::duration::seconds_up;
use crate::base::time::UtcTime;
use crate::client::address::{counted_address, counted_as};
use crate::client::{Client, ClientKey};
use crate::decide::applicability::{Subject, applicability};
use crate::decide::problem::retry_after_ms;
use crate::limit::charge::{Charge, Mode};
use crate::limit::cost::Cost;
use crate::limit::fixed_window::Overage;
use crate::limit::reading::Reading;
use crate::policy::charges::WhyNot;
use crate::policy::settings::HeaderStyle;
use crate::policy::{Dimension, OnFailure, Policy, Rule, WrittenLimit};
use crate::store::limiter::{Levels, Source, Taken};

/// Maximum number of rules in a response; a rule that counts each route separately takes one for
/// each route. It bounds the size of the response and the number of buckets that are read.
const MAX_RULES: usize = 100;

/// Maximum number of routes that are listed for one rule.
const MAX_ROUTES: usize = 20;

/// What is known of rules and clients now, beside levels.
pub(super) struct NowOf<'a> {
    /// Microseconds that are left of the ban of a charge's client, if it is banned.
    pub(super) ban_left_us: &'a dyn Fn(&Charge) -> Option<u64>,
    /// Share of its rate that the rule with this index has, in thousandths, if it adapts.
    pub(super) rate_share: &'a dyn Fn(u32) -> Option<u16>,
}

/// The rules that apply to a client, before any bucket is read.
#[derive(Debug)]
pub(super) struct ClientRules<'a> {
    policy: &'a Policy,
    client: Client,
    entries: Vec<ClientRule<'a>>,
    left_out: usize,
}

/// One rule; if the rule counts each route separately, on one route.
#[derive(Debug)]
struct ClientRule<'a> {
    index: u32,
    rule: &'a Rule,
    /// The limit of the client as it is written, if the rule applies.
    written: Option<WrittenLimit>,
    /// Index of the route, if the rule counts each route separately.
    route: Option<u32>,
    /// What the rule charges for the cheapest request, or why it charges nothing.
    charge: Result<Charge, WhyNot>,
    /// Dimensions of the bucket that are not known without a request.
    unknown: Vec<String>,
    shared: bool,
}

/// Body of the response.
#[derive(Debug, Serialize)]
pub(super) struct View<'a> {
    client: ClientView<'a>,
    /// Whether any rule limits the client.
    limited: bool,
    /// Whether the levels are those of this process, because Redis is unavailable or must not be
    /// queried again yet.
    approximate: bool,
    rules: Vec<RuleView<'a>>,
    /// Number of rules beyond [`MAX_RULES`].
    #[serde(skip_serializing_if = "is_zero")]
    left_out: usize,
}

/// The client that asks.
#[derive(Debug, Serialize)]
struct ClientView<'a> {
    /// `key`, `ip` or `unknown_key`.
    kind: &'static str,
    /// Id of the key, or the address that rules count; `None` for an unknown key.
    id: Option<String>,
    plan: &'a str,
    /// The address or network that rules count.
    counted_as: Option<String>,
}

/// A rule that applies to the client.
#[derive(Debug, Serialize)]
struct RuleView<'a> {
    name: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    description: Option<&'a str>,
    per: Vec<String>,
    /// Routes that the rule counts; empty if it counts all of them, at one cost.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    routes: Vec<RouteView<'a>>,
    /// Number of routes beyond [`MAX_ROUTES`].
    #[serde(skip_serializing_if = "is_zero")]
    more_routes: usize,
    #[serde(flatten)]
    effect: Effect,
}

/// A route, and the cost of a request there.
#[derive(Debug, Serialize)]
struct RouteView<'a> {
    name: &'a str,
    path: String,
    cost: Cost,
}

/// The effect of a rule on the client.
#[derive(Debug, Serialize)]
#[serde(untagged)]
enum Effect {
    Limits(Box<LimitView>),
    Exempts {
        /// Always true: the rule does not limit the client.
        exempt: bool,
    },
    RequiresKey {
        /// Always true: the rule refuses clients without a key.
        needs_key: bool,
    },
}

/// A limit of the client.
#[derive(Debug, Serialize)]
struct LimitView {
    /// Capacity of the bucket, in tokens.
    limit: u64,
    rate: Option<String>,
    /// Seconds in which an empty bucket becomes full; 0 for requests in flight.
    window_seconds: u64,
    /// Tokens that the cheapest request takes.
    cost: Cost,
    /// Whether other clients take from the same bucket.
    shared: bool,
    /// Dimensions of the bucket that are not known without a request.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    unknown: Vec<String>,
    /// `allow` or `deny` if Redis is unavailable and the rule allows or denies all requests then.
    #[serde(skip_serializing_if = "Option::is_none")]
    without_redis: Option<&'static str>,
    /// Tokens after which the client is warned.
    #[serde(skip_serializing_if = "Option::is_none")]
    soft: Option<u64>,
    /// `count` if requests beyond the limit are allowed.
    #[serde(skip_serializing_if = "Option::is_none")]
    overage: Option<&'static str>,
    /// Share of the rate that the rule has now, in percent, if it adapts to an upstream.
    #[serde(skip_serializing_if = "Option::is_none")]
    rate_percent: Option<f64>,
    /// Milliseconds that are left of the client's ban.
    #[serde(skip_serializing_if = "Option::is_none")]
    banned_for_ms: Option<u64>,
    #[serde(flatten)]
    left: Option<BucketView>,
}

/// State of a bucket.
#[derive(Debug, Serialize)]
struct BucketView {
    /// Whole tokens left: the number of requests of cost 1 that the bucket allows.
    remaining: u64,
    /// Seconds until the bucket is full.
    reset_seconds: u64,
    /// Tokens used beyond the limit; left out if there are none.
    #[serde(skip_serializing_if = "Option::is_none")]
    overage_used: Option<f64>,
    /// Milliseconds until a request of that cost is allowed; `None` if it is allowed now.
    #[serde(skip_serializing_if = "Option::is_none")]
    retry_after_ms: Option<u64>,
    /// What is left of the client's top-ups; left out if nothing is.
    #[serde(skip_serializing_if = "Option::is_none")]
    top_ups: Option<TopUpsView>,
}

/// What is left of a client's top-ups.
#[derive(Debug, Serialize)]
struct TopUpsView {
    /// Whole tokens, which those that remain include.
    remaining: u64,
    /// When the first of them expires.
    next_expires: UtcTime,
}

impl<'a> ClientRules<'a> {
    /// The enforced rules that apply to the client, in the order of the configuration file.
    pub(super) fn of(policy: &'a Policy, subject: &Subject<'_>) -> Self {
        let client = subject.client.clone();
        let mut rules = Self { policy, client, entries: Vec::new(), left_out: 0 };
        let is_enforced = |rule: &Rule| policy.mode_for(rule, subject.client) == Mode::Enforce;
        let enforced = |(_, rule): &(u32, &Rule)| rule.enabled && is_enforced(rule);
        for (index, rule) in (0..).zip(&policy.rules).filter(enforced) {
            let entry = ClientRule::of(policy, subject, index, rule);
            match entry.charge {
                Ok(_) if rule.per.contains(&Dimension::Route) => {
                    for route in policy.routes_of(index) {
                        let subject = Subject { route: Some(route), ..*subject };
                        rules.add(|| ClientRule::of(policy, &subject, index, rule));
                    }
                }
                Ok(_) | Err(WhyNot::ExemptAddress(_) | WhyNot::ExemptKey | WhyNot::NoKeyDenied) => {
                    rules.add(|| entry);
                }
                Err(_) => {}
            }
        }
        rules
    }

    fn add(&mut self, entry: impl FnOnce() -> ClientRule<'a>) {
        if self.entries.len() < MAX_RULES {
            self.entries.push(entry());
        } else {
            self.left_out += 1;
        }
    }

    /// The charges whose buckets are to be read.
    pub(super) fn charges(&self) -> Vec<Charge> {
        self.entries.iter().filter_map(ClientRule::known_charge).collect()
    }

    /// The decision of the rules that count by address on a request of the client. `levels` are
    /// those of [`charges`](Self::charges).
    pub(super) fn by_address(&self, levels: &Levels) -> Taken {
        let known = self.entries.iter().filter_map(|entry| Some((entry, entry.known_charge()?)));
        let each = known.zip(&levels.readings);
        let each = each.filter(|((entry, _), _)| entry.rule.per.contains(&Dimension::Ip));
        let (charges, readings) = each.map(|((_, charge), read)| (charge, *read)).unzip();
        Levels { readings, ..*levels }.decide(charges)
    }

    /// The body. `levels` are those of [`charges`](Self::charges); `now` is what else is known.
    pub(super) fn view(&self, levels: &Levels, now: &NowOf<'_>) -> View<'a> {
        let mut each_reading = levels.readings.iter();
        let each = self.entries.iter().map(|entry| {
            let reading = entry.known_charge().and_then(|_| each_reading.next());
            entry.view(self.policy, levels, reading.copied(), now)
        });
        let rules: Vec<RuleView<'a>> = each.collect();
        View {
            client: ClientView::of(self.policy, &self.client),
            limited: rules.iter().any(|rule| matches!(rule.effect, Effect::Limits(_))),
            approximate: self.policy.redis.is_some() && levels.source == Source::Local,
            rules,
            left_out: self.left_out,
        }
    }
}

impl<'a> ClientRule<'a> {
    fn of(policy: &'a Policy, subject: &Subject<'_>, index: u32, rule: &'a Rule) -> Self {
        let applicability = applicability(policy, subject, index, rule);
        let routes = policy.routes_of(index).filter(|one| subject.route.is_none_or(|r| r == *one));
        let costs = routes.filter_map(|route| policy.routes.get(route as usize));
        let cost = costs.map(|route| rule.cost_on(route)).min().unwrap_or(Cost::ONE);
        let own = applicability.own
            || rule.per.contains(&Dimension::Ip)
            || rule.per.contains(&Dimension::Certificate);
        let principal = subject.client.principal();
        let written = applicability.charge.ok();
        let written = written.and_then(|charge| rule.written(charge.limit_index, principal));
        Self {
            index,
            rule,
            written,
            route: subject.route,
            charge: applicability.charge.map(|charge| {
                let cost = cost.in_parts(charge.limit.parts());
                Charge { cost, ..charge }
            }),
            unknown: applicability.unknown.iter().map(ToString::to_string).collect(),
            shared: !own,
        }
    }

    /// The charge, if its bucket is known.
    fn known_charge(&self) -> Option<Charge> {
        self.charge.ok().filter(|_| self.unknown.is_empty())
    }

    fn view(
        &self,
        policy: &'a Policy,
        levels: &Levels,
        reading: Option<Reading>,
        now: &NowOf<'_>,
    ) -> RuleView<'a> {
        let Self { rule, .. } = self;
        let (routes, more_routes) = self.routes(policy);
        let effect = match &self.charge {
            Ok(charge) => {
                let limit = self.limit(policy, charge, levels, reading);
                let can_be = self.rule.ban.is_some() && charge.mode == Mode::Enforce;
                let banned = self.known_charge().filter(|_| can_be);
                let left_us = banned.as_ref().and_then(now.ban_left_us);
                let share = (now.rate_share)(self.index);
                let rate_percent = share.map(|share| f64::from(share) / 10.0);
                let limit = LimitView { rate_percent, ..limit.banned_for(left_us) };
                Effect::Limits(Box::new(limit))
            }
            Err(WhyNot::NoKeyDenied) => Effect::RequiresKey { needs_key: true },
            Err(_) => Effect::Exempts { exempt: true },
        };
        RuleView {
            name: &rule.name,
            description: rule.description.as_deref(),
            per: rule.per.iter().map(ToString::to_string).collect(),
            routes,
            more_routes,
            effect,
        }
    }

    /// The routes to list, and the number of those beyond [`MAX_ROUTES`].
    fn routes(&self, policy: &'a Policy) -> (Vec<RouteView<'a>>, usize) {
        let of_one = |one: &u32| self.route.is_none_or(|route| route == *one);
        let all = || {
            let routes = policy.routes_of(self.index).filter(of_one);
            routes.filter_map(|route| policy.routes.get(route as usize))
        };
        let cost_on = |route| self.rule.cost_on(route);
        let cost = all().next().map(cost_on);
        let at_one_cost = all().all(|route| Some(cost_on(route)) == cost);
        if self.route.is_none() && self.rule.routes.is_none() && at_one_cost {
            return (Vec::new(), 0);
        }
        let listed = all().take(MAX_ROUTES).map(|route| RouteView {
            name: &route.name,
            path: route.matcher.path.to_string(),
            cost: cost_on(route),
        });
        (listed.collect(), all().count().saturating_sub(MAX_ROUTES))
    }

    fn limit(
        &self,
        policy: &Policy,
        charge: &Charge,
        levels: &Levels,
        reading: Option<Reading>,
    ) -> LimitView {
        let Self { rule, .. } = self;
        let without_redis = match rule.on_failure {
            OnFailure::Allow if levels.is_local_fallback => Some("allow"),
            OnFailure::Deny if levels.is_local_fallback => Some("deny"),
            _ => None,
        };
        // If response headers do not show what other clients leave in a bucket, neither does this.
        let is_hidden = self.shared && policy.headers.style == HeaderStyle::None;
        let reading = reading.filter(|_| without_redis.is_none() && !is_hidden);
        let left = reading.map(|Reading { level, times, top_ups }| {
            let standing = charge.limit.standing(level, charge.cost, levels.share, times);
            let wait = standing.retry_after_us;
            BucketView {
                remaining: standing.remaining,
                reset_seconds: seconds_up(standing.reset_us),
                overage_used: overage_used(charge, level),
                retry_after_ms: (wait > 0).then(|| retry_after_ms(wait)),
                top_ups: (top_ups.units > 0).then(|| TopUpsView {
                    remaining: u64::try_from(charge.limit.tokens(top_ups.units)).unwrap_or(0),
                    next_expires: UtcTime(top_ups.expires_us),
                }),
            }
        });
        LimitView {
            limit: charge.limit.capacity(),
            rate: self.written.map(|written| written.to_string()),
            window_seconds: charge.limit.window_seconds().unwrap_or(0),
            cost: charge.cost_in_tokens(),
            shared: self.shared,
            unknown: self.unknown.clone(),
            without_redis,
            soft: charge.limit.soft_thousandths().map(|soft| soft_tokens(charge, soft)),
            overage: charge.counts_overage().then(|| Overage::Count.name()),
            rate_percent: None,
            banned_for_ms: None,
            left,
        }
    }
}

/// Tokens of a quota after which its client is warned.
fn soft_tokens(charge: &Charge, soft: u16) -> u64 {
    let share = u128::from(charge.limit.capacity()) * u128::from(soft);
    u64::try_from(share.div_ceil(1_000)).unwrap_or(u64::MAX)
}

/// Tokens that were used beyond a quota which allows it.
#[allow(clippy::cast_precision_loss, reason = "units are at most 2^53")]
fn overage_used(charge: &Charge, level: i64) -> Option<f64> {
    let is_over = charge.counts_overage() && level < 0;
    is_over.then(|| level.saturating_neg() as f64 / charge.limit.parts() as f64)
}

impl LimitView {
    /// The same, with what is left of a ban.
    fn banned_for(self, left_us: Option<u64>) -> Self {
        Self { banned_for_ms: left_us.map(retry_after_ms), ..self }
    }
}

impl<'a> ClientView<'a> {
    fn of(policy: &'a Policy, client: &Client) -> Self {
        let prefix = policy.clients.ipv6_prefix;
        let counted = client.ip.map(|ip| counted_as(counted_address(ip, prefix), prefix));
        let (kind, id) = match &client.key {
            ClientKey::Known(known) => {
                let kind = if known.token.is_some() { "token" } else { "key" };
                (kind, Some(known.id.to_string()))
            }
            ClientKey::Unknown(_) => ("unknown_key", None),
            ClientKey::Missing => ("ip", counted.clone()),
        };
        Self { kind, id, plan: policy.plan_name(client.plan), counted_as: counted }
    }
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "the signature that serde calls")]
fn is_zero(number: &usize) -> bool {
    *number == 0
}

#[cfg(test)]
mod tests;
