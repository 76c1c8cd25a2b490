//! `[access_log]`, resolved: the output, the members of a line, how addresses are shown, and the
//! sample rate.

pub mod fields;

use std::fs::OpenOptions;
use std::io;
use std::os::unix::fs::FileTypeExt as _;
use std::path::PathBuf;

use super::redis::Secret;
use super::sample::SampleRate;
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
