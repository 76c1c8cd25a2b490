//! `tollgate check`: what `run` would say of the file, without running.

use std::io::IsTerminal;
use std::path::Path;
use std::process::ExitCode;

use super::EXIT_BAD_FILE;
use crate::load::{self, LoadError};
use crate::policy::Policy;

/// Reads the file and says what is in it, or what is wrong with it.
pub(super) fn check(file: &Path) -> ExitCode {
    match load::load(file) {
        Ok(policy) => {
            println!("{}: {}", file.display(), summary(&policy));
            ExitCode::SUCCESS
        }
        Err(error) => reject(&error),
    }
}

/// Prints why a file was rejected.
pub(super) fn reject(error: &LoadError) -> ExitCode {
    match error {
        LoadError::Diagnostics(report) => {
            eprintln!("{}", report.render(std::io::stderr().is_terminal()).trim_end());
        }
        LoadError::Unreadable { .. } => {
            eprintln!("error: {error}\n  name another file with `-c FILE`");
        }
        _ => eprintln!("error: {error}"),
    }
    ExitCode::from(EXIT_BAD_FILE)
}

/// What a file holds, in one line.
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
