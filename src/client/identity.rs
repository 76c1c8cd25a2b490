//! Identifies the client of a request: its address, and whose key it has. Forwarded headers are
//! used only if the peer is a trusted proxy.

use std::net::IpAddr;
use std::sync::Arc;

use http::HeaderMap;
use ipnet::IpNet;
use sha2::{Digest as _, Sha256};

use super::address::{AddressSource, canonical, forwarded_address, is_trusted};
use super::auth_answer::AuthAnswer;
use super::principal::{Found, KeyRefusal};
use super::settings::{Clients, OnUnknownKey};
use super::{Client, ClientKey};

/// The client of a request, and how it was identified.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// The client as rules count it.
    pub client: Client,
    /// Whether the peer is a trusted proxy, so that its forwarded headers are used.
    pub via_trusted_proxy: bool,
    /// Where the client's address comes from.
    pub address_from: AddressSource,
    /// Where the key was, as an index into [`Clients::key_sources`]; `None` without a key.
    pub key_from: Option<usize>,
    /// Name of its key, if the key is known and has one.
    pub key_name: Option<Arc<str>>,
    /// Why its known key cannot be used, or its token is refused; `None` if it can.
    pub key_refusal: Option<KeyRefusal>,
    /// What the server said that was asked about the request, if one was.
    pub auth: Option<Arc<AuthAnswer>>,
}

/// The other end of a connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Peer {
    /// Its address; `None` on a Unix socket.
    pub address: Option<IpAddr>,
    /// Whether it only passes on the bytes of a client without an address. Then it has written none
    /// of their headers.
    pub is_relay: bool,
}

/// Identifies the client of a request. `trusted` are the networks of trusted proxies; `found` is
/// whose key the request has. Of the subject of a certificate, its hash is kept.
pub fn identify(
    clients: &Clients,
    trusted: &[IpNet],
    peer: Peer,
    headers: &HeaderMap,
    certificate: Option<&str>,
    found: Found,
) -> Identity {
    let Found { key, source: key_from, name: key_name, refusal: key_refusal, auth } = found;
    let key = match key {
        ClientKey::Unknown(_) if clients.on_unknown_key == Some(OnUnknownKey::Anonymous) => {
            ClientKey::Missing
        }
        key => key,
    };
    let (ip, address_from, via_trusted_proxy) = address(trusted, peer, headers);
    let certificate = certificate.map(|subject| Sha256::digest(subject).into());
    let client = Client { ip, certificate, ..Client::new(clients, key) };
    Identity { client, via_trusted_proxy, address_from, key_from, key_name, key_refusal, auth }
}

/// The address of a client, as [`identify`] finds it.
pub fn client_address(trusted: &[IpNet], peer: Peer, headers: &HeaderMap) -> Option<IpAddr> {
    address(trusted, peer, headers).0
}

/// The client's address, where it comes from, and whether the peer is a trusted proxy.
fn address(
    trusted: &[IpNet],
    Peer { address, is_relay }: Peer,
    headers: &HeaderMap,
) -> (Option<IpAddr>, AddressSource, bool) {
    let peer = address.map(canonical);
    match peer {
        Some(peer) if !is_relay && is_trusted(trusted, peer) => {
            let (ip, from) = forwarded_address(trusted, peer, headers);
            (Some(ip), from, true)
        }
        other => (other, AddressSource::Peer, false),
    }
}
