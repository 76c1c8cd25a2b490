//! Plugins that limit the rates of single consumers and of groups of them, as limits of their keys.
//! Such a plugin applies in place of those of routes and services, and counts all routes together.

use std::collections::BTreeMap;

use toml::{Table, Value};

use super::limits::{self, Made};
use super::{Owner, Plugin, consumers, is_named, items, key_auth};
use crate::import::common::list;
use crate::import::note::Place;
use crate::import::settings::{Imported, Settings};
use crate::import::yaml::Node;

/// Plugins with limits of consumers.
const LIMITS: [&str; 2] = ["rate-limiting", "rate-limiting-advanced"];

/// Whether this module notes the plugin if it is not taken over.
pub(super) fn is_limit(plugin: &str) -> bool {
    LIMITS.contains(&plugin)
}

/// A consumer with limits of its own.
struct Member {
    /// Name of its table in `[keys]`.
    id: String,
    place: Place,
    /// Names of the limits, such as `minute`, with the rules that they would be.
    limits: Vec<(String, Settings)>,
}

/// Takes over the plugins, when all rules and keys are known.
pub(super) fn import<'a>(
    documents: &'a [Node],
    plugins: &[Plugin<'a>],
    with_keys: &[(&'a Node, String)],
    made: &[Made<'_>],
    imported: &mut Imported,
) {
    let is_known = key_auth::is_on_all_routes(documents, plugins, imported);
    // One for a route and its service comes before those of consumers.
    let is_of_both = |plugin: &Plugin<'_>| match plugin.owner {
        Owner::Route(_) => plugin.node.get("service").is_some(),
        Owner::Service(_) => plugin.node.get("route").is_some(),
        _ => false,
    };
    for name in LIMITS {
        let own = plugins.iter().filter(|plugin| plugin.name == name);
        let own: Vec<&Plugin<'_>> =
            own.filter(|it| matches!(it.owner, Owner::Consumer(_) | Owner::Group(_))).collect();
        let is_first = !plugins.iter().any(|it| it.name == name && is_of_both(it));
        let why = match (is_known, is_first) {
            (false, _) => {
                Some("a consumer is known on routes with `key-auth` only, a key here on all routes")
            }
            (_, false) => Some("another plugin is for a route and its service, and comes first"),
            _ => None,
        };
        let members = members(documents, &own, with_keys, why, imported);
        let made: Vec<&Made<'_>> = made.iter().filter(|made| made.name == name).collect();
        add(members, &made, imported);
    }
    note_groups(documents, plugins, imported);
}

/// The consumers whose limits can be taken over, unless `why` says why there are none. What cannot
/// is noted.
fn members(
    documents: &[Node],
    plugins: &[&Plugin<'_>],
    with_keys: &[(&Node, String)],
    why: Option<&'static str>,
    imported: &mut Imported,
) -> Vec<Member> {
    let mut found = Vec::new();
    for node in documents.iter().flat_map(|document| items(document, "consumers")) {
        let of_consumer = plugins.iter().filter(
            |plugin| matches!(plugin.owner, Owner::Consumer(owner) if std::ptr::eq(owner, node)),
        );
        let of_consumer: Vec<&&Plugin<'_>> = of_consumer.collect();
        let of_groups = plugins.iter().filter(
            |plugin| matches!(plugin.owner, Owner::Group(group) if is_in(node, group, documents)),
        );
        // That of the consumer comes first.
        let own = if of_consumer.is_empty() { of_groups.collect() } else { of_consumer };
        let Some(plugin) = own.first() else { continue };
        let id = with_keys.iter().find(|(known, _)| std::ptr::eq(*known, node)).map(|(_, id)| id);
        let why = if own.len() > 1 {
            Some("several plugins are for it")
        } else if why.is_some() {
            why
        } else if limits::limit_by(plugin) != "consumer" {
            Some("it does not count by consumer")
        } else {
            None
        };
        let name = consumers::name(node);
        match (id, why) {
            (Some(id), None) => {
                let limits = limits::limits(plugin, imported);
                if !limits.is_empty() {
                    found.push(Member { id: id.clone(), place: plugin.node.place, limits });
                }
            }
            (id, why) => {
                let why = why.filter(|_| id.is_some()).unwrap_or("the consumer has no key here");
                let why = format!("{why}: {}", consumers::instead(plugin.name));
                let what = format!("consumer {name}: plugin {}", plugin.name);
                imported.notes.omitted(plugin.node.place, what, why);
            }
        }
    }
    found
}

/// Whether a consumer is in a group: its own list says so, or that of the group.
fn is_in(consumer: &Node, group: &Node, documents: &[Node]) -> bool {
    let names_group = |item: &Node| {
        let name = item.text().or(item.text_at(&["name"])).or(item.text_at(&["id"]));
        name.is_some_and(|name| is_named(group, name))
    };
    let is_named_in = |item: &Node| {
        let name = item.text().or(item.text_at(&["username"])).or(item.text_at(&["id"]));
        name.is_some_and(|name| consumers::is_named(consumer, name))
    };
    let pairs = documents.iter().flat_map(|document| items(document, "consumer_group_consumers"));
    items(consumer, "groups").iter().any(names_group)
        || items(group, "consumers").iter().any(is_named_in)
        || pairs.into_iter().any(|pair| {
            let group = pair.get("consumer_group").is_some_and(names_group);
            group && pair.get("consumer").is_some_and(is_named_in)
        })
}

/// Adds the limits: those of the rules for all routes are replaced, or the consumers are exempt
/// from these and have rules of their own.
fn add(members: Vec<Member>, made: &[&Made<'_>], imported: &mut Imported) {
    let mut rest = Vec::new();
    for member in members {
        if !replace(&member, made, imported) {
            rest.push(member);
        }
    }
    for rule in made.iter().flat_map(|made| &made.rules) {
        for member in &rest {
            exempt(&rule.1, &member.id, imported);
        }
    }
    // One rule for all of the same kind: each consumer has its own limit of it.
    let mut rules: BTreeMap<(&str, String), Vec<(&Member, &Settings)>> = BTreeMap::new();
    for member in &rest {
        for (name, settings) in &member.limits {
            rules.entry((name, kind(settings))).or_default().push((member, settings));
        }
    }
    for ((name, _), limits) in rules {
        let Some((first, settings)) = limits.first() else { continue };
        let mut rule = (*settings).clone().with("on_missing", "skip");
        rule.set("description", "Limits of single consumers: all others are exempt.");
        let others: Vec<String> = imported
            .keys
            .iter()
            .map(|key| key.name.clone())
            .filter(|id| limits.iter().all(|(member, _)| member.id != *id))
            .collect();
        if !others.is_empty() {
            rule.change("exempt", |exempt| {
                exempt.insert("keys".into(), list(others.iter().map(String::as_str)));
            });
        }
        let usual = rule.get("limit").cloned();
        let rule = imported.rules.add(&format!("{name}-consumer"), first.place, rule);
        for (member, settings) in limits.iter().filter(|(_, it)| it.get("limit") != usual.as_ref())
        {
            set_limit(&member.id, &rule, settings, imported);
        }
    }
}

/// What two limits have in common if they can be those of one rule: all but the limit.
fn kind(settings: &Settings) -> String {
    let rest = settings.iter().filter(|(name, _)| *name != "limit" && *name != "routes");
    let lines: Vec<String> = rest.map(|(name, value)| format!("{name} = {value}")).collect();
    lines.join("\n")
}

/// Replaces the limits of the only plugin, which is for all routes and has the same limits. Returns
/// false if there is no such plugin.
fn replace(member: &Member, made: &[&Made<'_>], imported: &mut Imported) -> bool {
    let [only] = made else { return false };
    if !only.is_global || only.rules.len() != member.limits.len() {
        return false;
    }
    let rule_of = |name: &str| {
        let (_, rule) = only.rules.iter().find(|(known, _)| known == name)?;
        imported.rules.get(rule)
    };
    let is_same = |(name, settings): &(String, Settings)| {
        rule_of(name).is_some_and(|rule| kind(&rule.settings) == kind(settings))
    };
    if !member.limits.iter().all(is_same) {
        return false;
    }
    let changes: Vec<(String, &Settings)> = member
        .limits
        .iter()
        .filter_map(|(name, settings)| Some((rule_of(name)?, settings)))
        .filter(|(rule, settings)| rule.settings.get("limit") != settings.get("limit"))
        .map(|(rule, settings)| (rule.name.clone(), settings))
        .collect();
    for (rule, settings) in changes {
        set_limit(&member.id, &rule, settings, imported);
    }
    true
}

/// Sets the limit of a key in a rule.
fn set_limit(id: &str, rule: &str, settings: &Settings, imported: &mut Imported) {
    let Some(limit) = settings.get("limit") else { return };
    for key in imported.keys.iter_mut().filter(|key| key.name == id) {
        key.settings.change("rules", |rules| {
            let mut table = Table::new();
            table.insert("limit".into(), limit.clone());
            rules.insert(rule.to_owned(), table.into());
        });
    }
}

/// Lets a key be without a rule.
fn exempt(rule: &str, id: &str, imported: &mut Imported) {
    for rule in imported.rules.iter_mut().filter(|known| known.name == rule) {
        rule.settings.change("exempt", |exempt| {
            let keys = exempt.entry("keys").or_insert_with(|| Value::Array(Vec::new()));
            if let Value::Array(keys) = keys
                && !keys.iter().any(|key| key.as_str() == Some(id))
            {
                keys.push(id.into());
            }
        });
    }
}

/// Notes what is not taken over of groups.
fn note_groups(documents: &[Node], plugins: &[Plugin<'_>], imported: &mut Imported) {
    let is_own = |plugin: &&Plugin<'_>, group| matches!(plugin.owner, Owner::Group(owner) if std::ptr::eq(owner, group));
    for group in documents.iter().flat_map(|document| items(document, "consumer_groups")) {
        let own: Vec<&Plugin<'_>> = plugins.iter().filter(|it| is_own(it, group)).collect();
        let what = format!("consumer group {}", super::name_of(group));
        if own.is_empty() {
            let why = "the groups are plans: `[plans.<name>]`, and `plan` of the keys";
            imported.notes.omitted(group.place, &what, why);
        }
        for plugin in own.into_iter().filter(|plugin| !is_limit(plugin.name)) {
            let what = format!("{what}: plugin {}", plugin.name);
            imported.notes.omitted(plugin.node.place, what, consumers::instead(plugin.name));
        }
    }
    let names: Vec<&str> = documents
        .iter()
        .flat_map(|document| items(document, "consumer_groups"))
        .map(super::name_of)
        .collect();
    for node in documents.iter().flat_map(|document| items(document, "consumers")) {
        let is_missing = |item: &&Node| {
            let name = item.text().or(item.text_at(&["name"])).unwrap_or_default();
            !names.contains(&name)
        };
        if let Some(group) = items(node, "groups").iter().find(is_missing) {
            let what = format!("consumer {}: groups", consumers::name(node));
            imported.notes.omitted(group.place, what, "groups are plans: `plan` of the key");
        }
    }
}
