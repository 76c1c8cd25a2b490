//! Plugins that limit rates, as rules.

use super::{Owner, Plugin, name_of};
use crate::import::note::Notes;
use crate::import::settings::{Imported, Settings};
use crate::import::values;
use crate::import::yaml::Node;

/// The periods of `rate-limiting`.
const PERIODS: [(&str, &str); 6] = [
    ("second", "s"),
    ("minute", "m"),
    ("hour", "h"),
    ("day", "d"),
    ("month", "month"),
    ("year", "year"),
];

/// The windows of `window_type: fixed` that are also periods of a fixed window, in seconds.
const FIXED: [(u64, &str); 4] = [(1, "s"), (60, "m"), (3_600, "h"), (86_400, "d")];

/// The highest limit of a sliding window.
const MAX_SLIDING: u64 = 4096;

/// The rules that a plugin has become.
pub(super) struct Made<'a> {
    plugin: &'a Node,
    /// The service whose requests they count, if the plugin counts those of each service.
    service: Option<&'a Node>,
    /// Whether the plugin is for all routes.
    pub(super) is_global: bool,
    /// The name of the plugin.
    pub(super) name: &'a str,
    /// Names of the limits, such as `minute`, and of their rules.
    pub(super) rules: Vec<(String, String)>,
}

/// Adds the limits of a plugin for a route of a service to the rules.
pub(super) fn add<'a>(
    plugin: &Plugin<'a>,
    service: &'a Node,
    route: &str,
    made: &mut Vec<Made<'a>>,
    imported: &mut Imported,
) {
    let service = counts_by_service(plugin).then_some(service);
    let address = |node: Option<&Node>| node.map(std::ptr::from_ref);
    let is_same = |it: &&Made<'_>| {
        std::ptr::eq(it.plugin, plugin.node) && address(it.service) == address(service)
    };
    if let Some(known) = made.iter().find(is_same) {
        for rule in imported.rules.iter_mut() {
            if known.rules.iter().any(|(_, name)| name == rule.name) {
                rule.settings.extend("routes", [route.to_owned()]);
            }
        }
        return;
    }
    let mut rules = Vec::new();
    for (name, mut settings) in limits(plugin, imported) {
        settings.extend("routes", [route.to_owned()]);
        let wanted = match service.map(name_of) {
            Some(service) => format!("{name}-{service}"),
            None => name.clone(),
        };
        rules.push((name, imported.rules.add(&wanted, plugin.node.place, settings)));
    }
    let is_global = matches!(plugin.owner, Owner::All);
    made.push(Made { plugin: plugin.node, service, is_global, name: plugin.name, rules });
}

/// What a plugin counts by: `limit_by` or `identifier`.
pub(super) fn limit_by<'a>(plugin: &Plugin<'a>) -> &'a str {
    let text = |key: &str| plugin.node.text_at(&["config", key]);
    match plugin.name {
        "service-protection" => "service",
        _ => text("limit_by").or(text("identifier")).unwrap_or("consumer"),
    }
}

/// Whether one plugin counts the requests of each service. That of a service or of a route counts
/// only its own.
fn counts_by_service(plugin: &Plugin<'_>) -> bool {
    matches!(plugin.owner, Owner::All) && limit_by(plugin) == "service"
}

/// The rules of a plugin, without routes.
pub(super) fn limits(plugin: &Plugin<'_>, imported: &mut Imported) -> Vec<(String, Settings)> {
    let nothing = Node::nothing();
    let config = plugin.node.get("config").unwrap_or(&nothing);
    let what = format!("plugin {}", plugin.name);
    let limits = match plugin.name {
        "rate-limiting" => periods(config, &what, &mut imported.notes),
        "rate-limiting-advanced" | "service-protection" => {
            windows(plugin, config, &what, &mut imported.notes)
        }
        _ => return Vec::new(),
    };
    note_rest(config, &what, &mut imported.notes);
    if limits.is_empty() {
        let why = "it has no limit that can be read";
        imported.notes.omitted(plugin.node.place, what, why);
        return Vec::new();
    }
    let per: Vec<toml::Value> =
        per(plugin, config, &mut imported.notes).into_iter().map(Into::into).collect();
    policy(plugin, config, imported);
    let on_failure = config.get("fault_tolerant").and_then(Node::flag);
    let is_denied = on_failure == Some(false) && imported.redis.get("url").is_some();
    let complete = |(name, limit): (String, Settings)| {
        let mut rule = Settings::default().with("per", per.clone());
        for (key, value) in limit.iter() {
            rule.set(key, value.clone());
        }
        if is_denied {
            rule.set("on_failure", "deny");
        }
        (name, rule)
    };
    limits.into_iter().map(complete).collect()
}

