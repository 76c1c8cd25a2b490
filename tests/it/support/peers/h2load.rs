//! h2load, the load generator of nghttp2.

use std::process::Command;

use crate::support::child::spawned;

/// Result of a run.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct H2Load {
    /// Requests that ended, by a response or an error.
    pub(crate) done: u64,
    /// Requests without a complete response.
    pub(crate) errored: u64,
    /// Responses by the first digit of their status: 2xx to 5xx.
    pub(crate) statuses: [u64; 4],
    /// What the handshake selected: `h2`, `http/1.1`, or `h2c`.
    pub(crate) protocol: String,
}

impl H2Load {
    /// Sends `count` requests over 4 connections, 10 at once on each.
    #[track_caller]
    pub(crate) fn run(url: &str, count: u64, arguments: &[&str]) -> Self {
        let mut command = Command::new("h2load");
        let count = count.to_string();
        command.args(["-n", &count, "-c4", "-m10", "--connection-inactivity-timeout=20"]);
        command.args(arguments).arg(url);
        let output = spawned(command.output(), &command, "apt-get install nghttp2-client");
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let line = |begin: &str| {
            let line = text.lines().find_map(|line| line.strip_prefix(begin));
            line.unwrap_or_else(|| panic!("{begin}: {text}")).trim()
        };
        let number = |line: &str, unit: &str| -> u64 {
            let before = line.split(unit).next().unwrap();
            before.trim().rsplit(' ').next().unwrap().parse().unwrap()
        };
        let (requests, statuses) = (line("requests:"), line("status codes:"));
        Self {
            done: number(requests, "done"),
            errored: number(requests, "errored") + number(requests, "timeout"),
            statuses: ["2xx", "3xx", "4xx", "5xx"].map(|class| number(statuses, class)),
            protocol: line("Application protocol:").to_owned(),
        }
    }
}
