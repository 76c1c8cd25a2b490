//! `[acme]` as written: automatic certificates.

use super::spanned::Spanned;
use super::tables::{Field, List};
use super::walk::table;
use super::words::Challenge;

table! {
    /// `[acme]`: certificates from an authority that speaks ACME, such as Let's Encrypt. Listeners
    /// use them by `certificates = ["acme"]`. All texts except `domains` may contain `${NAME}`.
    pub struct Acme {
        /// URL of the authority's directory. Default: that of Let's Encrypt,
        /// `"https://acme-v02.api.letsencrypt.org/directory"`.
        pub directory: Field<String>,
        /// Where the authority sends notices. Default: none.
        pub email: Field<String>,
        /// Names that get certificates, without wildcards.
        pub domains: List,
        /// Folder of account and certificates; or `"redis"`, for gateways that share `[redis]`.
        /// Default: `"acme"`.
        pub storage: Field<String>,
        /// Secret that private keys in Redis are encrypted with, 32 to 1024 visible characters;
        /// best set as `"${NAME}"` or `"${file:PATH}"`. Required by `storage = "redis"`.
        pub storage_key: Field<String>,
        /// How the gateway proves that it serves a domain. Default: `"http-01"`.
        pub challenge: Field<Challenge>,
        /// PEM file with the authorities of the directory's own certificate. Default: public
        /// authorities.
        pub ca: Field<String>,
        /// External account binding, which some authorities require: `{ key_id, hmac_key }`.
        /// Default: none.
        pub eab: Option<Spanned<Eab>>,
    }
}

table! {
    /// `[acme.eab]`: an account that the authority knows from elsewhere.
    pub struct Eab {
        /// Identifier of the account.
        pub key_id: Field<String>,
        /// Key of the account in base64url, as the authority shows it; best set as `"${NAME}"` or
        /// `"${file:PATH}"`.
        pub hmac_key: Field<String>,
    }
}
