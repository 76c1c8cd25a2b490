//! Version 1: one line of text, as in `PROXY TCP4 192.0.2.1 198.51.100.2 35646 443\r\n`.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::str::FromStr;

use super::{Addresses, Header, Invalid};

/// The first bytes of each header.
pub(super) const SIGNATURE: &[u8] = b"PROXY ";

/// Maximum length of a line, with its end.
const MAX_LINE_BYTES: usize = 107;

/// `Ok(None)` if more bytes are needed. `bytes` may begin with [`SIGNATURE`].
pub(super) fn parse(bytes: &[u8]) -> Result<Option<Header>, Invalid> {
    let window = &bytes[..bytes.len().min(MAX_LINE_BYTES)];
    let Some(end) = window.iter().position(|byte| *byte == b'\n') else {
        return if window.len() < MAX_LINE_BYTES { Ok(None) } else { Err(Invalid::LineTooLong) };
    };
    let line = window[..end].strip_suffix(b"\r").ok_or(Invalid::Line)?;
    let line = line.strip_prefix(SIGNATURE).ok_or(Invalid::Line)?;
    let addresses = if line == b"UNKNOWN" || line.starts_with(b"UNKNOWN ") {
        None
    } else {
        let line = std::str::from_utf8(line).map_err(|_| Invalid::Line)?;
        Some(addresses(line).ok_or(Invalid::Line)?)
    };
    Ok(Some(Header { addresses, len: end + 1 }))
}

/// The addresses in the words after `PROXY`.
fn addresses(line: &str) -> Option<Addresses> {
    let words: Vec<&str> = line.split(' ').collect();
    let [family, source, destination, source_port, destination_port] = words[..] else {
        return None;
    };
    let (source, destination) = match family {
        "TCP4" => (ip::<Ipv4Addr>(source)?, ip::<Ipv4Addr>(destination)?),
        "TCP6" => (ip::<Ipv6Addr>(source)?, ip::<Ipv6Addr>(destination)?),
        _ => return None,
    };
    Some(Addresses {
        source: SocketAddr::new(source, port(source_port)?),
        destination: SocketAddr::new(destination, port(destination_port)?),
    })
}

fn ip<T: FromStr + Into<IpAddr>>(text: &str) -> Option<IpAddr> {
    text.parse::<T>().ok().map(Into::into)
}

/// A number from 0 to 65535 without a sign or leading zeros.
fn port(text: &str) -> Option<u16> {
    let is_decimal = text.bytes().all(|byte| byte.is_ascii_digit());
    let has_leading_zero = text.len() > 1 && text.starts_with('0');
    if is_decimal && !has_leading_zero { text.parse().ok() } else { None }
}

/// The line for `addresses`.
pub(super) fn encode(addresses: Option<Addresses>) -> Vec<u8> {
    let Some(Addresses { source, destination }) = addresses else {
        return b"PROXY UNKNOWN\r\n".to_vec();
    };
    let (ports, from, to) = ((source.port(), destination.port()), source.ip(), destination.ip());
    let line = match (from, to) {
        (IpAddr::V4(from), IpAddr::V4(to)) => {
            format!("PROXY TCP4 {from} {to} {} {}\r\n", ports.0, ports.1)
        }
        _ => format!("PROXY TCP6 {} {} {} {}\r\n", to_v6(from), to_v6(to), ports.0, ports.1),
    };
    line.into_bytes()
}

/// The address as IPv6: a header has two addresses of one family.
pub(super) fn to_v6(address: IpAddr) -> Ipv6Addr {
    match address {
        IpAddr::V4(address) => address.to_ipv6_mapped(),
        IpAddr::V6(address) => address,
    }
}
