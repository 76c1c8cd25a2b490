//! Loads gateway.toml from disk into a policy. `run`, `check` and reloads all use it, so that they
//! report the same errors.

mod paths;
mod secret_files;
mod tls_files;
mod upstream_files;
mod values;

use std::cell::RefCell;
use std::fs::File;
use std::io::{self, Read};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use sha2::{Digest as _, Sha256};
use thiserror::Error;

use crate::base::blocking::{NoResult, run_sync};
use crate::base::clock;
use crate::base::hash::Digest;
use crate::config::Config;
use crate::config::diagnostic::{Diagnostic, Diagnostics, Report};
use crate::config::outline::Outline;
use crate::config::read as toml;
use crate::config::reference::Reference;
use crate::net::tls::{self, ClientTls, SettingNames, TlsError};
use crate::policy::key_store::Place;
use crate::policy::{Policy, build, writable};
use crate::tls::files::TlsFiles;
pub use secret_files::SecretFile;
pub use values::Unknown;
use values::Values;

/// Maximum size of the file, in bytes. Larger files are not read.
pub const MAX_FILE_BYTES: u64 = 4 << 20;

/// How many warnings a policy keeps. Further ones are only counted.
const MAX_WARNINGS: usize = 100;

/// Time limit for loading the file for the first time, with all files that it names.
const START_DEADLINE: Duration = Duration::from_secs(10);

/// The byte order mark that some editors write at the beginning of a file.
const BYTE_ORDER_MARK: &str = "\u{feff}";

/// Why a policy could not be loaded.
#[derive(Debug, Error)]
pub enum LoadError {
    /// The file cannot be read.
    #[error("cannot read {path}: {source}")]
    Unreadable {
        /// Path of the configuration file.
        path: PathBuf,
        /// Error of the operating system.
        source: io::Error,
    },
    /// The path is a directory.
    #[error("{path} is a directory; name the file in it")]
    Directory {
        /// Path that was given for the configuration file.
        path: PathBuf,
    },
    /// The path is a pipe or a device, which can be read only once.
    #[error("{path} is no file; it was read at the start, and cannot be read again")]
    NotAFile {
        /// Path of the pipe or device.
        path: PathBuf,
    },
    /// The file is larger than 4 MiB.
    #[error("{path} is larger than 4 MiB; it was not read")]
    TooLarge {
        /// Path of the configuration file.
        path: PathBuf,
    },
    /// The file is not UTF-8.
    #[error("{path}:{line}: not UTF-8, at byte {offset} of the file")]
    NotText {
        /// Path of the configuration file.
        path: PathBuf,
        /// The line of the error, counted from 1.
        line: usize,
        /// Offset of the error in the file, in bytes from 0.
        offset: usize,
    },
    /// The file contains a NUL, as half-written files do.
    #[error("{path}:{line}: a NUL, at byte {offset} of the file; was it written to the end?")]
    Nul {
        /// Path of the configuration file.
        path: PathBuf,
        /// The line of the error, counted from 1.
        line: usize,
        /// Offset of the error in the file, in bytes from 0.
        offset: usize,
    },
    /// The file, or one that it names, has not been read by the deadline.
    #[error(
        "reading {path}, or a file that it names, took longer than {} s; does the file system answer?",
        .deadline.as_secs()
    )]
    Blocked {
        /// Path of the configuration file.
        path: PathBuf,
        /// How long the read was allowed to take.
        deadline: Duration,
    },
    /// Earlier reads are still blocked, so no other was started.
    #[error("{count} reads of {path} are still blocked; does the file system answer?")]
    StillBlocked {
        /// Path of the configuration file.
        path: PathBuf,
        /// How many reads are blocked.
        count: usize,
    },
    /// A content that was sent has not been checked by the deadline.
    #[error("the check took longer than {} s", .deadline.as_secs())]
    LateCheck {
        /// How long the check was allowed to take.
        deadline: Duration,
    },
    /// Earlier dry runs are still running, so no other was started.
    #[error("{count} dry runs are still running; try again when one has ended")]
    TooManyDryRuns {
        /// How many are running.
        count: usize,
    },
    /// A certificate or key file that the configuration names cannot be used.
    #[error("{0}")]
    Certificate(#[from] TlsError),
    /// The file has errors, which the report lists with their places.
    #[error("{0}")]
    Diagnostics(Report),
}

