//! The file again, while requests go on: read, checked and built whole, then put in force by one
//! swap of a pointer. A file with an error changes nothing.
//!
//! Reading order: this file (one reload from beginning to end), `history`, `links` and `watch` (what tells of
//! a changed file), `service` (when to reload).

pub mod history;
mod links;
pub mod service;
mod watch;

use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::sync::Mutex;
use tracing::{error, info};

use crate::blocking::BlockingCalls;
use crate::clock;
use crate::config::changes::Changes;
use crate::config::diagnostic::Diagnostic;
use crate::config::outline::Outline;
use crate::load::{LoadError, Source};
use crate::observe::access_log;
use crate::policy::restart::{self, Fixed};
use crate::policy::{Digest, Policy};
use crate::runtime::Runtime;
use history::History;

/// How long one reading of the file may take, with all files that it names.
const READ_DEADLINE: Duration = Duration::from_secs(5);

/// Reads the file again when asked to, one time after the other.
pub struct Reloader {
    path: PathBuf,
    runtime: Runtime,
    /// Held for a whole reload.
    state: Mutex<State>,
    history: History,
    /// Whatever asks the file system for the file.
    reads: BlockingCalls,
}

/// Why the file is read again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cause {
    /// It may have changed. A file that was rejected before is not rejected again.
    Noticed,
    /// Somebody asked for it, and wants to hear what is wrong.
    Asked,
}

/// What became of the file.
#[derive(Debug)]
pub enum Outcome {
    /// It is in force.
    Applied {
        /// How many files have been in force.
        generation: u64,
        /// What it changed.
        changes: Changes,
    },
    /// It was in force already.
    Unchanged {
        /// How many files have been in force.
        generation: u64,
    },
    /// It was not taken.
    Rejected {
        /// How many files have been in force.
        generation: u64,
        /// Why.
        error: LoadError,
    },
}

/// The file in force, and the one that was rejected since.
struct State {
    digest: Digest,
    outline: Outline,
    rejected: Option<Rejected>,
    /// When it was last found that the file system does not answer, in ticks.
    blocked_at: Option<u64>,
}

/// A file that was rejected.
#[derive(PartialEq, Eq)]
struct Rejected {
    /// None where it could not be read.
    digest: Option<Digest>,
    message: String,
}

/// A file that may be put in force.
struct Ready {
    policy: Policy,
    digest: Digest,
    outline: Outline,
}

/// What reading the file again gave.
enum Reading {
    Ready(Box<Ready>),
    Same,
    Bad { digest: Option<Digest>, error: LoadError },
}

// === impl Reloader ===

impl Reloader {
    /// Reloads the file at `path`, of which `source` is in force.
    pub fn new(path: &Path, source: &Source, runtime: Runtime) -> Self {
        let (digest, outline) = (source.digest(), source.outline());
        let state = Mutex::new(State { digest, outline, rejected: None, blocked_at: None });
        let (history, reads) = (History::default(), BlockingCalls::default());
        Self { path: path.to_owned(), runtime, state, history, reads }
    }

    /// Reads the file, and puts it in force if it is another one and right. What became of it is
    /// counted and logged. A file that is not read within 5 s is rejected; the next reload reads it
    /// again.
    pub async fn reload(&self, cause: Cause) -> Outcome {
        let asked_at = clock::now();
        let mut state = self.state.lock().await;
        if state.blocked_at.is_some_and(|at| at >= asked_at) {
            // It has waited for a read that blocked, and is not to wait for another.
            let (path, deadline) = (self.path.clone(), READ_DEADLINE);
            return self.reject(&mut state, cause, None, LoadError::Blocked { path, deadline });
        }
        let (path, digest) = (self.path.clone(), state.digest);
        let snapshot = self.runtime.current.load_full();
        let reading =
            self.reads.run(READ_DEADLINE, move || read(&path, digest, &snapshot.policy)).await;
        match reading {
            Ok(Reading::Ready(ready)) => self.apply(&mut state, cause, *ready).await,
            Ok(Reading::Same) => self.restore(&mut state),
            Ok(Reading::Bad { digest, error }) => self.reject(&mut state, cause, digest, error),
            Err(no_result) => {
                state.blocked_at = Some(clock::now());
                let error = LoadError::of_no_result(&self.path, no_result);
                self.reject(&mut state, cause, None, error)
            }
        }
    }

