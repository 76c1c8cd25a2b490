//! Filter chains of a listener, and which connections they are for.

use super::{get, items, text};
use crate::import::note::Notes;
use crate::import::yaml::Node;

/// The connections that a filter chain is for, as conditions on requests.
#[derive(Debug, Default)]
pub(super) struct Chain {
    /// Names of the TLS handshake; empty for all.
    pub(super) server_names: Vec<String>,
    /// Networks of the clients; empty for all.
    pub(super) sources: Vec<String>,
}

/// All filter chains of a listener.
pub(super) fn all(listener: &Node) -> impl Iterator<Item = &Node> {
    items(listener, "filter_chains").iter().chain(get(listener, "default_filter_chain"))
}

/// The conditions of a filter chain. None if one cannot be taken over, which is noted: without it,
/// the routes would be open to more connections.
pub(super) fn conditions(chain: &Node, what: &str, notes: &mut Notes) -> Option<Chain> {
    let mut found = Chain::default();
    let Some(matched) = get(chain, "filter_chain_match") else { return Some(found) };
    let what = format!("{what}: filter_chain_match");
    for key in
        ["destination_port", "prefix_ranges", "address_suffix", "source_ports", "source_type"]
    {
        if let Some(unknown) = get(matched, key).filter(|it| it.text() != Some("ANY")) {
            let why =
                "the filter chain is left out: a listener is for all connections to its address";
            notes.omitted(unknown.place, format!("{what}: {key}"), why);
            return None;
        }
    }
    for key in ["transport_protocol", "application_protocols"] {
        if let Some(ignored) = get(matched, key) {
            let why = "its routes are for all protocols of the listener";
            notes.approximate(ignored.place, format!("{what}: {key}"), why);
        }
    }
    if let Some(names) = get(matched, "server_names") {
        found.server_names = names.texts().into_iter().map(str::to_lowercase).collect();
        let why = "routes are for the `Host` of a request, not for the name of the TLS handshake";
        notes.approximate(names.place, format!("{what}: server_names"), why);
    }
    for key in ["source_prefix_ranges", "direct_source_prefix_ranges"] {
        let Some(ranges) = get(matched, key) else { continue };
        if !found.sources.is_empty() {
            let why = "the filter chain is left out: its addresses are written in two ways";
            notes.omitted(ranges.place, format!("{what}: {key}"), why);
            return None;
        }
        found.sources = ranges.items().iter().map(network).collect();
    }
    Some(found)
}

/// `{ address_prefix: 10.0.0.0, prefix_len: 8 }` as a network. What is none is noted when it is
/// read.
fn network(range: &Node) -> String {
    let address = text(range, "address_prefix").unwrap_or_default();
    // Without a length, it is 0: all addresses.
    let length = get(range, "prefix_len").and_then(Node::number).unwrap_or(0);
    format!("{address}/{length}")
}
