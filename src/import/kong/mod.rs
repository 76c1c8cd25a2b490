//! Kong: services, routes, upstreams, consumers and plugins of the declarative configuration.
//!
//! Reading order: `services`, `plugins`, `limits`, `key_auth`, `consumers`, `consumer_limits`.

mod consumer_limits;
mod consumers;
mod key_auth;
mod limits;
mod plugins;
mod services;

use super::common::listen;
use super::note::{Notes, Place};
use super::settings::Imported;
use super::yaml::{Node, Pair};

/// What a plugin applies to.
#[derive(Debug, Clone, Copy)]
enum Owner<'a> {
    /// All routes.
    All,
    /// A service: many have no name.
    Service(&'a Node),
    /// A route: many have no name.
    Route(&'a Node),
    /// A consumer.
    Consumer(&'a Node),
    /// A group of consumers.
    Group(&'a Node),
}

/// A plugin, and what it applies to.
#[derive(Debug, Clone, Copy)]
struct Plugin<'a> {
    node: &'a Node,
    name: &'a str,
    owner: Owner<'a>,
}

/// Takes over the documents, which belong together.
pub(super) fn import(documents: &[Node], imported: &mut Imported) {
    listen(imported, "0.0.0.0:8000".to_owned());
    imported.notes.approximate(
        Place::default(),
        "proxy_listen",
        "listeners are in kong.conf, which is not read: the default of Kong is assumed, without TLS",
    );
    for pair in documents.iter().flat_map(Node::pairs) {
        note(pair, imported);
    }
    let documents = &with_shared_configs(documents, &mut imported.notes);
    let plugins = plugins(documents, &mut imported.notes);
    let made = services::import(documents, &plugins, imported);
    let with_keys = consumers::import(documents, &plugins, imported);
    key_auth::import(documents, &plugins, imported);
    consumer_limits::import(documents, &plugins, &with_keys, &made, imported);
}

fn note(pair: &Pair, imported: &mut Imported) {
    let why = match pair.key.as_str() {
        "certificates" | "snis" => {
            "certificates are files: `[[listeners]]` with `certificates = [{ cert = \"api.pem\", key = \"api.key\" }]`"
        }
        "ca_certificates" => {
            "write `tls = { ca = \"ca.pem\" }` of the upstream, or `client_ca` of the listener"
        }
        "vaults" => "secrets are `${NAME}` and `${file:PATH}`",
        "keys" | "key_sets" => "tokens are verified by `[clients.jwt]`",
        "keyauth_credentials" | "key_auth_credentials" | "keyauth_enc_credentials" => {
            "keys are read below their consumer only: write `[keys.<id>]`, which `tollgate hash-key` prints"
        }
        "acls" => "there is no refusal by group: the groups are plans, `plan` of the keys",
        "targets" => "targets are read below their upstream only: write `servers` of the upstream",
        "_info" if pair.value.get("defaults").is_some() => {
            "its `defaults` are not read: write them in the services, routes and upstreams"
        }
        "services"
        | "routes"
        | "upstreams"
        | "consumers"
        | "consumer_groups"
        | "consumer_group_consumers"
        | "plugins"
        | "_plugin_configs"
        | "_format_version"
        | "_transform"
        | "_comment"
        | "_info"
        | "_workspace" => return,
        _ => "it is no table of Kong that is known here",
    };
    imported.notes.omitted(pair.place, &pair.key, why);
}

/// The documents with the settings of `_plugin_configs` in the plugins that refer to them by
/// `_config`. Settings of the plugin itself come first.
fn with_shared_configs(documents: &[Node], notes: &mut Notes) -> Vec<Node> {
    let shared = |name: &str| {
        let mut tables = documents.iter().filter_map(|document| document.get("_plugin_configs"));
        tables.find_map(|table| table.get(name))
    };
    let mut complete = documents.to_vec();
    let mut take = |plugin: &mut Node| {
        let Some(name) = plugin.text_at(&["_config"]) else { return };
        let Some(shared) = shared(name) else {
            let why = "it is not in `_plugin_configs`: the plugin has only the settings of its own";
            notes.omitted(plugin.place, format!("_config: {name}"), why);
            return;
        };
        let own = plugin.get("config").cloned();
        let mut config = own.unwrap_or_else(|| Node::empty_map(plugin.place));
        config.add_missing(shared);
        plugin.set("config", config);
    };
    for document in &mut complete {
        document.change_maps(&mut take);
    }
    complete
}

/// All plugins that are not disabled.
fn plugins<'a>(documents: &'a [Node], notes: &mut Notes) -> Vec<Plugin<'a>> {
    let mut found = Vec::new();
    for document in documents {
        for node in items(document, "plugins") {
            match owner(node, documents) {
                Ok(owner) => push(&mut found, node, owner, notes),
                Err(why) => {
                    let name = node.text_at(&["name"]).unwrap_or_default();
                    notes.omitted(node.place, format!("plugin {name}"), why);
                }
            }
        }
        for service in items(document, "services") {
            for node in items(service, "plugins") {
                push(&mut found, node, Owner::Service(service), notes);
            }
        }
        for route in routes(std::slice::from_ref(document)) {
            for node in items(route, "plugins") {
                push(&mut found, node, Owner::Route(route), notes);
            }
        }
        for consumer in items(document, "consumers") {
            for node in items(consumer, "plugins") {
                push(&mut found, node, Owner::Consumer(consumer), notes);
            }
        }
        for group in items(document, "consumer_groups") {
            for node in items(group, "plugins") {
                push(&mut found, node, Owner::Group(group), notes);
            }
        }
    }
    found
}