/// The content of a file.
#[derive(Debug)]
pub struct Source {
    name: String,
    text: String,
    digest: Digest,
    values: Values,
    /// The certificates of the listeners, after the policy was built.
    tls: RefCell<tls_files::Loaded>,
}

// === impl LoadError ===

impl LoadError {
    /// Converts the reason why a read of the file at `path` has no result.
    pub fn of_no_result(path: &Path, no_result: NoResult) -> Self {
        let path = path.to_owned();
        match no_result {
            NoResult::Late(deadline) => Self::Blocked { path, deadline },
            NoResult::TooMany(count) => Self::StillBlocked { path, count },
            NoResult::Thread(source) => Self::Unreadable { path, source },
        }
    }

    /// Whether the file was not read in time, so that its state is unknown.
    pub fn is_blocked(&self) -> bool {
        matches!(
            self,
            Self::Blocked { .. }
                | Self::StillBlocked { .. }
                | Self::LateCheck { .. }
                | Self::TooManyDryRuns { .. }
        )
    }

    /// Whether the configuration file does not exist.
    pub fn is_not_found(&self) -> bool {
        matches!(self, Self::Unreadable { source, .. } if source.kind() == io::ErrorKind::NotFound)
    }
}

// === impl Source ===

impl Source {
    /// Reads the file at `path`.
    ///
    /// # Errors
    /// The variants of [`LoadError`] that concern reading.
    pub fn read(path: &Path) -> Result<Self, LoadError> {
        let text = read_text(path)?;
        Ok(Self::of_text(path, text, Unknown::Reject))
    }

    /// A file with this content, of which nothing is looked up: neither a `${…}` nor a file that it
    /// names. `name` is shown in errors.
    ///
    /// # Errors
    /// The variants of [`LoadError`] that concern reading.
    pub fn unresolved(name: &Path, content: Vec<u8>) -> Result<Self, LoadError> {
        if content.len() as u64 > MAX_FILE_BYTES {
            return Err(LoadError::TooLarge { path: name.to_owned() });
        }
        Ok(Self::of_text(name, text_of(name, content)?, Unknown::AssumeAll))
    }

    /// The text of the file.
    pub fn text(&self) -> &str {
        &self.text
    }

    fn of_text(path: &Path, text: String, unknown: Unknown) -> Self {
        let digest = Sha256::digest(&text).into();
        let values = Values::of(path, unknown);
        let (name, tls) = (path.display().to_string(), RefCell::default());
        Self { name, text, digest, values, tls }
    }

    /// Reads a file that has been read before. A pipe or a device is an error: it could block
    /// forever.
    ///
    /// # Errors
    /// The variants of [`LoadError`] that concern reading.
    pub fn read_again(path: &Path) -> Result<Self, LoadError> {
        match std::fs::metadata(path) {
            Ok(about) if !about.is_file() && !about.is_dir() => {
                Err(LoadError::NotAFile { path: path.to_owned() })
            }
            _ => Self::read(path),
        }
    }

    /// SHA-256 of the whole file.
    pub fn digest(&self) -> Digest {
        self.digest
    }

    /// The policy of the file.
    ///
    /// # Errors
    /// See [`LoadError`]. All errors in the file are in one [`Report`].
    pub fn policy(&self) -> Result<Policy, LoadError> {
        self.check().map(|(policy, _)| policy)
    }

    /// The policy of the file, and a report with its warnings only.
    ///
    /// # Errors
    /// See [`LoadError`]. All errors and warnings in the file are in one [`Report`].
    pub fn check(&self) -> Result<(Policy, Report), LoadError> {
        let (mut policy, mut report) = self.build()?;
        self.load_tls_files(&mut policy, &mut report)?;
        let of_redis = policy.redis.as_ref().and_then(|redis| redis.tls.as_ref());
        let of_tracing = policy.tracing.as_ref().and_then(|tracing| tracing.endpoint.tls.as_ref());
        for (names, tls) in [(tls::REDIS, of_redis), (tls::TRACING, of_tracing)] {
            if let Some(tls) = tls {
                self.check_tls(names, tls)?;
            }
        }
        let check = |names: SettingNames<'_>, tls: &ClientTls| self.check_tls(names, tls);
        let errors = upstream_files::check(&policy, || self.outline(), check);
        if !errors.is_empty() {
            return Err(LoadError::Diagnostics(self.report(errors)));
        }
        Ok((policy, report))
    }

