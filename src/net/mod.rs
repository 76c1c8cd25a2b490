//! Networking that several modules share, and that knows nothing of rate limits.

pub mod address;
pub mod http;
pub mod listen;
pub mod lookup;
pub mod percent;
pub mod tls;
