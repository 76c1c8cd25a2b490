//! The explanation of each rule: whether it applies to the request, its charge, and its bucket.

use std::borrow::Cow;

use super::PeekResult;
use super::report::{self, Level};
use super::wording;
use crate::client::address::{counted_address, counted_as};
use crate::client::identity::Identity;
use crate::client::{Client, ClientKey};
use crate::decide::{Head, Precheck, Refusal, Rejection};
use crate::limit::charge::Charge;
use crate::limit::fixed_window::Overage;
use crate::policy::charges::{GrantOf, RequestAttributes, WhyNot};
use crate::policy::{Dimension, Lease, OnMissing, Policy, Rule, WrittenLimit};
use crate::store::limiter::Source;
use crate::store::redis::keys::key_with;
use crate::store::rule::StoredRule;

/// All rules, in the order of the configuration file. `status` is that of a refusal before any rule
/// is checked.
pub(super) fn rules(
    policy: &Policy,
    head: &Head<'_>,
    precheck: &Precheck<'_>,
    levels: PeekResult<'_>,
    status: u16,
) -> Vec<report::ExplainedRule> {
    let is_refused = precheck.refused().is_some();
    let is_preflight = precheck.preflight.is_some();
    // A request with a header that cannot be counted is refused before any rule is checked, and so
    // is one without a URL to be redirected to, unless it may be a guess at a key.
    let is_before = match precheck.refusal {
        Some(Refusal::Rejected(Rejection::Header(_))) => true,
        Some(Refusal::Rejected(Rejection::NoLocation(_))) => precheck.charges.is_empty(),
        _ => is_preflight,
    };
    let known =
        precheck.identity.as_ref().ok().zip(attributes(head, precheck)).filter(|_| !is_before);
    let each = (0..).zip(&policy.rules).map(|(index, rule)| {
        let mut view = report::ExplainedRule {
            name: rule.name.to_string(),
            applies: false,
            mode: rule.mode.name(),
            enforce: rule.enforce_words(),
            on_failure: rule.on_failure.name(),
            lease: (rule.lease != Lease::Off).then(|| rule.lease.to_string()),
            count: rule.count.as_ref().map(ToString::to_string),
            ban: rule.ban.map(|ban| ban.to_string()),
            banned_for_ms: banned_for_ms(levels, index),
            adapt: rule.adapt_words(policy),
            rate_percent: None,
            refund_on: rule.refund_on.names(),
            per: rule.per.iter().map(ToString::to_string).collect(),
            why_not: None,
            charge: None,
        };
        let Some((identity, attributes)) = &known else {
            let refused = is_refused.then(|| wording::refused_before(status));
            let answered =
                || if is_preflight { wording::preflight() } else { wording::own_limits() };
            view.why_not = Some(refused.unwrap_or_else(answered));
            return view;
        };
        let attributes = &of_rule(policy, precheck, attributes, index);
        let context = RequestContext {
            policy,
            precheck,
            attributes,
            client: policy.counted(&identity.client, precheck.scope),
        };
        match context.charge(index, identity) {
            Ok(charge) => {
                view.applies = true;
                view.mode = charge.mode.name();
                view.charge = Some(context.charge_view(rule, &charge, levels));
            }
            Err(why) => {
                let route = policy.routes.get(attributes.route as usize);
                let route = route.map_or("", |route| &route.name);
                view.why_not = Some(wording::why_not(policy, rule, why, route, &context.client));
            }
        }
        view
    });
    each.collect()
}

/// The properties of the request that rules count by; `None` if no rule is checked.
fn attributes<'a>(head: &Head<'a>, precheck: &'a Precheck<'a>) -> Option<RequestAttributes<'a>> {
    let Head { method, headers, .. } = *head;
    let is_charged = precheck.is_own_limits && !precheck.charges.is_empty();
    let path = head.uri.path();
    let anywhere =
        || RequestAttributes { route: u32::MAX, method, host: &precheck.host, path, headers };
    precheck.attributes(head).or_else(|| is_charged.then(anywhere))
}

/// As [`attributes`], for one rule. A request for a client's own limits has no route: the first one
/// that the rule counts takes its place.
fn of_rule<'a>(
    policy: &Policy,
    precheck: &Precheck<'_>,
    attributes: &RequestAttributes<'a>,
    index: u32,
) -> RequestAttributes<'a> {
    let first = policy.routes_of(index).next().filter(|_| precheck.is_own_limits);
    RequestAttributes { route: first.unwrap_or(attributes.route), ..*attributes }
}

/// The request that rules are checked against.
struct RequestContext<'a> {
    policy: &'a Policy,
    precheck: &'a Precheck<'a>,
    attributes: &'a RequestAttributes<'a>,
    client: Cow<'a, Client>,
}