    /// The policy of the file and its warnings, without a look at the certificates and keys that it
    /// names.
    fn build(&self) -> Result<(Policy, Report), LoadError> {
        let values = |reference: Reference<'_>| self.values.look_up(reference);
        let (mut policy, report) =
            build_text(&self.name, &self.text, &values).map_err(LoadError::Diagnostics)?;
        paths::complete(&mut policy, self.values.folder());
        Ok((policy, report))
    }

    /// Loads the certificates of the listeners. Errors and warnings are added to those of the file.
    fn load_tls_files(&self, policy: &mut Policy, report: &mut Report) -> Result<(), LoadError> {
        if policy.listeners.iter().all(|listener| listener.tls.is_none()) {
            return Ok(());
        }
        let now = clock::unix_seconds();
        let (loaded, found) = tls_files::load(policy, &self.as_written(), &self.values, now);
        *self.tls.borrow_mut() = loaded;
        for diagnostic in found {
            report.push(diagnostic);
        }
        if !report.errors.is_empty() {
            return Err(LoadError::Diagnostics(report.clone()));
        }
        policy.warnings = report.warning_findings(MAX_WARNINGS);
        Ok(())
    }

    /// The certificates of the listeners, after [`policy`](Self::policy).
    pub fn tls_files(&self) -> TlsFiles {
        self.tls.borrow().files.clone()
    }

    /// Paths of the files that listeners name, after [`policy`](Self::policy); also of those that
    /// could not be loaded.
    pub fn tls_paths(&self) -> Vec<PathBuf> {
        self.tls.borrow().paths.clone()
    }

    /// Checks that the files of a connection can be used. Connections read them again, so this only
    /// reports errors early.
    fn check_tls(&self, names: SettingNames<'_>, tls: &ClientTls) -> Result<(), TlsError> {
        if self.values.unknown() == Unknown::AssumeAll {
            return Ok(());
        }
        match tls::connector(names, tls) {
            Err(TlsError::Unreadable { path, .. }) if self.values.unknown() != Unknown::Reject => {
                let path = path.display().to_string();
                // A path with a placeholder is listed by its reference.
                if !path.contains(build::PLACEHOLDER) {
                    self.values.assume(&path);
                }
                Ok(())
            }
            other => other.map(drop),
        }
    }

    /// The file as it is written, without the parts that have errors.
    pub fn as_written(&self) -> Config {
        toml::read(unmarked(&self.text), &mut Diagnostics::default())
    }

    /// The address of the admin port. Other settings are not checked.
    ///
    /// # Errors
    /// The errors of the file, if they concern the address.
    pub fn admin_address(&self) -> Result<SocketAddr, Report> {
        let text = unmarked(&self.text);
        let mut diagnostics = Diagnostics::default();
        let config = toml::read(text, &mut diagnostics);
        build::admin_address(&config, &self.outline(), &mut diagnostics)
            .ok_or_else(|| diagnostics.into_report(&self.name, text))
    }

    /// The settings of the file, to compare with those of another. After [`policy`](Self::policy),
    /// with the values of the files that settings name.
    pub fn outline(&self) -> Outline {
        let files = self.values.files();
        let known = files.iter().filter_map(|file| Some((&*file.written, file.digest.as_ref()?)));
        Outline::of(unmarked(&self.text)).with_files(known)
    }

    /// The files that settings name as `${file:…}`, after [`policy`](Self::policy).
    pub fn secret_files(&self) -> Vec<SecretFile> {
        self.values.files()
    }

    /// What was assumed instead of looked up, as it is written in the file.
    pub fn assumed(&self) -> Vec<String> {
        self.values.assumed()
    }

