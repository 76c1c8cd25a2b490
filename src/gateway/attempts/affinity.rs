//! What identifies a client whose requests go to the same endpoint (`balance = "hash:…"`).

use http::HeaderMap;

use crate::base::hash::hash as hash_bytes;
use crate::client::Client;
use crate::gateway::exchange::Exchange;
use crate::policy::servers::HashSource;

/// Number of leading bits of an IPv6 address: each address is a client.
const IPV6_PREFIX: u8 = 128;

/// The hash of the client of a request, the same on all gateways.
pub(super) fn hash(source: &HashSource, headers: &HeaderMap, exchange: &Exchange) -> u64 {
    let client = exchange.client();
    let of_address = |client: &Client| client.address(IPV6_PREFIX).hash();
    let of_client = |client: &Client| client.identifier(IPV6_PREFIX).hash();
    match source {
        HashSource::Ip => client.map_or(0, of_address),
        HashSource::Header(name) => match headers.get(name) {
            Some(value) => hash_bytes(value.as_bytes()),
            None => client.map_or(0, of_address),
        },
        HashSource::Key => client.map_or(0, of_client),
    }
}
