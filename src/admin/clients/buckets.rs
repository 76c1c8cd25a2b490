//! `GET /api/clients/{kind}/{id}/buckets`: the buckets of one client.

use http::StatusCode;

use super::requested::RequestedClient;
use super::{levels, unknown};
use crate::admin::Stores;
use crate::admin::answer::Answer;
use crate::api::clients::{ClientBuckets, RuleBucket};
use crate::decide::applicability::{Applicability, applicabilities};
use crate::explain::wording;
use crate::limit::charge::Charge;
use crate::limit::reading::Reading;
use crate::limit::share::Share;
use crate::policy::{Dimension, Policy};
use crate::runtime::Snapshot;
use crate::store::limiter::Levels;
use crate::store::redis::keys::key_with;
use crate::store::rule::StoredRule;

/// Lists the client's bucket of each rule. A caller who `is_limited` to a tenant gets the rules per
/// key or tenant only: the buckets of others are of several tenants.
pub(in crate::admin) async fn show(
    snapshot: &Snapshot,
    Stores { limiter, keys, .. }: Stores<'_>,
    parts: &[String],
    query: Option<&str>,
    is_limited: bool,
) -> Result<Answer, Box<Answer>> {
    let policy = &snapshot.policy;
    // Parameters could select the bucket of another client.
    if is_limited && query.is_some() {
        let detail = "the token is for one tenant: this call takes no parameters";
        return Err(Answer::refusal(StatusCode::FORBIDDEN, detail));
    }
    let requested = RequestedClient::read(policy, keys, parts, query).await?;
    let mut applicabilities = applicabilities(policy, &requested.subject());
    if is_limited {
        applicabilities
            .retain(|one| one.rule.per.contains(&Dimension::Key) || one.rule.counts_tenants());
    }
    let charges: Vec<Charge> = applicabilities.iter().filter_map(Applicability::known).collect();
    let Levels { readings, source, .. } =
        limiter.peek_levels(&charges, &snapshot.stored_rules).await;
    let reading = |charge: &Charge| {
        let mut all = charges.iter().zip(&readings);
        all.find(|(own, _)| own.rule == charge.rule).map(|(_, reading)| *reading)
    };
    let each = applicabilities
        .iter()
        .map(|applicability| RuleBucket::of(policy, &requested, applicability, &reading));
    let rules = each.collect();
    Ok(Answer::json(&ClientBuckets {
        client: requested.view(policy),
        levels: levels(source),
        rules,
    }))
}

impl RuleBucket {
    fn of(
        policy: &Policy,
        requested: &RequestedClient,
        applicability: &Applicability<'_>,
        reading: &dyn Fn(&Charge) -> Option<Reading>,
    ) -> Self {
        let Applicability { rule, charge, own, .. } = applicability;
        let known = applicability.known();
        let reading = known.as_ref().and_then(reading);
        let standing = known.zip(reading).map(|(charge, Reading { level, times, .. })| {
            charge.limit.standing(level, charge.cost, Share::WHOLE, times)
        });
        let route = requested.route.and_then(|route| policy.routes.get(route as usize));
        let route = route.map_or("", |route| &route.name);
        let why_not = |why| wording::why_not(policy, rule, why, route, &requested.client);
        let principal = requested.client.principal();
        let rate = |charge: &Charge| Some(rule.written(charge.limit_index, principal)?.to_string());
        Self {
            rule: rule.name.to_string(),
            applies: charge.is_ok(),
            mode: policy.mode_for(rule, &requested.client),
            per: rule.per.iter().map(ToString::to_string).collect(),
            own: *own,
            kind: rule.kind,
            rate: charge.as_ref().ok().and_then(rate),
            burst: charge.as_ref().ok().map(|charge| charge.limit.capacity()),
            window_ms: charge.as_ref().ok().map(|charge| charge.limit.window_us().div_ceil(1_000)),
            unknown: unknown(applicability),
            bucket: known.map(|charge| name(policy, rule, &charge)),
            tokens: known.zip(reading).map(|(charge, reading)| tokens(&charge, reading.level)),
            full_after_ms: standing.map(|standing| standing.reset_us.div_ceil(1_000)),
            next_after_ms: standing.map(|standing| standing.retry_after_us.div_ceil(1_000)),
            why_not: charge.err().map(why_not),
        }
    }
}

/// Key of the bucket in Redis.
pub(super) fn name(policy: &Policy, rule: &crate::policy::Rule, charge: &Charge) -> String {
    key_with(policy.redis.as_ref(), charge.bucket, &StoredRule::of(rule))
}

/// Whole tokens at a level, rounded down.
pub(super) fn tokens(charge: &Charge, level: i64) -> i64 {
    charge.limit.tokens(level)
}
