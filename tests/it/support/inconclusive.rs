//! Measurements that prove nothing, because the machine was too busy for them.

use std::fs::OpenOptions;
use std::io::Write as _;

/// One line for each; `scripts/run-tests` empties the file first and prints it last.
const FILE: &str = concat!(env!("CARGO_TARGET_TMPDIR"), "/inconclusive");

/// Reports that the running test could not judge what it is about, and why. The test goes on.
pub(crate) fn inconclusive(reason: &str) {
    let thread = std::thread::current();
    let test = thread.name().unwrap_or("a test");
    eprintln!("inconclusive: {reason}");
    let file = OpenOptions::new().create(true).append(true).open(FILE);
    // One write, so that lines of several processes do not mix.
    file.unwrap().write_all(format!("{test}: {reason}\n").as_bytes()).unwrap();
}
