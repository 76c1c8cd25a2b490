//! Encryption of what is stored in Redis: AES-256-GCM with a key that is derived from
//! `acme.storage_key`. The name of a record is authenticated, so that records cannot be exchanged.

use ring::aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use ring::hkdf;

use super::StorageError;

/// First byte of a sealed record: the version of this format.
const VERSION: u8 = 1;

/// Salt of the key derivation. Not secret; it separates this use of the key from others.
const SALT: &[u8] = b"tollgate acme storage";

/// Encrypts and decrypts records.
pub struct Seal {
    derived: hkdf::Prk,
}

impl Seal {
    /// Derives the keys from `acme.storage_key`.
    pub fn new(storage_key: &str) -> Self {
        let salt = hkdf::Salt::new(hkdf::HKDF_SHA256, SALT);
        Self { derived: salt.extract(storage_key.as_bytes()) }
    }

    /// Encrypts the content of a record. Two calls never return the same bytes.
    ///
    /// # Errors
    /// The system has no randomness.
    pub fn close(&self, name: &str, content: &[u8]) -> Result<Vec<u8>, StorageError> {
        let mut nonce = [0; NONCE_LEN];
        getrandom::fill(&mut nonce).map_err(|error| StorageError::Random(error.to_string()))?;
        let mut sealed = Vec::with_capacity(1 + NONCE_LEN + content.len() + AES_256_GCM.tag_len());
        sealed.push(VERSION);
        sealed.extend_from_slice(&nonce);
        let mut encrypted = content.to_vec();
        self.key(name)?
            .seal_in_place_append_tag(
                Nonce::assume_unique_for_key(nonce),
                Aad::from(name.as_bytes()),
                &mut encrypted,
            )
            .map_err(|_| StorageError::WrongKey)?;
        sealed.append(&mut encrypted);
        Ok(sealed)
    }

    /// Decrypts a record.
    ///
    /// # Errors
    /// [`StorageError::WrongKey`]: another key sealed it, it has another name, or it was changed.
    pub fn open(&self, name: &str, sealed: &[u8]) -> Result<Vec<u8>, StorageError> {
        let body = sealed.strip_prefix(&[VERSION]).ok_or(StorageError::WrongKey)?;
        let (nonce, encrypted) = body.split_at_checked(NONCE_LEN).ok_or(StorageError::WrongKey)?;
        let nonce = Nonce::try_assume_unique_for_key(nonce).map_err(|_| StorageError::WrongKey)?;
        let mut content = encrypted.to_vec();
        let key = self.key(name)?;
        let opened = key.open_in_place(nonce, Aad::from(name.as_bytes()), &mut content);
        let length = opened.map_err(|_| StorageError::WrongKey)?.len();
        content.truncate(length);
        Ok(content)
    }

    /// The key of one record. With a key each, random nonces are safe for any number of records.
    fn key(&self, name: &str) -> Result<LessSafeKey, StorageError> {
        let info = [name.as_bytes()];
        let derived =
            self.derived.expand(&info, &AES_256_GCM).map_err(|_| StorageError::WrongKey)?;
        Ok(LessSafeKey::new(UnboundKey::from(derived)))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn sealed_record_shows_nothing_and_opens_with_the_same_key_and_name_only() {
        let seal = Seal::new("a key of the file");
        let sealed = seal.close("account", b"secret").unwrap();
        assert!(!sealed.windows(6).any(|window| window == b"secret"));
        assert_ne!(sealed, seal.close("account", b"secret").unwrap());
        assert_eq!(seal.open("account", &sealed).unwrap(), b"secret");
        let refused = [
            Seal::new("another key").open("account", &sealed),
            seal.open("a.example", &sealed),
            seal.open("account", &sealed[..sealed.len() - 1]),
            seal.open("account", b""),
            seal.open("account", b"\x01short"),
            seal.open("account", b"{\"in\":\"clear\"}"),
        ];
        for result in refused {
            assert!(matches!(result, Err(StorageError::WrongKey)), "{result:?}");
        }
    }

    proptest! {
        #![proptest_config(crate::base::cases::with_cases(256))]

        #[test]
        fn changed_bytes_are_refused(content: Vec<u8>, at: usize, change in 1_u8..) {
            let seal = Seal::new("key");
            let mut sealed = seal.close("name", &content).unwrap();
            prop_assert_eq!(&seal.open("name", &sealed).unwrap(), &content);
            let at = at % sealed.len();
            sealed[at] ^= change;
            prop_assert!(seal.open("name", &sealed).is_err());
        }
    }
}
