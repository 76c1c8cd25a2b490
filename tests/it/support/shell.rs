//! Commands of the documentation, run by bash.

use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Command, Stdio};

use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;

/// A command that runs until this is dropped, with all processes that it started.
pub(crate) struct BackgroundShell(std::process::Child);

/// bash in this folder. In its path are the program under test, and the Python of
/// `scripts/python-peers`.
pub(crate) fn bash(command: &str, folder: &Path) -> Command {
    let program = Path::new(env!("CARGO_BIN_EXE_tollgate")).parent().unwrap();
    let path = std::env::var("PATH").unwrap_or_default();
    let mut bash = Command::new("bash");
    bash.arg("-c").arg(command).current_dir(folder).stdin(Stdio::null());
    let python = Path::new(env!("CARGO_MANIFEST_DIR")).join(".deps/python-peers/bin");
    bash.env("PATH", format!("{}:{}:{path}:/usr/sbin", program.display(), python.display()));
    bash.env_remove("TOLLGATE_LOG").env_remove("TOLLGATE_LOG_FORMAT").env("NO_COLOR", "1");
    bash
}

impl BackgroundShell {
    pub(crate) fn start(command: &str, folder: &Path) -> Self {
        // A group of processes, so that all of them can be ended.
        let mut bash = bash(command, folder);
        bash.process_group(0).stdout(Stdio::null()).stderr(Stdio::null());
        Self(bash.spawn().unwrap())
    }
}

impl Drop for BackgroundShell {
    fn drop(&mut self) {
        let group = Pid::from_raw(self.0.id().try_into().unwrap());
        let _ = killpg(group, Signal::SIGKILL);
        let _ = self.0.wait();
    }
}
