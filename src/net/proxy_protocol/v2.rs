//! Version 2: a signature, the command, the family, a length, the addresses, and additional fields
//! (type, length, value). Of these only the checksum is read.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use super::crc32c::Crc32c;
use super::v1::to_v6;
use super::{Addresses, Header, Invalid, MAX_HEADER_BYTES};

/// The first bytes of each header.
pub(super) const SIGNATURE: &[u8; 12] = b"\r\n\r\n\0\r\nQUIT\n";

/// Length of the part before the addresses.
const FIXED_BYTES: usize = 16;

/// Version 2 with the command LOCAL: the proxy speaks for itself.
const LOCAL: u8 = 0x20;
/// Version 2 with the command PROXY.
const PROXY: u8 = 0x21;

/// TCP over IPv4, and TCP over IPv6: family and transport.
const TCP4: u8 = 0x11;
const TCP6: u8 = 0x21;
/// No family, no transport.
const UNSPECIFIED: u8 = 0x00;

/// The highest family (a Unix socket) and the highest transport (datagrams) that exist.
const MAX_FAMILY: u8 = 3;
const MAX_TRANSPORT: u8 = 2;

/// Type of the field with the CRC-32C of the header.
const CHECKSUM: u8 = 0x03;

/// `Ok(None)` if more bytes are needed. `bytes` may begin with [`SIGNATURE`].
pub(super) fn parse(bytes: &[u8]) -> Result<Option<Header>, Invalid> {
    let command = bytes.get(12).copied().unwrap_or(PROXY);
    let family = bytes.get(13).copied().unwrap_or(UNSPECIFIED);
    if !matches!(command, LOCAL | PROXY) {
        return Err(Invalid::Unknown);
    }
    // The family of LOCAL is to be ignored.
    let is_known = family >> 4 <= MAX_FAMILY && family & 0x0f <= MAX_TRANSPORT;
    if command == PROXY && !is_known {
        return Err(Invalid::Unknown);
    }
    let Some((fixed, _)) = bytes.split_first_chunk::<FIXED_BYTES>() else { return Ok(None) };
    let len = FIXED_BYTES + usize::from(u16::from_be_bytes([fixed[14], fixed[15]]));
    if len > MAX_HEADER_BYTES {
        return Err(Invalid::TooLong);
    }
    let Some(header) = bytes.get(..len) else { return Ok(None) };
    let body = &header[FIXED_BYTES..];
    let (addresses, fields) = match (command, family) {
        (PROXY, TCP4) => tcp4(body).map(with_fields).ok_or(Invalid::TooShort)?,
        (PROXY, TCP6) => tcp6(body).map(with_fields).ok_or(Invalid::TooShort)?,
        // As HAProxy does, the rest is ignored.
        _ => (None, &body[..0]),
    };
    check_fields(header, len - fields.len())?;
    Ok(Some(Header { addresses, len }))
}

fn with_fields((addresses, fields): (Addresses, &[u8])) -> (Option<Addresses>, &[u8]) {
    (Some(addresses), fields)
}

/// The addresses of TCP over IPv4, and the bytes after them.
fn tcp4(body: &[u8]) -> Option<(Addresses, &[u8])> {
    let (source, rest) = body.split_first_chunk::<4>()?;
    let (destination, rest) = rest.split_first_chunk::<4>()?;
    ports(Ipv4Addr::from(*source).into(), Ipv4Addr::from(*destination).into(), rest)
}

/// The addresses of TCP over IPv6, and the bytes after them.
fn tcp6(body: &[u8]) -> Option<(Addresses, &[u8])> {
    let (source, rest) = body.split_first_chunk::<16>()?;
    let (destination, rest) = rest.split_first_chunk::<16>()?;
    ports(Ipv6Addr::from(*source).into(), Ipv6Addr::from(*destination).into(), rest)
}

fn ports(source: IpAddr, destination: IpAddr, rest: &[u8]) -> Option<(Addresses, &[u8])> {
    let (source_port, rest) = rest.split_first_chunk::<2>()?;
    let (destination_port, rest) = rest.split_first_chunk::<2>()?;
    let addresses = Addresses {
        source: SocketAddr::new(source, u16::from_be_bytes(*source_port)),
        destination: SocketAddr::new(destination, u16::from_be_bytes(*destination_port)),
    };
    Some((addresses, rest))
}

/// Checks the lengths of the fields of `header`, which begin at `start`, and the checksum, if there
/// is one.
fn check_fields(header: &[u8], start: usize) -> Result<(), Invalid> {
    let mut position = start;
    while position < header.len() {
        let field = &header[position..];
        let (head, rest) = field.split_first_chunk::<3>().ok_or(Invalid::Field)?;
        let len = usize::from(u16::from_be_bytes([head[1], head[2]]));
        let value = rest.get(..len).ok_or(Invalid::Field)?;
        if head[0] == CHECKSUM {
            let expected = <[u8; 4]>::try_from(value).map_err(|_| Invalid::Field)?;
            let (before, after) = (&header[..position + 3], &rest[len..]);
            // The sum is that of the header with zeros as the sum.
            let sum = Crc32c::new().update(before).update(&[0; 4]).update(after).value();
            if sum != u32::from_be_bytes(expected) {
                return Err(Invalid::Checksum);
            }
        }
        position += head.len() + len;
    }
    Ok(())
}

/// The header for `addresses`.
pub(super) fn encode(addresses: Option<Addresses>) -> Vec<u8> {
    let mut header = SIGNATURE.to_vec();
    let Some(Addresses { source, destination }) = addresses else {
        header.extend([LOCAL, UNSPECIFIED, 0, 0]);
        return header;
    };
    match (source.ip(), destination.ip()) {
        (IpAddr::V4(from), IpAddr::V4(to)) => {
            header.extend([PROXY, TCP4, 0, 12]);
            header.extend(from.octets());
            header.extend(to.octets());
        }
        (from, to) => {
            header.extend([PROXY, TCP6, 0, 36]);
            header.extend(to_v6(from).octets());
            header.extend(to_v6(to).octets());
        }
    }
    header.extend(source.port().to_be_bytes());
    header.extend(destination.port().to_be_bytes());
    header
}
