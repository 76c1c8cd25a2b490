//! Ports for servers of tests. Unit tests of the library use this file, too.

/// A free TCP port below those that the kernel gives to outgoing connections: one of these could take the port before
/// the server does.
pub(crate) fn free_port() -> u16 {
    loop {
        let port = 10_000 + (getrandom::u32().unwrap() % 22_000) as u16;
        if std::net::TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return port;
        }
    }
}
