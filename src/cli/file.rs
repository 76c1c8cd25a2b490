//! Which configuration file a subcommand reads: the one given as an argument or by `-c`, else
//! gateway.toml.

use std::path::{Path, PathBuf};

use clap::Args;
use thiserror::Error;

/// The file that is read if none is given.
const DEFAULT: &str = "gateway.toml";

/// The configuration file as an argument of a subcommand.
#[derive(Debug, Default, Args)]
pub(super) struct FileArgument {
    /// The configuration file, instead of `-c FILE`.
    #[arg(value_name = "FILE")]
    file: Option<PathBuf>,
    /// The same as a flag.
    #[command(flatten)]
    flag: FileFlag,
}

/// The configuration file as a flag of a subcommand.
#[derive(Debug, Default, Args)]
pub(super) struct FileFlag {
    /// The configuration file [default: gateway.toml]
    #[arg(short, long, value_name = "FILE")]
    config: Option<PathBuf>,
}

/// The configuration file of a call.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct ConfigFile {
    /// Path of the file.
    pub(super) path: PathBuf,
    /// Whether the path is from the command line.
    pub(super) is_named: bool,
}

/// Two different files are given.
#[derive(Debug, PartialEq, Eq, Error)]
#[error("two files are given: `{}`, and `{}` by a flag; leave one out", .first.display(), .flag.display())]
pub(super) struct TwoFiles {
    first: PathBuf,
    flag: PathBuf,
}

impl ConfigFile {
    /// The file of a call, by an argument or by the flag `-c` after the subcommand or before it
    /// (`before`). The same path may be given by several.
    pub(super) fn of(before: Option<PathBuf>, argument: FileArgument) -> Result<Self, TwoFiles> {
        let FileArgument { file, flag } = argument;
        let mut path = file;
        for flag in [flag.config, before].into_iter().flatten() {
            match path {
                Some(first) if first != flag => return Err(TwoFiles { first, flag }),
                _ => path = Some(flag),
            }
        }
        let is_named = path.is_some();
        Ok(Self { path: path.unwrap_or_else(|| DEFAULT.into()), is_named })
    }
}

impl FileArgument {
    /// The argument, if it names no other file than `output`.
    ///
    /// # Errors
    /// Two different files are given.
    pub(super) fn or_output(self, output: Option<&PathBuf>) -> Result<Self, TwoFiles> {
        match (self.file, output) {
            (Some(first), Some(flag)) if first != *flag => {
                Err(TwoFiles { first, flag: flag.clone() })
            }
            (file, output) => Ok(Self { file: file.or_else(|| output.cloned()), flag: self.flag }),
        }
    }
}

impl From<FileFlag> for FileArgument {
    fn from(flag: FileFlag) -> Self {
        Self { file: None, flag }
    }
}

/// What to write instead of a word that is no subcommand, if it looks like a path.
pub(super) fn suggestion(word: &str) -> Option<String> {
    let looks_like_path = word.contains(['/', '.']) || Path::new(word).exists();
    looks_like_path.then(|| {
        format!(
            "error: `{word}` is not a command\n\n  to serve this file:  tollgate run {word}\n  \
             to check this file:  tollgate check {word}"
        )
    })
}
