//! Import and export of clients.

use std::fs::File;
use std::io::{self, IsTerminal as _, Read, Write};
use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};
use http::HeaderValue;

use super::table::{self, Clients};
use super::{Failed, Filter, Gateway, PAGE, warn_of};
use crate::api::keys::{FailedLine, Imported, NewClient, StoredClients};
use crate::base::text::cut;
use crate::cli::EXIT_BAD_FILE;
use crate::top::Client;

/// Clients in one request.
const AT_ONCE: usize = 500;

/// Bytes of one request, at most; but a client of any length.
const BYTES_AT_ONCE: usize = 1 << 20;

/// Failed lines that are printed.
const SHOWN_FAILURES: usize = 20;

/// Exit code if lines of an import failed, or clients could not be exported.
const EXIT_INCOMPLETE: u8 = 1;

/// Clients to create.
#[derive(Debug, Args)]
pub(in crate::cli) struct Import {
    /// The file; `-` is standard input.
    #[arg(value_name = "CLIENTS")]
    path: PathBuf,
    /// Its format. Default: `csv` if its name ends so, else `jsonl`.
    #[arg(long)]
    format: Option<Format>,
    /// The gateway.
    #[command(flatten)]
    pub(super) gateway: Gateway,
}

/// Where to write clients.
#[derive(Debug, Args)]
pub(in crate::cli) struct Export {
    /// The file, which is created. Default: standard output.
    #[arg(long, short, value_name = "CLIENTS")]
    output: Option<PathBuf>,
    /// Its format. Default: `csv` if its name ends so, else `jsonl`.
    #[arg(long)]
    format: Option<Format>,
    /// Which clients.
    #[command(flatten)]
    filter: Filter,
    /// The gateway.
    #[command(flatten)]
    pub(super) gateway: Gateway,
}

/// The format of a file of clients.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Format {
    /// JSON Lines: one client a line.
    Jsonl,
    /// CSV: one API key a row.
    Csv,
}

/// How far it is, on standard error.
struct Progress {
    is_shown: bool,
    verb: &'static str,
}

impl Format {
    fn of(given: Option<Self>, path: Option<&Path>) -> Self {
        let is_csv =
            path.and_then(Path::extension).is_some_and(|it| it.eq_ignore_ascii_case("csv"));
        given.unwrap_or(if is_csv { Self::Csv } else { Self::Jsonl })
    }
}

impl Progress {
    fn new(verb: &'static str) -> Self {
        Self { is_shown: io::stderr().is_terminal(), verb }
    }

    fn show(&self, done: u64, of: Option<u64>) {
        if !self.is_shown {
            return;
        }
        match of {
            Some(of) => eprint!("\r{done} of {of} clients {}", self.verb),
            None => eprint!("\r{done} clients {}", self.verb),
        }
    }

    fn end(&self) {
        if self.is_shown {
            eprintln!();
        }
    }
}

impl Import {
    /// Creates the clients of the file. Returns what was done.
    pub(super) async fn run(&self, client: &Client) -> Result<String, Failed> {
        let Clients { valid: lines, wrong } = self.clients()?;
        let progress = Progress::new("sent");
        let (mut total, mut sent) = (Imported::default(), 0);
        total.failed.extend(wrong.into_iter().map(|(line, why)| FailedLine { line, why }));
        let mut rest = lines.as_slice();
        while !rest.is_empty() {
            let (count, body) = chunk(rest);
            let kind = HeaderValue::from_static("application/jsonl");
            let done: Imported = client.post("/api/keys/import", kind, &body).await?;
            total.created += done.created;
            total.unchanged += done.unchanged;
            for mut failed in done.failed {
                let line = usize::try_from(failed.line).unwrap_or_default();
                failed.line = rest.get(line.saturating_sub(1)).map_or(0, |line| line.0);
                total.failed.push(failed);
            }
            rest = rest.get(count..).unwrap_or_default();
            sent += count as u64;
            progress.show(sent, Some(lines.len() as u64));
        }
        progress.end();
        total.failed.sort_by_key(|failed| failed.line);
        for failed in total.failed.iter().take(SHOWN_FAILURES) {
            eprintln!("{}:{}: {}", self.path.display(), failed.line, cut(&failed.why, 200));
        }
        let text = format!(
            "{} created, {} already there, {} failed",
            total.created,
            total.unchanged,
            total.failed.len()
        );
        if total.failed.is_empty() {
            Ok(text + "\n")
        } else {
            Err(Failed::Other(text, EXIT_INCOMPLETE))
        }
    }

