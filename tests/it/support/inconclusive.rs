//! Reports measurements that a busy machine has spoilt.

use std::fs::OpenOptions;
use std::io::Write as _;

/// File with one line per measurement; `scripts/run-tests` empties it first and prints it last.
const FILE: &str = concat!(env!("CARGO_TARGET_TMPDIR"), "/inconclusive");

/// Reports that a measurement of the current test is inconclusive. The test continues.
pub(crate) fn inconclusive(reason: &str) {
    let thread = std::thread::current();
    let test = thread.name().unwrap_or("a test");
    eprintln!("inconclusive: {reason}");
    let file = OpenOptions::new().create(true).append(true).open(FILE);
    // One write, so that lines of several processes do not mix.
    file.unwrap().write_all(format!("{test}: {reason}\n").as_bytes()).unwrap();
}
