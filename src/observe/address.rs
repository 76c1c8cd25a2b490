//! Client addresses as logs, traces and the admin API show them: plain, hashed or not at all
//! (`access_log.client_ip`).

use std::fmt;
use std::net::IpAddr;
use std::sync::LazyLock;

use serde::{Serialize, Serializer};
use sha2::{Digest as _, Sha256};
use thiserror::Error;

use crate::client::address::{self, counted_address};
use crate::policy::Policy;
use crate::policy::access_log::ClientIp;

/// Length of a shown hash in bytes. 64 bits make a collision of two clients unlikely.
const HASH_BYTES: usize = 8;

/// An address in the form that the configuration allows to be shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ShownAddress {
    /// The address itself, with `client_ip = "plain"`.
    Plain(IpAddr),
    /// The first bytes of its salted SHA-256, with `client_ip = "hashed"`.
    Hashed([u8; HASH_BYTES]),
}

/// Why a search by address is impossible.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum AddressQueryError {
    /// The text is not an address.
    #[error("not an address; expected one like `203.0.113.7` or `2001:db8::1`")]
    NotAnAddress,
    /// The text is a hash, but addresses are shown plain.
    #[error("addresses are shown plain here, not hashed; search by the address itself")]
    NotHashed,
    /// Addresses are not recorded.
    #[error(
        "addresses are not recorded: `client_ip` of [access_log] is `off`; search by `key` or `rule`"
    )]
    NotRecorded,
}

impl ShownAddress {
    /// Parses the address of a search: an address, an IPv6 network of `clients.ipv6_prefix` bits,
    /// or a hash as it is shown (`h:` and 16 hexadecimal digits). Returns it as `policy` shows it.
    ///
    /// # Errors
    /// See [`AddressQueryError`].
    pub fn parse(text: &str, policy: &Policy) -> Result<Self, AddressQueryError> {
        let client_ip = policy.access_log.client_ip;
        if client_ip == ClientIp::Off {
            return Err(AddressQueryError::NotRecorded);
        }
        if let Some(digits) = text.strip_prefix("h:") {
            let hash = read_hash(digits).ok_or(AddressQueryError::NotAnAddress)?;
            return if client_ip == ClientIp::Hashed {
                Ok(hash)
            } else {
                Err(AddressQueryError::NotHashed)
            };
        }
        let prefix = policy.clients.ipv6_prefix;
        let ip = address::parse_address(text, prefix).ok_or(AddressQueryError::NotAnAddress)?;
        Self::of(counted_address(ip, prefix), policy).ok_or(AddressQueryError::NotRecorded)
    }

    /// `ip` as `policy` shows it; `None` if addresses are off. Of an IPv6 address, the first
    /// `clients.ipv6_prefix` bits are hashed, so that all addresses of one client have one hash.
    pub fn of(ip: IpAddr, policy: &Policy) -> Option<Self> {
        match policy.access_log.client_ip {
            ClientIp::Off => None,
            ClientIp::Plain => Some(Self::Plain(ip)),
            ClientIp::Hashed => {
                let salt = policy.access_log.salt.as_ref();
                let salt = salt.map_or(&**PROCESS_SALT, |salt| salt.reveal().as_bytes());
                let counted = counted_address(ip, policy.clients.ipv6_prefix);
                Some(Self::Hashed(hash(salt, counted)))
            }
        }
    }
}

impl fmt::Display for ShownAddress {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Plain(ip) => ip.fmt(formatter),
            Self::Hashed(hash) => {
                formatter.write_str("h:")?;
                hash.iter().try_for_each(|byte| write!(formatter, "{byte:02x}"))
            }
        }
    }
}

