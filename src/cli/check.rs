//! `tollgate check`: checks the file as `run` does, without serving.

use std::io::IsTerminal;
use std::path::Path;
use std::process::ExitCode;

use clap::Args;

use super::EXIT_BAD_FILE;
use crate::config::diagnostic::Report;
use crate::load::{self, LoadError};
use crate::policy::Policy;

/// The flags of `tollgate check`.
#[derive(Debug, Clone, Copy, Args)]
pub(super) struct Flags {
    /// Treat warnings as errors: exit with 64 if there is any.
    #[arg(long)]
    strict: bool,
}

/// Prints a summary of the file and its warnings, or its errors.
pub(super) fn check(file: &Path, flags: Flags) -> ExitCode {
    match load::check(file) {
        Ok((_, warnings)) if flags.strict && !warnings.warnings.is_empty() => {
            reject(&LoadError::Diagnostics(warnings.with_warnings_as_errors()))
        }
        Ok((policy, warnings)) => {
            if !warnings.warnings.is_empty() {
                show(&warnings);
            }
            println!("{}: {}", file.display(), summary(&policy));
            ExitCode::SUCCESS
        }
        Err(error) => reject(&error),
    }
}

/// Prints errors and warnings to standard error.
fn show(report: &Report) {
    eprintln!("{}", report.render(std::io::stderr().is_terminal()).trim_end());
}

/// Prints the errors of a rejected file.
pub(super) fn reject(error: &LoadError) -> ExitCode {
    match error {
        LoadError::Diagnostics(report) => {
            show(report);
        }
        LoadError::Unreadable { .. } => {
            eprintln!("error: {error}\n  name another file: `tollgate check FILE`, or `-c FILE`");
        }
        _ => eprintln!("error: {error}"),
    }
    ExitCode::from(EXIT_BAD_FILE)
}

/// One line with the numbers of routes, rules, plans, keys and upstreams.
pub(super) fn summary(policy: &Policy) -> String {
    let count = |number: usize, one: &str, many: &str| {
        format!("{number} {}", if number == 1 { one } else { many })
    };
    [
        count(policy.routes.len(), "route", "routes"),
        count(policy.rules.len(), "rule", "rules"),
        count(policy.plans.len(), "plan", "plans"),
        count(policy.keys.len(), "key", "keys"),
        count(policy.upstreams.len(), "upstream", "upstreams"),
    ]
    .join(", ")
}
