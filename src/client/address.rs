//! The client's address: the peer's, or the one that trusted proxies forward.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use http::HeaderMap;
use ipnet::IpNet;

/// Maximum number of addresses of `X-Forwarded-For` that are read, from the right. Real chains of
/// proxies are shorter, and a forged one must not cost more.
const MAX_HOPS: usize = 32;

/// Where an address comes from. Hops are addresses of `X-Forwarded-For`, counted from the right,
/// starting at 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AddressSource {
    /// The peer. It is not a trusted proxy, so its `X-Forwarded-For` is not read.
    Peer,
    /// The peer. It is a trusted proxy, and the request has no `X-Forwarded-For`.
    NoForwardedFor,
    /// The peer, because this hop is not an address.
    Malformed(usize),
    /// The right-most hop that is not a trusted proxy.
    Hop(usize),
    /// The last hop that was read. All hops are trusted proxies.
    AllTrusted(usize),
}

/// Canonical form of an address: IPv4 in IPv6 (mapped, `::ffff:0:0/96`, or translated by NAT64,
/// `64:ff9b::/96` of RFC 6052) becomes IPv4.
pub fn canonical(ip: IpAddr) -> IpAddr {
    const NAT64: u128 = Ipv6Addr::new(0x64, 0xff9b, 0, 0, 0, 0, 0, 0).to_bits();
    let IpAddr::V6(v6) = ip else { return ip };
    if v6.to_bits() & !u128::from(u32::MAX) == NAT64 {
        let [.., a, b, c, d] = v6.octets();
        return IpAddr::V4(Ipv4Addr::new(a, b, c, d));
    }
    ip.to_canonical()
}

/// Parses an address, or an IPv6 network of exactly `ipv6_prefix` bits, which is how clients are
/// shown. `None` if the text is neither.
pub fn parse_address(text: &str, ipv6_prefix: u8) -> Option<IpAddr> {
    let network = text.strip_suffix(&format!("/{ipv6_prefix}"));
    let network = network.and_then(|bare| bare.parse::<Ipv6Addr>().ok()).map(IpAddr::V6);
    network.or_else(|| text.parse().ok()).map(canonical)
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

/// Whether an address in canonical form is that of a trusted proxy.
pub fn is_trusted(trusted: &[IpNet], ip: IpAddr) -> bool {
    trusted.iter().any(|net| net.contains(&ip))
}

/// The right-most address of `X-Forwarded-For` that is not a trusted proxy's. If all are, the
/// left-most that was read; if one before it is malformed, the peer.
pub(super) fn forwarded_address(
    trusted: &[IpNet],
    peer: IpAddr,
    headers: &HeaderMap,
) -> (IpAddr, AddressSource) {
    const FORWARDED_FOR: &str = "x-forwarded-for";
    // Nearly every request has one line.
    let lines: Vec<_> = headers.get_all(FORWARDED_FOR).iter().collect();
    let hops = lines.iter().rev().flat_map(|line| line.as_bytes().rsplit(|byte| *byte == b','));
    // Empty list elements are ignored (RFC 9110, section 5.6.1.2).
    let hops = hops.filter(|hop| !hop.trim_ascii().is_empty());
    let mut nearest = (peer, AddressSource::NoForwardedFor);
    for (hop, number) in hops.take(MAX_HOPS).zip(1..) {
        let Some(ip) = parse_hop(hop) else { return (peer, AddressSource::Malformed(number)) };
        nearest = (ip, AddressSource::AllTrusted(number));
        if !is_trusted(trusted, ip) {
            return (ip, AddressSource::Hop(number));
        }
    }
    nearest
}

/// Parses one hop: an address, optionally in brackets or with a port.
fn parse_hop(hop: &[u8]) -> Option<IpAddr> {
    let text = std::str::from_utf8(hop).ok()?.trim();
    let bare = text.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(text);
    let ip = bare
        .parse::<IpAddr>()
        .or_else(|_| text.parse::<SocketAddr>().map(|address| address.ip()))
        .ok()?;
    Some(canonical(ip))
}
