//! Reloads the configuration file while requests continue. The file is read, checked and built in
//! full, then one swap of a pointer puts it in force. A file with an error changes nothing.
//!
//! Reading order: this file (one reload from beginning to end), `certificates` (replaced files),
//! `dry_run`, `names` (servers without an address), `history`, `links` and `watch` (how a change of
//! the file is detected), `service` (when to reload).

mod certificates;
pub mod dry_run;
pub mod history;
mod links;
mod names;
pub mod service;
mod watch;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tokio::sync::Mutex;
use tracing::{info, warn};

use crate::base::blocking::BlockingCalls;
use crate::base::clock;
use crate::base::hash::Digest;
use crate::config::changes::Changes;
use crate::config::diagnostic::Diagnostic;
use crate::config::findings::{Finding, Findings};
use crate::config::outline::Outline;
use crate::load::{LoadError, SecretFile, Source};
use crate::observe::access_log;
use crate::policy::Policy;
use crate::policy::access_log::Output;
use crate::policy::restart::{self, SettingPath};
use crate::runtime::Runtime;
use crate::tls::files::TlsFiles;
use certificates::Certificates;
use history::History;

/// Maximum time to read the file and all files that it names.
const READ_DEADLINE: Duration = Duration::from_secs(5);

/// The event of a rejected file.
const REJECTED: &str = "the configuration was rejected; the previous configuration stays in force";

/// Reloads the configuration file. Concurrent reloads run one after another.
pub struct Reloader {
    path: PathBuf,
    runtime: Runtime,
    /// Held for a whole reload.
    state: Mutex<State>,
    history: History,
    /// Calls to the file system.
    reads: BlockingCalls,
    /// Dry runs. Apart from `reads`, so that they cannot keep a reload from its threads.
    dry_runs: BlockingCalls,
    /// Certificates whose files have changed.
    certificates: Certificates,
    /// Paths of the files whose change may change the configuration: the configuration file, and
    /// the secrets and certificates that it names.
    watched: parking_lot::Mutex<Vec<PathBuf>>,
}

/// What started a reload.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Cause {
    /// The file may have changed. A file that was rejected before is not logged again.
    FileChanged,
    /// An operator requested it: by SIGHUP or the admin API.
    Requested,
}

impl Cause {
    /// `file_changed` or `requested`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::FileChanged => "file_changed",
            Self::Requested => "requested",
        }
    }
}

#[derive(Debug)]
pub enum ReloadResult {
    /// The file is now in force.
    Applied {
        /// Generation of the configuration in force.
        generation: u64,
        /// Differences from the previous file.
        changes: Changes,
        /// Warnings of the file.
        warnings: Findings,
    },
    /// The file was already in force.
    Unchanged {
        /// Generation of the configuration in force.
        generation: u64,
        /// Warnings of the file.
        warnings: Findings,
    },
    /// The file has errors or could not be read. The previous one stays in force.
    Rejected {
        /// Generation of the configuration in force.
        generation: u64,
        /// Why the file was rejected.
        error: LoadError,
    },
}

/// The file in force, and the file that was rejected since it was applied.
struct State {
    content: Content,
    outline: Outline,
    /// The file as it is written.
    text: Arc<str>,
    rejected: Option<Rejected>,
    /// When the file system last failed to respond, in microseconds of the monotonic clock.
    blocked_at: Option<u64>,
}

/// What a policy was built from.
#[derive(Clone)]
struct Content {
    /// SHA-256 of the file.
    digest: Digest,
    /// The secrets that it names.
    secrets: Vec<SecretFile>,
    /// Paths of the files that listeners name.
    tls_paths: Vec<PathBuf>,
}

/// A file that was rejected.
#[derive(PartialEq, Eq)]
struct Rejected {
    /// `None` if the file could not be read.
    digest: Option<Digest>,
    message: String,
}

/// A valid file, ready to be put in force.
struct Ready {
    policy: Policy,
    content: Content,
    outline: Outline,
    text: Arc<str>,
    tls: TlsFiles,
}

/// The result of reading the file again.
enum Reading {
    Ready(Box<Ready>),
    Same,
    Bad { content: Option<Content>, error: LoadError },
}

