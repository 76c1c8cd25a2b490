//! The gateway that a subcommand asks: the address of its admin port, and the token.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use tokio::runtime::Runtime;

use super::check::reject;
use super::file::ConfigFile;
use super::token::token;
use super::{EXIT_BAD_FILE, EXIT_UNAVAILABLE};
use crate::load;
use crate::top::target::{DEFAULT, Target};
use crate::top::{Client, GatewayError};

/// The gateway to ask.
#[derive(Debug, Args)]
pub(super) struct TargetFlags {
    /// URL of the admin port. Default: `server.admin` of the file; without a file,
    /// http://127.0.0.1:9090.
    #[arg(long, value_name = "URL")]
    admin: Option<String>,
    /// File with the token of the admin port. Default: the environment variable
    /// `TOLLGATE_ADMIN_TOKEN`, else `admin.token` of the file. With `--admin`, gateway.toml is read
    /// only if it is named.
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,
}

/// The exit code for an error of the gateway, or of asking it.
pub(super) fn exit_of(error: &GatewayError) -> ExitCode {
    ExitCode::from(match error {
        GatewayError::Unreachable { .. }
        | GatewayError::NotTollgate { .. }
        // The same call can succeed later, as when Redis responds again.
        | GatewayError::Refused { status: 500.., .. } => EXIT_UNAVAILABLE,
        GatewayError::Refused { .. }
        | GatewayError::NoToken { .. }
        | GatewayError::WrongToken { .. } => EXIT_BAD_FILE,
    })
}

impl TargetFlags {
    /// A client of the admin port, and the runtime for its calls. A file that is not named need not
    /// exist.
    ///
    /// # Errors
    /// The exit code, after the message is printed.
    pub(super) fn client(&self, file: &ConfigFile) -> Result<(Client, Runtime), ExitCode> {
        let target = self.target(file)?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(|error| {
            eprintln!("error: cannot start: {error}");
            ExitCode::FAILURE
        })?;
        Ok((Client::new(target), runtime))
    }

    /// URL and token of the admin port. A file that is not named need not exist.
    ///
    /// # Errors
    /// The exit code, after the message is printed.
    pub(super) fn target(&self, file: &ConfigFile) -> Result<Target, ExitCode> {
        let token = token(self.token_file.as_deref())?;
        // The token of a file that is not named must not be sent to an address that is.
        let policy = if file.is_named || self.admin.is_none() {
            match load::load_settings(&file.path) {
                Ok(policy) => Some(policy),
                Err(error) if !file.is_named && error.is_not_found() => None,
                Err(error) => return Err(reject(&error)),
            }
        } else {
            None
        };
        let token = token.or_else(|| policy.as_ref()?.admin.token.clone());
        match (&self.admin, &policy) {
            (None, Some(policy)) => Ok(Target::of_file(policy.server.admin, token)),
            (admin, _) => {
                let text = admin.as_deref().unwrap_or(DEFAULT);
                Target::parse(text, token).map_err(|error| {
                    eprintln!("error: {error}");
                    ExitCode::from(EXIT_BAD_FILE)
                })
            }
        }
    }
}
