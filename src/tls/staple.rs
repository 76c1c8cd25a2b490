//! OCSP responses (RFC 6960), which are stapled to handshakes. Clients verify their signature; the
//! gateway reads only which certificate they are for and until when.

use x509_cert::der::Decode as _;
use x509_cert::der::asn1::GeneralizedTime;

/// An OCSP response, in DER.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Response {
    /// What it says about each certificate.
    singles: Vec<Single>,
}

/// What a response says about one certificate.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Single {
    serial: Vec<u8>,
    status: Status,
    next_update: Option<u64>,
}

/// Status of a certificate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Status {
    /// It has not been revoked.
    Good,
    /// It has been revoked.
    Revoked,
    /// The responder does not know it.
    Unknown,
}

/// What a response says about the certificate of a listener.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Verdict {
    pub(super) status: Status,
    /// Unix time in seconds at which a newer response is available; `None`: always.
    pub(super) next_update: Option<u64>,
}

/// Why a file is no usable response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Malformed {
    /// It is not an OCSP response in DER.
    NotOcsp,
    /// It is the responder's report of an error, such as `tryLater`.
    Unsuccessful(u8),
}

const SEQUENCE: u8 = 0x30;
const INTEGER: u8 = 0x02;
const ENUMERATED: u8 = 0x0a;
const OID: u8 = 0x06;
const OCTET_STRING: u8 = 0x04;
const GENERALIZED_TIME: u8 = 0x18;

/// A context-specific tag, constructed.
const fn explicit(number: u8) -> u8 {
    0xa0 | number
}

/// A context-specific tag, primitive.
const fn implicit(number: u8) -> u8 {
    0x80 | number
}

/// Elements in DER, one after the other.
struct Elements<'a>(&'a [u8]);

impl<'a> Elements<'a> {
    /// Reads the next element: its tag and its content.
    fn next(&mut self) -> Option<(u8, &'a [u8])> {
        let (&tag, rest) = self.0.split_first()?;
        let (&first, rest) = rest.split_first()?;
        let (length, rest) = if first < 0x80 {
            (usize::from(first), rest)
        } else {
            let count = usize::from(first & 0x7f);
            let (bytes, rest) =
                rest.split_at_checked(count).filter(|_| (1..=3).contains(&count))?;
            (bytes.iter().fold(0, |length, byte| length << 8 | usize::from(*byte)), rest)
        };
        let (content, rest) = rest.split_at_checked(length)?;
        self.0 = rest;
        Some((tag, content))
    }

    /// Reads the next element if it has this tag.
    fn expect(&mut self, tag: u8) -> Option<&'a [u8]> {
        let before = self.0;
        match self.next() {
            Some((found, content)) if found == tag => Some(content),
            _ => {
                self.0 = before;
                None
            }
        }
    }
}

impl Response {
    /// Reads a response.
    pub(super) fn parse(der: &[u8]) -> Result<Self, Malformed> {
        let mut response =
            Elements(der).expect(SEQUENCE).map(Elements).ok_or(Malformed::NotOcsp)?;
        match response.expect(ENUMERATED) {
            Some([0]) => {}
            Some([status]) => return Err(Malformed::Unsuccessful(*status)),
            _ => return Err(Malformed::NotOcsp),
        }
        let singles = singles(&mut response).filter(|singles| !singles.is_empty());
        singles.map(|singles| Self { singles }).ok_or(Malformed::NotOcsp)
    }

    /// What the response says about the certificate with this serial number.
    pub(super) fn about(&self, serial: &[u8]) -> Option<Verdict> {
        let single =
            self.singles.iter().find(|single| unsigned(&single.serial) == unsigned(serial))?;
        Some(Verdict { status: single.status, next_update: single.next_update })
    }
}

/// The statuses in a successful response, after its `responseStatus`.
fn singles(response: &mut Elements<'_>) -> Option<Vec<Single>> {
    let mut bytes = Elements(Elements(response.expect(explicit(0))?).expect(SEQUENCE)?);
    bytes.expect(OID)?;
    let mut basic = Elements(Elements(bytes.expect(OCTET_STRING)?).expect(SEQUENCE)?);
    let mut data = Elements(basic.expect(SEQUENCE)?);
    // The version, if it is not the default.
    let _ = data.expect(explicit(0));
    data.expect(explicit(1)).or_else(|| data.expect(explicit(2)))?;
    data.expect(GENERALIZED_TIME)?;
    let mut responses = Elements(data.expect(SEQUENCE)?);
    let mut singles = Vec::new();
    while !responses.0.is_empty() {
        singles.push(single(responses.expect(SEQUENCE)?)?);
    }
    Some(singles)
}

