//! Kong: services, routes, upstreams, consumers and plugins of the declarative configuration.
//!
//! Reading order: `services`, `plugins`, `consumers`.

mod consumers;
mod plugins;
mod services;

use super::common::listen;
use super::settings::Imported;
use super::yaml::{Node, Pair};

/// What a plugin applies to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Owner<'a> {
    /// All routes.
    All,
    /// A service by name.
    Service(&'a str),
    /// A route by name.
    Route(&'a str),
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
        super::note::Place::default(),
        "proxy_listen",
        "listeners are in kong.conf, which is not read: the default of Kong is assumed, without TLS",
    );
    for pair in documents.iter().flat_map(Node::pairs) {
        note(pair, imported);
    }
    let plugins = plugins(documents);
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
        _ => return,
    };
    imported.notes.omitted(pair.place, &pair.key, why);
}

/// All plugins that are not disabled.
fn plugins(documents: &[Node]) -> Vec<Plugin<'_>> {
    let mut found = Vec::new();
    for document in documents {
        for node in items(document, "plugins") {
            let owner = reference(node, "route").map(Owner::Route);
            let owner = owner.or_else(|| reference(node, "service").map(Owner::Service));
            let owner = owner.or_else(|| reference(node, "consumer").map(Owner::Consumer));
            push(&mut found, node, owner.unwrap_or(Owner::All));
        }
        for service in items(document, "services") {
            for node in items(service, "plugins") {
                push(&mut found, node, Owner::Service(name_of(service)));
            }
            for route in items(service, "routes") {
                for node in items(route, "plugins") {
                    push(&mut found, node, Owner::Route(name_of(route)));
                }
            }
        }
        for route in items(document, "routes") {
            for node in items(route, "plugins") {
                push(&mut found, node, Owner::Route(name_of(route)));
            }
        }
        for consumer in items(document, "consumers") {
            for node in items(consumer, "plugins") {
                push(
                    &mut found,
                    node,
                    Owner::Consumer(consumer.text_at(&["username"]).unwrap_or_default()),
                );
            }
        }
    }
    found
}

fn push<'a>(found: &mut Vec<Plugin<'a>>, node: &'a Node, owner: Owner<'a>) {
    let is_enabled = node.get("enabled").and_then(Node::flag) != Some(false);
    if let Some(name) = node.text_at(&["name"]).filter(|_| is_enabled) {
        found.push(Plugin { node, name, owner });
    }
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
