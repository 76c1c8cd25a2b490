//! Sets up the log of the process, and logs why a file is rejected at the start.

use std::backtrace::{Backtrace, BacktraceStatus};
use std::io::IsTerminal as _;
use std::panic::PanicHookInfo;
use std::path::Path;
use std::process::ExitCode;

use tracing::error;
use tracing_subscriber::EnvFilter;

use crate::cli::{EXIT_BAD_FILE, check};
use crate::config::words::Word as _;
use crate::load::{self, LoadError, Source};
use crate::observe::metrics::Metrics;
use crate::observe::process_log::{ErrorOutput, EventLine, LibraryLog};
use crate::policy::Policy;
use crate::policy::settings::{Log, LogFormat};
use crate::process::handover::Predecessor;
use crate::reload::history::log_errors;

/// Environment variable with the log level (`error`, `warn`, `info`, `debug`) or directives of
/// tracing's `EnvFilter`. Takes precedence over `log.level`.
const LEVEL_VARIABLE: &str = "TOLLGATE_LOG";

/// Environment variable with the format, `text` or `json`. Takes precedence over `log.format`.
const FORMAT_VARIABLE: &str = "TOLLGATE_LOG_FORMAT";

/// The directive for the resolver, which logs each response that it ignores, and returns as an
/// error what matters.
const QUIET: &str = "hickory=off";

/// Reads the file, and sets up the log as it says.
///
/// # Errors
/// The exit code, if the file has errors or the environment cannot be read. They are reported, also
/// to the process that this one replaces.
pub(super) fn open(
    file: &Path,
    predecessor: Option<&Predecessor>,
) -> Result<(Source, Policy), ExitCode> {
    let opened = load::open(file);
    let settings = match &opened {
        Ok((_, policy)) => policy.log,
        Err(error) => settings(error),
    };
    let format = install(settings)?;
    opened.map_err(|error| {
        if let Some(predecessor) = predecessor {
            predecessor.fail(&error.to_string());
        }
        reject(file, &error, format)
    })
}

/// Installs the logger of the process, which writes to standard error. Returns its format.
///
/// # Errors
/// The exit code, if one of the environment variables cannot be read.
fn install(settings: Log) -> Result<LogFormat, ExitCode> {
    let bad = |message: String| {
        eprintln!("error: {message}");
        ExitCode::from(EXIT_BAD_FILE)
    };
    let format = match std::env::var(FORMAT_VARIABLE).ok().filter(|word| !word.is_empty()) {
        None => settings.format,
        Some(word) => LogFormat::of_word(&word)
            .ok_or_else(|| bad(format!("{FORMAT_VARIABLE} is `text` or `json`, not {word:?}")))?,
    };
    let wanted = std::env::var(LEVEL_VARIABLE).unwrap_or_default();
    // A word that is not a level is parsed as a target. The level before it keeps the other targets
    // enabled.
    let filter = EnvFilter::try_new(format!("{},{QUIET},{wanted}", settings.level.name()))
        .map_err(|error| bad(format!("{LEVEL_VARIABLE}={wanted:?} cannot be read: {error}")))?;
    let color = std::io::stderr().is_terminal();
    let subscriber = tracing_subscriber::fmt()
        // On a full disk, reporting the failed write would panic.
        .log_internal_errors(false)
        .with_env_filter(filter)
        .event_format(EventLine { format, color })
        .with_writer(ErrorOutput::default())
        .finish();
    // Neither fails: this is the first logger of the process.
    let _ = tracing::subscriber::set_global_default(subscriber);
    let _ = log::set_logger(&LibraryLog);
    log::set_max_level(log::LevelFilter::Warn);
    std::panic::set_hook(Box::new(log_panic));
    Ok(format)
}

/// Counts panics from now on.
pub(super) fn count_panics(metrics: &Metrics) {
    let panics = metrics.panics.clone();
    std::panic::set_hook(Box::new(move |panic| {
        panics.inc();
        log_panic(panic);
    }));
}

/// Logs a panic as an event, with the backtrace if `RUST_BACKTRACE` asks for it.
fn log_panic(panic: &PanicHookInfo<'_>) {
    let payload = panic.payload();
    let text = payload.downcast_ref::<String>().map(String::as_str);
    let cause = text.or(payload.downcast_ref::<&str>().copied()).unwrap_or("unknown");
    let place = panic.location().map(ToString::to_string);
    let backtrace = Backtrace::capture();
    let is_captured = backtrace.status() == BacktraceStatus::Captured;
    let backtrace = is_captured.then(|| backtrace.to_string());
    let thread = std::thread::current();
    let (thread, place, backtrace) = (thread.name(), place.as_deref(), backtrace.as_deref());
    error!(cause, place, thread, backtrace, "a thread panicked: this is a bug of tollgate");
}

/// The settings of the log, as far as a file that is rejected has readable ones.
fn settings(error: &LoadError) -> Log {
    let LoadError::Diagnostics(report) = error else { return Log::default() };
    let format = report.setting("log", "format").and_then(LogFormat::of_word);
    Log { format: format.unwrap_or_default(), ..Log::default() }
}

/// Reports the errors of a file that the gateway cannot start with: as `check` does, or as events.
fn reject(file: &Path, error: &LoadError, format: LogFormat) -> ExitCode {
    match format {
        LogFormat::Text => check::reject_or_start(error),
        LogFormat::Json => {
            log_errors(error, file, "the configuration was rejected; the gateway does not start");
            ExitCode::from(EXIT_BAD_FILE)
        }
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use serde_json::Value;

    use super::*;

    /// Set in the process that panics.
    const CHILD: &str = "TOLLGATE_TEST_PANIC";

    /// The hook is that of a whole process, so this test starts itself in another one.
    #[test]
    fn panic_is_one_event_of_a_json_log() {
        if std::env::var_os(CHILD).is_some() {
            install(Log { format: LogFormat::Json, ..Log::default() }).unwrap();
            let thread = std::thread::Builder::new().name("worker".to_owned());
            let _ = thread.spawn(|| panic!("a \"bad\"\n{}", "thing")).unwrap().join();
            return;
        }
        for backtrace in ["0", "1"] {
            let mut command = Command::new(std::env::current_exe().unwrap());
            command
                .args(["--exact", "cli::run::log::tests::panic_is_one_event_of_a_json_log"])
                .args(["--nocapture", "--test-threads=1"])
                .env(CHILD, "1")
                .env("RUST_BACKTRACE", backtrace)
                .env_remove(LEVEL_VARIABLE)
                .env_remove(FORMAT_VARIABLE);
            let output = command.output().unwrap();
            let text = String::from_utf8(output.stderr).unwrap();
            assert_eq!(text.lines().count(), 1, "{text}");
            let event: Value = serde_json::from_str(&text).expect(&text);
            assert_eq!(event["level"], "error");
            assert_eq!(event["event"], "a thread panicked: this is a bug of tollgate");
            let fields = &event["fields"];
            assert_eq!(fields["cause"], "a \"bad\"\nthing");
            assert_eq!(fields["thread"], "worker");
            assert!(fields["place"].as_str().unwrap().starts_with("src/cli/run/log.rs:"), "{text}");
            assert_eq!(fields["backtrace"].is_string(), backtrace == "1", "{text}");
        }
    }
}
