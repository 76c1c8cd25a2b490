//! `tollgate upgrade`: replaces a running gateway by the program on disk.

use std::ops::RangeInclusive;
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use http::HeaderValue;

use super::file::ConfigFile;
use super::target::TargetFlags;
use super::{EXIT_BAD_FILE, EXIT_UNAVAILABLE, print, time_within};
use crate::api::upgrade::Upgraded;
use crate::top::GatewayError;

/// Allowed values of `--timeout`, in milliseconds.
const TIMEOUTS_MS: RangeInclusive<u64> = 1..=86_400_000;

/// The gateway to upgrade.
#[derive(Debug, Args)]
pub(super) struct Flags {
    /// How long to wait for the answer of the gateway, which gives a new process
    /// `server.upgrade_timeout` (30s).
    #[arg(long, value_name = "TIME", default_value = "2m", value_parser = timeout)]
    timeout: Duration,
    /// The gateway.
    #[command(flatten)]
    target: TargetFlags,
}

/// Asks the gateway to start the program on disk, and prints which process serves then.
pub(super) fn upgrade(file: &ConfigFile, flags: &Flags) -> ExitCode {
    let (client, runtime) = match flags.target.client(file) {
        Ok(client) => client,
        Err(exit) => return exit,
    };
    let client = client.waiting(flags.timeout);
    let kind = HeaderValue::from_static("application/json");
    match runtime.block_on(client.post::<Upgraded>("/api/upgrade", kind, b"")) {
        Ok(Upgraded { previous_pid, pid }) => {
            print(&format!("upgraded: process {pid} serves, process {previous_pid} drains\n"))
        }
        Err(GatewayError::Refused { why, .. }) => {
            eprintln!("error: not upgraded, the gateway serves as before: {why}");
            ExitCode::FAILURE
        }
        Err(error @ (GatewayError::NoToken { .. } | GatewayError::WrongToken { .. })) => {
            eprintln!("error: {error}");
            ExitCode::from(EXIT_BAD_FILE)
        }
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::from(EXIT_UNAVAILABLE)
        }
    }
}

fn timeout(text: &str) -> Result<Duration, String> {
    time_within(TIMEOUTS_MS, text).ok_or_else(|| "write a time of 1ms to 1d".to_owned())
}
