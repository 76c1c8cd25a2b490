//! `tollgate completions`: the completions of a shell.

use std::process::ExitCode;

use clap::CommandFactory as _;
use clap_complete::Shell;

use super::{Arguments, print};

pub(super) fn completions(shell: Shell) -> ExitCode {
    let mut text = Vec::new();
    clap_complete::generate(shell, &mut Arguments::command(), "tollgate", &mut text);
    print(&String::from_utf8_lossy(&text))
}
