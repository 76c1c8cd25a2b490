//! Listening sockets that the process is started with: by systemd, or by the process that it
//! replaces.

use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::path::Path;

use listenfd::ListenFd;
use socket2::{SockAddr, Socket};

use super::unix_socket::LeftFile;

/// Listening sockets that no listener has taken yet.
#[derive(Debug, Default)]
pub struct Inherited {
    sockets: Vec<Candidate>,
    origin: Origin,
}

/// Where the sockets come from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Origin {
    /// There are none.
    #[default]
    Nowhere,
    /// Socket activation: systemd opened them, and owns the files of Unix sockets.
    Systemd,
    /// The process that this one replaces.
    Predecessor,
}

#[derive(Debug)]
struct Candidate {
    socket: Socket,
    /// The address in the configuration of the process that it comes from.
    name: Option<String>,
    owner: FileOwner,
}

/// Whose the file of a Unix socket is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileOwner {
    /// The process that listens changes and removes it.
    Gateway,
    /// systemd changes and removes it.
    Systemd,
}

/// A socket of the process that this one replaces.
#[derive(Debug)]
pub struct NamedSocket {
    /// The address in the configuration of that process.
    pub name: String,
    pub socket: OwnedFd,
    /// Whose its file is, if it is a Unix socket.
    pub owner: FileOwner,
}

impl Inherited {
    /// Takes the sockets that systemd passes (`LISTEN_FDS`). Call it before there are other
    /// threads.
    ///
    /// # Errors
    /// A descriptor is no listening TCP or Unix socket.
    pub fn from_systemd() -> io::Result<Self> {
        let mut passed = ListenFd::from_env();
        let mut sockets = Vec::new();
        for index in 0..passed.len() {
            let tcp = passed.take_tcp_listener(index).map(|socket| socket.map(Socket::from));
            let socket = match tcp {
                Ok(socket) => socket,
                Err(_) => passed.take_unix_listener(index)?.map(Socket::from),
            };
            sockets.extend(socket.map(|socket| Candidate {
                socket,
                name: None,
                owner: FileOwner::Systemd,
            }));
        }
        let origin = if sockets.is_empty() { Origin::Nowhere } else { Origin::Systemd };
        Ok(Self { sockets, origin })
    }

    /// The sockets of another gateway.
    pub fn from_predecessor(sockets: impl IntoIterator<Item = NamedSocket>) -> Self {
        let candidate = |NamedSocket { name, socket, owner }| Candidate {
            socket: socket.into(),
            name: Some(name),
            owner,
        };
        let sockets = sockets.into_iter().map(candidate).collect();
        Self { sockets, origin: Origin::Predecessor }
    }

    /// Returns where the sockets come from.
    pub fn origin(&self) -> Origin {
        self.origin
    }

    /// Takes the socket of a TCP address, which is called `name` in the configuration.
    pub(super) fn take_tcp(&mut self, name: &str, address: SocketAddr) -> Option<Socket> {
        Some(self.take(name, |local| local.as_socket() == Some(address))?.socket)
    }

    /// Takes the Unix socket with this path, which is called `name` in the configuration.
    pub(super) fn take_unix(&mut self, name: &str, path: &Path) -> Option<(Socket, FileOwner)> {
        let found = self.take(name, |local| local.as_pathname() == Some(path))?;
        Some((found.socket, found.owner))
    }

    fn take(&mut self, name: &str, is_there: impl Fn(&SockAddr) -> bool) -> Option<Candidate> {
        // Port 0 in the configuration is another port of the socket.
        let has_name = |candidate: &Candidate| candidate.name.as_deref() == Some(name);
        // Also a socket that was for another purpose: of the admin port, for example.
        let has_address =
            |candidate: &Candidate| candidate.socket.local_addr().is_ok_and(|it| is_there(&it));
        let sockets = &self.sockets;
        let found = sockets.iter().position(has_name);
        let found = found.or_else(|| sockets.iter().position(has_address))?;
        Some(self.sockets.remove(found))
    }

    /// Returns the files of Unix sockets that have not been taken, and that nothing else will
    /// remove.
    pub fn left_files(&self) -> Vec<LeftFile> {
        let owned = self.sockets.iter().filter(|candidate| candidate.owner == FileOwner::Gateway);
        let file = |candidate: &Candidate| {
            LeftFile::of(candidate.socket.local_addr().ok()?.as_pathname()?).ok()
        };
        owned.filter_map(file).collect()
    }

    /// Returns the addresses of the sockets that have not been taken.
    pub fn untaken(&self) -> Vec<String> {
        let show = |candidate: &Candidate| match candidate.socket.local_addr() {
            Ok(local) => match (local.as_socket(), local.as_pathname()) {
                (Some(address), _) => address.to_string(),
                (_, Some(path)) => format!("unix:{}", path.display()),
                _ => "a socket without an address".to_owned(),
            },
            Err(error) => error.to_string(),
        };
        self.sockets.iter().map(show).collect()
    }
}
