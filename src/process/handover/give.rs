//! The old process: starts the new one, and gives it the sockets.

use std::ffi::OsString;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use thiserror::Error;
use tokio::sync::{oneshot, watch};
use tracing::{info, warn};

use super::{
    Answer, Greeting, Handover, VARIABLE, VERSION, receive_json, send, send_json, send_socket,
};
use crate::base::clock;
use crate::base::duration::micros;
use crate::downstream::intake::{Intake, Paused};
use crate::keys::kept::Kept;
use crate::net::unix_socket::KeptFile;
use crate::process::notify;
use crate::runtime::CurrentSnapshot;
use crate::upstream::known::Known;
use crate::upstream::pool::Pool;
use crate::usage::keeper::Keeper;

/// Longest wait for the exit status of a new process that has closed its end.
const EXIT_TIMEOUT: Duration = Duration::from_secs(1);

/// Longest wait for the first requests of new connections. A client that sends one slowly delays
/// others by this time.
const DECISION_TIMEOUT: Duration = Duration::from_secs(1);

/// How long a new connection may be silent before it is not waited for.
const IDLE_TIMEOUT: Duration = Duration::from_millis(200);

/// Longest time between the end of accepting here and its begin in the new process.
const HANDOVER_TIMEOUT: Duration = Duration::from_secs(10);

/// The listening sockets of the process, to hand over.
#[derive(Debug, Default)]
pub struct Sockets {
    /// Each with its address in the configuration.
    pub open: Vec<(String, OwnedFd)>,
    /// The addresses of Unix sockets whose files belong to systemd.
    pub borrowed: Vec<String>,
    /// The files of other Unix sockets.
    pub files: Vec<KeptFile>,
}

/// Upgrades the process.
pub struct Upgrader {
    current: Arc<CurrentSnapshot>,
    handover: Handover,
    intake: Intake,
    state: Mutex<State>,
    /// Whether another process has the sockets.
    replaced: watch::Sender<bool>,
}

enum State {
    /// This process has not taken over from its predecessor.
    Starting(Arc<Sockets>),
    Serving(Arc<Sockets>),
    /// The new process, once it is started.
    Upgrading(Option<Child>),
    Closed,
}

/// A new process that accepts connections once it has the history.
struct Successor {
    process: u32,
    paused: Paused,
    history: Vec<u8>,
}

/// Why the process was not replaced. It serves as before.
#[derive(Debug, Error)]
pub enum UpgradeError {
    /// One upgrade at a time.
    #[error("another upgrade is in progress")]
    InProgress,
    /// The process is the new one of an upgrade.
    #[error("the process is still taking over from the previous one")]
    Starting,
    /// The process drains.
    #[error("the process is stopping")]
    Stopping,
    /// The program cannot be started.
    #[error("cannot start {program}: {source}")]
    Start {
        program: String,
        /// The error of the system.
        source: io::Error,
    },
    /// The new process has ended.
    #[error(
        "the new process ended before it was ready ({status}); the gateway's log shows its output"
    )]
    Ended {
        /// How.
        status: ExitStatus,
    },
    /// The new process reports why it ends.
    #[error("the new process cannot start: {0}")]
    Failed(String),
    /// The new process is not ready in time.
    #[error(
        "the new process was not ready within `server.upgrade_timeout` ({0:?}), and was killed"
    )]
    Timeout(Duration),
    /// The new process is prepared, but does not take over in time.
    #[error("the new process did not take over within {HANDOVER_TIMEOUT:?}, and was killed")]
    HandoverTimeout,
    /// This process did not close a file in time that the new one needs.
    #[error(
        "this process could not close {} in time, and the new one was killed: the disk does not answer, or is slow",
        .0.display()
    )]
    FileOpen(PathBuf),
    /// An operator has given an order that the new process does not have.
    #[error(
        "an endpoint of an upstream was drained, disabled or enabled meanwhile, which the new process does not know: \
         upgrade again"
    )]
    Ordered,
    /// The new process does not behave as expected.
    #[error("the new process cannot take over, and was killed: {0}")]
    Exchange(io::Error),
}

impl Upgrader {
    /// Creates an upgrader that hands over `handover` and `sockets`, while `intake` is paused.
    pub fn new(
        current: Arc<CurrentSnapshot>,
        handover: Handover,
        intake: Intake,
        sockets: Sockets,
    ) -> Self {
        let state = Mutex::new(State::Serving(Arc::new(sockets)));
        let replaced = watch::Sender::new(false);
        Self { current, handover, intake, state, replaced }
    }