impl Reloader {
    /// Creates a reloader for the file at `path`; `source` is its content that is in force.
    pub fn new(path: &Path, source: &Source, runtime: Runtime) -> Self {
        let (content, outline) = (Content::of(source), source.outline());
        let watched = parking_lot::Mutex::new(content.paths(path));
        let text = source.text().into();
        let state = Mutex::new(State { content, outline, text, rejected: None, blocked_at: None });
        let history = History::default();
        let (reads, dry_runs) = (BlockingCalls::default(), BlockingCalls::default());
        let certificates = Certificates::of(runtime.clone());
        let path = path.to_owned();
        Self { path, runtime, state, history, reads, dry_runs, certificates, watched }
    }

    /// Reads the file, and puts it in force if it has changed and is valid. Counts and logs the
    /// outcome. A file that cannot be read within 5 s is rejected; the next reload reads it again.
    pub async fn reload(&self, cause: Cause) -> ReloadResult {
        let requested_at = clock::now();
        let mut state = self.state.lock().await;
        if state.blocked_at.is_some_and(|at| at >= requested_at) {
            // This reload has already waited for a read that blocked; it does not wait for another.
            let (path, deadline) = (self.path.clone(), READ_DEADLINE);
            return self.reject(&mut state, cause, None, LoadError::Blocked { path, deadline });
        }
        let (path, in_force) = (self.path.clone(), state.content.clone());
        let snapshot = self.runtime.current.load_full();
        let reading =
            self.reads.run(READ_DEADLINE, move || read(&path, &in_force, &snapshot.policy)).await;
        match reading {
            Ok(Reading::Ready(ready)) => self.apply(&mut state, cause, *ready).await,
            Ok(Reading::Same) => self.restore(&mut state),
            Ok(Reading::Bad { content, error }) => {
                self.watch(&state.content, content.as_ref());
                let digest = content.map(|content| content.digest);
                self.reject(&mut state, cause, digest, error)
            }
            Err(no_result) => {
                state.blocked_at = Some(clock::now());
                let error = LoadError::of_no_result(&self.path, no_result);
                self.reject(&mut state, cause, None, error)
            }
        }
    }

    /// Puts certificates in force whose files have changed. Returns whether it should be called
    /// again soon, because files are wrong that may still be incomplete.
    async fn refresh_certificates(&self) -> bool {
        self.certificates.refresh(&self.reads).await
    }

    /// The last reloads that changed the configuration or were rejected.
    pub fn history(&self) -> &History {
        &self.history
    }

    /// Paths of the files whose change may change the configuration, as of the last reload.
    fn watched(&self) -> Vec<PathBuf> {
        self.watched.lock().clone()
    }

    /// Watches what the file in force names, and what a rejected one names: it may be valid once
    /// they change.
    fn watch(&self, in_force: &Content, rejected: Option<&Content>) {
        let mut paths = in_force.paths(&self.path);
        for path in rejected.into_iter().flat_map(|rejected| rejected.paths(&self.path)) {
            if !paths.contains(&path) {
                paths.push(path);
            }
        }
        *self.watched.lock() = paths;
    }

    async fn apply(&self, state: &mut State, cause: Cause, ready: Ready) -> ReloadResult {
        let Ready { policy, content, outline, text, tls } = ready;
        self.watch(&content, None);
        let mut warnings = policy.warnings.clone();
        let snapshot = self.runtime.apply(policy, tls).await;
        let generation = snapshot.generation;
        let changes = Changes::between(&state.outline, &outline);
        *state = State { content, outline, text, rejected: None, blocked_at: None };
        self.runtime.metrics.config.applied(generation);
        info!(generation, path = %self.path.display(), "configuration applied: {changes}");
        log_warnings(&self.path, &warnings);
        names::add_warnings(&mut warnings, &snapshot.policy, &snapshot.pools);
        let outcome = ReloadResult::Applied { generation, changes, warnings };
        self.history.add(&outcome, cause, clock::unix_us());
        outcome
    }

    fn restore(&self, state: &mut State) -> ReloadResult {
        if state.rejected.take().is_some() {
            self.runtime.metrics.config.restored();
            let path = self.path.display();
            info!(%path, "the configuration file matches the configuration in force again");
        }
        let snapshot = self.runtime.current.load();
        let mut warnings = snapshot.policy.warnings.clone();
        names::add_warnings(&mut warnings, &snapshot.policy, &snapshot.pools);
        ReloadResult::Unchanged { generation: snapshot.generation, warnings }
    }

