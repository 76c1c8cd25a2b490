//! Names that a running program looks up, with a preloaded library that replaces a function of the
//! C library. `cc` builds it.

use std::net::IpAddr;
use std::path::PathBuf;
use std::process::Command;

use tempfile::TempDir;

use super::child::spawned;
use super::files::replace_file;

/// The names below `.test` of the programs that use it. At first, there is none.
pub(crate) struct Names {
    folder: TempDir,
}

impl Names {
    pub(crate) fn new() -> Self {
        let names = Self { folder: tempfile::tempdir().unwrap() };
        std::fs::write(names.path("source.c"), include_str!("names.c")).unwrap();
        let mut cc = Command::new("cc");
        cc.current_dir(names.folder.path());
        cc.args(["-shared", "-fPIC", "-O1", "-Wall", "-Werror", "-o", "names.so", "source.c"]);
        let output = spawned(cc.output(), &cc, "apt-get install build-essential");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        names
    }

    /// Makes a program look up these names.
    pub(crate) fn apply_to(&self, command: &mut Command) {
        command.env("LD_PRELOAD", self.path("names.so")).env("TEST_NAMES", self.folder.path());
    }

    /// Gives a name this address.
    pub(crate) fn set(&self, name: &str, address: IpAddr) {
        self.write(name, &address.to_string());
    }

    /// Lets look-ups of a name end without an answer.
    pub(crate) fn silence(&self, name: &str) {
        self.write(name, "");
    }

    /// Removes a name.
    pub(crate) fn remove(&self, name: &str) {
        std::fs::remove_file(self.path(name)).unwrap();
    }

    fn write(&self, name: &str, content: &str) {
        replace_file(self.path(name), content);
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }
}
