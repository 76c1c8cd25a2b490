//! `[access_log]`, resolved: the output, the members of a line, how addresses are shown, and the
//! sample rate.

pub mod fields;

use std::fs::OpenOptions;
use std::io;
use std::os::unix::fs::FileTypeExt as _;
use std::path::PathBuf;

use super::redis::Secret;
use crate::base::hash::{FNV_1A, GOLDEN, fnv_1a};
pub use crate::config::words::ClientIp;
use crate::net::io_text;
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
        let shown = path.display();
        let about = match std::fs::metadata(path) {
            Ok(about) => about,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let folder = path.parent()?;
                let folder_shown = folder.display();
                return match std::fs::metadata(folder) {
                    Ok(about) if about.is_dir() => None,
                    Ok(_) => Some(format!("`{folder_shown}` is not a folder")),
                    Err(error) if error.kind() == io::ErrorKind::NotFound => {
                        Some(format!("the folder `{folder_shown}` does not exist"))
                    }
                    Err(error) => Some(format!("`{folder_shown}`: {}", io_text::plain(&error))),
                };
            }
            Err(error) => return Some(format!("`{shown}`: {}", io_text::plain(&error))),
        };
        let kind = about.file_type();
        if kind.is_dir() {
            return Some(format!("`{shown}` is a folder"));
        }
        if kind.is_socket() {
            return Some(format!(
                "`{shown}` is a socket; a file or a named pipe can be written to"
            ));
        }
        // A named pipe is not opened, since that would wait for its reader.
        if !kind.is_file() {
            return None;
        }
        let error = OpenOptions::new().append(true).open(path).err()?;
        Some(format!("`{shown}`: {}", io_text::plain(&error)))
    }
}

/// Fraction of the requests that is logged, in millionths.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SampleRate(u32);

impl SampleRate {
    /// A rate of 1: all requests are logged.
    pub const ALL: Self = Self(1_000_000);

    /// A rate from 0 to 1; `None` for any other number.
    #[allow(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "between 0 and 1,000,000"
    )]
    pub fn of(part: f64) -> Option<Self> {
        (0.0..=1.0).contains(&part).then(|| Self((part * 1e6).round() as u32))
    }

    /// Whether the request with that id is logged. Only the id decides, so that of several gateways
    /// that forward a request with one id, all log it or none does.
    pub fn includes(self, request_id: &str) -> bool {
        if self == Self::ALL {
            return true;
        }
        // FNV-1a, then a mix that spreads consecutive ids over the whole range.
        let hash = fnv_1a(FNV_1A, request_id.bytes());
        let hash = (hash ^ (hash >> 32)).wrapping_mul(GOLDEN);
        (u128::from(hash) * 1_000_000) >> 64 < u128::from(self.0)
    }
}

impl Default for SampleRate {
    fn default() -> Self {
        Self::ALL
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rate_includes_its_part_of_consecutive_ids() {
        let ids: Vec<String> = (0..100_000)
            .map(|count| format!("{:016x}{count:016x}", 0x7104_eb52_c520_936e_u64))
            .collect();
        for (part, least, most) in [
            (0.0, 0, 0),
            (0.001, 70, 130),
            (0.1, 9_700, 10_300),
            (0.5, 49_300, 50_700),
            (1.0, 100_000, 100_000),
        ] {
            let rate = SampleRate::of(part).unwrap();
            let count = ids.iter().filter(|id| rate.includes(id)).count();
            assert!((least..=most).contains(&count), "{part}: {count}");
        }
        for part in [-0.1, 1.1, f64::NAN, f64::INFINITY] {
            assert_eq!(SampleRate::of(part), None);
        }
    }
}
