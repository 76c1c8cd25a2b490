//! What makes two requests those of the same client: for buckets, for the split of a route, for the
//! balancing of an upstream, and for counts by client. All hashes of a client begin here.

use std::net::IpAddr;
use std::sync::Arc;

use super::address::{counted_address, counted_as};
use super::principal::{Principal, Tenant};
use super::{Client, ClientKey};
use crate::base::hash::{Digest, hash};

/// What identifies a client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Identifier<'a> {
    /// The known client that it is.
    Known(&'a Principal),
    /// The tenant that it belongs to.
    Tenant(&'a Tenant),
    /// The digest of its unknown key.
    UnknownKey(&'a Digest),
    /// Its address; IPv6 truncated.
    Address(IpAddr),
    /// Nothing: it has no key, and is on a Unix socket.
    Local,
}

/// An [`Identifier`] that outlives the request: for a map of clients, which needs no names.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ClientId {
    /// [`Principal::hash`] of the known client with an API key.
    Known(u64),
    /// [`Principal::hash`] of the client with a token.
    Token(u64),
    /// [`Tenant::hash`] of its tenant.
    Tenant(u64),
    /// The first 8 bytes of the digest of an unknown key.
    UnknownKey(u64),
    /// An address; IPv6 truncated.
    Address(IpAddr),
    /// A client without a key on a Unix socket.
    Local,
}

impl Client {
    /// Its key, known or not; without one, its address. IPv6 is truncated to `ipv6_prefix` bits.
    pub fn identifier(&self, ipv6_prefix: u8) -> Identifier<'_> {
        match &self.key {
            ClientKey::Unknown(digest) => Identifier::UnknownKey(digest),
            ClientKey::Known(_) | ClientKey::Missing => self.known_or_address(ipv6_prefix),
        }
    }

    /// Its known key; without one, its address. For what must not grow with guesses at keys.
    pub fn known_or_address(&self, ipv6_prefix: u8) -> Identifier<'_> {
        self.principal().map_or_else(|| self.address(ipv6_prefix), Identifier::Known)
    }

    /// Its tenant, if it belongs to one.
    pub fn tenant(&self) -> Option<Identifier<'_>> {
        self.tenant.as_deref().map(Identifier::Tenant)
    }

    /// Its address, whatever key it has.
    pub fn address(&self, ipv6_prefix: u8) -> Identifier<'static> {
        let address = |ip| Identifier::Address(counted_address(ip, ipv6_prefix));
        self.ip.map_or(Identifier::Local, address)
    }
}

impl Identifier<'_> {
    /// Passes on the kind of the identifier, as a letter, and its value. Names of buckets and the
    /// shares of a split derive from these, so they must not change.
    pub fn tagged<T>(self, pass: impl FnOnce(u8, &[u8]) -> T) -> T {
        match self {
            Self::Known(principal) => match &principal.token {
                None => pass(b'k', principal.id.as_bytes()),
                Some(token) => pass(b'j', &token.digest),
            },
            Self::Tenant(tenant) => pass(b't', tenant.id.as_bytes()),
            Self::UnknownKey(digest) => pass(b'u', digest),
            Self::Address(IpAddr::V4(ip)) => pass(b'4', &ip.octets()),
            Self::Address(IpAddr::V6(ip)) => pass(b'6', &ip.octets()),
            Self::Local => pass(b'l', b""),
        }
    }

    /// The hash of the value, the same on all gateways; 0 for a client that nothing identifies.
    pub fn hash(self) -> u64 {
        match self {
            Self::Known(principal) => principal.hash,
            Self::Tenant(tenant) => tenant.hash,
            Self::Local => 0,
            Self::UnknownKey(_) | Self::Address(_) => self.tagged(|_, value| hash(value)),
        }
    }

    /// The same for a map of clients.
    pub fn id(self) -> ClientId {
        match self {
            Self::Known(principal) => match principal.token {
                None => ClientId::Known(principal.hash),
                Some(_) => ClientId::Token(principal.hash),
            },
            Self::Tenant(tenant) => ClientId::Tenant(tenant.hash),
            Self::UnknownKey(digest) => {
                let first = digest.first_chunk().copied().unwrap_or_default();
                ClientId::UnknownKey(u64::from_be_bytes(first))
            }
            Self::Address(ip) => ClientId::Address(ip),
            Self::Local => ClientId::Local,
        }
    }

    /// The client as operators see it: see [`ClientId::shown`].
    pub fn shown(self, ipv6_prefix: u8) -> (&'static str, String) {
        self.id().shown(self.name().as_deref().unwrap_or_default(), ipv6_prefix)
    }

    /// The name of the known client or tenant that it is, which no other of its kind has.
    pub fn name(&self) -> Option<Arc<str>> {
        match self {
            Self::Known(principal) => Some(Arc::clone(&principal.id)),
            Self::Tenant(tenant) => Some(Arc::clone(&tenant.id)),
            Self::UnknownKey(_) | Self::Address(_) | Self::Local => None,
        }
    }
}

impl ClientId {
    /// The client as operators see it: what identifies it (`key`, `token`, `tenant`, `unknown_key`
    /// or `ip`), and its name. Never contains the secret of a key. `name` is that of
    /// [`Identifier::name`].
    pub fn shown(self, name: &str, ipv6_prefix: u8) -> (&'static str, String) {
        match self {
            Self::Known(_) => ("key", name.to_owned()),
            Self::Token(_) => ("token", name.to_owned()),
            Self::Tenant(_) => ("tenant", name.to_owned()),
            Self::UnknownKey(beginning) => ("unknown_key", format!("{beginning:016x}")),
            Self::Address(ip) => ("ip", counted_as(ip, ipv6_prefix)),
            Self::Local => ("ip", String::new()),
        }
    }
}
