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
#[error("two files are given: `{}`, and `{}` by `-c`; leave one out", .argument.display(), .flag.display())]
pub(super) struct TwoFiles {
    argument: PathBuf,
    flag: PathBuf,
}

impl ConfigFile {
    /// The file of a call with the flag `-c` and an argument. The same path may be given by both.
    pub(super) fn of(flag: Option<PathBuf>, argument: FileArgument) -> Result<Self, TwoFiles> {
        match (flag, argument.file) {
            (Some(flag), Some(argument)) if flag != argument => Err(TwoFiles { argument, flag }),
            (Some(path), _) | (None, Some(path)) => Ok(Self { path, is_named: true }),
            (None, None) => Ok(Self { path: DEFAULT.into(), is_named: false }),
        }
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
