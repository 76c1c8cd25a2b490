//! The token of an admin port, for the subcommands that call it.

use std::path::Path;
use std::process::ExitCode;

use super::EXIT_BAD_FILE;
use crate::policy::redis::Secret;

/// Environment variable with the token of the admin port.
const VARIABLE: &str = "TOLLGATE_ADMIN_TOKEN";

/// The token in a file, else that of the environment, if it is set.
///
/// # Errors
/// The exit code, after the error has been printed.
pub(super) fn token(file: Option<&Path>) -> Result<Option<Secret>, ExitCode> {
    let Some(path) = file else {
        let token = std::env::var(VARIABLE).ok().filter(|token| !token.is_empty());
        return Ok(token.map(Secret::new));
    };
    match std::fs::read_to_string(path) {
        Ok(text) => Ok(Some(Secret::new(text.trim().to_owned()))),
        Err(error) => {
            eprintln!("error: cannot read {}: {error}", path.display());
            Err(ExitCode::from(EXIT_BAD_FILE))
        }
    }
}