    /// Checks that the files can be written which the gateway writes to. `by`: whether this user
    /// may write to the files of usage and keys is checked by the gateway only.
    ///
    /// # Errors
    /// A report with the errors, each at its setting.
    fn check_files(&self, policy: &Policy, by: CheckedBy) -> Result<(), LoadError> {
        let problem = |path: &Path| {
            let problem = writable::problem(path)?;
            (by == CheckedBy::Gateway || !problem.is_denied).then_some(problem.text)
        };
        let stored = policy.key_store.as_ref().and_then(|store| match &store.place {
            Place::File(path) => problem(path),
            Place::Redis => None,
        });
        let usage = policy.usage.file.as_deref().filter(|_| policy.redis.is_none());
        let usage = usage.and_then(problem);
        let outline = self.outline();
        let problems = [
            (["access_log", "output"], "the access log", policy.access_log.output.problem()),
            (["usage", "file"], "the file of usage", usage),
            (["key_store", "url"], "the file of the key store", stored),
        ];
        let errors = problems.into_iter().filter_map(|(setting, what, problem)| {
            let place = outline.place(&setting).unwrap_or(0..0);
            Some(Diagnostic::new(place, format!("{what} cannot be written: {}", problem?)))
        });
        let errors: Vec<Diagnostic> = errors.collect();
        if errors.is_empty() { Ok(()) } else { Err(LoadError::Diagnostics(self.report(errors))) }
    }

    /// A report of what the file alone does not show, such as a port in use.
    pub fn report(&self, found: impl IntoIterator<Item = Diagnostic>) -> Report {
        let mut diagnostics = Diagnostics::default();
        found.into_iter().for_each(|diagnostic| diagnostics.push(diagnostic));
        diagnostics.into_report(&self.name, unmarked(&self.text))
    }
}

/// Loads the file at `path` for the first time. Waits 10 s at most.
///
/// # Errors
/// See [`LoadError`]. All errors in the file are in one [`Report`].
pub fn open(path: &Path) -> Result<(Source, Policy), LoadError> {
    let file = path.to_owned();
    let read = move || {
        let source = Source::read(&file)?;
        let policy = source.policy()?;
        source.check_files(&policy, CheckedBy::Gateway)?;
        Ok((source, policy))
    };
    run_sync(START_DEADLINE, read)
        .unwrap_or_else(|no_result| Err(LoadError::of_no_result(path, no_result)))
}

/// Reads the file at `path`. Waits 10 s at most.
///
/// # Errors
/// The variants of [`LoadError`] that concern reading.
pub fn read(path: &Path) -> Result<Source, LoadError> {
    let file = path.to_owned();
    run_sync(START_DEADLINE, move || Source::read(&file))
        .unwrap_or_else(|no_result| Err(LoadError::of_no_result(path, no_result)))
}

/// What checks a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CheckedBy {
    /// The gateway, when it starts.
    Gateway,
    /// A command, which another user may run.
    Command,
}

/// A file that was checked. Its policy may contain placeholders.
#[derive(Debug)]
pub struct Checked {
    /// The content of the file, after [`Source::check`].
    pub source: Source,
    /// The policy of the file.
    pub policy: Policy,
    /// The warnings of the file.
    pub report: Report,
}

/// Checks the file at `path`. `unknown` says what happens to a `${…}` without a value. Waits 10 s
/// at most.
///
/// # Errors
/// See [`LoadError`]. All errors and warnings in the file are in one [`Report`].
pub fn check(path: &Path, unknown: Unknown) -> Result<Checked, LoadError> {
    let file = path.to_owned();
    let check = move || {
        let source = Source::of_text(&file, read_text(&file)?, unknown);
        let (policy, report) = source.check()?;
        // The file may be for another machine otherwise, as in CI.
        if unknown == Unknown::Reject {
            source.check_files(&policy, CheckedBy::Command)?;
        }
        Ok(Checked { source, policy, report })
    };
    run_sync(START_DEADLINE, check)
        .unwrap_or_else(|no_result| Err(LoadError::of_no_result(path, no_result)))
}

/// Loads the policy of the file at `path`. Waits 10 s at most.
///
/// # Errors
/// See [`LoadError`]. All errors in the file are in one [`Report`].
pub fn load(path: &Path) -> Result<Policy, LoadError> {
    open(path).map(|(_, policy)| policy)
}