    /// The clients of the file. The gateway finds what is wrong with JSON Lines.
    fn clients(&self) -> Result<Clients, Failed> {
        let wrong = |error: &dyn std::fmt::Display| {
            Failed::Other(format!("{}: {error}", self.path.display()), EXIT_BAD_FILE)
        };
        let is_stdin = self.path.as_os_str() == "-";
        let mut content = Vec::new();
        let read = if is_stdin {
            io::stdin().lock().read_to_end(&mut content)
        } else {
            File::open(&self.path).and_then(|mut file| file.read_to_end(&mut content))
        };
        read.map_err(|error| wrong(&error))?;
        match Format::of(self.format, Some(&self.path)) {
            Format::Csv => table::read(&content).map_err(|error| wrong(&error)),
            Format::Jsonl => {
                let lines = (1..).zip(content.split(|byte| *byte == b'\n'));
                let lines = lines.map(|(number, line)| (number, line.trim_ascii().to_vec()));
                let lines = lines.filter(|(_, line)| !line.is_empty());
                let valid = lines.map(|(number, line)| (number, importable(line))).collect();
                Ok(Clients { valid, wrong: Vec::new() })
            }
        }
    }
}

/// A line of an export without what an import does not have: its version and its times.
fn importable(line: Vec<u8>) -> Vec<u8> {
    let Ok(serde_json::Value::Object(mut members)) = serde_json::from_slice(&line) else {
        // The gateway says what is wrong.
        return line;
    };
    for name in ["version", "created", "updated", "last_used", "locked"] {
        members.remove(name);
    }
    serde_json::to_vec(&members).unwrap_or(line)
}

/// The first lines as a body, and their number.
fn chunk(lines: &[(u64, Vec<u8>)]) -> (usize, Vec<u8>) {
    let mut body = Vec::new();
    let mut count = 0;
    for (_, line) in lines.iter().take(AT_ONCE) {
        if count > 0 && body.len() + line.len() > BYTES_AT_ONCE {
            break;
        }
        body.extend_from_slice(line);
        body.push(b'\n');
        count += 1;
    }
    (count, body)
}

impl Export {
    /// Writes the clients. Returns what to print.
    pub(super) async fn run(&self, client: &Client) -> Result<String, Failed> {
        let format = Format::of(self.format, self.output.as_deref());
        let failed = |error: io::Error| Failed::Other(format!("cannot write: {error}"), 1);
        let mut output: Box<dyn Write> = match &self.output {
            None => Box::new(io::stdout().lock()),
            Some(path) => Box::new(File::create(path).map_err(failed)?),
        };
        let progress = Progress::new("read");
        let (mut cursor, mut read, mut damaged) = (None::<String>, 0, Vec::new());
        if format == Format::Csv {
            output.write_all(&table::head()).map_err(failed)?;
        }
        loop {
            let path = self.filter.path(PAGE, cursor.as_deref());
            let page: StoredClients = client.get(&path).await?;
            for client in &page.keys {
                let text = match format {
                    Format::Csv => table::rows(client),
                    Format::Jsonl => {
                        let mut line = serde_json::to_vec(client).unwrap_or_default();
                        line.push(b'\n');
                        line
                    }
                };
                output.write_all(&text).map_err(failed)?;
            }
            damaged.extend(page.damaged);
            read += page.keys.len() as u64;
            progress.show(read, page.total);
            cursor = page.next;
            if cursor.is_none() {
                break;
            }
        }
        output.flush().map_err(failed)?;
        progress.end();
        warn_of(&damaged);
        match damaged.len() {
            0 => Ok(String::new()),
            count => Err(Failed::Other(format!("{count} not exported"), EXIT_INCOMPLETE)),
        }
    }
}

/// The text of a client to import.
pub(super) fn line(client: &NewClient) -> Vec<u8> {
    serde_json::to_vec(client).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn request_has_some_of_the_lines() {
        let short: Vec<_> = (0..1_200).map(|at| (at, b"{}".to_vec())).collect();
        assert_eq!(chunk(&short).0, AT_ONCE);
        let long: Vec<_> = (0..3).map(|at| (at, vec![b' '; BYTES_AT_ONCE / 2 + 1])).collect();
        assert_eq!(chunk(&long).0, 1);
        assert_eq!(chunk(&short[..1]).1, b"{}\n");
    }

    #[test]
    fn line_of_an_export_can_be_imported() {
        let line =
            br#"{"id":"a","version":3,"created":"x","updated":"y","last_used":"z","locked":true,"secrets":[]}"#
                .to_vec();
        assert_eq!(importable(line), br#"{"id":"a","secrets":[]}"#);
        assert_eq!(importable(b"nonsense".to_vec()), b"nonsense");
    }
}