    fn reject(
        &self,
        state: &mut State,
        cause: Cause,
        digest: Option<Digest>,
        error: LoadError,
    ) -> ReloadResult {
        let rejected = Rejected { digest, message: error.to_string() };
        let is_new = state.rejected.as_ref() != Some(&rejected);
        let outcome = ReloadResult::Rejected { generation: self.runtime.generation(), error };
        if is_new || cause == Cause::Requested {
            self.runtime.metrics.config.rejected();
            if let ReloadResult::Rejected { error, .. } = &outcome {
                history::log_errors(error, &self.path, REJECTED);
            }
            self.history.add(&outcome, cause, clock::unix_us());
        }
        state.rejected = Some(rejected);
        outcome
    }
}

/// Logs each warning of the file at `path` in one line.
pub fn log_warnings(path: &Path, warnings: &Findings) {
    for Finding { message, line, column, help } in &warnings.list {
        let help = help.as_deref().unwrap_or_default();
        let help = help.split_whitespace().collect::<Vec<_>>().join(" ");
        let (line, column) = (line.unwrap_or(1), column.unwrap_or(1));
        warn!(path = %path.display(), line, column, help, "{message}");
    }
    if warnings.not_kept > 0 {
        let path = path.display();
        warn!(%path, more = warnings.not_kept, "the file has further warnings: run `tollgate check`");
    }
}

impl Content {
    /// What the policy of `source` was built from.
    fn of(source: &Source) -> Self {
        Self {
            digest: source.digest(),
            secrets: source.secret_files(),
            tls_paths: source.tls_paths(),
        }
    }

    /// Whether a reload of `source` would have the same content. Reads the secrets again.
    fn is_of(&self, source: &Source) -> bool {
        source.digest() == self.digest && self.secrets.iter().all(SecretFile::is_unchanged)
    }

    /// Paths of the configuration file, of the secrets and of the certificates.
    fn paths(&self, file: &Path) -> Vec<PathBuf> {
        let secrets = self.secrets.iter().map(|secret| secret.path.clone());
        let named = secrets.chain(self.tls_paths.iter().cloned());
        std::iter::once(file.to_owned()).chain(named).collect()
    }
}

/// Reads and checks the file. `in_force` is what `policy` was built from.
fn read(path: &Path, in_force: &Content, policy: &Policy) -> Reading {
    let source = match Source::read_again(path) {
        Ok(source) => source,
        Err(error) => return Reading::Bad { content: None, error },
    };
    if in_force.is_of(&source) {
        return Reading::Same;
    }
    let has_same_text = source.digest() == in_force.digest;
    let built = source.policy().and_then(|new| {
        let outline = source.outline();
        let fixed = restart::needed(policy, &new);
        let mut diagnostics: Vec<Diagnostic> =
            fixed.iter().map(|setting| needs_restart(setting, &outline, has_same_text)).collect();
        let can_open =
            |output: &Output| access_log::check(output).map_err(|error| error.to_string());
        diagnostics.extend(cannot_log(policy, &new, &outline, can_open));
        if diagnostics.is_empty() {
            let (content, text) = (Content::of(&source), source.text().into());
            let tls = source.tls_files();
            return Ok(Ready { policy: new, content, outline, text, tls });
        }
        Err(LoadError::Diagnostics(source.report(diagnostics)))
    });
    match built {
        Ok(ready) => Reading::Ready(Box::new(ready)),
        Err(error) => Reading::Bad { content: Some(Content::of(&source)), error },
    }
}

/// The error of a changed `access_log.output` that cannot be written to. `check` is a further check
/// of it.
fn cannot_log(
    old: &Policy,
    new: &Policy,
    outline: &Outline,
    check: impl FnOnce(&Output) -> Result<(), String>,
) -> Option<Diagnostic> {
    let output = &new.access_log.output;
    if *output == old.access_log.output {
        return None;
    }
    let error = output.problem().or_else(|| check(output).err())?;
    let place = outline.place(&["access_log", "output"]).unwrap_or(0..0);
    Some(Diagnostic::new(place, format!("the access log cannot be written: {error}")))
}

/// The error of a changed setting that cannot change while the gateway runs. With the same text of
/// the file, only a secret has changed.
fn needs_restart(setting: &SettingPath, outline: &Outline, has_same_text: bool) -> Diagnostic {
    let [table, name] = setting;
    let message = format!("`{name}` of [{table}] cannot change while the gateway runs");
    let place = outline.place(setting).unwrap_or(0..0);
    Diagnostic::new(place, message).help(if has_same_text {
        "the secret that it names has changed: run `tollgate upgrade`, or restart the gateway, to use it; until \
         then the previous one stays in use, and no other change is applied"
    } else {
        "run `tollgate upgrade`, or restart the gateway, or restore the previous value; nothing of this \
         file was applied"
    })
}
