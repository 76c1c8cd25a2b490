//! How clients' addresses are shown to the operator: as the file wants it.

use std::fmt;
use std::net::IpAddr;
use std::sync::LazyLock;

use serde::{Serialize, Serializer};
use sha2::{Digest as _, Sha256};

use crate::policy::Policy;
use crate::policy::access_log::ClientIp;
use crate::policy::client::counted_address;

/// How many bytes of a hash are shown: enough for two clients never to look like one.
const SHOWN_BYTES: usize = 8;

/// An address as it may be shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Shown {
    Plain(IpAddr),
    Hashed([u8; SHOWN_BYTES]),
}

impl Shown {
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

impl fmt::Display for Shown {
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

impl Serialize for Shown {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// What addresses are hashed with where the file has no salt; known to nobody.
static OWN_SALT: LazyLock<Box<[u8]>> = LazyLock::new(|| {
    let mut salt = [0; 32];
    if getrandom::fill(&mut salt).is_err() {
        // Without a source of randomness the time is the best there is.
        salt[..8].copy_from_slice(&crate::clock::unix_ticks().to_be_bytes());
    }
    Box::new(salt)
});

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
        Shown::of(ip.parse().unwrap(), policy).map(|shown| shown.to_string())
    }

    #[test]
    fn an_address_is_shown_as_the_file_wants_it() {
        let (plain, off) = (policy(""), policy("client_ip = 'off'"));
        assert_eq!(shown(&plain, "192.0.2.1").unwrap(), "192.0.2.1");
        assert_eq!(shown(&plain, "2001:db8::1").unwrap(), "2001:db8::1");
        assert_eq!(shown(&off, "192.0.2.1"), None);
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
