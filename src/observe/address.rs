//! How clients' addresses are shown to the operator: as the file wants it.

use std::fmt;
use std::net::IpAddr;
use std::sync::LazyLock;

use serde::{Serialize, Serializer};
use sha2::{Digest as _, Sha256};
use thiserror::Error;

use crate::identity::address;
use crate::policy::Policy;
use crate::policy::access_log::ClientIp;
use crate::policy::client::counted_address;

/// How many bytes of a hash are shown: enough for two clients never to look like one.
const SHOWN_BYTES: usize = 8;

/// An address as it may be shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ShownAddress {
    /// In clear.
    Plain(IpAddr),
    /// The beginning of a salted hash.
    Hashed([u8; SHOWN_BYTES]),
}

/// Why there is nothing to be found by an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum AddressError {
    /// The text is no address.
    #[error("the address is none; it looks like `203.0.113.7` or `2001:db8::1`")]
    NotAnAddress,
    /// It is the hash of one, where addresses are in clear.
    #[error("addresses are in clear here, not hashed; ask by the address itself")]
    NotHashed,
    /// The file wants no address to be kept.
    #[error("no addresses are kept: `client_ip` of [access_log] is `off`; ask by `key` or `rule`")]
    NotRecorded,
}

impl ShownAddress {
    /// How `policy` shows an address that somebody asks for: the address itself, its network, or
    /// what is shown of it.
    ///
    /// # Errors
    /// Nothing can be found by it; see [`AddressError`].
    pub fn parse(text: &str, policy: &Policy) -> Result<Self, AddressError> {
        let shows = policy.access_log.client_ip;
        if shows == ClientIp::Off {
            return Err(AddressError::NotRecorded);
        }
        if let Some(digits) = text.strip_prefix("h:") {
            let hash = read_hash(digits).ok_or(AddressError::NotAnAddress)?;
            return if shows == ClientIp::Hashed { Ok(hash) } else { Err(AddressError::NotHashed) };
        }
        let prefix = policy.clients.ipv6_prefix;
        let ip = address::parse_address(text, prefix).ok_or(AddressError::NotAnAddress)?;
        Self::of(counted_address(ip, prefix), policy).ok_or(AddressError::NotRecorded)
    }

    /// What `policy` lets be shown of `ip`. IPv6 is hashed by the prefix that tells clients apart:
    /// one customer is one hash, whichever of its addresses it takes.
    pub(super) fn of(ip: IpAddr, policy: &Policy) -> Option<Self> {
        match policy.access_log.client_ip {
            ClientIp::Off => None,
            ClientIp::Plain => Some(Self::Plain(ip)),
            ClientIp::Hashed => {
                let salt = policy.access_log.salt.as_ref();
                let salt = salt.map_or(&**OWN_SALT, |salt| salt.reveal().as_bytes());
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

/// What addresses are hashed with where the file has no salt; known to nobody.
static OWN_SALT: LazyLock<Box<[u8]>> = LazyLock::new(|| {
    let mut salt = [0; 32];
    if getrandom::fill(&mut salt).is_err() {
        // Without a source of randomness the time is the best there is.
        salt[..8].copy_from_slice(&crate::clock::unix_us().to_be_bytes());
    }
    Box::new(salt)
});

/// A hash as it is shown, without what it begins with.
fn read_hash(digits: &str) -> Option<ShownAddress> {
    let is_hash = digits.len() == 2 * SHOWN_BYTES && digits.bytes().all(|b| b.is_ascii_hexdigit());
    let number = u64::from_str_radix(digits, 16).ok().filter(|_| is_hash)?;
    Some(ShownAddress::Hashed(number.to_be_bytes()))
}

fn hash(salt: &[u8], ip: IpAddr) -> [u8; SHOWN_BYTES] {
    let mut hash = Sha256::new();
    hash.update((salt.len() as u64).to_be_bytes());
    hash.update(salt);
    match ip {
        IpAddr::V4(ip) => hash.update(ip.octets()),
        IpAddr::V6(ip) => hash.update(ip.octets()),
    }
    let digest: [u8; 32] = hash.finalize().into();
    let mut shown = [0; SHOWN_BYTES];
    shown.copy_from_slice(&digest[..SHOWN_BYTES]);
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
    fn an_address_is_shown_as_the_file_wants_it() {
        let (plain, off) = (policy(""), policy("client_ip = 'off'"));
        assert_eq!(shown(&plain, "192.0.2.1").unwrap(), "192.0.2.1");
        assert_eq!(shown(&plain, "2001:db8::1").unwrap(), "2001:db8::1");
        assert_eq!(shown(&off, "192.0.2.1"), None);
    }

    #[test]
    fn an_address_is_asked_for_as_it_is_shown_or_as_it_is() {
        let (plain, off) = (policy(""), policy("client_ip = 'off'"));
        let hashed = policy("client_ip = 'hashed'\nsalt = '${SALT}'");
        let asked = |policy, text| ShownAddress::parse(text, policy).map(|shown| shown.to_string());
        let table = [
            ("192.0.2.1", Ok("192.0.2.1")),
            ("::ffff:192.0.2.1", Ok("192.0.2.1")),
            ("2001:db8::1", Ok("2001:db8::")),
            ("2001:db8::/64", Ok("2001:db8::")),
            ("192.0.2.1/64", Err(AddressError::NotAnAddress)),
            ("2001:db8::/63", Err(AddressError::NotAnAddress)),
            ("here", Err(AddressError::NotAnAddress)),
            ("", Err(AddressError::NotAnAddress)),
            ("h:84aba8a80f5a07ab", Err(AddressError::NotHashed)),
        ];
        for (text, expected) in table {
            assert_eq!(asked(&plain, text), expected.map(ToString::to_string), "{text}");
        }
        for text in ["192.0.2.1", "h:84aba8a80f5a07ab", "h:84ABA8A80F5A07AB"] {
            assert_eq!(asked(&hashed, text).unwrap(), "h:84aba8a80f5a07ab", "{text}");
        }
        for text in ["h:", "h:84aba8a80f5a07a", "h:+4aba8a80f5a07ab", "h:84aba8a80f5a07abc"] {
            assert_eq!(asked(&hashed, text), Err(AddressError::NotAnAddress), "{text}");
        }
        assert_eq!(asked(&off, "192.0.2.1"), Err(AddressError::NotRecorded));
    }

    #[test]
    fn a_hash_tells_clients_apart_and_no_address() {
        let own = policy("client_ip = 'hashed'");
        let salted = policy("client_ip = 'hashed'\nsalt = '${SALT}'");
        for policy in [&own, &salted] {
            let first = shown(policy, "192.0.2.1").unwrap();
            assert_eq!(first, shown(policy, "192.0.2.1").unwrap());
            assert_ne!(first, shown(policy, "192.0.2.2").unwrap());
            assert!(first.starts_with("h:") && first.len() == 18, "{first}");
            // One customer, two addresses; and the next customer.
            let network = shown(policy, "2001:db8::1").unwrap();
            assert_eq!(network, shown(policy, "2001:db8::ffff").unwrap());
            assert_ne!(network, shown(policy, "2001:db8:0:1::1").unwrap());
        }
        assert_ne!(shown(&own, "192.0.2.1"), shown(&salted, "192.0.2.1"));
        // A salt of the file gives the same hashes in every process, today and tomorrow.
        assert_eq!(shown(&salted, "192.0.2.1").unwrap(), "h:84aba8a80f5a07ab");
    }
}
