//! `tollgate check`: checks the file as `run` does, without serving.

mod against;
mod boundaries;
mod connect;

use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;

use super::token::token;
use super::{EXIT_BAD_FILE, print};
use crate::base::time::UtcTime;
use crate::config::diagnostic::Report;
use crate::load::{self, Checked, LoadError, Source, Unknown};
use crate::policy::{Policy, SMALLEST_FILE};
use crate::top::target::Target;

/// Maximum number of certificates that are listed.
const MAX_CERTIFICATES: usize = 20;

/// The flags of `tollgate check`.
#[derive(Debug, Args)]
#[allow(clippy::struct_excessive_bools, reason = "each is a flag of the command line")]
pub(super) struct Flags {
    /// Treat warnings as errors: exit with 64 if there is any.
    #[arg(long)]
    strict: bool,
    /// Assume a value for each ${NAME} and ${file:PATH} that has none here, as in CI.
    ///
    /// All else is checked, and the summary lists what was assumed. Certificates that are missing
    /// are assumed, too.
    #[arg(long)]
    no_env: bool,
    /// Connect to Redis and to each server of the upstreams. What cannot be reached is a warning.
    ///
    /// Redis is used as the gateway would: with its login, and with every right that it needs. With
    /// --no-env, Redis is left out if its settings have assumed values.
    #[arg(long)]
    connect: bool,
    /// Compare the file with the configuration of a running gateway, by the URL of its admin port.
    ///
    /// Shows what a reload would change, what needs an upgrade or a restart, and what happens to
    /// the tokens of clients. Nothing is applied. Values of ${…} need not be at hand. Exits with 0
    /// if the file is valid, with 64 if it is not or the token is wrong, with 69 if no gateway
    /// answers.
    #[arg(long, value_name = "URL")]
    against: Option<String>,
    /// File with the token of that admin port. Default: the environment variable
    /// `TOLLGATE_ADMIN_TOKEN`.
    #[arg(long, value_name = "FILE", requires = "against")]
    token_file: Option<PathBuf>,
    /// Print the comparison as JSON, as `POST /api/reload?dry_run=true` answers.
    #[arg(long, requires = "against")]
    json: bool,
}

/// Prints a summary of the file and its warnings, or its errors.
pub(super) fn check(file: &Path, flags: &Flags) -> ExitCode {
    let target = match &flags.against {
        Some(url) => match target(url, flags.token_file.as_deref()) {
            Ok(target) => Some(target),
            Err(exit) => return exit,
        },
        None => None,
    };
    let needs_no_values = flags.no_env || target.is_some();
    let unknown = if needs_no_values { Unknown::Assume } else { Unknown::Reject };
    let mut checked = match load::check(file, unknown) {
        Ok(checked) => checked,
        Err(error) => return reject_or_start(&error),
    };
    let mut skipped = None;
    if flags.connect {
        match connect::check(&checked) {
            Ok(found) => {
                found.warnings.into_iter().for_each(|warning| checked.report.push(warning));
                skipped = found.skipped;
            }
            Err(error) => {
                eprintln!("error: cannot connect: {error}");
                return ExitCode::FAILURE;
            }
        }
    }
    let Checked { source, policy, report } = checked;
    if !report.warnings.is_empty() {
        if flags.strict {
            return reject(&LoadError::Diagnostics(report.with_warnings_as_errors()));
        }
        show(&report);
    }
    if let Some(target) = target {
        return against::compare(file, source.text(), target, flags.json);
    }
    let mut lines = vec![format!("{}: {}", file.display(), summary(&policy))];
    lines.extend(certificates(&source));
    lines.extend(boundaries::notes(&policy));
    let assumed = source.assumed();
    if !assumed.is_empty() {
        lines.push(format!("assumed, because they have no value here: {}", assumed.join(", ")));
    }
    lines.extend(skipped.map(str::to_owned));
    print(&(lines.join("\n") + "\n"))
}

/// One line for each certificate of the listeners, those that expire first at the beginning.
fn certificates(source: &Source) -> Vec<String> {
    let files = source.tls_files();
    let mut ends: Vec<(u64, &str)> =
        files.certificates().map(|(_, it)| (it.not_after(), &**it.name())).collect();
    ends.sort_unstable();
    let line = |(end, name): &(u64, &str)| {
        let time = format!("{:.0}", UtcTime::of_seconds(*end));
        let date = time.split('T').next().unwrap_or_default();
        format!("certificate of {name}, expires {date}")
    };
    let mut lines: Vec<String> = ends.iter().take(MAX_CERTIFICATES).map(line).collect();
    let more = ends.len().saturating_sub(MAX_CERTIFICATES);
    if more > 0 {
        lines.push(format!("{more} more certificates"));
    }
    lines
}

/// The admin port to compare with.
fn target(url: &str, token_file: Option<&Path>) -> Result<Target, ExitCode> {
    let token = token(token_file)?;
    Target::parse(url, token).map_err(|error| {
        eprintln!("error: --against: {error}");
        ExitCode::from(EXIT_BAD_FILE)
    })
}

/// Prints errors and warnings to standard error.
fn show(report: &Report) {
    eprintln!("{}", report.render(std::io::stderr().is_terminal()).trim_end());
}

/// Prints the errors of a rejected file, and what to write if there is none.
pub(super) fn reject_or_start(error: &LoadError) -> ExitCode {
    let code = reject(error);
    if error.is_not_found() {
        let file = SMALLEST_FILE.replace("\n\n", "\n").replace('\n', "\n    ");
        eprintln!("  or create it: {file}");
    }
    code
}

/// Prints the errors of a rejected file.
pub(super) fn reject(error: &LoadError) -> ExitCode {
    match error {
        LoadError::Diagnostics(report) => {
            show(report);
        }
        LoadError::Unreadable { .. } => {
            eprintln!("error: {error}\n  name another file as an argument, or by `-c FILE`");
        }
        _ => eprintln!("error: {error}"),
    }
    ExitCode::from(EXIT_BAD_FILE)
}

/// One line with the numbers of routes, rules, plans, keys and upstreams, and of listeners if the
/// file has `[[listeners]]`.
pub(super) fn summary(policy: &Policy) -> String {
    let count = |number: usize, one: &str, many: &str| {
        format!("{number} {}", if number == 1 { one } else { many })
    };
    let listeners = count(policy.listeners.len(), "listener", "listeners");
    let listeners = (policy.listeners.len() > policy.server.listen.len()).then_some(listeners);
    let mut counts = vec![
        count(policy.routes.len(), "route", "routes"),
        count(policy.rules.len(), "rule", "rules"),
        count(policy.plans.len(), "plan", "plans"),
        count(policy.keys.all().len(), "key", "keys"),
        count(policy.upstreams.len(), "upstream", "upstreams"),
    ];
    counts.extend(listeners);
    counts.join(", ")
}
