//! A listening Unix socket, whose file exists only while it listens.

use std::io;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _, PermissionsExt as _};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use socket2::{Domain, SockAddr, Socket, Type};

/// Connections that wait to be accepted, at most.
const BACKLOG: i32 = 4096;

/// A bound, listening, non-blocking Unix socket.
#[derive(Debug)]
pub struct UnixSocket {
    /// The socket.
    pub(super) socket: std::os::unix::net::UnixListener,
    /// Removes the file.
    pub(super) file: SocketFile,
}

/// The file of a socket. Removed when it is dropped, unless it is another one by then.
#[derive(Debug)]
pub(super) struct SocketFile {
    path: PathBuf,
    /// Device and inode.
    id: (u64, u64),
}

impl UnixSocket {
    /// Binds a socket with these permissions. Replaces the file of a socket on which no process listens.
    ///
    /// # Errors
    /// The path cannot be bound: another process listens on it, or it is another kind of file.
    pub fn bind(path: &Path, mode: u32) -> io::Result<Self> {
        let socket = Socket::new(Domain::UNIX, Type::STREAM, None)?;
        let address = SockAddr::unix(path)?;
        match socket.bind(&address) {
            Err(error) if error.kind() == io::ErrorKind::AddrInUse && is_stale(path) => {
                std::fs::remove_file(path)?;
                socket.bind(&address)?;
            }
            bound => bound?,
        }
        let about = std::fs::symlink_metadata(path)?;
        let file = SocketFile { path: path.to_owned(), id: (about.dev(), about.ino()) };
        // Before it listens, so that no client connects with other permissions.
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode))?;
        socket.listen(BACKLOG)?;
        socket.set_nonblocking(true)?;
        Ok(Self { socket: socket.into(), file })
    }
}

/// Whether this is the file of a socket on which no process listens.
fn is_stale(path: &Path) -> bool {
    let is_socket =
        std::fs::symlink_metadata(path).is_ok_and(|about| about.file_type().is_socket());
    let refused = |error: io::Error| error.kind() == io::ErrorKind::ConnectionRefused;
    is_socket && UnixStream::connect(path).is_err_and(refused)
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        let about = std::fs::symlink_metadata(&self.path);
        if about.is_ok_and(|about| (about.dev(), about.ino()) == self.id) {
            // It remains as a stale file, which the next start replaces.
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(folder: &tempfile::TempDir) -> PathBuf {
        folder.path().join("gateway.sock")
    }

    #[test]
    fn file_has_the_permissions_and_is_removed() {
        let folder = tempfile::tempdir().unwrap();
        let path = path(&folder);
        let socket = UnixSocket::bind(&path, 0o620).unwrap();
        assert_eq!(std::fs::metadata(&path).unwrap().mode() & 0o777, 0o620);
        UnixStream::connect(&path).unwrap();
        drop(socket);
        assert!(!path.exists());
    }

    #[test]
    fn stale_file_is_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let path = path(&folder);
        drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
        assert!(path.exists());
        UnixSocket::bind(&path, 0o660).unwrap();
    }

    #[test]
    fn socket_of_another_process_and_other_files_are_kept() {
        let folder = tempfile::tempdir().unwrap();
        let path = path(&folder);
        let other = std::os::unix::net::UnixListener::bind(&path).unwrap();
        let error = UnixSocket::bind(&path, 0o660).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::AddrInUse);
        UnixStream::connect(&path).unwrap();
        drop(other);
        let text = folder.path().join("notes.txt");
        std::fs::write(&text, "kept").unwrap();
        UnixSocket::bind(&text, 0o660).unwrap_err();
        assert_eq!(std::fs::read_to_string(&text).unwrap(), "kept");
    }

    #[test]
    fn file_of_a_later_socket_is_kept() {
        let folder = tempfile::tempdir().unwrap();
        let path = path(&folder);
        let first = UnixSocket::bind(&path, 0o660).unwrap();
        std::fs::remove_file(&path).unwrap();
        let second = UnixSocket::bind(&path, 0o660).unwrap();
        drop(first);
        assert!(path.exists());
        drop(second);
    }
}
