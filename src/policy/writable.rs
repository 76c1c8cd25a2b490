//! Whether a file could be written to.

use std::fs::{Metadata, OpenOptions};
use std::io;
use std::os::unix::fs::FileTypeExt as _;
use std::path::Path;

use crate::net::io_text;

/// Why a file could not be written to.
#[derive(Debug)]
pub struct Problem {
    /// For people.
    pub text: String,
    /// This user may not write to it. Another one may.
    pub is_denied: bool,
}

impl Problem {
    fn new(text: String) -> Self {
        Self { text, is_denied: false }
    }

    fn io(path: &Path, error: &io::Error) -> Self {
        let text = format!("`{}`: {}", path.display(), io_text::plain(error));
        Self { text, is_denied: error.kind() == io::ErrorKind::PermissionDenied }
    }
}

/// Why the file at `path` could not be written to, as far as that can be found without creating it.
pub fn problem(path: &Path) -> Option<Problem> {
    match std::fs::metadata(path) {
        Ok(about) => of_existing(path, &about),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let folder = path.parent()?;
            of_folder(if folder.as_os_str().is_empty() { Path::new(".") } else { folder })
        }
        Err(error) => Some(Problem::io(path, &error)),
    }
}

fn of_folder(folder: &Path) -> Option<Problem> {
    let shown = folder.display();
    match std::fs::metadata(folder) {
        Ok(about) if about.is_dir() => None,
        Ok(_) => Some(Problem::new(format!("`{shown}` is not a folder"))),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            Some(Problem::new(format!("the folder `{shown}` does not exist")))
        }
        Err(error) => Some(Problem::io(folder, &error)),
    }
}

fn of_existing(path: &Path, about: &Metadata) -> Option<Problem> {
    let (shown, kind) = (path.display(), about.file_type());
    if kind.is_dir() {
        return Some(Problem::new(format!("`{shown}` is a folder")));
    }
    if kind.is_socket() {
        let text = format!("`{shown}` is a socket; a file or a named pipe can be written to");
        return Some(Problem::new(text));
    }
    // A named pipe is not opened, since that would wait for its reader.
    if !kind.is_file() {
        return None;
    }
    let error = OpenOptions::new().append(true).open(path).err()?;
    Some(Problem::io(path, &error))
}
