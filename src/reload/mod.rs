//! The file again, while requests go on: read, checked and built whole, then put in force by one
//! swap of a pointer. A file with a mistake changes nothing.
//!
//! Reading order: this file (one reload from beginning to end), `history`, `links` and `watch` (what tells of
//! a changed file), `service` (when to reload).

pub mod history;
mod links;
pub mod service;
mod watch;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Mutex;
use tracing::{error, info};

use crate::blocking::BlockingCalls;
use crate::clock;
use crate::config::changes::Changes;
use crate::config::mistake::Mistake;
use crate::config::outline::Outline;
use crate::gateway::pool::Pool;
use crate::gateway::{Current, Snapshot};
use crate::load::{LoadError, Source};
use crate::observe::access_log::{self, AccessLog};
use crate::observe::audit::keeper::Audit;
use crate::observe::metrics::Metrics;
use crate::observe::traces::Traces;
use crate::policy::restart::{self, Fixed};
use crate::policy::{Digest, Policy};
use crate::store::limiter::Limiter;
use crate::store::memory::MemoryStore;
use history::History;

/// How many files come between two looks for series of names that are gone.
const TIDY_EVERY: u64 = 16;

/// How long one reading of the file may take, with all files that it names.
const READ_DEADLINE: Duration = Duration::from_secs(5);

/// What a file is put in force upon.
#[derive(Clone)]
pub struct Force {
    /// The snapshot that new requests live by.
    pub current: Arc<Current>,
    /// Who decides.
    pub limiter: Arc<Limiter>,
    /// Where it keeps buckets in this process.
    pub store: Arc<MemoryStore>,
    /// Who counts.
    pub metrics: Arc<Metrics>,
    /// Who writes a line for every request.
    pub access_log: Arc<AccessLog>,
    /// Who knows of refusals.
    pub audit: Arc<Audit>,
    /// Who sends spans.
    pub traces: Arc<Traces>,
}

/// Reads the file again when asked to, one time after the other.
pub struct Reloader {
    path: PathBuf,
    force: Force,
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
    pub fn new(path: &Path, source: &Source, force: Force) -> Self {
        let (digest, outline) = (source.digest(), source.outline());
        let state = Mutex::new(State { digest, outline, rejected: None, blocked_at: None });
        let (history, reads) = (History::default(), BlockingCalls::default());
        Self { path: path.to_owned(), force, state, history, reads }
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
        let snapshot = self.force.current.load_full();
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

    /// How many files have been in force.
    fn generation(&self) -> u64 {
        self.force.current.load().generation
    }

    async fn apply(&self, state: &mut State, cause: Cause, ready: Ready) -> Outcome {
        let Ready { mut policy, digest, outline } = ready;
        let Force { current, limiter, store, metrics, access_log, audit, traces } = &self.force;
        let previous = current.load_full();
        let pools = Pool::for_all(&policy.upstreams, &previous.pools).await;
        let numbers = store.adopt(&policy.quotas, clock::now());
        policy.number_quotas(&numbers);
        access_log.redirect(&policy.access_log.output);
        audit.stream_by(&policy.audit);
        traces.aim_at(policy.tracing.as_ref());
        let next = Snapshot::following(&previous, policy, pools);
        let generation = next.generation;
        let next = Arc::new(next);
        current.store(Arc::clone(&next));
        // A request that began before may keep the previous snapshot for hours, with its pools.
        for pool in &previous.pools {
            if !next.pools.iter().any(|kept| Arc::ptr_eq(kept, pool)) {
                pool.idle.close();
            }
        }
        limiter.forget_refusals();
        let changes = Changes::between(&state.outline, &outline);
        if generation.is_multiple_of(TIDY_EVERY) {
            metrics.forget_gone(&next.policy);
        }
        *state = State { digest, outline, rejected: None, blocked_at: None };
        metrics.config.applied(generation);
        info!(generation, "{} is in force: {changes}", self.path.display());
        let outcome = Outcome::Applied { generation, changes };
        self.history.add(&outcome, cause, clock::unix_us());
        outcome
    }

    fn restore(&self, state: &mut State) -> Outcome {
        if state.rejected.take().is_some() {
            self.force.metrics.config.restored();
            info!("{} is again the one that is in force", self.path.display());
        }
        Outcome::Unchanged { generation: self.generation() }
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
        let outcome = Outcome::Rejected { generation: self.generation(), error };
        if is_news || cause == Cause::Asked {
            self.force.metrics.config.rejected();
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
        let mut mistakes: Vec<Mistake> =
            fixed.iter().map(|setting| needs_restart(setting, &outline)).collect();
        mistakes.extend(cannot_log(policy, &new, &outline));
        if mistakes.is_empty() {
            return Ok(Ready { policy: new, digest, outline });
        }
        Err(LoadError::Mistakes(source.report(mistakes)))
    });
    match built {
        Ok(ready) => Reading::Ready(Box::new(ready)),
        Err(error) => Reading::Bad { digest: Some(digest), error },
    }
}

/// A new place for the access log that cannot be written to.
fn cannot_log(old: &Policy, new: &Policy, outline: &Outline) -> Option<Mistake> {
    let output = &new.access_log.output;
    if *output == old.access_log.output {
        return None;
    }
    let error = access_log::check(output).err()?;
    let place = outline.place(&["access_log", "output"]).unwrap_or(0..0);
    Some(Mistake::new(place, format!("the access log cannot be written: {error}")))
}

/// A setting that cannot change while running, as a mistake of the file that changes it.
fn needs_restart(setting: &Fixed, outline: &Outline) -> Mistake {
    let [table, name] = setting;
    let message = format!("`{name}` of [{table}] cannot change while the gateway runs");
    let place = outline.place(setting).unwrap_or(0..0);
    Mistake::new(place, message)
        .help("restart the gateway, or put back what was there; nothing of this file was taken")
}
