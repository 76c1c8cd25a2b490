//! Reports measurements that a busy machine has spoilt. Unit tests of the library use this file,
//! too.

use std::fs::OpenOptions;
use std::io::Write as _;

/// Environment variable with the path of a file that gets a line per measurement:
/// `scripts/run-tests` sets it, and runs these tests again.
const FILE: &str = "TOLLGATE_INCONCLUSIVE";

/// Reports that a measurement of the current test is inconclusive. The test continues.
pub(crate) fn inconclusive(reason: &str) {
    let thread = std::thread::current();
    // cargo-nextest names the test; otherwise the thread of a test has its name.
    let test = std::env::var("NEXTEST_TEST_NAME")
        .unwrap_or_else(|_| thread.name().unwrap_or("a test").to_owned());
    eprintln!("inconclusive: {reason}");
    let Some(path) = std::env::var_os(FILE) else { return };
    let file = OpenOptions::new().create(true).append(true).open(path);
    // One write, so that lines of several processes do not mix.
    file.unwrap().write_all(format!("{test}\t{reason}\n").as_bytes()).unwrap();
}
