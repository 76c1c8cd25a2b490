//! The command line: one file per subcommand.

mod audit;
mod check;
mod columns;
mod completions;
mod explain;
mod file;
mod hash_key;
mod health;
mod import;
mod init;
mod keys;
mod man;
mod run;
mod schema;
mod target;
mod token;
mod top;
mod top_ups;
mod upgrade;
mod upstreams;
mod usage;
mod version;

use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::error::{ContextKind, ContextValue};
use clap::{Parser, Subcommand};
use clap_complete::Shell;

use crate::base::period::milliseconds;
use file::{ConfigFile, FileArgument, FileFlag};

/// Exit code for a bad file: `EX_USAGE` of sysexits.h.
const EXIT_BAD_FILE: u8 = 64;

/// Exit code for a port that cannot be opened: `EX_UNAVAILABLE` of sysexits.h.
const EXIT_UNAVAILABLE: u8 = 69;

/// Exit code for a service that panicked: `EX_SOFTWARE` of sysexits.h.
const EXIT_BUG: u8 = 70;

/// A reverse-proxy API gateway that enforces rate limits exactly, on one gateway or on many.
///
/// Without a command, serves requests, and reloads the configuration file when it changes.
/// Documentation: docs/ in the source; docs/configuration.md describes the file.
#[derive(Debug, Parser)]
#[command(name = "tollgate", version, long_version = version::LONG, max_term_width = 100)]
struct Arguments {
    /// The configuration file [default: gateway.toml]
    #[arg(short, long, value_name = "FILE")]
    config: Option<PathBuf>,

