//! A listening Unix socket, whose file exists only while it listens.

use std::io;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _, PermissionsExt as _};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use socket2::{Domain, SockAddr, Socket, Type};
use tracing::warn;

/// Connections that wait to be accepted, at most.
const BACKLOG: i32 = 4096;

/// A bound, listening, non-blocking Unix socket.
#[derive(Debug)]
pub struct UnixSocket {
    pub(super) socket: std::os::unix::net::UnixListener,
    /// Removes the file; `None` if it belongs to systemd.
    pub(super) file: Option<SocketFile>,
}

/// Switch that keeps the file of a socket: another process listens on it.
#[derive(Clone, Debug, Default)]
pub struct KeptFile(Arc<AtomicBool>);

/// The file of a socket. Removed when it is dropped, unless it is another one by then.
#[derive(Debug)]
pub(super) struct SocketFile {
    file: LeftFile,
    mode: u32,
    kept: KeptFile,
}

/// The file of a socket on which no process will listen.
#[derive(Debug)]
pub struct LeftFile {
    path: PathBuf,
    /// Device and inode.
    id: (u64, u64),
}

impl UnixSocket {
    /// Binds a socket with these permissions. Replaces the file of a socket on which no process
    /// listens.
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
        let file = SocketFile::of(path, mode)?;
        // Before it listens, so that no client connects with other permissions.
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode))?;
        socket.listen(BACKLOG)?;
        socket.set_nonblocking(true)?;
        Ok(Self { socket: socket.into(), file: Some(file) })
    }

    /// Listens on the socket of the process that this one replaces. Its file gets these permissions
    /// when this process accepts connections, and is removed at the end.
    ///
    /// # Errors
    /// The error of the system.
    pub(super) fn adopt(socket: Socket, path: &Path, mode: u32) -> io::Result<Self> {
        // Without the file, clients that connect from now on fail, but those of the backlog do not.
        let file = SocketFile::of(path, mode).ok();
        Ok(Self { file, ..Self::borrow(socket)? })
    }

    /// Listens on a socket whose file belongs to another process.
    ///
    /// # Errors
    /// The error of the system.
    pub(super) fn borrow(socket: Socket) -> io::Result<Self> {
        socket.set_nonblocking(true)?;
        Ok(Self { socket: socket.into(), file: None })
    }
}

impl KeptFile {
    /// Keeps the file from now on.
    pub fn keep(&self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

impl SocketFile {
    fn of(path: &Path, mode: u32) -> io::Result<Self> {
        Ok(Self { file: LeftFile::of(path)?, mode, kept: KeptFile::default() })
    }

    /// Sets the permissions.
    pub(super) fn set_mode(&self) {
        let LeftFile { path, .. } = &self.file;
        let permissions = std::fs::Permissions::from_mode(self.mode);
        if self.file.is_there()
            && let Err(error) = std::fs::set_permissions(path, permissions)
        {
            warn!(path = %path.display(), %error, "the mode of a Unix socket cannot be changed");
        }
    }

    pub(super) fn kept(&self) -> KeptFile {
        self.kept.clone()
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
        if self.kept.0.load(Ordering::Relaxed) {
            return;
        }
        self.file.remove();
    }
}

impl LeftFile {
    pub(super) fn of(path: &Path) -> io::Result<Self> {
        let about = std::fs::symlink_metadata(path)?;
        Ok(Self { path: path.to_owned(), id: (about.dev(), about.ino()) })
    }

    /// Removes the file, unless it is another one by now.
    pub fn remove(&self) {
        if self.is_there() {
            // An error leaves a stale file, which the next start replaces.
            let _ = std::fs::remove_file(&self.path);
        }
    }

    fn is_there(&self) -> bool {
        let about = std::fs::symlink_metadata(&self.path);
        about.is_ok_and(|about| (about.dev(), about.ino()) == self.id)
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