    /// Refuses upgrades until [`open`](Self::open), if `takes_over`: this process takes over from
    /// another one.
    pub fn starting(self, takes_over: bool) -> Self {
        if takes_over {
            self.change(|state| match state {
                State::Serving(sockets) => State::Starting(sockets),
                other => other,
            });
        }
        self
    }

    /// Allows upgrades. Call it when this process has taken over.
    pub fn open(&self) {
        self.change(|state| match state {
            State::Starting(sockets) => State::Serving(sockets),
            other => other,
        });
    }

    /// Starts the program on disk with the arguments of this process, and hands over the sockets.
    /// Returns the id of the new process once it serves; this one then drains.
    ///
    /// # Errors
    /// See [`UpgradeError`].
    pub async fn upgrade(self: &Arc<Self>) -> Result<u32, UpgradeError> {
        let sockets = self.begin()?;
        let (sender, receiver) = oneshot::channel();
        let (upgrader, handed) = (Arc::clone(self), Arc::clone(&sockets));
        let run = move || {
            let result = upgrader.run(handed);
            match &result {
                Ok(process) => info!(process, "upgrade: a new process serves"),
                Err(error) => log_failure(error),
            }
            let _ = sender.send(result);
        };
        // Not in the caller's task, which may be dropped.
        if let Err(source) = std::thread::Builder::new().name("upgrade".to_owned()).spawn(run) {
            self.change(|state| match state {
                State::Upgrading(_) => State::Serving(sockets),
                other => other,
            });
            let error = UpgradeError::Start { program: "a thread".to_owned(), source };
            log_failure(&error);
            return Err(error);
        }
        receiver.await.unwrap_or(Err(UpgradeError::Stopping))
    }

    /// Completes when another process has taken over.
    pub async fn replaced(&self) {
        let mut replaced = self.replaced.subscribe();
        // The sender lives as long as `self`.
        let _ = replaced.wait_for(|is_replaced| *is_replaced).await;
    }

    /// Returns a receiver that becomes true when another process has taken over.
    pub fn watch(&self) -> watch::Receiver<bool> {
        self.replaced.subscribe()
    }

    /// Closes the sockets, and ends an upgrade. Call it when the process drains.
    pub fn close(&self) {
        let mut state = self.state.lock();
        if let State::Upgrading(Some(child)) = std::mem::replace(&mut *state, State::Closed) {
            // With the lock: `run` closes its end only afterwards, upon which the new process would
            // serve.
            kill(child);
        }
    }

    fn change(&self, change: impl FnOnce(State) -> State) {
        let mut state = self.state.lock();
        *state = change(std::mem::replace(&mut *state, State::Closed));
    }

    fn begin(&self) -> Result<Arc<Sockets>, UpgradeError> {
        let mut state = self.state.lock();
        match std::mem::replace(&mut *state, State::Upgrading(None)) {
            State::Serving(sockets) => Ok(sockets),
            State::Starting(sockets) => {
                *state = State::Starting(sockets);
                Err(UpgradeError::Starting)
            }
            State::Upgrading(child) => {
                *state = State::Upgrading(child);
                Err(UpgradeError::InProgress)
            }
            State::Closed => {
                *state = State::Closed;
                Err(UpgradeError::Stopping)
            }
        }
    }

    fn run(&self, sockets: Arc<Sockets>) -> Result<u32, UpgradeError> {
        let timeout = self.current.load().policy.server.upgrade_timeout;
        let (here, there) = match UnixStream::pair() {
            Ok(pair) => pair,
            Err(error) => {
                self.go_on(sockets);
                return Err(UpgradeError::Exchange(error));
            }
        };
        let result = self.replace((&here, there), &sockets, timeout);
        let mut state = self.state.lock();
        let is_upgrading = matches!(*state, State::Upgrading(_));
        let failed = match result {
            Ok(successor) if is_upgrading => {
                *state = State::Closed;
                return Ok(self.hand_over(successor, &here, &sockets));
            }
            Err(error) => Some(error).filter(|_| is_upgrading),
            Ok(_) => None,
        };
        let child = if let State::Upgrading(child) = &mut *state { child.take() } else { None };
        drop(state);
        // Without an error, the process drains, and `close` has killed the new process.
        let error = failed.map_or(UpgradeError::Stopping, |error| with_status(error, child));
        // Only now: the new process serves if this one closes its end before.
        drop(here);
        self.go_on(sockets);
        Err(error)
    }

