//! Ports for servers of tests. Unit tests of the library use this file, too.

use std::fs::File;

use parking_lot::Mutex;

/// Locked files of the ports that this process has chosen: no other test can choose them until it
/// ends.
static CHOSEN: Mutex<Vec<File>> = parking_lot::const_mutex(Vec::new());

/// A free TCP port below those that the kernel gives to outgoing connections: one of these could
/// take the port before the server does.
pub(crate) fn free_port() -> u16 {
    let folder = std::env::temp_dir().join("tollgate-test-ports");
    std::fs::create_dir_all(&folder).unwrap();
    loop {
        let port = 10_000 + (getrandom::u32().unwrap() % 22_000) as u16;
        let file = File::create(folder.join(port.to_string())).unwrap();
        if file.try_lock().is_ok() && std::net::TcpListener::bind(("127.0.0.1", port)).is_ok() {
            CHOSEN.lock().push(file);
            return port;
        }
    }
}
