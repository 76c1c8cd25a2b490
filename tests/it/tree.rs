//! The tests and the program are of this work tree.

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