    /// Lets the new process accept connections. Returns its id.
    fn hand_over(&self, successor: Successor, stream: &UnixStream, sockets: &Sockets) -> u32 {
        let Successor { process, paused, history } = successor;
        paused.forever();
        sockets.files.iter().for_each(KeptFile::keep);
        notify::replaced_by(process);
        // Before this process drains: it may end at once. If the new one ends now, there is nothing
        // left to do.
        let _ = send(stream, &history);
        self.replaced.send_replace(true);
        process
    }

    /// Serves as before an upgrade that has failed, unless the process drains.
    fn go_on(&self, sockets: Arc<Sockets>) {
        if let Some(usage) = &self.handover.usage {
            usage.resume();
        }
        if let Some(keys) = &self.handover.keys {
            keys.kept.resume();
        }
        self.handover.orders.reopen();
        self.change(|state| match state {
            State::Upgrading(_) => State::Serving(sockets),
            other => other,
        });
    }

    /// Starts the new process, and waits until it serves.
    fn replace(
        &self,
        (here, there): (&UnixStream, UnixStream),
        sockets: &Sockets,
        timeout: Duration,
    ) -> Result<Successor, UpgradeError> {
        let ends = clock::now().saturating_add(micros(timeout));
        let (program, mut command) = command(there);
        let child = command.spawn();
        // The command has the other end of `here`.
        drop(command);
        let child = child.map_err(|source| UpgradeError::Start { program, source })?;
        let process = child.id();
        info!(process, "upgrade: a new process starts");
        let mut state = self.state.lock();
        match &mut *state {
            State::Upgrading(place) => *place = Some(child),
            State::Starting(_) | State::Serving(_) | State::Closed => {
                kill(child);
                return Err(UpgradeError::Stopping);
            }
        }
        drop(state);
        let failed = |error: io::Error| match error.kind() {
            io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => UpgradeError::Timeout(timeout),
            _ => UpgradeError::Exchange(error),
        };
        let orders = self.handover.orders.count();
        let sent = wait_until(here, ends).and_then(|()| self.greet(here, sockets));
        // A process that has ended may have said why.
        if let Err(error) = sent
            && !is_closed(&error)
        {
            return Err(failed(error));
        }
        expect(here, ends, |answer| matches!(answer, Answer::Prepared)).map_err(failed)??;
        if self.handover.orders.count() != orders {
            return Err(UpgradeError::Ordered);
        }
        let history = self.handover.history.message();
        // New connections wait from here on.
        let handed_by = clock::now().saturating_add(micros(HANDOVER_TIMEOUT));
        let failed = |error| match failed(error) {
            UpgradeError::Timeout(_) if handed_by < ends => UpgradeError::HandoverTimeout,
            error => error,
        };
        let ends = ends.min(handed_by);
        let paused = self.intake.pause(self.decision_timeout(), IDLE_TIMEOUT);
        let levels = self.handover.store.export(clock::now());
        let Handover { usage, keys, .. } = &self.handover;
        release(usage.as_deref(), keys.as_ref().map(|keys| &keys.kept), ends)?;
        wait_until(here, ends).and_then(|()| send(here, &levels)).map_err(failed)?;
        expect(here, ends, |answer| matches!(answer, Answer::Serving)).map_err(failed)??;
        if !self.handover.orders.close_after(orders) {
            return Err(UpgradeError::Ordered);
        }
        Ok(Successor { process, paused, history })
    }

    /// Sends the first message, and the sockets.
    fn greet(&self, stream: &UnixStream, sockets: &Sockets) -> io::Result<()> {
        let Sockets { open, borrowed, .. } = sockets;
        let names = open.iter().map(|(name, _)| name.clone()).collect();
        let Known { addresses, orders } = Pool::known(&self.current.load().pools);
        let greeting = Greeting {
            sockets: names,
            borrowed: borrowed.clone(),
            layout: self.handover.store.layout(),
            addresses,
            orders,
            shared_orders: self.handover.orders.state(),
        };
        send_json(stream, &greeting)?;
        open.iter().try_for_each(|(_, socket)| send_socket(stream, socket))
    }

