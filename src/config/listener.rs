//! Addresses to listen on: which ones overlap, and which one a text means, such as `0.0.0.0:8080`
//! for `:8080`.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// Whether no process can listen on both addresses: they are the same, or one includes the other.
/// Port 0 is a different port each time. Beside `0.0.0.0`, `[::]` is [for IPv6
/// only](is_ipv6_only); whether it includes other addresses of IPv4, the system decides.
pub fn overlap(one: SocketAddr, other: SocketAddr) -> bool {
    let is_included = includes(one, other) || includes(other, one);
    one.port() != 0 && (one == other || is_included && one.is_ipv4() == other.is_ipv4())
}

/// Whether connections to the second address arrive at the first one, which is that of all
/// addresses. That of IPv6 has those of IPv4, too, unless the system keeps them apart.
pub fn includes(all: SocketAddr, address: SocketAddr) -> bool {
    let is_all = all.ip().is_unspecified() && (all.is_ipv6() || address.is_ipv4());
    is_all && all != address && all.port() == address.port()
}

/// Whether the address `[::]` is opened for IPv6 only: `0.0.0.0` has the connections of IPv4 to its
/// port. The system would not open both otherwise.
pub fn is_ipv6_only(address: SocketAddr, mut all: impl Iterator<Item = SocketAddr>) -> bool {
    let is_all = address.is_ipv6() && address.ip().is_unspecified() && address.port() != 0;
    is_all
        && all.any(|other| other == SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), address.port()))
}

/// The address and port that `text` means as a value of the setting `name`; none if that is not
/// clear, or if it is one already. Without an address, `listen` is for all of them, and `admin` for
/// this machine.
pub fn meant(name: &str, text: &str) -> Option<SocketAddr> {
    let text = text.trim();
    let text =
        ["http://", "https://", "tcp://"].iter().find_map(|s| text.strip_prefix(s)).unwrap_or(text);
    let text = text.strip_suffix('/').unwrap_or(text);
    let (any, port) =
        if name == "admin" { (Ipv4Addr::LOCALHOST, 9090) } else { (Ipv4Addr::UNSPECIFIED, 8080) };
    if let Ok(address) = text.parse() {
        return Some(address);
    }
    if let Some(address) = without_brackets(text) {
        return Some(address);
    }
    let bare = text.strip_prefix('[').and_then(|text| text.strip_suffix(']')).unwrap_or(text);
    if let Ok(ip) = bare.parse::<IpAddr>() {
        return Some(SocketAddr::new(ip, port));
    }
    let (host, port) = text.rsplit_once(':').unwrap_or(("", text));
    let ip = match host {
        "" | "*" => any,
        "localhost" => Ipv4Addr::LOCALHOST,
        _ => return None,
    };
    // Digits only: `+80` is a number, too.
    let port = Some(port).filter(|port| port.bytes().all(|byte| byte.is_ascii_digit()))?;
    let port: u16 = port.parse().ok().filter(|port| *port > 0)?;
    Some(SocketAddr::new(ip.into(), port))
}

