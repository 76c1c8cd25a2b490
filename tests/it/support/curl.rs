//! Runs curl.

use std::process::Command;

use super::child::spawned;

/// Result of a curl call.
pub(crate) struct Curl {
    pub(crate) exit: Option<i32>,
    pub(crate) stdout: Vec<u8>,
    pub(crate) stderr: String,
}

/// Runs curl until it exits, with only errors on standard error.
pub(crate) fn curl(arguments: &[&str]) -> Curl {
    let mut command = Command::new("curl");
    command.args(["--disable", "--silent", "--show-error", "--max-time", "60"]).args(arguments);
    let output = spawned(command.output(), &command, "apt-get install curl");
    Curl {
        exit: output.status.code(),
        stdout: output.stdout,
        stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
    }
}

impl Curl {
    /// The response body. Panics if curl failed.
    #[track_caller]
    pub(crate) fn text(&self) -> String {
        assert_eq!(self.exit, Some(0), "curl failed: {}", self.stderr);
        String::from_utf8_lossy(&self.stdout).into_owned()
    }
}
