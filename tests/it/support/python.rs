//! Python's `http.server` as an independent upstream: HTTP/1.0, closes after each response.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::TempDir;

use super::child::Child;

/// A running server of a folder.
pub(crate) struct PythonServer {
    pub(crate) address: SocketAddr,
    _child: Child,
    folder: TempDir,
}

impl PythonServer {
    pub(crate) fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let mut child = Child::start(&mut command(folder.path()), "apt-get install python3");
        let port =
            child.wait_for(|log| log.split_once(" port ")?.1.split(' ').next()?.parse().ok());
        let Some(port) = port else { panic!("http.server did not start:\n{}", child.log()) };
        Self { address: SocketAddr::from(([127, 0, 0, 1], port)), _child: child, folder }
    }

    /// Path of `/<name>` on disk.
    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }
}

fn command(folder: &Path) -> Command {
    let mut command = Command::new("python3");
    // -u: unbuffered, so that the line with the port arrives at once.
    command
        .args(["-u", "-m", "http.server", "0", "--bind", "127.0.0.1", "--directory"])
        .arg(folder);
    command
}
