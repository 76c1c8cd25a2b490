//! A key that signatures are verified with. Each kind of key verifies the algorithms of its kind
//! only, so that a token cannot have a public key taken for the secret of an HMAC.

use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::{hmac, signature};
use serde_json::{Map, Value};
use x509_cert::der::Decode as _;
use x509_cert::der::oid::ObjectIdentifier;
use x509_cert::spki::SubjectPublicKeyInfoRef;

use crate::config::words::JwtAlgorithm;

const RSA: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.2.840.113549.1.1.1");
const EC: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.2.840.10045.2.1");
const P256: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.2.840.10045.3.1.7");
const P384: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.3.132.0.34");
const ED25519: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.3.101.112");

/// Lengths of the modulus of an RSA key that `ring` verifies with, in bytes: 2048 to 8192 bits.
const RSA_MODULUS_BYTES: std::ops::RangeInclusive<usize> = 256..=1024;

/// A public key, or the secret of an HMAC.
#[derive(Clone, PartialEq, Eq)]
pub enum Key {
    /// Modulus and exponent, in big-endian order without leading zeros.
    Rsa {
        n: Vec<u8>,
        e: Vec<u8>,
    },
    /// An RSA key as PKCS #1 has it.
    RsaDer(Vec<u8>),
    /// An uncompressed point.
    P256(Vec<u8>),
    /// An uncompressed point.
    P384(Vec<u8>),
    Ed25519(Vec<u8>),
    Secret(Vec<u8>),
}

/// Not the key itself: it may be a secret.
impl fmt::Debug for Key {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Rsa { .. } | Self::RsaDer(_) => "Rsa",
            Self::P256(_) => "P256",
            Self::P384(_) => "P384",
            Self::Ed25519(_) => "Ed25519",
            Self::Secret(_) => "Secret",
        })
    }
}

impl Key {
    /// The public key of a JSON Web Key (RFC 7517; RFC 7518, section 6; RFC 8037). `None` for a key
    /// that no supported algorithm verifies with, and for a secret, which has no place among public
    /// keys.
    pub(super) fn of_jwk(jwk: &Map<String, Value>) -> Option<Self> {
        let text = |name: &str| jwk.get(name)?.as_str();
        let bytes = |name: &str| URL_SAFE_NO_PAD.decode(text(name)?).ok();
        let point = |length: usize| {
            let (x, y) = (bytes("x")?, bytes("y")?);
            let is_whole = x.len() == length && y.len() == length;
            is_whole.then(|| [&[4][..], &x, &y].concat())
        };
        match (text("kty")?, text("crv")) {
            ("RSA", _) => {
                let (n, e) = (without_zeros(bytes("n")?), without_zeros(bytes("e")?));
                let fits = RSA_MODULUS_BYTES.contains(&n.len()) && (1..=4).contains(&e.len());
                fits.then_some(Self::Rsa { n, e })
            }
            ("EC", Some("P-256")) => point(32).map(Self::P256),
            ("EC", Some("P-384")) => point(48).map(Self::P384),
            ("OKP", Some("Ed25519")) => bytes("x").filter(|x| x.len() == 32).map(Self::Ed25519),
            _ => None,
        }
    }

    /// The public key of a `SubjectPublicKeyInfo` (RFC 5280, section 4.1.2.7). `None` as above.
    pub(super) fn of_spki(der: &[u8]) -> Option<Self> {
        let info = SubjectPublicKeyInfoRef::from_der(der).ok()?;
        let bits = info.subject_public_key.as_bytes()?.to_vec();
        let curve = || info.algorithm.parameters?.decode_as::<ObjectIdentifier>().ok();
        match info.algorithm.oid {
            RSA => Some(Self::RsaDer(bits)),
            EC if curve() == Some(P256) && bits.len() == 65 => Some(Self::P256(bits)),
            EC if curve() == Some(P384) && bits.len() == 97 => Some(Self::P384(bits)),
            ED25519 if bits.len() == 32 => Some(Self::Ed25519(bits)),
            _ => None,
        }
    }

    /// Whether signatures of the algorithm are verified with such a key.
    pub fn fits(&self, algorithm: JwtAlgorithm) -> bool {
        use JwtAlgorithm as A;
        match self {
            Self::Rsa { .. } | Self::RsaDer(_) => {
                matches!(algorithm, A::Rs256 | A::Rs384 | A::Rs512 | A::Ps256 | A::Ps384 | A::Ps512)
            }
            Self::P256(_) => algorithm == A::Es256,
            Self::P384(_) => algorithm == A::Es384,
            Self::Ed25519(_) => algorithm == A::EdDsa,
            Self::Secret(_) => matches!(algorithm, A::Hs256 | A::Hs384 | A::Hs512),
        }
    }

    /// Whether `signature` is that of `signed` by this key and the algorithm. An HMAC is compared
    /// in constant time.
    pub fn verifies(&self, algorithm: JwtAlgorithm, signed: &[u8], signature: &[u8]) -> bool {
        use JwtAlgorithm as A;
        let public = |scheme: &'static dyn signature::VerificationAlgorithm, key: &[u8]| {
            signature::UnparsedPublicKey::new(scheme, key).verify(signed, signature).is_ok()
        };
        let mac = |hash, secret: &[u8]| {
            hmac::verify(&hmac::Key::new(hash, secret), signed, signature).is_ok()
        };
        match (self, algorithm) {
            (Self::Rsa { n, e }, _) => rsa(algorithm).is_some_and(|scheme| {
                let key = signature::RsaPublicKeyComponents { n, e };
                key.verify(scheme, signed, signature).is_ok()
            }),
            (Self::RsaDer(key), _) => rsa(algorithm).is_some_and(|scheme| public(scheme, key)),
            (Self::P256(key), A::Es256) => public(&signature::ECDSA_P256_SHA256_FIXED, key),
            (Self::P384(key), A::Es384) => public(&signature::ECDSA_P384_SHA384_FIXED, key),
            (Self::Ed25519(key), A::EdDsa) => public(&signature::ED25519, key),
            (Self::Secret(secret), A::Hs256) => mac(hmac::HMAC_SHA256, secret),
            (Self::Secret(secret), A::Hs384) => mac(hmac::HMAC_SHA384, secret),
            (Self::Secret(secret), A::Hs512) => mac(hmac::HMAC_SHA512, secret),
            _ => false,
        }
    }
}

/// The scheme of an algorithm with RSA keys.
fn rsa(algorithm: JwtAlgorithm) -> Option<&'static signature::RsaParameters> {
    match algorithm {
        JwtAlgorithm::Rs256 => Some(&signature::RSA_PKCS1_2048_8192_SHA256),
        JwtAlgorithm::Rs384 => Some(&signature::RSA_PKCS1_2048_8192_SHA384),
        JwtAlgorithm::Rs512 => Some(&signature::RSA_PKCS1_2048_8192_SHA512),
        JwtAlgorithm::Ps256 => Some(&signature::RSA_PSS_2048_8192_SHA256),
        JwtAlgorithm::Ps384 => Some(&signature::RSA_PSS_2048_8192_SHA384),
        JwtAlgorithm::Ps512 => Some(&signature::RSA_PSS_2048_8192_SHA512),
        _ => None,
    }
}

/// A number without leading zeros, which some providers add.
fn without_zeros(mut number: Vec<u8>) -> Vec<u8> {
    let zeros = number.iter().take_while(|byte| **byte == 0).count();
    number.drain(..zeros);
    number
}
