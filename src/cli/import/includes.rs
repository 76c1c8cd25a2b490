//! Finds and reads the files that files of nginx include.

use std::collections::BTreeMap;
use std::collections::hash_map::Entry;
use std::path::{Path, PathBuf};

use glob::{MatchOptions, Pattern};

use super::{Content, read_file};
use crate::import::{self, Included, Includes};

/// Maximum number of files.
const MAX_FILES: usize = 10_000;

/// Where the configuration of a package of nginx is, or of one that was built by hand: `include`
/// may name files there, of which there are copies beside the file that is imported.
const FOLDERS: [&str; 2] = ["/etc/nginx/", "/usr/local/nginx/conf/"];

/// As in nginx: `*` and `?` stand neither for `/` nor for the dot at the beginning of a name.
const MATCHING: MatchOptions = MatchOptions {
    case_sensitive: true,
    require_literal_separator: true,
    require_literal_leading_dot: true,
};

/// Adds the files that the files include, and those that these include, and returns which they are.
/// As in nginx, paths are relative to the folder of the first file.
///
/// # Errors
/// There are too many.
pub(super) fn follow(first: &Path, contents: &mut Vec<Content>) -> Result<Includes, String> {
    let folder = first.parent().unwrap_or(Path::new(""));
    let each = contents.iter().enumerate();
    let numbers = each.map(|(number, content)| (real(Path::new(&content.name)), number)).collect();
    let mut reader = Reader { folder, contents, numbers };
    let mut includes = Includes::new();
    let mut next = 0;
    while let Some(content) = reader.contents.get(next) {
        for pattern in import::nginx_includes(&content.text) {
            if let Entry::Vacant(free) = includes.entry(pattern) {
                let found = reader.read(free.key())?;
                free.insert(found);
            }
        }
        next += 1;
    }
    Ok(includes)
}

/// The files that were read.
struct Reader<'a> {
    folder: &'a Path,
    contents: &'a mut Vec<Content>,
    /// The index of each in `contents`, by its path without symbolic links.
    numbers: BTreeMap<PathBuf, usize>,
}

impl Reader<'_> {
    /// Reads the files that a pattern is for, and that were not read before.
    fn read(&mut self, pattern: &str) -> Result<Included, String> {
        let mut found = Included::default();
        let paths = matching(self.folder, pattern);
        // nginx accepts a pattern that is for no file.
        if paths.is_empty() && !pattern.contains(['*', '?', '[']) {
            found.failed.push(format!(
                "there is no file {}: paths are relative to the folder of the first file, so name nginx.conf first",
                self.folder.join(pattern).display()
            ));
        }
        for path in paths {
            match self.number(&path)? {
                Ok(number) => found.files.push(number),
                Err(error) => found.failed.push(error),
            }
        }
        Ok(found)
    }

    /// The index of a file, or why it cannot be read.
    ///
    /// # Errors
    /// There are too many files.
    fn number(&mut self, path: &Path) -> Result<Result<usize, String>, String> {
        let next = self.contents.len();
        let real = real(path);
        if let Some(number) = self.numbers.get(&real) {
            return Ok(Ok(*number));
        }
        if next >= MAX_FILES {
            let why = "import the files of some servers at a time";
            return Err(format!("more than {MAX_FILES} files are included: {why}"));
        }
        Ok(read_file(path).map(|content| {
            self.numbers.insert(real, next);
            self.contents.push(content);
            next
        }))
    }
}

/// The path without symbolic links, if the file is there.
fn real(path: &Path) -> PathBuf {
    path.canonicalize().unwrap_or_else(|_| path.to_owned())
}

/// The files that a pattern is for, in the order of their names.
fn matching(folder: &Path, pattern: &str) -> Vec<PathBuf> {
    let found = in_folder(folder, pattern);
    let copied = || FOLDERS.into_iter().find_map(|folder| pattern.strip_prefix(folder));
    match copied().filter(|_| found.is_empty()) {
        Some(pattern) => in_folder(folder, pattern),
        None => found,
    }
}

fn in_folder(folder: &Path, pattern: &str) -> Vec<PathBuf> {
    // As in glob(3): `**` stands for what `*` does, and `^` negates, too.
    let mut pattern = pattern.replace("[^", "[!");
    while pattern.contains("**") {
        pattern = pattern.replace("**", "*");
    }
    if !pattern.starts_with('/') && folder != Path::new("") {
        pattern = format!("{}/{pattern}", Pattern::escape(&folder.to_string_lossy()));
    }
    let paths = glob::glob_with(&pattern, MATCHING);
    paths.into_iter().flatten().filter_map(Result::ok).filter(|path| path.is_file()).collect()
}