    /// How long new connections may wait until those before them have been counted. With Redis,
    /// both processes count in the same buckets.
    fn decision_timeout(&self) -> Duration {
        let shares_redis = self.current.load().policy.redis.is_some();
        if shares_redis { Duration::ZERO } else { DECISION_TIMEOUT }
    }
}

fn log_failure(error: &UpgradeError) {
    warn!(%error, "upgrade failed; this process goes on serving");
}

/// Closes the files that the new process will use, by `ends` (microseconds): a disk that does not
/// answer must not keep new connections waiting.
fn release(usage: Option<&Keeper>, keys: Option<&Kept>, ends: u64) -> Result<(), UpgradeError> {
    let left = || Duration::from_micros(ends.saturating_sub(clock::now()));
    if let Some(usage) = usage
        && !usage.release(left())
    {
        return Err(UpgradeError::FileOpen(usage.path().to_owned()));
    }
    if let Some(keys) = keys
        && let Some(path) = keys.path()
        && !keys.release(left())
    {
        return Err(UpgradeError::FileOpen(path.to_owned()));
    }
    Ok(())
}

/// The program on disk, with the arguments of this process.
fn command(stdin: UnixStream) -> (String, Command) {
    let mut arguments = std::env::args_os();
    let program = arguments.next().unwrap_or_else(|| OsString::from("tollgate"));
    let mut command = Command::new(&program);
    command.args(arguments).stdin(Stdio::from(OwnedFd::from(stdin))).env(VARIABLE, VERSION);
    // These are about this process.
    command.env_remove("LISTEN_FDS").env_remove("LISTEN_PID").env_remove("WATCHDOG_PID");
    (program.display().to_string(), command)
}

/// Reads an answer, which must be as expected.
fn expect(
    stream: &UnixStream,
    ends: u64,
    is_expected: impl Fn(&Answer) -> bool,
) -> io::Result<Result<(), UpgradeError>> {
    wait_until(stream, ends)?;
    Ok(match receive_json(stream)? {
        Answer::Failed(why) => Err(UpgradeError::Failed(why)),
        answer if is_expected(&answer) => Ok(()),
        other => {
            let error = io::Error::other(format!("unexpected answer: {other:?}"));
            Err(UpgradeError::Exchange(error))
        }
    })
}

/// Bounds reads and writes, which end at this time in microseconds.
fn wait_until(stream: &UnixStream, ends: u64) -> io::Result<()> {
    let left = ends.saturating_sub(clock::now());
    if left == 0 {
        return Err(io::ErrorKind::TimedOut.into());
    }
    let left = Some(Duration::from_micros(left));
    stream.set_read_timeout(left)?;
    stream.set_write_timeout(left)
}

/// Ends the new process. If it has ended by itself, its status says more than the failed exchange.
fn with_status(error: UpgradeError, child: Option<Child>) -> UpgradeError {
    let Some(mut child) = child else { return error };
    let has_closed = matches!(&error, UpgradeError::Exchange(source) if is_closed(source));
    if has_closed && let Some(status) = exit_status(&mut child) {
        return UpgradeError::Ended { status };
    }
    kill(child);
    error
}

/// Whether the new process has closed its end.
fn is_closed(error: &io::Error) -> bool {
    use io::ErrorKind::{BrokenPipe, ConnectionReset, UnexpectedEof};
    matches!(error.kind(), UnexpectedEof | BrokenPipe | ConnectionReset)
}

/// Waits for a process that is about to end.
#[allow(clippy::disallowed_methods, reason = "on the thread of the upgrade, which serves nothing")]
fn exit_status(child: &mut Child) -> Option<ExitStatus> {
    let ends = clock::now().saturating_add(micros(EXIT_TIMEOUT));
    while clock::now() < ends {
        if let Ok(Some(status)) = child.try_wait() {
            return Some(status);
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    None
}

fn kill(mut child: Child) {
    // It may have ended by itself.
    let _ = child.kill();
    let _ = child.wait();
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::keys::file::KeyFile;

    #[test]
    fn file_that_is_not_closed_in_time_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let file = Arc::new(KeyFile::new(folder.path().join("keys.redb")));
        let used = file.in_use().unwrap();
        let kept = Kept::File(Arc::clone(&file));
        let error = release(None, Some(&kept), clock::now()).unwrap_err().to_string();
        assert!(error.contains("could not close") && error.contains("keys.redb"), "{error}");
        drop(used);
        let soon = clock::now().saturating_add(60_000_000);
        release(None, Some(&kept), soon).unwrap();
    }
}
