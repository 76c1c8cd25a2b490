//! Tokens of identity providers (JSON Web Tokens, RFC 7519): from the text of a token and the keys
//! of its issuer to the client that it identifies, or to why it is refused. Pure: the time is a
//! parameter.
//!
//! Reading order: the types here, `settings` (`[clients.jwt]`), `json` (objects without repeated
//! names), `compact` (the parts of a token), `key` (a key, and the verification of a signature),
//! `key_set` (the keys of an issuer), `claims` (what a token says), `verify` (all of this for one
//! token).

pub mod claims;
pub mod compact;
mod json;
pub mod key;
pub mod key_set;
pub mod settings;
pub mod verify;

use thiserror::Error;

/// Maximum length of a token in bytes.
pub const MAX_TOKEN_BYTES: usize = 16 << 10;

/// Why a token is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Error)]
pub enum TokenRefusal {
    /// It is longer than [`MAX_TOKEN_BYTES`].
    #[error("is longer than {MAX_TOKEN_BYTES} bytes")]
    TooLong,
    /// Its header or its claims are not what RFC 7515 and RFC 7519 demand, or the header demands an
    /// extension (`crit`).
    #[error("is malformed")]
    Malformed,
    /// Its algorithm is not accepted, or does not fit the key.
    #[error("has an algorithm that is not accepted")]
    Algorithm,
    /// Its header states a type (`typ`) that is not accepted.
    #[error("has a type that is not accepted")]
    Type,
    /// No `[clients.jwt]` has its issuer (`iss`).
    #[error("is of an unknown issuer")]
    Issuer,
    /// Its issuer has no key with its `kid`.
    #[error("is signed with an unknown key")]
    UnknownKey,
    /// Its signature is wrong.
    #[error("has a wrong signature")]
    Signature,
    /// Its time (`exp`) is over.
    #[error("has expired")]
    Expired,
    /// Its time (`nbf`, `iat`) has not begun.
    #[error("is not valid yet")]
    NotYetValid,
    /// It is for another audience (`aud`).
    #[error("is for another audience")]
    Audience,
    /// A required claim is missing, or a claim has a value that cannot be used.
    #[error("lacks a claim, or has one that cannot be used")]
    Claims,
    /// Its claims name no plan.
    #[error("names no plan")]
    Plan,
    /// Its issuer says that it cannot be used, or no more.
    #[error("is not active")]
    Inactive,
    /// It lacks a scope that is required.
    #[error("lacks a scope")]
    Scope,
}

#[cfg(test)]
mod tests;