/// Notes the settings of a plugin that a rule does not have.
fn note_rest(config: &Node, what: &str, notes: &mut Notes) {
    for (key, usual, why) in [
        ("error_code", "429", "a refused request gets 429"),
        ("error_message", "", "the body of a refusal is `[errors.429]`"),
        ("throttling", "", "requests beyond a limit are refused, they do not wait"),
    ] {
        let is_usual = |it: &&Node| {
            it.text() == Some(usual) || it.get("enabled").and_then(Node::flag) == Some(false)
        };
        if let Some(unknown) = config.get(key).filter(|it| !is_usual(it)) {
            notes.omitted(unknown.place, format!("{what}: {key}"), why);
        }
    }
}

/// The limits of `rate-limiting`, by name.
fn periods(config: &Node, what: &str, notes: &mut Notes) -> Vec<(String, Settings)> {
    let mut found = Vec::new();
    for (theirs, unit) in PERIODS {
        let Some(node) = config.get(theirs) else { continue };
        match node.number().filter(|limit| *limit > 0) {
            Some(limit) => {
                let rule = Settings::default()
                    .with("kind", "fixed_window")
                    .with("limit", format!("{limit}/{unit}"));
                found.push((theirs.to_owned(), rule));
            }
            None => {
                notes.omitted(node.place, format!("{what}: {theirs}"), "it is no whole number");
            }
        }
    }
    found
}

/// The limits of `rate-limiting-advanced` and `service-protection`, by name.
fn windows(
    plugin: &Plugin<'_>,
    config: &Node,
    what: &str,
    notes: &mut Notes,
) -> Vec<(String, Settings)> {
    let place = plugin.node.place;
    let list = |key: &str| config.get(key).map(Node::items).unwrap_or_default();
    let (limits, sizes) = (list("limit"), list("window_size"));
    if limits.len() != sizes.len() {
        let why = "each limit has a window: only those in pairs are read";
        notes.omitted(place, format!("{what}: window_size"), why);
    }
    let is_fixed = config.text_at(&["window_type"]) == Some("fixed");
    let mut found = Vec::new();
    for (limit, seconds) in limits.iter().zip(sizes) {
        let pair = limit.number().zip(seconds.number());
        let Some((limit_of, seconds)) = pair.filter(|(limit, seconds)| *limit > 0 && *seconds > 0)
        else {
            notes.omitted(limit.place, format!("{what}: limit"), "it is no whole number");
            continue;
        };
        let rule = window(limit_of, seconds, is_fixed, what, limit, notes);
        found.push((format!("in-{seconds}s"), rule));
    }
    if !is_fixed && config.get("disable_penalty").and_then(Node::flag) != Some(true) {
        let why = "refused requests do not count: a client that goes on is allowed the limit in each window";
        notes.approximate(place, format!("{what}: disable_penalty"), why);
    }
    if let Some(shared) = config.get("namespace") {
        let why = "plugins with one namespace count together: list their routes in one rule";
        notes.approximate(shared.place, format!("{what}: namespace"), why);
    }
    if let Some(groups) = config.get("consumer_groups") {
        let why = "groups are plans: write `plans.<plan>` of the rule";
        notes.omitted(groups.place, format!("{what}: consumer_groups"), why);
    }
    found
}

