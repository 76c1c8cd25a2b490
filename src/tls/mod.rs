//! TLS of the listeners: certificates and how one is selected, client certificates, handshakes.
//! rustls with `ring` as the provider of cryptography.
//!
//! Reading order: `x509` and `staple` (what files contain), `certificate` (a certificate with its
//! key), `authorities` (of client certificates), `files` (everything that the listeners name),
//! `table` (which certificate a server name gets), `store` (certificates of `[acme]`), `server`
//! (the TLS configuration of a listener), `listeners` (those in force), `refresh` (replaced files),
//! `failures`, `client` (the certificate of a client), `handshakes`.

pub mod authorities;
pub mod certificate;
pub mod client;
pub mod failures;
pub mod files;
pub mod handshakes;
pub mod listeners;
pub mod refresh;
pub mod server;
mod staple;

pub mod store;
mod table;
mod x509;

#[cfg(test)]
mod fixture;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use rustls::crypto::{CryptoProvider, ring};

/// The provider of cryptography. It is named in each configuration instead of installed in the
/// process, so that nothing depends on which code runs first.
fn provider() -> Arc<CryptoProvider> {
    Arc::new(ring::default_provider())
}
