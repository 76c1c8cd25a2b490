//! What a client is told of its limits: the rules that mean something to it, and what their buckets
//! hold. `answer` has the names, which are a contract.

mod answer;

use crate::decide::meetings::{Subject, meeting};
use crate::decide::problem::retry_after_ms;
use crate::limit::charge::{Charge, Mode};
use crate::limit::seconds_up;
use crate::policy::charges::WhyNot;
use crate::policy::client;
use crate::policy::settings::HeaderStyle;
use crate::policy::{Dimension, OnFailure, Policy, Rule};
use crate::store::limiter::{Levels, Source, Taken};
use answer::{Allowance, Client, Counted, Left, Limits, Told, What};

/// The most rules of one answer, each route counted by itself: neither the answer nor the look at
/// its buckets grows with the file.
const MOST_RULES: usize = 100;

/// The most routes that are named of one rule.
const MOST_ROUTES: usize = 20;

/// The rules that mean something to a client, before any bucket was looked at.
#[derive(Debug)]
pub(super) struct Listed<'a> {
    policy: &'a Policy,
    client: client::Client,
    entries: Vec<ListedRule<'a>>,
    left_out: usize,
}

#[derive(Debug)]
struct ListedRule<'a> {
    index: u32,
    rule: &'a Rule,
    /// Which route, where the rule counts each by itself.
    route: Option<u32>,
    /// What it charges the cheapest request, or why it does not.
    charge: Result<Charge, WhyNot>,
    unknown: Vec<String>,
    shared: bool,
}

impl<'a> Listed<'a> {
    /// The rules that are enforced, in the order of the file.
    pub(super) fn of(policy: &'a Policy, subject: &Subject<'_>) -> Self {
        let client = subject.client;
        let mut listed = Self { policy, client, entries: Vec::new(), left_out: 0 };
        let enforced = |(_, rule): &(u32, &Rule)| rule.enabled && rule.mode == Mode::Enforce;
        for (index, rule) in (0..).zip(&policy.rules).filter(enforced) {
            let entry = ListedRule::of(policy, subject, index, rule);
            match entry.charge {
                Ok(_) if rule.per.contains(&Dimension::Route) => {
                    for route in policy.routes_of(index) {
                        let subject = Subject { route: Some(route), ..*subject };
                        listed.add(|| ListedRule::of(policy, &subject, index, rule));
                    }
                }
                Ok(_) | Err(WhyNot::ExemptAddress(_) | WhyNot::ExemptKey | WhyNot::NoKeyDenied) => {
                    listed.add(|| entry);
                }
                Err(_) => {}
            }
        }
        listed
    }

    fn add(&mut self, entry: impl FnOnce() -> ListedRule<'a>) {
        if self.entries.len() < MOST_RULES {
            self.entries.push(entry());
        } else {
            self.left_out += 1;
        }
    }

    /// The buckets to look at.
    pub(super) fn charges(&self) -> Vec<Charge> {
        self.entries.iter().filter_map(ListedRule::known).collect()
    }

    /// What the rules that count by address would decide on a request of the client. `levels` are
    /// those of [`charges`](Self::charges).
    pub(super) fn by_address(&self, levels: &Levels) -> Taken {
        let known = self.entries.iter().filter_map(|entry| Some((entry, entry.known()?)));
        let each = known.zip(&levels.levels);
        let each = each.filter(|((entry, _), _)| entry.rule.per.contains(&Dimension::Ip));
        let (charges, found) = each.map(|((_, charge), level)| (charge, *level)).unzip();
        Levels { levels: found, ..*levels }.decide(charges)
    }

    /// The whole answer. `levels` are those of [`charges`](Self::charges).
    pub(super) fn told(&self, levels: &Levels) -> Limits<'a> {
        let mut found = levels.levels.iter();
        let each = self.entries.iter().map(|entry| {
            let level = entry.known().and_then(|_| found.next());
            entry.told(self.policy, levels, level.copied())
        });
        let rules: Vec<Told<'a>> = each.collect();
        Limits {
            client: Client::of(self.policy, &self.client),
            limited: rules.iter().any(|rule| matches!(rule.what, What::Limits(_))),
            approximate: self.policy.redis.is_some() && levels.source == Source::Local,
            rules,
            left_out: self.left_out,
        }
    }
}

