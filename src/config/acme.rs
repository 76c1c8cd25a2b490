//! `[acme]` as written: automatic certificates.

use super::row::DefaultValue::{InWords, Text};
use super::row::Range::Characters;
use super::row::References::{All, Variables};
use super::row::Shown;
use super::spanned::Spanned;
use super::tables::{Field, List};
use super::walk::table;
use super::words::Challenge;

table! {
    /// `[acme]`: certificates from an authority that speaks ACME, such as Let's Encrypt. Listeners
    /// use them by `certificates = ["acme"]`.
    pub struct Acme {
        /// URL of the authority's directory.
        pub directory: Field<String> {
            default: Text("https://acme-v02.api.letsencrypt.org/directory"),
            shown: Shown::Url,
            references: All,
        },
        /// Where the authority sends notices.
        pub email: Field<String> { default: InWords("none"), references: All },
        /// Names that get certificates, without wildcards.
        pub domains: List,
        /// Folder of account and certificates; or `"redis"`, for gateways that share `[redis]`.
        pub storage: Field<String> { default: Text("acme"), references: Variables },
        /// Secret that private keys in Redis are encrypted with, in visible characters; best set as
        /// `"${NAME}"` or `"${file:PATH}"`. Required by `storage = "redis"`.
        pub storage_key: Field<String> {
            range: Characters(32, 1024),
            shown: Shown::Masked,
            references: All,
        },
        /// How the gateway proves that it serves a domain.
        pub challenge: Field<Challenge>,
        /// PEM file with the authorities of the directory's own certificate.
        pub ca: Field<String> { default: InWords("public authorities"), references: Variables },
        /// External account binding, which some authorities require: `{ key_id, hmac_key }`.
        pub eab: Option<Spanned<Eab>> { default: InWords("none") },
    }
}

table! {
    /// `[acme.eab]`: an account that the authority knows from elsewhere.
    pub struct Eab {
        /// Identifier of the account.
        pub key_id: Field<String> { references: All },
        /// Key of the account in base64url, as the authority shows it; best set as `"${NAME}"` or
        /// `"${file:PATH}"`.
        pub hmac_key: Field<String> { shown: Shown::Masked, references: All },
    }
}