fn single(content: &[u8]) -> Option<Single> {
    let mut fields = Elements(content);
    let mut id = Elements(fields.expect(SEQUENCE)?);
    id.expect(SEQUENCE)?;
    id.expect(OCTET_STRING)?;
    id.expect(OCTET_STRING)?;
    let serial = id.expect(INTEGER)?.to_vec();
    let status = match fields.next()?.0 {
        tag if tag == implicit(0) => Status::Good,
        tag if tag == explicit(1) => Status::Revoked,
        tag if tag == implicit(2) => Status::Unknown,
        _ => return None,
    };
    fields.expect(GENERALIZED_TIME)?;
    let next_update = match fields.expect(explicit(0)) {
        None => None,
        Some(time) => Some(GeneralizedTime::from_der(time).ok()?.to_unix_duration().as_secs()),
    };
    Some(Single { serial, status, next_update })
}

/// A number without leading zeros.
fn unsigned(bytes: &[u8]) -> &[u8] {
    let zeros = bytes.iter().take_while(|byte| **byte == 0).count();
    &bytes[zeros..]
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn element(tag: u8, content: &[u8]) -> Vec<u8> {
        let length = u16::try_from(content.len()).unwrap().to_be_bytes();
        [&[tag, 0x82, length[0], length[1]], content].concat()
    }

    fn sequence(parts: &[Vec<u8>]) -> Vec<u8> {
        element(SEQUENCE, &parts.concat())
    }

    fn time(text: &str) -> Vec<u8> {
        [&[GENERALIZED_TIME, 15], text.as_bytes()].concat()
    }

    /// A response about the certificate with this serial number, without a signature.
    fn response(serial: &[u8], status: Vec<u8>, next_update: Option<&str>) -> Vec<u8> {
        let hash = element(OCTET_STRING, &[7; 20]);
        let id = sequence(&[sequence(&[]), hash.clone(), hash, element(INTEGER, serial)]);
        let next = next_update.map(|text| element(explicit(0), &time(text)));
        let single = sequence(&[id, status, time("20260901000000Z"), next.unwrap_or_default()]);
        let responder = element(explicit(2), &element(OCTET_STRING, &[7; 20]));
        let data = sequence(&[responder, time("20260901000000Z"), sequence(&[single])]);
        let basic = element(OCTET_STRING, &sequence(&[data]));
        let bytes = element(explicit(0), &sequence(&[element(OID, &[1]), basic]));
        sequence(&[vec![ENUMERATED, 1, 0], bytes])
    }

    #[test]
    fn status_and_end_of_the_certificate_are_read() {
        let good = response(&[0, 0x81], element(implicit(0), &[]), Some("20260908000000Z"));
        let parsed = Response::parse(&good).unwrap();
        let expected = Verdict { status: Status::Good, next_update: Some(1_788_825_600) };
        assert_eq!(parsed.about(&[0x81]), Some(expected));
        assert_eq!(parsed.about(&[0x82]), None);
        let statuses = [
            (element(explicit(1), &time("20260801000000Z")), Status::Revoked),
            (element(implicit(2), &[]), Status::Unknown),
        ];
        for (element, status) in statuses {
            let parsed = Response::parse(&response(&[1], element, None)).unwrap();
            assert_eq!(parsed.about(&[1]), Some(Verdict { status, next_update: None }));
        }
        assert_eq!(Response::parse(&[0x30, 3, 0x0a, 1, 3]), Err(Malformed::Unsuccessful(3)));
        assert_eq!(Response::parse(b"-----BEGIN"), Err(Malformed::NotOcsp));
    }

    proptest! {
        #![proptest_config(crate::base::cases::with_cases(256))]

        #[test]
        fn malformed_responses_are_refused(
            bytes in prop::collection::vec(any::<u8>(), 0..64),
            at in any::<prop::sample::Index>(),
            byte in any::<u8>(),
        ) {
            let _ = Response::parse(&bytes);
            let mut damaged = response(&[1], element(implicit(0), &[]), Some("20260908000000Z"));
            let cut = at.index(damaged.len());
            damaged[cut] = byte;
            let _ = Response::parse(&damaged);
            prop_assert!(Response::parse(&damaged[..cut]).is_err());
        }
    }
}
