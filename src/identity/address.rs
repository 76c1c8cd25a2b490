//! The address that a request is from, behind the proxies that are trusted.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use http::HeaderMap;
use ipnet::IpNet;

/// How many addresses of `X-Forwarded-For` are looked at, from the right. No real chain of proxies
/// is longer, and a forged one must not cost more.
const MAX_HOPS: usize = 32;

/// How an address was found. Hops are addresses of `X-Forwarded-For`, counted from the right,
/// from 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AddressFrom {
    /// The peer's own: it is no trusted proxy, so its `X-Forwarded-For` is not looked at.
    Peer,
    /// The peer's own: it is a trusted proxy, and sent no `X-Forwarded-For`.
    NothingForwarded,
    /// The peer's own: what stands at this hop is no address.
    Junk(usize),
    /// The right-most hop that is no trusted proxy.
    Hop(usize),
    /// This hop, the last that was looked at: it is a trusted proxy, as are all before it.
    AllTrusted(usize),
}

/// The address as the client would write it: IPv4 inside IPv6 (mapped, `::ffff:0:0/96`, and
/// translated by NAT64, `64:ff9b::/96` of RFC 6052) is IPv4.
pub fn canonical(ip: IpAddr) -> IpAddr {
    const NAT64: u128 = Ipv6Addr::new(0x64, 0xff9b, 0, 0, 0, 0, 0, 0).to_bits();
    let IpAddr::V6(v6) = ip else { return ip };
    if v6.to_bits() & !u128::from(u32::MAX) == NAT64 {
        let [.., a, b, c, d] = v6.octets();
        return IpAddr::V4(Ipv4Addr::new(a, b, c, d));
    }
    ip.to_canonical()
}

/// An address as people ask for one: itself, or the network of `ipv6_prefix` bits that stands for it
/// wherever clients are told. None where the text is neither.
pub fn parse_address(text: &str, ipv6_prefix: u8) -> Option<IpAddr> {
    let network = text.strip_suffix(&format!("/{ipv6_prefix}"));
    let network = network.and_then(|bare| bare.parse::<Ipv6Addr>().ok()).map(IpAddr::V6);
    network.or_else(|| text.parse().ok()).map(canonical)
}

pub(super) fn is_trusted(trusted: &[IpNet], ip: IpAddr) -> bool {
    trusted.iter().any(|net| net.contains(&ip))
}

/// The right-most address of `X-Forwarded-For` that is not a trusted proxy's. Where all are, the
/// left-most; where junk stands in the way, the peer.
pub(super) fn forwarded_address(
    trusted: &[IpNet],
    peer: IpAddr,
    headers: &HeaderMap,
) -> (IpAddr, AddressFrom) {
    const FORWARDED_FOR: &str = "x-forwarded-for";
    // One line, the last, in nearly every request.
    let lines: Vec<_> = headers.get_all(FORWARDED_FOR).iter().collect();
    let hops = lines.iter().rev().flat_map(|line| line.as_bytes().rsplit(|byte| *byte == b','));
    // Empty members of a list are none (RFC 9110, section 5.6.1.2).
    let hops = hops.filter(|hop| !hop.trim_ascii().is_empty());
    let mut nearest = (peer, AddressFrom::NothingForwarded);
    for (hop, number) in hops.take(MAX_HOPS).zip(1..) {
        let Some(ip) = parse_hop(hop) else { return (peer, AddressFrom::Junk(number)) };
        nearest = (ip, AddressFrom::AllTrusted(number));
        if !is_trusted(trusted, ip) {
            return (ip, AddressFrom::Hop(number));
        }
    }
    nearest
}

/// An address as proxies write it: bare, in brackets, or with a port.
fn parse_hop(hop: &[u8]) -> Option<IpAddr> {
    let text = std::str::from_utf8(hop).ok()?.trim();
    let bare = text.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(text);
    let ip = bare
        .parse::<IpAddr>()
        .or_else(|_| text.parse::<SocketAddr>().map(|address| address.ip()))
        .ok()?;
    Some(canonical(ip))
}
