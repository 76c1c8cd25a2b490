//! `tollgate health`: whether a gateway is ready, for the health checks of containers and
//! supervisors.

use std::ops::RangeInclusive;
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use http::{Method, StatusCode};

use super::check::reject;
use super::file::ConfigFile;
use super::{EXIT_BAD_FILE, print, time_within};
use crate::load;
use crate::net::http::{HttpClient, HttpError, Request, Response};
use crate::top::target::{DEFAULT, Target};

/// Allowed values of `--timeout`, in milliseconds.
const TIMEOUTS_MS: RangeInclusive<u64> = 1..=60_000;

/// Maximum size of a response's body. The gateway's own is a few words.
const MAX_BODY_BYTES: usize = 256;

/// The gateway, and what to ask it.
#[derive(Debug, Args)]
pub(super) struct Flags {
    /// URL of the admin port. Default: `server.admin` of the file; without a file,
    /// http://127.0.0.1:9090.
    #[arg(long, value_name = "URL")]
    admin: Option<String>,
    /// Time limit, 1ms to 1m.
    #[arg(long, value_name = "TIME", default_value = "2s", value_parser = timeout)]
    timeout: Duration,
    /// Ask whether the process is alive (/live), not whether it should receive requests (/ready).
    #[arg(long)]
    live: bool,
}

/// A question to the admin port.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Probe {
    Ready,
    Live,
}

/// Prints whether the gateway is healthy, in one line.
pub(super) fn health(file: &ConfigFile, flags: &Flags) -> ExitCode {
    let target = match target(file, flags) {
        Ok(target) => target,
        Err(exit) => return exit,
    };
    let probe = if flags.live { Probe::Live } else { Probe::Ready };
    let url = format!("http://{}{}", target.shown(), probe.path());
    match ask(&target, probe, flags.timeout) {
        Ok(()) => print(&format!("healthy: {url} answers \"{}\"\n", probe.expected())),
        Err(why) => {
            eprintln!("unhealthy: {url} {why}");
            ExitCode::FAILURE
        }
    }
}

/// The admin port to ask.
fn target(file: &ConfigFile, flags: &Flags) -> Result<Target, ExitCode> {
    let fail = |message: String| {
        eprintln!("error: {message}");
        ExitCode::from(EXIT_BAD_FILE)
    };
    if let Some(admin) = &flags.admin {
        return Target::parse(admin, None).map_err(|error| fail(format!("--admin: {error}")));
    }
    let address = match load::admin_address(&file.path, flags.timeout) {
        Ok(address) => address,
        Err(error) if !file.is_named && error.is_not_found() => {
            return Target::parse(DEFAULT, None).map_err(|error| fail(error.to_string()));
        }
        Err(error) => return Err(reject(&error)),
    };
    if address.port() == 0 {
        let file = file.path.display();
        return Err(fail(format!(
            "`server.admin` of {file} has port 0, so the system chooses the port; give --admin URL"
        )));
    }
    Ok(Target::of_file(address, None))
}

/// Asks once. The error continues a sentence that begins with the URL.
fn ask(target: &Target, probe: Probe, deadline: Duration) -> Result<(), String> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| format!("cannot be asked: {error}"))?;
    let client = HttpClient::new(target.server().clone(), None);
    let request =
        Request { method: Method::GET, path: probe.path(), headers: Vec::new(), body: b"" };
    let answer = runtime.block_on(client.fetch(&request, deadline, MAX_BODY_BYTES));
    judge(answer, probe)
}

/// Whether this is the answer of a healthy gateway.
fn judge(answer: Result<Response, HttpError>, probe: Probe) -> Result<(), String> {
    let response = answer.map_err(|error| match error {
        HttpError::Connect(error) => format!("is not reachable: {error}"),
        HttpError::Timeout(deadline) => format!("does not answer within {deadline:?}"),
        HttpError::Head(_) | HttpError::Body(_) => "does not answer in HTTP".to_owned(),
    })?;
    let body = response.body.unwrap_or_default();
    let body = String::from_utf8_lossy(&body);
    // Further lines are for people.
    match (response.status, body.lines().next().unwrap_or_default()) {
        (StatusCode::OK, text) if text == probe.expected() => Ok(()),
        (StatusCode::SERVICE_UNAVAILABLE, "draining") => {
            Err("answers 503: the gateway is draining".to_owned())
        }
        (StatusCode::SERVICE_UNAVAILABLE, "no connection to Redis") => {
            Err("answers 503: the gateway has no connection to Redis".to_owned())
        }
        (status, _) => {
            Err(format!("answers {}, but not as the admin port of tollgate does", status.as_u16()))
        }
    }
}

impl Probe {
    fn path(self) -> &'static str {
        match self {
            Self::Ready => "/ready",
            Self::Live => "/live",
        }
    }

    /// The body of a healthy gateway's response.
    fn expected(self) -> &'static str {
        match self {
            Self::Ready => "ready",
            Self::Live => "alive",
        }
    }
}

fn timeout(text: &str) -> Result<Duration, String> {
    time_within(TIMEOUTS_MS, text)
        .ok_or_else(|| "a time from 1ms to 1m, such as 500ms or 2s".to_owned())
}
