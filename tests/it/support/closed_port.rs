//! Addresses that refuse connections, or ignore them.

use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use socket2::{Domain, Socket, Type};
use tokio::net::TcpSocket;

/// A port of loopback that is bound without listening: connections are refused, and no other test
/// gets the port while this exists.
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

/// A port of loopback whose queue of connections is full, and which accepts none: the kernel
/// ignores further ones.
pub(crate) struct SilentPort {
    _socket: Socket,
    _queued: Vec<TcpStream>,
    /// Address of the port.
    pub(crate) address: SocketAddr,
}

impl SilentPort {
    pub(crate) fn bind() -> Self {
        Self::bind_at(SocketAddr::from(([127, 0, 0, 1], 0)))
    }

    /// The same, at an address of loopback.
    pub(crate) fn bind_at(address: SocketAddr) -> Self {
        let socket = Socket::new(Domain::for_address(address), Type::STREAM, None).unwrap();
        socket.bind(&address.into()).unwrap();
        socket.listen(0).unwrap();
        let address = socket.local_addr().unwrap().as_socket().unwrap();
        let fill = || TcpStream::connect_timeout(&address, Duration::from_secs(1)).ok();
        let queued: Vec<_> = std::iter::from_fn(fill).take(16).collect();
        assert!(queued.len() < 16, "the kernel ignores no connection");
        Self { _socket: socket, _queued: queued, address }
    }
}
