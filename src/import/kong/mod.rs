//! Kong: services, routes, upstreams, consumers and plugins of the declarative configuration.
//!
//! Reading order: `services`, `plugins`, `consumers`.

mod consumers;
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
    /// A consumer by name.
    Consumer(&'a str),
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
    let plugins = plugins(documents, &mut imported.notes);
    services::import(documents, &plugins, imported);
    consumers::import(documents, &plugins, imported);
    plugins::rules(documents, &plugins, imported);
}

fn note(pair: &Pair, imported: &mut Imported) {
    let why = match pair.key.as_str() {
        "certificates" | "snis" => {
            "certificates are files: `[[listeners]]` with `certificates = [{ cert = \"api.pem\", key = \"api.key\" }]`"
        }
        "ca_certificates" => {
            "write `tls = { ca = \"ca.pem\" }` of the upstream, or `client_ca` of the listener"
        }
        "consumer_groups" => "the groups are plans: `[plans.<name>]`, and `plan` of the keys",
        "vaults" => "secrets are `${NAME}` and `${file:PATH}`",
        "keys" | "key_sets" => "tokens are verified by `[clients.jwt]`",
        "keyauth_credentials" | "key_auth_credentials" => {
            "keys are read below their consumer only: write `[keys.<id>]`, which `tollgate hash-key` prints"
        }
        "acls" => "there is no refusal by group: the groups are plans, `plan` of the keys",
        "targets" => "targets are read below their upstream only: write `servers` of the upstream",
        "_plugin_configs" => {
            "plugins that refer to it have no settings: write `config` in each plugin"
        }
        "services" | "routes" | "upstreams" | "consumers" | "plugins" | "_format_version"
        | "_transform" | "_comment" | "_info" | "_workspace" => return,
        _ => "it is no table of Kong that is known here",
    };
    imported.notes.omitted(pair.place, &pair.key, why);
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
                let name = consumer.text_at(&["username"]).unwrap_or_default();
                push(&mut found, node, Owner::Consumer(name), notes);
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
    if let Some(name) = reference(node, "route") {
        let route = routes(documents).into_iter().find(|it| is_named(it, name));
        return route.map(Owner::Route).ok_or("its route is not in the file");
    }
    if let Some(name) = reference(node, "service") {
        let mut services = documents.iter().flat_map(|document| items(document, "services"));
        let service = services.find(|it| is_named(it, name));
        return service.map(Owner::Service).ok_or("its service is not in the file");
    }
    Ok(reference(node, "consumer").map_or(Owner::All, Owner::Consumer))
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
    let is_of_both = is_of_consumer && ["service", "route"].iter().any(|it| node.get(it).is_some());
    if is_beside || is_of_both || node.get("consumer_group").is_some() {
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
    name.or_else(|| value.text_at(&["username"]))
}