    /// The subcommand; `run` by default.
    #[command(subcommand)]
    command: Option<Command>,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Serve requests. Exits with 64 if the file has errors, with 69 if a port is in use.
    ///
    /// The configuration reloads when the file is saved, on SIGHUP, and on `POST /api/reload` at
    /// the admin port. A file with errors changes nothing.
    Run(FileArgument),
    /// Check the file and print every error and warning with its line. Exits with 0 or 64.
    ///
    /// An error is what `run` rejects. A warning is what is probably a mistake, such as a plan that
    /// no rule limits: `run` accepts such a file, and logs its warnings.
    ///
    /// For example, in CI: `tollgate check --strict --no-env gateway.toml`. Before a deployment:
    /// `tollgate check --against http://127.0.0.1:9090 gateway.toml`.
    Check {
        /// The configuration file.
        #[command(flatten)]
        file: FileArgument,
        /// How to check it.
        #[command(flatten)]
        flags: check::Flags,
    },
    /// Explain the response to a request: client, route, every rule, names of the buckets.
    ///
    /// Uses only the file: opens no port and does not connect to Redis. A running gateway also
    /// knows the levels of the buckets, and so the verdict: POST /api/explain on its admin port.
    /// Exits with 0 if the request is explained, allowed or not; with 64 on a bad file or bad
    /// arguments.
    ///
    /// For example: `tollgate explain --path /api/search --key-id acme`, or
    /// `tollgate explain --method POST --path /v1/items --host api.example.com --ip 203.0.113.7`.
    Explain {
        /// The configuration file.
        #[command(flatten)]
        file: FileArgument,
        /// The request.
        #[command(flatten)]
        request: explain::Request,
    },
    /// Write a small gateway.toml to start with.
    ///
    /// The file forwards all requests to your API, and limits each address. Its comments say how to
    /// go on. On a terminal, asks for what no flag says. An existing file is not overwritten
    /// without `--force`: exits with 64.
    ///
    /// For example: `tollgate init --upstream 127.0.0.1:3000 && tollgate run`, or
    /// `tollgate init --per key --rate 100/m --acme api.example.com`.
    Init {
        /// The file to write.
        #[command(flatten)]
        file: FileArgument,
        /// What to write.
        #[command(flatten)]
        flags: init::Flags,
    },
    /// Make a gateway.toml of the configuration of nginx, Traefik, Kong or Envoy.
    ///
    /// Lists on standard error, line by line, what is missing or different, and why. Copies no
    /// secrets but hashes of API keys. Exits with 0; with 1 if the result has errors, which are
    /// printed; with 64 if a file cannot be read or understood.
    ///
    /// For example: `tollgate import nginx.conf conf.d/*.conf --output gateway.toml`.
    Import {
        /// What to import.
        #[command(flatten)]
        flags: import::Flags,
    },
    /// Why were requests refused? Asks a running gateway for its refusals of a key, an address or a
    /// rule.
    ///
    /// For example: `tollgate audit --key-id acme --since 10:03`, or `--at 10:03` for that minute.
    /// Reads from the admin port only. Exits with 0, whether refusals are found or not; with 64 on
    /// a bad file, bad arguments or a wrong token; with 69 if no gateway answers, or it cannot at
    /// the moment.
    Audit {
        /// The configuration file.
        #[command(flatten)]
        file: FileArgument,
        /// The refusals, and the gateway.
        #[command(flatten)]
        flags: audit::Flags,
    },
    /// How much did clients use of their quotas? Asks a running gateway, by client, rule and
    /// period.
    ///
    /// For example: `tollgate usage --key-id acme`, or `tollgate usage --since 90d --rule monthly`.
    /// Reads from the admin port only. Exits with 0, whether something was used or not; with 64 on
    /// a bad file, bad arguments or a wrong token; with 69 if no gateway answers, or it cannot at
    /// the moment.
    Usage {
        /// The configuration file.
        #[command(flatten)]
        file: FileArgument,
        /// The usage, and the gateway.
        #[command(flatten)]
        flags: usage::Flags,
    },
    /// Show a running gateway in the terminal: rates, clients, health, refusals.
    ///
    /// Reads from its admin port only. The key ? lists all keys. Exits with 0; with 64 on a bad
    /// file, bad arguments or a wrong token; with 69 if no gateway answers and `--once` is given.
    Top {
        /// The configuration file.
        #[command(flatten)]
        file: FileArgument,
        /// The gateway, and how to show it.
        #[command(flatten)]
        flags: top::Flags,
    },
    /// Which endpoints of upstreams get requests? List, drain, disable and enable those of a
    /// running gateway.
    ///
    /// For example: `tollgate upstreams drain api 10.0.0.7:80` before a server is restarted, and
    /// `tollgate upstreams enable api 10.0.0.7:80` afterwards. Applies to this gateway, over
    /// reloads and upgrades, until it ends. Exits with 0; with 64 on a bad file, bad arguments, an
    /// unknown endpoint or a wrong token; with 69 if no gateway answers, or it cannot at the
    /// moment.
    Upstreams {
        /// What to do.
        #[command(subcommand)]
        action: upstreams::Action,
    },
    /// What do clients have beyond their quotas? List, add and revoke top-ups.
    ///
    /// For example: `tollgate top-ups add --key-id acme --rule monthly --tokens 5000 --expires 90d
    /// --reason "invoice 4711"`. Asks the admin port of a running gateway. Exits with 0; with 64 on
    /// a bad file, bad arguments, an unknown client or a wrong token; with 69 if no gateway
    /// answers, or it cannot at the moment, as while Redis does not respond.
    TopUps {
        /// What to do.
        #[command(subcommand)]
        action: top_ups::Action,
    },
    /// The clients of the key store: create, list, rotate, disable, import and export them.
    ///
    /// For example: `tollgate keys create --id acme --plan pro` prints the new API key, and
    /// `tollgate keys rotate acme --overlap 24h` another one. Asks the admin port of a running
    /// gateway, whose file has `[key_store]`. Exits with 0; with 1 if lines of an import failed;
    /// with 64 on a bad file, bad arguments, an unknown client or a wrong token; with 69 if no
    /// gateway answers, or it cannot at the moment, as while its store cannot be read.
    Keys {
        /// What to do.
        #[command(subcommand)]
        action: keys::Action,
    },
    /// Print the JSON Schema of the file, for editors.
    ///
    /// Run `tollgate schema > gateway.schema.json` and make `#:schema ./gateway.schema.json` the
    /// first line of gateway.toml: editors then complete names and underline errors.
    Schema,
    /// Ask a running gateway whether it is ready, for health checks. Exits with 0, 1 or 64.
    ///
    /// Asks the admin port of the file, which needs no token for this. If that listens on all
    /// addresses, asks on the loopback address. Exits with 0 if the gateway is healthy, with 1 if
    /// it is not or does not answer, with 64 on bad arguments or if the file does not show the
    /// address.
    Health {
        /// The configuration file.
        #[command(flatten)]
        file: FileArgument,
        /// The gateway, and what to ask it.
        #[command(flatten)]
        flags: health::Flags,
    },
    /// Replace a running gateway by the program on disk, without closing its ports.
    ///
    /// The gateway starts its program again, with the same arguments. The new process takes over
    /// the listening sockets and the buckets in memory; then the old one completes its requests and
    /// ends. If the new process does not get ready, the old one serves as before. Exits with 0;
    /// with 1 if the gateway was not replaced; with 64 on a bad file, bad arguments or a wrong
    /// token; with 69 if no gateway answers. SIGQUIT does the same without an answer.
    Upgrade {
        /// The configuration file.
        #[command(flatten)]
        file: FileArgument,
        /// The gateway.
        #[command(flatten)]
        flags: upgrade::Flags,
    },
    /// Print the [keys.…] table of an API key, or of a new random key.
    ///
    /// The table goes to standard output and a new key to standard error, so that
    /// `tollgate hash-key --id acme --plan pro >> gateway.toml` adds a client and stores only the
    /// SHA-256 of its key. If the file exists, the table fits it: the id is new, the plan exists.
    ///
    /// A key on the command line stays in the shell's history: `tollgate hash-key -` reads it from
    /// standard input instead.
    HashKey {
        /// The configuration file.
        #[command(flatten)]
        file: FileFlag,
        /// The key, and what its table says.
        #[command(flatten)]
        flags: hash_key::Flags,
    },
    /// Print the completions of a shell.
    ///
    /// For example: `tollgate completions bash > /etc/bash_completion.d/tollgate`. The packages
    /// install those of bash, zsh and fish.
    Completions {
        /// The shell.
        shell: Shell,
    },
    /// Print the manual page, or write those of all commands into a folder.
    ///
    /// For example: `tollgate man | man -l -`. The packages install all pages.
    Man {
        /// The folder for `tollgate.1`, `tollgate-run.1` and the others. It is created if it does
        /// not exist.
        #[arg(long, value_name = "FOLDER")]
        folder: Option<PathBuf>,
    },
}

