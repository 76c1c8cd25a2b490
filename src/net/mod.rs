//! Networking that several modules share, independent of rate limits.

pub mod address;
pub mod http;
pub mod listen;
pub mod lookup;
pub mod percent;
pub mod tls;