/// An IPv6 address with a port and without brackets, such as `::1:8080`. The last group of an
/// address alone can look like a port, too, but not one of two digits or more after `::` or after
/// an address.
fn without_brackets(text: &str) -> Option<SocketAddr> {
    let (host, port) = text.rsplit_once(':')?;
    let is_port = port.len() > 1 && port.bytes().all(|byte| byte.is_ascii_digit());
    let port: u16 = port.parse().ok().filter(|port| is_port && *port > 0)?;
    let ip = if host == ":" { Ipv6Addr::UNSPECIFIED } else { host.parse().ok()? };
    Some(SocketAddr::new(ip.into(), port))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unspecified_addresses_overlap_with_those_that_they_include() {
        let table = [
            ("0.0.0.0:80", "0.0.0.0:80", true),
            ("0.0.0.0:80", "127.0.0.1:80", true),
            // The system decides.
            ("[::]:80", "127.0.0.1:80", false),
            // For IPv6 only.
            ("[::]:80", "0.0.0.0:80", false),
            ("[::]:80", "[::1]:80", true),
            ("0.0.0.0:80", "[::1]:80", false),
            ("0.0.0.0:80", "127.0.0.1:81", false),
            ("127.0.0.2:80", "127.0.0.1:80", false),
            ("0.0.0.0:0", "0.0.0.0:0", false),
            ("[::]:0", "127.0.0.1:0", false),
        ];
        for (one, other, expected) in table {
            let (first, second) = (one.parse().unwrap(), other.parse().unwrap());
            assert_eq!(overlap(first, second), expected, "{one} {other}");
            assert_eq!(overlap(second, first), expected, "{other} {one}");
        }
    }

    #[test]
    fn all_addresses_of_ipv6_are_apart_from_all_of_ipv4() {
        let table = [
            ("[::]:80", "0.0.0.0:80", true),
            ("[::]:80", "0.0.0.0:81", false),
            ("[::]:80", "127.0.0.1:80", false),
            ("[::]:80", "[::]:80", false),
            ("[::1]:80", "0.0.0.0:80", false),
            ("0.0.0.0:80", "[::]:80", false),
            ("[::]:0", "0.0.0.0:0", false),
        ];
        for (address, other, expected) in table {
            let others = [other, "192.0.2.1:80"].into_iter().map(|other| other.parse().unwrap());
            assert_eq!(
                is_ipv6_only(address.parse().unwrap(), others),
                expected,
                "{address} {other}"
            );
        }
    }

    #[test]
    fn other_forms_of_addresses_are_converted() {
        let table = [
            (":8080", "0.0.0.0:8080", "127.0.0.1:8080"),
            ("8080", "0.0.0.0:8080", "127.0.0.1:8080"),
            ("*:80", "0.0.0.0:80", "127.0.0.1:80"),
            ("localhost:8080", "127.0.0.1:8080", "127.0.0.1:8080"),
            ("http://0.0.0.0:8080", "0.0.0.0:8080", "0.0.0.0:8080"),
            ("http://0.0.0.0:8080/", "0.0.0.0:8080", "0.0.0.0:8080"),
            ("http://:8080", "0.0.0.0:8080", "127.0.0.1:8080"),
            ("tcp://[::]:80", "[::]:80", "[::]:80"),
            ("::", "[::]:8080", "[::]:9090"),
            ("[::1]", "[::1]:8080", "[::1]:9090"),
            ("::8080", "[::]:8080", "[::]:8080"),
            ("::1:8080", "[::1]:8080", "[::1]:8080"),
            ("::1", "[::1]:8080", "[::1]:9090"),
            ("fe80::10", "[fe80::10]:8080", "[fe80::10]:9090"),
            ("2001:db8::1:80", "[2001:db8::1]:80", "[2001:db8::1]:80"),
            ("1:2:3:4:5:6:7:80", "[1:2:3:4:5:6:7:80]:8080", "[1:2:3:4:5:6:7:80]:9090"),
            ("1:2:3:4:5:6:7:8:80", "[1:2:3:4:5:6:7:8]:80", "[1:2:3:4:5:6:7:8]:80"),
            ("127.0.0.1", "127.0.0.1:8080", "127.0.0.1:9090"),
            (" 10.0.0.1:80 ", "10.0.0.1:80", "10.0.0.1:80"),
            ("", "", ""),
            (":", "", ""),
            (":99999", "", ""),
            (":0", "", ""),
            (":+80", "", ""),
            ("example.com:80", "", ""),
            ("unix:/run/a.sock", "", ""),
        ];
        for (text, listen, admin) in table {
            let found = ["listen", "admin"]
                .map(|name| meant(name, text).map_or_else(String::new, |found| found.to_string()));
            assert_eq!(found, [listen, admin], "{text}");
        }
    }
}