    /// The last files that were taken or rejected.
    pub fn history(&self) -> &History {
        &self.history
    }

    async fn apply(&self, state: &mut State, cause: Cause, ready: Ready) -> Outcome {
        let Ready { policy, digest, outline } = ready;
        let generation = self.runtime.apply(policy).await.generation;
        let changes = Changes::between(&state.outline, &outline);
        *state = State { digest, outline, rejected: None, blocked_at: None };
        self.runtime.metrics.config.applied(generation);
        info!(generation, "{} is in force: {changes}", self.path.display());
        let outcome = Outcome::Applied { generation, changes };
        self.history.add(&outcome, cause, clock::unix_us());
        outcome
    }

    fn restore(&self, state: &mut State) -> Outcome {
        if state.rejected.take().is_some() {
            self.runtime.metrics.config.restored();
            info!("{} is again the one that is in force", self.path.display());
        }
        Outcome::Unchanged { generation: self.runtime.generation() }
    }

    fn reject(
        &self,
        state: &mut State,
        cause: Cause,
        digest: Option<Digest>,
        error: LoadError,
    ) -> Outcome {
        let rejected = Rejected { digest, message: error.to_string() };
        let is_news = state.rejected.as_ref() != Some(&rejected);
        let outcome = Outcome::Rejected { generation: self.runtime.generation(), error };
        if is_news || cause == Cause::Asked {
            self.runtime.metrics.config.rejected();
            let (path, message) = (self.path.display(), rejected.message.trim_end());
            error!("{path} was not taken; the one before stays in force\n{message}");
            self.history.add(&outcome, cause, clock::unix_us());
        }
        state.rejected = Some(rejected);
        outcome
    }
}

/// Reads the file and checks all of it. `in_force` is the digest of the one that gave `policy`.
fn read(path: &Path, in_force: Digest, policy: &Policy) -> Reading {
    let source = match Source::read_again(path) {
        Ok(source) => source,
        Err(error) => return Reading::Bad { digest: None, error },
    };
    let digest = source.digest();
    if digest == in_force {
        return Reading::Same;
    }
    let built = source.policy().and_then(|new| {
        let outline = source.outline();
        let fixed = restart::needed(policy, &new);
        let mut diagnostics: Vec<Diagnostic> =
            fixed.iter().map(|setting| needs_restart(setting, &outline)).collect();
        diagnostics.extend(cannot_log(policy, &new, &outline));
        if diagnostics.is_empty() {
            return Ok(Ready { policy: new, digest, outline });
        }
        Err(LoadError::Diagnostics(source.report(diagnostics)))
    });
    match built {
        Ok(ready) => Reading::Ready(Box::new(ready)),
        Err(error) => Reading::Bad { digest: Some(digest), error },
    }
}

/// A new place for the access log that cannot be written to.
fn cannot_log(old: &Policy, new: &Policy, outline: &Outline) -> Option<Diagnostic> {
    let output = &new.access_log.output;
    if *output == old.access_log.output {
        return None;
    }
    let error = access_log::check(output).err()?;
    let place = outline.place(&["access_log", "output"]).unwrap_or(0..0);
    Some(Diagnostic::new(place, format!("the access log cannot be written: {error}")))
}

/// A setting that cannot change while running, as an error of the file that changes it.
fn needs_restart(setting: &Fixed, outline: &Outline) -> Diagnostic {
    let [table, name] = setting;
    let message = format!("`{name}` of [{table}] cannot change while the gateway runs");
    let place = outline.place(setting).unwrap_or(0..0);
    Diagnostic::new(place, message)
        .help("restart the gateway, or put back what was there; nothing of this file was taken")
}