impl RequestContext<'_> {
    fn charge(&self, index: u32, identity: &Identity) -> Result<Charge, WhyNot> {
        if self.precheck.key_required_by() == Some(index) {
            return Err(WhyNot::NoKeyDenied);
        }
        let charge =
            self.policy.charge(index, &identity.client, self.attributes, self.precheck.scope)?;
        // The actual charge, whose cost may differ from the route's.
        let charged = self.precheck.charges.iter().find(|one| one.rule == index);
        Ok(charged.copied().unwrap_or(charge))
    }

    fn charge_view(&self, rule: &Rule, charge: &Charge, levels: PeekResult<'_>) -> report::Charge {
        let rate_of = match rule.grant_of(&self.client) {
            GrantOf::Key => "key",
            GrantOf::Tenant => "tenant",
            GrantOf::Plan(plan) if rule.has_plan_table(plan) => "plan",
            GrantOf::Plan(_) => "rule",
        };
        let name = StoredRule::of(rule);
        let waived = match levels {
            PeekResult::Read { taken, .. } => {
                taken.waived.iter().any(|one| one.rule == charge.rule)
            }
            PeekResult::NotRead | PeekResult::NoBuckets => false,
        };
        let written = rule.written(charge.limit_index, self.client.principal());
        report::Charge {
            kind: rule.kind.name(),
            rate: written.map_or_else(String::new, |written| written.to_string()),
            rate_is: written.map_or("rate", WrittenLimit::setting),
            burst: charge.limit.capacity(),
            periods: written.and_then(WrittenLimit::calendar).map(wording::periods),
            max_delay_ms: written.and_then(WrittenLimit::max_delay_us).map(|us| us / 1_000),
            soft_thousandths: charge.limit.soft_thousandths(),
            overage: charge.counts_overage().then(|| Overage::Count.name()),
            rate_of,
            cost: charge.cost_in_tokens(),
            bucket: key_with(self.policy.redis.as_ref(), charge.bucket, &name),
            shared_by: self.shared_by(rule, rate_of),
            level: level(levels, charge.rule),
            waived,
        }
    }

    /// The requests that share the bucket, by dimension. Without the values of headers, which may
    /// be secret.
    fn shared_by(&self, rule: &Rule, rate_of: &str) -> Vec<String> {
        let plan = format!("plan {}", self.policy.plan_name(self.client.plan));
        let each = rule.per.iter().map(|dimension| match dimension {
            Dimension::Ip => self.address(),
            Dimension::Key => match &self.client.key {
                ClientKey::Known(known) => format!("key {}", known.id),
                ClientKey::Unknown(_) => "this unknown key".to_owned(),
                ClientKey::Missing if rule.on_missing == OnMissing::Shared => {
                    "all clients without a key".to_owned()
                }
                ClientKey::Missing => format!("{}, because there is no key", self.address()),
            },
            Dimension::Plan => plan.clone(),
            Dimension::Tenant => format!("tenant {}", self.tenant()),
            Dimension::Route => {
                let route = self.policy.routes.get(self.attributes.route as usize);
                format!("route {}", route.map_or("", |route| &route.name))
            }
            Dimension::Method => format!("method {}", self.attributes.method),
            Dimension::Host => format!("host {}", self.attributes.host),
            Dimension::Header(name) if self.attributes.headers.contains_key(name) => {
                format!("this value of the header {name}")
            }
            Dimension::Header(name) => format!("requests without the header {name}"),
            Dimension::Certificate => "this client certificate".to_owned(),
            Dimension::Param(name) if self.has_param(name) => {
                format!("this value of the path parameter {name}")
            }
            Dimension::Param(name) => format!("requests without the path parameter {name}"),
            Dimension::Claim(name) => match self.client.principal().and_then(|one| one.claim(name))
            {
                Some(_) => format!("this value of the claim {name}"),
                None => format!("requests without the claim {name}"),
            },
        });
        let mut shared: Vec<String> = each.collect();
        // Clients with different rates have different buckets.
        match (rate_of, self.client.principal()) {
            _ if rule.per.contains(&Dimension::Key) => {}
            ("key", Some(known)) => shared.push(format!("key {}", known.id)),
            ("tenant", _) if !rule.counts_tenants() => {
                shared.push(format!("tenant {}", self.tenant()));
            }
            ("plan", _) if !rule.per.contains(&Dimension::Plan) => shared.push(plan),
            _ => {}
        }
        shared
    }

    fn has_param(&self, name: &str) -> bool {
        let route = self.policy.routes.get(self.attributes.route as usize);
        route.is_some_and(|route| route.matcher.params.names().any(|own| own == name))
    }

    fn tenant(&self) -> &str {
        self.client.tenant.as_ref().map_or("", |tenant| &tenant.id)
    }

    fn address(&self) -> String {
        let prefix = self.policy.clients.ipv6_prefix;
        let counted = self.client.ip.map(|ip| counted_address(ip, prefix));
        let name = counted.map_or("none".to_owned(), |ip| counted_as(ip, prefix));
        format!("address {name}")
    }
}

/// Milliseconds that are left of the ban of the client by a rule.
fn banned_for_ms(levels: PeekResult<'_>, rule: u32) -> Option<u64> {
    let PeekResult::Read { taken, .. } = levels else { return None };
    let banned = taken.banned?;
    let is_of_rule = taken.charges.get(banned.index)?.rule == rule;
    is_of_rule.then(|| banned.left_us.div_ceil(1_000))
}

/// State of a rule's bucket before the request.
fn level(levels: PeekResult<'_>, rule: u32) -> Option<Level> {
    let PeekResult::Read { taken, .. } = levels else { return None };
    if taken.source == Source::Policy || taken.banned.is_some() {
        return None;
    }
    let mut charges = taken.charges.iter().zip(&taken.answer.outcomes);
    let (charge, outcome) = charges.find(|(charge, _)| charge.rule == rule)?;
    let before = outcome.level_before(charge, taken.answer.allowed());
    let standing = charge.limit.standing(before, charge.cost, outcome.share, outcome.times);
    Some(Level {
        tokens: standing.remaining,
        enough: outcome.enough,
        retry_after_ms: standing.retry_after_us.div_ceil(1_000),
        full_after_ms: standing.reset_us.div_ceil(1_000),
    })
}
