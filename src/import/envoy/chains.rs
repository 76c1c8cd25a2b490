//! Filter chains of a listener, and which connections they are for.

use std::collections::BTreeSet;

use ipnet::IpNet;

use super::{find, get, items, snake, text};
use crate::import::note::Notes;
use crate::import::values;
use crate::import::yaml::Node;

/// The connections that a filter chain is for, as conditions on requests.
#[derive(Debug, Default)]
pub(super) struct Chain {
    /// Names of the TLS handshake; empty for all.
    pub(super) server_names: Vec<String>,
    /// Networks of the clients; empty for all.
    pub(super) sources: Vec<String>,
    /// Networks among these whose clients another chain is for.
    pub(super) others: Vec<String>,
    /// `direct_source_prefix_ranges`; empty for all.
    direct: Vec<String>,
    /// `source_prefix_ranges`; empty for all.
    ranges: Vec<String>,
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
            let mut conditions = conditions(listener, chain, what, notes)?;
            conditions.others = of_others(index, &conditions, &all_chains);
            Some((chain, conditions))
        })
        .collect()
}

/// The conditions of a chain as far as they can be read, also of one that is left out.
fn matched(chain: &Node) -> Chain {
    let Some(matched) = get(chain, "filter_chain_match") else { return Chain::default() };
    let names = items(matched, "server_names").iter().filter_map(Node::text).map(str::to_lowercase);
    let networks = |key| items(matched, key).iter().filter_map(network).collect();
    Chain {
        server_names: names.collect(),
        direct: networks("direct_source_prefix_ranges"),
        ranges: networks("source_prefix_ranges"),
        ..Chain::default()
    }
}

/// The networks of other chains for one of its names that are within those of this one. Envoy uses
/// the chain of the smallest network that a client is in, and no other: first by
/// `direct_source_prefix_ranges`, then, among the chains of the same one, by
/// `source_prefix_ranges`.
fn of_others(index: usize, own: &Chain, all: &[Chain]) -> Vec<String> {
    let has_common = |one: &[String], other: &[String]| {
        one.is_empty() && other.is_empty() || one.iter().any(|it| other.contains(it))
    };
    let others: Vec<&Chain> = all
        .iter()
        .enumerate()
        .filter(|(other, _)| *other != index)
        .map(|(_, chain)| chain)
        .filter(|chain| has_common(&chain.server_names, &own.server_names))
        .collect();
    let direct = others.iter().flat_map(|chain| narrower(&chain.direct, &own.direct));
    let same = others.iter().filter(|chain| has_common(&chain.direct, &own.direct));
    let networks = same.flat_map(|chain| narrower(&chain.ranges, &own.ranges));
    let found: BTreeSet<String> = direct.chain(networks).collect();
    found.into_iter().collect()
}

/// The networks that are within one of `own`, and not the same. Without `own`, it is for all.
fn narrower(networks: &[String], own: &[String]) -> Vec<String> {
    let parsed = |text: &String| text.parse::<IpNet>().ok();
    let is_narrower = |network: &IpNet| {
        let mut own_networks = own.iter().filter_map(parsed);
        own.is_empty() || own_networks.any(|own| own != *network && own.contains(network))
    };
    let found = networks.iter().filter_map(parsed).filter(is_narrower);
    found.map(|network| network.to_string()).collect()
}

/// The conditions of a filter chain. None if one cannot be taken over, which is noted.
fn conditions(listener: &Node, chain: &Node, what: &str, notes: &mut Notes) -> Option<Chain> {
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
            "direct_source_prefix_ranges" if reads_proxy_protocol(listener) => {
                let why = "the filter chain is left out: these are addresses of proxies, `allow_ips` has those of clients";
                notes.omitted(node.place, what, why);
                return None;
            }
            "direct_source_prefix_ranges" => found.direct = sources(node, &what, notes)?,
            "source_prefix_ranges" => found.ranges = sources(node, &what, notes)?,
            "source_type" if node.text() == Some("ANY") => {}
            _ => {
                let why = "the filter chain is left out: a listener is for all connections to its address";
                notes.omitted(node.place, what, why);
                return None;
            }
        }
    }
    found.sources = both(&found.direct, &found.ranges);
    if found.sources.is_empty() && !found.direct.is_empty() {
        let why = "the filter chain is left out: no address is in both of its lists";
        notes.omitted(matched.place, what, why);
        return None;
    }
    Some(found)
}

/// The networks that are in both lists, of which an empty one is for all.
fn both(direct: &[String], ranges: &[String]) -> Vec<String> {
    if direct.is_empty() || ranges.is_empty() {
        return [direct, ranges].concat();
    }
    let mut found: Vec<String> = Vec::new();
    for network in direct {
        for overlap in ranges.iter().filter_map(|range| values::overlap(network, range)) {
            if !found.contains(&overlap) {
                found.push(overlap);
            }
        }
    }
    found
}

/// Whether a listener filter replaces the address of a connection by that of the client.
pub(super) fn reads_proxy_protocol(listener: &Node) -> bool {
    let name_of = |filter| text(filter, "name").unwrap_or_default();
    items(listener, "listener_filters").iter().any(|it| name_of(it).contains("proxy_protocol"))
}

/// The networks of a chain. None if they cannot be taken over, which is noted.
fn sources(ranges: &Node, what: &str, notes: &mut Notes) -> Option<Vec<String>> {
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
