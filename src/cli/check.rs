//! `tollgate check`: checks the file as `run` does, without serving.

use std::io::IsTerminal;
use std::path::Path;
use std::process::ExitCode;

use super::EXIT_BAD_FILE;
use crate::load::{self, LoadError};
use crate::policy::Policy;

/// Prints a summary of the file, or its errors.
pub(super) fn check(file: &Path) -> ExitCode {
    match load::load(file) {
        Ok(policy) => {
            println!("{}: {}", file.display(), summary(&policy));
            ExitCode::SUCCESS
        }
        Err(error) => reject(&error),
    }
}

/// Prints the errors of a rejected file.
pub(super) fn reject(error: &LoadError) -> ExitCode {
    match error {
        LoadError::Diagnostics(report) => {
            eprintln!("{}", report.render(std::io::stderr().is_terminal()).trim_end());
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
