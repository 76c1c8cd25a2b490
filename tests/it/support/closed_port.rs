//! An address that refuses connections.

use std::net::SocketAddr;

use tokio::net::TcpSocket;

/// A port of loopback that is bound without listening: connections are refused, and no other test gets
/// the port while this exists.
pub(crate) struct ClosedPort {
    _socket: TcpSocket,
    /// Address of the port.
    pub(crate) address: SocketAddr,
}

impl ClosedPort {
    pub(crate) fn bind() -> Self {
        let socket = TcpSocket::new_v4().unwrap();
        socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
        Self { address: socket.local_addr().unwrap(), _socket: socket }
    }
}