/// Loads the policy of the file at `path`, without a look at the certificates and keys that it
/// names: often only the gateway may read them. Waits 10 s at most.
///
/// # Errors
/// See [`LoadError`]. All errors in the file are in one [`Report`].
pub fn load_settings(path: &Path) -> Result<Policy, LoadError> {
    let file = path.to_owned();
    let build = move || Ok(Source::read(&file)?.build()?.0);
    run_sync(START_DEADLINE, build)
        .unwrap_or_else(|no_result| Err(LoadError::of_no_result(path, no_result)))
}

/// Reads the address of the admin port from the file at `path`, within `deadline`. Uses no
/// environment variable.
///
/// # Errors
/// The file cannot be read, or errors in it hide the address.
pub fn admin_address(path: &Path, deadline: Duration) -> Result<SocketAddr, LoadError> {
    let file = path.to_owned();
    let read = move || Source::read(&file)?.admin_address().map_err(LoadError::Diagnostics);
    run_sync(deadline, read)
        .unwrap_or_else(|no_result| Err(LoadError::of_no_result(path, no_result)))
}

/// The policy of a file with this text. Errors call the file `name`.
///
/// # Errors
/// All errors in the text.
pub fn from_text(name: &str, text: &str) -> Result<Policy, Report> {
    let values = Values::of(Path::new(name), Unknown::Reject);
    build_text(name, text, &|reference| values.look_up(reference)).map(|(policy, _)| policy)
}

/// The same with other variables than those of the process, and without files.
///
/// # Errors
/// All errors in the text.
pub fn from_text_in(
    name: &str,
    text: &str,
    variables: &dyn Fn(&str) -> Option<String>,
) -> Result<Policy, Report> {
    check_text(name, text, variables).map(|(policy, _)| policy)
}

/// As [`from_text_in`], with a report of the warnings only.
///
/// # Errors
/// All errors and warnings in the text.
pub fn check_text(
    name: &str,
    text: &str,
    variables: &dyn Fn(&str) -> Option<String>,
) -> Result<(Policy, Report), Report> {
    build_text(name, text, &|reference| match reference {
        Reference::Variable(name) => build::variable(name, variables(name)),
        Reference::File(_, path) => build::variable(path, None),
    })
}

/// The policy of a text whose references `environment` looks up, and a report of the warnings only.
fn build_text(
    name: &str,
    text: &str,
    environment: build::Environment<'_>,
) -> Result<(Policy, Report), Report> {
    let text = unmarked(text);
    let mut diagnostics = Diagnostics::default();
    let config = toml::read(text, &mut diagnostics);
    let built = build::build(&config, environment, &mut diagnostics);
    let report = diagnostics.into_report(name, text);
    let Some(mut policy) = built else { return Err(report) };
    #[cfg(test)]
    crate::config::schema::assert_takes(text);
    policy.warnings = report.warning_findings(MAX_WARNINGS);
    Ok((policy, report))
}

/// The text without a byte order mark.
fn unmarked(text: &str) -> &str {
    text.strip_prefix(BYTE_ORDER_MARK).unwrap_or(text)
}

/// Reads the whole file as text.
fn read_text(path: &Path) -> Result<String, LoadError> {
    let unreadable = |source| LoadError::Unreadable { path: path.to_owned(), source };
    let file = File::open(path).map_err(unreadable)?;
    let about = file.metadata().map_err(unreadable)?;
    if about.is_dir() {
        return Err(LoadError::Directory { path: path.to_owned() });
    }
    let mut bytes = Vec::new();
    if about.len() <= MAX_FILE_BYTES {
        // A pipe has no length, and a file may grow, so the number of bytes read is limited too.
        file.take(MAX_FILE_BYTES + 1).read_to_end(&mut bytes).map_err(unreadable)?;
    }
    if about.len() > MAX_FILE_BYTES || bytes.len() as u64 > MAX_FILE_BYTES {
        return Err(LoadError::TooLarge { path: path.to_owned() });
    }
    text_of(path, bytes)
}

