//! Whether a file could be written to.

use std::fs::OpenOptions;
use std::io;
use std::os::unix::fs::FileTypeExt as _;
use std::path::Path;

use crate::net::io_text;

/// Why the file at `path` could not be written to, as far as that can be found without creating it.
pub fn problem(path: &Path) -> Option<String> {
    let shown = path.display();
    let about = match std::fs::metadata(path) {
        Ok(about) => about,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let folder = path.parent()?;
            let folder = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
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
        return Some(format!("`{shown}` is a socket; a file or a named pipe can be written to"));
    }
    // A named pipe is not opened, since that would wait for its reader.
    if !kind.is_file() {
        return None;
    }
    let error = OpenOptions::new().append(true).open(path).err()?;
    Some(format!("`{shown}`: {}", io_text::plain(&error)))
}
