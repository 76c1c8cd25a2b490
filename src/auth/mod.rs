//! Checks of credentials that take time: the hash of a password, or a request to a server. Each
//! runs once at a time, few run together, and results are kept for a while.
//!
//! Reading order: `flights` (what all checks have in common), `passwords`, `forward` (a server that
//! is asked about each request), `introspection` (tokens that their issuer is asked about).

mod flights;
pub mod forward;
pub mod introspection;
pub mod passwords;