/// The content of a file as text.
fn text_of(path: &Path, bytes: Vec<u8>) -> Result<String, LoadError> {
    let unreadable = |source| LoadError::Unreadable { path: path.to_owned(), source };
    let line_at = |offset: usize| bytes[..offset].split(|byte| *byte == b'\n').count();
    if let Some(offset) = bytes.iter().position(|byte| *byte == 0) {
        let line = line_at(offset);
        return Err(LoadError::Nul { path: path.to_owned(), line, offset });
    }
    if let Err(error) = std::str::from_utf8(&bytes) {
        let offset = error.valid_up_to();
        let line = line_at(offset);
        return Err(LoadError::NotText { path: path.to_owned(), line, offset });
    }
    String::from_utf8(bytes).map_err(|error| unreadable(io::Error::other(error)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::ip_access::IpDenial;

    const SMALLEST: &str = "[upstreams.api]\nservers = [\"demo\"]\n[routes.all]\n";

    /// Fault 42: half-written, empty, NUL, BOM, 100 MB.
    #[test]
    fn unreadable_files_are_refused_with_their_name() {
        let folder = tempfile::tempdir().unwrap();
        let message = |name: &str, bytes: &[u8]| {
            let path = folder.path().join(name);
            std::fs::write(&path, bytes).unwrap();
            load(&path).err().map(|error| error.to_string().replace(path.to_str().unwrap(), name))
        };
        assert_eq!(message("a", SMALLEST.as_bytes()), None);
        assert_eq!(message("a", format!("\u{feff}{SMALLEST}").as_bytes()), None);
        let nul = message("a", b"[server]\nlis\0\0\0");
        let expected = "a:2: a NUL, at byte 12 of the file; was it written to the end?";
        assert_eq!(nul.unwrap(), expected);
        assert_eq!(message("a", b"x\n\xff").unwrap(), "a:2: not UTF-8, at byte 2 of the file");
        assert!(message("a", b"").unwrap().contains("there are no routes"));

        let huge = folder.path().join("huge");
        File::create(&huge).unwrap().set_len(100 << 20).unwrap();
        assert!(matches!(load(&huge), Err(LoadError::TooLarge { .. })));
        assert!(matches!(load(folder.path()), Err(LoadError::Directory { .. })));
        assert!(matches!(load(&folder.path().join("none")), Err(LoadError::Unreadable { .. })));
    }

    #[test]
    fn certificates_are_checked_on_load() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("gateway.toml");
        for (table, url) in [("redis", "url = 'rediss://h'"), ("tracing", "endpoint = 'https://h'")]
        {
            let text = format!("{SMALLEST}[{table}]\n{url}\nca = '/none/ca.pem'\n");
            std::fs::write(&path, text).unwrap();
            let error = load(&path).unwrap_err().to_string();
            let expected = format!("`ca` of [{table}]: cannot read /none/ca.pem: ");
            assert!(error.starts_with(&expected), "{error}");
        }
    }

    #[test]
    fn files_of_upstreams_are_checked_on_load_with_their_line() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("gateway.toml");
        std::fs::write(folder.path().join("ca.pem"), "none").unwrap();
        let text = "[routes.all]\nupstream = 'a'\n[upstreams.a]\nservers = ['https://h']\n\
            tls = { ca = 'ca.pem' }\n[upstreams.b]\nservers = ['https://h']\n\
            tls.cert = 'b.pem'\ntls.key = 'b.key'\n";
        std::fs::write(&path, text).unwrap();
        let prefix = folder.path().display().to_string();
        let shown = load(&path).unwrap_err().to_string().replace(&prefix, ".");
        insta::assert_snapshot!(shown, @r"
        error: `ca` of [upstreams.a.tls]: ./ca.pem holds no certificate in PEM
         --> ./gateway.toml:5:9
          |
        5 | tls = { ca = 'ca.pem' }
          |         ^^
          |
          = help: it needs a line `-----BEGIN CERTIFICATE-----`

        error: `cert` of [upstreams.b.tls]: cannot read ./b.pem: No such file or directory (os error 2)
         --> ./gateway.toml:8:5
          |
        8 | tls.cert = 'b.pem'
          |     ^^^^
          |
          = help: a relative path begins at the folder of the configuration file

        ./gateway.toml: 2 errors
        ");
        let assumed = check(&path, Unknown::Assume).unwrap_err().to_string();
        assert!(!assumed.contains("b.pem"), "{assumed}");
    }

    #[test]
    fn files_of_networks_are_read_on_load_and_their_errors_have_a_line() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("gateway.toml");
        let lists = "[server]\ndeny_ips = ['198.51.100.7', 'file:blocked.txt']\n[routes.a]\n\
            allow_ips = ['file:office.txt']\ndeny_ips = ['file:blocked.txt']\nrespond = {}\n";
        std::fs::write(&path, lists).unwrap();
        let load = |blocked: &str, office: &str| {
            std::fs::write(folder.path().join("blocked.txt"), blocked).unwrap();
            std::fs::write(folder.path().join("office.txt"), office).unwrap();
            let prefix = folder.path().display().to_string();
            load(&path).map_err(|error| error.to_string().replace(&prefix, "."))
        };
        let office = "10.0.0.0/8";
        let blocked = "\u{feff}# all\r\n\r\n 192.0.2.0/24 # one\n2001:db8::/32;x\n;\n10.1.0.1";
        let policy = load(blocked, office).unwrap();
        let denied = |route, ip: &str| {
            let access = policy.ip_access(route).unwrap();
            access.denial(Some(ip.parse().unwrap())).map(IpDenial::words)
        };
        let by_server = Some("refused: in `deny_ips` of [server]".to_owned());
        for ip in ["198.51.100.7", "192.0.2.255", "2001:db8:1::", "10.1.0.1"] {
            assert_eq!(
                (denied(None, ip), denied(Some(0), ip)),
                (by_server.clone(), by_server.clone())
            );
        }
        let by_route = Some("refused: not in `allow_ips` of the route".to_owned());
        assert_eq!((denied(None, "192.0.3.0"), denied(Some(0), "192.0.3.0")), (None, by_route));
        assert_eq!((denied(None, "10.1.0.2"), denied(Some(0), "10.1.0.2")), (None, None));
        let words = policy.routes[0].handling_words();
        assert_eq!(words[0], "deny_ips: 4 networks (of [server])");
        // An empty file refuses all or none.
        assert!(load("", office).is_ok());
        let wrong = load("192.0.2.1\n192.0.2.1/24\nx y\n::ffff:10.0.0.1", " # \n");
        insta::assert_snapshot!(wrong.unwrap_err(), @r"
        error: blocked.txt:2: `192.0.2.1/24` has bits set beyond its prefix
         --> ./gateway.toml:2:29
          |
        2 | deny_ips = ['198.51.100.7', 'file:blocked.txt']
          |                             ^^^^^^^^^^^^^^^^^^
          |
          = help: the network is `192.0.2.0/24`

        error: blocked.txt:3: `x y` is neither an address nor a network
         --> ./gateway.toml:2:29
          |
        2 | deny_ips = ['198.51.100.7', 'file:blocked.txt']
          |                             ^^^^^^^^^^^^^^^^^^
          |
          = help: it looks like `10.0.0.0/8`, `192.0.2.7` or `2001:db8::/32`

        error: blocked.txt:4: `::ffff:10.0.0.1` matches no client: IPv4 inside IPv6 is read as IPv4
         --> ./gateway.toml:2:29
          |
        2 | deny_ips = ['198.51.100.7', 'file:blocked.txt']
          |                             ^^^^^^^^^^^^^^^^^^
          |
          = help: write `10.0.0.1`

        error: office.txt has no networks: `allow_ips` would refuse every client
         --> ./gateway.toml:4:14
          |
        4 | allow_ips = ['file:office.txt']
          |              ^^^^^^^^^^^^^^^^^
          |
          = help: write one network a line; was the file written to the end?

        ./gateway.toml: 4 errors
        ");
        let many = "x\n".repeat(9);
        assert!(load(&many, office).unwrap_err().contains("blocked.txt has 4 more wrong lines"));
        std::fs::remove_file(folder.path().join("blocked.txt")).unwrap();
        let missing = super::load(&path).unwrap_err().to_string();
        assert!(missing.contains("blocked.txt: No such file"), "{missing}");
        let assumed = check(&path, Unknown::Assume).unwrap();
        assert_eq!(assumed.source.assumed(), ["file:blocked.txt"]);
    }

    #[test]
    fn byte_order_mark_does_not_shift_spans() {
        let wrong = format!("rate = 5\n{SMALLEST}");
        let plain = from_text("a", &wrong).unwrap_err();
        let marked = from_text("a", &format!("\u{feff}{wrong}")).unwrap_err();
        assert_eq!(plain, marked);
    }
}