/// At most `limit` requests in so many seconds.
fn window(
    limit: u64,
    seconds: u64,
    is_fixed: bool,
    what: &str,
    node: &Node,
    notes: &mut Notes,
) -> Settings {
    let unit = FIXED.iter().find(|(known, _)| is_fixed && *known == seconds);
    if let Some((_, unit)) = unit {
        return Settings::default()
            .with("kind", "fixed_window")
            .with("limit", format!("{limit}/{unit}"));
    }
    let rate = values::rate(limit, seconds.saturating_mul(1000)).unwrap_or_default();
    if limit <= MAX_SLIDING {
        if is_fixed {
            let why = "a fixed window has a second, a minute, an hour or a day: a sliding window is stricter at its end";
            notes.approximate(node.place, format!("{what}: window_type"), why);
        }
        return Settings::default().with("kind", "sliding_window").with("limit", rate);
    }
    let why = "a sliding window has at most 4096: no more in any window, of these a tenth at once and the rest evenly, which `burst` changes";
    notes.approximate(node.place, format!("{what}: limit {limit}"), why);
    Settings::default().with("limit", rate)
}

/// `per` of the rules. Never a bucket for fewer requests than the plugin counts together.
fn per(plugin: &Plugin<'_>, config: &Node, notes: &mut Notes) -> Vec<String> {
    let limit_by = limit_by(plugin);
    let mut note = |why: &str| {
        notes.approximate(plugin.node.place, format!("limit_by: {limit_by}"), why);
    };
    match limit_by {
        "ip" => vec!["ip".to_owned()],
        "header" => {
            note("requests without the header count together, not by address");
            let name = config.text_at(&["header_name"]).unwrap_or("x-api-key").to_lowercase();
            vec![format!("header:{name}")]
        }
        "service" => Vec::new(),
        "path" => {
            note(
                "all requests of the routes count together: write a rule for the route of the path, and one with `per = [\"ip\"]`",
            );
            Vec::new()
        }
        "consumer-group" => {
            note("it counts by plan: groups are plans, `plan` of the keys");
            vec!["plan".to_owned()]
        }
        "credential" => {
            note("all keys of a consumer count together");
            vec!["key".to_owned()]
        }
        _ => vec!["key".to_owned()],
    }
}

/// Where the plugin counts: `policy` or `strategy`.
fn policy(plugin: &Plugin<'_>, config: &Node, imported: &mut Imported) {
    let place = plugin.node.place;
    let text = |key: &str| config.text_at(&[key]);
    match text("policy").or(text("strategy")) {
        Some("redis") => redis(plugin, config, imported),
        Some("cluster") => {
            let why = "each gateway counts alone: counting together needs `[redis]` with `url`";
            imported.notes.approximate(place, "policy: cluster", why);
        }
        None | Some("local") => {}
        Some(other) => {
            let why = "gateways count together with `[redis]`, else each alone";
            imported.notes.omitted(place, format!("policy: {other}"), why);
        }
    }
}

/// `policy: redis`.
fn redis(plugin: &Plugin<'_>, config: &Node, imported: &mut Imported) {
    let host = config.text_at(&["redis", "host"]).or(config.text_at(&["redis_host"]));
    let port = config.at(&["redis", "port"]).or(config.get("redis_port")).and_then(Node::number);
    let address = host.and_then(|host| {
        values::with_port(host, u16::try_from(port.unwrap_or(6379)).unwrap_or(6379))
    });
    let Some(address) = address else {
        imported.notes.omitted(plugin.node.place, "redis", "write `[redis]` with `url`");
        return;
    };
    let has_tls =
        config.at(&["redis", "ssl"]).or(config.get("redis_ssl")).and_then(Node::flag) == Some(true);
    let url = format!("redis{}://{address}", if has_tls { "s" } else { "" });
    let known = imported.redis.get("url").and_then(toml::Value::as_str);
    if known.is_some_and(|known| known != url) {
        let why = "a gateway has one Redis: that of the first plugin is used";
        imported.notes.approximate(plugin.node.place, format!("redis {address}"), why);
        return;
    }
    imported.redis.set("url", url);
    let database =
        config.at(&["redis", "database"]).or(config.get("redis_database")).and_then(Node::number);
    if let Some(database) = database.filter(|number| *number > 0) {
        imported.redis.set("database", i64::try_from(database).unwrap_or(0));
    }
    let user = config.text_at(&["redis", "username"]).or(config.text_at(&["redis_username"]));
    if let Some(user) = user {
        imported.redis.set("username", user);
    }
    if config.at(&["redis", "password"]).or(config.get("redis_password")).is_some() {
        imported.notes.omitted(
            plugin.node.place,
            "redis password",
            "secrets are not copied: write `password = \"${REDIS_PASSWORD}\"` in `[redis]`",
        );
    }
}
