//! Events that libraries log through the `log` crate, Pingora above all, in plain words.

use log::{Level, Log, Metadata, Record};
use tracing::{error, warn};

/// Modules of Pingora whose lines are dropped. They log errors that any client can cause: on the
/// admin port with the malformed head, which may contain a token, and for a kept upstream
/// connection that is not free yet. The gateway logs the relevant ones itself, with the id of the
/// request.
const SILENT: [&str; 3] = ["pingora_proxy", "pingora_core::apps", "pingora_core::connectors"];

/// Names of Pingora's error types, and of the sources of its errors.
const INTERNAL_NAMES: [&str; 34] = [
    "ConnectTimedout",
    "ConnectRefused",
    "ConnectNoRoute",
    "ConnectProxyFailure",
    "TLSWantX509Lookup",
    "TLSHandshakeFailure",
    "TLSHandshakeTimedout",
    "InvalidCert",
    "HandshakeError",
    "ConnectError",
    "BindError",
    "AcceptError",
    "SocketError",
    "InvalidHTTPHeader",
    "H1Error",
    "H2Error",
    "InvalidH2",
    "H2Downgrade",
    "ReadError",
    "WriteError",
    "ReadTimedout",
    "WriteTimedout",
    "ConnectionClosed",
    "FileOpenError",
    "FileCreateError",
    "FileReadError",
    "FileWriteError",
    "HTTPStatus",
    "InternalError",
    "UnknownError",
    "TLSConfigError",
    "Upstream",
    "Downstream",
    "Internal",
];

/// Forwards what libraries log as warnings and errors to the log of the process. Below `warn`
/// Pingora logs request heads, which contain API keys.
#[derive(Clone, Copy, Debug)]
pub struct LibraryLog;

impl Log for LibraryLog {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        let target = metadata.target();
        metadata.level() <= Level::Warn && !SILENT.iter().any(|module| target.starts_with(module))
    }

    fn log(&self, record: &Record<'_>) {
        if !self.enabled(record.metadata()) {
            return;
        }
        let library = record.target().split("::").next().unwrap_or_default();
        let detail = plain(&record.args().to_string());
        match record.level() {
            Level::Error if detail.starts_with("Accept() failed") => {
                error!(detail, "a connection cannot be accepted");
            }
            Level::Error => error!(library, detail, "a library reported an error"),
            _ => warn!(library, detail, "a library reported a problem"),
        }
    }

    fn flush(&self) {}
}

/// The text without names of error types: `a AcceptError context: b cause: c` is `a: b: c`.
fn plain(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for word in text.split_whitespace() {
        match word {
            word if INTERNAL_NAMES.contains(&word.trim_end_matches([':', ','])) => {}
            "context:" | "cause:" => {
                if !shown.is_empty() && !shown.ends_with(':') {
                    shown.push(':');
                }
            }
            word => {
                if !shown.is_empty() {
                    shown.push(' ');
                }
                shown.push_str(word);
            }
        }
    }
    shown
}

#[cfg(test)]
pub(super) mod tests {
    use pingora::prelude::{Error, ErrorType};

    use super::*;

    #[test]
    fn errors_of_pingora_are_shown_without_its_names() {
        let cause = std::io::Error::from_raw_os_error(24);
        let error = Error::because(ErrorType::AcceptError, "Fail to accept()", cause);
        assert_eq!(
            plain(&format!("Accept() failed {}", error.into_down())),
            "Accept() failed: Fail to accept(): Too many open files (os error 24)"
        );
        for error in ERRORS {
            let text = plain(&Error::explain(error.clone(), "why").into_up().to_string());
            assert_eq!(text, "why", "{error:?}");
        }
    }

    /// All types of errors but those that a program names itself.
    pub(crate) const ERRORS: [ErrorType; 30] = [
        ErrorType::ConnectTimedout,
        ErrorType::ConnectRefused,
        ErrorType::ConnectNoRoute,
        ErrorType::TLSWantX509Lookup,
        ErrorType::TLSHandshakeFailure,
        ErrorType::TLSHandshakeTimedout,
        ErrorType::InvalidCert,
        ErrorType::HandshakeError,
        ErrorType::ConnectError,
        ErrorType::BindError,
        ErrorType::AcceptError,
        ErrorType::SocketError,
        ErrorType::ConnectProxyFailure,
        ErrorType::InvalidHTTPHeader,
        ErrorType::H1Error,
        ErrorType::H2Error,
        ErrorType::H2Downgrade,
        ErrorType::InvalidH2,
        ErrorType::ReadError,
        ErrorType::WriteError,
        ErrorType::ReadTimedout,
        ErrorType::WriteTimedout,
        ErrorType::ConnectionClosed,
        ErrorType::HTTPStatus(502),
        ErrorType::FileOpenError,
        ErrorType::FileCreateError,
        ErrorType::FileReadError,
        ErrorType::FileWriteError,
        ErrorType::InternalError,
        ErrorType::UnknownError,
    ];
}
