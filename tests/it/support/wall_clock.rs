//! Changes the wall clock of a running program, with a preloaded library that replaces functions of
//! the C library. `cc` builds it.

use std::os::unix::fs::FileExt as _;
use std::process::Command;

use tempfile::TempDir;

use super::child::spawned;

/// The wall clock of the programs that use it.
pub(crate) struct WallClock {
    folder: TempDir,
}

impl WallClock {
    pub(crate) fn new() -> Self {
        let clock = Self { folder: tempfile::tempdir().unwrap() };
        std::fs::write(clock.folder.path().join("source.c"), include_str!("wall_clock.c")).unwrap();
        let mut cc = Command::new("cc");
        cc.current_dir(clock.folder.path());
        cc.args(["-shared", "-fPIC", "-O1", "-Wall", "-Werror", "-o", "clock.so", "source.c"]);
        let output = spawned(cc.output(), &cc, "apt-get install build-essential");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        std::fs::write(clock.folder.path().join("offset"), 0_i64.to_ne_bytes()).unwrap();
        clock
    }

    /// Makes a program use this clock.
    pub(crate) fn apply_to(&self, command: &mut Command) {
        command.env("LD_PRELOAD", self.folder.path().join("clock.so"));
        command.env("WALL_CLOCK_OFFSET", self.folder.path().join("offset"));
    }

    /// Sets the offset from the real time, in seconds.
    pub(crate) fn set(&self, seconds_off: i64) {
        let mut file = std::fs::OpenOptions::new();
        let file = file.write(true).open(self.folder.path().join("offset")).unwrap();
        file.write_all_at(&seconds_off.to_ne_bytes(), 0).unwrap();
    }
}