impl Serialize for ShownAddress {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// Random salt of this process, used if the file has none.
static PROCESS_SALT: LazyLock<Box<[u8]>> = LazyLock::new(|| {
    let mut salt = [0; 32];
    if getrandom::fill(&mut salt).is_err() {
        // Fallback if the system has no source of randomness.
        salt[..8].copy_from_slice(&crate::base::clock::unix_us().to_be_bytes());
    }
    Box::new(salt)
});

/// Parses a shown hash without its prefix `h:`.
fn read_hash(digits: &str) -> Option<ShownAddress> {
    let is_hash = digits.len() == 2 * HASH_BYTES && digits.bytes().all(|b| b.is_ascii_hexdigit());
    let number = u64::from_str_radix(digits, 16).ok().filter(|_| is_hash)?;
    Some(ShownAddress::Hashed(number.to_be_bytes()))
}

fn hash(salt: &[u8], ip: IpAddr) -> [u8; HASH_BYTES] {
    let mut hash = Sha256::new();
    hash.update((salt.len() as u64).to_be_bytes());
    hash.update(salt);
    match ip {
        IpAddr::V4(ip) => hash.update(ip.octets()),
        IpAddr::V6(ip) => hash.update(ip.octets()),
    }
    let digest: [u8; 32] = hash.finalize().into();
    let mut shown = [0; HASH_BYTES];
    shown.copy_from_slice(&digest[..HASH_BYTES]);
    shown
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::load::from_text_in;

    fn policy(lines: &str) -> Policy {
        let text = format!("[upstreams.a]\nservers = ['demo']\n[routes.a]\n[access_log]\n{lines}");
        let salt = |_: &str| Some("0123456789abcdef".to_owned());
        from_text_in("t", &text, &salt).unwrap()
    }

    fn shown(policy: &Policy, ip: &str) -> Option<String> {
        ShownAddress::of(ip.parse().unwrap(), policy).map(|shown| shown.to_string())
    }

    #[test]
    fn client_ip_selects_plain_or_no_address() {
        let (plain, off) = (policy(""), policy("client_ip = 'off'"));
        assert_eq!(shown(&plain, "192.0.2.1").unwrap(), "192.0.2.1");
        assert_eq!(shown(&plain, "2001:db8::1").unwrap(), "2001:db8::1");
        assert_eq!(shown(&off, "192.0.2.1"), None);
    }

    #[test]
    fn search_accepts_addresses_networks_and_shown_hashes() {
        let (plain, off) = (policy(""), policy("client_ip = 'off'"));
        let hashed = policy("client_ip = 'hashed'\nsalt = '${SALT}'");
        let parsed =
            |policy, text| ShownAddress::parse(text, policy).map(|shown| shown.to_string());
        let table = [
            ("192.0.2.1", Ok("192.0.2.1")),
            ("::ffff:192.0.2.1", Ok("192.0.2.1")),
            ("2001:db8::1", Ok("2001:db8::")),
            ("2001:db8::/64", Ok("2001:db8::")),
            ("192.0.2.1/64", Err(AddressQueryError::NotAnAddress)),
            ("2001:db8::/63", Err(AddressQueryError::NotAnAddress)),
            ("here", Err(AddressQueryError::NotAnAddress)),
            ("", Err(AddressQueryError::NotAnAddress)),
            ("h:84aba8a80f5a07ab", Err(AddressQueryError::NotHashed)),
        ];
        for (text, expected) in table {
            assert_eq!(parsed(&plain, text), expected.map(ToString::to_string), "{text}");
        }
        for text in ["192.0.2.1", "h:84aba8a80f5a07ab", "h:84ABA8A80F5A07AB"] {
            assert_eq!(parsed(&hashed, text).unwrap(), "h:84aba8a80f5a07ab", "{text}");
        }
        for text in ["h:", "h:84aba8a80f5a07a", "h:+4aba8a80f5a07ab", "h:84aba8a80f5a07abc"] {
            assert_eq!(parsed(&hashed, text), Err(AddressQueryError::NotAnAddress), "{text}");
        }
        assert_eq!(parsed(&off, "192.0.2.1"), Err(AddressQueryError::NotRecorded));
    }

    #[test]
    fn hash_identifies_a_client_without_its_address() {
        let own = policy("client_ip = 'hashed'");
        let salted = policy("client_ip = 'hashed'\nsalt = '${SALT}'");
        for policy in [&own, &salted] {
            let first = shown(policy, "192.0.2.1").unwrap();
            assert_eq!(first, shown(policy, "192.0.2.1").unwrap());
            assert_ne!(first, shown(policy, "192.0.2.2").unwrap());
            assert!(first.starts_with("h:") && first.len() == 18, "{first}");
            // Two addresses of one client, then another client.
            let network = shown(policy, "2001:db8::1").unwrap();
            assert_eq!(network, shown(policy, "2001:db8::ffff").unwrap());
            assert_ne!(network, shown(policy, "2001:db8:0:1::1").unwrap());
        }
        assert_ne!(shown(&own, "192.0.2.1"), shown(&salted, "192.0.2.1"));
        // With a salt from the file, hashes are the same in every process.
        assert_eq!(shown(&salted, "192.0.2.1").unwrap(), "h:84aba8a80f5a07ab");
    }
}
