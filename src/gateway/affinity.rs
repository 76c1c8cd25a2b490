//! What identifies a client whose requests go to the same endpoint (`balance = "hash:…"`).

use std::net::IpAddr;

use http::HeaderMap;

use super::exchange::Exchange;
use crate::base::hash::hash as hash_bytes;
use crate::policy::client::{Client, ClientKey};
use crate::policy::servers::HashSource;

/// The hash of the client of a request, the same on all gateways.
pub(super) fn hash(source: &HashSource, headers: &HeaderMap, exchange: &Exchange) -> u64 {
    match source {
        HashSource::Ip => of_address(exchange),
        HashSource::Header(name) => match headers.get(name) {
            Some(value) => hash_bytes(value.as_bytes()),
            None => of_address(exchange),
        },
        HashSource::Key => {
            let client = exchange.client();
            match (client.and_then(|client| client.known(&exchange.snapshot.policy)), client) {
                (Some(key), _) => hash_bytes(key.id.as_bytes()),
                (None, Some(Client { key: ClientKey::Unknown(digest), .. })) => hash_bytes(&digest),
                (None, _) => of_address(exchange),
            }
        }
    }
}

fn of_address(exchange: &Exchange) -> u64 {
    match exchange.client().and_then(|client| client.ip) {
        Some(IpAddr::V4(ip)) => hash_bytes(&ip.octets()),
        Some(IpAddr::V6(ip)) => hash_bytes(&ip.octets()),
        None => 0,
    }
}
