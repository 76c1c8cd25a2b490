//! Filter chains of a listener, and which connections they are for.

use std::collections::BTreeSet;

use ipnet::IpNet;

use super::{find, get, items, snake, text};
use crate::import::note::Notes;
use crate::import::values;
use crate::import::yaml::Node;

/// Lists of networks of clients.
const SOURCES: [&str; 2] = ["source_prefix_ranges", "direct_source_prefix_ranges"];

/// The connections that a filter chain is for, as conditions on requests.
#[derive(Debug, Default)]
pub(super) struct Chain {
    /// Names of the TLS handshake; empty for all.
    pub(super) server_names: Vec<String>,
    /// Networks of the clients; empty for all.
    pub(super) sources: Vec<String>,
    /// Networks among these whose clients another chain is for.
    pub(super) others: Vec<String>,
}

/// All filter chains of a listener.
pub(super) fn all(listener: &Node) -> impl Iterator<Item = &Node> {
    items(listener, "filter_chains").iter().chain(get(listener, "default_filter_chain"))
}

/// The filter chains of a listener that can be taken over, with their conditions. What is left out
/// is noted: without a condition, the routes would be open to more connections.
pub(super) fn usable<'a>(
    listener: &'a Node,
    what: &str,
    notes: &mut Notes,
) -> Vec<(&'a Node, Chain)> {
    if let Some(matcher) = get(listener, "filter_chain_matcher") {
        let why = "all filter chains of the listener are left out: which of them a connection gets is not taken over";
        notes.omitted(matcher.place, format!("{what}: filter_chain_matcher"), why);
        return Vec::new();
    }
    let all_chains: Vec<Chain> = all(listener).map(matched).collect();
    all(listener)
        .enumerate()
        .filter_map(|(index, chain)| {
            let mut conditions = conditions(chain, what, notes)?;
            conditions.others = of_others(index, &conditions, &all_chains);
            Some((chain, conditions))
        })
        .collect()
}

/// The conditions of a chain as far as they can be read, also of one that is left out.
fn matched(chain: &Node) -> Chain {
    let Some(matched) = get(chain, "filter_chain_match") else { return Chain::default() };
    let names = items(matched, "server_names").iter().filter_map(Node::text).map(str::to_lowercase);
    let networks = SOURCES.iter().flat_map(|key| items(matched, key)).filter_map(network);
    Chain { server_names: names.collect(), sources: networks.collect(), others: Vec::new() }
}

/// The networks of other chains for one of its names that are within those of this one. Envoy uses
/// the chain of the smallest network that a client is in, and no other.
fn of_others(index: usize, own: &Chain, all: &[Chain]) -> Vec<String> {
    let parsed = |text: &String| text.parse::<IpNet>().ok();
    let is_narrower = |network: &IpNet| {
        let mut sources = own.sources.iter().filter_map(parsed);
        own.sources.is_empty() || sources.any(|own| own != *network && own.contains(network))
    };
    let has_common_name = |chain: &Chain| {
        let names = &chain.server_names;
        let are_for_all = names.is_empty() && own.server_names.is_empty();
        are_for_all || names.iter().any(|name| own.server_names.contains(name))
    };
    let others = all.iter().enumerate().filter(|(other, _)| *other != index);
    let networks: BTreeSet<String> = others
        .filter(|(_, chain)| has_common_name(chain))
        .flat_map(|(_, chain)| chain.sources.iter().filter_map(parsed).filter(is_narrower))
        .map(|network| network.to_string())
        .collect();
    networks.into_iter().collect()
}

/// The conditions of a filter chain. None if one cannot be taken over, which is noted.
fn conditions(chain: &Node, what: &str, notes: &mut Notes) -> Option<Chain> {
    let mut found = Chain::default();
    let Some(matched) = get(chain, "filter_chain_match") else { return Some(found) };
    let what = format!("{what}: filter_chain_match");
    for pair in matched.pairs() {
        let key = snake(&pair.key);
        let Some(node) = get(matched, &key) else { continue };
        let what = format!("{what}: {key}");
        match key.as_str() {
            "transport_protocol" | "application_protocols" => {
                notes.approximate(
                    node.place,
                    what,
                    "its routes are for all protocols of the listener",
                );
            }
            "server_names" => {
                found.server_names = node.texts().into_iter().map(str::to_lowercase).collect();
                let why =
                    "routes are for the `Host` of a request, not for the name of the TLS handshake";
                notes.approximate(node.place, what, why);
            }
            key if SOURCES.contains(&key) => {
                found.sources = sources(node, &what, found.sources.is_empty(), notes)?;
            }
            "source_type" if node.text() == Some("ANY") => {}
            _ => {
                let why = "the filter chain is left out: a listener is for all connections to its address";
                notes.omitted(node.place, what, why);
                return None;
            }
        }
    }
    Some(found)
}

/// The networks of a chain. None if they cannot be taken over, which is noted.
fn sources(ranges: &Node, what: &str, is_first: bool, notes: &mut Notes) -> Option<Vec<String>> {
    if !is_first {
        let why = "the filter chain is left out: its addresses are written in two ways";
        notes.omitted(ranges.place, what, why);
        return None;
    }
    let networks: Option<Vec<String>> = ranges.items().iter().map(network).collect();
    let networks = networks.filter(|networks| !networks.is_empty());
    match &networks {
        Some(_) => {
            let why = "a filter chain is for the connections of its networks, a route for its requests: routes of other chains with the same names refuse these networks";
            notes.approximate(ranges.place, what, why);
        }
        None => {
            let why = "the filter chain is left out: a `prefix_len` is no whole number";
            notes.omitted(ranges.place, what, why);
        }
    }
    networks
}

/// `{ address_prefix: 10.0.0.0, prefix_len: 8 }` as a network; none if the length is no number. An
/// address that is none is noted when it is read.
fn network(range: &Node) -> Option<String> {
    let address = text(range, "address_prefix").unwrap_or_default();
    // Without a length, it is 0: all addresses.
    let length = match find(range, "prefix_len") {
        Some(_) => get(range, "prefix_len").and_then(Node::number)?,
        None => 0,
    };
    let text = format!("{address}/{length}");
    Some(values::network(&text).unwrap_or(text))
}
