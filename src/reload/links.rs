//! Resolves the symbolic links of a path. Replacing any of them replaces the file: Kubernetes
//! replaces one in the middle (`gateway.toml` -> `..data/gateway.toml`, and `..data` -> a folder
//! with a date).

use std::collections::VecDeque;
use std::ffi::OsString;
use std::path::{Component, Path, PathBuf};

/// Maximum number of links to follow; the kernel has the same limit.
const MAX_LINKS: usize = 40;

/// Every directory entry whose replacement replaces the file: each symbolic link, and last the file
/// itself, each as folder and name. `path` must be absolute.
pub(super) fn entries(path: &Path) -> Vec<(PathBuf, OsString)> {
    let mut found = Vec::new();
    let mut rest: VecDeque<OsString> = parts(path);
    let mut folder = PathBuf::from("/");
    while let Some(part) = rest.pop_front() {
        if part == "/" {
            folder = PathBuf::from("/");
            continue;
        }
        if part == ".." {
            folder.pop();
            continue;
        }
        let here = folder.join(&part);
        match std::fs::read_link(&here) {
            Ok(target) if found.len() < MAX_LINKS => {
                found.push((folder.clone(), part));
                for part in parts(&target).into_iter().rev() {
                    rest.push_front(part);
                }
            }
            _ if rest.is_empty() => found.push((folder.clone(), part)),
            _ => folder = here,
        }
    }
    found
}

fn parts(path: &Path) -> VecDeque<OsString> {
    let keeps = |part: &Component<'_>| !matches!(part, Component::CurDir);
    path.components().filter(keeps).map(|part| part.as_os_str().to_owned()).collect()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn every_link_is_listed_and_a_loop_of_links_ends() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path().canonicalize().unwrap();
        let names = |path: &Path| {
            let found = entries(path).into_iter();
            let shown = |(place, name): (PathBuf, OsString)| {
                let place = place.strip_prefix(&folder).unwrap().display().to_string();
                format!("{place}:{}", name.display())
            };
            found.map(shown).collect::<Vec<_>>()
        };
        std::fs::create_dir(folder.join("..one")).unwrap();
        std::fs::write(folder.join("..one/file"), "").unwrap();
        symlink("..one", folder.join("..data")).unwrap();
        symlink("..data/file", folder.join("file")).unwrap();
        symlink(folder.join("./..one/../file"), folder.join("far")).unwrap();
        symlink("loop", folder.join("loop")).unwrap();

        assert_eq!(names(&folder.join("..one/file")), ["..one:file"]);
        assert_eq!(names(&folder.join("file")), [":file", ":..data", "..one:file"]);
        assert_eq!(names(&folder.join("far")), [":far", ":file", ":..data", "..one:file"]);
        assert_eq!(names(&folder.join("none")), [":none"]);
        assert_eq!(names(&folder.join("loop")).len(), MAX_LINKS + 1);
    }
}
