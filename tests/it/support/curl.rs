//! curl, the client that most people meet an API with.

use std::process::Command;

use super::child::spawned;

/// What curl got.
pub(crate) struct Curl {
    pub(crate) exit: Option<i32>,
    pub(crate) stdout: Vec<u8>,
    pub(crate) stderr: String,
}

/// Runs curl to its end, silent but for errors.
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
    /// What came, where all went well.
    #[track_caller]
    pub(crate) fn text(&self) -> String {
        assert_eq!(self.exit, Some(0), "curl failed: {}", self.stderr);
        String::from_utf8_lossy(&self.stdout).into_owned()
    }
}