impl<'a> ListedRule<'a> {
    fn of(policy: &'a Policy, subject: &Subject<'_>, index: u32, rule: &'a Rule) -> Self {
        let meeting = meeting(policy, subject, index, rule);
        let routes = policy.routes_of(index).filter(|one| subject.route.is_none_or(|r| r == *one));
        let costs = routes.filter_map(|route| policy.routes.get(route as usize));
        let cost = costs.map(|route| route.cost).min().unwrap_or(1);
        let own = meeting.own || rule.per.contains(&Dimension::Ip);
        Self {
            index,
            rule,
            route: subject.route,
            charge: meeting.charge.map(|charge| Charge { cost, ..charge }),
            unknown: meeting.unknown.iter().map(ToString::to_string).collect(),
            shared: !own,
        }
    }

    /// The charge, where its bucket is known.
    fn known(&self) -> Option<Charge> {
        self.charge.ok().filter(|_| self.unknown.is_empty())
    }

    fn told(&self, policy: &'a Policy, levels: &Levels, level: Option<i64>) -> Told<'a> {
        let Self { rule, .. } = self;
        let (routes, more_routes) = self.routes(policy);
        let what = match &self.charge {
            Ok(charge) => What::Limits(self.allowance(policy, charge, levels, level)),
            Err(WhyNot::NoKeyDenied) => What::DemandsKey { needs_key: true },
            Err(_) => What::Exempts { exempt: true },
        };
        Told {
            name: &rule.name,
            description: rule.description.as_deref(),
            per: rule.per.iter().map(ToString::to_string).collect(),
            routes,
            more_routes,
            what,
        }
    }

    /// The routes that it counts, where they are to be told, and how many there are beside those.
    fn routes(&self, policy: &'a Policy) -> (Vec<Counted<'a>>, usize) {
        let of_one = |one: &u32| self.route.is_none_or(|route| route == *one);
        let all = || {
            let routes = policy.routes_of(self.index).filter(of_one);
            routes.filter_map(|route| policy.routes.get(route as usize))
        };
        let cost = all().next().map(|route| route.cost);
        let at_one_cost = all().all(|route| Some(route.cost) == cost);
        if self.route.is_none() && self.rule.routes.is_none() && at_one_cost {
            return (Vec::new(), 0);
        }
        let named = all().take(MOST_ROUTES).map(|route| Counted {
            name: &route.name,
            path: route.matcher.path.to_string(),
            cost: route.cost,
        });
        (named.collect(), all().count().saturating_sub(MOST_ROUTES))
    }

    fn allowance(
        &self,
        policy: &Policy,
        charge: &Charge,
        levels: &Levels,
        level: Option<i64>,
    ) -> Allowance {
        let Self { rule, .. } = self;
        let without_redis = match rule.on_failure {
            OnFailure::Allow if levels.is_alone => Some("allow"),
            OnFailure::Deny if levels.is_alone => Some("deny"),
            _ => None,
        };
        // Where answers do not say what others leave, neither does this one.
        let is_hidden = self.shared && policy.headers.style == HeaderStyle::None;
        let level = level.filter(|_| without_redis.is_none() && !is_hidden);
        let left = level.map(|level| {
            let standing = charge.limit.standing(level, charge.cost, levels.share);
            let wait = standing.retry_after_us;
            Left {
                remaining: standing.remaining,
                reset_seconds: seconds_up(standing.reset_us),
                retry_after_ms: (wait > 0).then(|| retry_after_ms(wait)),
            }
        });
        Allowance {
            limit: charge.limit.capacity(),
            rate: rule.rate_of(charge.limit_index).map(|rate| rate.to_string()),
            window_seconds: seconds_up(charge.limit.window_us()).max(1),
            cost: charge.cost,
            shared: self.shared,
            unknown: self.unknown.clone(),
            without_redis,
            left,
        }
    }
}

#[cfg(test)]
mod tests;
