//! Reads the files that files of nginx include.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use glob::Pattern;

use super::{Content, read};
use crate::import;

/// Maximum number of files.
const MAX_FILES: usize = 1_000;

/// Adds the files that the files include, and those that these include. As in nginx, their paths
/// are relative to the folder of the first.
///
/// # Errors
/// A file cannot be read, or there are too many.
pub(super) fn follow(first: &Path, contents: &mut Vec<Content>) -> Result<(), String> {
    let folder = first.parent().unwrap_or(Path::new(""));
    let real = |path: &Path| path.canonicalize().unwrap_or_else(|_| path.to_owned());
    let mut seen: BTreeSet<PathBuf> =
        contents.iter().map(|content| real(Path::new(&content.name))).collect();
    let mut next = 0;
    while let Some(content) = contents.get(next) {
        let patterns = import::nginx_includes(&content.text);
        for path in patterns.iter().flat_map(|pattern| matching(folder, pattern)) {
            if !seen.insert(real(&path)) {
                continue;
            }
            if contents.len() >= MAX_FILES {
                return Err(format!("more than {MAX_FILES} files are included"));
            }
            contents.push(read(&path)?);
        }
        next += 1;
    }
    Ok(())
}

/// The files that a pattern is for, in the order of their names.
fn matching(folder: &Path, pattern: &str) -> Vec<PathBuf> {
    let found = in_folder(folder, pattern);
    let copied =
        || import::INCLUDE_FOLDERS.into_iter().find_map(|folder| pattern.strip_prefix(folder));
    match copied().filter(|_| found.is_empty()) {
        Some(pattern) => in_folder(folder, pattern),
        None => found,
    }
}

fn in_folder(folder: &Path, pattern: &str) -> Vec<PathBuf> {
    // `**` would stand for any number of folders.
    let mut pattern = pattern.to_owned();
    while pattern.contains("**") {
        pattern = pattern.replace("**", "*");
    }
    if !pattern.starts_with('/') && folder != Path::new("") {
        pattern = format!("{}/{pattern}", Pattern::escape(&folder.to_string_lossy()));
    }
    let paths = glob::glob_with(&pattern, import::INCLUDE_MATCHING);
    paths.into_iter().flatten().filter_map(Result::ok).filter(|path| path.is_file()).collect()
}
