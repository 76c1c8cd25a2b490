//! Files that a gateway reads while a test changes them.

use std::ffi::OsString;
use std::path::Path;

/// Replaces a file in one step, as editors and tools that renew certificates do: a gateway that
/// reads at this moment finds the old content or the new one, never an empty file.
pub(crate) fn replace_file(path: impl AsRef<Path>, content: impl AsRef<[u8]>) {
    let path = path.as_ref();
    let mut new = OsString::from(path);
    new.push(".new");
    std::fs::write(&new, content).unwrap();
    std::fs::rename(new, path).unwrap();
}
