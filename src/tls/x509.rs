//! What the gateway reads in a certificate: names, validity, permitted uses.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use x509_cert::Certificate;
use x509_cert::der::Decode as _;
use x509_cert::der::asn1::{Ia5StringRef, PrintableStringRef, Utf8StringRef};
use x509_cert::der::oid::db::rfc4519::CN;
use x509_cert::der::oid::db::rfc5280::{ANY_EXTENDED_KEY_USAGE, ID_KP_SERVER_AUTH};
use x509_cert::der::{Any, Tag, Tagged as _};
use x509_cert::ext::pkix::name::GeneralName;
use x509_cert::ext::pkix::{BasicConstraints, ExtendedKeyUsage, KeyUsage, SubjectAltName};

/// The content of a certificate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Content {
    /// The subject as RFC 4514 text; empty if the certificate names its owner otherwise.
    pub(super) subject: String,
    /// DNS names in lower case, without a dot at the end: those of the subject alternative names,
    /// or without any such name the common name.
    pub(super) dns_names: Vec<String>,
    /// IP addresses among the subject alternative names.
    pub(super) addresses: Vec<IpAddr>,
    pub(super) common_name: Option<String>,
    /// Unix time in seconds from which the certificate is valid.
    pub(super) not_before: u64,
    /// Unix time in seconds at which its validity ends.
    pub(super) not_after: u64,
    /// The serial number in hexadecimal, without leading zeros of the encoding.
    pub(super) serial: Vec<u8>,
    /// Whether it is the certificate of an authority.
    pub(super) is_authority: bool,
    /// Whether the issuer lets a server present it.
    pub(super) is_for_servers: bool,
}

impl Content {
    /// Reads a certificate; `None` if it is not valid DER.
    pub(super) fn of(der: &[u8]) -> Option<Self> {
        let certificate = Certificate::from_der(der).ok()?;
        let tbs = certificate.tbs_certificate();
        let common_name = tbs.subject().iter().filter(|part| part.oid == CN).last();
        let common_name = common_name.and_then(|part| text(&part.value));
        let mut dns_names = Vec::new();
        let mut addresses = Vec::new();
        let alternative = tbs.get_extension::<SubjectAltName>().ok()?;
        for name in alternative.into_iter().flat_map(|(_, SubjectAltName(names))| names) {
            match name {
                GeneralName::DnsName(name) => dns_names.push(canonical(name.as_str())),
                GeneralName::IpAddress(bytes) => addresses.extend(address(bytes.as_bytes())),
                _ => {}
            }
        }
        if dns_names.is_empty() && addresses.is_empty() {
            dns_names.extend(common_name.as_deref().filter(|name| is_dns(name)).map(canonical));
        }
        // These are only for warnings.
        let constraints = tbs.get_extension::<BasicConstraints>().ok().flatten();
        let usage = tbs.get_extension::<KeyUsage>().ok().flatten();
        let purposes = tbs.get_extension::<ExtendedKeyUsage>().ok().flatten();
        let permits = |(_, ExtendedKeyUsage(purposes)): (bool, ExtendedKeyUsage)| {
            purposes.iter().any(|it| [ID_KP_SERVER_AUTH, ANY_EXTENDED_KEY_USAGE].contains(it))
        };
        Some(Self {
            subject: tbs.subject().to_string(),
            dns_names,
            addresses,
            common_name,
            not_before: tbs.validity().not_before.to_unix_duration().as_secs(),
            not_after: tbs.validity().not_after.to_unix_duration().as_secs(),
            serial: tbs.serial_number().as_bytes().to_vec(),
            is_authority: constraints.is_some_and(|(_, constraints)| constraints.ca),
            is_for_servers: usage.is_none_or(|(_, usage)| usage.digital_signature())
                && purposes.is_none_or(permits),
        })
    }

    /// The name that logs and metrics show: the first DNS name, else an IP address, the common name
    /// or the subject. `None` if the certificate has none of them.
    pub(super) fn name(&self) -> Option<String> {
        let Self { dns_names, addresses, common_name, subject, .. } = self;
        let address = || addresses.first().map(ToString::to_string);
        let name = dns_names.first().cloned().or_else(address);
        name.or_else(|| common_name.clone())
            .or_else(|| Some(subject.clone()))
            .filter(|name| !name.is_empty())
    }
}

/// The subject, as RFC 4514 text, and the serial number of a certificate; `None` if it is not valid
/// DER. Its extensions are not read.
pub(super) fn subject(der: &[u8]) -> Option<(String, Vec<u8>)> {
    let certificate = Certificate::from_der(der).ok()?;
    let tbs = certificate.tbs_certificate();
    Some((tbs.subject().to_string(), tbs.serial_number().as_bytes().to_vec()))
}

/// The end of the validity of a certificate, Unix time in seconds; `None` if it is not valid DER.
pub(super) fn end(der: &[u8]) -> Option<u64> {
    let certificate = Certificate::from_der(der).ok()?;
    Some(certificate.tbs_certificate().validity().not_after.to_unix_duration().as_secs())
}

/// A name as the look-up by server name expects it.
fn canonical(name: &str) -> String {
    name.strip_suffix('.').unwrap_or(name).to_ascii_lowercase()
}

/// Whether a common name is probably a DNS name.
fn is_dns(name: &str) -> bool {
    let is_name = |byte: u8| byte.is_ascii_alphanumeric() || b"-._*".contains(&byte);
    !name.is_empty() && name.bytes().all(is_name) && name.parse::<IpAddr>().is_err()
}

fn address(bytes: &[u8]) -> Option<IpAddr> {
    if let Ok(v4) = <[u8; 4]>::try_from(bytes) {
        return Some(Ipv4Addr::from(v4).into());
    }
    <[u8; 16]>::try_from(bytes).ok().map(|v6| Ipv6Addr::from(v6).into())
}

fn text(value: &Any) -> Option<String> {
    let text = match value.tag() {
        Tag::PrintableString => PrintableStringRef::try_from(value).ok()?.as_str().to_owned(),
        Tag::Utf8String => Utf8StringRef::try_from(value).ok()?.as_str().to_owned(),
        Tag::Ia5String => Ia5StringRef::try_from(value).ok()?.as_str().to_owned(),
        _ => return None,
    };
    Some(text)
}
