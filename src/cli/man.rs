//! `tollgate man`: manual pages, made of the same definitions as `--help`.

use std::fs;
use std::io;
use std::path::Path;
use std::process::ExitCode;

use clap::CommandFactory as _;
use clap_mangen::Man;

use super::{Arguments, print};
use crate::net::io_text;

/// Prints the page of the program, or writes the pages of all commands into the folder.
pub(super) fn man(folder: Option<&Path>) -> ExitCode {
    let mut program = Arguments::command().disable_help_subcommand(true);
    program.build();
    let Some(folder) = folder else {
        return match page(program) {
            Ok(page) => print(&String::from_utf8_lossy(&page)),
            Err(error) => failed(&error),
        };
    };
    match fs::create_dir_all(folder).and_then(|()| write_pages(program, folder)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => failed(&error),
    }
}

/// Writes the page of a command and those of its subcommands.
fn write_pages(command: clap::Command, folder: &Path) -> io::Result<()> {
    for subcommand in command.get_subcommands().filter(|subcommand| !subcommand.is_hide_set()) {
        write_pages(subcommand.clone(), folder)?;
    }
    let name = command.get_display_name().unwrap_or_else(|| command.get_name()).to_owned();
    fs::write(folder.join(format!("{name}.1")), page(command)?)
}

fn page(command: clap::Command) -> io::Result<Vec<u8>> {
    let mut text = Vec::new();
    Man::new(command).manual("tollgate").render(&mut text)?;
    Ok(text)
}

fn failed(error: &io::Error) -> ExitCode {
    eprintln!("error: cannot write the manual pages: {}", io_text::plain(error));
    ExitCode::FAILURE
}
