//! Checks of credentials that take time: the hash of a password. Each runs once at a time, few run
//! together, and results are kept for a while.
//!
//! Reading order: `flights` (what all checks have in common), `passwords`.

mod flights;
pub mod passwords;
