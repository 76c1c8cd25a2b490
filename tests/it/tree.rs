//! The tests and the program are of this work tree, and property tests can run more cases.

use std::fs::read_dir;
use std::path::{Path, PathBuf};

/// A build folder that two work trees share mixes their programs: cargo only compares times of
/// files.
#[test]
fn tests_run_in_the_tree_that_they_were_built_from() {
    let now = std::env::var("CARGO_MANIFEST_DIR").expect("cargo runs the tests");
    assert_eq!(
        now,
        env!("CARGO_MANIFEST_DIR"),
        "built from another work tree: give each a build folder of its own (scripts/worktree)"
    );
}

/// Otherwise it runs no more of them at night: see `src/base/cases.rs`.
#[test]
fn each_block_of_property_tests_says_how_many_cases_it_runs() {
    let mut without = Vec::new();
    for file in ["src", "tests/it"].into_iter().flat_map(|folder| files(Path::new(folder))) {
        let text = std::fs::read_to_string(&file).unwrap();
        let lines: Vec<&str> = text.lines().collect();
        for (number, pair) in (1..).zip(lines.windows(2)) {
            if pair[0].ends_with("proptest! {") && !pair[1].contains("with_cases(") {
                without.push(format!("{}:{number}", file.display()));
            }
        }
    }
    assert!(without.is_empty(), "`#![proptest_config(with_cases(256))]` is missing: {without:#?}");
}

/// The file at this path if it is source, or those in the folder.
fn files(path: &Path) -> Vec<PathBuf> {
    if path.is_dir() {
        let entries = read_dir(path).unwrap();
        return entries.flat_map(|entry| files(&entry.unwrap().path())).collect();
    }
    let is_source = path.extension().is_some_and(|extension| extension == "rs");
    is_source.then(|| path.to_owned()).into_iter().collect()
}
