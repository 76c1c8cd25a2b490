//! Who a request is from, as rules see it.

use std::net::{IpAddr, Ipv6Addr};

use ipnet::IpNet;

use super::Digest;

/// The client of one request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Client {
    /// Its address behind trusted proxies, canonical; none on a Unix socket.
    pub ip: Option<IpAddr>,
    /// Its key.
    pub key: ClientKey,
    /// Index of its plan.
    pub plan: u32,
}

/// The key that a request came with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ClientKey {
    /// None.
    Missing,
    /// One that the file knows, by its index.
    Known(u32),
    /// One that the file does not know, by its digest.
    Unknown(Digest),
}

/// The address by which a client is counted: IPv4 as it is, IPv6 cut to `ipv6_prefix` bits, so
/// that a customer's whole network is one client.
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

/// An address that was counted, as people read it: where it stands for a network, that.
pub fn counted_as(counted: IpAddr, ipv6_prefix: u8) -> String {
    match counted {
        IpAddr::V6(_) if ipv6_prefix < 128 => {
            IpNet::new(counted, ipv6_prefix).map_or_else(|_| counted.to_string(), |n| n.to_string())
        }
        IpAddr::V4(_) | IpAddr::V6(_) => counted.to_string(),
    }
}
