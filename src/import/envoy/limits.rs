//! `local_ratelimit` as rules.

use toml::Value;

use super::{config, duration, get, items, text};
use crate::import::note::Place;
use crate::import::settings::{Imported, Settings};
use crate::import::values;
use crate::import::yaml::Node;

/// Whether an extension of this name is the filter.
pub(super) fn is_local(name: &str) -> bool {
    name == "envoy.filters.http.local_ratelimit" || name == "envoy.filters.http.local_rate_limit"
}

/// Adds the limit of a filter for a route to the rules.
pub(super) fn add(filter: &Node, name: &str, route: &str, imported: &mut Imported) {
    let config = config(filter);
    let known = imported.rules.iter_mut().find(|rule| rule.place == config.place);
    if let Some(known) = known {
        known.settings.extend("routes", [route.to_owned()]);
        return;
    }
    let Some(bucket) = get(config, "token_bucket") else { return };
    let Some(mut rule) = rule(bucket, config.place, imported) else { return };
    if percent(config, "filter_enabled") == Some(0) {
        rule.set("enabled", false);
    } else if percent(config, "filter_enforced") == Some(0) {
        rule.set("mode", "shadow");
    } else if let Some(share) = percent(config, "filter_enforced").filter(|share| *share < 100) {
        rule.set("enforce", format!("{share}%"));
    }
    for (key, why) in [
        ("descriptors", "write a rule for each, with `per`, `routes` or `plans.<plan>`"),
        ("stages", "all rules are checked together"),
        ("local_rate_limit_per_downstream_connection", "write `per = [\"ip\"]` in the rule"),
        ("response_headers_to_add", "headers of limits are `[headers]`"),
    ] {
        if let Some(unknown) = get(config, key).filter(|it| it.flag() != Some(false)) {
            imported.notes.omitted(unknown.place, format!("local_ratelimit: {key}"), why);
        }
    }
    if text(get(config, "status").unwrap_or(config), "code")
        .is_some_and(|code| code != "TooManyRequests" && code != "429")
    {
        imported.notes.omitted(
            config.place,
            "local_ratelimit: status",
            "a refused request gets 429",
        );
    }
    rule.extend("routes", [route.to_owned()]);
    let own =
        text(config, "stat_prefix").filter(|prefix| !prefix.contains("local_rate")).unwrap_or(name);
    imported.rules.add(own, config.place, rule);
}

fn rule(bucket: &Node, place: Place, imported: &mut Imported) -> Option<Settings> {
    let number = |key: &str| get(bucket, key).and_then(Node::number);
    let tokens = number("max_tokens")?;
    let per_fill = number("tokens_per_fill").unwrap_or(1);
    let rate = values::rate(per_fill, duration(bucket, "fill_interval")?);
    let Some(rate) = rate else {
        imported.notes.omitted(place, "local_ratelimit", "its bucket is not filled");
        return None;
    };
    let burst = i64::try_from(tokens.max(1)).unwrap_or(i64::MAX);
    Some(
        Settings::default()
            .with("per", Vec::<Value>::new())
            .with("rate", rate)
            .with("burst", burst),
    )
}

/// Percent of `filter_enabled` and `filter_enforced`.
fn percent(config: &Node, key: &str) -> Option<u64> {
    let value = get(get(config, key)?, "default_value")?;
    let numerator = get(value, "numerator").and_then(Node::number).unwrap_or(0);
    let of = match text(value, "denominator") {
        Some("TEN_THOUSAND") => 100,
        Some("MILLION") => 10_000,
        _ => 1,
    };
    Some((numerator / of).min(100))
}

/// Notes limits of the rate limit service, whose numbers are in its own file.
pub(super) fn note_service(node: &Node, imported: &mut Imported) {
    for limit in items(node, "rate_limits") {
        imported.notes.omitted(
            limit.place,
            "rate_limits",
            "the numbers are in the file of the rate limit service: write a rule for each descriptor, as docs/migrating.md shows",
        );
    }
}
