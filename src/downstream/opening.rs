//! The first bytes of a connection: the header of the PROXY protocol, the TLS handshake, and which
//! protocol follows.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use bytes::BytesMut;
use ipnet::IpNet;
use tokio::io::AsyncReadExt as _;
use tokio::time::timeout;

use super::connection::ClientProtocol;
use super::detect::{Detected, detect};
use super::ended::Ended;
use super::first_bytes::first_bytes;
use crate::client::address::{canonical, is_trusted};
use crate::net::proxy_protocol::{self, Parsed};
use crate::net::socket::Socket;

/// Bytes that are read at once: most heads of requests fit.
const READ_BYTES: usize = 2048;

/// The client of a proxy.
pub(super) struct Proxied {
    /// Its address, or that of the proxy; `None` for a proxy on a Unix socket.
    pub(super) peer: Option<SocketAddr>,
    /// Whether the proxy has sent no address of it.
    pub(super) is_hidden: bool,
}

/// Reads the header of the PROXY protocol.
///
/// # Errors
/// See [`Ended`].
pub(super) async fn proxied_peer(socket: &mut Socket, trusted: &[IpNet]) -> Result<Proxied, Ended> {
    let peer = socket.peer();
    // Who may connect to a Unix socket is up to its permissions.
    if !peer.is_none_or(|peer| is_trusted(trusted, canonical(peer.ip()))) {
        return Err(Ended::UntrustedProxy);
    }
    let mut bytes = BytesMut::new();
    loop {
        read_some(socket, &mut bytes).await.map_err(|_| Ended::Uncounted)?;
        match proxy_protocol::parse(&bytes) {
            Parsed::Incomplete => {}
            Parsed::Invalid(_) => return Err(Ended::ProxyHeader),
            Parsed::Header { addresses, len } => {
                socket.unread(bytes.split_off(len).freeze());
                let source = addresses.map(|addresses| addresses.source);
                return Ok(Proxied { peer: source.or(peer), is_hidden: source.is_none() });
            }
        }
    }
}

/// The protocol of a connection in clear: reads as much as that takes, and leaves it to be read
/// again. The first byte must arrive within `first_byte`, the rest of the preface within `whole`.
///
/// # Errors
/// See [`Ended`].
pub(super) async fn protocol(
    socket: &mut Socket,
    first_byte: Duration,
    whole: Duration,
) -> Result<ClientProtocol, Ended> {
    let first = timeout(first_byte, first_bytes(socket)).await.map_err(|_| Ended::Uncounted)?;
    let mut bytes = first.map_err(|_| Ended::Uncounted)?;
    if bytes.is_empty() {
        return Err(Ended::Uncounted);
    }
    let rest = async {
        loop {
            match detect(&bytes) {
                Detected::Incomplete => read_some(socket, &mut bytes).await?,
                decided => return io::Result::Ok(decided),
            }
        }
    };
    let detected = timeout(whole, rest).await.map_err(|_| Ended::HeadTimeout)?;
    let detected = detected.map_err(|_| Ended::Uncounted)?;
    socket.unread(bytes.freeze());
    Ok(match detected {
        Detected::Http2 => ClientProtocol::Http2,
        Detected::Http1 | Detected::Incomplete => ClientProtocol::Http1,
    })
}

/// Reads more bytes. The end of the stream is an error.
async fn read_some(socket: &mut Socket, bytes: &mut BytesMut) -> io::Result<()> {
    bytes.reserve(READ_BYTES);
    match socket.read_buf(bytes).await? {
        0 => Err(io::ErrorKind::UnexpectedEof.into()),
        _ => Ok(()),
    }
}
