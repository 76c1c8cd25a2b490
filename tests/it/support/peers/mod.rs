//! Clients and servers of other projects. A missing one fails the test with what to install.

mod h2load;
mod haproxy;
mod python;
mod server;

pub(crate) use h2load::H2Load;
pub(crate) use haproxy::HaProxy;
pub(crate) use python::{grpc_client, http2_abuse, http2_client, websocket_client};
pub(crate) use server::PeerServer;

use std::path::{Path, PathBuf};
use std::process::Command;

/// Installs the Python packages of the scripts in this folder.
const PYTHON_INSTALLER: &str = "scripts/python-peers";

/// Path of a script of this folder.
fn script(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/support/peers").join(name)
}

/// Python with the packages that `scripts/python-peers` installs.
fn python() -> Command {
    let mut command =
        Command::new(Path::new(env!("CARGO_MANIFEST_DIR")).join(".deps/python-peers/bin/python"));
    // gRPC must not use a proxy of the environment, nor fork handlers.
    command.env("no_proxy", "*").env("GRPC_VERBOSITY", "ERROR").arg("-u");
    command
}
