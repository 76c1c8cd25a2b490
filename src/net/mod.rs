//! Networking that several modules share, independent of rate limits.

pub mod address;
pub mod body_rate;
pub mod cross_site;
mod dns;
pub mod forwarding;
pub mod framing;
pub mod grpc;
pub mod http;
pub mod inherit;
pub mod io_text;
pub mod listen;
pub mod lookup;
pub mod percent;
pub mod proxy_protocol;
pub mod rate;
pub mod socket;
pub mod tls;
pub mod tls_info;
pub mod unix_socket;
pub mod url;
pub mod url_target;
pub mod vary;
pub mod weighted;
