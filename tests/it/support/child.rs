//! A child process whose output is captured, killed when its handle is dropped.

use std::io::{BufRead as _, BufReader, Read};
use std::process::{Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use parking_lot::{Condvar, Mutex};

use super::wait::{TIMEOUT, within};

/// A running process.
pub(crate) struct Child {
    process: std::process::Child,
    log: Arc<Log>,
}

/// Output and error streams of a process so far.
#[derive(Default)]
struct Log {
    text: Mutex<String>,
    appended: Condvar,
}

impl Child {
    /// Starts `command`. If the program is missing, the panic message shows `install`.
    pub(crate) fn start(command: &mut Command, install: &str) -> Self {
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut process = spawned(command.spawn(), command, install);
        let log = Arc::new(Log::default());
        log.clone().keep(process.stdout.take());
        log.clone().keep(process.stderr.take());
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

    /// Output so far.
    pub(crate) fn log(&self) -> String {
        self.log.text.lock().clone()
    }

    /// Waits until `read` finds something in the output. `None` if the process exits first, or after
    /// the timeout.
    pub(crate) fn wait_for<T>(&mut self, read: impl Fn(&str) -> Option<T>) -> Option<T> {
        let log = Arc::clone(&self.log);
        let mut text = log.text.lock();
        let mut waited = Duration::ZERO;
        loop {
            if let Some(found) = read(&text) {
                return Some(found);
            }
            if waited > TIMEOUT || self.has_exited() {
                return None;
            }
            let step = Duration::from_millis(50);
            log.appended.wait_for(&mut text, step);
            waited += step;
        }
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

impl Log {
    fn keep(self: Arc<Self>, stream: Option<impl Read + Send + 'static>) {
        let Some(stream) = stream else { return };
        std::thread::spawn(move || {
            let mut stream = BufReader::new(stream);
            let mut line = Vec::new();
            while stream.read_until(b'\n', &mut line).is_ok_and(|read| read > 0) {
                self.text.lock().push_str(&String::from_utf8_lossy(&line));
                self.appended.notify_all();
                line.clear();
            }
        });
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Unwraps the result of starting a program; panics with the command that installs it.
pub(crate) fn spawned<T>(result: std::io::Result<T>, command: &Command, install: &str) -> T {
    let program = command.get_program().display();
    result.unwrap_or_else(|error| panic!("cannot start {program}: {error}; install it: {install}"))
}
