//! `tollgate top`: shows a running gateway in the terminal.

use std::io::IsTerminal as _;
use std::ops::RangeInclusive;
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;

use super::file::ConfigFile;
use super::target::TargetFlags;
use super::{EXIT_BAD_FILE, EXIT_UNAVAILABLE, print, time_within};
use crate::top::{self, GatewayError, Options, TopError};

/// Allowed values of `--interval`, in milliseconds.
const INTERVALS_MS: RangeInclusive<u64> = 100..=60_000;

/// The gateway to show, and how.
#[derive(Debug, Args)]
pub(super) struct Flags {
    /// Interval at which clients, buckets and health are requested, 100ms to 1m.
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = interval)]
    interval: Duration,
    /// Print everything once as text, and exit. Implied if the output is not a terminal.
    #[arg(long)]
    once: bool,
    /// The gateway.
    #[command(flatten)]
    target: TargetFlags,
}

/// Shows a gateway.
pub(super) fn top(file: &ConfigFile, flags: &Flags) -> ExitCode {
    let target = match flags.target.target(file) {
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

fn interval(text: &str) -> Result<Duration, String> {
    time_within(INTERVALS_MS, text)
        .ok_or_else(|| "a time from 100ms to 1m, such as 500ms or 2s".to_owned())
}
