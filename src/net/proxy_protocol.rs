//! The PROXY protocol, versions 1 and 2 (HAProxy's `proxy-protocol.txt`): the header by which a
//! proxy sends the addresses of its client, before the first byte of the connection.
//!
//! The crates for it were considered. `proxy-header` 0.1.3 reports bytes that can never become a
//! header as too short, so their sender would hold a connection until its deadline; it accepts
//! `+80` as a port and any byte after a carriage return. Both it and `ppp` 2.3.0 ignore checksums
//! and accept 64 KiB of a header.

mod crc32c;
mod v1;
mod v2;

#[cfg(test)]
mod tests;

use std::net::SocketAddr;

/// Maximum length of a header that is accepted. Version 2 allows 64 KiB; senders use less than 1
/// KiB, of which most is a client's certificate name.
pub const MAX_HEADER_BYTES: usize = 4_096;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Version {
    /// One line of text.
    V1,
    /// Binary.
    V2,
}

impl Version {
    /// The word of the file.
    pub const fn name(self) -> &'static str {
        match self {
            Self::V1 => "v1",
            Self::V2 => "v2",
        }
    }
}

/// The addresses of a connection to the proxy that sent a header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Addresses {
    /// The client of the proxy. IPv4, not IPv6, if it was sent as an IPv4-mapped IPv6 address.
    pub source: SocketAddr,
    /// The address of the proxy that the client connected to.
    pub destination: SocketAddr,
}

/// What the first bytes of a connection are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Parsed {
    /// They may become a header: more bytes are needed.
    Incomplete,
    /// They are no valid header, whatever follows.
    Invalid(Invalid),
    /// They begin with a header.
    Header {
        /// The client. `None` if the proxy speaks for itself (a health check) or if its client has
        /// no IP address or uses no TCP: the addresses of the connection apply.
        addresses: Option<Addresses>,
        /// Length of the header in bytes.
        len: usize,
    },
}

/// Why bytes are no valid header.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Invalid {
    /// Neither version begins like this.
    #[error("the connection does not begin with a PROXY header")]
    Signature,
    /// A line of version 1 has no end within 107 bytes.
    #[error("the line of the PROXY header is longer than 107 bytes")]
    LineTooLong,
    /// A line of version 1 with other text than the format has.
    #[error("the line of the PROXY header is malformed")]
    Line,
    /// Version 2 with a version, command, address family or transport that does not exist.
    #[error("the PROXY header has an unknown version, command, address family or transport")]
    Unknown,
    /// Version 2 with more than [`MAX_HEADER_BYTES`].
    #[error("the PROXY header is longer than 4096 bytes")]
    TooLong,
    /// Version 2 with too few bytes for its addresses.
    #[error("the PROXY header is too short for its addresses")]
    TooShort,
    /// Version 2 with an additional field that is longer than the header.
    #[error("a field of the PROXY header is longer than the header")]
    Field,
    /// The CRC-32C of version 2 does not fit its bytes.
    #[error("the checksum of the PROXY header is wrong")]
    Checksum,
}

/// Parses the header that `bytes`, the first bytes of a connection, begin with. Reports invalid
/// bytes as early as possible.
pub fn parse(bytes: &[u8]) -> Parsed {
    let parsed = if may_begin(bytes, v2::SIGNATURE) {
        v2::parse(bytes)
    } else if may_begin(bytes, v1::SIGNATURE) {
        v1::parse(bytes)
    } else {
        Err(Invalid::Signature)
    };
    match parsed {
        Ok(Some(header)) => Parsed::Header {
            addresses: header.addresses.map(Addresses::to_canonical),
            len: header.len,
        },
        Ok(None) => Parsed::Incomplete,
        Err(invalid) => Parsed::Invalid(invalid),
    }
}

/// The header for a connection from `addresses.source` to `addresses.destination`. `None` is a
/// connection without a client, or with one that has no IP address.
pub fn encode(version: Version, addresses: Option<Addresses>) -> Vec<u8> {
    match version {
        Version::V1 => v1::encode(addresses),
        Version::V2 => v2::encode(addresses),
    }
}

/// A header of either version.
struct Header {
    addresses: Option<Addresses>,
    len: usize,
}

impl Addresses {
    /// IPv4-mapped IPv6 addresses become IPv4 addresses, so that a client has one address only.
    fn to_canonical(self) -> Self {
        let canonical =
            |address: SocketAddr| SocketAddr::new(address.ip().to_canonical(), address.port());
        Self { source: canonical(self.source), destination: canonical(self.destination) }
    }
}

/// Whether `bytes` begin with `signature`, or may do so when more bytes have arrived.
fn may_begin(bytes: &[u8], signature: &[u8]) -> bool {
    bytes.iter().zip(signature).all(|(byte, expected)| byte == expected)
}
