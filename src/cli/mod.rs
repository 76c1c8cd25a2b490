//! The command line: one file per subcommand.

mod check;
mod explain;
mod hash_key;
mod run;
mod schema;
mod top;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::parser::ValueSource;
use clap::{CommandFactory as _, FromArgMatches as _, Parser, Subcommand};

/// A bad file: `EX_USAGE` of sysexits.h.
const EXIT_BAD_FILE: u8 = 64;

/// A port that cannot be had: `EX_UNAVAILABLE` of sysexits.h.
const EXIT_UNAVAILABLE: u8 = 69;

/// An API gateway that holds every client to its limits, exactly.
///
/// Without a command, serves, and takes the file again whenever it changes. Docs: docs/ beside the
/// source; the file is described in docs/configuration.md.
#[derive(Debug, Parser)]
#[command(name = "tollgate", version, max_term_width = 100)]
struct Arguments {
    /// The file with the limits.
    #[arg(short, long, global = true, value_name = "FILE", default_value = "gateway.toml")]
    config: PathBuf,

    /// What to do; without it, run.
    #[command(subcommand)]
    command: Option<Command>,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Serve. Exits with 64 on a bad file, with 69 on a port that is taken.
    ///
    /// A file that changes is taken while it runs: when it is saved, on SIGHUP, and on
    /// `POST /api/reload` at the admin port. One with an error changes nothing.
    Run,
    /// Read the file as `run` would and print every error with its line. Exits with 0 or 64.
    Check,
    /// Say what would become of a request, and why: client, route, every rule, buckets' names.
    ///
    /// By the file alone: no port is opened, and Redis is not asked. What is in the buckets, and so
    /// the verdict, is known to a running gateway: POST /api/explain on its admin port. Exits with
    /// 0 when the request is explained, refused or not; with 64 on a bad file or bad arguments.
    Explain(explain::Request),
    /// Show what a gateway does, live in a terminal: rates, clients, buckets, health.
    ///
    /// By its admin port alone. Keys: ? lists them. Exits with 0; with 64 on a bad file, bad
    /// arguments or a wrong token; with 69 where no gateway answers, if it is asked once.
    Top(top::Flags),
    /// Print the JSON Schema of the file, for editors.
    ///
    /// `tollgate schema > gateway.schema.json`, and `#:schema ./gateway.schema.json` as the first
    /// line of gateway.toml: editors then complete its names and underline what is wrong.
    Schema,
    /// Print the [keys.…] lines for an API key; without one, make a new random key.
    ///
    /// The gateway only ever keeps the key's SHA-256. A key on the command line stays in the
    /// shell's history: `tollgate hash-key -` reads it from standard input instead.
    HashKey {
        /// The key, or `-` to read it from standard input.
        key: Option<String>,
    },
}

/// Writes to standard output. Who has read enough (`| head`) has closed it: no reason to fail.
fn print(text: &str) -> ExitCode {
    use std::io::Write as _;

    match std::io::stdout().lock().write_all(text.as_bytes()) {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => {
            eprintln!("error: cannot write: {error}");
            ExitCode::FAILURE
        }
        _ => ExitCode::SUCCESS,
    }
}

/// Runs the program with the process' own arguments.
pub fn main() -> ExitCode {
    let parsed = Arguments::command().try_get_matches().and_then(|matches| {
        let is_named = matches.value_source("config") == Some(ValueSource::CommandLine);
        Ok((Arguments::from_arg_matches(&matches)?, is_named))
    });
    let (arguments, is_named) = match parsed {
        Ok(parsed) => parsed,
        Err(error) => {
            // --help and --version are "errors" that go to standard output and succeed.
            let code = if error.use_stderr() { EXIT_BAD_FILE } else { 0 };
            let _ = error.print();
            return ExitCode::from(code);
        }
    };
    match arguments.command.unwrap_or(Command::Run) {
        Command::Run => run::run(&arguments.config),
        Command::Check => check::check(&arguments.config),
        Command::Explain(request) => explain::explain(&arguments.config, request),
        Command::Top(flags) => top::top(is_named.then_some(&arguments.config), &flags),
        Command::Schema => schema::schema(),
        Command::HashKey { key } => hash_key::hash_key(key.as_deref()),
    }
}
