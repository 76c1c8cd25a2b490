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

/// Exit code for a bad file: `EX_USAGE` of sysexits.h.
const EXIT_BAD_FILE: u8 = 64;

/// Exit code for a port that cannot be opened: `EX_UNAVAILABLE` of sysexits.h.
const EXIT_UNAVAILABLE: u8 = 69;

/// A reverse-proxy API gateway that enforces rate limits exactly, on one gateway or on many.
///
/// Without a command, serves requests, and reloads the configuration file when it changes. Documentation:
/// docs/ in the source; docs/configuration.md describes the file.
#[derive(Debug, Parser)]
#[command(name = "tollgate", version, max_term_width = 100)]
struct Arguments {
    /// The configuration file.
    #[arg(short, long, global = true, value_name = "FILE", default_value = "gateway.toml")]
    config: PathBuf,

    /// The subcommand; `run` by default.
    #[command(subcommand)]
    command: Option<Command>,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Serve requests. Exits with 64 if the file has errors, with 69 if a port is in use.
    ///
    /// The configuration reloads when the file is saved, on SIGHUP, and on `POST /api/reload` at the
    /// admin port. A file with errors changes nothing.
    Run,
    /// Check the file and print every error with its line. Exits with 0 or 64.
    Check,
    /// Explain the response to a request: client, route, every rule, names of the buckets.
    ///
    /// Uses only the file: opens no port and does not connect to Redis. A running gateway also knows
    /// the levels of the buckets, and so the verdict: POST /api/explain on its admin port. Exits with
    /// 0 if the request is explained, allowed or not; with 64 on a bad file or bad arguments.
    Explain(explain::Request),
    /// Show a running gateway in the terminal: rates, clients, buckets, health.
    ///
    /// Reads from its admin port only. The key ? lists all keys. Exits with 0; with 64 on a bad file,
    /// bad arguments or a wrong token; with 69 if no gateway answers and `--once` is given.
    Top(top::Flags),
    /// Print the JSON Schema of the file, for editors.
    ///
    /// Run `tollgate schema > gateway.schema.json` and make `#:schema ./gateway.schema.json` the first
    /// line of gateway.toml: editors then complete names and underline errors.
    Schema,
    /// Print the [keys.…] table of an API key, or of a new random key.
    ///
    /// The gateway stores only the SHA-256 of a key. A key on the command line stays in the shell's
    /// history: `tollgate hash-key -` reads it from standard input instead.
    HashKey {
        /// The key, or `-` to read it from standard input.
        key: Option<String>,
    },
}

/// Writes to standard output. A closed pipe (`| head`) is not an error.
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

/// Parses the arguments of the process and runs the subcommand.
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
