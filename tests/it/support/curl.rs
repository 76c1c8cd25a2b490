//! Runs curl.

use std::process::Command;

use super::child::spawned;

/// Result of a curl call.
pub(crate) struct Curl {
    pub(crate) exit: Option<i32>,
    pub(crate) stdout: Vec<u8>,
    pub(crate) stderr: String,
}

/// A response that curl received.
#[derive(Debug)]
pub(crate) struct Fetched {
    /// Version of HTTP: `1.1` or `2`.
    pub(crate) version: String,
    pub(crate) status: u16,
    pub(crate) body: String,
    /// Connections that curl opened for the last transfer: 0 if it reused one.
    pub(crate) connects: u32,
    headers: serde_json::Value,
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

/// Runs curl on one URL, with any host at 127.0.0.1. Panics if it fails. The last response, if curl
/// makes several requests.
#[track_caller]
pub(crate) fn fetch(arguments: &[&str]) -> Fetched {
    fetch_all(arguments).pop().unwrap()
}

/// The same; all responses, if curl makes several requests. Each has the bodies of all.
#[track_caller]
pub(crate) fn fetch_all(arguments: &[&str]) -> Vec<Fetched> {
    // Standard output is the body; a failure has no record, but a message.
    let record = "%{stderr}\u{1e}%{http_version} %{http_code} %{num_connects} %{header_json}";
    let local = ["--no-progress-meter", "--connect-to", "::127.0.0.1:", "--write-out", record];
    let result = curl(&[&local, arguments].concat());
    let body = result.text();
    let fetched = |record: &str| {
        let mut fields = record.splitn(4, ' ');
        let mut next = || fields.next().unwrap_or_default().to_owned();
        Fetched {
            version: next(),
            status: next().parse().unwrap(),
            connects: next().parse().unwrap(),
            headers: serde_json::from_str(&next()).unwrap(),
            body: body.clone(),
        }
    };
    result.stderr.split('\u{1e}').skip(1).map(fetched).collect()
}

impl Fetched {
    /// The first value of a header.
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name)?.get(0)?.as_str()
    }

    /// The body as JSON.
    #[track_caller]
    pub(crate) fn json(&self) -> serde_json::Value {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error}: {self:?}"))
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
