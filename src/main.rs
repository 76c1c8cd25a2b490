//! The process.
fn main() {}
