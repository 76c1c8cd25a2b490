//! `[access_log]`, resolved: the output, the members of a line, how addresses are shown, and the
//! sample rate.

pub mod fields;

use std::path::PathBuf;

use super::redis::Secret;
use super::sample::SampleRate;
use super::writable;
pub use crate::config::words::ClientIp;
use fields::Fields;

/// Settings of the access log.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AccessLog {
    /// Where lines are written.
    pub output: Output,
    /// How client addresses are shown, also in the audit and in traces.
    pub client_ip: ClientIp,
    /// Salt of hashed addresses; `None`: random for each process.
    pub salt: Option<Secret>,
    /// Fraction of the allowed requests that is logged.
    pub sample: SampleRate,
    /// The members of a line.
    pub fields: Fields,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Output {
    /// No access log is written.
    #[default]
    Off,
    /// Lines go to standard output.
    Stdout,
    /// Lines are appended to this file. The path is absolute.
    File(PathBuf),
}

impl Output {
    /// Why lines could not be written there, as far as that can be found without creating the file.
    pub fn problem(&self) -> Option<String> {
        let Self::File(path) = self else { return None };
        writable::problem(path).map(|problem| problem.text)
    }
}
