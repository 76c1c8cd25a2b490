//! `tollgate top`: shows a running gateway in the terminal.

use std::io::IsTerminal as _;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;

use super::check::reject;
use super::file::ConfigFile;
use super::token::token;
use super::{EXIT_BAD_FILE, EXIT_UNAVAILABLE, print};
use crate::load;
use crate::policy::build::milliseconds;
use crate::top::target::{DEFAULT, Target};
use crate::top::{self, GatewayError, Options, TopError};

/// Allowed values of `--interval`, in milliseconds.
const INTERVALS_MS: std::ops::RangeInclusive<u64> = 100..=60_000;

/// The gateway to show, and how.
#[derive(Debug, Args)]
pub(super) struct Flags {
    /// URL of the admin port. Default: `server.admin` of the file; without a file,
    /// http://127.0.0.1:9090.
    #[arg(long, value_name = "URL")]
    admin: Option<String>,
    /// File with the token of the admin port. Default: the environment variable
    /// `TOLLGATE_ADMIN_TOKEN`, else `admin.token` of the file. With `--admin`, gateway.toml is read only
    /// if it is named.
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,
    /// Interval at which clients, buckets and health are requested, 100ms to 1m.
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = interval)]
    interval: Duration,
    /// Print everything once as text, and exit. Implied if the output is not a terminal.
    #[arg(long)]
    once: bool,
}

/// Shows a gateway.
pub(super) fn top(file: &ConfigFile, flags: &Flags) -> ExitCode {
    let target = match target(file, flags) {
        Ok(target) => target,
        Err(exit) => return exit,
    };
    let color = std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
    let options = Options { target, interval: flags.interval, color };
    let ended = if flags.once || !std::io::stdout().is_terminal() {
        top::once(&options).map(|page| print(&page))
    } else {
        top::live(&options).map(|()| ExitCode::SUCCESS)
    };
    ended.unwrap_or_else(|error| {
        let code = match &error {
            TopError::Gateway(GatewayError::NoToken { .. } | GatewayError::WrongToken { .. }) => {
                EXIT_BAD_FILE
            }
            TopError::Gateway(_) | TopError::Terminal(_) => EXIT_UNAVAILABLE,
        };
        eprintln!("error: {error}");
        ExitCode::from(code)
    })
}

/// URL and token of the admin port.
fn target(file: &ConfigFile, flags: &Flags) -> Result<Target, ExitCode> {
    let fail = |message: &str| {
        eprintln!("error: {message}");
        ExitCode::from(EXIT_BAD_FILE)
    };
    // The token of a file that is not named must not be sent to an address that is.
    let policy = if file.is_named || flags.admin.is_none() {
        match load::load(&file.path) {
            Ok(policy) => Some(policy),
            Err(error) if !file.is_named && error.is_not_found() => None,
            Err(error) => return Err(reject(&error)),
        }
    } else {
        None
    };
    let of_file = || policy.as_ref().and_then(|policy| policy.admin.token.clone());
    let token = token(flags.token_file.as_deref())?.or_else(of_file);
    match (&flags.admin, &policy) {
        (None, Some(policy)) => Ok(Target::of_file(policy.server.admin, token)),
        (admin, _) => {
            let text = admin.as_deref().unwrap_or(DEFAULT);
            Target::parse(text, token).map_err(|error| fail(&error.to_string()))
        }
    }
}

fn interval(text: &str) -> Result<Duration, String> {
    let found = milliseconds(text).filter(|found| INTERVALS_MS.contains(found));
    let wrong = || "a time from 100ms to 1m, such as 500ms or 2s".to_owned();
    found.map(Duration::from_millis).ok_or_else(wrong)
}