/// What a plugin of the top level applies to.
///
/// # Errors
/// It applies to what cannot be taken over.
fn owner<'a>(node: &'a Node, documents: &'a [Node]) -> Result<Owner<'a>, &'static str> {
    let is_unclear = |key: &&str| node.get(key).is_some() && reference(node, key).is_none();
    if ["route", "service", "consumer", "consumer_group"].iter().any(is_unclear) {
        return Err(
            "what it is for is not named: write `service: <name>`, or it within the service",
        );
    }
    if let Some(name) = reference(node, "route") {
        let route = routes(documents).into_iter().find(|it| is_named(it, name));
        return route.map(Owner::Route).ok_or("its route is not in the file");
    }
    if let Some(name) = reference(node, "service") {
        let mut services = documents.iter().flat_map(|document| items(document, "services"));
        let service = services.find(|it| is_named(it, name));
        return service.map(Owner::Service).ok_or("its service is not in the file");
    }
    if let (None, Some(name)) = (node.get("consumer"), reference(node, "consumer_group")) {
        let mut groups = documents.iter().flat_map(|document| items(document, "consumer_groups"));
        let group = groups.find(|it| is_named(it, name));
        return group.map(Owner::Group).ok_or("its group is not in the file");
    }
    let Some(name) = reference(node, "consumer") else { return Ok(Owner::All) };
    let mut all = documents.iter().flat_map(|document| items(document, "consumers"));
    all.find(|it| consumers::is_named(it, name))
        .map(Owner::Consumer)
        .ok_or("its consumer is not in the file")
}

/// All routes, those of services and those beside them.
fn routes(documents: &[Node]) -> Vec<&Node> {
    let services = documents.iter().flat_map(|document| items(document, "services"));
    let nested = services.flat_map(|service| items(service, "routes"));
    nested.chain(documents.iter().flat_map(|document| items(document, "routes"))).collect()
}

/// Whether a reference is to this service or route.
fn is_named(node: &Node, reference: &str) -> bool {
    [node.text_at(&["name"]), node.text_at(&["id"])].contains(&Some(reference))
}

fn push<'a>(found: &mut Vec<Plugin<'a>>, node: &'a Node, owner: Owner<'a>, notes: &mut Notes) {
    let is_enabled = node.get("enabled").and_then(Node::flag) != Some(false);
    let Some(name) = node.text_at(&["name"]).filter(|_| is_enabled) else { return };
    let is_of_consumer = matches!(owner, Owner::Consumer(_));
    let is_beside = node.get("consumer").is_some() && !is_of_consumer;
    let is_of_group = matches!(owner, Owner::Group(_));
    let is_of_both = (is_of_consumer || is_of_group)
        && ["service", "route"].iter().any(|it| node.get(it).is_some());
    if is_beside || is_of_both || node.get("consumer_group").is_some() && !is_of_group {
        let why = "it is for some clients only: limits of one are `rules.<rule>` in `[keys.<id>]`, those of a group `plans.<plan>` of a rule";
        notes.omitted(node.place, format!("plugin {name}"), why);
        return;
    }
    found.push(Plugin { node, name, owner });
}

/// The items of a list in a table.
fn items<'a>(node: &'a Node, name: &str) -> &'a [Node] {
    node.get(name).map(Node::items).unwrap_or_default()
}

/// The name of a service or a route, or its id.
fn name_of(node: &Node) -> &str {
    node.text_at(&["name"]).or_else(|| node.text_at(&["id"])).unwrap_or_default()
}

/// The name that `service: orders` or `service: { name: orders }` refers to.
fn reference<'a>(node: &'a Node, key: &str) -> Option<&'a str> {
    let value = node.get(key)?;
    let name = value.text().or_else(|| value.text_at(&["name"])).or_else(|| value.text_at(&["id"]));
    name.or_else(|| value.text_at(&["username"])).or_else(|| value.text_at(&["custom_id"]))
}
