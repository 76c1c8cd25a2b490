//! Client connections: from the socket that a listener accepts to the requests on it.
//!
//! This module replaces Pingora's listeners, which have no deadline for a connection's first bytes, no
//! limits on the age of an HTTP/2 connection, and a read buffer of 64 KiB for each connection.
//!
//! Reading order: `connection` (what the requests of a connection share), `service` (accepts
//! connections), `stream` (the connection as Pingora reads and writes it), `http1`.

pub mod connection;
pub mod service;

mod http1;
mod stream;

pub use crate::net::socket;
pub use crate::net::tls_info::{ClientCertificate, TlsInfo};
pub use connection::ConnectionInfo;
