//! The account at the ACME server: created once, with its own key, and stored.

use std::sync::Arc;

use instant_acme::{Account, AccountCredentials, ExternalAccountKey, NewAccount};
use serde::Deserialize;
use tokio::sync::Mutex;
use tracing::{info, warn};

use super::error::AcmeError;
use super::storage::{Item, Storage};
use super::transport::Transport;
use crate::policy::acme::Acme;

/// The account, once it has been read or created.
#[derive(Default)]
pub(super) struct Accounts {
    /// Its credentials in JSON, as they are stored.
    current: Mutex<Option<Credentials>>,
}

/// Stored credentials of an account: its URL at the server and its private key.
pub(super) type Credentials = Arc<Vec<u8>>;

impl Accounts {
    /// Returns the account: the stored one, else a new one, which is then stored. An account that
    /// equals `unknown` is replaced: the server does not have it.
    ///
    /// # Errors
    /// The storage or the server fails.
    pub(super) async fn get(
        &self,
        settings: &Acme,
        storage: &Storage,
        transport: impl FnOnce() -> Transport + Send,
        unknown: Option<&Credentials>,
    ) -> Result<Credentials, AcmeError> {
        let mut current = self.current.lock().await;
        if let Some(kept) = current.as_ref().filter(|kept| Some(*kept) != unknown) {
            return Ok(Arc::clone(kept));
        }
        if unknown.is_none()
            && let Some(stored) = storage.load(Item::Account).await?
        {
            if is_of(&stored, &settings.directory) {
                return Ok(Arc::clone(current.insert(Arc::new(stored))));
            }
            warn!("the stored ACME account cannot be read; creating a new one");
            storage.set_aside(Item::Account).await?;
        }
        let created = create(settings, transport()).await?;
        storage.save(Item::Account, created.clone()).await?;
        Ok(Arc::clone(current.insert(Arc::new(created))))
    }
}

/// Whether these are well-formed credentials of an account at `directory`.
fn is_of(credentials: &[u8], directory: &str) -> bool {
    #[derive(Deserialize)]
    struct Stored {
        directory: Option<String>,
    }

    serde_json::from_slice::<AccountCredentials>(credentials).is_ok()
        && serde_json::from_slice::<Stored>(credentials)
            .is_ok_and(|stored| stored.directory.as_deref() == Some(directory))
}

async fn create(settings: &Acme, transport: Transport) -> Result<Vec<u8>, AcmeError> {
    let contact = settings.email.as_ref().map(|email| format!("mailto:{email}"));
    let contact: Vec<&str> = contact.iter().map(String::as_str).collect();
    let account = NewAccount {
        contact: &contact,
        // By setting `directory`, the operator agrees; docs/acme.md says so.
        terms_of_service_agreed: true,
        only_return_existing: false,
    };
    let external = settings
        .eab
        .as_ref()
        .map(|eab| ExternalAccountKey::new(eab.key_id.clone(), eab.hmac_key.reveal()));
    let (account, credentials) = Account::builder_with_http(Box::new(transport))
        .create(&account, settings.directory.clone(), external.as_ref())
        .await?;
    info!(account = account.id(), "created an ACME account");
    serde_json::to_vec(&credentials).map_err(|error| AcmeError::Malformed(error.to_string()))
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    #[test]
    fn only_well_formed_credentials_of_the_directory_are_used() {
        let (key, der) = instant_acme::Key::generate_pkcs8().unwrap();
        drop(key);
        let der = der.secret_pkcs8_der();
        let key: String = base64_url(der);
        let stored = format!(
            r#"{{"id": "https://ca/acct/1", "key_pkcs8": "{key}", "directory": "https://ca/dir"}}"#
        );
        assert!(is_of(stored.as_bytes(), "https://ca/dir"));
        assert!(!is_of(stored.as_bytes(), "https://ca/other"));
        for malformed in ["", "{}", "null", r#"{"id": 1, "directory": "https://ca/dir"}"#] {
            assert!(!is_of(malformed.as_bytes(), "https://ca/dir"), "{malformed}");
        }
    }

    pub(in crate::acme) fn base64_url(bytes: &[u8]) -> String {
        const DIGITS: &[u8; 64] =
            b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
        let mut text = String::new();
        for chunk in bytes.chunks(3) {
            let bits = chunk
                .iter()
                .enumerate()
                .fold(0_u32, |bits, (at, byte)| bits | u32::from(*byte) << (16 - 8 * at));
            for digit in 0..=chunk.len() {
                text.push(char::from(DIGITS[(bits >> (18 - 6 * digit)) as usize & 63]));
            }
        }
        text
    }
}
