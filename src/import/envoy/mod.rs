//! Envoy: listeners with HTTP connection managers, their routes, and clusters, of a bootstrap file.
//!
//! Reading order: `clusters`, `matching`, `limits`, `chains`, `routes`, `listeners`, `rest`.

mod chains;
mod clusters;
mod limits;
mod listeners;
mod matching;
mod rest;
mod routes;

use super::settings::Imported;
use super::values;
use super::yaml::Node;

/// Takes over the documents, which belong together.
pub(super) fn import(documents: &[Node], imported: &mut Imported) {
    for pair in documents.iter().flat_map(Node::pairs) {
        let why = match pair.key.as_str() {
            "dynamic_resources" => "listeners, routes and clusters of a control plane are not read",
            "tracing" => "write `[tracing]` with the `endpoint` of a collector",
            "stats_sinks" | "stats_config" => "Prometheus reads http://127.0.0.1:9090/metrics",
            "layered_runtime"
            | "overload_manager"
            | "watchdog"
            | "watchdogs"
            | "bootstrap_extensions" => "the gateway has no such setting",
            _ => continue,
        };
        imported.notes.omitted(pair.place, &pair.key, why);
    }
    for document in documents {
        if let Some(resources) = document.get("static_resources") {
            listeners::import(resources, imported);
            rest::note(resources, imported);
        }
    }
}

/// The configuration of an extension: `typed_config`, `config`, or the table itself.
fn config(node: &Node) -> &Node {
    get(node, "typed_config").or_else(|| node.get("config")).unwrap_or(node)
}

/// The value of a key that also may be in camel case, as in JSON. An empty list is no value, and
/// `{ value: 8 }`, a number or a flag that may be absent, is `8`.
fn get<'a>(node: &'a Node, key: &str) -> Option<&'a Node> {
    let found = find(node, key).filter(|found| !found.is_empty_list())?;
    match found.pairs() {
        [only] if only.key == "value" && only.value.text().is_some() => Some(&only.value),
        _ => Some(found),
    }
}

fn find<'a>(node: &'a Node, key: &str) -> Option<&'a Node> {
    node.get(key).or_else(|| {
        let mut camel = String::new();
        let mut is_upper = false;
        for c in key.chars() {
            match c {
                '_' => is_upper = true,
                c if is_upper => {
                    camel.push(c.to_ascii_uppercase());
                    is_upper = false;
                }
                c => camel.push(c),
            }
        }
        node.get(&camel)
    })
}

/// A key in snake case, as [`get`] expects it.
fn snake(key: &str) -> String {
    let mut snake = String::new();
    for c in key.chars() {
        if c.is_ascii_uppercase() {
            snake.push('_');
        }
        snake.push(c.to_ascii_lowercase());
    }
    snake
}

fn items<'a>(node: &'a Node, key: &str) -> &'a [Node] {
    get(node, key).map(Node::items).unwrap_or_default()
}

fn text<'a>(node: &'a Node, key: &str) -> Option<&'a str> {
    get(node, key)?.text()
}

/// Milliseconds of a duration: `10s`, or `{ seconds: 10 }`.
fn duration(node: &Node, key: &str) -> Option<u64> {
    let value = get(node, key)?;
    if let Some(text) = value.text() {
        return values::milliseconds(text, 1000);
    }
    let seconds = value.get("seconds").and_then(Node::number).unwrap_or(0);
    let nanos = value.get("nanos").and_then(Node::number).unwrap_or(0);
    seconds.checked_mul(1000)?.checked_add(nanos / 1_000_000)
}

/// `address: { socket_address: { address: 0.0.0.0, port_value: 80 } }` as host and port.
fn address(node: &Node) -> Option<(&str, u16)> {
    let socket = get(get(node, "address")?, "socket_address")?;
    let port = get(socket, "port_value").and_then(Node::number)?;
    Some((text(socket, "address")?, u16::try_from(port).ok()?))
}
