//! A set of IP networks. A look-up is a binary search, so that lists of many thousands of networks
//! cost no more than short ones.

use std::net::IpAddr;

use ipnet::IpNet;

/// A set of IP networks.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct IpSet {
    /// Ranges of addresses, each with its first and its last one. Sorted, and none overlaps
    /// another.
    v4: Box<[(u32, u32)]>,
    v6: Box<[(u128, u128)]>,
    networks: usize,
}

impl IpSet {
    /// The number of networks that the set was built from.
    pub fn networks(&self) -> usize {
        self.networks
    }

    /// Whether one of the networks contains the address, which is in canonical form
    /// ([`canonical`](crate::client::address::canonical)).
    pub fn contains(&self, ip: IpAddr) -> bool {
        match ip {
            IpAddr::V4(ip) => contains(&self.v4, ip.to_bits()),
            IpAddr::V6(ip) => contains(&self.v6, ip.to_bits()),
        }
    }
}

impl FromIterator<IpNet> for IpSet {
    fn from_iter<I: IntoIterator<Item = IpNet>>(networks: I) -> Self {
        let (mut v4, mut v6) = (Vec::new(), Vec::new());
        let mut count = 0;
        for network in networks {
            count += 1;
            match network {
                IpNet::V4(net) => v4.push((net.network().to_bits(), net.broadcast().to_bits())),
                IpNet::V6(net) => v6.push((net.network().to_bits(), net.broadcast().to_bits())),
            }
        }
        Self { v4: outermost(v4), v6: outermost(v6), networks: count }
    }
}

/// The ranges that are in no other one, sorted. Networks overlap only if one contains the other.
fn outermost<T: Copy + Ord>(mut ranges: Vec<(T, T)>) -> Box<[(T, T)]> {
    ranges.sort_unstable_by(|a, b| a.0.cmp(&b.0).then(b.1.cmp(&a.1)));
    let mut kept: Vec<(T, T)> = Vec::new();
    for range in ranges {
        if kept.last().is_none_or(|last| last.1 < range.0) {
            kept.push(range);
        }
    }
    kept.into_boxed_slice()
}

fn contains<T: Copy + Ord>(ranges: &[(T, T)], address: T) -> bool {
    let after = ranges.partition_point(|range| range.0 <= address);
    after.checked_sub(1).and_then(|at| ranges.get(at)).is_some_and(|range| address <= range.1)
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, Ipv6Addr};

    use ipnet::{Ipv4Net, Ipv6Net};
    use proptest::prelude::*;

    use super::*;

    fn set(networks: &[&str]) -> IpSet {
        networks.iter().map(|network| network.parse::<IpNet>().unwrap()).collect()
    }

    #[test]
    fn first_and_last_address_of_a_network_are_in_the_set() {
        let set = set(&["192.0.2.8/29", "10.0.0.0/8", "2001:db8::/32", "198.51.100.7/32"]);
        let table = [
            ("192.0.2.7", false),
            ("192.0.2.8", true),
            ("192.0.2.15", true),
            ("192.0.2.16", false),
            ("10.0.0.0", true),
            ("10.255.255.255", true),
            ("11.0.0.0", false),
            ("198.51.100.7", true),
            ("2001:db8::", true),
            ("2001:db8:ffff:ffff:ffff:ffff:ffff:ffff", true),
            ("2001:db9::", false),
            ("::a00:1", false),
        ];
        for (ip, expected) in table {
            assert_eq!(set.contains(ip.parse().unwrap()), expected, "{ip}");
        }
        assert_eq!(set.networks(), 4);
    }

    #[test]
    fn network_of_all_addresses_contains_those_of_its_family_only() {
        let (all4, all6) = (set(&["0.0.0.0/0"]), set(&["::/0"]));
        for ip in [Ipv4Addr::UNSPECIFIED, Ipv4Addr::BROADCAST, Ipv4Addr::LOCALHOST] {
            assert!(all4.contains(ip.into()) && !all6.contains(ip.into()));
        }
        for ip in [Ipv6Addr::UNSPECIFIED, Ipv6Addr::from_bits(u128::MAX)] {
            assert!(all6.contains(ip.into()) && !all4.contains(ip.into()));
        }
        assert!(!IpSet::default().contains(Ipv4Addr::LOCALHOST.into()));
    }

    proptest! {
        #![proptest_config(crate::base::cases::with_cases(256))]

        #[test]
        fn set_contains_what_one_of_its_networks_contains(
            v4 in prop::collection::vec((0..1024_u32, 20..=32_u8), 0..12),
            v6 in prop::collection::vec((0..1024_u128, 116..=128_u8), 0..12),
            addresses in prop::collection::vec(0..1100_u32, 40),
        ) {
            let v4 = v4.iter().map(|(bits, length)| {
                IpNet::V4(Ipv4Net::new(Ipv4Addr::from_bits(*bits), *length).unwrap().trunc())
            });
            let v6 = v6.iter().map(|(bits, length)| {
                IpNet::V6(Ipv6Net::new(Ipv6Addr::from_bits(*bits), *length).unwrap().trunc())
            });
            let networks: Vec<IpNet> = v4.chain(v6).collect();
            let set: IpSet = networks.iter().copied().collect();
            for bits in addresses {
                let each: [IpAddr; 2] =
                    [Ipv4Addr::from_bits(bits).into(), Ipv6Addr::from_bits(bits.into()).into()];
                for ip in each {
                    let expected = networks.iter().any(|network| network.contains(&ip));
                    prop_assert_eq!(set.contains(ip), expected, "{} in {:?}", ip, networks);
                }
            }
        }
    }
}
