//! Client connections: from the socket that a listener accepts to the requests on it.
//!
//! This module replaces Pingora's listeners, which have no deadline for a connection's first bytes,
//! no limits on the age of an HTTP/2 connection or the number of connections, and a read buffer of
//! 64 KiB for each connection.
//!
//! Reading order: `connection` (what the requests of a connection share), `service` (accepts
//! connections), `open` (the table of open connections), `intake` (pauses at an upgrade),
//! `overload`, `descriptors`, `memory` and `pressure` (how many the process can have), `endpoint`
//! (one connection from its first byte to its last), `opening` and `detect` (its first bytes),
//! `stream` (the connection as Pingora reads and writes it), `unwritten` (what the drain waits
//! for), `head` (the time of a request's head), `held` (its unfinished lines), `absolute_form` (its
//! target, if that is a URL), `frames` (the same for HTTP/2), `first_bytes`, `prefix` and
//! `request_wait` (the wait for a request), `http1`, `http2`, `lifetime` and `rest` (its requests),
//! `ended` and `rejections` (why it was closed without a response).

pub mod connection;
pub mod descriptors;
pub mod head;
pub mod intake;
pub mod open;
pub mod pressure;
pub mod rejections;
pub mod rest;
pub mod service;
pub mod unwritten;

mod absolute_form;
mod detect;
mod ended;
mod endpoint;
mod first_bytes;
mod frames;
mod held;
mod http1;
mod http2;
mod lifetime;
mod memory;
mod opening;
mod overload;
mod prefix;
mod request_wait;
mod send;
mod stream;

pub use crate::net::socket;
pub use crate::net::tls_info::{ClientCertificate, TlsInfo};
pub use connection::ConnectionInfo;
