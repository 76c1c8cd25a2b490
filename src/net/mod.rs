//! Networking that several modules share, and that knows nothing of rate limits.

pub mod listen;
pub mod tls;
