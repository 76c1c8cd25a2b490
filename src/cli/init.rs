//! `tollgate init`: writes a small configuration file to start with.

use std::fs::File;
use std::io::{ErrorKind, IsTerminal as _, Write as _};
use std::process::ExitCode;

use clap::Args;

use super::file::ConfigFile;
use super::{EXIT_BAD_FILE, print};
use crate::load;
use crate::net::io_text;

/// The file, with one placeholder.
const TEMPLATE: &str = include_str!("init/gateway.toml");

/// What [`TEMPLATE`] has in place of the server.
const SERVER: &str = "127.0.0.1:3000";

/// What to write.
#[derive(Debug, Args)]
pub(super) struct Flags {
    /// The server that requests are forwarded to.
    #[arg(long, value_name = "ADDRESS", default_value = SERVER)]
    server: String,
}

/// Writes the file, unless it exists.
pub(super) fn init(file: &ConfigFile, flags: &Flags) -> ExitCode {
    let shown = file.path.display();
    // As the text of a TOML string.
    let server = serde_json::Value::from(flags.server.as_str()).to_string();
    let text = TEMPLATE.replace(&format!("\"{SERVER}\""), &server);
    if let Err(report) = load::from_text(&shown.to_string(), &text) {
        eprintln!("{}", report.render(std::io::stderr().is_terminal()).trim_end());
        eprintln!("{shown} is not written");
        return ExitCode::from(EXIT_BAD_FILE);
    }
    let created = File::options().write(true).create_new(true).open(&file.path);
    match created.and_then(|mut file| file.write_all(text.as_bytes())) {
        Ok(()) => print(&format!(
            "{shown} is written\n\n  to check it:  tollgate check {shown}\n  to serve it:  tollgate run {shown}\n"
        )),
        Err(error) if error.kind() == ErrorKind::AlreadyExists => {
            eprintln!(
                "error: {shown} exists, and is not overwritten\n  name another file: tollgate init FILE"
            );
            ExitCode::from(EXIT_BAD_FILE)
        }
        Err(error) => {
            eprintln!("error: cannot write {shown}: {}", io_text::plain(&error));
            ExitCode::FAILURE
        }
    }
}