/// Parses a time such as `500ms`; `None` if it is not one, or not in the range.
fn time_within(range_ms: RangeInclusive<u64>, text: &str) -> Option<Duration> {
    milliseconds(text).ok().filter(|time| range_ms.contains(time)).map(Duration::from_millis)
}

/// Writes to standard output. A closed pipe (`| head`) is not an error.
fn print(text: &str) -> ExitCode {
    print_bytes(text.as_bytes())
}

fn print_bytes(bytes: &[u8]) -> ExitCode {
    use std::io::Write as _;

    match std::io::stdout().lock().write_all(bytes) {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => {
            eprintln!("error: cannot write: {error}");
            ExitCode::FAILURE
        }
        _ => ExitCode::SUCCESS,
    }
}

/// Parses the arguments of the process and runs the subcommand.
pub fn main() -> ExitCode {
    let Arguments { config, command } = match Arguments::try_parse() {
        Ok(parsed) => parsed,
        Err(error) => return refuse(&error),
    };
    let of = |argument| ConfigFile::of(config, argument);
    let code = match command.unwrap_or(Command::Run(FileArgument::default())) {
        Command::Run(file) => of(file).map(|file| run::run(&file.path)),
        Command::Check { file, flags } => of(file).map(|file| check::check(&file.path, &flags)),
        Command::Explain { file, request } => {
            of(file).map(|file| explain::explain(&file.path, request))
        }
        Command::Init { file, flags } => {
            file.or_output(flags.output.as_ref()).and_then(of).map(|file| init::init(&file, &flags))
        }
        Command::Import { flags } => Ok(import::import(&flags)),
        Command::Usage { file, flags } => of(file).map(|file| usage::usage(&file, &flags)),
        Command::Audit { file, flags } => of(file).map(|file| audit::audit(&file, &flags)),
        Command::Top { file, flags } => of(file).map(|file| top::top(&file, &flags)),
        Command::Upstreams { mut action } => {
            of(action.file().into()).map(|file| upstreams::upstreams(&file, &action))
        }
        Command::TopUps { mut action } => {
            of(action.file().into()).map(|file| top_ups::top_ups(&file, action))
        }
        Command::Keys { mut action } => {
            of(action.file().into()).map(|file| keys::keys(&file, &action))
        }
        Command::Schema => Ok(schema::schema()),
        Command::Health { file, flags } => of(file).map(|file| health::health(&file, &flags)),
        Command::Upgrade { file, flags } => of(file).map(|file| upgrade::upgrade(&file, &flags)),
        Command::HashKey { file, flags } => {
            of(file.into()).map(|file| hash_key::hash_key(&file, flags))
        }
        Command::Completions { shell } => Ok(completions::completions(shell)),
        Command::Man { folder } => Ok(man::man(folder.as_deref())),
    };
    code.unwrap_or_else(|two_files| {
        eprintln!("error: {two_files}");
        ExitCode::from(EXIT_BAD_FILE)
    })
}

/// Prints why the arguments are invalid, or the text of `--help` or `--version`.
fn refuse(error: &clap::Error) -> ExitCode {
    if !error.use_stderr() {
        // --help and --version are "errors" that go to standard output and succeed.
        let _ = error.print();
        return ExitCode::SUCCESS;
    }
    match error.get(ContextKind::InvalidSubcommand) {
        Some(ContextValue::String(word)) if file::suggestion(word).is_some() => {
            eprintln!("{}", file::suggestion(word).unwrap_or_default());
        }
        _ => {
            let _ = error.print();
        }
    }
    ExitCode::from(EXIT_BAD_FILE)
}
