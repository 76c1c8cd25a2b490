//! `local_ratelimit` as rules.

use toml::Value;

use super::{config, get, items, snake, text};
use crate::import::note::Notes;
use crate::import::settings::{Imported, Settings};
use crate::import::values;
use crate::import::yaml::Node;

/// Millionths of all requests.
const ALL: u64 = 1_000_000;

/// Whether an HTTP filter limits rates: by its name, or by its type if it has a name of its own.
pub(super) fn is_local(filter: &Node) -> bool {
    let name = text(filter, "name").unwrap_or_default();
    let kind = text(config(filter), "@type").unwrap_or_default();
    name == "envoy.filters.http.local_ratelimit"
        || name == "envoy.filters.http.local_rate_limit"
        || kind.ends_with(".LocalRateLimit") && kind.contains(".http.")
}

/// Adds the limit of a filter for a route to the rules: that of the most specific `own`
/// configuration for the filter, if there is one.
pub(super) fn add(filter: &Node, own: Option<&Node>, route: &str, imported: &mut Imported) {
    let used = own.unwrap_or(filter);
    if get(used, "disabled").and_then(Node::flag) == Some(true) {
        return;
    }
    // `FilterConfig` without a `config` enables or disables the filter as it is.
    let config = config(own.filter(|it| has_config(it)).unwrap_or(filter));
    let known = imported.rules.iter_mut().find(|rule| rule.place == config.place);
    if let Some(known) = known {
        known.settings.extend("routes", [route.to_owned()]);
        return;
    }
    note_rest(config, &mut imported.notes);
    let Some(mut rule) = rule(config, &mut imported.notes) else { return };
    shares(config, &mut rule, &mut imported.notes);
    rule.extend("routes", [route.to_owned()]);
    let own = text(config, "stat_prefix")
        .filter(|prefix| !prefix.contains("local_rate"))
        .unwrap_or(route);
    imported.rules.add(own, config.place, rule);
}

/// Whether a configuration of a route has more than whether the filter is disabled.
fn has_config(own: &Node) -> bool {
    own.pairs().iter().any(|pair| match snake(&pair.key).as_str() {
        "@type" | "disabled" | "is_optional" => false,
        "config" => !pair.value.pairs().is_empty(),
        _ => true,
    })
}

/// Milliseconds of `fill_interval`, rounded up: a shorter one would allow more.
fn interval(bucket: &Node) -> Option<u64> {
    let value = get(bucket, "fill_interval")?;
    if let Some(text) = value.text() {
        return values::milliseconds_up(text, 1000);
    }
    let number = |key: &str| get(value, key).map_or(Some(0), Node::number);
    number("seconds")?.checked_mul(1000)?.checked_add(number("nanos")?.div_ceil(1_000_000))
}

/// Notes the settings of the filter that a rule does not have.
fn note_rest(config: &Node, notes: &mut Notes) {
    for (key, why) in [
        ("descriptors", "write a rule for each, with `per`, `routes` or `plans.<plan>`"),
        ("rate_limits", "write a rule for each, with `per`, `routes` or `plans.<plan>`"),
        ("stages", "all rules are checked together"),
        ("local_rate_limit_per_downstream_connection", "write `per = [\"ip\"]` in the rule"),
        (
            "local_cluster_rate_limit",
            "each gateway has the whole limit: gateways with `[redis]` share it",
        ),
        ("response_headers_to_add", "headers of limits are `[headers]`"),
    ] {
        if let Some(unknown) = get(config, key).filter(|it| it.flag() != Some(false)) {
            notes.omitted(unknown.place, format!("local_ratelimit: {key}"), why);
        }
    }
    if text(get(config, "status").unwrap_or(config), "code")
        .is_some_and(|code| code != "TooManyRequests" && code != "429")
    {
        notes.omitted(config.place, "local_ratelimit: status", "a refused request gets 429");
    }
}

/// The bucket of the filter. None if it has none, which is noted.
fn rule(config: &Node, notes: &mut Notes) -> Option<Settings> {
    let Some(bucket) = get(config, "token_bucket") else {
        notes.omitted(config.place, "local_ratelimit", "it has no `token_bucket`: write a rule");
        return None;
    };
    let number = |key: &str| get(bucket, key).and_then(Node::number);
    let tokens = number("max_tokens").filter(|tokens| *tokens > 0);
    let fill = get(bucket, "tokens_per_fill").map_or(Some(1), Node::number);
    let rate = tokens.zip(fill).zip(interval(bucket));
    // What does not fit into the bucket is lost.
    let rate = rate.and_then(|((tokens, fill), ms)| values::rate(fill.min(tokens), ms));
    let Some((rate, tokens)) = rate.zip(tokens) else {
        let why = "it is not a bucket that is filled: write a rule with `rate` and `burst`";
        notes.omitted(bucket.place, "local_ratelimit: token_bucket", why);
        return None;
    };
    Some(
        Settings::default()
            .with("per", Vec::<Value>::new())
            .with("rate", rate)
            .with("burst", i64::try_from(tokens).unwrap_or(i64::MAX)),
    )
}

/// The shares of the requests that are checked, and refused: `filter_enabled` and
/// `filter_enforced`.
fn shares(config: &Node, rule: &mut Settings, notes: &mut Notes) {
    let (enabled, enforced) = (share(config, "filter_enabled"), share(config, "filter_enforced"));
    for (key, own) in [("filter_enabled", "enabled"), ("filter_enforced", "enforce")] {
        let set_at_run_time = get(config, key).filter(|it| get(it, "runtime_key").is_some());
        if let Some(node) = set_at_run_time.filter(|_| share(config, key) < ALL) {
            let why =
                format!("`default_value` is used: the runtime may have more, `{own}` of the rule");
            notes.approximate(node.place, format!("local_ratelimit: {key}"), why);
        }
    }
    if enabled == 0 {
        rule.set("enabled", false);
    } else if enabled < ALL {
        let why = "all requests are checked: a rule has no share of them";
        notes.approximate(config.place, "local_ratelimit: filter_enabled", why);
    }
    if enforced == 0 {
        rule.set("mode", "shadow");
    } else if enforced < ALL {
        let why =
            "`enforce` is a share of the clients, which are always the same, not of the requests";
        notes.approximate(config.place, "local_ratelimit: filter_enforced", why);
        // One decimal, rounded up.
        let tenths = enforced.div_ceil(1_000);
        rule.set("enforce", format!("{}.{}%", tenths / 10, tenths % 10));
    }
}

/// Millionths of the requests, at most [`ALL`]. Without it, Envoy takes none.
fn share(config: &Node, key: &str) -> u64 {
    let Some(node) = get(config, key) else { return 0 };
    let Some(value) = get(node, "default_value") else { return ALL };
    let numerator = get(value, "numerator").and_then(Node::number).unwrap_or(0);
    let unit = match text(value, "denominator") {
        Some("TEN_THOUSAND" | "1") => 100,
        Some("MILLION" | "2") => 1,
        _ => 10_000,
    };
    numerator.saturating_mul(unit).min(ALL)
}

/// Whether a share of the requests, all of them by default, is any.
pub(super) fn is_for_any(config: &Node, key: &str) -> bool {
    get(config, key).is_none() || share(config, key) > 0
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
