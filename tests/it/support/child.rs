//! A child process whose output is captured, killed when its handle is dropped.

use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::process::{Command, ExitStatus, Stdio};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::wait::{TIMEOUT, within};

/// A running process.
pub(crate) struct Child {
    process: std::process::Child,
    /// Output and error streams. A file, since each line is there as soon as it is written; a
    /// thread that reads a pipe can be late on a busy machine.
    log: File,
}

impl Child {
    /// Starts `command`. If the program is missing, the panic message shows `install`.
    pub(crate) fn start(command: &mut Command, install: &str) -> Self {
        // Without `append`, a program that opens `/dev/stdout` would overwrite earlier lines.
        let log = tempfile::Builder::new().append(true).tempfile().unwrap().into_file();
        command.stdin(Stdio::null());
        command.stdout(log.try_clone().unwrap()).stderr(log.try_clone().unwrap());
        let process = spawned(command.spawn(), command, install);
        Self { process, log }
    }

    /// Process id.
    pub(crate) fn id(&self) -> u32 {
        self.process.id()
    }

    /// Sends a signal.
    pub(crate) fn signal(&self, signal: Signal) {
        let id = Pid::from_raw(self.id().try_into().unwrap());
        kill(id, signal).unwrap();
    }

    /// The lines of the output so far.
    pub(crate) fn log(&self) -> String {
        let mut text = vec![0; self.log.metadata().unwrap().len().try_into().unwrap()];
        self.log.read_exact_at(&mut text, 0).unwrap();
        // The last line may be written in parts.
        text.truncate(text.iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end + 1));
        String::from_utf8_lossy(&text).into_owned()
    }

    /// Waits until `read` finds something in the output. `None` if the process exits first, or
    /// after the timeout.
    pub(crate) fn wait_for<T>(&mut self, read: impl Fn(&str) -> Option<T>) -> Option<T> {
        let found = within(TIMEOUT, || {
            // In this order: the last lines precede the exit.
            let has_exited = self.has_exited();
            let found = read(&self.log());
            (found.is_some() || has_exited).then_some(found)
        });
        found.flatten()
    }

    /// Whether the process has exited.
    pub(crate) fn has_exited(&mut self) -> bool {
        matches!(self.process.try_wait(), Ok(Some(_)))
    }

    /// Waits until the process exits.
    pub(crate) fn exit(&mut self) -> Option<ExitStatus> {
        within(TIMEOUT, || self.process.try_wait().ok().flatten())
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Whether a process that need not be a child runs. When it does not, its files are closed.
pub(crate) fn is_running(pid: u32) -> bool {
    // A process that has ended stays as a zombie until it is waited for, and its threads may end
    // after the first one.
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let threads = std::fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().count();
    let state = stat.rsplit_once(')').map(|(_, rest)| rest.trim_start());
    state.is_some_and(|state| !state.starts_with('Z') || threads > 1)
}

/// Whether a thread of a process runs, waits for a CPU, or for a disk.
pub(crate) fn is_busy(pid: u32) -> bool {
    let mut threads =
        std::fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    threads.any(|thread| {
        let stat = std::fs::read_to_string(thread.path().join("stat")).unwrap_or_default();
        let state = stat.rsplit_once(')').map(|(_, rest)| rest.trim_start());
        state.is_some_and(|state| state.starts_with(['R', 'D']))
    })
}

/// Unwraps the result of starting a program; panics with the command that installs it.
pub(crate) fn spawned<T>(result: std::io::Result<T>, command: &Command, install: &str) -> T {
    let program = command.get_program().display();
    result.unwrap_or_else(|error| panic!("cannot start {program}: {error}; install it: {install}"))
}
