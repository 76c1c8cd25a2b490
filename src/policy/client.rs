//! The client of a request, as rules count it.

use std::net::{IpAddr, Ipv6Addr};

use ipnet::IpNet;

use super::{Digest, Key, Policy};

/// Identity of the client of one request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Client {
    /// Address, found through trusted proxies, in canonical form; `None` on a Unix socket.
    pub ip: Option<IpAddr>,
    /// API key that the request has, and whether the file has it.
    pub key: ClientKey,
    /// Index of the plan.
    pub plan: u32,
    /// SHA-256 of the subject of the client's certificate, as text of RFC 4514; `None` without a
    /// certificate, or if no rule counts by it.
    pub certificate: Option<Digest>,
}

/// API key of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ClientKey {
    /// The request has no key.
    Missing,
    /// A key in the file, by its index.
    Known(u32),
    /// A key that is not in the file, by its digest.
    Unknown(Digest),
}

impl Client {
    /// The key in the file that the client has.
    pub fn known<'a>(&self, policy: &'a Policy) -> Option<&'a Key> {
        match self.key {
            ClientKey::Known(key) => policy.keys.get(key as usize),
            ClientKey::Missing | ClientKey::Unknown(_) => None,
        }
    }
}

/// The address that a client is counted by: IPv4 unchanged, IPv6 truncated to `ipv6_prefix` bits,
/// so that all addresses of one network are one client.
pub fn counted_address(ip: IpAddr, ipv6_prefix: u8) -> IpAddr {
    match ip {
        IpAddr::V4(_) => ip,
        IpAddr::V6(ip) => {
            let cut = 128u32.saturating_sub(u32::from(ipv6_prefix));
            let mask = u128::MAX.checked_shl(cut).unwrap_or(0);
            IpAddr::V6(Ipv6Addr::from_bits(ip.to_bits() & mask))
        }
    }
}

/// Text of a [`counted_address`]: the network (`2001:db8::/64`) if it was truncated, else the
/// address.
pub fn counted_as(counted: IpAddr, ipv6_prefix: u8) -> String {
    match counted {
        IpAddr::V6(_) if ipv6_prefix < 128 => {
            IpNet::new(counted, ipv6_prefix).map_or_else(|_| counted.to_string(), |n| n.to_string())
        }
        IpAddr::V4(_) | IpAddr::V6(_) => counted.to_string(),
    }
}
